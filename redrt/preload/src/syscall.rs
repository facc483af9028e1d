//! `syscall`, by which languages that do without parts of the C library reach the kernel: the same questions get the
//! same answers there. Except the clocks: this is how the MPI library reads the real ones.

use crate::clock::{self, Family};
use crate::{identity, random, real};
use libc::{c_int, c_long, c_void, timespec};

/// Replaces the C library's, which is variadic: arguments that were not given are whatever the registers hold, and are
/// not looked at unless the number calls for them.
///
/// # Safety
/// As for the system call of this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    match number {
        libc::SYS_futex => return futex([a, b, c, d, e, f]),
        // SAFETY: - the caller has promised what the system call asks for.
        libc::SYS_getrandom => return unsafe { random::getrandom(a as *mut c_void, b as usize, c as u32) as c_long },
        libc::SYS_getpid => return identity::getpid().into(),
        libc::SYS_gettid => return identity::gettid().into(),
        _ => {}
    }
    let first = match number {
        libc::SYS_kill
        | libc::SYS_tkill
        | libc::SYS_tgkill
        | libc::SYS_sched_setaffinity
        | libc::SYS_sched_getaffinity
        | libc::SYS_pidfd_open => identity::real_id(a as i32).into(),
        _ => a,
    };
    let second = if number == libc::SYS_tgkill { identity::real_id(b as i32).into() } else { b };
    // SAFETY: - the caller has promised what the system call asks for.
    real::with_errno(unsafe { real::system_call(number, [first, second, c, d, e, f]) })
}

/// Waits with an absolute deadline get it shifted; see [`crate::waits`].
fn futex(arguments: [c_long; 6]) -> c_long {
    let [address, operation, value, deadline, second, bits] = arguments;
    let command = operation as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let shown = if command == libc::FUTEX_WAIT_BITSET {
        // SAFETY: for a wait the fourth argument is null or a time valid for reading.
        unsafe { (deadline as *const timespec).as_ref() }
    } else {
        None
    };
    let Some(shown) = shown else {
        // SAFETY: - the caller has promised what the system call asks for.
        return real::with_errno(unsafe { real::system_call(libc::SYS_futex, arguments) });
    };
    let on_wall = operation as c_int & libc::FUTEX_CLOCK_REALTIME != 0;
    let family = if on_wall { Family::Wall } else { Family::Monotonic };
    let real = clock::real_deadline(family, shown);
    let shifted = [address, operation, value, &raw const real as c_long, second, bits];
    // SAFETY: - the caller has promised what the system call asks for; the shifted deadline lives until it returns.
    let result = unsafe { real::system_call(libc::SYS_futex, shifted) };
    if result == -c_long::from(libc::ETIMEDOUT) {
        clock::reach(family, shown);
    }
    real::with_errno(result)
}
