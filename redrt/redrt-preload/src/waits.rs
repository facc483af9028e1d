//! Sleeps and timed waits, which must last as long as the application expects: deadlines are shifted from shown to real
//! time, and slept or waited time is added to the sequence.

use crate::clock::{Family, advance, reach, real_deadline, to_ns};
use crate::ordered::Timeout;
use crate::real::{self, next};
use crate::{interpreter, ordered};
use libc::{c_int, clockid_t, timespec};

const ETIMEDOUT: c_int = libc::ETIMEDOUT;

/// Runs `wait` with the deadline shifted; `timed_out` is true for a result after which the deadline has passed.
fn until(
    family: Family,
    deadline: *const timespec,
    wait: impl FnOnce(*const timespec) -> c_int,
    timed_out: impl FnOnce(c_int) -> bool,
) -> c_int {
    // SAFETY: null or valid for reading, by the contract of every caller.
    let Some(shown) = (unsafe { deadline.as_ref() }) else { return wait(deadline) };
    let real = real_deadline(family, shown);
    let result = wait(&raw const real);
    if timed_out(result) {
        reach(family, shown);
    }
    result
}

/// The application asked for this time to pass, and it has.
///
/// # Safety
/// `duration` is null or valid for reading.
unsafe fn advance_by(duration: *const timespec) {
    // SAFETY: null or valid for reading, by contract.
    if let Some(duration) = unsafe { duration.as_ref() } {
        advance(to_ns(duration));
    }
}

fn is_timeout(result: c_int) -> bool {
    result == ETIMEDOUT
}

fn is_timeout_of_c11(result: c_int) -> bool {
    result == ordered::C11_TIMED_OUT
}

fn failed_with_timeout(result: c_int) -> bool {
    // SAFETY: the calling thread's errno is always valid.
    result == -1 && unsafe { *libc::__errno_location() } == ETIMEDOUT
}

/// Interposes functions that wait until an absolute time, the last argument.
macro_rules! absolute_waits {
    ($( $name:ident ( $($argument:ident : $type:ty),* ), $family:expr, $timed_out:ident, $within:expr, $by:expr; )+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* deadline: *const timespec) -> c_int {
            // SAFETY: null or valid for reading, by contract.
            let family: Family = match unsafe { deadline.as_ref() } {
                Some(deadline) => ($family)(deadline),
                None => Family::Wall,
            };
            let wait = || until(
                family,
                deadline,
                |deadline| {
                    let real =
                        || next!($name($($argument => $type,)* deadline => *const timespec) -> c_int, libc::ENOSYS);
                    ($within)(real, ($($argument,)*))
                },
                $timed_out,
            );
            ($by)(wait, ($($argument,)*))
        }
    )+ };
}

type Pointer = *mut libc::c_void;

/// A wait without an order.
fn simply<A>(wait: impl FnOnce() -> c_int, _: A) -> c_int {
    wait()
}

/// A wait whose mutex is taken in the order of locks.
fn in_order(real: impl FnOnce() -> c_int, condition: Pointer, mutex: Pointer) -> c_int {
    ordered::wait(condition.cast(), mutex.cast(), ETIMEDOUT, true, real)
}

fn in_order_of_c11(real: impl FnOnce() -> c_int, (condition, mutex): (Pointer, Pointer)) -> c_int {
    ordered::wait(condition.cast(), mutex.cast(), ordered::C11_TIMED_OUT, true, real)
}

/// A mutex that is taken in the order of locks.
fn of_mutex(real: impl Fn() -> c_int, mutex: Pointer) -> c_int {
    ordered::lock(mutex.cast(), true, real)
}

/// A lock that is taken for reading in that order.
fn of_reader(real: impl Fn() -> c_int, lock: Pointer) -> c_int {
    ordered::hold_read(lock.cast(), true, real)
}

/// A lock that is taken for writing in that order.
fn of_writer(real: impl Fn() -> c_int, lock: Pointer) -> c_int {
    ordered::hold_written(lock.cast(), true, real)
}

/// A wait that may be one for an interpreter's lock.
fn of_condition(wait: impl FnOnce() -> c_int, mutex: Pointer) -> c_int {
    interpreter::waited(mutex, wait())
}

