//! Processes that the program makes to share work with them, as Python's `multiprocessing` does.
//!
//! Such processes take pieces of work from one pipe and answer over another one. Which of them takes a piece, and who
//! answers first, is different in each replica: each has its own children. So threads that wait for answers cannot come
//! in one order. They are not ordered from the first such child on, which each replica makes at the same operation of
//! its program.
//!
//! What gives these children away is the semaphore by which they take turns: it was made for several processes before
//! the child. One without a name can be used by forked children only, one with a name by other programs too.

use crate::lock_events::{LockOperation, SHARES};
use crate::real::{Next, next};
use crate::{numbers, state};
use libc::{c_char, c_int, c_uint, c_void, pid_t};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of semaphores made for several processes.
static MADE: AtomicU32 = AtomicU32::new(0);
/// Number of these that can be opened by their name.
static NAMED: AtomicU32 = AtomicU32::new(0);
/// True once threads are ordered.
static ARE_ORDERED: AtomicBool = AtomicBool::new(false);
/// True from the first child on with which the program shares a semaphore.
static SHARE: AtomicBool = AtomicBool::new(false);
/// True once the library knows.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Called before the process makes a child: a copy of itself, or a process for another program.
pub fn before_child(is_copy: bool) {
    let shared = if is_copy { &MADE } else { &NAMED };
    if shared.load(Ordering::Relaxed) > 0 && state::job().is_some_and(|job| job.is_first_process()) {
        SHARE.store(true, Ordering::Relaxed);
        if ARE_ORDERED.load(Ordering::Relaxed) {
            report();
        }
    }
}

/// Called when the order of threads begins, of an interpreter's or of others.
pub fn orders_threads() {
    ARE_ORDERED.store(true, Ordering::Relaxed);
}

fn report() {
    if state::library_answers() && !IS_TOLD.swap(true, Ordering::Relaxed) {
        state::ask_of_locks(SHARES, &LockOperation::of(numbers::number()));
    }
}

/// Returns true if threads of this process are not to be ordered. The library learns it when there are any.
pub fn share() -> bool {
    let share = SHARE.load(Ordering::Relaxed);
    if share && !IS_TOLD.load(Ordering::Relaxed) {
        report();
    }
    share
}

/// Replaces the C library's. `mode` and `value` are there if `flags` has `O_CREAT`.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_open(name: *const c_char, flags: c_int, mode: c_uint, value: c_uint) -> *mut c_void {
    let made = next!(sem_open(
        name => *const c_char, flags => c_int, mode => c_uint, value => c_uint
    ) -> *mut c_void, std::ptr::null_mut());
    if !made.is_null() {
        MADE.fetch_add(1, Ordering::Relaxed);
        NAMED.fetch_add(1, Ordering::Relaxed);
    }
    made
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_unlink(name: *const c_char) -> c_int {
    let result = next!(sem_unlink(name => *const c_char) -> c_int, -1);
    if result == 0 {
        let _ = NAMED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_init(semaphore: *mut c_void, is_shared: c_int, value: c_uint) -> c_int {
    if is_shared != 0 {
        MADE.fetch_add(1, Ordering::Relaxed);
    }
    next!(sem_init(semaphore => *mut c_void, is_shared => c_int, value => c_uint) -> c_int, -1)
}

/// Called before a child that is made by `vfork`. Returns the address of the C library's function.
extern "C" fn before_vfork() -> *mut c_void {
    static NEXT: Next = Next::new(b"vfork\0");
    before_child(false);
    NEXT.address()
}

/// Replaces the C library's, which returns twice: its caller's frame must be the one of this call.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("sub rsp, 8", "call {before}", "add rsp, 8", "jmp rax", before = sym before_vfork);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, -16]!", "bl {before}", "ldp x29, x30, [sp], 16", "br x0", before = sym before_vfork
    );
}

/// Another name of it.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("jmp {vfork}", vfork = sym vfork);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("b {vfork}", vfork = sym vfork);
}

/// Interposes functions that start another program in a child.
macro_rules! spawning {
    ($($name:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            before_child(false);
            next!($name(
                pid => *mut pid_t, path => *const c_char, actions => *const c_void, attributes => *const c_void,
                arguments => *const *mut c_char, environment => *const *mut c_char
            ) -> c_int, libc::ENOSYS)
        }
    )+ };
}

spawning! {
    posix_spawn
    posix_spawnp
}
