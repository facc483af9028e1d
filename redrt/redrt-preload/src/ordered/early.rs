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
//! on until it waits. The order begins when none goes on by itself (module `rest`). So all replicas begin at the same
//! points: each thread is about to make an operation, with all that it does for others before that done. A thread that
//! has a lock does not stand still (module `held`): others may need it to come to their points.
//!
//! A thread that has ended in any replica goes on until it ends.
//!
//! Threads of OpenMP's teams are not counted: between parallel regions they stand still, and regions with a dynamic
//! schedule share work in any way. Threads of an interpreter count their segments with its lock, and its semaphores
//! (module `interpreter::early`).

mod held;
mod limits;
mod rest;
mod slots;

use super::places::Last;
use super::{Act, IS_ON, IS_PAUSED, NOTES, ORDERED, Ordered, ask, enter, exchange, runtimes};
use crate::interpreter::{EarlyThreads, Opening};
use crate::lock_events::{ADOPTS, BEGINS, BEGUN, LEAVES, LockOperation};
use crate::{interpreter, numbers, processes, real, state};
use libc::c_int;
use limits::{await_turn, moved, release, stands_at, turns};
pub use slots::Slot;
pub(super) use slots::{ACTS, BLOCKS, WAITING};
use slots::{CLOSED, LOOKS, ONE, SLEEPS, SLOTS, STANDS, Table, UNDERWAY, made};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of the phase: [`OPEN`] before `MPI_Init`, then [`IS_CLOSED`] or, if locks are not ordered, [`OFF`].
static PHASE: AtomicU32 = AtomicU32::new(OPEN);
const OPEN: u32 = 0;
const IS_CLOSED: u32 = 1;
const OFF: u32 = 2;
/// True once there was an early thread.
static IS_USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The calling thread's slot, until it is ordered.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
}

/// Called when the calling thread makes another one of this number, which begins with `start`. Returns the slot of the
/// new thread if it is early.
pub fn created(number: u64, start: usize) -> Option<&'static Slot> {
    if PHASE.load(Ordering::Relaxed) != OPEN || state::library_answers() {
        return None;
    }
    state::job().filter(state::JobFacts::is_first_process)?;
    // In a process with an interpreter, only the interpreter's threads are ordered.
    let is_interpreted = interpreter::is_there();
    let is_left_out =
        if is_interpreted { !interpreter::has_made(start) } else { runtimes::is_one(start as *const c_void) };
    if is_left_out {
        return None;
    }
    let table = Table::take();
    let me = numbers::number();
    if SLOT.get().is_none() {
        // Threads that are not ordered, as those of runtimes, make no others that are.
        if me != 0 {
            return None;
        }
        let slot = table.slot(me, true, is_interpreted);
        SLOT.set(slot.inspect(|slot| slot.thread_id.store(real::thread_id(), Ordering::Release)));
    }
    runtimes::scan();
    interpreter::know_early(&INTERPRETED);
    IS_USED.store(true, Ordering::Release);
    table.slot(number, !runtimes::is_of(start as *const c_void, &[b"libgomp"]), is_interpreted)
}

/// Gives back the slot of a thread that was not made.
pub fn forget(slot: &'static Slot) {
    slot.is_alive.store(false, Ordering::Release);
}

/// Called when the calling thread begins.
pub fn begin_thread(slot: &'static Slot) {
    slot.thread_id.store(real::thread_id(), Ordering::Release);
    SLOT.set(Some(slot));
    super::leave_at_end();
}

/// True while there are early threads, and no order yet.
pub fn is_open() -> bool {
    IS_USED.load(Ordering::Relaxed) && PHASE.load(Ordering::Acquire) == OPEN
}

/// Answers for threads of an interpreter.
static INTERPRETED: EarlyThreads = EarlyThreads {
    is_open,
    has_caller: || current_interpreted().is_some(),
    begin_segment: || _ = current_interpreted().map(|early| early.begin(ACTS)),
    end_segment: || _ = current_interpreted().map(Early::count),
    begin_attempt: |seen| current_interpreted().map_or(Opening::Closed, |early| early.begin_attempt(seen)),
    pause: |seen, for_ever| _ = current_interpreted().map(|early| early.pause(seen, for_ever)),
    end_attempt: || current_interpreted().is_some_and(|early| early.count().is_none()),
};

