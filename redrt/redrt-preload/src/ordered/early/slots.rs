//! Early threads: how far each of them is.

use super::limits::limit_of;
use super::{OPEN, PHASE};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Marks in [`Slot::word`]; the count is above them.
pub const CLOSED: u64 = 1;
/// The thread waits to be woken by others.
pub const WAITING: u64 = 2;
/// The thread is within another operation.
pub const ACTS: u64 = 4;
/// The count was told. Setting the mark fails an operation that is about to begin, which then finds that threads stand.
pub const TOLD: u64 = 8;
/// With [`WAITING`]: it waits for a semaphore of an interpreter, and has yet to look for it again after each event.
pub const LOOKS: u64 = 16;
/// With [`ACTS`]: the operation takes a lock, however long that takes, and can be taken back.
pub const BLOCKS: u64 = 32;
/// The thread sleeps for a time. It stands still at its limit before it returns from that.
pub const SLEEPS: u64 = 64;
/// It stands still before its next operation.
pub const STANDS: u64 = 128;
pub const ONE: u64 = 256;
/// Marks of an operation underway, or about to begin.
pub const UNDERWAY: u64 = WAITING | ACTS | LOOKS | BLOCKS | SLEEPS | STANDS;

/// The count in [`Slot::word`].
pub fn made(word: u64) -> u64 {
    word / ONE
}

/// An early thread, or one that has ended.
pub struct Slot {
    pub word: AtomicU64,
    pub number: AtomicU64,
    /// The kernel's number of the thread; 0 until it runs.
    pub thread_id: AtomicI32,
    /// Number of operations that the thread may make while threads stand still.
    pub limit: AtomicU64,
    pub is_alive: AtomicBool,
    pub has_ended: AtomicBool,
    pub is_counted: AtomicBool,
    /// True for a thread of an interpreter.
    pub is_interpreted: AtomicBool,
    /// Number of the interpreter's events at the last look of such a thread for its semaphore.
    pub looked: AtomicU32,
    /// The word, and the number of times that the thread has gone to sleep, when it was last seen at rest.
    pub seen: [AtomicU64; 2],
}

impl Slot {
    /// True if it is ordered later, unlike a thread of OpenMP's teams, and is not the one of this number.
    pub fn counts_beside(&self, me: u64) -> bool {
        self.is_counted.load(Ordering::Relaxed) && self.number.load(Ordering::Relaxed) != me
    }
}

/// Limit on early threads. Further ones are not ordered. The threads that ended first are forgotten.
pub const SLOT_COUNT: usize = 4096;
pub static SLOTS: [Slot; SLOT_COUNT] = [const {
    Slot {
        word: AtomicU64::new(0),
        number: AtomicU64::new(0),
        thread_id: AtomicI32::new(0),
        limit: AtomicU64::new(0),
        is_alive: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        is_counted: AtomicBool::new(true),
        is_interpreted: AtomicBool::new(false),
        looked: AtomicU32::new(0),
        seen: [const { AtomicU64::new(0) }; 2],
    }
}; SLOT_COUNT];
/// The slot after the one taken last.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Held by a thread that takes slots or closes them.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Slots of threads that have not ended.
pub fn alive() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().filter(|slot| slot.is_alive.load(Ordering::Acquire))
}

/// Gives the table up in a forked child: a thread that the child lacks may have held it.
pub fn abandon() {
    IS_HELD.store(false, Ordering::Release);
}

/// The right to take slots, and to close them.
pub struct Table;

impl Table {
    pub fn take() -> Self {
        while IS_HELD.swap(true, Ordering::Acquire) {
            // SAFETY: - sched_yield has no arguments.
            unsafe { libc::sched_yield() };
        }
        Self
    }

    /// A slot for the thread of this number. `None` if all are taken, or the order has begun.
    pub fn slot(&self, number: u64, is_counted: bool, is_interpreted: bool) -> Option<&'static Slot> {
        if PHASE.load(Ordering::Acquire) != OPEN {
            return None;
        }
        let slot = (0..SLOT_COUNT)
            .map(|_| &SLOTS[NEXT.fetch_add(1, Ordering::Relaxed) % SLOT_COUNT])
            .find(|slot| !slot.is_alive.load(Ordering::Relaxed))?;
        slot.word.store(0, Ordering::Relaxed);
        slot.number.store(number, Ordering::Relaxed);
        slot.thread_id.store(0, Ordering::Relaxed);
        slot.limit.store(limit_of(number), Ordering::Relaxed);
        slot.is_counted.store(is_counted, Ordering::Relaxed);
        slot.is_interpreted.store(is_interpreted, Ordering::Relaxed);
        slot.has_ended.store(false, Ordering::Relaxed);
        slot.is_alive.store(true, Ordering::Relaxed);
        Some(slot)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        IS_HELD.store(false, Ordering::Release);
    }
}
