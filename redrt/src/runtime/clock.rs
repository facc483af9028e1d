//! Clocks. In a replicated world a reading is a decision of the leader, because a program may act on it.

use super::job;
use crate::decide;
use redrt_wire::control::Determinism;

/// Nanoseconds of this machine's monotonic clock, past any library that is preloaded over the C library.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: - now is valid for writes.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `MPI_Wtime`, in seconds.
pub fn wtime() -> f64 {
    let replicated = job()
        .is_some_and(|job| job.welcome.world.is_replicated() && job.welcome.options.determinism == Determinism::Full);
    let now = if replicated && crate::host::is_active() { decide::value(monotonic_ns) } else { monotonic_ns() };
    now as f64 * 1e-9
}
