//! System calls without the C library: no `errno`, no thread-local storage, no locks.
//!
//! The agent's thread may have no thread-local storage at all, threads are parked at any instruction, and in the copy
//! this code runs before the C library's own state of the thread is right.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes system call `nr`. The result is what the kernel returned: a negative number is an error number.
///
/// # Safety
/// As the system call's own rules say for these arguments.
#[inline]
pub unsafe fn syscall6(nr: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    let result: i64;
    // SAFETY: - the registers are those of the kernel's calling convention; rcx and r11 are declared lost.
    //         - what the call does to memory is the caller's duty; the asm block is not marked as leaving memory alone.
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

/// [`syscall6`] with up to four arguments.
///
/// # Safety
/// As for [`syscall6`].
#[inline]
pub unsafe fn syscall(nr: i64, a: u64, b: u64, c: u64, d: u64) -> i64 {
    // SAFETY: - the caller's duty, passed on.
    unsafe { syscall6(nr, a, b, c, d, 0, 0) }
}

/// The calling thread's id.
#[must_use]
pub fn gettid() -> u32 {
    // SAFETY: - no arguments.
    unsafe { syscall(libc::SYS_gettid, 0, 0, 0, 0) as u32 }
}

/// The process id.
#[must_use]
pub fn getpid() -> u32 {
    // SAFETY: - no arguments.
    unsafe { syscall(libc::SYS_getpid, 0, 0, 0, 0) as u32 }
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: - touches no memory; callers own `fd`.
    unsafe { syscall(libc::SYS_close, fd as u64, 0, 0, 0) };
}

/// Opens the NUL-terminated `path` below `directory`.
pub fn openat(directory: i32, path: &[u8], flags: i32) -> i32 {
    assert!(path.last() == Some(&0));
    // SAFETY: - path is NUL-terminated, checked above, and only read.
    unsafe { syscall(libc::SYS_openat, directory as u64, path.as_ptr() as u64, flags as u64, 0) as i32 }
}

/// Reads into `buffer`; the count or a negative error number.
pub fn read(fd: i32, buffer: &mut [u8]) -> i64 {
    // SAFETY: - the buffer is valid for writes of its length.
    unsafe { syscall(libc::SYS_read, fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0) }
}

/// Sleeps while `*word == expected`, at most `timeout_ms` (for ever when 0).
///
/// # Safety
/// `word` is a valid, aligned futex word.
pub unsafe fn futex_wait(word: *const u32, expected: u32, timeout_ms: u64) {
    let timeout = [timeout_ms / 1000, timeout_ms % 1000 * 1_000_000];
    let timeout = if timeout_ms == 0 { 0 } else { timeout.as_ptr() as u64 };
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    // SAFETY: - word is valid, by the contract; timeout is null or a timespec that lives through the call.
    unsafe { syscall(libc::SYS_futex, word as u64, operation, u64::from(expected), timeout) };
}

/// Wakes all that sleep on `word`.
///
/// # Safety
/// `word` is a valid, aligned futex word.
pub unsafe fn futex_wake(word: *const u32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    // SAFETY: - word is valid, by the contract.
    unsafe { syscall(libc::SYS_futex, word as u64, operation, i32::MAX as u64, 0) };
}

/// Far from where the kernel looks for room by itself. What is mapped there does not move what the program maps:
/// replicas are copied at moments of their own, and a program may have told others where its memory is.
const REMOTE: u64 = 0x6800_0000_0000;

/// Where the next mapping goes, if there is room.
static NEXT: AtomicU64 = AtomicU64::new(REMOTE);

/// Maps anonymous private memory of `len` bytes between two guard pages; `None` when there is none to be had. The
/// guards keep the kernel from merging it with memory of the program.
#[must_use]
pub fn map_guarded(len: usize) -> Option<*mut u8> {
    const PAGE: usize = 4096;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let whole = (len + 2 * PAGE) as u64;
    let wish = NEXT.fetch_add(whole.next_multiple_of(PAGE as u64), Ordering::Relaxed);
    // SAFETY: - a fresh mapping, at this address or wherever the kernel likes.
    let base = unsafe { syscall6(libc::SYS_mmap, wish, whole, 0, flags, u64::MAX, 0) };
    if base < 0 {
        return None;
    }
    let inner = base as u64 + PAGE as u64;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    // SAFETY: - within the mapping just made.
    let changed = unsafe { syscall(libc::SYS_mprotect, inner, len as u64, protection, 0) };
    (changed == 0).then_some(inner as *mut u8)
}

/// Gives back what [`map_guarded`] made, with its guards.
pub fn unmap_guarded(inner: *mut u8, len: usize) {
    const PAGE: u64 = 4096;
    // SAFETY: - the caller owns the mapping and does not use it any more.
    unsafe { syscall(libc::SYS_munmap, inner as u64 - PAGE, len as u64 + 2 * PAGE, 0, 0) };
}
