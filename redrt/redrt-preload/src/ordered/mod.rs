//! Locks of the program, taken in the leader's order (`redrt/redrt-runtime/src/locks.rs`).
//!
//! Each operation of an ordered thread goes through [`Ordered::perform`]. Its position is after that of the lock's last
//! holder. For mutexes that holder is recorded in the mutex itself, for all other objects in a table (module `places`).
//!
//! Threads are ordered if the program makes them in the main thread or in an ordered one; so is the thread that makes
//! the first of them. Threads that are there before `MPI_Init` are *early* until then (module `early`). Interpreters
//! with a lock of their own have an order of their own, but their early threads begin in the same way.

mod c11;
mod cancelling;
mod conditions;
mod descriptors;
pub mod early;
mod epolls;
mod exchange;
mod mutexes;
mod objects;
mod openmp;
mod places;
mod readiness;
mod runtimes;
mod transfers;

pub use c11::TIMED_OUT as C11_TIMED_OUT;
pub use conditions::wait;
pub use descriptors::{duplicated, forget, forget_range};
pub use mutexes::lock;
pub use objects::{hold_read, hold_written, semaphore};
pub use readiness::{Timeout, poll, select};
pub use transfers::{Pieces, Way, transfer};

use crate::lock_events::{
    AHEAD, BEFORE, BEGINS, DECIDED, ENDED, ENTERS, FOLLOWED, FREE, Found, LEAVES, LockOperation, MADE, MATTERS,
    MAY_CANCEL, PARTED, SLEEPS, TAKES,
};
use crate::state::ask_of_locks as ask;
use crate::{interpreter, numbers, processes, state};
use cancelling::Cancels;
use early::Early;
use libc::{c_int, c_void, pthread_key_t};
use places::Last;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use thread_order::{Counts, Notes, Shortcut};

/// The calling thread, which is ordered.
#[derive(Clone, Copy)]
struct Ordered {
    number: u64,
    counts: &'static Counts,
    notes: &'static Notes,
}

thread_local! {
    /// The calling thread, if it is ordered.
    static ORDERED: Cell<Option<Ordered>> = const { Cell::new(None) };
    /// True while the thread's operations are not ordered.
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Notes of threads for each other; null as long as none is ordered.
static NOTES: AtomicPtr<Notes> = AtomicPtr::new(std::ptr::null_mut());
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Asks the library to begin the order, if the job has one.
fn begin_order(number: u64) {
    NOTES.store(ask(BEGINS, &LockOperation::of(number)) as *mut Notes, Ordering::Release);
    processes::orders_threads();
}

/// Makes the thread of this number ordered from now on.
fn enter(number: u64) -> Option<Ordered> {
    let counts = ask(ENTERS, &LockOperation::of(number)) as *const Counts;
    // SAFETY: null, or counts that the library keeps for good.
    let counts = unsafe { counts.as_ref() }?;
    // SAFETY: null, or notes that the library keeps for good.
    let notes = unsafe { NOTES.load(Ordering::Acquire).as_ref() }?;
    Some(Ordered { number, counts, notes })
}

/// Called when the calling thread, which has this number, makes another. Returns true when the new one is ordered.
pub fn creates_thread(number: u64) -> bool {
    if state::job().is_none() || processes::share() {
        return false;
    }
    if interpreter::is_there() {
        // The interpreter's threads have an order of their own, except for their messages.
        if interpreter::has_threads() {
            begin_order(number);
        }
        return false;
    }
    // The main thread makes the first one, if threads are to be ordered.
    if number == 0 && ORDERED.get().is_none() {
        begin_order(0);
        ORDERED.set(enter(number));
        IS_ON.store(ORDERED.get().is_some(), Ordering::Release);
    }
    let is_ordered = ORDERED.get().is_some();
    if is_ordered {
        runtimes::scan();
    }
    is_ordered
}

/// Called when the calling thread begins, with its number if it is ordered.
pub fn begin_thread(ordered: Option<u64>) {
    let entered = ordered.and_then(enter);
    ORDERED.set(entered);
    if entered.is_some() {
        leave_at_end();
    }
}

/// Reports the end of the calling thread to the library. The C library calls destructors of thread-specific data in up
/// to four rounds, after those of C++; other destructors may take locks in all rounds but the last.
fn leave_at_end() {
    const ROUNDS: usize = 4;
    static KEY: OnceLock<Option<pthread_key_t>> = OnceLock::new();
    unsafe extern "C" fn ends(round: *mut c_void) {
        let round = round as usize;
        if round < ROUNDS {
            return set(round + 1);
        }
        let ended = match ORDERED.get().or_else(exchange::entered) {
            Some(Ordered { number, .. }) => Some(number),
            None => early::end_thread(),
        };
        ORDERED.set(None);
        exchange::leave();
        cancelling::forget();
        if let Some(number) = ended {
            ask(LEAVES, &LockOperation::of(number));
        }
    }
    fn set(round: usize) {
        if let Some(Some(key)) = KEY.get() {
            // SAFETY: - the key is never deleted; the value is a number, which is not used as a pointer.
            unsafe { libc::pthread_setspecific(*key, round as *const c_void) };
        }
    }
    KEY.get_or_init(|| {
        let mut key: pthread_key_t = 0;
        // SAFETY: key is valid for writing.
        let error = unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) };
        (error == 0).then_some(key)
    });
    set(1);
}

