//! The clock by which the library measures.

use crate::simulation;
use std::sync::atomic::{AtomicI64, Ordering};

process_local! {
    /// What is added to this machine's monotonic clock, so that it goes on in a copy on another.
    static SHIFT_NS: AtomicI64 = AtomicI64::new(0);
}

/// By which a preloaded library knows that the clock is asked for as it is: a third argument, which the kernel does not
/// look at.
const REAL_CLOCK: libc::c_long = u64::from_be_bytes(*b"redrt:ns").cast_signed();

/// In a copy: the clock of this machine is so far behind that of its source's.
pub fn shift(behind_ns: i64) {
    SHIFT_NS.fetch_add(behind_ns, Ordering::Relaxed);
}

/// Nanoseconds of a monotonic clock that goes on in copies, past any library that is preloaded over the C library.
pub fn monotonic_ns() -> u64 {
    if let Some(now) = simulation::now_ns() {
        return now;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: - now is valid for writes.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now, REAL_CLOCK) };
    shifted(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// What a reading of this machine's monotonic clock is by that clock.
pub fn shifted(ns: u64) -> u64 {
    ns.saturating_add_signed(SHIFT_NS.load(Ordering::Relaxed))
}
