//! Boards in the host's shared memory: data that the members of a communicator on one host post for each other.
//!
//! Each process has [`PLACES`] places of a few pages, and a communicator with a board has the place of one number at
//! each member. A place is written by its process alone, at the times of [`redrt_sync::board`]. A short piece is posted
//! as a copy: in the place, or in one of its annexes behind all places. For a long piece the address is posted, and
//! others read it from its process's memory.
//!
//! As with rings, words that others may have written are checked before they are used as lengths.

use super::direct;
use super::shm::{self, Segment};
use crate::copying;
use crate::memory::Region;
use redrt_sync::board::{self, ANNEX_COUNT, DEPTH, Numbers, Parts, Reading};
use redrt_types::ProcessIndex;
use redrt_wire::control::BOARDS_BYTES;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Boards that a process can have at once.
pub const PLACES: u32 = 32;
/// Bound on the members: each looks at all others.
pub const MEMBERS_MAX: usize = 256;
/// Bound on the entries posted in the cell itself; more go to the annex.
const ENTRIES_INLINE_MAX: usize = 16;
/// Bytes that fit into a cell.
const INLINE_BYTES_MAX: usize = 960;
/// Bytes that fit into the annex of a cell. Copying that many in and out takes less time than having the kernel read
/// them in place, and waiting for all readers.
pub const ANNEX_BYTES_MAX: usize = 64 << 10;
const ANNEXES_BYTES: usize = ANNEX_COUNT as usize * ANNEX_BYTES_MAX;
/// Bound below which an entry's place is in the cell or annex; from here on it is an address.
const POSTED_END: usize = INLINE_BYTES_MAX + ANNEX_BYTES_MAX;

/// Place of a piece that must come as a message.
const MESSAGE: u64 = u64::MAX;
/// Place that stands for one piece for each member, all within the cell. A [`Short`] for each member locates its piece.
const SHORT: u64 = u64::MAX - 1;

/// Place and length of a piece for one member, where all pieces fit into the cell. With few members and bytes, entries
/// and pieces are in the cache line that each member looks at anyhow.
#[derive(Clone, Copy)]
#[repr(C)]
struct Short {
    length: u16,
    /// Offset in the bytes of the cell.
    place: u16,
}

/// Place and length of a posted piece, as its member states them.
#[derive(Clone, Copy)]
#[repr(C)]
struct PieceEntry {
    length: u64,
    /// Below [`INLINE_BYTES_MAX`] an offset in the cell; below [`POSTED_END`] likewise in its annex; [`MESSAGE`];
    /// [`SHORT`]; or an address in its process.
    place: u64,
}

#[repr(C, align(64))]
struct Cell {
    number: AtomicU64,
    /// This member's confirmation of pieces that others posted in place.
    reading: Reading,
    /// Entry of a piece for all. With a piece for each member, their entries are in the bytes, and this one tells if
    /// any piece is in place.
    entry: PieceEntry,
    bytes: [u8; INLINE_BYTES_MAX],
    /// Parts of the work of bringing this member another's piece.
    work: Parts,
}

#[repr(C, align(4096))]
struct BoardCells {
    cells: [Cell; DEPTH as usize],
}

/// Operations in succession after which the poster counts as ahead of the taker.
const FAR_BEHIND: u32 = 8;
const LINE_BYTES: usize = align_of::<Cell>();
/// Bound on the bytes to prefetch: of a longer piece the processor prefetches the rest itself.
const EXPECTED_BYTES_MAX: usize = 4 * LINE_BYTES;

const _: () = assert!(size_of::<BoardCells>() == 4 * 4096 && ANNEX_BYTES_MAX.is_multiple_of(4096));
const _: () = assert!(PLACES as usize * (size_of::<BoardCells>() + ANNEXES_BYTES) == BOARDS_BYTES);
const _: () = assert!(size_of::<[PieceEntry; ENTRIES_INLINE_MAX]>() <= INLINE_BYTES_MAX);
const _: () = assert!(size_of::<[PieceEntry; MEMBERS_MAX]>() <= ANNEX_BYTES_MAX);
const _: () = assert!(INLINE_BYTES_MAX <= u16::MAX as usize);

