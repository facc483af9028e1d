//! Tasks: futures that wait for requests. They run on the caller's stack, or as requests that any waiting thread
//! advances. Collectives, windows and persistent requests are made of them.

use super::payload::Payload;
use super::request::{Operation, RequestId, Status};
use super::{Engine, Runtime, cell};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// Number of the engine's completions: a pending task is worth polling again only after another one.
fn completions(engine: &Engine) -> u64 {
    engine.requests.completions
}

/// Runs a task to its end.
pub fn block_on<T>(task: impl Future<Output = T>) -> T {
    run(task, false)
}

/// The same. With `at_once` the first poll may well end it, as over a board, so the engine is not locked before it.
#[inline(always)]
pub fn run<T>(task: impl Future<Output = T>, mut at_once: bool) -> T {
    let mut task = pin!(task);
    let cell = cell();
    loop {
        let seen = if at_once { 0 } else { completions(&cell.lock()) };
        if let Poll::Ready(value) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        if !std::mem::take(&mut at_once) {
            cell.wait_for(|engine| (completions(engine) != seen).then_some(()));
        }
    }
}

struct Active {
    task: Pin<Box<dyn Future<Output = Status> + Send>>,
    request: RequestId,
    /// The engine's completions at its last poll.
    seen: u64,
}

process_local! {
    static ACTIVE: Mutex<Vec<Active>> = Mutex::new(Vec::new());
    static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// Returns true if tasks are under way.
#[inline]
pub fn is_active() -> bool {
    ACTIVE_COUNT.load(Ordering::Acquire) > 0
}

/// Begins a task that any waiting thread advances. Its outcome is that of the request.
pub fn start(task: impl Future<Output = Status> + Send + 'static) -> RequestId {
    let cell = cell();
    let request = cell.lock().requests.insert(Operation::Other);
    let mut active = Active { task: Box::pin(task), request, seen: NEVER };
    // Another thread may be asleep, and this one may be long in coming back.
    let is_over = if cell.has_one_thread() { active.poll_closely().is_over } else { active.advance() };
    if !is_over {
        ACTIVE_COUNT.fetch_add(1, Ordering::AcqRel);
        ACTIVE.lock().expect("no task panics").push(active);
    }
    request
}

/// Advances the task of a request that the calling thread is about to wait for, as long as the task waits only for
/// events in shared memory, and for a bounded time. Looking there directly takes less time than full rounds of
/// progress.
pub fn attend(request: RequestId) {
    if !is_active() || HELD.get() {
        return;
    }
    let found = {
        let mut list = ACTIVE.lock().expect("no task panics");
        let place = list.iter().position(|active| active.request == request && active.seen == NEVER);
        place.map(|place| list.remove(place))
    };
    let Some(mut active) = found else { return };
    let mut polled = active.poll_closely();
    if !polled.is_over && polled.awaits_memory {
        let cell = cell();
        cell.poll_repeatedly(|| {
            polled = active.poll_closely();
            polled.is_over || !polled.awaits_memory
        });
    }
    if polled.is_over || active.advance() {
        ACTIVE_COUNT.fetch_sub(1, Ordering::AcqRel);
    } else {
        ACTIVE.lock().expect("no task panics").push(active);
    }
}

/// Mark of a task that was not polled yet, or only by a look: it must be polled again whatever is complete.
const NEVER: u64 = u64::MAX;

/// Result of a poll of a task.
struct Polled {
    is_over: bool,
    awaits_memory: bool,
}

/// Treatment of a pending task by the thread that polls it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Leaves it until something is complete.
    Leaves,
    /// Looks again by itself.
    Looks,
    /// Looks again by itself; the task has said that it waits for memory.
    Awaits,
}

per_thread! {
    static MANNER: Cell<Manner> = Cell::new(Manner::Leaves);
    static IN_TASK: Cell<bool> = Cell::new(false);
}

/// Returns true if the calling thread is advancing a task. Another thread could, at another time, so the task's acts
/// have no position in the program.
#[inline]
pub fn is_in_task() -> bool {
    IN_TASK.get()
}

/// Called by a task that waits for an event in memory. Returns true if the polling thread looks again by itself; else
/// the task must add a meeting to the engine.
pub fn is_looked_at_again() -> bool {
    let looks = MANNER.get() != Manner::Leaves;
    if looks {
        MANNER.set(Manner::Awaits);
    }
    looks
}

