//! Locks for reading and writing, spin locks, semaphores, barriers, and initializations that run once.

use super::cancelling::{Cancels, cancellable};
use super::early::{ACTS, WAITING};
use super::places::{Last, Nobody, OfObject};
use super::{Act, Caller, Next, Ordered, caller};
use crate::interpreter;
use crate::real::{self, next};
use libc::{c_int, pthread_barrier_t, pthread_once_t, pthread_rwlock_t, pthread_spinlock_t};
use std::cell::Cell;
use std::ffi::c_void;
use thread_order::Shortcut;

fn unlock(lock: *mut pthread_rwlock_t) -> c_int {
    next!(pthread_rwlock_unlock(lock => *mut pthread_rwlock_t) -> c_int, libc::ENOSYS)
}

/// Offset of `__cur_writer` in `struct __pthread_rwlock_arch_t`, in bytes.
const WRITER_OFFSET: usize = 24;

/// Takes an object, or tries to, in its turn: by `real`, or by `surely`, which does not fail. `unlock` gives it back.
/// The C library notes its owner at `owner`.
fn hold(
    object: *const c_void,
    owner: *const i32,
    may_miss: bool,
    real: impl Fn() -> c_int,
    surely: impl Fn() -> c_int,
    unlock: impl Fn() -> c_int,
) -> c_int {
    let caller = caller();
    if matches!(caller, Caller::Unordered) {
        return real();
    }
    let (surely, take_back) = (|| _ = surely(), || unlock() == 0);
    caller.perform(&OfObject::new(object), &Act { may_miss, owner, ..Act::new(real, surely, take_back) })
}

/// Takes a lock for reading, or tries to, in its turn. Readers take it one after the other, and then hold it together.
pub fn hold_read(lock: *mut pthread_rwlock_t, may_miss: bool, real: impl Fn() -> c_int) -> c_int {
    let surely = || next!(pthread_rwlock_rdlock(lock => *mut pthread_rwlock_t) -> c_int, 0);
    hold(lock.cast(), std::ptr::null(), may_miss, real, surely, || unlock(lock))
}

