//! Shared memory within a host: one ring for each ordered pair of processes, in a memfd that the daemon made.
//!
//! ```text
//!  0        4096             4096·(1+S)
//!  | header | slot 0 | … S-1 | ring (0,0) | ring (0,1) | …            | board 0 | … S-1 |
//!                       32 to 128 KiB for each (receiver, sender)       8.5 MiB for each process
//! ```
//! A slot page is where others wake its process: a sleep word, a `pending` flag and one bit for each sender. A ring's
//! first line belongs to the consumer (bytes consumed, and a flag while it polls this ring). The rest is records, each
//! a frame rounded up to 64 bytes: [`redrt_sync::ring`] has their protocol. The consumer needs no shared tail, so an
//! 8-byte message waits for one cache line. Pages are touched only when used: an idle pair costs nothing.
//!
//! The trap is the lost wake-up. The producer writes a record and then checks if the consumer polls or sleeps; the
//! consumer announces its sleep and then looks for records. Both put a barrier between their two steps, so at least one
//! sees the other ([`redrt_sync::seen`]). Only the consumer's barrier has a cost, where it has a core to itself and so
//! seldom sleeps.
//!
//! Any process of the host can write anywhere in the segment, a corrupt one too. Words are checked before they are used
//! as a length or a number, once and on a copy: they may change between two looks.

