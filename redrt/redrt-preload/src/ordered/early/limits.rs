//! Points up to which early threads go on while their process is in `MPI_Init`.

use super::{ACTS, IS_PAUSED, LOOKS, SLOTS, Slot, TOLD, Table, WAITING, is_open, made};
use crate::{interpreter, numbers, real};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// True while early threads stand still at their limits.
static STANDS: AtomicBool = AtomicBool::new(false);
/// Number of changes that a thread may wait for: operations made while threads stand still, and new limits. A futex.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Count of a thread's operations.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Count {
    thread: u64,
    made: u64,
}

/// In place of a count: the thread waits to be woken.
const UNTIL_IT_WAITS: u64 = u64::MAX;
/// In place of a count: the thread has ended.
const UNTIL_IT_ENDS: u64 = u64::MAX - 1;

/// Limit on the threads whose counts are told.
const TOLD_COUNT: usize = 1024;
/// Limits of threads, by their numbers.
static LIMITS: [[AtomicU64; 2]; TOLD_COUNT] = [const { [const { AtomicU64::new(0) }; 2] }; TOLD_COUNT];

pub(super) fn limit_of(thread: u64) -> u64 {
    let limit = LIMITS.iter().find(|[of, _]| of.load(Ordering::Relaxed) == thread);
    limit.map_or(0, |[_, made]| made.load(Ordering::Relaxed))
}

/// True if a thread that has made this many operations stands still now.
pub(super) fn stands_at(slot: &Slot, word: u64) -> bool {
    STANDS.load(Ordering::SeqCst) && made(word) >= slot.limit.load(Ordering::SeqCst)
}

/// Number of changes so far.
pub(super) fn changes() -> u32 {
    CHANGES.load(Ordering::SeqCst)
}

fn change() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
    real::wake_all(&CHANGES);
}

/// Records that a thread has moved, for the one in `MPI_Init`.
pub(super) fn moved() {
    if STANDS.load(Ordering::SeqCst) {
        change();
    }
}

/// Waits for another change. Returns false when none has come for a [`TICK_NS`].
pub(super) fn await_change(seen: u32) -> bool {
    let time = libc::timespec { tv_sec: 0, tv_nsec: TICK_NS };
    real::wait_while(&CHANGES, seen, Some(&time)) != libc::ETIMEDOUT
}

/// Makes early threads stand still at their next operation, and fills `counts`, which has room for [`TOLD_COUNT`], with
/// theirs: [`UNTIL_IT_WAITS`] for one that waits to be woken, [`UNTIL_IT_ENDS`] for one that has ended. An operation
/// underway is counted. Returns the number of counts.
///
/// # Safety
/// `counts` is valid for writing that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_hold_early(counts: *mut Count) -> usize {
    if !is_open() {
        return 0;
    }
    let _table = Table::take();
    STANDS.store(true, Ordering::SeqCst);
    let me = numbers::number();
    let is_told = |slot: &&Slot| slot.is_counted.load(Ordering::Relaxed) && slot.number.load(Ordering::Relaxed) != me;
    let mut count = 0;
    let mut tell = |slot: &Slot, made| {
        let thread = slot.number.load(Ordering::Relaxed);
        // SAFETY: - there is room, by contract: at most TOLD_COUNT are told.
        unsafe { counts.add(count).write(Count { thread, made }) };
        count += 1;
    };
    for slot in alive().filter(is_told).take(TOLD_COUNT) {
        let word = slot.word.fetch_or(TOLD, Ordering::SeqCst);
        tell(slot, if word & WAITING != 0 { UNTIL_IT_WAITS } else { made(word) + u64::from(word & ACTS != 0) });
    }
    let alive_count = alive().filter(is_told).count().min(TOLD_COUNT);
    let ended = SLOTS.iter().filter(|slot| slot.has_ended.load(Ordering::Acquire));
    for slot in ended.filter(is_told).take(TOLD_COUNT - alive_count) {
        tell(slot, UNTIL_IT_ENDS);
    }
    count
}

/// Lets threads that stand still go on until they have made the agreed numbers of operations, and waits. The library
/// does not answer yet: a thread that read a clock now would wait for a leader whose thread has read it long before.
///
/// # Safety
/// `limits` is valid for reading `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_limit_early(limits: *const Count, count: usize) {
    if !is_open() {
        return;
    }
    let table = Table::take();
    for (at, [of, until]) in LIMITS.iter().take(count).enumerate() {
        // SAFETY: - within the elements, by contract.
        let Count { thread, made } = unsafe { *limits.add(at) };
        of.store(thread, Ordering::Relaxed);
        until.store(made, Ordering::Relaxed);
    }
    for slot in alive() {
        slot.limit.store(limit_of(slot.number.load(Ordering::Relaxed)), Ordering::SeqCst);
    }
    drop(table);
    change();
    interpreter::stir();
    // The segment of the calling thread does not end.
    let was_paused = IS_PAUSED.replace(true);
    interpreter::without_lock(await_limits);
    IS_PAUSED.set(was_paused);
}

pub(super) fn alive() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().filter(|slot| slot.is_alive.load(Ordering::Acquire))
}

/// Lets all threads go on.
pub(super) fn release() {
    STANDS.store(false, Ordering::SeqCst);
    change();
    interpreter::stir();
}

const TICK_NS: i64 = 100_000_000;
/// Longest time for which `MPI_Init` waits for early threads: in all, and while none goes on.
const WAIT_NS_MAX: i64 = 100 * TICK_NS;
const STILL_NS_MAX: i64 = 10 * TICK_NS;

/// Waits until threads are at their limits, or wait themselves. Gives up when none goes on for [`STILL_NS_MAX`], and at
/// last after [`WAIT_NS_MAX`]: they depend on each other in another way here than in other replicas. A thread of an
/// interpreter may compute all that time within its segment.
///
/// The process may be stopped meanwhile, and its threads with it: a longer time between two looks counts as a tick.
fn await_limits() {
    let (mut waited_ns, mut still_ns) = (0, 0);
    while waited_ns < WAIT_NS_MAX {
        let begin_ns = real::clock_ns(libc::CLOCK_MONOTONIC);
        let seen = changes();
        let (mut is_complete, mut computes) = (true, false);
        for slot in alive().filter(|slot| is_behind(slot)) {
            is_complete = false;
            let is_underway = slot.word.load(Ordering::SeqCst) & ACTS != 0;
            computes |= is_underway && slot.is_interpreted.load(Ordering::Relaxed);
        }
        if is_complete {
            return;
        }
        let has_changed = await_change(seen);
        let passed_ns = (real::clock_ns(libc::CLOCK_MONOTONIC) - begin_ns).min(TICK_NS);
        waited_ns += passed_ns;
        still_ns = if has_changed || computes { 0 } else { still_ns + passed_ns };
        if still_ns >= STILL_NS_MAX {
            return;
        }
    }
}

/// True if the thread has yet to come to its limit.
fn is_behind(slot: &Slot) -> bool {
    let word = slot.word.load(Ordering::SeqCst);
    if word & WAITING != 0 {
        // An event of the interpreter may have woken it.
        return word & LOOKS != 0 && slot.looked.load(Ordering::SeqCst) != interpreter::event_count();
    }
    made(word) < slot.limit.load(Ordering::SeqCst)
}
