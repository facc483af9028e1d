//! Clocks.
//!
//! Before `MPI_Init` a replica cannot ask its siblings, so time is a sequence: it begins at the start of the job,
//! advances by one microsecond at every reading, and by the requested time when the process sleeps or a wait times out.
//! It runs behind the real time, and the same in all replicas. The trap: a deadline computed from it is in the past of
//! the real clock, so a timed wait would end at once. Therefore every reading records the pair (shown, real), and
//! `waits` shifts deadlines by the difference.
//!
//! Programs that a replica runs (a shell script's commands) see the real clocks until they call `MPI_Init`: each would
//! begin the sequence anew, and a script that compares the times of two of its commands would wait for ever.

use crate::{real, state};
use libc::{clockid_t, timespec};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

const STEP_NS: i64 = 1_000;
pub const NS_PER_S: i64 = 1_000_000_000;

/// Time since the beginning of the sequences of the wall and monotonic clocks.
static ELAPSED_NS: AtomicI64 = AtomicI64::new(0);
/// The same for processor time, which waits do not use up.
static PROCESSOR_NS: AtomicI64 = AtomicI64::new(0);
/// Latest answers of the library, by family; the sequences never fall behind them.
static LATEST_NS: [AtomicI64; FAMILY_COUNT] = [const { AtomicI64::new(0) }; FAMILY_COUNT];

#[derive(Clone, Copy)]
struct Reading {
    shown_ns: i64,
    real_ns: i64,
}

thread_local! {
    static READINGS: [Cell<Option<Reading>>; FAMILY_COUNT] = const { [const { Cell::new(None) }; FAMILY_COUNT] };
}

const FAMILY_COUNT: usize = 3;

/// Clocks that advance together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Time of day.
    Wall = 0,
    /// Time since an unspecified beginning.
    Monotonic = 1,
    /// Processor time, from 0 on.
    Processor = 2,
}

impl Family {
    /// The family of a clock.
    pub fn of(clock: clockid_t) -> Self {
        match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_REALTIME_ALARM | libc::CLOCK_TAI => {
                Self::Wall
            }
            libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID | ..0 => Self::Processor,
            _ => Self::Monotonic,
        }
    }

    /// The sequence of this family: its beginning, and the time since then.
    fn sequence(self, job: &state::JobFacts) -> (i64, &'static AtomicI64) {
        let (wall, monotonic) = job.start_ns();
        match self {
            Self::Wall => (wall, &ELAPSED_NS),
            Self::Monotonic => (monotonic, &ELAPSED_NS),
            Self::Processor => (0, &PROCESSOR_NS),
        }
    }

    /// The family of a deadline: times of day are more than thirty years, and no machine has been up so long.
    pub fn of_deadline(deadline: &timespec) -> Self {
        if deadline.tv_sec > 1_000_000_000 { Self::Wall } else { Self::Monotonic }
    }

    fn clock(self) -> clockid_t {
        match self {
            Self::Wall => libc::CLOCK_REALTIME,
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::Processor => libc::CLOCK_PROCESS_CPUTIME_ID,
        }
    }
}

/// The next time of the sequence.
fn sequence_ns(job: &state::JobFacts, family: Family) -> i64 {
    let (start, elapsed_ns) = family.sequence(job);
    let elapsed = elapsed_ns.fetch_add(STEP_NS, Ordering::Relaxed) + STEP_NS;
    let latest = LATEST_NS[family as usize].load(Ordering::Relaxed);
    if start + elapsed > latest {
        return start + elapsed;
    }
    LATEST_NS[family as usize].fetch_add(STEP_NS, Ordering::Relaxed) + STEP_NS
}

/// The application asked for `duration_ns` to pass, and that time has passed.
pub fn advance(duration_ns: i64) {
    if duration_ns > 0 && state::job().is_some() && !state::library_answers() {
        ELAPSED_NS.fetch_add(duration_ns, Ordering::Relaxed);
    }
}

/// A wait until `deadline` has timed out: the sequence must not show an earlier time any more.
pub fn reach(family: Family, deadline: &timespec) {
    let Some(job) = state::job().filter(|_| !state::library_answers()) else { return };
    let (start, elapsed_ns) = family.sequence(&job);
    elapsed_ns.fetch_max(to_ns(deadline).saturating_sub(start), Ordering::Relaxed);
}

