//! Boards in the node's shared memory: what the members of a communicator on one host post for each other.
//!
//! Each process has [`PLACES`] places of a few pages, and a communicator that has a board has one with the same number
//! at each member. What a place holds is written by its process alone; [`redrt_sync::board`] says when. A short piece
//! is posted as it is: in the place, or in one of its annexes behind all places. Of a long one is posted where its
//! bytes are, and others read them out of its process's memory.
//!
//! As with rings, whatever others may have written there is checked before it is used as a length.

use super::direct;
use super::shm::{self, Segment};
use crate::memory::Region;
use redrt_sync::board::{self, ANNEX_COUNT, DEPTH, Numbers, Parts, Reading};
use redrt_types::ProcessIndex;
use redrt_wire::control::BOARDS_BYTES;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Boards that a process can have at once.
pub const PLACES: u32 = 32;
/// Most members: each looks at all others.
pub const MEMBERS_MAX: usize = 256;
/// Up to this number of entries is posted in the cell itself, more in the annex.
const ENTRIES_INLINE_MAX: usize = 16;
/// Bytes that fit into a cell itself.
const INLINE_BYTES_MAX: usize = 960;
/// Bytes that fit into the annex of a cell. To write that many there, and to read them from there, takes less time than
/// to have the kernel read them where they are and to wait until all have.
pub const ANNEX_BYTES_MAX: usize = 64 << 10;
const ANNEXES_BYTES: usize = ANNEX_COUNT as usize * ANNEX_BYTES_MAX;
/// From here on what an entry says is an address.
const POSTED_END: usize = INLINE_BYTES_MAX + ANNEX_BYTES_MAX;

/// Where a piece is that must come as a message.
const MESSAGE: u64 = u64::MAX;
/// Stands for pieces for each member that all fit into the cell. A [`Short`] for each member says where its piece is.
const SHORT: u64 = u64::MAX - 1;

/// Where and how long a piece for one of the members is, where all of them fit into the cell: with a few members and
/// bytes, entries and pieces are in the line of the cell that each looks at anyhow.
#[derive(Clone, Copy)]
#[repr(C)]
struct Short {
    length: u16,
    /// In the bytes of the cell.
    place: u16,
}

/// Where and how long a piece is that somebody has posted, as its words say.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    length: u64,
    /// Below [`INLINE_BYTES_MAX`] it is in the cell, from there on; below [`POSTED_END`] likewise in its annex;
    /// [`MESSAGE`]; [`SHORT`]; or an address in its process.
    place: u64,
}

#[repr(C, align(64))]
struct Cell {
    number: AtomicU64,
    /// Of what others have posted where they are.
    reading: Reading,
    /// Of one piece for all. Where there is one for each member, these are in the bytes, and this says whether one of
    /// them is elsewhere.
    entry: Entry,
    bytes: [u8; INLINE_BYTES_MAX],
    /// Of who wants what another has posted.
    work: Parts,
}

#[repr(C, align(4096))]
struct BoardCells {
    cells: [Cell; DEPTH as usize],
}

/// Number of operations one after the other that show that who posts is ahead of who takes.
const FAR_BEHIND: u32 = 8;
const LINE_BYTES: usize = align_of::<Cell>();
/// Of a longer piece the processor sees itself what comes next.
const EXPECTED_BYTES_MAX: usize = 4 * LINE_BYTES;

const _: () = assert!(size_of::<BoardCells>() == 4 * 4096 && ANNEX_BYTES_MAX.is_multiple_of(4096));
const _: () = assert!(PLACES as usize * (size_of::<BoardCells>() + ANNEXES_BYTES) == BOARDS_BYTES);
const _: () = assert!(size_of::<[Entry; ENTRIES_INLINE_MAX]>() <= INLINE_BYTES_MAX);
const _: () = assert!(size_of::<[Entry; MEMBERS_MAX]>() <= ANNEX_BYTES_MAX);
const _: () = assert!(INLINE_BYTES_MAX <= u16::MAX as usize);

/// Where the next piece may be put.
struct Room {
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

/// Up to which length pieces are copied to an annex, and how longer ones are posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Long {
    /// Beyond this many bytes where they are, if members can read each other's memory. They must stay there until their
    /// readers say that they have them, or could not read them ([`Board::say_read`]): not all memory can be read.
    InPlace(usize),
    /// Beyond this many bytes they come as messages: their member does not wait until they were read.
    AsMessages(usize),
}

impl Long {
    /// What an annex has room for is copied there.
    pub const TO_ANNEX: Self = Self::InPlace(ANNEX_BYTES_MAX);

    /// Most bytes that are copied.
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
    entry: Entry,
}

impl Posted {
    /// How long it is.
    pub fn length(&self) -> u64 {
        self.entry.length
    }

