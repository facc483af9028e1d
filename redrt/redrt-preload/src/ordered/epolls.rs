//! Descriptors that are registered with `epoll`, in the order of their registration.
//!
//! The kernel tells what was registered with a descriptor, which may be an address, and in the order in which they
//! became ready. So replicas name a descriptor by its place here.

use super::descriptors::is_program;
use super::exchange::{Exchange, Outcome, current, returned};
use super::readiness::{Timeout, await_unordered};
use crate::lock_events::{FOUND_BYTES_MAX, Found};
use crate::real::{self, next};
use libc::{c_int, c_long, epoll_event, sigset_t};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Waits on further sets, or on larger ones, are not ordered.
const SET_COUNT: usize = 64;
const MEMBERS_MAX: usize = 128;

#[derive(Clone, Copy)]
struct Member {
    fd: c_int,
    events: u32,
    data: u64,
}

/// A place without a descriptor.
const NONE: c_int = -1;

struct Members {
    places: [Member; MEMBERS_MAX],
    /// True once a descriptor had no place.
    has_overflown: bool,
}

struct Set {
    /// The `epoll` descriptor, or [`NONE`].
    fd: AtomicI32,
    is_held: AtomicBool,
    members: UnsafeCell<Members>,
}

// SAFETY: - `members` is used by the thread that has set `is_held`, until it clears it.
unsafe impl Sync for Set {}

static SETS: [Set; SET_COUNT] = [const {
    Set {
        fd: AtomicI32::new(NONE),
        is_held: AtomicBool::new(false),
        members: UnsafeCell::new(Members {
            places: [Member { fd: NONE, events: 0, data: 0 }; MEMBERS_MAX],
            has_overflown: false,
        }),
    }
}; SET_COUNT];

/// True once the program has had a set.
static HAS_SETS: AtomicBool = AtomicBool::new(false);

impl Set {
    fn of(fd: c_int) -> Option<&'static Self> {
        SETS.iter().find(|set| set.fd.load(Ordering::Acquire) == fd).filter(|_| fd != NONE)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Members) -> T) -> T {
        while self.is_held.swap(true, Ordering::Acquire) {
            // SAFETY: - sched_yield has no arguments.
            unsafe { libc::sched_yield() };
        }
        // SAFETY: - `is_held` was clear: no other reference exists until it is cleared below.
        let result = act(unsafe { &mut *self.members.get() });
        self.is_held.store(false, Ordering::Release);
        result
    }
}

/// A new set.
fn begin(fd: c_int) {
    if fd < 0 || !is_program() {
        return;
    }
    HAS_SETS.store(true, Ordering::Relaxed);
    let is_free = |set: &&Set| set.fd.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(set) = SETS.iter().find(is_free) {
        set.with(|members| {
            members.places.iter_mut().for_each(|member| member.fd = NONE);
            members.has_overflown = false;
        });
    }
}

/// Called before a descriptor is closed: a set, or a member.
pub(super) fn forget(fd: c_int) {
    if !HAS_SETS.load(Ordering::Relaxed) || !is_program() {
        return;
    }
    for set in SETS.iter().filter(|set| set.fd.load(Ordering::Relaxed) != NONE) {
        if set.fd.load(Ordering::Relaxed) == fd {
            set.fd.store(NONE, Ordering::Release);
        }
        set.with(|members| members.places.iter_mut().filter(|member| member.fd == fd).for_each(|gone| gone.fd = NONE));
    }
}

impl Members {
    fn change(&mut self, operation: c_int, fd: c_int, event: Option<epoll_event>) {
        let free = if operation == libc::EPOLL_CTL_ADD { NONE } else { fd };
        let place = self.places.iter_mut().find(|member| member.fd == free);
        match (place, event) {
            (Some(place), _) if operation == libc::EPOLL_CTL_DEL => place.fd = NONE,
            (Some(place), Some(event)) => *place = Member { fd, events: event.events, data: event.u64 },
            (None, _) if operation == libc::EPOLL_CTL_ADD => self.has_overflown = true,
            _ => {}
        }
    }