/// Takes a lock for writing in the same way.
pub fn hold_written(lock: *mut pthread_rwlock_t, may_miss: bool, real: impl Fn() -> c_int) -> c_int {
    let surely = || next!(pthread_rwlock_wrlock(lock => *mut pthread_rwlock_t) -> c_int, 0);
    let writer = lock.wrapping_byte_add(WRITER_OFFSET).cast_const().cast();
    hold(lock.cast(), writer, may_miss, real, surely, || unlock(lock))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
    hold_read(lock, false, || next!(pthread_rwlock_rdlock(lock => *mut pthread_rwlock_t) -> c_int, libc::ENOSYS))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int {
    hold_read(lock, true, || next!(pthread_rwlock_tryrdlock(lock => *mut pthread_rwlock_t) -> c_int, libc::ENOSYS))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
    hold_written(lock, false, || next!(pthread_rwlock_wrlock(lock => *mut pthread_rwlock_t) -> c_int, libc::ENOSYS))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int {
    hold_written(lock, true, || next!(pthread_rwlock_trywrlock(lock => *mut pthread_rwlock_t) -> c_int, libc::ENOSYS))
}

fn spin(lock: *mut pthread_spinlock_t, may_miss: bool, real: impl Fn() -> c_int) -> c_int {
    let surely = || next!(pthread_spin_lock(lock => *mut pthread_spinlock_t) -> c_int, 0);
    let unlock = || next!(pthread_spin_unlock(lock => *mut pthread_spinlock_t) -> c_int, 0);
    hold(lock.cast_const().cast(), std::ptr::null(), may_miss, real, surely, unlock)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    spin(lock, false, || next!(pthread_spin_lock(lock => *mut pthread_spinlock_t) -> c_int, libc::ENOSYS))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
    spin(lock, true, || next!(pthread_spin_trylock(lock => *mut pthread_spinlock_t) -> c_int, libc::ENOSYS))
}

/// A semaphore, as `sem_t` is passed.
pub type Semaphore = *mut c_void;

/// Waits for a semaphore, or tries to, in its turn. `real`: the call, which sets `errno` when it returns -1, and
/// `waits` without a limit. Giving one back needs no turn, as handlers of signals may do it.
pub fn semaphore(semaphore: Semaphore, waits: bool, real: impl Fn() -> c_int) -> c_int {
    let caller = caller();
    if matches!(caller, Caller::Unordered) {
        return real();
    }
    let real = || if cancellable(&real) == 0 { 0 } else { real::errno() };
    let surely = || while next!(sem_wait(semaphore => Semaphore) -> c_int, 0) != 0 && real::errno() == libc::EINTR {};
    let take_back = || next!(sem_post(semaphore => Semaphore) -> c_int, -1) == 0;
    let act = Act { may_miss: true, waits, cancels: Cancels::Without, ..Act::new(real, surely, take_back) };
    match caller.perform(&OfObject::new(semaphore), &act) {
        0 => 0,
        error => {
            real::set_errno(error);
            -1
        }
    }
}

/// Replaces the C library's. The semaphore may be one of an interpreter's program.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_wait(lock: Semaphore) -> c_int {
    let wait = || semaphore(lock, true, || next!(sem_wait(lock => Semaphore) -> c_int, -1));
    interpreter::wait_for_semaphore(lock, None, wait)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_trywait(lock: Semaphore) -> c_int {
    let result = semaphore(lock, false, || next!(sem_trywait(lock => Semaphore) -> c_int, -1));
    if result == 0 {
        interpreter::record_taken(lock);
    }
    result
}

/// Replaces the C library's: the thread that gets PTHREAD_BARRIER_SERIAL_THREAD is the same in all replicas.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    let caller = caller();
    let begun = if let Caller::Early(early) = caller { early.begin(WAITING) } else { None };
    // Waits at the barrier first, with any result: siblings whose threads get other results wait for it.
    let result = next!(pthread_barrier_wait(barrier => *mut pthread_barrier_t) -> c_int, libc::ENOSYS);
    let thread = match caller {
        Caller::Unordered => None,
        Caller::Ordered(thread) => Some(thread),
        Caller::Early(early) => begun.or_else(|| early.count()),
    };
    thread.map_or(result, |thread| thread.agree(&Nobody, result))
}

/// An initialization that a thread runs once.
#[derive(Clone, Copy)]
struct Once {
    thread: Ordered,
    last: OfObject,
    routine: extern "C" fn(),
    has_run: bool,
}

thread_local! {
    static ONCE: Cell<Option<Once>> = const { Cell::new(None) };
}

/// The result recorded for a thread that has run the routine.
const HAS_RUN: c_int = 1;

/// Runs the routine in the leader's thread, and reports it before others see that it has run.
extern "C" fn run_once() {
    let Some(once) = ONCE.get() else { return };
    (once.routine)();
    let Once { thread, last, .. } = once;
    if !thread.made(&last, true, HAS_RUN) {
        // This process has meanwhile become a copy, which follows.
        thread.agree(&last, HAS_RUN);
    }
    ONCE.set(Some(Once { has_run: true, ..once }));
}

/// Runs the routine once, in the same thread in all replicas. `real`: the call, with the routine to run.
pub(super) fn once(
    control: *mut pthread_once_t,
    routine: extern "C" fn(),
    real: impl Fn(extern "C" fn()) -> c_int,
) -> c_int {
    let last = OfObject::new(control.cast());
    let thread = match caller() {
        Caller::Unordered => return real(routine),
        Caller::Ordered(thread) => thread,
        Caller::Early(early) => {
            if let Some(thread) = early.begin(ACTS) {
                thread
            } else {
                let result = real(routine);
                return early.count().map_or(result, |thread| thread.agree(&last, result));
            }
        }
    };
    loop {
        match thread.counts.shortcut() {
            Shortcut::Unordered => return real(routine),
            Shortcut::Follows => {
                let result = real(routine);
                let _held = last.hold();
                thread.count(&last, false);
                return result;
            }
            Shortcut::Leads => {
                // The routine may run another initialization once.
                let outer = ONCE.replace(Some(Once { thread, last, routine, has_run: false }));
                let result = real(run_once);
                let has_run = ONCE.replace(outer).is_some_and(|once| once.has_run);
                if has_run || thread.made(&last, true, 0) {
                    return result;
                }
            }
            Shortcut::Ask => match thread.before() {
                Next::Unordered | Next::Cancelled => return real(routine),
                Next::Free => {}
                Next::Decided { takes, .. } => {
                    let result = real(routine);
                    thread.followed(&last, takes);
                    return result;
                }
            },
        }
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_once(control: *mut pthread_once_t, routine: extern "C" fn()) -> c_int {
    let real = |routine| next!(pthread_once(control => *mut pthread_once_t, routine => extern "C" fn()) -> c_int, libc::ENOSYS);
    once(control, routine, real)
}