/// Offsets at which the next piece may be put.
struct CellCapacity {
    cell: usize,
    annex: usize,
}

/// A member, as the others know it.
#[derive(Clone, Copy)]
pub struct Member {
    /// Its process.
    pub process: ProcessIndex,
    /// Its process id.
    pub pid: i32,
}

/// Bound on the pieces copied to an annex, and treatment of longer ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Long {
    /// Pieces of more than this many bytes are posted in place, if members can read each other's memory. They must stay
    /// there until their readers confirm that they have read them, or could not ([`Board::say_read`]): not all memory
    /// can be read.
    InPlace(usize),
    /// Pieces of more than this many bytes come as messages: their member does not wait until they were read.
    AsMessages(usize),
}

impl Long {
    /// Copies all pieces that fit into an annex.
    pub const TO_ANNEX: Self = Self::InPlace(ANNEX_BYTES_MAX);

    /// Bound on the bytes of a piece that is copied.
    pub fn copied_max(self) -> usize {
        let (Self::InPlace(most) | Self::AsMessages(most)) = self;
        most
    }
}

/// A piece that was posted.
#[derive(Clone, Copy)]
pub struct Posted {
    member: usize,
    number: u64,
    entry: PieceEntry,
}

impl Posted {
    /// Length of the piece in bytes, as its member states it.
    pub fn length(&self) -> u64 {
        self.entry.length
    }

    /// Returns true if it must come as a message: nobody can read it in place.
    pub fn is_message(&self) -> bool {
        self.entry.place == MESSAGE
    }

    /// Returns true if it stands for one piece for each member, all within the cell.
    #[inline]
    pub fn are_short(&self) -> bool {
        self.entry.place == SHORT
    }

    /// Returns true if it, or one of several pieces, is in its process's memory. There it must stay until it was read.
    pub fn is_elsewhere(&self) -> bool {
        is_elsewhere(self.entry)
    }
}

fn is_elsewhere(entry: PieceEntry) -> bool {
    entry.place >= POSTED_END as u64 && entry.place < SHORT
}

/// An event that a member waits for at an operation.
#[derive(Clone, Copy)]
pub struct Awaited {
    number: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// All members reach the operation.
    All,
    /// One member reaches the operation.
    Member(usize),
    /// One member confirms its reading.
    Reading(usize),
    /// All of this many parts of this member's own work are over.
    Parts(u64),
}