/// No thread of this process is ordered any more: it is a forked child.
pub fn leave_alone() {
    IS_ON.store(false, Ordering::Release);
    NOTES.store(std::ptr::null_mut(), Ordering::Release);
    early::leave_alone();
}

/// While `is_paused`, the calling thread's operations on locks are not ordered. Returns the former value.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_preload_pause_order(is_paused: bool) -> bool {
    IS_PAUSED.replace(is_paused)
}

/// The calling thread, if its operations are ordered at this point.
#[inline]
fn current() -> Option<Ordered> {
    if !IS_ON.load(Ordering::Relaxed) {
        return None;
    }
    ORDERED.get().filter(|_| !IS_PAUSED.get() && state::job().is_some())
}

/// Treatment of the calling thread's next operation.
#[derive(Clone, Copy)]
enum Caller {
    Unordered,
    Early(Early),
    Ordered(Ordered),
}

#[inline]
fn caller() -> Caller {
    if let Some(thread) = current() {
        return Caller::Ordered(thread);
    }
    match early::current().filter(|early| !IS_PAUSED.get() && !early.is_interpreted()) {
        None => Caller::Unordered,
        Some(early) => early.has_closed().map_or(Caller::Early(early), Caller::Ordered),
    }
}

impl Caller {
    /// Makes one operation. `last`: the lock's last holder.
    #[inline]
    fn perform(self, last: &impl Last, act: &Act<impl Fn() -> c_int, impl Fn(), impl Fn() -> bool>) -> c_int {
        match self {
            Self::Ordered(thread) => thread.perform(last, act),
            Self::Unordered => (act.real)(),
            Self::Early(early) => early.perform(last, act),
        }
    }
}

/// Sleeps for so long, if the calling thread is ordered and follows. Returns false where it is to sleep by itself.
///
/// A follower that is behind would never catch up if its threads slept as long as those of the leader: each ends its
/// sleep when others wait for its next operation.
pub fn sleep(duration_ns: i64) -> bool {
    let is_ordered = || current().is_some() || interpreter::orders_thread() && state::job().is_some();
    if duration_ns <= 0 || !is_ordered() {
        return false;
    }
    exchange::cancellation_point();
    let operation = LockOperation { last_number: duration_ns as u64, ..LockOperation::of(numbers::number()) };
    let has_slept = ask(SLEEPS, &operation) != 0;
    exchange::cancellation_point();
    has_slept
}

/// Makes a call that sleeps for a time. Before `MPI_Init` the calling thread's sleeps count as operations.
pub fn sleep_early<R>(real: impl FnOnce() -> R) -> R {
    match caller() {
        Caller::Early(early) => early.sleep(real),
        _ => real(),
    }
}

/// One call of an operation.
struct Act<R, S, B> {
    /// The call itself.
    real: R,
    /// Repeats the leader's success.
    surely: S,
    /// Undoes that; false where it cannot be undone.
    take_back: B,
    /// True when this result means that the lock was taken.
    takes: fn(c_int) -> bool,
    /// True when the call may return without the lock.
    may_miss: bool,
    /// True when the call waits, without a limit, until another thread wakes it.
    waits: bool,
    cancels: Cancels,
    /// Address at which the C library notes the lock's owner, by its id in the kernel; or null.
    owner: *const i32,
}

impl<R, S, B> Act<R, S, B> {
    /// A call that returns 0 with the lock, and waits for it as long as it takes.
    fn new(real: R, surely: S, take_back: B) -> Self {
        let (takes, owner) = (is_zero as fn(c_int) -> bool, std::ptr::null());
        Self { real, surely, take_back, takes, may_miss: false, waits: false, cancels: Cancels::No, owner }
    }
}

/// For calls that return 0 with the lock.
fn is_zero(result: c_int) -> bool {
    result == 0
}

/// True for a result that only calls that may miss return: `EBUSY` and its kin, and C11's `thrd_busy` and
/// `thrd_timedout`.
fn is_miss(result: c_int) -> bool {
    matches!(result, libc::EBUSY | libc::ETIMEDOUT | libc::EAGAIN | c11::BUSY | c11::TIMED_OUT)
}

/// The library's answer about the next operation.
enum Next {
    Unordered,
    /// This process leads.
    Free,
    /// The leader's thread has ended without this operation: it was cancelled in it.
    Cancelled,
    Decided {
        takes: bool,
        result: c_int,
    },
}

impl Ordered {
    /// Makes one operation in its turn and returns the call's result. `last`: the lock's last holder.
    fn perform(self, last: &impl Last, act: &Act<impl Fn() -> c_int, impl Fn(), impl Fn() -> bool>) -> c_int {
        self.perform_with(last, act, None)
    }

