//! The last holder of each lock.

use libc::pthread_mutex_t;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The place where a lock's last holder is recorded: a thread, and its operation.
pub trait Last {
    /// No other thread writes while the result is held.
    fn hold(&self) -> Held;
    /// The last holder, if it is known.
    fn read(&self) -> Option<(u64, u64)>;
    /// Records a new holder.
    fn write(&self, thread: u64, number: u64);
}

/// The right to write.
pub struct Held(Option<&'static Row>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(row) = self.0 {
            row.is_held.store(false, Ordering::Release);
        }
    }
}

/// A mutex that the calling thread has. The holder is recorded in the two words with which the C library lists robust
/// mutexes (`__list` of `struct __pthread_mutex_s`), unused in other ones.
pub struct OfMutex(pub *mut pthread_mutex_t);

const STAMP_OFFSET: usize = 24;
/// In place of a thread: this mutex is not ordered.
const SET_ASIDE: u64 = u64::MAX;

impl OfMutex {
    /// Makes the mutex unordered from now on.
    pub fn set_aside(&self) {
        self.write(SET_ASIDE, u64::MAX);
    }

    #[inline]
    pub fn is_set_aside(&self) -> bool {
        self.words()[0].load(Ordering::Relaxed) == SET_ASIDE
    }

    fn words(&self) -> [&AtomicU64; 2] {
        // SAFETY: aligned words within a mutex of the program's, of a kind that uses them for nothing else.
        [0, 8].map(|offset| unsafe { AtomicU64::from_ptr(self.0.byte_add(STAMP_OFFSET + offset).cast()) })
    }
}

impl Last for OfMutex {
    #[inline]
    fn hold(&self) -> Held {
        Held(None)
    }

    #[inline]
    fn read(&self) -> Option<(u64, u64)> {
        let [thread, number] = self.words().map(|word| word.load(Ordering::Relaxed));
        (number != 0).then_some((thread, number))
    }

    #[inline]
    fn write(&self, thread: u64, number: u64) {
        let [of, last] = self.words();
        of.store(thread, Ordering::Relaxed);
        last.store(number, Ordering::Relaxed);
    }
}

/// A row of the table.
#[repr(align(64))]
struct Row {
    is_held: AtomicBool,
    thread: AtomicU64,
    number: AtomicU64,
}

/// Objects are found by their addresses. Two in the same row count as one, which orders more than is needed: each
/// operation really came after the one before it.
const ROW_COUNT: usize = 256;
static ROWS: [Row; ROW_COUNT] =
    [const { Row { is_held: AtomicBool::new(false), thread: AtomicU64::new(0), number: AtomicU64::new(0) } };
        ROW_COUNT];

/// An object without room for the record.
#[derive(Clone, Copy)]
pub struct OfObject(&'static Row);

impl OfObject {
    pub fn new(object: *const c_void) -> Self {
        let mixed = (object as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        Self(&ROWS[mixed as usize % ROW_COUNT])
    }
}

impl Last for OfObject {
    fn hold(&self) -> Held {
        while self.0.is_held.swap(true, Ordering::Acquire) {
            // SAFETY: sched_yield has no arguments.
            unsafe { libc::sched_yield() };
        }
        Held(Some(self.0))
    }

    fn read(&self) -> Option<(u64, u64)> {
        let (thread, number) = (self.0.thread.load(Ordering::Relaxed), self.0.number.load(Ordering::Relaxed));
        (number != 0).then_some((thread, number))
    }

    fn write(&self, thread: u64, number: u64) {
        self.0.thread.store(thread, Ordering::Relaxed);
        self.0.number.store(number, Ordering::Relaxed);
    }
}

/// For operations without a predecessor.
pub struct Nobody;

impl Last for Nobody {
    fn hold(&self) -> Held {
        Held(None)
    }

    fn read(&self) -> Option<(u64, u64)> {
        None
    }

    fn write(&self, _: u64, _: u64) {}
}
