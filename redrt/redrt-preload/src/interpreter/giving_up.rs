//! Reasons for which a thread gives an interpreter's lock up.

use libc::{c_int, c_void};
use std::ffi::CStr;

// Part of the Itanium C++ ABI: exception handling, level I. The unwinder that Rust's standard library uses provides it.
unsafe extern "C" {
    fn _Unwind_Backtrace(each: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// `_URC_NO_REASON`, to go on with the caller. Below it: `_URC_NORMAL_STOP`.
const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// Functions of CPython that give the lock up on request of the program.
const GIVING_UP: [&CStr; 5] = [
    c"PyEval_SaveThread",
    c"PyEval_ReleaseThread",
    c"PyEval_ReleaseLock",
    c"PyGILState_Release",
    c"PyThreadState_DeleteCurrent",
];
/// The function that runs the program, and may give way within it.
const RUNNING: &CStr = c"_PyEval_EvalFrameDefault";

/// Maximum number of frames between those functions and this one.
const FRAMES_MAX: u32 = 16;

#[derive(Default)]
struct Walk {
    frames: u32,
    gives_up: bool,
}

/// Returns true if the calling thread, which is about to give the lock up, does so by itself: a function of
/// [`GIVING_UP`] is on its stack. Otherwise it gives way in the midst of a segment, as another thread has asked.
pub fn is_voluntary() -> bool {
    extern "C" fn visit(frame: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: - the variable below, to which nobody else refers meanwhile.
        let walk = unsafe { &mut *walk.cast::<Walk>() };
        walk.frames += 1;
        // SAFETY: - the frame is that of this call.
        let address = unsafe { _Unwind_GetIP(frame) };
        // SAFETY: - all zeros are a valid Dl_info: its fields are pointers, which may be null.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: - info is valid for writes; the address is only looked up, not read.
        let is_found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
        if is_found && !info.dli_sname.is_null() {
            // SAFETY: - a C string, from the table of symbols of an object that is loaded and running on this stack.
            let name = unsafe { CStr::from_ptr(info.dli_sname) };
            walk.gives_up = GIVING_UP.contains(&name);
            if walk.gives_up || name == RUNNING {
                return STOP;
            }
        }
        if walk.frames < FRAMES_MAX { GO_ON } else { STOP }
    }
    let mut walk = Walk::default();
    // SAFETY: - visit is for this argument, which outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.gives_up
}