    /// The same; `done`: result of an operation that was made without a decision and could not be undone.
    fn perform_with(
        self,
        last: &impl Last,
        act: &Act<impl Fn() -> c_int, impl Fn(), impl Fn() -> bool>,
        mut done: Option<c_int>,
    ) -> c_int {
        let surely = |done: Option<c_int>| {
            if done.is_none() {
                (act.surely)()
            }
        };
        loop {
            match self.counts.shortcut() {
                Shortcut::Unordered => return done.unwrap_or_else(&act.real),
                Shortcut::Follows => {
                    surely(done);
                    let _held = last.hold();
                    self.count(last, false);
                    return 0;
                }
                Shortcut::Leads => {
                    if self.notes.is_far_ahead.load(Ordering::Relaxed) {
                        ask(AHEAD, &LockOperation::of(self.number));
                    }
                    let result = done.unwrap_or_else(&act.real);
                    let takes = (act.takes)(result);
                    if self.made(last, takes, result) {
                        return result;
                    }
                    done = Some(result).filter(|_| takes && !(act.take_back)());
                }
                Shortcut::Ask => match self.before_with(std::ptr::null_mut(), act.cancels != Cancels::No) {
                    // As in the C library a thread that is cancelled has the mutex that it gave back to wait.
                    Next::Cancelled => {
                        self.end_cancelled(|| {
                            if act.cancels == Cancels::WithLock {
                                done.get_or_insert_with(&act.real);
                            }
                        });
                        return done.unwrap_or_else(&act.real);
                    }
                    Next::Unordered => return done.unwrap_or_else(&act.real),
                    Next::Free => {}
                    Next::Decided { takes: false, result } if !act.may_miss && is_miss(result) => {
                        ask(PARTED, &LockOperation::of(self.number));
                        return (act.real)();
                    }
                    Next::Decided { takes, result } => {
                        if takes {
                            surely(done);
                        }
                        self.followed(last, takes);
                        return result;
                    }
                },
            }
        }
    }

    /// Agrees on an operation that was made already, and returns the call's result.
    fn agree(self, last: &impl Last, result: c_int) -> c_int {
        let act = Act {
            real: || result,
            surely: || (),
            take_back: || false,
            takes: |_| true,
            may_miss: true,
            waits: false,
            cancels: Cancels::No,
            owner: std::ptr::null(),
        };
        self.perform(last, &act)
    }

    /// Waits for the turn of its next operation.
    fn before(self) -> Next {
        self.before_with(std::ptr::null_mut(), false)
    }

    /// The same for a call on descriptors, with a place for what the leader's call found, and for a call in which the
    /// thread `may_cancel`.
    fn before_with(self, found: *mut Found, may_cancel: bool) -> Next {
        let flags = if may_cancel { MAY_CANCEL } else { 0 };
        let answer = ask(BEFORE, &LockOperation { found, flags, ..LockOperation::of(self.number) });
        if answer & ENDED != 0 {
            return Next::Cancelled;
        }
        if answer & DECIDED != 0 {
            return Next::Decided { takes: answer & TAKES != 0, result: (answer >> 32) as c_int };
        }
        if answer & FREE != 0 { Next::Free } else { Next::Unordered }
    }

    /// Reports an operation that was made without a decision; `false` if it is to be undone, as this process follows
    /// now.
    #[inline]
    fn made(self, last: &impl Last, takes: bool, result: c_int) -> bool {
        if self.counts.shortcut() != Shortcut::Leads {
            return false;
        }
        if !takes {
            return self.say(None, false, result).is_some();
        }
        let held = last.hold();
        let before = last.read().filter(|(thread, _)| *thread != self.number);
        if result == 0 && before.is_none() {
            self.count(last, true);
            return true;
        }
        let Some(number) = self.say(before, takes, result) else { return false };
        last.write(self.number, number);
        drop(held);
        true
    }

    /// Counts a taken lock, when siblings need no more than its count.
    #[inline]
    fn count(self, last: &impl Last, leads: bool) {
        last.write(self.number, self.counts.go());
        if self.notes.concerns_others(leads) {
            ask(MATTERS, &LockOperation::of(self.number));
        }
    }

    /// Reports an operation that was made without a decision.
    #[cold]
    fn say(self, before: Option<(u64, u64)>, takes: bool, result: c_int) -> Option<u64> {
        let (last_thread, last_number) = before.unwrap_or_default();
        let flags = if takes { TAKES } else { 0 };
        let operation = LockOperation { last_thread, last_number, flags, result, ..LockOperation::of(self.number) };
        Some(ask(MADE, &operation)).filter(|number| *number != 0)
    }

    /// Reports an operation that was made in the leader's order.
    fn followed(self, last: &impl Last, takes: bool) {
        let number = ask(FOLLOWED, &LockOperation::of(self.number));
        if takes && number != 0 {
            let _held = last.hold();
            last.write(self.number, number);
        }
    }
}