absolute_waits! {
    pthread_cond_timedwait(cond: Pointer, mutex: Pointer), Family::of_deadline, is_timeout,
        |real, (cond, mutex)| in_order(real, cond, mutex), |wait, (_, mutex)| of_condition(wait, mutex);
    pthread_cond_clockwait(cond: Pointer, mutex: Pointer, clock: clockid_t), |_: &timespec| Family::of(clock),
        is_timeout, |real, (cond, mutex, _)| in_order(real, cond, mutex), |wait, (_, mutex, _)| of_condition(wait, mutex);
    pthread_mutex_timedlock(mutex: Pointer), |_: &timespec| Family::Wall, is_timeout,
        |real, (mutex,)| of_mutex(real, mutex), simply;
    pthread_mutex_clocklock(mutex: Pointer, clock: clockid_t), |_: &timespec| Family::of(clock), is_timeout,
        |real, (mutex, _)| of_mutex(real, mutex), simply;
    pthread_rwlock_timedrdlock(lock: Pointer), |_: &timespec| Family::Wall, is_timeout,
        |real, (lock,)| of_reader(real, lock), simply;
    pthread_rwlock_timedwrlock(lock: Pointer), |_: &timespec| Family::Wall, is_timeout,
        |real, (lock,)| of_writer(real, lock), simply;
    pthread_rwlock_clockrdlock(lock: Pointer, clock: clockid_t), |_: &timespec| Family::of(clock), is_timeout,
        |real, (lock, _)| of_reader(real, lock), simply;
    pthread_rwlock_clockwrlock(lock: Pointer, clock: clockid_t), |_: &timespec| Family::of(clock), is_timeout,
        |real, (lock, _)| of_writer(real, lock), simply;
    cnd_timedwait(cond: Pointer, mutex: Pointer), |_: &timespec| Family::Wall, is_timeout_of_c11, in_order_of_c11, simply;
    mtx_timedlock(mutex: Pointer), |_: &timespec| Family::Wall, is_timeout_of_c11,
        |real, (mutex,)| of_mutex(real, mutex), simply;
    pthread_clockjoin_np(thread: libc::pthread_t, result: Pointer, clock: clockid_t),
        |_: &timespec| Family::of(clock), is_timeout, simply, simply;
    pthread_timedjoin_np(thread: libc::pthread_t, result: Pointer), |_: &timespec| Family::Wall, is_timeout, simply, simply;
}

