//! Collectives over replicated point-to-point messages.
//!
//! Every algorithm is an `async fn` over [`Peers`]. A blocking collective polls it on the caller's stack, a nonblocking
//! one boxes it and lets any waiting thread poll it (`engine::tasks`). So each algorithm is written once. Algorithms
//! name every source, hence need no decisions. They combine operands in an order that depends on ranks alone, so that
//! replicas compute the same bits.
//!
//! Buffers are packed: the caller packs and unpacks data that are not contiguous.

pub mod alltoall;
pub mod barrier;
pub mod bcast;
pub mod board;
pub mod gather;
pub mod inter;
pub mod neighbor;
pub mod reduce;
pub mod scan;

use pin_project_lite::pin_project;
use redrt_abi::MPI_ERR_TRUNCATE;
use redrt_abi::error::Error;
use redrt_engine::payload::{Payload, Target};
use redrt_engine::request::{RequestId, Status};
use redrt_engine::send::{SendArguments, Sent};
use redrt_engine::{self as engine, tasks};
use redrt_runtime::threads;
use redrt_transport::memory::Region;
use redrt_types::VirtualRank;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Result of a collective and its steps.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Reason for which a collective ended early.
#[derive(Debug)]
pub enum Failure {
    /// A message was longer or shorter than its place: the members' arguments do not fit each other.
    Mismatched,
    /// The reduction was refused, or the members call different collectives.
    Refused(Error),
}

impl Failure {
    /// Error class of the failure.
    pub fn class(&self) -> i32 {
        match self {
            Self::Mismatched => MPI_ERR_TRUNCATE,
            Self::Refused(error) => error.code(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Mismatched => {
                let message = "a member sent more or less than this one expects: the calls do not fit each other";
                Self::new(MPI_ERR_TRUNCATE, message)
            }
            Failure::Refused(error) => error,
        }
    }
}

pin_project! {
    /// A collective as a task. The future stays where it is; an `async` block would move it once more.
    struct Aside<F> {
        #[pin]
        collective: F,
    }
}

impl<F: Future<Output = Outcome>> Future for Aside<F> {
    type Output = Status;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Status> {
        let collective = self.project().collective;
        let outcome = threads::aside(|| collective.poll(context));
        outcome.map(|outcome| Status { error: outcome.err().map_or(0, |failure| failure.class()), ..Status::EMPTY })
    }
}

/// Begins a collective that any waiting thread advances, at moments that differ between replicas. Returns its request.
#[inline]
pub fn start(collective: impl Future<Output = Outcome> + Send + 'static) -> RequestId {
    tasks::start(Aside { collective })
}

/// The members of a communicator in one collective operation.
#[derive(Clone)]
pub struct Peers {
    /// Context of the communicator's collectives.
    pub context: u64,
    /// Tag of this operation: collectives of one communicator are numbered.
    pub tag: i32,
    /// Rank of this process.
    pub rank: usize,
    /// Members of the communicator, by rank.
    pub members: Arc<[VirtualRank]>,
    /// The other group in a collective of two groups; messages between them have another context.
    pub across: Option<Arc<Peers>>,
    /// The board of the communicator, if the collective runs over one.
    pub table: Option<Arc<board::SharedBoard>>,
}

impl Peers {
    /// Number of members, with this one.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Begins to send all of `region` to a member.
    pub fn start_send(&self, to: usize, region: Region) -> Step {
        // SAFETY: - valid for reads until the step completes: the region's owner, the collective, awaits its steps.
        let payload = unsafe { Payload::user(region.start(), region.len()) };
        if to != self.rank {
            redrt_runtime::faults::before_send(&payload);
        }
        let arguments = SendArguments {
            context: self.context,
            source: self.rank as u32,
            to: self.members[to],
            tag: self.tag,
            payload,
            element: region.element(),
            synchronous: false,
        };
        let mut engine = engine::cell().lock();
        match engine.send(arguments) {
            Sent::Complete => Step::done(),
            pending => Step { request: Some(engine.send_request(pending)), length: None },
        }
    }

    /// Begins to receive all of `region` from a member.
    pub fn start_receive(&self, from: usize, region: Region) -> Step {
        let length = region.len() as u64;
        let target = Target { start: region.start(), capacity: length, scatter: None };
        let request = engine::cell().lock().post(self.context, Some(from as u32), Some(self.tag), target);
        Step { request: Some(request), length: Some(length) }
    }

    /// Sends all of `region` to a member.
    pub async fn send(&self, to: usize, region: Region) -> Outcome {
        self.start_send(to, region).await
    }

    /// Receives exactly all of `region` from a member. Fails for a message of another length.
    pub async fn receive(&self, from: usize, region: Region) -> Outcome {
        self.start_receive(from, region).await
    }

    /// Sends to one member while receiving from another. The send comes first, since others wait for it, unless it is
    /// to this process itself.
    pub async fn exchange(&self, to: usize, out: Region, from: usize, into: Region) -> Outcome {
        let (send, receive) = if to == self.rank {
            let receive = self.start_receive(from, into);
            (self.start_send(to, out), receive)
        } else {
            let send = self.start_send(to, out);
            (send, self.start_receive(from, into))
        };
        receive.await?;
        send.await
    }
}

/// One message of a collective, sent or received.
#[must_use = "a step that is not awaited leaves its buffer in use"]
pub struct Step {
    request: Option<RequestId>,
    /// Length that a received message must have; `None` for a send.
    length: Option<u64>,
}

impl Step {
    /// A step that is complete.
    pub fn done() -> Self {
        Self { request: None, length: None }
    }
}

impl Future for Step {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        let Some(id) = self.request else { return Poll::Ready(Ok(())) };
        let mut engine = engine::cell().lock();
        if !engine.requests.is_complete(id) {
            return Poll::Pending;
        }
        let status = engine.requests.take(id);
        self.request = None;
        let is_sound = status.error == 0 && self.length.is_none_or(|length| length == status.bytes);
        Poll::Ready(if is_sound { Ok(()) } else { Err(Failure::Mismatched) })
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(id) = self.request.take() {
            engine::cell().lock().requests.detach(id);
        }
    }
}

/// Awaits all steps. Returns the first failure, after all have ended.
pub async fn all(steps: impl IntoIterator<Item = Step>) -> Outcome {
    let mut outcome = Ok(());
    for step in steps {
        outcome = outcome.and(step.await);
    }
    outcome
}
