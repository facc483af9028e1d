//! Memory that the library hands to the program (`MPI_Alloc_mem`).
//!
//! It comes from the program's own heap. The library's heap is used whenever messages happen to arrive, so its
//! addresses differ between replicas, and a program may send addresses to others (`MPI_Win_attach`).

use std::ffi::c_void;

/// Blocks begin at a cache line.
const ALIGNMENT: usize = 64;

/// A block of `size` bytes, aligned to a cache line; `None` when there is no memory.
#[must_use]
pub fn allocate(size: usize) -> Option<*mut c_void> {
    let size = size.max(1).checked_next_multiple_of(ALIGNMENT)?;
    // SAFETY: - the alignment is a power of two, and the size a multiple of it.
    let block = unsafe { libc::aligned_alloc(ALIGNMENT, size) };
    (!block.is_null()).then_some(block)
}

/// Frees a block that [`allocate`] returned, or null.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // On the program's promise, like the export it serves.
pub fn free(block: *mut c_void) {
    // SAFETY: - null, or returned by aligned_alloc and not freed: the contract of MPI_Free_mem.
    unsafe { libc::free(block) };
}
