//! Threads that are there before `MPI_Init`, when there is no order yet.
//!
//! They count their operations on locks. `MPI_Init` closes the counts, and the order adopts the threads with them
//! (`thread-order`): an operation that is not counted by then is made in order.
//!
//! ```text
//!   early     act ─ count                      waits ─ act (woken) ─ count
//!   closing   act ─ closed: undo, join, make it in its turn
//! ```
//! In `MPI_Init` threads stand still at their next operation, and replicas tell each other how far theirs are. A thread
//! goes on until it is as far as in the replica where it was furthest. One that waits to be woken in any replica goes
//! on until it waits. So all replicas begin at the same points.
//!
//! Threads of OpenMP's teams are not counted: between parallel regions they stand still, and regions with a dynamic
//! schedule share work in any way.

use super::places::Last;
use super::{Act, IS_ON, NOTES, ORDERED, Ordered, ask, enter, runtimes};
use crate::lock_events::{ADOPTS, BEGINS, BEGUN, LEAVES, LockOperation};
use crate::{interpreter, numbers, real, state};
use libc::c_int;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Marks in [`Slot::word`]; the count is above them.
const CLOSED: u64 = 1;
/// The thread waits to be woken by others.
const WAITING: u64 = 2;
/// The thread is within another operation.
const ACTS: u64 = 4;
const ONE: u64 = 8;

/// An early thread, or one that has ended.
pub struct Slot {
    word: AtomicU64,
    number: AtomicU64,
    /// Number of operations that the thread may make while threads stand still.
    limit: AtomicU64,
    is_alive: AtomicBool,
    has_ended: AtomicBool,
    is_counted: AtomicBool,
}

/// Limit on early threads. Further ones are not ordered. The threads that ended first are forgotten.
const SLOT_COUNT: usize = 4096;
static SLOTS: [Slot; SLOT_COUNT] = [const {
    Slot {
        word: AtomicU64::new(0),
        number: AtomicU64::new(0),
        limit: AtomicU64::new(0),
        is_alive: AtomicBool::new(false),
        has_ended: AtomicBool::new(false),
        is_counted: AtomicBool::new(true),
    }
}; SLOT_COUNT];
/// The slot after the one taken last.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Held by a thread that takes slots or closes them.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Number of the phase: [`OPEN`] before `MPI_Init`, then [`IS_CLOSED`] or, if locks are not ordered, [`OFF`].
static PHASE: AtomicU32 = AtomicU32::new(OPEN);
const OPEN: u32 = 0;
const IS_CLOSED: u32 = 1;
const OFF: u32 = 2;
/// True once there was an early thread.
static IS_USED: AtomicBool = AtomicBool::new(false);
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

/// Limit on the threads whose counts are told.
const TOLD_COUNT: usize = 1024;
/// Limits of threads, by their numbers.
static LIMITS: [[AtomicU64; 2]; TOLD_COUNT] = [const { [const { AtomicU64::new(0) }; 2] }; TOLD_COUNT];

fn limit_of(thread: u64) -> u64 {
    let limit = LIMITS.iter().find(|[of, _]| of.load(Ordering::Relaxed) == thread);
    limit.map_or(0, |[_, made]| made.load(Ordering::Relaxed))
}

thread_local! {
    /// The calling thread's slot, until it is ordered.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
}

struct Table;

impl Table {
    fn take() -> Self {
        while IS_HELD.swap(true, Ordering::Acquire) {
            // SAFETY: - sched_yield has no arguments.
            unsafe { libc::sched_yield() };
        }
        Self
    }

    /// A slot for the thread of this number; `None` if there is none, or the order has begun.
    fn slot(&self, number: u64, is_counted: bool) -> Option<&'static Slot> {
        if PHASE.load(Ordering::Acquire) != OPEN {
            return None;
        }
        let slot = (0..SLOT_COUNT)
            .map(|_| &SLOTS[NEXT.fetch_add(1, Ordering::Relaxed) % SLOT_COUNT])
            .find(|slot| !slot.is_alive.load(Ordering::Relaxed))?;
        slot.word.store(0, Ordering::Relaxed);
        slot.number.store(number, Ordering::Relaxed);
        slot.limit.store(limit_of(number), Ordering::Relaxed);
        slot.is_counted.store(is_counted, Ordering::Relaxed);
        slot.has_ended.store(false, Ordering::Relaxed);
        slot.is_alive.store(true, Ordering::Relaxed);
        Some(slot)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        IS_HELD.store(false, Ordering::Release);
    }
}