/// The real time for the end of a wait until the shown time `deadline`.
pub fn real_deadline(family: Family, deadline: &timespec) -> timespec {
    match READINGS.with(|readings| readings[family as usize].get()) {
        Some(reading) if state::job().is_some() => {
            to_timespec(to_ns(deadline).saturating_add(reading.real_ns - reading.shown_ns))
        }
        _ => *deadline,
    }
}

/// Nanoseconds of a time.
pub fn to_ns(time: &timespec) -> i64 {
    time.tv_sec.saturating_mul(NS_PER_S).saturating_add(time.tv_nsec)
}

fn to_timespec(ns: i64) -> timespec {
    let ns = ns.max(0);
    timespec { tv_sec: ns / NS_PER_S, tv_nsec: ns % NS_PER_S }
}

pub fn to_timeval(time: timespec) -> libc::timeval {
    libc::timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1000 }
}

/// The number under which all replicas agree on a clock; `None` for a clock of a device, or of another process.
///
/// The number of a process's or thread's clock of processor time is negative: the complement of its id, and three bits
/// (`CPUCLOCK_` in the kernel). Ids differ between replicas.
fn agreed(clock: clockid_t) -> Option<clockid_t> {
    const OF_THREAD: clockid_t = 4;
    const KIND: clockid_t = 3;
    const DEVICE: clockid_t = 3;
    if clock >= 0 {
        return (clock <= libc::CLOCK_TAI).then_some(clock);
    }
    if clock & KIND == DEVICE {
        return None;
    }
    let id = crate::identity::real_id(!(clock >> 3));
    match clock & OF_THREAD != 0 {
        false if id == 0 || id == real::process_id() => Some(libc::CLOCK_PROCESS_CPUTIME_ID),
        true if id == 0 || id == real::thread_id() => Some(libc::CLOCK_THREAD_CPUTIME_ID),
        // Another thread of this process: the kernel accepts such a number for the own threads only.
        true if real::clock_exists(clock) => Some(clock),
        _ => None,
    }
}

/// From now on this thread is shown the real time: deadlines computed from it are not shifted.
fn show_real(family: Family) -> Option<timespec> {
    READINGS.with(|readings| readings[family as usize].set(None));
    None
}

/// The time that `clock` shows, if that is not the real time.
pub fn shown(clock: clockid_t) -> Option<timespec> {
    let job = state::job()?;
    let family = Family::of(clock);
    if crate::interpreter::is_inside() {
        return show_real(family);
    }
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    let pointer = &raw mut time;
    let answer = state::ask_library(|hooks| match hooks.clock {
        // SAFETY: the pointer is valid for writing; the function is valid by the contract of redrt_preload_install.
        Some(ask) => unsafe { ask(clock, pointer) },
        None => 0,
    });
    match answer {
        Some(0) => return show_real(family),
        None if !crate::identity::was_started_by_daemon() => return show_real(family),
        Some(1) => {
            if family == Family::Processor {
                // Otherwise a program that read it more often before MPI_Init than its processor time allows would see
                // it go back.
                let begin = to_timespec(PROCESSOR_NS.load(Ordering::Relaxed));
                time = if to_ns(&time) < to_ns(&begin) { begin } else { time };
            }
            LATEST_NS[family as usize].fetch_max(to_ns(&time), Ordering::Relaxed);
        }
        _ => time = to_timespec(sequence_ns(&job, family)),
    }
    let reading = Reading { shown_ns: to_ns(&time), real_ns: real::clock_ns(family.clock()) };
    READINGS.with(|readings| readings[family as usize].set(Some(reading)));
    Some(time)
}

/// Replaces the C library's.
///
/// # Safety
/// `time` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> i32 {
    // Clocks of other processes and of devices, and invalid ones, are answered or refused by the kernel.
    if !time.is_null()
        && state::job().is_some()
        && let Some(shown) = agreed(clock).and_then(shown)
    {
        // SAFETY: not null, so valid for writing, by contract.
        unsafe { *time = shown };
        return 0;
    }
    real::next!(clock_gettime(clock => clockid_t, time => *mut timespec) -> i32, {
        // SAFETY: - the arguments are valid for `clock_gettime`, by contract.
        real::with_errno(unsafe {
            real::system_call(libc::SYS_clock_gettime, [clock.into(), time as libc::c_long, 0, 0, 0, 0])
        }) as i32
    })
}