impl Active {
    /// Polls the task if anything has completed since its last poll. Returns true if it is over.
    fn advance(&mut self) -> bool {
        let seen = completions(&cell().lock());
        if seen == self.seen {
            return false;
        }
        self.seen = seen;
        let before = MANNER.replace(Manner::Leaves);
        let is_over = self.poll();
        MANNER.set(before);
        is_over
    }

    /// Polls the task for a thread that will look again.
    fn poll_closely(&mut self) -> Polled {
        let seen = completions(&cell().lock());
        let before = MANNER.replace(Manner::Looks);
        let is_over = self.poll();
        let awaits_memory = MANNER.replace(before) == Manner::Awaits;
        self.seen = if awaits_memory { NEVER } else { seen };
        Polled { is_over, awaits_memory }
    }

    fn poll(&mut self) -> bool {
        let was_in_task = IN_TASK.replace(true);
        let polled = self.task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        IN_TASK.set(was_in_task);
        match polled {
            Poll::Pending => false,
            Poll::Ready(status) => {
                cell().lock().requests.complete(self.request, status);
                true
            }
        }
    }
}

/// Advances all tasks, with no lock held: reductions may call user functions. A task that another thread is advancing
/// is left to that thread.
///
/// Does nothing while a callback waits for the time of day: another call of the same function could come in between.
pub fn advance_all() {
    if HELD.get() {
        return;
    }
    let mut turns = ACTIVE.lock().expect("no task panics").len();
    while turns > 0 {
        turns -= 1;
        let Some(mut active) = take_first() else { return };
        if active.advance() {
            ACTIVE_COUNT.fetch_sub(1, Ordering::AcqRel);
        } else {
            let seen = active.seen;
            ACTIVE.lock().expect("no task panics").push(active);
            // Another thread may have looked for a newer completion in vain while this task was not in the list.
            turns += usize::from(completions(&cell().lock()) != seen);
        }
    }
}

per_thread! {
    static HELD: Cell<bool> = Cell::new(false);
}

/// Runs `run`, during which this thread advances no task.
pub fn hold<T>(run: impl FnOnce() -> T) -> T {
    let was_held = HELD.replace(true);
    let value = run();
    HELD.set(was_held);
    value
}

fn take_first() -> Option<Active> {
    let mut list = ACTIVE.lock().expect("no task panics");
    if list.is_empty() { None } else { Some(list.remove(0)) }
}

/// Makes a request that completes, with the receive's outcome, when both a send and a receive have. `otherwise` is its
/// outcome without a receive. `keep` is memory that the send reads.
pub fn pair(
    sending: Option<RequestId>,
    receiving: Option<RequestId>,
    otherwise: Status,
    keep: Option<Payload>,
) -> RequestId {
    start(async move {
        let status = match receiving {
            Some(id) => Finish(Some(id)).await,
            None => otherwise,
        };
        if let Some(id) = sending {
            Finish(Some(id)).await;
        }
        drop(keep);
        status
    })
}

/// Completes `later` with the outcome of `first`, once that is complete.
pub fn follow(first: RequestId, later: RequestId) {
    let task = start(async move {
        let status = Finish(Some(first)).await;
        cell().lock().requests.complete(later, status);
        Status::EMPTY
    });
    cell().lock().requests.detach(task);
}

/// Future of a request's outcome.
struct Finish(Option<RequestId>);

impl Future for Finish {
    type Output = Status;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Status> {
        let mut engine = cell().lock();
        let id = self.0.expect("not polled after completion");
        if !engine.requests.is_complete(id) {
            return Poll::Pending;
        }
        self.0 = None;
        Poll::Ready(engine.requests.take(id))
    }
}

process_local! {
    /// Number of tasks that wait for this replica's program to reach the position of its leader's.
    static BEHIND_COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// Begins (`true`) or ends a task's wait for the program.
pub fn wait_for_program(waits: bool) {
    if waits {
        BEHIND_COUNT.fetch_add(1, Ordering::Relaxed);
    } else {
        BEHIND_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if tasks wait for the program, and it has moved: the calling thread is in another MPI call than at its
/// last question. Then they must look. Only once for each call: else a thread that waits in one would never sleep.
#[inline]
pub(super) fn program_has_come_further(runtime: &dyn Runtime) -> bool {
    BEHIND_COUNT.load(Ordering::Relaxed) > 0 && has_come_further(runtime)
}

#[cold]
fn has_come_further(runtime: &dyn Runtime) -> bool {
    per_thread! {
        static CALLS: Cell<u64> = Cell::new(0);
    }
    let calls = runtime.call_count();
    CALLS.replace(calls) != calls
}