    /// It must come as a message: nobody can read it where it is.
    pub fn is_message(&self) -> bool {
        self.entry.place == MESSAGE
    }

    /// It stands for a piece for each, all of which are in the cell.
    #[inline]
    pub fn are_short(&self) -> bool {
        self.entry.place == SHORT
    }

    /// It is in its process's memory, which must leave it there until it was read; or one of several pieces is.
    pub fn is_elsewhere(&self) -> bool {
        is_elsewhere(self.entry)
    }
}

fn is_elsewhere(entry: Entry) -> bool {
    entry.place >= POSTED_END as u64 && entry.place < SHORT
}

/// What somebody waits for at an operation.
#[derive(Clone, Copy)]
pub struct Awaited {
    number: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// That all members come.
    All,
    /// That one comes.
    Member(usize),
    /// That one says what it could read.
    Reading(usize),
    /// Publishes how many parts of this member's own work are over.
    Parts(u64),
}

/// One communicator's places.
pub struct Board {
    place: u32,
    members: Box<[Member]>,
    /// Where each of the others says that it sleeps.
    sleeps: Box<[(ProcessIndex, &'static AtomicU32)]>,
    places: Box<[*const BoardCells]>,
    annexes: Box<[*const u8]>,
    rank: usize,
    /// Members can read each other's memory.
    direct: bool,
    /// The last operation that all members are known to have come to.
    settled: AtomicU64,
    /// The highest number that this process has come to.
    last: AtomicU64,
    /// In how many operations, one after the other, what this process takes was there before it.
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
    /// The board of `members` in place `place` of each, `rank` being this process, none of which has posted a number
    /// beyond `base` there. `direct`: all of them can read each other's memory.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn new(segment: Segment, place: u32, members: Box<[Member]>, rank: usize, direct: bool, base: u64) -> Self {
        assert!(place < PLACES && members.len() <= MEMBERS_MAX, "place {place} of {PLACES}");
        let places = members.iter().map(|member| {
            // One after the other, or all members' cells would be in the same few lines of a cache.
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

    /// Whether its members can read each other's memory.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Which place of its members it is.
    pub fn place(&self) -> u32 {
        self.place
    }

    #[inline]
    fn cell(&self, member: usize, cell: usize) -> *const Cell {
        // SAFETY: - cells are numbered below DEPTH.
        unsafe { (&raw const (*self.places[member]).cells).cast::<Cell>().add(cell) }
    }

    /// Where `length` bytes are that an entry places there; `None` when they are not all in the cell, or all in its
    /// annex.
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

    /// Begins the next operation. Its number, and what must have come before anything is written.
    #[inline]
    pub fn next(&self) -> (u64, Option<Awaited>) {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.last.store(number, Ordering::Relaxed);
        let before = board::before_writing(number, self.settled());
        (number, before.map(Self::all))
    }

    /// What must have come before anything is written that does not fit into the cell of an operation.
    #[inline]
    pub fn before_annex(&self, number: u64) -> Option<Awaited> {
        board::before_annexing(number, self.settled()).map(Self::all)
    }

    /// Whether a piece for all does not fit into a cell.
    #[inline]
    pub fn needs_annex(&self, piece: Region) -> bool {
        piece.len() > INLINE_BYTES_MAX
    }

    /// Whether pieces for each other member do not all fit into a cell.
    #[inline]
    pub fn need_annex(&self, piece: impl Fn(usize) -> Region) -> bool {
        self.short_end(piece) > INLINE_BYTES_MAX
    }

    /// Where in a cell the last piece ends, if they are all there.
    #[inline]
    fn short_end(&self, piece: impl Fn(usize) -> Region) -> usize {
        let start = self.size() * size_of::<Short>();
        (0..self.size())
            .filter(|member| *member != self.rank)
            .fold(start, |end, to| end.saturating_add(piece(to).len()))
    }

    #[inline]
    fn settled(&self) -> u64 {
        // What the thread that found it saw of the others is seen.
        self.settled.load(Ordering::Acquire)
    }

    /// That all members come to an operation.
    #[inline]
    pub fn all(number: u64) -> Awaited {
        Awaited { number, what: What::All }
    }

    /// That a member comes to an operation.
    #[inline]
    pub fn one(member: usize, number: u64) -> Awaited {
        Awaited { number, what: What::Member(member) }
    }

    /// That a member says whether it has read what was posted elsewhere.
    #[inline]
    pub fn read_by(member: usize, number: u64) -> Awaited {
        Awaited { number, what: What::Reading(member) }
    }

    /// That all of `total` parts of this member's work are over.
    pub fn parts(number: u64, total: u64) -> Awaited {
        Awaited { number, what: What::Parts(total) }
    }

    /// Whether it has come. Of all members, the first `come` are known to have.
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

    /// This member has found that another was there before it, and will soon look for `bytes` bytes that the other one
    /// posts in the next operation, `number`. That is likely to be there, too: has the line of the number brought here
    /// meanwhile, and those of the bytes if this was so several times. If the other one has not posted yet, it waits
    /// for these lines when it does.
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
                // SAFETY: - reads and writes nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(cell.wrapping_add(offset)) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (member, number, bytes);
    }

    /// Another was not there before this member.
    #[inline]
    pub fn expect_nothing(&self) {
        self.behind.store(0, Ordering::Relaxed);
    }

    /// The rank of somebody who has not come yet, or who it is that it waits for itself.
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

    /// Writes where this member wants what another has posted; if that is long, others can help to bring it.
    #[inline(always)]
    pub fn write_place(&self, number: u64, into: Region, long: Long) {
        let mut entry = Entry { length: into.len() as u64, place: MESSAGE };
        if self.direct && into.len() > long.copied_max() {
            self.work(self.rank, number).reset();
            entry.place = into.start() as u64;
        }
        self.write_entry(number, entry);
    }

    /// Whether a member has come and wants `length` bytes which others may bring.
    pub fn wants(&self, member: usize, number: u64, length: usize) -> bool {
        let entry = || self.posted(member, number).entry;
        board::has_posted(self, member, number) && entry().length == length as u64 && entry().place != MESSAGE
    }

    /// Takes parts of what a member wants until none is left, as long as `work` does them; see [`Parts`]. `poke` wakes
    /// it when all is over.
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

    /// Whether others could not bring some part of what this member wants.
    pub fn has_failed(&self, number: u64) -> bool {
        self.work(self.rank, number).has_failed()
    }

    /// Copies bytes to where a member wants them, `offset` bytes from there.
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

    /// Writes what this member posts for all: `piece`, or where it is if it is `long`.
    #[inline(always)]
    pub fn write(&self, number: u64, piece: Region, long: Long) -> Posted {
        let mut room = Room { cell: 0, annex: INLINE_BYTES_MAX };
        let entry = self.put(number, piece, long, &mut room);
        self.write_entry(number, entry)
    }

    /// What was written is given back: who looks for it in the cell waits until that line is here and nobody else's.
    #[inline(always)]
    fn write_entry(&self, number: u64, entry: Entry) -> Posted {
        // SAFETY: - this member's own cell, which nobody reads now: `next` says what must have come before.
        unsafe { (&raw mut (*self.own(number)).entry).write(entry) };
        Posted { member: self.rank, number, entry }
    }

    /// Writes one piece for each other member, and for all whether one of them is where only its member knows, which is
    /// given back.
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
        self.write_entry(number, Entry { length: 0, place: SHORT })
    }

    fn write_each_long(&self, number: u64, piece: impl Fn(usize) -> Region, long: Long) -> Posted {
        let (entries, bytes) = (self.entries(self.rank, number), self.size() * size_of::<Entry>());
        let mut room = match self.size() {
            ..=ENTRIES_INLINE_MAX => Room { cell: bytes, annex: INLINE_BYTES_MAX },
            _ => Room { cell: 0, annex: INLINE_BYTES_MAX + bytes },
        };
        let mut for_all = Entry { length: 0, place: 0 };
        for member in 0..self.size() {
            let piece = piece(member);
            // It has its own.
            let own = Entry { length: piece.len() as u64, place: MESSAGE };
            let entry = if member == self.rank { own } else { self.put(number, piece, long, &mut room) };
            if is_elsewhere(entry) {
                for_all.place = entry.place;
            }
            // SAFETY: - this member's own cell or annex, which nobody reads now; there is room for them: checked above.
            unsafe { entries.add(member).write_unaligned(entry) };
        }
        self.write_entry(number, for_all)
    }

    /// Where a member says what it posts for each.
    #[inline]
    fn entries(&self, member: usize, number: u64) -> *mut Entry {
        let place = if self.size() <= ENTRIES_INLINE_MAX { 0 } else { INLINE_BYTES_MAX };
        let at = self.bytes_at(member, number, place, self.size() * size_of::<Entry>());
        at.expect("there is room for all").cast()
    }

    /// Puts a piece where there is room for it, or finds out where it is.
    #[inline(always)]
    fn put(&self, number: u64, piece: Region, long: Long, room: &mut Room) -> Entry {
        let length = piece.len();
        let place = if room.cell + length <= INLINE_BYTES_MAX {
            room.cell += length;
            room.cell - length
        } else if length <= long.copied_max() && room.annex + length <= POSTED_END {
            room.annex += length;
            room.annex - length
        } else {
            let place = if let Long::InPlace(_) = long { self.place_of(piece) } else { MESSAGE };
            return Entry { length: length as u64, place };
        };
        let to = self.bytes_at(self.rank, number, place, length).expect("there is room");
        // SAFETY: - this member's own cell or annex, which nobody reads now; the piece may not overlap with shared
        //           memory.
        unsafe { std::ptr::copy_nonoverlapping(piece.start(), to, length) };
        Entry { length: length as u64, place: place as u64 }
    }

    /// Posts that this member's piece for all comes as a message, and its size in bytes.
    pub fn write_message(&self, number: u64, bytes: usize) {
        self.write_entry(number, Entry { length: bytes as u64, place: MESSAGE });
    }

    /// Whether members can read a long piece where it is.
    pub fn is_readable(&self, piece: Region) -> bool {
        self.direct && direct::can_be_read(piece.start(), piece.len())
    }

    /// Whether others can read it there they find out themselves: to find it out here takes as long as to read some
    /// KiB.
    fn place_of(&self, piece: Region) -> u64 {
        let is_address = piece.start() as usize >= POSTED_END;
        if is_address && self.direct { piece.start() as u64 } else { MESSAGE }
    }

    fn reading(&self, member: usize, number: u64) -> &Reading {
        // SAFETY: - in a cell of the mapping, aligned; an atomic.
        unsafe { &(*self.cell(member, board::cell(number))).reading }
    }

    /// Says that this member has read what it wanted of what was posted elsewhere in an operation, or could not. `poke`
    /// wakes those that cannot be woken otherwise.
    pub fn say_read(&self, number: u64, has_read: bool, poke: impl Fn(ProcessIndex)) {
        self.reading(self.rank, number).say(number, has_read);
        shm::rouse(self.sleeps.iter().copied(), poke);
    }

    /// Whether a member has, once it has said so.
    #[inline]
    pub fn has_read(&self, member: usize, number: u64) -> Option<bool> {
        self.reading(member, number).said(number)
    }

    /// Says that this member has come to the operation. `poke` wakes those that cannot be woken otherwise.
    #[inline]
    pub fn post(&self, number: u64, poke: impl Fn(ProcessIndex)) {
        board::post(self, self.rank, number);
        shm::rouse(self.sleeps.iter().copied(), poke);
    }

    /// What a member has posted for all, once it has come.
    #[inline]
    pub fn posted(&self, member: usize, number: u64) -> Posted {
        // SAFETY: - the member has come, and writes its cell again only when this one has come further.
        let entry = unsafe { (&raw const (*self.cell(member, board::cell(number))).entry).read() };
        Posted { member, number, entry }
    }

    /// What a member has posted for another, once it has come.
    pub fn posted_for(&self, member: usize, number: u64, to: usize) -> Posted {
        assert!(to < self.members.len(), "rank {to} of {}", self.members.len());
        if self.posted(member, number).entry.place == SHORT {
            // What cannot be so, as there are no such bytes, cannot be read either.
            let at = self.bytes_at(member, number, to * size_of::<Short>(), size_of::<Short>());
            // SAFETY: - as in `posted`.
            let short = at.map(|at| unsafe { at.cast::<Short>().read_unaligned() });
            let (length, place) = short.map_or((0, SHORT), |short| (u64::from(short.length), u64::from(short.place)));
            return Posted { member, number, entry: Entry { length, place } };
        }
        // SAFETY: - as in `posted`; there are as many as members.
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
        unsafe { std::ptr::copy_nonoverlapping(from, into.start(), into.len()) };
        Ok(())
    }

    fn read_elsewhere(&self, posted: &Posted, offset: usize, into: Region) -> io::Result<()> {
        let (pid, place) = (self.members[posted.member].pid, posted.entry.place.wrapping_add(offset as u64));
        // SAFETY: - the region is valid for writes of its length, and nobody else accesses it meanwhile.
        unsafe { direct::read(pid, place, into.start(), into.len()) }
    }

    /// A posted piece that can be read where it is posted. It stays so until this member comes to another operation.
    #[inline]
    pub fn seen(&self, posted: &Posted) -> Option<Region> {
        let Posted { member, number, entry } = *posted;
        let length = usize::try_from(entry.length).ok()?;
        let start = self.bytes_at(member, number, usize::try_from(entry.place).ok()?, length)?;
        // SAFETY: - in the cell or its annex, and only read.
        Some(unsafe { Region::new(start, length) })
    }

    /// Whether all members have left; see [`Board::leave`].
    pub fn is_left(&self, number: u64) -> bool {
        board::have_all_posted(self, number, &mut 0)
    }

    /// Says that this member does not take part any more. When all have, which [`Board::is_left`] tells with the number
    /// returned here, the place may be used for something else.
    pub fn leave(&self) -> u64 {
        let (number, _) = self.next();
        // The cell's bytes stay, so nobody needs to have read them; and nobody waits for it.
        board::post(self, self.rank, number);
        number
    }
}

#[cfg(test)]
mod tests;
