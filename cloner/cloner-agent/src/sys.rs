//! System calls without the C library: no `errno`, no thread-local storage, no locks.
//!
//! The agent's thread may have no thread-local storage, and threads are parked at any instruction. In the copy this
//! code runs before the C library's state of the thread is valid.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes system call `nr`. Returns the kernel's result; a negative number is an error number.
///
/// # Safety
/// The arguments fulfil the requirements of that system call: pointers are valid for its reads and writes.
#[inline]
pub unsafe fn syscall6(nr: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    let result: i64;
    // SAFETY: - the registers follow the kernel's calling convention; rcx and r11 are declared as clobbered.
    //         - the caller guarantees that the call's memory accesses are valid; the block is not declared `nomem`.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Makes a system call with up to four arguments, like [`syscall6`].
///
/// # Safety
/// As for [`syscall6`].
#[inline]
pub unsafe fn syscall(nr: i64, a: u64, b: u64, c: u64, d: u64) -> i64 {
    // SAFETY: - the arguments fulfil the requirements of `nr`, as this function's contract demands.
    unsafe { syscall6(nr, a, b, c, d, 0, 0) }
}

/// Id of the calling thread, in its PID namespace.
#[must_use]
pub fn gettid() -> u32 {
    // SAFETY: - `gettid` takes no arguments and touches no memory.
    unsafe { syscall(libc::SYS_gettid, 0, 0, 0, 0) as u32 }
}

/// Id of this process, in its PID namespace.
#[must_use]
pub fn getpid() -> u32 {
    // SAFETY: - `getpid` takes no arguments and touches no memory.
    unsafe { syscall(libc::SYS_getpid, 0, 0, 0, 0) as u32 }
}

/// Closes a descriptor, which the caller must own.
pub fn close(fd: i32) {
    // SAFETY: - `close` takes a number and touches no memory.
    unsafe { syscall(libc::SYS_close, fd as u64, 0, 0, 0) };
}

/// Opens `path`, which ends with NUL, below `directory`. Returns a descriptor, or a negative error number.
pub fn openat(directory: i32, path: &[u8], flags: i32) -> i32 {
    assert!(path.last() == Some(&0));
    // SAFETY: - `path` ends with NUL, as asserted above, and is only read.
    unsafe { syscall(libc::SYS_openat, directory as u64, path.as_ptr() as u64, flags as u64, 0) as i32 }
}

/// Reads into `buffer`. Returns the number of bytes, or a negative error number.
pub fn read(fd: i32, buffer: &mut [u8]) -> i64 {
    // SAFETY: - `buffer` is a slice, passed with its own length.
    unsafe { syscall(libc::SYS_read, fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0) }
}

/// Sleeps while `*word == expected`, at most `timeout_ms`; without limit if that is 0.
///
/// # Safety
/// `word` is valid and aligned.
pub unsafe fn futex_wait(word: *const u32, expected: u32, timeout_ms: u64) {
    let timeout = [timeout_ms / 1000, timeout_ms % 1000 * 1_000_000];
    let timeout = if timeout_ms == 0 { 0 } else { timeout.as_ptr() as u64 };
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    // SAFETY: - `word` is valid and aligned, as this function's contract demands.
    //         - `timeout` is null or a timespec that outlives the call.
    unsafe { syscall(libc::SYS_futex, word as u64, operation, u64::from(expected), timeout) };
}

/// Wakes all threads that sleep on `word`.
///
/// # Safety
/// `word` is valid and aligned.
pub unsafe fn futex_wake(word: *const u32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    // SAFETY: - `word` is valid and aligned, as this function's contract demands.
    unsafe { syscall(libc::SYS_futex, word as u64, operation, i32::MAX as u64, 0) };
}

/// Address far from the kernel's own choices, so that mappings here do not shift the program's. Replicas are copied at
/// different moments, and a program may have told others the addresses of its memory.
const REMOTE: u64 = 0x6800_0000_0000;

/// Address hint for the next mapping.
static NEXT: AtomicU64 = AtomicU64::new(REMOTE);

/// Maps `len` bytes of anonymous private memory between two guard pages, which keep the kernel from merging it with
/// memory of the program. `None` if the kernel denies it.
#[must_use]
pub fn map_guarded(len: usize) -> Option<*mut u8> {
    const PAGE: usize = 4096;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let whole = (len + 2 * PAGE) as u64;
    let hint = NEXT.fetch_add(whole.next_multiple_of(PAGE as u64), Ordering::Relaxed);
    // SAFETY: - the address is a hint only, so the kernel picks a free range and no existing memory is touched.
    let base = unsafe { syscall6(libc::SYS_mmap, hint, whole, 0, flags, u64::MAX, 0) };
    if base < 0 {
        return None;
    }
    let inner = base as u64 + PAGE as u64;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    // SAFETY: - the range is within the mapping just made.
    let changed = unsafe { syscall(libc::SYS_mprotect, inner, len as u64, protection, 0) };
    (changed == 0).then_some(inner as *mut u8)
}

/// Unmaps memory from [`map_guarded`], with its guard pages. `len` must be the same as there.
pub fn unmap_guarded(inner: *mut u8, len: usize) {
    const PAGE: u64 = 4096;
    // SAFETY: - the caller owns the mapping, which `map_guarded` made with this length, and does not use it any more.
    unsafe { syscall(libc::SYS_munmap, inner as u64 - PAGE, len as u64 + 2 * PAGE, 0, 0) };
}
