//! CPython's global interpreter lock: who waits for it computes a deadline every 5 ms, at moments that nobody chose.
//!
//! Those readings of a clock are the interpreter's own, and nothing that the program sees depends on them: they are
//! real. They are known by the mutex that guards the lock. It is part of `_PyRuntime`, a variable that CPython exports
//! from 3.7 on, and a thread that waits for the lock reads the clock while it holds the mutex (`take_gil` in
//! `ceval_gil.h`). The locks of an interpreter with a lock of its own (PEP 684) are elsewhere and are not known.

use crate::{real, state};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// Mutexes of the interpreter that are known at most. It has two or three.
const MUTEX_COUNT: usize = 8;

static MUTEXES: [AtomicPtr<libc::pthread_mutex_t>; MUTEX_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MUTEX_COUNT];

/// Where `_PyRuntime` begins and ends; 0 until it was found.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Where glibc keeps the id of the thread that holds a mutex, in bytes (`__owner` of `struct __pthread_mutex_s`).
const OWNER_OFFSET: usize = 8;

unsafe extern "C" {
    /// Declared here because the crate `libc` has it for the BSDs only.
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *const c_void, flags: i32) -> i32;
}

/// The first fields of an entry of a table of symbols, of ELF's 64-bit form.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size_bytes: u64,
}

/// Whether this address is in the interpreter's state.
fn is_in_interpreter(address: usize) -> bool {
    const SYMBOL: i32 = 1;
    if BEGIN.load(Ordering::Acquire) == 0 {
        // SAFETY: the name ends with a zero byte.
        let runtime = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr()) };
        if runtime.is_null() {
            // An interpreter may be loaded later.
            return false;
        }
        // SAFETY: Dl_info is made of pointers, which may be null.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let mut symbol: *const c_void = std::ptr::null();
        // SAFETY: both are valid for writing.
        let found = unsafe { dladdr1(runtime, &raw mut info, &raw mut symbol, SYMBOL) };
        if found == 0 || symbol.is_null() {
            return false;
        }
        // SAFETY: the dynamic linker has set it to the symbol's entry, which stays mapped while the object is loaded;
        // an interpreter is never unloaded.
        let size_bytes = unsafe { (*symbol.cast::<Symbol>()).size_bytes };
        END.store((runtime as usize).saturating_add(size_bytes as usize), Ordering::Relaxed);
        BEGIN.store(runtime as usize, Ordering::Release);
    }
    (BEGIN.load(Ordering::Acquire)..END.load(Ordering::Relaxed)).contains(&address)
}

/// Whether the calling thread holds a lock of the interpreter itself.
pub fn is_inside() -> bool {
    let known = MUTEXES.iter().map(|mutex| mutex.load(Ordering::Acquire)).take_while(|mutex| !mutex.is_null());
    let mut me = None;
    for mutex in known {
        // SAFETY: a mutex of the interpreter's, which is never taken away. Its owner is an aligned number that threads
        // write while they hold the mutex: one that reads its own id there has written it.
        let owner = unsafe { AtomicI32::from_ptr(mutex.byte_add(OWNER_OFFSET).cast()) }.load(Ordering::Relaxed);
        if owner != 0 && owner == *me.get_or_insert_with(real::thread_id) {
            return true;
        }
    }
    false
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> i32 {
    if state::is_active() && is_in_interpreter(mutex as usize) {
        for place in &MUTEXES {
            let taken = place.compare_exchange(std::ptr::null_mut(), mutex, Ordering::AcqRel, Ordering::Acquire);
            // A forked child, or an interpreter that is begun anew, has the same.
            if taken.is_ok() || taken == Err(mutex) {
                break;
            }
        }
    }
    real::next!(pthread_mutex_init(
        mutex => *mut libc::pthread_mutex_t, attributes => *const libc::pthread_mutexattr_t
    ) -> i32, libc::ENOSYS)
}