/// Called when the calling thread makes another one of this number, which begins with `start`. Returns the slot of the
/// new thread if it is early.
pub fn created(number: u64, start: usize) -> Option<&'static Slot> {
    if PHASE.load(Ordering::Relaxed) != OPEN || state::library_answers() || interpreter::is_there() {
        return None;
    }
    state::job().filter(state::JobFacts::is_first_process)?;
    if runtimes::is_one(start as *const c_void) {
        return None;
    }
    let table = Table::take();
    let me = numbers::number();
    if SLOT.get().is_none() {
        // Threads that are not ordered, as those of runtimes, make no others that are.
        if me != 0 {
            return None;
        }
        SLOT.set(table.slot(me, true));
    }
    runtimes::look();
    IS_USED.store(true, Ordering::Release);
    table.slot(number, !runtimes::is_of(start as *const c_void, &[b"libgomp"]))
}

/// Gives back the slot of a thread that was not made.
pub fn forget(slot: &'static Slot) {
    slot.is_alive.store(false, Ordering::Release);
}

/// Called when the calling thread begins.
pub fn begin_thread(slot: &'static Slot) {
    SLOT.set(Some(slot));
    super::leave_at_end();
}

/// The calling thread, if it has yet to become ordered.
#[inline]
pub fn current() -> Option<Early> {
    if !IS_USED.load(Ordering::Relaxed) {
        return None;
    }
    let slot = SLOT.get()?;
    let may_count = slot.is_counted.load(Ordering::Relaxed) && PHASE.load(Ordering::Relaxed) != OFF;
    if !may_count || state::job().is_none_or(|job| !job.is_first_process()) {
        return None;
    }
    Some(Early(slot))
}

fn change() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
    real::wake_all(&CHANGES);
}

/// Waits for another change. Returns false when none has come for a second.
fn await_change(seen: u32) -> bool {
    let time = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    real::wait_while(&CHANGES, seen, Some(&time)) != libc::ETIMEDOUT
}

/// Makes early threads stand still at their next operation, and fills `counts`, which has room for [`TOLD_COUNT`], with
/// theirs: [`UNTIL_IT_WAITS`] for one that waits to be woken. An operation underway is counted. Returns the number of
/// counts.
///
/// # Safety
/// `counts` is valid for writing that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_hold_early(counts: *mut Count) -> usize {
    if !IS_USED.load(Ordering::Acquire) || PHASE.load(Ordering::Acquire) != OPEN {
        return 0;
    }
    let _table = Table::take();
    STANDS.store(true, Ordering::SeqCst);
    let me = numbers::number();
    let mut count = 0;
    for slot in alive().filter(|slot| slot.is_counted.load(Ordering::Relaxed)).take(TOLD_COUNT) {
        let (thread, word) = (slot.number.load(Ordering::Relaxed), slot.word.load(Ordering::SeqCst));
        if thread != me {
            let made = if word & WAITING != 0 { UNTIL_IT_WAITS } else { word / ONE + u64::from(word & ACTS != 0) };
            // SAFETY: - there is room, by contract.
            unsafe { counts.add(count).write(Count { thread, made }) };
            count += 1;
        }
    }
    count
}

/// Lets threads that stand still go on until they have made so many operations.
///
/// # Safety
/// `limits` is valid for reading `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_limit_early(limits: *const Count, count: usize) {
    let _table = Table::take();
    for (at, [of, until]) in LIMITS.iter().take(count).enumerate() {
        // SAFETY: - within the elements, by contract.
        let Count { thread, made } = unsafe { *limits.add(at) };
        of.store(thread, Ordering::Relaxed);
        until.store(made, Ordering::Relaxed);
    }
    for slot in alive() {
        slot.limit.store(limit_of(slot.number.load(Ordering::Relaxed)), Ordering::SeqCst);
    }
    change();
}

fn alive() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().filter(|slot| slot.is_alive.load(Ordering::Acquire))
}

/// Lets all threads go on.
fn release() {
    STANDS.store(false, Ordering::SeqCst);
    change();
}

/// Waits until threads are at their limits, or wait themselves. Gives up when none goes on for a second, and at last
/// after ten: they depend on each other in another way here than in other replicas.
fn await_limits() {
    let begin_ns = real::clock_ns(libc::CLOCK_MONOTONIC);
    while real::clock_ns(libc::CLOCK_MONOTONIC) - begin_ns < 10_000_000_000 {
        let seen = CHANGES.load(Ordering::SeqCst);
        let is_behind = |slot: &Slot| {
            let word = slot.word.load(Ordering::SeqCst);
            word & WAITING == 0 && word / ONE < slot.limit.load(Ordering::SeqCst)
        };
        if !alive().any(is_behind) || !await_change(seen) {
            return;
        }
    }
}

