//! Packed buffers of the program as slices.

use std::ffi::c_void;

/// `length` bytes of a packed buffer from `position` on.
#[must_use]
pub fn readable<'a>(buffer: *const c_void, position: i64, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    let begin = buffer.cast::<u8>().wrapping_offset(position as isize);
    // SAFETY: - valid for reads of length bytes, and not written to during the call: the contract of the C call.
    //         - the callers have checked that the buffer is not null.
    unsafe { std::slice::from_raw_parts(begin, length) }
}

/// `length` bytes of a packed buffer from `position` on, to be written.
#[must_use]
pub fn writable<'a>(buffer: *mut c_void, position: i64, length: usize) -> &'a mut [u8] {
    if length == 0 {
        return &mut [];
    }
    let begin = buffer.cast::<u8>().wrapping_offset(position as isize);
    // SAFETY: - valid for reads and writes of length bytes, and not used by others during the call: the contract of the
    //           C call.
    //         - the callers have checked that the buffer is not null.
    unsafe { std::slice::from_raw_parts_mut(begin, length) }
}
