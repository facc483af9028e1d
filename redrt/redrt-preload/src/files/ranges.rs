//! Closing descriptors by ranges: spared ones stay open.

use crate::real::{self, next};
use crate::{ordered, spared, state};
use libc::{c_int, c_uint};

fn close_range_really(first: c_uint, last: c_uint, flags: c_int) -> bool {
    let arguments = [first.into(), last.into(), flags.into(), 0, 0, 0];
    // SAFETY: - takes numbers only; the descriptors are the program's.
    real::with_errno(unsafe { real::system_call(libc::SYS_close_range, arguments) }) == 0
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let is_program = state::job().is_some_and(|job| job.is_first_process());
    if first > last || !is_program {
        return if close_range_really(first, last, flags) { 0 } else { -1 };
    }
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        ordered::forget_range(first, last);
    }
    // Files that replicas agree on are closed one by one, as the library must know.
    if super::asks() && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        for fd in (first..=last.min(spared::END - 1))
            .filter_map(|fd| c_int::try_from(fd).ok())
            .filter(|fd| super::is_known(*fd))
        {
            // SAFETY: - the program's descriptor, which it closes.
            unsafe { super::close(fd) };
        }
    }
    if spared::around(first, last, spared::is_marked, |first, last| close_range_really(first, last, flags)) {
        0
    } else {
        -1
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: - the callee has the same contract.
    if unsafe { close_range(first, c_uint::MAX, 0) } != 0 {
        // This kernel lacks close_range.
        let first = first as c_int;
        next!(closefrom(first => c_int) -> (), ());
    }
}