/// An early thread.
#[derive(Clone, Copy)]
pub struct Early(&'static Slot);

impl Early {
    /// Makes one operation. `last`: the lock's last holder.
    #[cold]
    pub(super) fn perform(
        self,
        last: &impl Last,
        act: &Act<impl Fn() -> c_int, impl Fn(), impl Fn() -> bool>,
    ) -> c_int {
        if let Some(thread) = self.begin(act.waits) {
            return thread.perform(last, act);
        }
        let result = (act.real)();
        let Some(thread) = self.count() else { return result };
        let has_it = (act.takes)(result) && !(act.take_back)();
        thread.perform_with(last, act, Some(result).filter(|_| has_it))
    }

    /// Begins an operation, which `waits` to be woken by others. The result is the thread if the order has begun.
    pub(super) fn begin(self, waits: bool) -> Option<Ordered> {
        loop {
            let seen = CHANGES.load(Ordering::SeqCst);
            let word = self.0.word.load(Ordering::SeqCst);
            if word & CLOSED != 0 {
                return join();
            }
            let stands = STANDS.load(Ordering::SeqCst) && word / ONE >= self.0.limit.load(Ordering::SeqCst);
            if stands && !waits {
                await_change(seen);
                continue;
            }
            let marked = (word & !(WAITING | ACTS)) | if waits { WAITING } else { ACTS };
            if self.0.word.compare_exchange(word, marked, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                if waits && STANDS.load(Ordering::SeqCst) {
                    change();
                }
                return None;
            }
        }
    }

    /// Counts an operation that was made. If the order has begun, the result is the thread, for which the operation is
    /// yet to be made in its turn.
    pub(super) fn count(self) -> Option<Ordered> {
        let one_more = |word: u64| (word & CLOSED == 0).then_some((word & !(WAITING | ACTS)) + ONE);
        let closed = self.0.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err();
        if !closed {
            if STANDS.load(Ordering::SeqCst) {
                change();
            }
            return None;
        }
        join()
    }

    /// The thread, if the order has begun.
    pub(super) fn has_closed(self) -> Option<Ordered> {
        if self.0.word.load(Ordering::Acquire) & CLOSED == 0 {
            return None;
        }
        join()
    }
}

/// Makes the calling thread ordered, once the order has begun.
#[cold]
fn join() -> Option<Ordered> {
    let slot = SLOT.get()?;
    while PHASE.load(Ordering::Acquire) == OPEN {
        // SAFETY: - sched_yield has no arguments.
        unsafe { libc::sched_yield() };
    }
    if PHASE.load(Ordering::Acquire) == OFF {
        return None;
    }
    SLOT.set(None);
    ORDERED.set(enter(slot.number.load(Ordering::Relaxed)));
    ORDERED.get()
}

/// Records the end of the calling thread. Returns its number if the order has adopted it.
pub fn end_thread() -> Option<u64> {
    let slot = SLOT.take()?;
    let _table = Table::take();
    slot.has_ended.store(true, Ordering::Release);
    slot.is_alive.store(false, Ordering::Release);
    if STANDS.load(Ordering::SeqCst) {
        change();
    }
    (PHASE.load(Ordering::Acquire) == IS_CLOSED).then(|| slot.number.load(Ordering::Relaxed))
}

/// Called in `MPI_Init`, when the library answers: the order begins with the threads that are there.
pub fn begin() {
    if !IS_USED.load(Ordering::Acquire) || PHASE.load(Ordering::Acquire) != OPEN {
        return release();
    }
    await_limits();
    let table = Table::take();
    let me = numbers::number();
    let notes = ask(BEGINS, &LockOperation::of(me));
    if notes == 0 {
        PHASE.store(OFF, Ordering::Release);
        drop(table);
        return release();
    }
    NOTES.store(notes as *mut thread_order::Notes, Ordering::Release);
    for slot in &SLOTS {
        let has_ended = slot.has_ended.load(Ordering::Acquire);
        if has_ended || slot.is_alive.load(Ordering::Acquire) {
            adopt(slot, has_ended, me);
        }
    }
    ask(BEGUN, &LockOperation::of(me));
    ORDERED.set(enter(me));
    SLOT.set(None);
    IS_ON.store(true, Ordering::Release);
    PHASE.store(IS_CLOSED, Ordering::Release);
    drop(table);
    release();
}

/// Closes a thread's count, and hands it over. The thread that begins the order is at the same point in all replicas.
fn adopt(slot: &Slot, has_ended: bool, me: u64) {
    let word = slot.word.fetch_or(CLOSED, Ordering::AcqRel);
    let number = slot.number.load(Ordering::Relaxed);
    let is_counted = number != me && slot.is_counted.load(Ordering::Relaxed);
    let (last_number, waits) = if is_counted { (word / ONE, word & WAITING != 0) } else { (0, false) };
    let flags = if waits { WAITING } else { 0 };
    ask(ADOPTS, &LockOperation { last_number, flags, ..LockOperation::of(number) });
    if has_ended {
        ask(LEAVES, &LockOperation::of(number));
    }
}

/// No thread of this process is early any more: it is a forked child.
pub fn leave_alone() {
    PHASE.store(OFF, Ordering::Release);
    release();
}