use super::frame::{self, FrameError, FrameKind, HEADER_BYTES, Header};
use redrt_sync::ring::{self, Memory, Reading, Writing};
use redrt_sync::seen::{self, ASLEEP_FUTEX, ASLEEP_POLL, AWAKE};
use redrt_types::ProcessIndex;
use redrt_wire::control::{BOARDS_BYTES, HEAD_BYTES, RING_BYTES_LEAST, SLOT_BYTES, ring_bytes, shared_memory_bytes};
use std::io;
use std::sync::atomic::{self, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const RING_CONTROL_BYTES: usize = 128;

/// Longest frame of a ring: a quarter of the shortest ring, so that several are under way.
pub const FRAME_BYTES_MAX: usize = 8 << 10;

/// [`ring::LAP`] in the header's flags: frames do not use that bit.
const LAP_FLAG: u8 = (ring::LAP >> 40) as u8;

#[repr(C, align(64))]
struct Slot {
    sleep: AtomicU32,
    _word: [u8; 4],
    /// Name of the socket that wakes its process; see `engine::sleep`.
    wake_name: [AtomicU64; 2],
    _line: [u8; 40],
    pending: AtomicU32,
    _line2: [u8; 60],
    bits: [AtomicU64; (SLOT_BYTES - 128) / 8],
}

#[repr(C, align(64))]
struct RingControl {
    consumed: AtomicU64,
    /// Non-zero while the consumer polls this ring without an announcement.
    polled: AtomicU32,
    /// Non-zero while the producer waits for room.
    starved: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);
const _: () = assert!(size_of::<RingControl>() <= RING_CONTROL_BYTES);
const _: () = assert!((RING_BYTES_LEAST - RING_CONTROL_BYTES).is_multiple_of(ring::LINE_BYTES));
const _: () = assert!(FRAME_BYTES_MAX * 4 <= RING_BYTES_LEAST);

/// Base address far from where the kernel maps memory by itself. A segment is mapped again in a copy of the process,
/// and the program's own mappings must not lie elsewhere there than in its siblings.
const REMOTE: usize = 0x6000_0000_0000;
const ALIGNMENT: usize = 2 << 20;

/// Address of the next segment, if there is room.
static NEXT: AtomicUsize = AtomicUsize::new(REMOTE);

/// Mapping of the host's memfd, valid as long as the process.
#[derive(Clone, Copy)]
pub struct Segment {
    base: *mut u8,
    slot_count: u32,
}

// SAFETY: - the mapping is never removed: `map` leaks it.
//         - everything in it that two processes or threads touch is atomic, or a record owned by one side at a time.
unsafe impl Send for Segment {}
// SAFETY: - a shared reference gives addresses in the mapping, where all shared words are atomic or have one owner.
unsafe impl Sync for Segment {}

impl Segment {
    /// Bytes of a segment for `slot_count` processes.
    pub fn bytes(slot_count: u32) -> usize {
        shared_memory_bytes(slot_count) as usize
    }

    /// Maps the memfd `fd`, away from the program's mappings.
    ///
    /// # Errors
    /// When it is no segment for `slot_count` processes, or cannot be mapped.
    pub fn map(fd: i32, slot_count: u32) -> io::Result<Self> {
        let hint = NEXT.fetch_add(Self::bytes(slot_count).next_multiple_of(ALIGNMENT), Ordering::Relaxed);
        Self::map_at(fd, slot_count, hint, 0)
    }

    /// Maps the memfd `fd` at this segment's address, where nothing may be mapped.
    pub fn map_again(self, fd: i32) -> io::Result<Self> {
        Self::map_at(fd, self.slot_count, self.base as usize, libc::MAP_FIXED_NOREPLACE)
    }

    fn map_at(fd: i32, slot_count: u32, address: usize, flags: i32) -> io::Result<Self> {
        if slot_count as usize > (SLOT_BYTES - 128) * 8 {
            return Err(io::Error::other(format!("{slot_count} processes are too many to share memory")));
        }
        let bytes = Self::bytes(slot_count);
        // SAFETY: - an all-zero stat is a valid value to be overwritten.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: - stat is valid for writes.
        if unsafe { libc::fstat(fd, &mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if (stat.st_size as usize) < bytes {
            return Err(io::Error::other(format!(
                "the node's shared memory has {} bytes, expected {bytes}",
                stat.st_size
            )));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: - a fresh mapping at this address or one the kernel chooses; nothing existing is replaced.
        let base = unsafe { libc::mmap(std::ptr::without_provenance_mut(address), bytes, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), slot_count })
    }

    /// Makes a segment that nobody else has.
    #[cfg(any(test, feature = "testing"))]
    pub fn fresh(slot_count: u32) -> Self {
        use std::os::fd::AsRawFd;
        let file = tempfile::tempfile().expect("a file can be made");
        file.set_len(Self::bytes(slot_count) as u64).expect("it can grow");
        Self::map(file.as_raw_fd(), slot_count).expect("it can be mapped")
    }

    /// Address of the mapping, and the bytes of addresses that it takes.
    pub fn range(&self) -> (usize, usize) {
        (self.base as usize, Self::bytes(self.slot_count).next_multiple_of(4096))
    }

    /// Number of processes that it has room for.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Empties the slot of `process` and all its rings, in both directions, of its predecessor's remains. `fd` is the
    /// memfd. Nobody may be using them.
    pub fn clear(&self, fd: i32, process: ProcessIndex) -> io::Result<()> {
        let punch = |start: *mut u8, bytes: usize| {
            let offset = start as usize - self.base as usize;
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: - changes the file behind a descriptor; the caller promises that nobody uses these bytes.
            match unsafe { libc::fallocate(fd, mode, offset as i64, bytes as i64) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        punch(std::ptr::from_ref(self.slot(process)).cast_mut().cast(), SLOT_BYTES)?;
        punch(self.ring(process, ProcessIndex(0)), self.slot_count as usize * self.ring_bytes())?;
        (0..self.slot_count)
            .try_for_each(|receiver| punch(self.ring(ProcessIndex(receiver), process), self.ring_bytes()))
    }

    /// Address of the mapping.
    #[cfg(any(test, feature = "testing"))]
    pub fn start(&self) -> *mut u8 {
        self.base
    }

    /// Words of the segment that a ring takes.
    #[cfg(any(test, feature = "testing"))]
    pub fn ring_words(&self, receiver: ProcessIndex, sender: ProcessIndex) -> std::ops::Range<usize> {
        let first = (self.ring(receiver, sender) as usize - self.base as usize) / 8;
        first..first + self.ring_bytes() / 8
    }

    fn slot(&self, process: ProcessIndex) -> &'static Slot {
        assert!(process.0 < self.slot_count, "slot {} of {}", process.0, self.slot_count);
        let offset = HEAD_BYTES + process.0 as usize * SLOT_BYTES;
        // SAFETY: - in bounds by the assertion; aligned to a page; Slot is atomics only, valid for any bytes.
        //         - the mapping is never removed.
        unsafe { &*self.base.add(offset).cast::<Slot>() }
    }

    fn ring_bytes(&self) -> usize {
        ring_bytes(self.slot_count)
    }

    fn ring_memory(&self, receiver: ProcessIndex, sender: ProcessIndex) -> Ring {
        Ring { start: self.ring(receiver, sender), capacity: self.ring_bytes() - RING_CONTROL_BYTES }
    }

    fn ring(&self, receiver: ProcessIndex, sender: ProcessIndex) -> *mut u8 {
        assert!(receiver.0 < self.slot_count && sender.0 < self.slot_count);
        let slots = self.slot_count as usize;
        let number = receiver.0 as usize * slots + sender.0 as usize;
        // SAFETY: - in bounds: both numbers are below slot_count.
        unsafe { self.base.add(HEAD_BYTES + slots * SLOT_BYTES + number * self.ring_bytes()) }
    }

    /// Address of a process's places on boards.
    pub fn board(&self, process: ProcessIndex) -> *const u8 {
        assert!(process.0 < self.slot_count, "slot {} of {}", process.0, self.slot_count);
        let slots = self.slot_count as usize;
        let boards = HEAD_BYTES + slots * SLOT_BYTES + slots * slots * self.ring_bytes();
        // SAFETY: - in bounds by the assertion.
        unsafe { self.base.add(boards + process.0 as usize * BOARDS_BYTES) }
    }

    /// Name of the socket that wakes a process. Other processes of the host may have written anything there.
    pub fn wake_name(&self, process: ProcessIndex) -> &'static [AtomicU64; 2] {
        &self.slot(process).wake_name
    }

    /// The sleep word of a process.
    #[inline]
    pub fn sleep_word(&self, process: ProcessIndex) -> &'static AtomicU32 {
        &self.slot(process).sleep
    }
}

#[derive(Clone, Copy)]
struct Ring {
    start: *mut u8,
    /// Bytes of its lines, without the control words.
    capacity: usize,
}

impl Ring {
    fn control(&self) -> &RingControl {
        // SAFETY: - the control line is at the start of the ring, aligned, atomics only.
        unsafe { &*self.start.cast::<RingControl>() }
    }

    /// Address of the record at `offset`, a multiple of a line below the capacity.
    fn record(self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.capacity && offset.is_multiple_of(ring::LINE_BYTES));
        // SAFETY: - in bounds: offset is below the capacity.
        unsafe { self.start.add(RING_CONTROL_BYTES + offset) }
    }
}

impl Memory for Ring {
    #[inline]
    fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: - in bounds and aligned: offset is a multiple of 64 below the capacity.
        unsafe { &*self.record(offset).cast::<AtomicU64>() }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        &self.control().consumed
    }

    #[inline]
    fn starved(&self) -> &AtomicU32 {
        &self.control().starved
    }
}

