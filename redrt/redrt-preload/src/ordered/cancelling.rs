//! Threads that the program cancels while they wait.
//!
//! A leader's thread is cancelled in the C library, where it waits. A follower's thread waits for its turn instead: it
//! is cancelled there once the leader's thread has ended without that operation. The program's thread that cancels it
//! may come to that later here.

use super::exchange::cancellation_point;
use super::{IS_PAUSED, Ordered};
use crate::lock_events::{LockOperation, PARTED};
use crate::real::{self, next};
use crate::state::ask_of_locks;
use libc::{c_int, pthread_t};
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit on the threads that are cancelled and have not ended. Others are taken for threads that nobody has cancelled.
const COUNT_MAX: usize = 256;
static CANCELLED: [AtomicU64; COUNT_MAX] = [const { AtomicU64::new(0) }; COUNT_MAX];

/// Time for which a thread waits to be cancelled, in milliseconds.
const WAIT_MS: u32 = 10_000;

fn me() -> pthread_t {
    // SAFETY: - pthread_self has no arguments.
    unsafe { libc::pthread_self() }
}

fn place(thread: pthread_t) -> Option<&'static AtomicU64> {
    CANCELLED.iter().find(|place| place.load(Ordering::Acquire) == thread)
}

/// Called when the calling thread ends.
pub fn forget() {
    if let Some(place) = place(me()) {
        place.store(0, Ordering::Release);
    }
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    if place(thread).is_none() {
        CANCELLED.iter().find(|place| place.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    }
    next!(pthread_cancel(thread => pthread_t) -> c_int, libc::ENOSYS)
}

/// Makes a call of the C library in which the calling thread may be cancelled. Then the unwinder takes locks of its
/// own, in a thread that has ended for its siblings.
pub fn cancellable<R>(call: impl FnOnce() -> R) -> R {
    let was_paused = IS_PAUSED.replace(true);
    let result = call();
    IS_PAUSED.set(was_paused);
    result
}

/// Effect of a cancellation in a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cancels {
    /// None: the call is no cancellation point.
    No,
    /// The thread ends without what the call takes.
    Without,
    /// The thread ends with the lock that it had given back to wait.
    WithLock,
}

impl Ordered {
    /// Waits until the program has cancelled this thread, as it has cancelled the leader's, and ends it. `take` takes
    /// the mutex that the thread has when it ends. Returns where nobody cancels it: then the replicas have parted.
    pub(super) fn end_cancelled(self, take: impl FnOnce()) {
        for _ in 0..WAIT_MS {
            if place(me()).is_some() {
                take();
                cancellation_point();
                break;
            }
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            // SAFETY: - the time lives until the call returns; nothing is written.
            unsafe { real::system_call(libc::SYS_nanosleep, [&raw const pause as libc::c_long, 0, 0, 0, 0, 0]) };
        }
        ask_of_locks(PARTED, &LockOperation::of(self.number));
    }
}
