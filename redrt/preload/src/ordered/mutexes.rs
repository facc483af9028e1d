//! Mutexes.

use super::places::{OfMutex, OfObject};
use super::{Act, current, is_zero};
use crate::interpreter;
use crate::real::next;
use libc::{c_int, pthread_mutex_t};
use std::sync::atomic::{AtomicI32, Ordering};

/// `__kind` of `struct __pthread_mutex_s`, in bytes, and its bits: robust ones, and those that lend priorities, need
/// their list or have another layout.
const KIND_OFFSET: usize = 16;
const KIND_ROBUST: i32 = 16;
const KINDS_WITH_LISTS: i32 = KIND_ROBUST | 32 | 64;
/// Shared by processes, which have orders of their own. All robust ones are marked so.
const KIND_SHARED: i32 = 128;

fn kind(mutex: *mut pthread_mutex_t) -> i32 {
    // SAFETY: a mutex of the program's. Its kind does not change as long as it may be taken.
    unsafe { AtomicI32::from_ptr(mutex.byte_add(KIND_OFFSET).cast()) }.load(Ordering::Relaxed)
}

pub(super) fn really_lock(mutex: *mut pthread_mutex_t) -> c_int {
    next!(pthread_mutex_lock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS)
}

pub(super) fn really_unlock(mutex: *mut pthread_mutex_t) {
    next!(pthread_mutex_unlock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
}

/// Where it is noted who had it last.
pub(super) enum LastOf {
    Itself(OfMutex),
    Elsewhere(OfObject),
}

/// `None` for one that is not ordered.
pub(super) fn last_of(mutex: *mut pthread_mutex_t) -> Option<LastOf> {
    if mutex.is_null() {
        return None;
    }
    match kind(mutex) {
        kind if kind & (KIND_SHARED | KIND_ROBUST) == KIND_SHARED => None,
        kind if kind & KINDS_WITH_LISTS != 0 => Some(LastOf::Elsewhere(OfObject::new(mutex.cast()))),
        _ => Some(LastOf::Itself(OfMutex(mutex))),
    }
}

/// Takes a mutex, or tries to, in its turn. `real`: the call. It may always take it, or not: `may_miss`.
#[inline]
pub fn lock(mutex: *mut pthread_mutex_t, may_miss: bool, real: impl Fn() -> c_int) -> c_int {
    let Some(thread) = current() else { return real() };
    let surely = || _ = really_lock(mutex);
    let take_back = || {
        really_unlock(mutex);
        true
    };
    let act = Act { real, surely, take_back, takes: is_zero, may_miss };
    match last_of(mutex) {
        Some(LastOf::Itself(last)) => thread.perform(&last, &act),
        Some(LastOf::Elsewhere(last)) => thread.perform(&last, &act),
        None => (act.real)(),
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let gives_up = interpreter::before_lock(mutex);
    let result = lock(mutex, false, || really_lock(mutex));
    interpreter::after_lock(mutex, gives_up);
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    lock(mutex, true, || next!(pthread_mutex_trylock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS))
}
