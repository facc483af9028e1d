//! Points up to which early threads go on while their process is in `MPI_Init`.

use super::held;
use super::rest::{TICK_NS, await_rest};
use super::slots::{ACTS, BLOCKS, SLOT_COUNT, SLOTS, Slot, TOLD, Table, WAITING, alive, made};
use super::{IS_PAUSED, is_open};
use crate::{interpreter, numbers, real};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// True while early threads stand still at their limits.
static STAND: AtomicBool = AtomicBool::new(false);
/// Number of changes that the thread in `MPI_Init` may wait for: operations made while threads stand still. A futex.
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// Number of changes that a thread at its limit waits for: new limits. A futex.
static TURNS: AtomicU32 = AtomicU32::new(0);

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

/// Limits of threads by their numbers, in the order of these.
static LIMITS: [[AtomicU64; 2]; SLOT_COUNT] = [const { [const { AtomicU64::new(0) }; 2] }; SLOT_COUNT];
static LIMIT_COUNT: AtomicUsize = AtomicUsize::new(0);

pub fn limit_of(thread: u64) -> u64 {
    let limits = &LIMITS[..LIMIT_COUNT.load(Ordering::Relaxed)];
    let place = limits.binary_search_by_key(&thread, |[of, _]| of.load(Ordering::Relaxed));
    place.map_or(0, |at| limits[at][1].load(Ordering::Relaxed))
}

/// True if the calling thread, which has made this many operations, stands still now.
pub fn stands_at(slot: &Slot, word: u64) -> bool {
    STAND.load(Ordering::SeqCst) && made(word) >= slot.limit.load(Ordering::SeqCst) && !held::holds_any()
}

/// Number of changes so far.
pub fn changes() -> u32 {
    CHANGES.load(Ordering::SeqCst)
}

/// Records that a thread has moved, for the one in `MPI_Init`.
pub fn moved() {
    if STAND.load(Ordering::SeqCst) {
        CHANGES.fetch_add(1, Ordering::SeqCst);
        real::wake_all(&CHANGES);
    }
}

/// Waits for another change. Returns false when none has come for a [`TICK_NS`].
pub fn await_change(seen: u32) -> bool {
    let time = libc::timespec { tv_sec: 0, tv_nsec: TICK_NS };
    real::wait_while(&CHANGES, seen, Some(&time)) != libc::ETIMEDOUT
}

/// Number of new limits so far.
pub fn turns() -> u32 {
    TURNS.load(Ordering::SeqCst)
}

/// Waits for new limits.
pub fn await_turn(seen: u32) {
    real::wait_while(&TURNS, seen, None);
}

fn turn() {
    TURNS.fetch_add(1, Ordering::SeqCst);
    real::wake_all(&TURNS);
    interpreter::stir();
}

/// How far a thread is: number of its operations, or one of the marks above. An operation underway is counted, unless
/// it can be taken back.
fn told(slot: &Slot) -> u64 {
    let word = slot.word.fetch_or(TOLD, Ordering::SeqCst);
    match word & WAITING != 0 {
        true => UNTIL_IT_WAITS,
        // A thread that gets its lock from now on takes that back.
        false if word & BLOCKS != 0 => made(word),
        false => made(word) + u64::from(word & ACTS != 0),
    }
}

/// Makes early threads stand still at their next operation, and fills `counts`, which has room for [`SLOT_COUNT`], with
/// theirs: [`UNTIL_IT_WAITS`] for one that waits to be woken, [`UNTIL_IT_ENDS`] for one that has ended. Returns the
/// number of counts.
///
/// # Safety
/// `counts` is valid for writing that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_hold_early(counts: *mut Count) -> usize {
    if !is_open() {
        return 0;
    }
    STAND.store(true, Ordering::SeqCst);
    let me = numbers::number();
    // A thread of an interpreter comes to rest only when the calling one gives the interpreter's lock up.
    if !alive().any(|slot| slot.is_interpreted.load(Ordering::Relaxed)) {
        await_rest(me);
    }
    let _table = Table::take();
    let ended = || SLOTS.iter().filter(|slot| slot.has_ended.load(Ordering::Acquire));
    let alive = alive().map(|slot| (slot, told as fn(&Slot) -> u64));
    let all = alive.chain(ended().map(|slot| (slot, (|_| UNTIL_IT_ENDS) as fn(&Slot) -> u64)));
    let mut count = 0;
    for (slot, made) in all.filter(|(slot, _)| slot.counts_beside(me)).take(SLOT_COUNT) {
        let count_of = Count { thread: slot.number.load(Ordering::Relaxed), made: made(slot) };
        // SAFETY: - there is room, by contract: at most SLOT_COUNT are told.
        unsafe { counts.add(count).write(count_of) };
        count += 1;
    }
    count
}

/// Lets threads that stand still go on until they have made the agreed numbers of operations, and waits. The library
/// does not answer yet: a thread that read a clock now would wait for a leader whose thread has read it long before.
///
/// # Safety
/// `limits` is valid for reading `count` elements, at most [`SLOT_COUNT`], in the order of their threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_limit_early(limits: *const Count, count: usize) {
    if !is_open() || !STAND.load(Ordering::SeqCst) {
        return;
    }
    let table = Table::take();
    for (at, [of, until]) in LIMITS.iter().take(count).enumerate() {
        // SAFETY: - within the elements, by contract.
        let Count { thread, made } = unsafe { *limits.add(at) };
        of.store(thread, Ordering::Relaxed);
        until.store(made, Ordering::Relaxed);
    }
    LIMIT_COUNT.store(count, Ordering::Relaxed);
    for slot in alive() {
        slot.limit.store(limit_of(slot.number.load(Ordering::Relaxed)), Ordering::SeqCst);
    }
    drop(table);
    turn();
    let me = numbers::number();
    // The segment of the calling thread does not end.
    let was_paused = IS_PAUSED.replace(true);
    interpreter::without_lock(|| await_rest(me));
    IS_PAUSED.set(was_paused);
}

/// Lets all threads go on.
pub fn release() {
    STAND.store(false, Ordering::SeqCst);
    turn();
}