/// The sending end of one ring.
pub struct Producer {
    ring: Ring,
    writing: Writing,
    receiver: ProcessIndex,
    bit: u32,
    segment: Segment,
}

// SAFETY: - the ring lives as long as the process, and only the owner of the Producer writes records.
unsafe impl Send for Producer {}

impl Producer {
    /// Makes the sending end of `sender → receiver`. There must be only one in the job.
    pub fn new(segment: Segment, sender: ProcessIndex, receiver: ProcessIndex) -> Self {
        let ring = segment.ring_memory(receiver, sender);
        Self { ring, writing: Writing::default(), receiver, bit: sender.0, segment }
    }

    /// Returns true if the consumer claims to have consumed bytes that it cannot have. Then the ring takes no more
    /// frames.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.writing.is_broken()
    }

    /// Bytes of the ring that records have taken since its begin.
    pub fn produced_bytes(&self) -> u64 {
        self.writing.produced_bytes()
    }

    /// Writes one frame: header, digest and body, one after the other. `fill` writes the body's `body_bytes` bytes at
    /// the pointer it is given.
    ///
    /// Returns `None` if the ring has no room: then nothing is written. Otherwise returns true if the consumer has to
    /// be woken through its wake socket.
    #[inline(always)]
    pub fn send(
        &mut self,
        header: &Header,
        digest: Option<u128>,
        body_bytes: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        // The header goes word by word. Words that were written one by one and are read several at once make the
        // processor wait until all its earlier writes are visible, also those of earlier records. As arguments they
        // stay apart.
        let [first, context, position, origin] = header.words();
        let digest = digest.map(|digest| (digest as u64, (digest >> 64) as u64));
        self.send_words(first, context, position, origin, digest, body_bytes, fill)
    }

    /// Likewise, with the words of the header and the two halves of the digest.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn send_words(
        &mut self,
        first: u64,
        context: u64,
        position: u64,
        origin: u64,
        digest: Option<(u64, u64)>,
        body_bytes: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let digest_bytes = if digest.is_some() { 16 } else { 0 };
        let bytes = HEADER_BYTES + digest_bytes + body_bytes;
        debug_assert!(bytes <= FRAME_BYTES_MAX, "a frame of {bytes} bytes");
        let space = bytes.next_multiple_of(ring::LINE_BYTES);
        let record = self.ring.record(self.writing.reserve(&self.ring, space)?);
        // SAFETY: - within the record, which has room for a header, and is aligned to a line.
        unsafe { record.add(8).cast::<[u64; 3]>().write([context, position, origin]) };
        if let Some((low, high)) = digest {
            // SAFETY: - within the record, behind the header; aligned like it.
            unsafe { record.add(HEADER_BYTES).cast::<[u64; 2]>().write([low, high]) };
        }
        // SAFETY: - body_bytes fit into the record after header and digest.
        fill(unsafe { record.add(HEADER_BYTES + digest_bytes) });
        self.writing.publish(&self.ring, space, frame::with_size(first, bytes as u32));
        let must_wake = self.notify();
        self.writing.clear_ahead(&self.ring);
        Some(must_wake)
    }

    fn notify(&self) -> bool {
        let slot = self.segment.slot(self.receiver);
        if seen::is_seen(&self.ring.control().polled, &slot.sleep) {
            return false;
        }
        if self.ring.control().polled.load(Ordering::SeqCst) == 0 {
            slot.bits[self.bit as usize / 64].fetch_or(1 << (self.bit % 64), Ordering::SeqCst);
            slot.pending.store(1, Ordering::SeqCst);
        }
        wake(&slot.sleep)
    }
}

