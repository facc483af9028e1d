//! Mutexes.

use super::places::{Last, OfMutex, OfObject};
use super::{Act, Caller, caller, runtimes};
use crate::real::next;
use crate::{interpreter, state};
use libc::{c_int, c_void, pthread_mutex_t, pthread_mutexattr_t};
use std::sync::atomic::{AtomicI32, Ordering};

/// Offset of `__kind` in `struct __pthread_mutex_s`, in bytes, and its bits: mutexes that are robust or lend priorities
/// need their list or have another layout.
const KIND_OFFSET: usize = 16;
const KIND_ROBUST: i32 = 16;
const KINDS_WITH_LISTS: i32 = KIND_ROBUST | 32 | 64;
/// Offset of `__owner`, in bytes.
const OWNER_OFFSET: usize = 8;
/// Shared by processes, which have orders of their own. All robust mutexes have this bit too.
const KIND_SHARED: i32 = 128;

fn kind(mutex: *mut pthread_mutex_t) -> i32 {
    // SAFETY: a mutex of the program's. Its kind does not change as long as it may be taken.
    unsafe { AtomicI32::from_ptr(mutex.byte_add(KIND_OFFSET).cast()) }.load(Ordering::Relaxed)
}

/// Address of `__owner`.
fn owner(mutex: *mut pthread_mutex_t) -> *const i32 {
    mutex.wrapping_byte_add(OWNER_OFFSET).cast_const().cast()
}

pub(super) fn really_lock(mutex: *mut pthread_mutex_t) -> c_int {
    next!(pthread_mutex_lock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS)
}

pub(super) fn really_unlock(mutex: *mut pthread_mutex_t) {
    next!(pthread_mutex_unlock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
}

/// The place where a mutex's last holder is recorded.
pub(super) enum LastOf {
    Itself(OfMutex),
    Elsewhere(OfObject),
}

/// `None` for a mutex that is not ordered.
pub(super) fn last_of(mutex: *mut pthread_mutex_t) -> Option<LastOf> {
    if mutex.is_null() {
        return None;
    }
    match kind(mutex) {
        kind if kind & (KIND_SHARED | KIND_ROBUST) == KIND_SHARED => None,
        kind if kind & KINDS_WITH_LISTS != 0 => Some(LastOf::Elsewhere(OfObject::new(mutex.cast()))),
        _ => Some(OfMutex(mutex)).filter(is_ordered).map(LastOf::Itself),
    }
}

/// True unless the mutex was set aside. A mutex that no call has made is checked when it is first taken.
#[inline]
fn is_ordered(mutex: &OfMutex) -> bool {
    !mutex.is_set_aside() && (mutex.read().is_some() || !runtimes::has(mutex.0.cast_const().cast()))
}

/// Takes a mutex, or tries to, in its turn. `real`: the call, which may return without the mutex if `may_miss`.
#[inline]
pub fn lock(mutex: *mut pthread_mutex_t, may_miss: bool, real: impl Fn() -> c_int) -> c_int {
    let caller = caller();
    if matches!(caller, Caller::Unordered) {
        return real();
    }
    let surely = || _ = really_lock(mutex);
    let take_back = || {
        really_unlock(mutex);
        true
    };
    let act = Act { may_miss, owner: owner(mutex), ..Act::new(real, surely, take_back) };
    match last_of(mutex) {
        Some(LastOf::Itself(last)) => caller.perform(&last, &act),
        Some(LastOf::Elsewhere(last)) => caller.perform(&last, &act),
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

/// Makes a mutex; `caller` is an address in the calling code.
unsafe extern "C" fn init(
    mutex: *mut pthread_mutex_t,
    attributes: *const pthread_mutexattr_t,
    caller: *const c_void,
) -> c_int {
    interpreter::record_mutex(mutex);
    let result = next!(pthread_mutex_init(
        mutex => *mut pthread_mutex_t, attributes => *const pthread_mutexattr_t
    ) -> c_int, libc::ENOSYS);
    let is_plain = || kind(mutex) & (KINDS_WITH_LISTS | KIND_SHARED) == 0;
    if result == 0 && state::is_active() && is_plain() && runtimes::is_one(caller) {
        OfMutex(mutex).set_aside();
    }
    result
}

/// Replaces the C library's, and passes on the address of its caller.
///
/// # Safety
/// As for the function of the C library.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(_: *mut pthread_mutex_t, _: *const pthread_mutexattr_t) -> c_int {
    // The return address becomes the third argument.
    std::arch::naked_asm!("mov rdx, [rsp]", "jmp {init}", init = sym init)
}

/// Replaces the C library's, and passes on the address of its caller.
///
/// # Safety
/// As for the function of the C library.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(_: *mut pthread_mutex_t, _: *const pthread_mutexattr_t) -> c_int {
    // The return address becomes the third argument.
    std::arch::naked_asm!("mov x2, x30", "b {init}", init = sym init)
}

/// Another name of [`pthread_mutex_init`], which gets the same caller.
///
/// # Safety
/// As for the function of the C library.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_init(_: *mut pthread_mutex_t, _: *const pthread_mutexattr_t) -> c_int {
    std::arch::naked_asm!("jmp {same}", same = sym pthread_mutex_init)
}

/// Another name of [`pthread_mutex_init`], which gets the same caller.
///
/// # Safety
/// As for the function of the C library.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_mutex_init(_: *mut pthread_mutex_t, _: *const pthread_mutexattr_t) -> c_int {
    std::arch::naked_asm!("b {same}", same = sym pthread_mutex_init)
}
