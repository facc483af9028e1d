//! `syscall`, by which languages that avoid parts of the C library reach the kernel: the same questions get the same
//! answers there.

use crate::clock::{self, Family};
use crate::{clock_state, counts, identity, random, real, waits};
use libc::{c_int, c_long, c_uint, c_void, timespec};

/// Replaces the C library's, which is variadic: absent arguments have the registers' content, and are not read unless
/// the number needs them.
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
        // SAFETY: - the arguments are valid for the system call, by contract.
        libc::SYS_getrandom => return unsafe { random::getrandom(a as *mut c_void, b as usize, c as u32) as c_long },
        libc::SYS_getpid => return identity::getpid().into(),
        libc::SYS_gettid => return identity::gettid().into(),
        _ => {
            // SAFETY: - the arguments are valid for the system call, by contract.
            if let Some(result) = unsafe { clock([number, a, b, c, d]) } {
                return result;
            }
        }
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
    // SAFETY: - the arguments are valid for the system call, by contract.
    real::with_errno(unsafe { real::system_call(number, [first, second, c, d, e, f]) })
}

/// The answer to a call that reads a clock or a count of the system, or that waits until a clock shows a time.
///
/// # Safety
/// As for the system call of this number, the first of these.
unsafe fn clock([number, a, b, c, d]: [c_long; 5]) -> Option<c_long> {
    // SAFETY: - each has the arguments that the function of the C library of the same name has.
    Some(unsafe {
        match number {
            libc::SYS_clock_gettime => clock::clock_gettime(a as libc::clockid_t, b as *mut timespec).into(),
            libc::SYS_gettimeofday => clock::gettimeofday(a as *mut libc::timeval, b as *mut c_void).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_time => clock::time(a as *mut libc::time_t),
            libc::SYS_times => counts::times(a as *mut libc::tms),
            libc::SYS_getrusage => counts::getrusage(a as c_int, b as *mut libc::rusage).into(),
            libc::SYS_sysinfo => counts::sysinfo(a as *mut libc::sysinfo).into(),
            libc::SYS_getcpu => counts::getcpu(a as *mut c_uint, b as *mut c_uint).into(),
            libc::SYS_wait4 => {
                counts::wait4(a as libc::pid_t, b as *mut c_int, c as c_int, d as *mut libc::rusage).into()
            }
            libc::SYS_adjtimex => clock_state::adjtimex(a as *mut libc::timex).into(),
            libc::SYS_clock_adjtime => clock_state::clock_adjtime(a as libc::clockid_t, b as *mut libc::timex).into(),
            libc::SYS_nanosleep => waits::nanosleep(a as *const timespec, b as *mut timespec).into(),
            libc::SYS_clock_nanosleep => {
                let (clock, flags) = (a as libc::clockid_t, b as c_int);
                // The function returns the error's number; the system call returns its negative.
                let error = waits::clock_nanosleep(clock, flags, c as *const timespec, d as *mut timespec);
                real::with_errno((-error).into())
            }
            _ => return None,
        }
    })
}

/// Shifts the deadline of waits with an absolute one; see [`crate::waits`].
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
        // SAFETY: - the arguments are valid for the system call, by contract.
        return real::with_errno(unsafe { real::system_call(libc::SYS_futex, arguments) });
    };
    let on_wall = operation as c_int & libc::FUTEX_CLOCK_REALTIME != 0;
    let family = if on_wall { Family::Wall } else { Family::Monotonic };
    let real = clock::real_deadline(family, shown);
    let shifted = [address, operation, value, &raw const real as c_long, second, bits];
    // SAFETY: - the arguments are valid for the system call, by contract; the shifted deadline lives until it returns.
    let result = unsafe { real::system_call(libc::SYS_futex, shifted) };
    if result == -c_long::from(libc::ETIMEDOUT) {
        clock::reach(family, shown);
    }
    real::with_errno(result)
}