/// Replaces the C library's.
///
/// # Safety
/// `time` and `zone` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut libc::timeval, zone: *mut libc::c_void) -> i32 {
    if !time.is_null()
        && let Some(shown) = shown(libc::CLOCK_REALTIME)
    {
        // SAFETY: not null, so valid for writing, by contract.
        unsafe { *time = to_timeval(shown) };
        if !zone.is_null() {
            // The C library knows no time zone either. Older ones show the kernel's, which is the host's.
            // SAFETY: not null, so valid for writing `struct timezone`, two integers, by contract.
            unsafe { *zone.cast::<[i32; 2]>() = [0, 0] };
        }
        return 0;
    }
    real::next!(gettimeofday(time => *mut libc::timeval, zone => *mut libc::c_void) -> i32, -1)
}

/// Replaces the C library's.
///
/// # Safety
/// As for [`gettimeofday`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __gettimeofday(time: *mut libc::timeval, zone: *mut libc::c_void) -> i32 {
    // SAFETY: - the callee has the same contract.
    unsafe { gettimeofday(time, zone) }
}

/// `struct timeb`.
#[repr(C)]
pub struct TimeAndZone {
    time: libc::time_t,
    milliseconds: u16,
    zone: i16,
    daylight_saving: i16,
}

/// Replaces the C library's.
///
/// # Safety
/// `time` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftime(time: *mut TimeAndZone) -> i32 {
    let Some(shown) = shown(libc::CLOCK_REALTIME) else {
        return real::next!(ftime(time => *mut TimeAndZone) -> i32, -1);
    };
    let milliseconds = (shown.tv_nsec / 1_000_000) as u16;
    // SAFETY: valid for writing, by contract.
    unsafe { *time = TimeAndZone { time: shown.tv_sec, milliseconds, zone: 0, daylight_saving: 0 } };
    0
}

/// Replaces the C library's.
///
/// # Safety
/// `time` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut libc::time_t) -> libc::time_t {
    let Some(shown) = shown(libc::CLOCK_REALTIME) else {
        return real::next!(time(time => *mut libc::time_t) -> libc::time_t, -1);
    };
    if !time.is_null() {
        // SAFETY: not null, so valid for writing, by contract.
        unsafe { *time = shown.tv_sec };
    }
    shown.tv_sec
}

/// Replaces the C library's.
///
/// # Safety
/// `time` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timespec_get(time: *mut timespec, base: i32) -> i32 {
    // C23 §7.29.1: TIME_UTC; higher bases exist in newer C libraries.
    const BASES: [clockid_t; 4] =
        [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID];
    let clock = usize::try_from(base).ok().and_then(|base| BASES.get(base.checked_sub(1)?).copied());
    if let Some(shown) = clock.and_then(shown) {
        // SAFETY: valid for writing, by contract.
        unsafe { *time = shown };
        return base;
    }
    real::next!(timespec_get(time => *mut timespec, base => i32) -> i32, 0)
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn clock() -> libc::clock_t {
    match shown(libc::CLOCK_PROCESS_CPUTIME_ID) {
        // CLOCKS_PER_SEC is a million everywhere.
        Some(shown) => to_ns(&shown) / 1000,
        None => real::next!(clock() -> libc::clock_t, -1),
    }
}

/// Replaces the C library's: the process is known by the id it shows, and its own clock has the same number in all
/// replicas. The clock of another process is real.
///
/// # Safety
/// `clock` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_getcpuclockid(process: libc::pid_t, clock: *mut clockid_t) -> i32 {
    let process = crate::identity::real_id(process);
    if state::job().is_some() && (process == 0 || process == real::process_id()) {
        // SAFETY: valid for writing, by contract.
        unsafe { *clock = libc::CLOCK_PROCESS_CPUTIME_ID };
        return 0;
    }
    real::next!(clock_getcpuclockid(process => libc::pid_t, clock => *mut clockid_t) -> i32, libc::ENOSYS)
}
