//! Waits for several descriptors: `poll` and `select`. `epoll` has a module of its own.

use super::descriptors::{LOOK_NS, await_events, kind};
use super::exchange::{Exchange, Outcome, current, returned};
use crate::lock_events::Found;
use crate::real;
use libc::{c_int, c_long, fd_set, pollfd, sigset_t, timespec};

const SECOND_NS: i64 = 1_000_000_000;

/// Time for a descriptor that the leader found ready to become ready here, if it is not one of the ordered ones.
const READY_MS_MAX: c_int = 10_000;

/// The time of a wait; `None` for a wait without an end.
#[derive(Clone, Copy)]
pub struct Timeout {
    duration_ns: Option<i64>,
    /// Time of the beginning, by the monotonic clock of this host.
    begin_ns: i64,
}

impl Timeout {
    /// A wait of `timeout_ms` milliseconds; without an end if the number is negative.
    pub fn of_ms(timeout_ms: c_int) -> Self {
        Self::of(u64::try_from(timeout_ms).ok().map(|ms| ms as i64 * 1_000_000))
    }

    /// A wait of `duration_ns` nanoseconds; without an end for `None`.
    pub fn of(duration_ns: Option<i64>) -> Self {
        let is_timed = duration_ns.is_some_and(|duration| duration > 0);
        Self { duration_ns, begin_ns: if is_timed { now_ns() } else { 0 } }
    }

    /// A wait for so long; without an end if that is null.
    ///
    /// # Safety
    /// Null or valid for reading.
    pub unsafe fn of_time(time: *const timespec) -> Self {
        // SAFETY: - by contract.
        Self::of(
            unsafe { time.as_ref() }.map(|time| time.tv_sec.saturating_mul(SECOND_NS).saturating_add(time.tv_nsec)),
        )
    }

    /// True if it has an end.
    pub fn is_timed(&self) -> bool {
        self.duration_ns.is_some()
    }

    /// The time that is left, in nanoseconds. On another host, to which a thread was copied in the midst of its wait,
    /// the clock shows something else: then no more is left than the whole duration.
    fn left_ns(self) -> Option<i64> {
        let duration = self.duration_ns?;
        Some(if duration > 0 { (duration - (now_ns() - self.begin_ns)).clamp(0, duration) } else { 0 })
    }

    /// True once nothing is to be waited for.
    pub fn is_over(self) -> bool {
        self.left_ns() == Some(0)
    }

    /// Waits for the descriptors of `poll`'s array, but not for long. Returns the outcome 0 when the time is over, and
    /// an error number for a signal.
    fn wait(self, fds: *mut pollfd, count: usize, mask: *const sigset_t) -> Option<Outcome> {
        let left = self.left_ns();
        let slice = left.map_or(LOOK_NS, |left| left.min(LOOK_NS));
        let mut time = timespec { tv_sec: 0, tv_nsec: slice };
        // SAFETY: - the array is the caller's; time and mask live until the call returns.
        let outcome = unsafe { real::ppoll(fds, count, &raw mut time, mask) };
        Some(outcome).filter(|outcome| *outcome < 0 || *outcome == 0 && left == Some(slice))
    }

    /// The same for one descriptor, until it can be read.
    pub fn wait_for(self, fd: c_int, mask: *const sigset_t) -> Option<Outcome> {
        let mut one = pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.wait(&raw mut one, 1, mask)
    }
}

fn now_ns() -> i64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [libc::CLOCK_MONOTONIC.into(), &raw mut time as c_long, 0, 0, 0, 0];
    // SAFETY: - the time is valid for writing.
    unsafe { real::system_call(libc::SYS_clock_gettime, arguments) };
    time.tv_sec * SECOND_NS + time.tv_nsec
}

/// Waits, in a follower, until a descriptor is ready that the leader found ready. The order takes care of descriptors
/// by which threads reach each other; others may come later here, such as the output of a child.
pub(super) fn await_unordered(fd: c_int, events: i16) {
    if kind(fd).is_none() {
        await_events(fd, events, READY_MS_MAX);
    }
}

/// Bytes of a ready descriptor in [`Found`]: its place in the array, and its events.
const ENTRY_BYTES: usize = 4;

/// `poll`'s array.
#[derive(Clone, Copy)]
struct Array {
    fds: *mut pollfd,
    count: usize,
}

impl Array {
    #[allow(clippy::mut_from_ref, reason = "the array is the caller's, and only this call uses it")]
    fn all(&self) -> &mut [pollfd] {
        // SAFETY: - the caller of the interposed function has promised an array of that many elements.
        unsafe { std::slice::from_raw_parts_mut(self.fds, self.count) }
    }

