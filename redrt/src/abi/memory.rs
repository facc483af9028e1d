//! Memory that the library hands to the program (`MPI_Alloc_mem`).

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

/// A cache line before each block holds its size, and keeps the block aligned to one.
const HEADER_BYTES: usize = 64;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER_BYTES)?, HEADER_BYTES).ok()
}

/// A block of `size` bytes, aligned to a cache line; `None` when there is no memory.
#[must_use]
pub fn allocate(size: usize) -> Option<*mut c_void> {
    let layout = layout(size)?;
    // SAFETY: - the layout has at least HEADER_BYTES bytes.
    let block = unsafe { alloc(layout) };
    if block.is_null() {
        return None;
    }
    // SAFETY: - the block is aligned for, and large enough to hold, a size.
    unsafe { block.cast::<usize>().write(size) };
    // SAFETY: - HEADER_BYTES is within the block.
    Some(unsafe { block.add(HEADER_BYTES) }.cast())
}

/// Frees a block that [`allocate`] returned, or null.
pub fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: - the program passes what MPI_Alloc_mem returned, which a header precedes.
    let block = unsafe { block.cast::<u8>().sub(HEADER_BYTES) };
    // SAFETY: - as above; the header is not written to by the program.
    let size = unsafe { block.cast::<usize>().read() };
    let layout = layout(size).expect("the layout existed when the block was allocated");
    // SAFETY: - allocated with this layout.
    unsafe { dealloc(block, layout) };
}
