//! Shared memory within a node: one ring for each ordered pair of processes, in a memfd that the daemon made.
//!
//! ```text
//!  0        4096                4096·(1+S)             rings: 32 KiB for each (receiver, sender)   boards: 8.1 MiB for each process
//!  | header | slot 0 | … S-1 |  ring (0,0) | ring (0,1) | …                                            | board 0 | … S-1 |
//! ```
//! A slot page is where others wake its process: a sleep word, a `pending` flag and one bit for each sender. A ring's
//! first line belongs to the consumer (bytes consumed, whether it polls this ring), the rest is records, each a frame
//! rounded up to 64 bytes: [`redrt_sync::ring`] says how they are published and consumed. The consumer needs no shared tail, so an 8-byte message
//! waits for one cache line.
//! Pages are touched only when used: an idle pair costs nothing.
//!
//! The trap is the lost wake-up: the producer writes a record and then looks whether the consumer polls or sleeps; the
//! consumer says that it sleeps and then looks for records. Both put a barrier between their two steps, so at least one sees the
//! other ([`redrt_sync::seen`]). Only the consumer's costs something, where it has a core to itself and so seldom sleeps.
//!
//! Any process of the node can write anywhere in the segment, a corrupt one too. What is read from it is checked before
//! it is used as a length or a number, once and on a copy: it may change between two looks.

mod inbox;
mod ring;
#[cfg(test)]
mod tests;

pub use inbox::Inbox;
pub use ring::{Consumer, Producer};

use redrt_sync::ring::LINE_BYTES;
use redrt_sync::seen::{self, ASLEEP_FUTEX, ASLEEP_POLL, AWAKE};
use redrt_types::ProcessIndex;
use redrt_wire::control::{BOARDS_BYTES, HEAD_BYTES, RING_BYTES, SLOT_BYTES, shared_memory_bytes};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const RING_CONTROL_BYTES: usize = 128;
const CAPACITY: usize = RING_BYTES - RING_CONTROL_BYTES;

/// Longest frame a ring takes: a quarter of it, so that several are in flight.
pub const FRAME_BYTES_MAX: usize = 8 << 10;

#[repr(C, align(64))]
struct Slot {
    sleep: AtomicU32,
    _line: [u8; 60],
    pending: AtomicU32,
    _line2: [u8; 60],
    bits: [AtomicU64; (SLOT_BYTES - 128) / 8],
}

#[repr(C, align(64))]
struct RingControl {
    consumed: AtomicU64,
    /// Non-zero while the consumer polls this ring without being told.
    polled: AtomicU32,
    /// Non-zero while the producer waits for room.
    starved: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);
const _: () = assert!(size_of::<RingControl>() <= RING_CONTROL_BYTES && CAPACITY.is_multiple_of(LINE_BYTES));

/// Far from where the kernel looks for room by itself. A segment is mapped again in a copy of the process, and what the program maps must
/// not lie elsewhere there than in its siblings.
const REMOTE: usize = 0x6000_0000_0000;
const ALIGNMENT: usize = 2 << 20;

/// Where the next segment goes, if there is room.
static NEXT: AtomicUsize = AtomicUsize::new(REMOTE);

/// The mapping of the node's memfd; alive as long as the process.
#[derive(Clone, Copy)]
pub struct Segment {
    base: *mut u8,
    slot_count: u32,
}

// SAFETY: - the mapping is never removed: `map` leaks it.
//         - everything in it that two processes or threads touch is atomic, or a record owned by one side at a time.
unsafe impl Send for Segment {}
// SAFETY: as for Send.
unsafe impl Sync for Segment {}

impl Segment {
    /// Bytes of a segment for `slot_count` processes.
    pub fn bytes(slot_count: u32) -> usize {
        shared_memory_bytes(slot_count) as usize
    }

