//! The library's clock for its own measurements.

use crate::simulation;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

process_local! {
    /// Added to this machine's monotonic clock, so that time goes on without a jump in a copy on another machine.
    static SHIFT_NS: AtomicI64 = AtomicI64::new(0);
}

/// Type of the C library's `clock_gettime`.
type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// The C library's own function, which avoids system calls where it can. Preloaded libraries replace the function of
/// this name, and are bypassed.
///
/// The trap: `dlopen` allocates from the program's heap. At a moment that only one replica reaches, the program's next
/// allocations would lie elsewhere there. So [`prepare`] finds the clock at the beginning.
fn real_clock() -> ClockGettime {
    static FOUND: OnceLock<ClockGettime> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: - both names end with a zero; the C library stays loaded. dlsym accepts a null handle, which is
        //   that of the default search order.
        let found = unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            libc::dlsym(library, c"clock_gettime".as_ptr())
        };
        if found.is_null() {
            return libc::clock_gettime;
        }
        // SAFETY: - the function of this name has this type.
        unsafe { std::mem::transmute::<*mut libc::c_void, ClockGettime>(found) }
    })
}

/// Finds the clock. To be called in `MPI_Init`, before there are other threads: at the same position in all replicas.
pub fn prepare() {
    real_clock();
}

/// Runs in a copy: this machine's clock is `behind_ns` nanoseconds behind that of its source's.
pub fn shift(behind_ns: i64) {
    SHIFT_NS.fetch_add(behind_ns, Ordering::Relaxed);
}

/// Nanoseconds of a monotonic clock that goes on in copies. Preloaded libraries do not affect it.
pub fn monotonic_ns() -> u64 {
    if let Some(now) = simulation::now_ns() {
        return now;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: - now is valid for writes.
    unsafe { real_clock()(libc::CLOCK_MONOTONIC, &raw mut now) };
    shifted(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Converts a reading of this machine's monotonic clock, in nanoseconds, to that clock.
pub fn shifted(ns: u64) -> u64 {
    ns.saturating_add_signed(SHIFT_NS.load(Ordering::Relaxed))
}
