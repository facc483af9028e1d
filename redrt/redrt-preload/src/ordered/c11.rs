//! Threads of C11 (`threads.h`). The C library builds them on its other ones by calls within itself, which cannot be
//! interposed.

use super::objects::once;
use super::{lock, wait};
use crate::real::next;
use libc::{c_int, pthread_cond_t, pthread_mutex_t, pthread_once_t};

/// `thrd_busy`, `thrd_error` and `thrd_timedout` of the C library.
pub const BUSY: c_int = 1;
const ERROR: c_int = 2;
pub const TIMED_OUT: c_int = 4;

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_lock(mutex: *mut pthread_mutex_t) -> c_int {
    lock(mutex, false, || next!(mtx_lock(mutex => *mut pthread_mutex_t) -> c_int, ERROR))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    lock(mutex, true, || next!(mtx_trylock(mutex => *mut pthread_mutex_t) -> c_int, ERROR))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    let real = || next!(cnd_wait(condition => *mut pthread_cond_t, mutex => *mut pthread_mutex_t) -> c_int, ERROR);
    wait(condition, mutex, TIMED_OUT, false, real)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn call_once(flag: *mut pthread_once_t, routine: extern "C" fn()) {
    let real = |routine| {
        next!(call_once(flag => *mut pthread_once_t, routine => extern "C" fn()) -> (), ());
        0
    };
    once(flag, routine, real);
}
