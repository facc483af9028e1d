//! Clocks. In a replicated world a reading is a decision of the leader, because a program may act on it.
//!
//! The leader shows its own clocks. A follower keeps the difference of each to its own clock, and adds it if it becomes
//! the leader: monotonic clocks of hosts count from their starts. Within a thread no clock goes back, except behind
//! readings that siblings do not make (`alone_ns`).

mod asker;
pub mod counts;

use crate::decide;
use crate::{preload, threads};
use redrt_process::simulation;
use redrt_wire::control::Determinism;
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI64, Ordering};

/// Clocks of Linux that are agreed: numbers 0 to `CLOCK_TAI`.
const CLOCK_COUNT: usize = libc::CLOCK_TAI as usize + 1;

const UNKNOWN: i64 = i64::MIN;

process_local! {
    /// Difference of the leader's clocks to this machine's, in nanoseconds; [`UNKNOWN`] until this process has
    /// followed.
    static AHEAD_NS: [AtomicI64; CLOCK_COUNT] = [const { AtomicI64::new(UNKNOWN) }; CLOCK_COUNT];
}

per_thread! {
    static LATEST_NS: [Cell<u64>; CLOCK_COUNT] = [const { Cell::new(0) }; CLOCK_COUNT];
    /// This machine's clock at the latest agreed reading.
    static OWN_NS: [Cell<u64>; CLOCK_COUNT] = [const { Cell::new(0) }; CLOCK_COUNT];
}

process_local! {
    /// This machine's clocks when an image was begun.
    static AT_CUT_NS: [AtomicI64; CLOCK_COUNT] = [const { AtomicI64::new(0) }; CLOCK_COUNT];
}

/// Records the clocks. Called when an image of this process is about to be taken.
pub fn record_cut() {
    for (clock, noted) in AT_CUT_NS.iter().enumerate() {
        noted.store(shown_ns(clock as c_int).cast_signed(), Ordering::Relaxed);
    }
}

/// In a copy: adjusts the differences to this machine's clocks, which may differ from the source's.
pub fn become_copy() {
    for (clock, (noted, ahead)) in AT_CUT_NS.iter().zip(AHEAD_NS.iter()).enumerate() {
        let behind = noted.load(Ordering::Relaxed) - shown_ns(clock as c_int).cast_signed();
        if clock == libc::CLOCK_MONOTONIC as usize {
            redrt_process::clock::shift(behind);
        }
        // A replica that led by its own clocks follows now, and gets its first differences.
        let before = ahead.load(Ordering::Relaxed);
        ahead.store(if before == UNKNOWN { behind } else { before.saturating_add(behind) }, Ordering::Relaxed);
    }
}

/// Reads a clock as the calling thread sees it: the real one below an MPI call and in a hook, else the preloaded
/// library's. Faster than the system call.
fn shown_ns(clock: c_int) -> u64 {
    if let Some(now) = simulation::now_ns() {
        return now;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: - now is valid for writes: it is a local variable.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns true if clocks are agreed in this process.
fn is_agreed() -> bool {
    threads::agrees(|options| options.determinism == Determinism::Full)
}

/// The agreed reading of a clock. `decide` returns the leader's reading; its argument reads this machine's clock.
/// Called while the thread gets real clocks.
fn agreed_ns(clock: c_int, decide: impl FnOnce(&dyn Fn() -> u64) -> Option<u64>) -> u64 {
    let ahead = &AHEAD_NS[clock as usize];
    let latest = LATEST_NS.with(|latest| latest[clock as usize].get());
    let here = || {
        let ahead = ahead.load(Ordering::Relaxed);
        let own = shown_ns(clock);
        own.saturating_add_signed(if ahead == UNKNOWN { 0 } else { ahead }).max(latest)
    };
    let Some(decided) = decide(&here) else { return alone_ns(clock, latest, here) };
    // A decision before `latest` means that this replica has diverged and reads by itself. Time must advance
    // nevertheless: otherwise a program that measures a duration would get 0.
    let decided = if decided < latest { here() } else { decided };
    let own = shown_ns(clock);
    // A late decision makes the difference too small, so the greatest difference is the most exact.
    ahead.fetch_max(decided.cast_signed() - own.cast_signed(), Ordering::Relaxed);
    LATEST_NS.with(|latest| latest[clock as usize].set(decided));
    OWN_NS.with(|at| at[clock as usize].set(own));
    decided
}

/// The reading of a clock that no sibling makes at this place. Agreed readings do not depend on it: a later agreed time
/// is shown even if it is earlier.
fn alone_ns(clock: c_int, agreed: u64, here: impl Fn() -> u64) -> u64 {
    if !matches!(clock, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID) {
        return here();
    }
    // Replicas use different amounts of processor time. Adding half of the own use keeps the next agreed time from
    // being far behind this reading.
    let used = shown_ns(clock).saturating_sub(OWN_NS.with(|own| own[clock as usize].get()));
    agreed + used / 2
}

/// `MPI_Wtime`, in seconds.
pub fn wtime() -> f64 {
    let now = if is_agreed() {
        let _inside = threads::enter_quietly();
        agreed_ns(libc::CLOCK_MONOTONIC, |here| Some(decide::time_of_call(libc::CLOCK_MONOTONIC, here)))
    } else {
        // In a process that was restored, on another host or after a restart of this one, the clock continues where it
        // was.
        redrt_process::clock::shifted(shown_ns(libc::CLOCK_MONOTONIC))
    };
    now as f64 * 1e-9
}

/// Number in decisions of the processor time of another thread. The real number of its clock differs between replicas.
const OF_OTHER_THREAD: c_int = -1;

/// The leader's reading of another thread's processor time.
fn agreed_of_other_thread(clock: libc::clockid_t) -> u64 {
    let here = || shown_ns(clock);
    decide::reading(OF_OTHER_THREAD, asker::here(OF_OTHER_THREAD), here).unwrap_or_else(here)
}

unsafe extern "C" fn clock_hook(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if clock >= CLOCK_COUNT as c_int || !is_agreed() {
        return 0;
    }
    threads::make_known();
    let ns = match clock {
        ..0 => agreed_of_other_thread(clock),
        _ => agreed_ns(clock, |here| decide::reading(clock, asker::here(clock), here)),
    };
    // SAFETY: - time is valid for writes: the preloaded library passes a place for the result.
    unsafe { *time = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 } };
    1
}

/// Makes the program's readings of clocks and of the system's counts decisions, from now on. Random bytes stay with the
/// preloaded library's generator: it makes the same ones in all replicas, so they need no agreement.
pub fn install_hooks() {
    asker::prepare();
    static HOOKS: preload::Hooks =
        preload::Hooks::new(clock_hook, crate::turns::hook, crate::locks::hook, counts::hook);
    preload::install(Some(&HOOKS));
}

/// Removes the hooks: the program's clocks go on without the leader.
pub fn remove_hooks() {
    preload::install(None);
}