    /// The place of a descriptor that the kernel says is ready. Two with the same data are told apart by `taken`.
    fn place(&self, event: &epoll_event, taken: &[bool; MEMBERS_MAX]) -> Option<usize> {
        let data = event.u64;
        self.places
            .iter()
            .zip(taken)
            .position(|(member, is_taken)| member.fd != NONE && member.data == data && !is_taken)
    }
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn epoll_create1(flags: c_int) -> c_int {
    let fd = next!(epoll_create1(flags => c_int) -> c_int, -1);
    begin(fd);
    fd
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn epoll_create(size: c_int) -> c_int {
    let fd = next!(epoll_create(size => c_int) -> c_int, -1);
    begin(fd);
    fd
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let result = next!(epoll_ctl(
        set => c_int, operation => c_int, fd => c_int, event => *mut epoll_event
    ) -> c_int, -1);
    if result == 0
        && let Some(set) = Set::of(set)
    {
        // SAFETY: - null, or valid for reading, as the caller has promised.
        let event = unsafe { event.as_ref() }.copied();
        set.with(|members| members.change(operation, fd, event));
    }
    result
}

/// Bytes of a ready descriptor in [`Found`]: its place and its events.
const ENTRY_BYTES: usize = 6;
const READY_MAX: usize = FOUND_BYTES_MAX / ENTRY_BYTES;

/// A call that waits for a set.
#[derive(Clone, Copy)]
struct Wait {
    set: &'static Set,
    fd: c_int,
    events: *mut epoll_event,
    count: usize,
}

impl Wait {
    /// Asks the kernel without waiting. Ready descriptors are sorted by their places.
    fn attempt(&self, found: &mut Found) -> Outcome {
        let count = self.count.min(READY_MAX);
        let arguments = [self.fd.into(), self.events as c_long, count as c_long, 0, 0, 0];
        // SAFETY: - the caller of the interposed function has promised room for that many events.
        let outcome = unsafe { real::system_call(libc::SYS_epoll_pwait, arguments) };
        let ready = usize::try_from(outcome).unwrap_or(0);
        if ready == 0 {
            return outcome;
        }
        // SAFETY: - the kernel has filled in that many events of the caller's memory, which only this call uses.
        let events = unsafe { std::slice::from_raw_parts_mut(self.events, ready) };
        self.set.with(|members| {
            let mut taken = [false; MEMBERS_MAX];
            let mut places = [(usize::MAX, epoll_event { events: 0, u64: 0 }); READY_MAX];
            for (entry, event) in places.iter_mut().zip(events.iter()) {
                let place = members.place(event, &taken);
                place.iter().for_each(|place| taken[*place] = true);
                *entry = (place.unwrap_or(usize::MAX), *event);
            }
            places[..ready].sort_unstable_by_key(|(place, _)| *place);
            for ((place, event), to) in places[..ready].iter().zip(events) {
                *to = *event;
                let mut entry = [0; ENTRY_BYTES];
                entry[..2].copy_from_slice(&(*place as u16).to_le_bytes());
                entry[2..].copy_from_slice(&{ event.events }.to_le_bytes());
                found.push(&entry);
            }
        });
        outcome
    }

    /// Fills in what the leader has found. The kernel is not asked: it may know of more, or of less.
    fn repeat(&self, outcome: Outcome, found: &Found) -> Result<Outcome, Outcome> {
        for (at, entry) in found.bytes().chunks_exact(ENTRY_BYTES).enumerate() {
            let place = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
            let events = u32::from_le_bytes([entry[2], entry[3], entry[4], entry[5]]);
            let member = self.set.with(|members| members.places.get(place).copied());
            let member = member.filter(|member| member.fd != NONE).ok_or(0)?;
            await_unordered(member.fd, events as i16);
            if member.events & libc::EPOLLONESHOT as u32 != 0 {
                let mut off = epoll_event { events: libc::EPOLLONESHOT as u32, u64: member.data };
                let arguments =
                    [self.fd.into(), libc::EPOLL_CTL_MOD.into(), member.fd.into(), &raw mut off as c_long, 0, 0];
                // SAFETY: - the event lives until the call returns.
                unsafe { real::system_call(libc::SYS_epoll_ctl, arguments) };
            }
            if at < self.count {
                // SAFETY: - the caller of the interposed function has promised room for `count` events.
                unsafe { *self.events.add(at) = epoll_event { events, u64: member.data } };
            }
        }
        Ok(outcome)
    }
}

/// Waits for a set in the leader's order; `None` if the wait is not ordered.
fn wait(fd: c_int, events: *mut epoll_event, count: c_int, timeout: Timeout, mask: *const sigset_t) -> Option<c_int> {
    let caller = current()?;
    let set = Set::of(fd).filter(|set| count > 0 && !set.with(|members| members.has_overflown))?;
    let wait = Wait { set, fd, events, count: count as usize };
    let exchange = Exchange {
        is_timed: timeout.is_timed(),
        attempt: |found: &mut Found| Some(wait.attempt(found)).filter(|outcome| *outcome != 0 || timeout.is_over()),
        wait: || timeout.wait_for(fd, mask),
        repeat: |outcome, found: &Found| wait.repeat(outcome, found),
    };
    Some(returned(exchange.perform(caller)) as c_int)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, timeout_ms: c_int) -> c_int {
    // SAFETY: - the caller's promise is passed on; without a mask both calls are the same.
    unsafe { epoll_pwait(set, events, count, timeout_ms, std::ptr::null()) }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let result = wait(set, events, count, Timeout::of_ms(timeout_ms), mask).unwrap_or_else(|| {
        next!(epoll_pwait(
            set => c_int, events => *mut epoll_event, count => c_int, timeout_ms => c_int, mask => *const sigset_t
        ) -> c_int, -1)
    });
    if result == 0 {
        crate::clock::advance(i64::from(timeout_ms) * 1_000_000);
    }
    result
}