/// The calling thread of an interpreter, if it has yet to become ordered.
#[inline]
fn current_interpreted() -> Option<Early> {
    current().filter(|early| early.is_interpreted() && !IS_PAUSED.get())
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
        let mark = match act {
            Act { waits: true, .. } => WAITING,
            Act { may_miss: false, .. } => ACTS | BLOCKS,
            _ => ACTS,
        };
        loop {
            if let Some(thread) = self.begin(mark) {
                return thread.perform(last, act);
            }
            let result = (act.real)();
            let has_it = (act.takes)(result);
            if has_it && mark & BLOCKS != 0 && self.is_beyond() && (act.take_back)() {
                continue;
            }
            if has_it {
                held::record(act.owner);
            }
            let Some(thread) = self.count() else { return result };
            let has_it = has_it && !(act.take_back)();
            return thread.perform_with(last, act, Some(result).filter(|_| has_it));
        }
    }

    /// Begins an operation with this mark: [`WAITING`] if others have to wake the thread, [`ACTS`] otherwise. Stands
    /// still where the thread is at its limit. The result is the thread if the order has begun.
    pub(super) fn begin(self, mark: u64) -> Option<Ordered> {
        loop {
            let seen = turns();
            match self.try_begin(mark) {
                Opening::Begun => return None,
                Opening::Closed => return join(),
                Opening::Stands => await_turn(seen),
            }
        }
    }

    /// A thread that is about to wait goes on: others may depend on what it gives up for that.
    fn try_begin(self, mark: u64) -> Opening {
        loop {
            let word = self.0.word.load(Ordering::SeqCst);
            if word & CLOSED != 0 {
                return Opening::Closed;
            }
            let stands = mark & (ACTS | SLEEPS) != 0 && stands_at(self.0, word);
            let marked = (word & !UNDERWAY) | if stands { STANDS } else { mark };
            if self.0.word.compare_exchange(word, marked, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                if marked & ACTS == 0 && marked != word {
                    moved();
                }
                return if stands { Opening::Stands } else { Opening::Begun };
            }
        }
    }

    /// True if the operation underway is one more than the thread may make now.
    fn is_beyond(self) -> bool {
        let word = self.0.word.load(Ordering::SeqCst);
        word & CLOSED == 0 && stands_at(self.0, word)
    }

    /// Counts an operation that was made. If the order has begun, the result is the thread, for which the operation is
    /// yet to be made in its turn.
    pub(super) fn count(self) -> Option<Ordered> {
        let one_more = |word: u64| (word & CLOSED == 0).then_some((word & !UNDERWAY) + ONE);
        let closed = self.0.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err();
        if !closed {
            moved();
            return None;
        }
        join()
    }

    /// Makes a call that sleeps for a time, which counts as an operation: a thread may do something for others after
    /// it. At its limit it stands still before the call, or before it returns.
    pub(super) fn sleep<R>(self, real: impl FnOnce() -> R) -> R {
        // A thread that has a lock goes on after its sleep, whatever its limit.
        let begun = self.begin(if held::holds_any() { ACTS } else { SLEEPS });
        let result = real();
        if begun.is_none() {
            loop {
                let seen = turns();
                if !self.is_beyond() {
                    self.count();
                    break;
                }
                await_turn(seen);
            }
        }
        result
    }

    /// The thread, if the order has begun.
    pub(super) fn has_closed(self) -> Option<Ordered> {
        if self.0.word.load(Ordering::Acquire) & CLOSED != 0 { join() } else { None }
    }
}

/// The same for a thread of an interpreter, whose operations are its segments and its semaphores.
impl Early {
    pub(super) fn is_interpreted(self) -> bool {
        self.0.is_interpreted.load(Ordering::Relaxed)
    }

    /// Called before the thread tries a semaphore in its gap, after this number of events of the interpreter.
    fn begin_attempt(self, seen: u32) -> Opening {
        let begun = self.try_begin(ACTS);
        if begun == Opening::Stands {
            self.has_looked(seen);
        }
        begun
    }

    /// Called when it waits for another event; `for_ever`: to be woken by others.
    fn pause(self, seen: u32, for_ever: bool) {
        self.0.looked.store(seen, Ordering::SeqCst);
        self.try_begin(if for_ever { WAITING | LOOKS } else { 0 });
    }

    fn has_looked(self, seen: u32) {
        if self.0.looked.swap(seen, Ordering::SeqCst) != seen {
            moved();
        }
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
    let entered = enter(slot.number.load(Ordering::Relaxed));
    if slot.is_interpreted.load(Ordering::Relaxed) {
        // Its locks have an order of their own.
        exchange::adopt(entered);
    } else {
        ORDERED.set(entered);
    }
    entered
}

/// Records the end of the calling thread. Returns its number if the order has adopted it.
pub fn end_thread() -> Option<u64> {
    let slot = SLOT.take()?;
    let _table = Table::take();
    slot.has_ended.store(true, Ordering::Release);
    slot.is_alive.store(false, Ordering::Release);
    moved();
    (PHASE.load(Ordering::Acquire) == IS_CLOSED).then(|| slot.number.load(Ordering::Relaxed))
}

/// Called in `MPI_Init`, when the library answers: the order begins with the threads that are there.
pub fn begin() {
    if !is_open() {
        return release();
    }
    let table = Table::take();
    let me = numbers::number();
    let notes = if processes::share() { 0 } else { ask(BEGINS, &LockOperation::of(me)) };
    if notes == 0 {
        PHASE.store(OFF, Ordering::Release);
        drop(table);
        return release();
    }
    NOTES.store(notes as *mut thread_order::Notes, Ordering::Release);
    processes::orders_threads();
    for slot in &SLOTS {
        let has_ended = slot.has_ended.load(Ordering::Acquire);
        if has_ended || slot.is_alive.load(Ordering::Acquire) {
            adopt(slot, has_ended, me);
        }
    }
    ask(BEGUN, &LockOperation::of(me));
    if SLOT.take().is_none_or(|slot| !slot.is_interpreted.load(Ordering::Relaxed)) {
        ORDERED.set(enter(me));
        IS_ON.store(true, Ordering::Release);
    }
    PHASE.store(IS_CLOSED, Ordering::Release);
    drop(table);
    release();
}

/// Closes a thread's count, and hands it over. The thread that begins the order is at the same point in all replicas.
fn adopt(slot: &Slot, has_ended: bool, me: u64) {
    let word = slot.word.fetch_or(CLOSED, Ordering::AcqRel);
    let number = slot.number.load(Ordering::Relaxed);
    let is_counted = number != me && slot.is_counted.load(Ordering::Relaxed);
    let (last_number, waits) = if is_counted { (made(word), word & WAITING != 0) } else { (0, false) };
    let flags = if waits { WAITING } else { 0 };
    ask(ADOPTS, &LockOperation { last_number, flags, ..LockOperation::of(number) });
    if has_ended {
        ask(LEAVES, &LockOperation::of(number));
    }
}

/// No thread of this process is early any more: it is a forked child.
pub fn leave_alone() {
    PHASE.store(OFF, Ordering::Release);
    slots::abandon();
    release();
}
