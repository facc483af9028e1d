//! Calls on descriptors by which threads of a process reach each other, and waits for them.
//!
//! Whether a read finds bytes, or a wait finds a descriptor ready, depends on the other threads. So these calls are
//! made in one order, each with its outcome: the leader attempts a call without blocking and records it before anybody
//! makes the next one; between attempts it waits for the descriptor. A follower repeats a call when its turn has come.
//! Calls that failed are not repeated.
//!
//! ```text
//!   leader    hold ─ attempt ─ would block ─ release ─ poll … hold ─ attempt ─ record ─ release
//!   follower  wait for the turn ─ repeat: read just as many bytes, find just these descriptors ready ─ count
//! ```
//! Threads of an interpreter take part too: between two segments with its lock they are ordered by nothing else.

use super::early::{self, ACTS, Early, WAITING};
use super::{Caller, IS_ON, IS_PAUSED, NOTES, Next, ORDERED, Ordered, ask, enter, leave_at_end};
use crate::lock_events::{AHEAD, EXCHANGED, Found, LockOperation, PARTED, REPEATED};
use crate::{interpreter, numbers, real, state};
use libc::c_int;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use thread_order::Shortcut;

thread_local! {
    /// The calling thread of an interpreter, once it has made such a call.
    static ENTERED: Cell<Option<Ordered>> = const { Cell::new(None) };
    /// True during a call: a signal handler that makes another one is not ordered.
    static IS_EXCHANGING: Cell<bool> = const { Cell::new(false) };
}

/// Held by the thread of a leader that attempts a call.
static IS_HELD: AtomicBool = AtomicBool::new(false);

/// Releases [`IS_HELD`].
struct Held;

impl Held {
    fn take() -> Self {
        while IS_HELD.swap(true, Ordering::Acquire) {
            // SAFETY: - sched_yield has no arguments.
            unsafe { libc::sched_yield() };
        }
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        IS_HELD.store(false, Ordering::Release);
    }
}

/// Keeps threads from making calls, once none is between an attempt and its record; or lets them go on. A process that
/// is copied meanwhile has no attempt that its siblings may never learn of.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_preload_hold_exchanges(holds: bool) {
    match holds {
        true => std::mem::forget(Held::take()),
        false => drop(Held),
    }
}

/// The calling thread of an interpreter, if it takes part.
pub(super) fn entered() -> Option<Ordered> {
    ENTERED.get()
}

/// The calling thread of an interpreter takes part from now on, if threads are ordered.
pub(super) fn adopt(thread: Option<Ordered>) {
    ENTERED.set(thread);
}

/// The calling thread of an interpreter takes part no more.
pub(super) fn leave() {
    ENTERED.set(None);
}

/// The calling thread, if its calls on descriptors are ordered.
pub(super) fn current() -> Option<Caller> {
    if IS_EXCHANGING.get() || IS_PAUSED.get() {
        return None;
    }
    if let Some(early) = early::current() {
        // Within its segment such a thread does not stand still.
        if early.is_interpreted() && interpreter::holds_lock() {
            return None;
        }
        return Some(early.has_closed().map_or(Caller::Early(early), Caller::Ordered));
    }
    in_order().map(Caller::Ordered)
}

fn in_order() -> Option<Ordered> {
    if NOTES.load(Ordering::Relaxed).is_null() {
        return None;
    }
    // A child that shares this memory until it runs another program is not ordered.
    state::job().filter(state::JobFacts::is_first_process)?;
    if let Some(thread) = ORDERED.get().filter(|_| IS_ON.load(Ordering::Relaxed)) {
        return Some(thread);
    }
    if !interpreter::orders_thread() {
        return None;
    }
    if ENTERED.get().is_none() {
        ENTERED.set(enter(numbers::number()));
        leave_at_end();
    }
    ENTERED.get()
}

unsafe extern "C-unwind" {
    /// Declared here because the crate `libc` lacks it.
    fn pthread_testcancel();
}

/// Ends the calling thread if somebody has cancelled it: calls that wait are such points (pthreads(7)). Nothing may be
/// held, and the frames between the program's call and this one may have nothing to drop.
pub(super) fn cancellation_point() {
    // The unwinder takes locks of its own, in a thread that has ended for its siblings.
    let was_paused = IS_PAUSED.replace(true);
    // SAFETY: - it has no arguments, and may unwind the stack: no frame of this library has something to drop there.
    unsafe { pthread_testcancel() };
    IS_PAUSED.set(was_paused);
}

/// Outcome of a call: not negative, or a negative error number.
pub type Outcome = i64;

/// The outcome of an attempt that would have to wait.
pub const WOULD_BLOCK: Option<Outcome> = None;

