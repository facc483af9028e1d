//! The kernel's report on its clock: adjustment and precision.
//!
//! The report is about the host's clock, and the precision of an agreed clock is unknown. So it is shown as a clock
//! that is not synchronized, as in a kernel where nothing adjusts it: errors of 16 s at most, `TIME_ERROR`. A program
//! that adjusts the clock adjusts the host's, once in each replica.

use crate::clock::{shown, to_timeval};
use crate::real::next;
use libc::{c_int, c_long, clockid_t, ntptimeval, timex};

/// The kernel's limit for an unknown error.
const ERROR_US_MAX: c_long = 16_000_000;
/// Microseconds of one of a hundred ticks a second.
const TICK_US: c_long = 10_000;
/// The greatest adjustment of the frequency: 500 parts in a million, with 16 bits behind the point.
const TOLERANCE: c_long = 500 << 16;
/// The kernel's value at its start.
const TIME_CONSTANT: c_long = 2;

/// Writes the state of an agreed clock to `state`, if clocks are agreed on.
fn show(clock: clockid_t, state: &mut timex) -> Option<c_int> {
    let time = shown(clock)?;
    // SAFETY: a structure of integers, for which zeros are valid.
    let nothing = unsafe { std::mem::zeroed() };
    *state = timex {
        modes: state.modes,
        maxerror: ERROR_US_MAX,
        esterror: ERROR_US_MAX,
        status: libc::STA_UNSYNC,
        constant: TIME_CONSTANT,
        precision: 1,
        tolerance: TOLERANCE,
        tick: TICK_US,
        time: to_timeval(time),
        ..nothing
    };
    Some(libc::TIME_ERROR)
}

/// Answers a query of a clock's state. `real` adjusts the host's clock if `state` says so.
///
/// # Safety
/// `state` is valid for reading and writing, or null.
unsafe fn answer(clock: clockid_t, state: *mut timex, real: impl FnOnce(*mut timex) -> c_int) -> c_int {
    // SAFETY: null, or valid for reading, by contract.
    let asks_only = unsafe { state.as_ref() }.is_some_and(|state| state.modes == 0);
    if asks_only {
        // SAFETY: not null, so valid for writing, by contract.
        let shown = show(clock, unsafe { &mut *state });
        return shown.unwrap_or_else(|| real(state));
    }
    let result = real(state);
    if result < 0 {
        return result;
    }
    // SAFETY: valid for writing, by contract: the kernel has just written it.
    show(clock, unsafe { &mut *state }).unwrap_or(result)
}

/// Replaces the C library's.
///
/// # Safety
/// `state` is valid for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adjtimex(state: *mut timex) -> c_int {
    let real = |state| next!(adjtimex(state => *mut timex) -> c_int, -1);
    // SAFETY: - the callee has the same contract.
    unsafe { answer(libc::CLOCK_REALTIME, state, real) }
}

/// Replaces the C library's.
///
/// # Safety
/// As for [`adjtimex`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __adjtimex(state: *mut timex) -> c_int {
    // SAFETY: - the callee has the same contract.
    unsafe { adjtimex(state) }
}

/// Replaces the C library's.
///
/// # Safety
/// As for [`adjtimex`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ntp_adjtime(state: *mut timex) -> c_int {
    // SAFETY: - the callee has the same contract.
    unsafe { adjtimex(state) }
}

/// Replaces the C library's. A device's clock is left to the kernel.
///
/// # Safety
/// As for [`adjtimex`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_adjtime(clock: clockid_t, state: *mut timex) -> c_int {
    let real = |state| next!(clock_adjtime(clock => clockid_t, state => *mut timex) -> c_int, -1);
    match clock {
        // SAFETY: - the callee has the same contract.
        libc::CLOCK_REALTIME => unsafe { answer(clock, state, real) },
        _ => real(state),
    }
}

/// Replaces the C library's.
///
/// # Safety
/// `state` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ntp_gettimex(state: *mut ntptimeval) -> c_int {
    let Some(time) = shown(libc::CLOCK_REALTIME) else {
        return next!(ntp_gettimex(state => *mut ntptimeval) -> c_int, -1);
    };
    // SAFETY: valid for writing, by contract.
    let state = unsafe { &mut *state };
    (state.time, state.maxerror, state.esterror, state.tai) = (to_timeval(time), ERROR_US_MAX, ERROR_US_MAX, 0);
    libc::TIME_ERROR
}

/// Replaces the C library's. Old programs pass a structure without the last fields, which stay unchanged.
///
/// # Safety
/// As for [`ntp_gettimex`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ntp_gettime(state: *mut ntptimeval) -> c_int {
    let Some(time) = shown(libc::CLOCK_REALTIME) else {
        return next!(ntp_gettime(state => *mut ntptimeval) -> c_int, -1);
    };
    // SAFETY: each field is valid for writing, by contract.
    unsafe {
        (&raw mut (*state).time).write(to_timeval(time));
        (&raw mut (*state).maxerror).write(ERROR_US_MAX);
        (&raw mut (*state).esterror).write(ERROR_US_MAX);
    }
    libc::TIME_ERROR
}
