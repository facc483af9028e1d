//! Tasks: futures that wait for requests, run on the caller's stack or as requests that any waiting thread moves on.
//! Collectives, windows and persistent requests are made of them.

use super::payload::Payload;
use super::request::{Operation, RequestId, Status};
use super::{Engine, Runtime, cell};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// How many completions the engine has seen: a pending task is worth polling again only after another one.
fn completions(engine: &Engine) -> u64 {
    engine.requests.completions
}

/// Runs a task to its end.
pub fn block_on<T>(task: impl Future<Output = T>) -> T {
    run(task, false)
}

/// The same; it may well be over with the first poll (`at_once`), if it was over a board.
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
    /// The engine's completions when it was last polled.
    seen: u64,
}

process_local! {
    static ACTIVE: Mutex<Vec<Active>> = Mutex::new(Vec::new());
    static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// Whether tasks are under way.
#[inline]
pub fn is_active() -> bool {
    ACTIVE_COUNT.load(Ordering::Acquire) > 0
}

/// Begins a task that any waiting thread moves on, and whose outcome is that of the request.
pub fn start(task: impl Future<Output = Status> + Send + 'static) -> RequestId {
    let cell = cell();
    let request = cell.lock().requests.insert(Operation::Other);
    let mut active = Active { task: Box::pin(task), request, seen: NEVER };
    // Another thread may be asleep, and this one may be long in coming back.
    let is_over = if cell.has_one_thread() { active.look().is_over } else { active.advance() };
    if !is_over {
        ACTIVE_COUNT.fetch_add(1, Ordering::AcqRel);
        ACTIVE.lock().expect("no task panics").push(active);
    }
    request
}

/// Moves on the task of a request that the calling thread is going to wait for, as long as it waits for nothing but
/// what others bring about in memory that they share, and for a while at most. What it does is to look there, which
/// takes less time than to have it looked at among all else.
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
    let mut looked = active.look();
    if !looked.is_over && looked.awaits_memory {
        let cell = cell();
        cell.look_repeatedly(|| {
            looked = active.look();
            looked.is_over || !looked.awaits_memory
        });
    }
    if looked.is_over || active.advance() {
        ACTIVE_COUNT.fetch_sub(1, Ordering::AcqRel);
    } else {
        ACTIVE.lock().expect("no task panics").push(active);
    }
}

/// A task that was not polled yet, or whose thread only looked: it must be polled again whatever is complete.
const NEVER: u64 = u64::MAX;

/// What a look at a task has found.
struct Looked {
    is_over: bool,
    awaits_memory: bool,
}

/// How the calling thread polls a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It is polled again when something is complete.
    Leaves,
    /// The thread will look again by itself.
    Looks,
    /// The same, and the task has said that it waits for memory.
    Awaits,
}

per_thread! {
    static MANNER: Cell<Manner> = Cell::new(Manner::Leaves);
    static IN_TASK: Cell<bool> = Cell::new(false);
}

/// Whether the calling thread moves a task on. Another thread could, and at another time: what the task does is done at
/// no place of the program.
#[inline]
pub fn is_in_task() -> bool {
    IN_TASK.get()
}

/// A task says that it waits for what others bring about in memory. `true` when the thread that polls it will look
/// again by itself, else it must become a meeting of the engine.
pub fn is_looked_at_again() -> bool {
    let looks = MANNER.get() != Manner::Leaves;
    if looks {
        MANNER.set(Manner::Awaits);
    }
    looks
}

impl Active {
    /// Polls the task if anything has completed since; `true` when it is over.
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

    /// Polls it, and will do so again.
    fn look(&mut self) -> Looked {
        let seen = completions(&cell().lock());
        let before = MANNER.replace(Manner::Looks);
        let is_over = self.poll();
        let awaits_memory = MANNER.replace(before) == Manner::Awaits;
        self.seen = if awaits_memory { NEVER } else { seen };
        Looked { is_over, awaits_memory }
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

/// Moves all tasks on, with no lock held: reductions may call user functions. A task that another thread is moving on
/// is left to it.
///
/// Not while a callback waits for the time of day: another call of the same function could come in between.
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
            // What has completed since, another thread may have looked for while the collective was not in the list.
            turns += usize::from(completions(&cell().lock()) != seen);
        }
    }
}

per_thread! {
    static HELD: Cell<bool> = Cell::new(false);
}

/// Does something during which this thread moves no task on.
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

/// A request that completes, with the receive's outcome, when both a send and a receive have. `keep` is memory that the
/// send reads.
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

/// Completes `later` with the outcome of `first`, when that is complete.
pub fn follow(first: RequestId, later: RequestId) {
    let task = start(async move {
        let status = Finish(Some(first)).await;
        cell().lock().requests.complete(later, status);
        Status::EMPTY
    });
    cell().lock().requests.detach(task);
}

/// Completes with the outcome of a request.
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
    /// How many tasks wait for the program of this replica to come as far as that of its leader.
    static BEHIND_COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// A task begins to wait for the program to come further, or has waited.
pub fn wait_for_program(waits: bool) {
    if waits {
        BEHIND_COUNT.fetch_add(1, Ordering::Relaxed);
    } else {
        BEHIND_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether tasks wait for the program to come further, and it has: the calling thread is in another MPI call than when
/// it was asked before. Then they must look. Once for each call: a thread that waits in one would never sleep.
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
