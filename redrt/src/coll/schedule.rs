//! Running collectives: on the caller's stack, or as requests that any waiting thread moves on.

use super::{Outcome, completions};
use crate::engine;
use crate::engine::payload::Payload;
use crate::engine::request::{Operation, RequestId, Status};
use crate::runtime::threads;
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Runs a collective to its end.
pub fn block_on<T>(collective: impl Future<Output = T>) -> T {
    run(collective, false)
}

/// The same; it may well be over with the first poll (`at_once`), if it was over a board.
#[inline]
pub fn run<T>(collective: impl Future<Output = T>, at_once: bool) -> T {
    let mut collective = pin!(collective);
    if at_once && let Poll::Ready(value) = collective.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return value;
    }
    let cell = engine::cell();
    loop {
        let seen = completions(&cell.lock());
        if let Poll::Ready(value) = collective.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        cell.wait_for(|engine| (completions(engine) != seen).then_some(()));
    }
}

type Boxed = Pin<Box<dyn Future<Output = Outcome> + Send>>;

struct Active {
    collective: Boxed,
    request: RequestId,
    /// The engine's completions when it was last polled.
    seen: u64,
    /// The status that the outcome makes.
    status: Box<dyn Fn(Outcome) -> Status + Send>,
}

process_local! {
    static ACTIVE: Mutex<Vec<Active>> = Mutex::new(Vec::new());
    static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// Whether nonblocking collectives are under way.
#[inline]
pub fn is_active() -> bool {
    ACTIVE_COUNT.load(Ordering::Acquire) > 0
}

/// Begins a collective that any waiting thread moves on.
pub fn start(collective: impl Future<Output = Outcome> + Send + 'static) -> RequestId {
    start_with(collective, |outcome| {
        let error = outcome.err().map_or(0, |failure| failure.class());
        Status { error, ..Status::EMPTY }
    })
}

fn start_with(
    collective: impl Future<Output = Outcome> + Send + 'static,
    status: impl Fn(Outcome) -> Status + Send + 'static,
) -> RequestId {
    let request = engine::cell().lock().requests.insert(Operation::Other);
    let mut active = Active { collective: Box::pin(collective), request, seen: u64::MAX, status: Box::new(status) };
    if !active.advance() {
        ACTIVE_COUNT.fetch_add(1, Ordering::AcqRel);
        ACTIVE.lock().expect("no collective panics").push(active);
    }
    request
}

impl Active {
    /// Polls the collective if anything has completed since; `true` when it is over.
    fn advance(&mut self) -> bool {
        let seen = completions(&engine::cell().lock());
        if seen == self.seen {
            return false;
        }
        self.seen = seen;
        match threads::aside(|| self.collective.as_mut().poll(&mut Context::from_waker(Waker::noop()))) {
            Poll::Pending => false,
            Poll::Ready(outcome) => {
                let status = (self.status)(outcome);
                engine::cell().lock().requests.complete(self.request, status);
                true
            }
        }
    }
}

/// Moves all nonblocking collectives on, with no lock held: their reductions may call user functions. A collective that
/// another thread is moving on is left to it.
///
/// Not while a callback waits for the time of day: another call of the same function could come in between.
pub fn advance_all() {
    if HELD.get() {
        return;
    }
    let mut turns = ACTIVE.lock().expect("no collective panics").len();
    while turns > 0 {
        turns -= 1;
        let Some(mut active) = take_first() else { return };
        if active.advance() {
            ACTIVE_COUNT.fetch_sub(1, Ordering::AcqRel);
        } else {
            let seen = active.seen;
            ACTIVE.lock().expect("no collective panics").push(active);
            // What has completed since, another thread may have looked for while the collective was not in the list.
            turns += usize::from(completions(&engine::cell().lock()) != seen);
        }
    }
}

thread_local! {
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Does something during which this thread moves no nonblocking collective on.
pub fn hold<T>(run: impl FnOnce() -> T) -> T {
    let was_held = HELD.replace(true);
    let value = run();
    HELD.set(was_held);
    value
}

fn take_first() -> Option<Active> {
    let mut list = ACTIVE.lock().expect("no collective panics");
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
    let outcome = Arc::new(Mutex::new(otherwise));
    let result = outcome.clone();
    let both = async move {
        if let Some(id) = receiving {
            let status = Finish(Some(id)).await;
            *result.lock().expect("nobody panics with it") = status;
        }
        if let Some(id) = sending {
            Finish(Some(id)).await;
        }
        drop(keep);
        Ok(())
    };
    start_with(both, move |_| *outcome.lock().expect("nobody panics with it"))
}

/// Completes `later` with the outcome of `first`, when that is complete.
pub fn follow(first: RequestId, later: RequestId) {
    let task = start(async move {
        let status = Finish(Some(first)).await;
        engine::cell().lock().requests.complete(later, status);
        Ok(())
    });
    engine::cell().lock().requests.detach(task);
}

/// Completes with the outcome of a request.
struct Finish(Option<RequestId>);

impl Future for Finish {
    type Output = Status;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Status> {
        let mut engine = engine::cell().lock();
        let id = self.0.expect("not polled after completion");
        if !engine.requests.is_complete(id) {
            return Poll::Pending;
        }
        self.0 = None;
        Poll::Ready(engine.requests.take(id))
    }
}
