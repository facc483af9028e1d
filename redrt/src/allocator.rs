//! The library's own heap.
//!
//! The trap: a clone of this process starts its agent before the application's threads run again, and one of them may
//! have been stopped inside malloc, holding its lock. A library that allocates from the C heap would hang there. So it
//! has a heap that the application does not enter.
//!
//! The heap maps memory when it grows, at moments that differ between replicas. Its arenas are far from the addresses
//! at which the kernel looks for room. Its tables are not: one of 64 KiB is mapped for each 512 MiB of addresses that
//! are used for the first time. So build.rs makes the linker pass all calls of `mmap` in this library to [`map`]
//! (`--wrap`).

use mimalloc::MiMalloc;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

/// Far from the addresses that the kernel chooses, from the shared memory of hosts, and from the cloner's agent.
const REMOTE: usize = 0x5800_0000_0000;
const PAGE: usize = 4096;

/// Address of the next mapping, if there is room.
static NEXT: AtomicUsize = AtomicUsize::new(REMOTE);

std::arch::global_asm!(
    ".hidden __wrap_mmap",
    ".globl __wrap_mmap",
    "__wrap_mmap:",
    "jmp {map}",
    map = sym map,
);

/// `mmap` for all code that is linked into this library. Anonymous memory without a wished address is mapped apart from
/// the program's.
unsafe extern "C" fn map(
    hint: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: i64,
) -> *mut c_void {
    let hint = if hint.is_null() && flags & libc::MAP_ANONYMOUS != 0 {
        let address = NEXT.fetch_add(bytes.next_multiple_of(PAGE), Ordering::Relaxed);
        std::ptr::without_provenance_mut(address)
    } else {
        hint
    };
    // Not wrapped: the same function under another name.
    // SAFETY: - the duties of mmap are those of this function's caller; only a hint is added where it gave none.
    unsafe { libc::mmap64(hint, bytes, protection, flags, fd, at) }
}