    /// Asks the kernel without waiting. What [`Found`] has no room for is left to the next call.
    fn attempt(&self, found: &mut Found) -> Outcome {
        let outcome = Timeout::of(Some(0)).wait(self.fds, self.count, std::ptr::null());
        if let Some(outcome) = outcome {
            return outcome;
        }
        let mut ready = 0;
        for (place, one) in self.all().iter_mut().enumerate().filter(|(_, one)| one.revents != 0) {
            let [a, b] = (place as u16).to_le_bytes();
            let [c, d] = one.revents.to_le_bytes();
            if found.push(&[a, b, c, d]) {
                ready += 1;
            } else {
                one.revents = 0;
            }
        }
        ready
    }

    /// Fills in what the leader has found.
    fn repeat(&self, outcome: Outcome, found: &Found) -> Result<Outcome, Outcome> {
        if outcome >= 0 {
            self.all().iter_mut().for_each(|one| one.revents = 0);
        }
        for entry in found.bytes().chunks_exact(ENTRY_BYTES) {
            let place = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
            let one = self.all().get_mut(place).ok_or(0)?;
            one.revents = i16::from_le_bytes([entry[2], entry[3]]);
            await_unordered(one.fd, one.revents);
        }
        Ok(outcome)
    }
}

/// Waits for descriptors in the leader's order; `None` if the wait is not ordered.
///
/// # Safety
/// As for `ppoll` of the C library.
pub unsafe fn poll(fds: *mut pollfd, count: libc::nfds_t, timeout: Timeout, mask: *const sigset_t) -> Option<c_int> {
    let caller = current().filter(|_| count > 0 && count <= u16::MAX.into() && !fds.is_null())?;
    let array = Array { fds, count: count as usize };
    let exchange = Exchange {
        is_timed: timeout.is_timed(),
        attempt: |found: &mut Found| Some(array.attempt(found)).filter(|outcome| *outcome != 0 || timeout.is_over()),
        wait: || timeout.wait(fds, array.count, mask),
        repeat: |outcome, found: &Found| array.repeat(outcome, found),
    };
    Some(returned(exchange.perform(caller)) as c_int)
}

/// Sets of `select`, for reading, writing and exceptions.
pub type Sets = [*mut fd_set; 3];

/// Events of `poll` that put a descriptor into each set: select(2).
const EVENTS: [i16; 3] = [
    libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN | libc::POLLHUP | libc::POLLERR,
    libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR,
    libc::POLLPRI,
];
/// Events to wait for, for each set.
const WANTED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

/// Descriptors that one `select` may wait for, to be ordered.
const SELECTED_MAX: usize = 64;

/// Waits by `select` in the leader's order, as `poll` does; `None` if the wait is not ordered.
///
/// # Safety
/// As for `pselect` of the C library.
pub unsafe fn select(count: c_int, sets: Sets, timeout: Timeout, mask: *const sigset_t) -> Option<c_int> {
    current()?;
    let mut array = [pollfd { fd: -1, events: 0, revents: 0 }; SELECTED_MAX];
    let mut used = 0;
    for fd in 0..count.clamp(0, libc::FD_SETSIZE as c_int) {
        // SAFETY: - each is null or a set, as the caller has promised; the number is less than FD_SETSIZE.
        let is_in = |set: *mut fd_set| !set.is_null() && unsafe { libc::FD_ISSET(fd, set) };
        let wanted = sets.iter().zip(WANTED).filter(|(set, _)| is_in(**set)).fold(0, |all, (_, one)| all | one);
        if wanted != 0 {
            *array.get_mut(used)? = pollfd { fd, events: wanted, revents: 0 };
            used += 1;
        }
    }
    if used == 0 {
        return None;
    }
    // SAFETY: - the array has that many elements.
    let outcome = unsafe { poll(array.as_mut_ptr(), used as libc::nfds_t, timeout, mask) }?;
    if outcome < 0 {
        return Some(outcome);
    }
    let mut ready = 0;
    for one in &array[..used] {
        for ((set, events), wanted) in sets.iter().zip(EVENTS).zip(WANTED) {
            if set.is_null() || one.events & wanted == 0 {
                continue;
            }
            if one.revents & events != 0 {
                ready += 1;
            } else {
                // SAFETY: - a set of the caller's; the number is less than FD_SETSIZE.
                unsafe { libc::FD_CLR(one.fd, *set) };
            }
        }
    }
    Some(ready)
}