/// One call.
pub struct Exchange<A, W, R> {
    /// True if its wait has a limit.
    pub is_timed: bool,
    /// Makes the call without blocking, and notes what it finds. [`WOULD_BLOCK`] asks for a wait.
    pub attempt: A,
    /// Waits until an attempt may succeed, but not for long: a thread that was copied has to look for its turn. An
    /// outcome ends the call: its time is over, or a signal came.
    pub wait: W,
    /// Makes the call with the leader's outcome. Fails with an outcome of its own if that is not possible here, as the
    /// replicas have parted.
    pub repeat: R,
}

impl<A, W, R> Exchange<A, W, R>
where
    A: FnMut(&mut Found) -> Option<Outcome>,
    W: FnMut() -> Option<Outcome>,
    R: FnOnce(Outcome, &Found) -> Result<Outcome, Outcome>,
{
    /// Makes the call in its turn.
    pub(super) fn perform(mut self, caller: Caller) -> Outcome {
        IS_EXCHANGING.set(true);
        let outcome = match caller {
            Caller::Unordered => self.perform_unordered(),
            Caller::Early(early) => self.perform_early(early),
            Caller::Ordered(thread) => self.perform_in_turn(thread, None),
        };
        IS_EXCHANGING.set(false);
        outcome
    }

    /// Makes the call before there is an order, which may begin meanwhile.
    fn perform_early(mut self, early: Early) -> Outcome {
        loop {
            if let Some(thread) = early.begin(ACTS) {
                return self.perform_in_turn(thread, None);
            }
            let mut done = (self.attempt)(&mut Found::default());
            if done.is_none() {
                cancellation_point();
                if let Some(thread) = early.begin(if self.is_timed { ACTS } else { WAITING }) {
                    return self.perform_in_turn(thread, None);
                }
                done = (self.wait)();
            }
            if let Some(outcome) = done {
                return match early.count() {
                    None => outcome,
                    Some(thread) => self.perform_in_turn(thread, Some(outcome)),
                };
            }
        }
    }

    fn perform_unordered(&mut self) -> Outcome {
        loop {
            if let Some(outcome) = (self.attempt)(&mut Found::default()) {
                return outcome;
            }
            cancellation_point();
            if let Some(outcome) = (self.wait)() {
                return outcome;
            }
        }
    }

    /// `attempted`: the outcome of an attempt that was made before the order began.
    fn perform_in_turn(mut self, thread: Ordered, mut attempted: Option<Outcome>) -> Outcome {
        let mut found = Found::default();
        // Outcomes that are not recorded yet: of an attempt, and of a wait that ended the call.
        let mut waited = None;
        loop {
            match thread.counts.shortcut() {
                Shortcut::Unordered => return attempted.unwrap_or_else(|| self.perform_unordered()),
                Shortcut::Leads => {
                    if thread.notes.is_far_ahead.load(Ordering::Relaxed) {
                        ask(AHEAD, &LockOperation::of(thread.number));
                    }
                    let held = Held::take();
                    // This process may have become a copy since the first look. From here on nobody else makes a call:
                    // what an attempt finds now, the source finds too.
                    if thread.counts.shortcut() != Shortcut::Leads {
                        continue;
                    }
                    if attempted.or(waited).is_none() {
                        found.length = 0;
                        attempted = (self.attempt)(&mut found);
                    }
                    let Some(outcome) = attempted.or(waited) else {
                        drop(held);
                        cancellation_point();
                        waited = (self.wait)();
                        continue;
                    };
                    if record(thread, outcome, &mut found) {
                        return outcome;
                    }
                }
                // Also a call that needs no question: its outcome is 0, and the library says so.
                Shortcut::Follows | Shortcut::Ask => match before(thread, &mut found) {
                    Next::Cancelled => {
                        thread.end_cancelled(|| ());
                        return attempted.unwrap_or_else(|| self.perform_unordered());
                    }
                    Next::Unordered => return attempted.unwrap_or_else(|| self.perform_unordered()),
                    Next::Free => {}
                    Next::Decided { result, .. } => {
                        let outcome = Outcome::from(result);
                        // This process was copied in the midst of a call that its source has recorded. A wait of that
                        // time counts for nothing: the source may have found something after it.
                        let repeated = attempted.map_or_else(|| (self.repeat)(outcome, &found), Ok);
                        ask(REPEATED, &LockOperation::of(thread.number));
                        return repeated.unwrap_or_else(|own| {
                            ask(PARTED, &LockOperation::of(thread.number));
                            own
                        });
                    }
                },
            }
        }
    }
}

/// Records a call of a leader. Returns false if this process follows now.
fn record(thread: Ordered, outcome: Outcome, found: &mut Found) -> bool {
    let operation = LockOperation { result: outcome as c_int, found, ..LockOperation::of(thread.number) };
    ask(EXCHANGED, &operation) != 0
}

/// Waits until a thread may make its next call. Fetches what the leader's call found.
fn before(thread: Ordered, found: &mut Found) -> Next {
    found.length = 0;
    thread.before_with(found, true)
}

/// Sets `errno`, as the C library does for an outcome.
pub fn returned(outcome: Outcome) -> i64 {
    real::with_errno(outcome)
}