/// Waits for a semaphore until a deadline; it may be one of an interpreter's program.
///
/// # Safety
/// As for `sem_clockwait` of the C library.
unsafe fn wait_for_semaphore(
    semaphore: Pointer,
    clock: clockid_t,
    deadline: *const timespec,
    wait: impl Fn(*const timespec) -> c_int,
) -> c_int {
    let family = Family::of(clock);
    let wait = |real: *const timespec| {
        // SAFETY: null or valid for reading, by contract.
        let until = unsafe { real.as_ref() }.map(|real| (clock, real));
        let wait = || ordered::semaphore(semaphore, false, || wait(real));
        interpreter::wait_for_semaphore(semaphore, until, wait)
    };
    until(family, deadline, wait, failed_with_timeout)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_timedwait(semaphore: Pointer, deadline: *const timespec) -> c_int {
    let wait = |deadline| next!(sem_timedwait(semaphore => Pointer, deadline => *const timespec) -> c_int, -1);
    // SAFETY: - the callee has the same contract.
    unsafe { wait_for_semaphore(semaphore, libc::CLOCK_REALTIME, deadline, wait) }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_clockwait(semaphore: Pointer, clock: clockid_t, deadline: *const timespec) -> c_int {
    let wait = |deadline| {
        next!(sem_clockwait(
            semaphore => Pointer, clock => clockid_t, deadline => *const timespec
        ) -> c_int, -1)
    };
    // SAFETY: - the callee has the same contract.
    unsafe { wait_for_semaphore(semaphore, clock, deadline, wait) }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    request: *const timespec,
    remain: *mut timespec,
) -> c_int {
    let sleep = |request: *const timespec| {
        next!(clock_nanosleep(
            clock => clockid_t, flags => c_int, request => *const timespec, remain => *mut timespec
        ) -> c_int, libc::ENOSYS)
    };
    // SAFETY: null or valid for reading, by contract.
    let asked = unsafe { request.as_ref() };
    if flags & libc::TIMER_ABSTIME != 0 {
        let sleep = |real: *const timespec| {
            // SAFETY: null or valid for reading, as `until` passes it.
            let left = unsafe { real.as_ref() }.map(|real| to_ns(real).saturating_sub(real::clock_ns(clock)));
            if left.is_some_and(ordered::sleep) { 0 } else { ordered::sleep_early(|| sleep(real)) }
        };
        return until(Family::of(clock), request, sleep, |result| result == 0);
    }
    if asked.map(to_ns).is_some_and(ordered::sleep) {
        return 0;
    }
    let result = ordered::sleep_early(|| sleep(request));
    if result == 0 {
        // SAFETY: null or valid for reading, by contract.
        unsafe { advance_by(request) };
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(request: *const timespec, remain: *mut timespec) -> c_int {
    // SAFETY: null or valid for reading, by contract.
    if unsafe { request.as_ref() }.map(to_ns).is_some_and(ordered::sleep) {
        return 0;
    }
    let sleep = || next!(nanosleep(request => *const timespec, remain => *mut timespec) -> c_int, -1);
    let result = ordered::sleep_early(sleep);
    if result == 0 {
        // SAFETY: null or valid for reading, by contract.
        unsafe { advance_by(request) };
    }
    result
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn usleep(microseconds: libc::useconds_t) -> c_int {
    if ordered::sleep(i64::from(microseconds) * 1000) {
        return 0;
    }
    let result = ordered::sleep_early(|| next!(usleep(microseconds => libc::useconds_t) -> c_int, -1));
    if result == 0 {
        advance(i64::from(microseconds) * 1000);
    }
    result
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn sleep(seconds: u32) -> u32 {
    if ordered::sleep(i64::from(seconds) * 1_000_000_000) {
        return 0;
    }
    let left = ordered::sleep_early(|| next!(sleep(seconds => u32) -> u32, seconds));
    advance(i64::from(seconds - left.min(seconds)) * 1_000_000_000);
    left
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int {
    let timeout = Timeout::of_ms(timeout_ms);
    // SAFETY: - the caller's promise is passed on.
    let ordered = unsafe { ordered::poll(fds, count, timeout, std::ptr::null()) };
    let result = ordered.unwrap_or_else(
        || next!(poll(fds => *mut libc::pollfd, count => libc::nfds_t, timeout_ms => c_int) -> c_int, -1),
    );
    if result == 0 {
        advance(i64::from(timeout_ms) * 1_000_000);
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: - the caller's promise is passed on.
    let ordered = unsafe { ordered::poll(fds, count, Timeout::of_time(timeout), mask) };
    // The C library gives the kernel a copy, so the timeout still has its value.
    let result = ordered.unwrap_or_else(|| {
        next!(ppoll(
            fds => *mut libc::pollfd, count => libc::nfds_t, timeout => *const timespec, mask => *const libc::sigset_t
        ) -> c_int, -1)
    });
    if result == 0 {
        // SAFETY: null or valid for reading, by contract.
        unsafe { advance_by(timeout) };
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: null or valid for reading, by contract. Linux counts it down, so it is read before.
    let asked_ns = unsafe { timeout.as_ref() }.map(|time| time.tv_sec * 1_000_000_000 + time.tv_usec * 1000);
    let (sets, timeout_left) = ([read, write, except], Timeout::of(asked_ns));
    // The time that is left differs between replicas: none is told.
    // SAFETY: - the caller's promise is passed on.
    let ordered = unsafe { ordered::select(count, sets, timeout_left, std::ptr::null()) };
    let result = ordered.unwrap_or_else(|| {
        next!(select(
            count => c_int, read => *mut libc::fd_set, write => *mut libc::fd_set, except => *mut libc::fd_set,
            timeout => *mut libc::timeval
        ) -> c_int, -1)
    });
    if result == 0 {
        advance(asked_ns.unwrap_or(0));
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *const timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: - the caller's promise is passed on.
    let ordered = unsafe { ordered::select(count, [read, write, except], Timeout::of_time(timeout), mask) };
    let result = ordered.unwrap_or_else(|| {
        next!(pselect(
            count => c_int, read => *mut libc::fd_set, write => *mut libc::fd_set, except => *mut libc::fd_set,
            timeout => *const timespec, mask => *const libc::sigset_t
        ) -> c_int, -1)
    });
    if result == 0 {
        // SAFETY: null or valid for reading, by contract.
        unsafe { advance_by(timeout) };
    }
    result
}