    /// Maps the memfd `fd`, out of the way of what the program maps. Fails when it is not a segment for `slot_count` processes.
    pub fn map(fd: i32, slot_count: u32) -> io::Result<Self> {
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
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let wish = NEXT.fetch_add(bytes.next_multiple_of(ALIGNMENT), Ordering::Relaxed);
        // SAFETY: - a fresh mapping at this address or one the kernel chooses; nothing existing is replaced.
        let base = unsafe { libc::mmap(std::ptr::without_provenance_mut(wish), bytes, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), slot_count })
    }

    /// A fresh one that nobody else has.
    #[cfg(test)]
    pub fn fresh(slot_count: u32) -> Self {
        use std::os::fd::AsRawFd;
        let file = tempfile::tempfile().expect("a file can be made");
        file.set_len(Self::bytes(slot_count) as u64).expect("it can grow");
        Self::map(file.as_raw_fd(), slot_count).expect("it can be mapped")
    }

    /// Where it is mapped, and how many bytes of addresses it takes.
    pub fn range(&self) -> (usize, usize) {
        (self.base as usize, Self::bytes(self.slot_count).next_multiple_of(4096))
    }

    /// How many processes it has room for.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Empties the slot of `process` and all its rings, in both directions, whatever another process in its place has left there.
    /// `fd` is the memfd. Nobody may be using them.
    pub fn clear(&self, fd: i32, process: ProcessIndex) -> io::Result<()> {
        let punch = |start: *mut u8, bytes: usize| {
            let offset = start as usize - self.base as usize;
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: - changes the file behind a descriptor; that nobody uses these bytes is the caller's promise.
            match unsafe { libc::fallocate(fd, mode, offset as i64, bytes as i64) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        punch(std::ptr::from_ref(self.slot(process)).cast_mut().cast(), SLOT_BYTES)?;
        punch(self.ring(process, ProcessIndex(0)), self.slot_count as usize * RING_BYTES)?;
        (0..self.slot_count).try_for_each(|receiver| punch(self.ring(ProcessIndex(receiver), process), RING_BYTES))
    }

    /// Where it is mapped.
    #[cfg(test)]
    pub fn start(&self) -> *mut u8 {
        self.base
    }

    /// Which words of the segment a ring is.
    #[cfg(test)]
    pub fn ring_words(&self, receiver: ProcessIndex, sender: ProcessIndex) -> std::ops::Range<usize> {
        let first = (self.ring(receiver, sender) as usize - self.base as usize) / 8;
        first..first + RING_BYTES / 8
    }

    fn slot(&self, process: ProcessIndex) -> &'static Slot {
        assert!(process.0 < self.slot_count, "slot {} of {}", process.0, self.slot_count);
        let offset = HEAD_BYTES + process.0 as usize * SLOT_BYTES;
        // SAFETY: - in bounds by the assertion; aligned to a page; Slot is atomics only, valid for any bytes.
        //         - the mapping is never removed.
        unsafe { &*self.base.add(offset).cast::<Slot>() }
    }

    fn ring(&self, receiver: ProcessIndex, sender: ProcessIndex) -> *mut u8 {
        assert!(receiver.0 < self.slot_count && sender.0 < self.slot_count);
        let slots = self.slot_count as usize;
        let number = receiver.0 as usize * slots + sender.0 as usize;
        // SAFETY: - in bounds: both numbers are below slot_count.
        unsafe { self.base.add(HEAD_BYTES + slots * SLOT_BYTES + number * RING_BYTES) }
    }

    /// The places of a process on boards.
    pub fn board(&self, process: ProcessIndex) -> *const u8 {
        assert!(process.0 < self.slot_count, "slot {} of {}", process.0, self.slot_count);
        let slots = self.slot_count as usize;
        let boards = HEAD_BYTES + slots * SLOT_BYTES + slots * slots * RING_BYTES;
        // SAFETY: - in bounds by the assertion.
        unsafe { self.base.add(boards + process.0 as usize * BOARDS_BYTES) }
    }

    /// The sleep word of a process.
    pub fn sleep_word(&self, process: ProcessIndex) -> &'static AtomicU32 {
        &self.slot(process).sleep
    }
}

/// Wakes the process that sleeps on `sleep`, if it does. `true` when it has to be woken through its wake socket.
pub fn wake(sleep: &AtomicU32) -> bool {
    match seen::rouse(sleep) {
        AWAKE => false,
        ASLEEP_FUTEX => {
            futex_wake(sleep);
            false
        }
        ASLEEP_POLL => true,
        // It was written over, and nobody knows how the process sleeps.
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

/// Sleeps while `word` holds `value`, at most `timeout`. Spurious returns are possible.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: std::time::Duration) {
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // SAFETY: - word and timeout are valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
}