/// Wakes these processes if they sleep, after a write that they look for by themselves while awake. `poke` wakes a
/// process through its wake socket.
#[inline(always)]
pub fn rouse<'a>(sleeps: impl Iterator<Item = (ProcessIndex, &'a AtomicU32)> + Clone, poke: impl Fn(ProcessIndex)) {
    if seen::are_all_awake(sleeps.clone().map(|(_, sleep)| sleep)) {
        return;
    }
    for (process, sleep) in sleeps {
        if wake(sleep) {
            poke(process);
        }
    }
}

/// Wakes the process that sleeps on `sleep`, if it does. Returns true if it has to be woken through its wake socket.
#[inline]
pub fn wake(sleep: &AtomicU32) -> bool {
    match seen::rouse(sleep) {
        AWAKE => false,
        ASLEEP_FUTEX => {
            futex_wake(sleep);
            false
        }
        ASLEEP_POLL => true,
        // A corrupt word: nobody knows how the process sleeps.
        _ => {
            futex_wake(sleep);
            true
        }
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: - the word is valid; FUTEX_WAKE reads nothing else.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps while `word` holds `value`, at most for `timeout`. Spurious returns are possible.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: std::time::Duration) {
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // SAFETY: - word and timeout are valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
}

/// The receiving end of one ring.
pub struct Consumer {
    ring: Ring,
    reading: Reading,
}

// SAFETY: - the ring lives as long as the process, and only the owner of the Consumer consumes records.
unsafe impl Send for Consumer {}

impl Consumer {
    /// Makes the receiving end of `sender → receiver`. There must be only one in the job.
    pub fn new(segment: Segment, sender: ProcessIndex, receiver: ProcessIndex) -> Self {
        Self { ring: segment.ring_memory(receiver, sender), reading: Reading::default() }
    }

    /// Publishes that this ring is polled without an announcement, or no longer.
    pub fn set_polled(&self, polled: bool) {
        self.ring.control().polled.store(u32::from(polled), Ordering::SeqCst);
    }

    /// Returns true if a record is published at the front.
    #[inline]
    pub fn has_record(&mut self) -> bool {
        self.reading.front(&self.ring).is_some()
    }

    /// The record at the front: its header, its kind, and the address of digest and body; `None` until one is
    /// published. It stays valid until [`Consumer::consume`].
    ///
    /// # Errors
    /// When it is no frame, or does not fit into the ring. Then the begin of the next record is unknown, and the ring
    /// must be closed.
    #[inline]
    pub fn front(&mut self) -> Result<Option<(Header, FrameKind, *const u8)>, FrameError> {
        let Some(offset) = self.reading.front(&self.ring) else { return Ok(None) };
        let record = self.ring.record(offset);
        // SAFETY: - in bounds: a header fits into a line; writes before the record was published are visible since its
        // first
        //           word was. Header is plain data.
        let mut header = unsafe { record.cast::<Header>().read() };
        if !self.reading.is_of_this_lap(u64::from(header.flags) << 40) {
            return Err(FrameError::Old);
        }
        header.flags &= !LAP_FLAG;
        let kind = header.check()?;
        let max = FRAME_BYTES_MAX.min(self.reading.space_max(&self.ring));
        if header.size as usize > max {
            return Err(FrameError::TooLong { size: header.size, max });
        }
        self.reading.found(header.size as usize);
        // SAFETY: - within the record.
        Ok(Some((header, kind, unsafe { record.add(HEADER_BYTES) })))
    }

    /// Gives back the space of the record that `front` has returned.
    #[inline]
    pub fn consume(&mut self) {
        self.reading.consume(&self.ring);
    }

    /// Publishes the consumed bytes. Returns true if the producer was waiting for them.
    fn relieve(&mut self) -> bool {
        self.reading.relieve(&self.ring)
    }

    fn is_starved(&self) -> bool {
        self.reading.is_starved(&self.ring)
    }
}

/// The receiving side of one process: it finds the rings that have records.
pub struct Inbox {
    segment: Segment,
    me: ProcessIndex,
    consumers: Vec<Option<Box<Consumer>>>,
    /// Rings polled without an announcement, the oldest member first.
    polled: Vec<ProcessIndex>,
    /// Rings that are no longer polled but still say so: that is taken back for all at once.
    leaving: Vec<ProcessIndex>,
    /// Place in `polled` where the round continues, so that a busy ring does not starve another.
    cursor: usize,
    /// Rings that were announced and are not drained yet.
    told: Vec<ProcessIndex>,
    turn: u32,
    /// Producers that must be woken through their wake sockets.
    wakes: Vec<ProcessIndex>,
}

/// Bound on the rings polled without an announcement: looking at each costs a cache hit.
const POLLED_MAX: usize = 8;

/// Number of rings that stop being polled at a time: their barrier may cost 20 microseconds.
const LEAVING_MAX: usize = 32;

impl Inbox {
    /// Makes the inbox of process `me` for frames of `sender_count` processes.
    pub fn new(segment: Segment, me: ProcessIndex, sender_count: u32) -> Self {
        let consumers = (0..segment.slot_count.min(sender_count)).map(|_| None).collect();
        let (polled, leaving, told, wakes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { segment, me, consumers, polled, leaving, cursor: 0, told, turn: 0, wakes }
    }

    /// The sender of a ring with a record at its front; `None` if no ring has one.
    pub fn next_sender(&mut self) -> Option<ProcessIndex> {
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(16)
            && let Some(process) = self.next_told().or_else(|| self.next_leaving())
        {
            return Some(process);
        }
        for _ in 0..self.polled.len() {
            self.cursor = if self.cursor + 1 < self.polled.len() { self.cursor + 1 } else { 0 };
            let process = self.polled[self.cursor];
            if self.has_record(process) {
                return Some(process);
            }
        }
        self.next_told().or_else(|| self.next_leaving())
    }

    fn next_told(&mut self) -> Option<ProcessIndex> {
        if self.told.is_empty() {
            self.collect_announcements();
        }
        while let Some(process) = self.told.last().copied() {
            if self.has_record(process) {
                return Some(process);
            }
            self.told.pop();
            self.adopt(process);
        }
        None
    }

    fn next_leaving(&mut self) -> Option<ProcessIndex> {
        for place in 0..self.leaving.len() {
            let process = self.leaving[place];
            if self.has_record(process) {
                return Some(process);
            }
        }
        None
    }

    fn collect_announcements(&mut self) {
        let slot = self.segment.slot(self.me);
        if slot.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        slot.pending.store(0, Ordering::SeqCst);
        atomic::fence(Ordering::SeqCst);
        let words = (self.segment.slot_count as usize).div_ceil(64);
        for (number, word) in slot.bits[..words].iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let sender = ProcessIndex((number * 64) as u32 + bits.trailing_zeros());
                if (sender.0 as usize) < self.consumers.len() && sender != self.me {
                    self.told.push(sender);
                }
                bits &= bits - 1;
            }
        }
    }

    /// Returns true if the ring has a record. An empty ring gives a waiting producer its room.
    fn has_record(&mut self, process: ProcessIndex) -> bool {
        let consumer = self.consumer(process);
        if consumer.has_record() {
            return true;
        }
        if consumer.is_starved() {
            self.relieve(process);
        }
        false
    }

    fn relieve(&mut self, process: ProcessIndex) {
        if self.consumer(process).relieve() && wake(&self.segment.slot(process).sleep) {
            self.wakes.push(process);
        }
    }

    /// Polls a ring that was just drained after an announcement, in place of the oldest polled one. Records from before
    /// the flag was set were announced, or are found by the next look at `polled`.
    fn adopt(&mut self, process: ProcessIndex) {
        if self.polled.contains(&process) {
            return;
        }
        self.leaving.retain(|leaving| *leaving != process);
        if self.polled.len() == POLLED_MAX {
            let oldest = self.polled.remove(0);
            self.leaving.push(oldest);
            if self.leaving.len() == LEAVING_MAX {
                self.leave();
            }
        }
        self.polled.push(process);
        self.consumer(process).set_polled(true);
        atomic::fence(Ordering::SeqCst);
    }

    /// Publishes that rings are no longer polled. Records that have come by then count as announced.
    fn leave(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        for process in &leaving {
            self.consumer(*process).set_polled(false);
        }
        seen::before_last_look(redrt_sync::fence::is_registered());
        for process in leaving {
            self.relieve(process);
            if self.consumer(process).has_record() {
                self.told.insert(0, process);
            }
        }
    }

    /// The consumer of the ring from `sender`, made on first use.
    #[inline]
    pub fn consumer(&mut self, sender: ProcessIndex) -> &mut Consumer {
        let (segment, me) = (self.segment, self.me);
        self.consumers[sender.0 as usize].get_or_insert_with(|| Box::new(Consumer::new(segment, sender, me)))
    }

    /// Bytes of each sender's ring that records have taken and given back since its begin.
    pub fn consumed_bytes(&self) -> impl Iterator<Item = (ProcessIndex, u64)> + '_ {
        let opened = self.consumers.iter().enumerate();
        opened.filter_map(|(number, consumer)| {
            Some((ProcessIndex(number as u32), consumer.as_ref()?.reading.consumed_bytes()))
        })
    }

    /// Takes from `sender` again, from the begin of a ring that is unused.
    pub fn reopen(&mut self, sender: ProcessIndex) {
        let polled = self.polled.contains(&sender) || self.leaving.contains(&sender);
        let consumer = Consumer::new(self.segment, sender, self.me);
        consumer.set_polled(polled);
        atomic::fence(Ordering::SeqCst);
        self.consumers[sender.0 as usize] = Some(Box::new(consumer));
        if !self.told.contains(&sender) {
            self.told.push(sender);
        }
    }

    /// Takes nothing more from `sender`.
    pub fn close(&mut self, sender: ProcessIndex) {
        self.consumer(sender).reading.close();
    }

    /// The poll that must follow the announcement of a sleep. Gives all waiting producers their room, and returns true
    /// if a record has come.
    pub fn poll_before_sleep(&mut self) -> bool {
        for number in 0..self.consumers.len() {
            if self.consumers[number].as_ref().is_some_and(|consumer| consumer.is_starved()) {
                self.relieve(ProcessIndex(number as u32));
            }
        }
        self.next_sender().is_some()
    }

    /// Takes a producer that must be woken through its wake socket; `None` when there are no more.
    #[inline]
    pub fn next_wake(&mut self) -> Option<ProcessIndex> {
        self.wakes.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::FrameKind;
    use super::*;
    use redrt_wire::control::RING_BYTES_MOST;

    fn send(producer: &mut Producer, tag: i32, body: &[u8]) -> bool {
        let mut header = Header::new(FrameKind::Eager, 9);
        header.tag = tag;
        producer
            .send(&header, None, body.len(), |to| {
                // SAFETY: - the ring gives body.len() writable bytes.
                unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), to, body.len()) }
            })
            .is_some()
    }

    fn receive(inbox: &mut Inbox) -> Option<(ProcessIndex, i32, Vec<u8>)> {
        let from = inbox.next_sender()?;
        let consumer = inbox.consumer(from);
        let (header, _, body) = consumer.front().unwrap().unwrap();
        // SAFETY: - the record holds header.body_bytes() body bytes until consumed.
        let bytes = unsafe { std::slice::from_raw_parts(body, header.body_bytes()) }.to_vec();
        consumer.consume();
        Some((from, header.tag, bytes))
    }

    #[test]
    fn rings_to_a_process_take_two_mib_or_are_as_short_as_can_be() {
        for slot_count in 1..1000 {
            let bytes = ring_bytes(slot_count);
            assert!(bytes.is_power_of_two() && (RING_BYTES_LEAST..=RING_BYTES_MOST).contains(&bytes), "{slot_count}");
            assert!(
                bytes == RING_BYTES_LEAST || bytes * slot_count as usize <= 2 << 20,
                "{slot_count} rings of {bytes}"
            );
        }
    }

    #[test]
    fn records_of_every_size_survive_many_laps() {
        [2, 32, 64].into_iter().for_each(records_survive_many_laps);
    }

    /// Runs many laps in the rings of a host with this number of slots.
    fn records_survive_many_laps(slot_count: u32) {
        let segment = Segment::fresh(slot_count);
        let mut producer = Producer::new(segment, ProcessIndex(0), ProcessIndex(1));
        let mut inbox = Inbox::new(segment, ProcessIndex(1), 2);
        let mut next = 0;
        for round in 0..20_000usize {
            let body = vec![round as u8; (round * 37) % (FRAME_BYTES_MAX - HEADER_BYTES + 1)];
            while !send(&mut producer, round as i32, &body) {
                let (_, tag, bytes) = receive(&mut inbox).expect("a full ring has a record");
                assert_eq!((tag, bytes.len()), (next, (next as usize * 37) % (FRAME_BYTES_MAX - HEADER_BYTES + 1)));
                assert!(bytes.iter().all(|byte| *byte == next as u8));
                next += 1;
            }
        }
    }

    #[test]
    fn two_threads_that_sleep_lose_no_wake_up() {
        let segment = Segment::fresh(2);
        let exchange = |me: u32, first: bool| {
            let other = ProcessIndex(1 - me);
            let me = ProcessIndex(me);
            let mut producer = Producer::new(segment, me, other);
            let mut inbox = Inbox::new(segment, me, 2);
            for round in 0..20_000 {
                if first {
                    assert!(send(&mut producer, round, b"x"));
                }
                loop {
                    if let Some((_, tag, _)) = receive(&mut inbox) {
                        assert_eq!(tag, round);
                        break;
                    }
                    let word = segment.sleep_word(me);
                    word.store(ASLEEP_FUTEX, Ordering::SeqCst);
                    atomic::fence(Ordering::SeqCst);
                    if !inbox.poll_before_sleep() {
                        futex_wait(word, ASLEEP_FUTEX, std::time::Duration::from_secs(20));
                        assert_eq!(word.load(Ordering::SeqCst), AWAKE, "a wake-up was lost");
                    }
                    word.store(AWAKE, Ordering::SeqCst);
                }
                if !first {
                    assert!(send(&mut producer, round, b"x"));
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(move || exchange(0, true));
            scope.spawn(move || exchange(1, false));
        });
    }

    #[test]
    fn a_producer_that_waits_for_room_is_woken() {
        let segment = Segment::fresh(2);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut producer = Producer::new(segment, ProcessIndex(0), ProcessIndex(1));
                let word = segment.sleep_word(ProcessIndex(0));
                for round in 0..5_000 {
                    loop {
                        word.store(ASLEEP_FUTEX, Ordering::SeqCst);
                        if send(&mut producer, round, &[7; 4000]) {
                            word.store(AWAKE, Ordering::SeqCst);
                            break;
                        }
                        futex_wait(word, ASLEEP_FUTEX, std::time::Duration::from_secs(20));
                        assert_eq!(word.load(Ordering::SeqCst), AWAKE, "a wake-up was lost");
                    }
                }
            });
            scope.spawn(move || {
                let mut inbox = Inbox::new(segment, ProcessIndex(1), 2);
                let mut expected = 0;
                while expected < 5_000 {
                    if let Some((_, tag, _)) = receive(&mut inbox) {
                        assert_eq!(tag, expected);
                        expected += 1;
                    }
                }
            });
        });
    }

    #[test]
    fn more_senders_than_polled_rings_are_all_heard() {
        let count = 3 * POLLED_MAX as u32;
        let segment = Segment::fresh(count);
        let me = ProcessIndex(0);
        let mut inbox = Inbox::new(segment, me, count);
        let mut producers: Vec<_> = (1..count).map(|n| Producer::new(segment, ProcessIndex(n), me)).collect();
        for round in 0..50 {
            for producer in &mut producers {
                assert!(send(producer, round, b"hello"));
            }
            let mut heard: Vec<_> = (1..count).map(|_| receive(&mut inbox).unwrap().0.0).collect();
            heard.sort_unstable();
            assert_eq!(heard, (1..count).collect::<Vec<_>>());
            assert!(receive(&mut inbox).is_none());
        }
    }
}