/// The board of one communicator.
pub struct Board {
    place: u32,
    members: Box<[Member]>,
    /// Processes and sleep words of the other members.
    sleeps: Box<[(ProcessIndex, &'static AtomicU32)]>,
    places: Box<[*const BoardCells]>,
    annexes: Box<[*const u8]>,
    rank: usize,
    /// True if members can read each other's memory.
    direct: bool,
    /// Latest operation that all members are known to have reached.
    settled: AtomicU64,
    /// Latest operation that this process has reached.
    last: AtomicU64,
    /// Operations in succession in which the piece to take was there before this process.
    behind: AtomicU32,
}

// SAFETY: - the mapping is never removed, and cells are written by their owner alone, as the protocol of the numbers
//           allows.
unsafe impl Send for Board {}
// SAFETY: - shared references reach cells through atomics, and the cells of this process under its own protocol.
unsafe impl Sync for Board {}

impl Numbers for Board {
    #[inline]
    fn member_count(&self) -> usize {
        self.size()
    }

    #[inline]
    fn number(&self, member: usize, cell: usize) -> &AtomicU64 {
        // SAFETY: - a cell of a place of the mapping, of which this word is only used as an atomic; below DEPTH.
        unsafe { &(*self.cell(member, cell)).number }
    }
}

impl Board {
    /// The board of `members` in place `place` of each; `rank` is this process. No member may have posted a number
    /// beyond `base` there. `direct`: all of them can read each other's memory.
    ///
    /// # Panics
    /// When there is no such place, or there are too many members.
    pub fn new(segment: Segment, place: u32, members: Box<[Member]>, rank: usize, direct: bool, base: u64) -> Self {
        assert!(place < PLACES && members.len() <= MEMBERS_MAX, "place {place} of {PLACES}");
        let places = members.iter().map(|member| {
            // Shifted by the process: else all members' cells would compete for the same few lines of a cache.
            let at = (place + member.process.0) % PLACES;
            // SAFETY: - a process has PLACES places.
            unsafe { segment.board(member.process).cast::<BoardCells>().add(at as usize) }
        });
        let places = places.collect();
        let annexes = members.iter().map(|member| {
            let at = PLACES as usize * size_of::<BoardCells>() + place as usize * ANNEXES_BYTES;
            // SAFETY: - behind its places a process has the annexes of each.
            unsafe { segment.board(member.process).add(at) }
        });
        let annexes = annexes.collect();
        let others = members.iter().enumerate().filter(|(member, _)| *member != rank);
        let sleeps = others.map(|(_, member)| (member.process, segment.sleep_word(member.process))).collect();
        let (settled, last) = (AtomicU64::new(base), AtomicU64::new(base));
        Self { place, members, sleeps, places, annexes, rank, direct, settled, last, behind: AtomicU32::new(0) }
    }

    /// Number of members.
    #[inline]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The rank of this process.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns true if its members can read each other's memory.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Number of its place at each member.
    pub fn place(&self) -> u32 {
        self.place
    }

    #[inline]
    fn cell(&self, member: usize, cell: usize) -> *const Cell {
        // SAFETY: - cells are numbered below DEPTH.
        unsafe { (&raw const (*self.places[member]).cells).cast::<Cell>().add(cell) }
    }

    /// Address of `length` bytes at an entry's place; `None` when they are not all in the cell, or all in its annex.
    #[inline]
    fn bytes_at(&self, member: usize, number: u64, place: usize, length: usize) -> Option<*mut u8> {
        let (cell, end) = (board::cell(number), place.checked_add(length)?);
        let start = if end <= INLINE_BYTES_MAX {
            // SAFETY: - within the cell: checked.
            unsafe { (&raw const (*self.cell(member, cell)).bytes).cast::<u8>().add(place) }
        } else if place >= INLINE_BYTES_MAX && end <= POSTED_END {
            // SAFETY: - within the annex of this operation: checked.
            unsafe { self.annexes[member].add(board::annex(number) * ANNEX_BYTES_MAX + place - INLINE_BYTES_MAX) }
        } else {
            return None;
        };
        Some(start.cast_mut())
    }

    #[inline]
    fn own(&self, number: u64) -> *mut Cell {
        self.cell(self.rank, board::cell(number)).cast_mut()
    }

    /// Begins the next operation. Returns its number, and the event to wait for before anything is written.
    #[inline]
    pub fn next(&self) -> (u64, Option<Awaited>) {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.last.store(number, Ordering::Relaxed);
        let before = board::before_writing(number, self.settled());
        (number, before.map(Self::all))
    }

    /// The event to wait for before an operation's annex is written.
    #[inline]
    pub fn before_annex(&self, number: u64) -> Option<Awaited> {
        board::before_annexing(number, self.settled()).map(Self::all)
    }

    /// Returns true if a piece for all does not fit into a cell.
    #[inline]
    pub fn needs_annex(&self, piece: Region) -> bool {
        piece.len() > INLINE_BYTES_MAX
    }

    /// Returns true if the pieces for each other member do not all fit into a cell.
    #[inline]
    pub fn need_annex(&self, piece: impl Fn(usize) -> Region) -> bool {
        self.short_end(piece) > INLINE_BYTES_MAX
    }

    /// End of the last piece in a cell, if all pieces were there.
    #[inline]
    fn short_end(&self, piece: impl Fn(usize) -> Region) -> usize {
        let start = self.size() * size_of::<Short>();
        (0..self.size())
            .filter(|member| *member != self.rank)
            .fold(start, |end, to| end.saturating_add(piece(to).len()))
    }

    #[inline]
    fn settled(&self) -> u64 {
        // Acquire: writes of others that the finding thread saw are visible too.
        self.settled.load(Ordering::Acquire)
    }

    /// The event that all members reach an operation.
    #[inline]
    pub fn all(number: u64) -> Awaited {
        Awaited { number, what: What::All }
    }

    /// The event that a member reaches an operation.
    #[inline]
    pub fn one(member: usize, number: u64) -> Awaited {
        Awaited { number, what: What::Member(member) }
    }

    /// The event that a member confirms its reading of a piece posted in place.
    #[inline]
    pub fn read_by(member: usize, number: u64) -> Awaited {
        Awaited { number, what: What::Reading(member) }
    }

    /// The event that all `total` parts of this member's work are over.
    pub fn parts(number: u64, total: u64) -> Awaited {
        Awaited { number, what: What::Parts(total) }
    }

    /// Returns true if the event has come. For all members, the first `come` are known to have, and `come` is updated.
    #[inline]
    pub fn has_come(&self, awaited: Awaited, come: &mut usize) -> bool {
        match awaited.what {
            What::All => {
                let have_come = board::have_all_posted(self, awaited.number, come);
                if have_come {
                    self.settled.store(awaited.number, Ordering::Release);
                }
                have_come
            }
            What::Member(member) => board::has_posted(self, member, awaited.number),
            What::Reading(member) => self.has_read(member, awaited.number).is_some(),
            What::Parts(total) => self.work(self.rank, awaited.number).are_over(total),
        }
    }

    /// Prepares for the next operation, `number`, after another member was there before this one. This member will soon
    /// look for `bytes` bytes of the other, which are likely to be there again. So it prefetches the cache line of the
    /// number, and after several such operations also those of the bytes. The cost: if the other member has not posted
    /// yet, it waits for these lines when it does.
    #[inline]
    pub fn expect(&self, member: usize, number: u64, bytes: usize) {
        let behind = self.behind.load(Ordering::Relaxed);
        let is_far_behind = behind >= FAR_BEHIND;
        if !is_far_behind {
            self.behind.store(behind + 1, Ordering::Relaxed);
        }
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let cell = self.cell(member, board::cell(number)).cast::<i8>();
            let bytes = if is_far_behind { bytes } else { 0 };
            let end = (offset_of!(Cell, bytes) + bytes).min(EXPECTED_BYTES_MAX);
            for offset in (0..end).step_by(LINE_BYTES) {
                // SAFETY: - a prefetch reads and writes nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(offset)) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (member, number, bytes);
    }

    /// Resets that count: another member was not there before this one.
    #[inline]
    pub fn expect_nothing(&self) {
        self.behind.store(0, Ordering::Relaxed);
    }

    /// The rank of a member that is missing, this process itself included; `None` when the event has come.
    pub fn missing(&self, awaited: Awaited) -> Option<usize> {
        let mut come = 0;
        if self.has_come(awaited, &mut come) {
            return None;
        }
        Some(match awaited.what {
            What::All => come,
            What::Member(member) | What::Reading(member) => member,
            What::Parts(_) => self.rank,
        })
    }

    /// The parts of a member's work at an operation.
    #[inline]
    fn work(&self, member: usize, number: u64) -> &Parts {
        // SAFETY: - in a cell of the mapping, aligned; atomics only.
        unsafe { &(*self.cell(member, board::cell(number))).work }
    }

    /// Posts the buffer in which this member wants another's piece. If that is long, others can help to bring it.
    #[inline(always)]
    pub fn write_place(&self, number: u64, into: Region, long: Long) {
        let mut entry = PieceEntry { length: into.len() as u64, place: MESSAGE };
        if self.direct && into.len() > long.copied_max() {
            self.work(self.rank, number).reset();
            entry.place = into.start() as u64;
        }
        self.write_entry(number, entry);
    }

    /// Returns true if a member has come and wants `length` bytes that others may bring.
    pub fn wants(&self, member: usize, number: u64, length: usize) -> bool {
        let entry = || self.posted(member, number).entry;
        board::has_posted(self, member, number) && entry().length == length as u64 && entry().place != MESSAGE
    }

    /// Does parts of a member's work until none is left; see [`Parts`]. A part that `work` fails at is given up. `poke`
    /// wakes the member when all are over.
    pub fn help(
        &self,
        member: usize,
        number: u64,
        total: u64,
        poke: impl Fn(ProcessIndex),
        work: impl Fn(u64) -> io::Result<()>,
    ) {
        let parts = self.work(member, number);
        while let Some(part) = parts.take(total) {
            if parts.finish(total, work(part).is_ok()) && member != self.rank {
                let process = self.members[member].process;
                shm::rouse(self.sleeps.iter().copied().filter(|(other, _)| *other == process), &poke);
            }
        }
    }

    /// Returns true if others failed to bring some part to this member.
    pub fn has_failed(&self, number: u64) -> bool {
        self.work(self.rank, number).has_failed()
    }

    /// Copies bytes to a member's buffer, at `offset` bytes from its start.
    ///
    /// # Errors
    /// When its process's memory cannot be written.
    pub fn bring(&self, member: usize, number: u64, offset: usize, piece: Region) -> io::Result<()> {
        let place = self.posted(member, number).entry.place;
        // SAFETY: - the piece is valid for reads of its length; the other process is in the operation in which it wants
        //           these bytes.
        unsafe {
            direct::write(self.members[member].pid, place.wrapping_add(offset as u64), piece.start(), piece.len())
        }
    }

    /// Writes this member's post for all: a copy of `piece`, or its address if it is `long`.
    #[inline(always)]
    pub fn write(&self, number: u64, piece: Region, long: Long) -> Posted {
        let mut room = CellCapacity { cell: 0, annex: INLINE_BYTES_MAX };
        let entry = self.put(number, piece, long, &mut room);
        self.write_entry(number, entry)
    }

    /// Returns the entry that was written: reading it back from the cell would wait until that line is exclusive here.
    #[inline(always)]
    fn write_entry(&self, number: u64, entry: PieceEntry) -> Posted {
        // SAFETY: - this member's own cell, which nobody reads now: `next` says what must have come before.
        unsafe { (&raw mut (*self.own(number)).entry).write(entry) };
        Posted { member: self.rank, number, entry }
    }

    /// Writes one piece for each other member, and returns a post that stands for all. It tells if one of them is in
    /// this process's memory.
    #[inline(always)]
    pub fn write_each(&self, number: u64, piece: impl Fn(usize) -> Region, long: Long) -> Posted {
        let end = self.short_end(&piece);
        if end > INLINE_BYTES_MAX {
            return self.write_each_long(number, piece, long);
        }
        let bytes = self.bytes_at(self.rank, number, 0, end).expect("there is room for all");
        let mut place = self.size() * size_of::<Short>();
        for member in (0..self.size()).filter(|member| *member != self.rank) {
            let piece = piece(member);
            let short = Short { length: piece.len() as u16, place: place as u16 };
            // SAFETY: - this member's own cell, which nobody reads now; there is room for all: checked above.
            unsafe {
                bytes.cast::<Short>().add(member).write_unaligned(short);
                std::ptr::copy_nonoverlapping(piece.start(), bytes.add(place), piece.len());
            }
            place += piece.len();
        }
        self.write_entry(number, PieceEntry { length: 0, place: SHORT })
    }

    fn write_each_long(&self, number: u64, piece: impl Fn(usize) -> Region, long: Long) -> Posted {
        let (entries, bytes) = (self.entries(self.rank, number), self.size() * size_of::<PieceEntry>());
        let mut room = match self.size() {
            ..=ENTRIES_INLINE_MAX => CellCapacity { cell: bytes, annex: INLINE_BYTES_MAX },
            _ => CellCapacity { cell: 0, annex: INLINE_BYTES_MAX + bytes },
        };
        let mut for_all = PieceEntry { length: 0, place: 0 };
        for member in 0..self.size() {
            let piece = piece(member);
            // A member keeps its own piece, and posts none.
            let own = PieceEntry { length: piece.len() as u64, place: MESSAGE };
            let entry = if member == self.rank { own } else { self.put(number, piece, long, &mut room) };
            if is_elsewhere(entry) {
                for_all.place = entry.place;
            }
            // SAFETY: - this member's own cell or annex, which nobody reads now; there is room for them: checked above.
            unsafe { entries.add(member).write_unaligned(entry) };
        }
        self.write_entry(number, for_all)
    }

    /// Address of a member's entries of the pieces for each.
    #[inline]
    fn entries(&self, member: usize, number: u64) -> *mut PieceEntry {
        let place = if self.size() <= ENTRIES_INLINE_MAX { 0 } else { INLINE_BYTES_MAX };
        let at = self.bytes_at(member, number, place, self.size() * size_of::<PieceEntry>());
        at.expect("there is room for all").cast()
    }

    /// Copies a piece to where there is room for it, or finds its own place.
    #[inline(always)]
    fn put(&self, number: u64, piece: Region, long: Long, room: &mut CellCapacity) -> PieceEntry {
        let length = piece.len();
        let place = if room.cell + length <= INLINE_BYTES_MAX {
            room.cell += length;
            room.cell - length
        } else if length <= long.copied_max() && room.annex + length <= POSTED_END {
            room.annex += length;
            room.annex - length
        } else {
            let place = if let Long::InPlace(_) = long { self.place_of(piece) } else { MESSAGE };
            return PieceEntry { length: length as u64, place };
        };
        let to = self.bytes_at(self.rank, number, place, length).expect("there is room");
        // SAFETY: - this member's own cell or annex, which nobody reads now; the piece may not overlap with shared
        //           memory.
        unsafe { copying::copy(piece.start(), to, length) };
        PieceEntry { length: length as u64, place: place as u64 }
    }

    /// Posts that this member's piece for all comes as a message, of this size in bytes.
    pub fn write_message(&self, number: u64, bytes: usize) {
        self.write_entry(number, PieceEntry { length: bytes as u64, place: MESSAGE });
    }

    /// Returns true if members can read a long piece in place.
    pub fn is_readable(&self, piece: Region) -> bool {
        self.direct && direct::can_be_read(piece.start(), piece.len())
    }

    /// Readability is not tested here: readers find out themselves, and a test takes as long as reading some KiB.
    fn place_of(&self, piece: Region) -> u64 {
        let is_address = piece.start() as usize >= POSTED_END;
        if is_address && self.direct { piece.start() as u64 } else { MESSAGE }
    }

    fn reading(&self, member: usize, number: u64) -> &Reading {
        // SAFETY: - in a cell of the mapping, aligned; an atomic.
        unsafe { &(*self.cell(member, board::cell(number))).reading }
    }

    /// Confirms that this member has read all that it wanted of pieces posted in place in an operation, or could not.
    /// `poke` wakes processes that sleep in poll.
    pub fn say_read(&self, number: u64, has_read: bool, poke: impl Fn(ProcessIndex)) {
        self.reading(self.rank, number).say(number, has_read);
        shm::rouse(self.sleeps.iter().copied(), poke);
    }

    /// Returns true if a member has read them and false if it could not; `None` before it confirms.
    #[inline]
    pub fn has_read(&self, member: usize, number: u64) -> Option<bool> {
        self.reading(member, number).said(number)
    }

    /// Publishes that this member has reached the operation. `poke` wakes processes that sleep in poll.
    #[inline]
    pub fn post(&self, number: u64, poke: impl Fn(ProcessIndex)) {
        board::post(self, self.rank, number);
        shm::rouse(self.sleeps.iter().copied(), poke);
    }

    /// A member's post for all. The member must have reached the operation.
    #[inline]
    pub fn posted(&self, member: usize, number: u64) -> Posted {
        // SAFETY: - the member has come, and writes its cell again only when this one has come further.
        let entry = unsafe { (&raw const (*self.cell(member, board::cell(number))).entry).read() };
        Posted { member, number, entry }
    }

    /// A member's post for another one. The member must have reached the operation.
    pub fn posted_for(&self, member: usize, number: u64, to: usize) -> Posted {
        assert!(to < self.members.len(), "rank {to} of {}", self.members.len());
        if self.posted(member, number).entry.place == SHORT {
            // Words that cannot be, as there are no such bytes, give a piece that cannot be read.
            let at = self.bytes_at(member, number, to * size_of::<Short>(), size_of::<Short>());
            // SAFETY: - as in `posted`.
            let short = at.map(|at| unsafe { at.cast::<Short>().read_unaligned() });
            let (length, place) = short.map_or((0, SHORT), |short| (u64::from(short.length), u64::from(short.place)));
            return Posted { member, number, entry: PieceEntry { length, place } };
        }
        // SAFETY: - as in `posted`; there are as many entries as members.
        let entry = unsafe { self.entries(member, number).add(to).read_unaligned() };
        Posted { member, number, entry }
    }

    /// Copies `into.len()` bytes of a posted piece, from byte `offset` on.
    ///
    /// # Errors
    /// When its process's memory cannot be read.
    #[inline(always)]
    pub fn read(&self, posted: &Posted, offset: usize, into: Region) -> io::Result<()> {
        let Posted { member, number, entry } = *posted;
        if posted.is_elsewhere() {
            return self.read_elsewhere(posted, offset, into);
        }
        let from = (entry.place as usize).checked_add(offset);
        let from = from.and_then(|place| self.bytes_at(member, number, place, into.len()));
        let Some(from) = from else {
            return Err(io::Error::other("what is posted there is not in it"));
        };
        // SAFETY: - in the cell or its annex; the member leaves it as it is until this one has come further.
        unsafe { copying::copy(from, into.start(), into.len()) };
        Ok(())
    }

    fn read_elsewhere(&self, posted: &Posted, offset: usize, into: Region) -> io::Result<()> {
        let (pid, place) = (self.members[posted.member].pid, posted.entry.place.wrapping_add(offset as u64));
        // SAFETY: - the region is valid for writes of its length, and nobody else accesses it meanwhile.
        unsafe { direct::read(pid, place, into.start(), into.len()) }
    }

    /// A piece that can be read in the board itself; `None` for others. It stays until this member reaches another
    /// operation.
    #[inline]
    pub fn seen(&self, posted: &Posted) -> Option<Region> {
        let Posted { member, number, entry } = *posted;
        let length = usize::try_from(entry.length).ok()?;
        let start = self.bytes_at(member, number, usize::try_from(entry.place).ok()?, length)?;
        // SAFETY: - in the cell or its annex, and only read.
        Some(unsafe { Region::new(start, length) })
    }

    /// Returns true if all members have left; see [`Board::leave`].
    pub fn is_left(&self, number: u64) -> bool {
        board::have_all_posted(self, number, &mut 0)
    }

    /// Leaves the board. Returns the number for [`Board::is_left`]: once that is true, the place may be reused.
    pub fn leave(&self) -> u64 {
        let (number, _) = self.next();
        // Writes no cell, so nobody needs to have read the old one; and nobody waits for this number.
        board::post(self, self.rank, number);
        number
    }
}

#[cfg(test)]
mod tests;
