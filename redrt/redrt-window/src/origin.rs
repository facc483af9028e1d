//! The origin's side: requests out, answers in, and the operations that are pending at each target.

use super::epoch::{Access, Epochs};
use super::order::{Order, Request};
use super::server::Inbox;
use super::{Purpose, Window};
use redrt_abi::error::{Error, Result};
use redrt_engine::payload::{Payload, Target};
use redrt_engine::request::{Operation, RequestId, Status};
use redrt_engine::{self as engine, Engine};
use redrt_process::lock;
use std::collections::VecDeque;
use std::ffi::c_int;

/// State of an origin on a window.
pub struct Origin {
    /// The epochs that are open.
    pub epochs: Epochs,
    /// Number of the fence epoch.
    pub fence: u64,
    tag_count: u64,
    toward: Vec<Toward>,
    /// Number of the program's requests that wait for an answer.
    linked_count: usize,
}

/// State of an origin toward one target.
#[derive(Default)]
struct Toward {
    pending: VecDeque<Pending>,
    /// Operations in the current fence epoch.
    fence_count: u64,
    /// True if operations were sent since the last flush.
    is_touched: bool,
    /// In an epoch that locks all: true if the target's lock was requested.
    is_lock_asked: bool,
}

/// An operation that is not complete at the origin.
struct Pending {
    /// Receive of the answer, or send of the data.
    operation: RequestId,
    /// The program's request for the operation.
    user: Option<RequestId>,
}

/// Number of new pending operations after which completed ones are removed.
const REAP_INTERVAL: usize = 64;

/// Completion of an operation for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The operation completes when its epoch ends, or with a flush.
    Plain,
    /// The operation has a request that the program completes.
    Requested,
}

impl Origin {
    /// The state before any operation.
    pub fn new(member_count: usize) -> Self {
        let toward = (0..member_count).map(|_| Toward::default()).collect();
        Self { epochs: Epochs::default(), fence: 0, tag_count: 0, toward, linked_count: 0 }
    }

    /// Takes the numbers of operations to each target in the fence epoch that ends.
    pub fn take_fence_counts(&mut self) -> Vec<u64> {
        self.toward.iter_mut().map(|toward| std::mem::take(&mut toward.fence_count)).collect()
    }

    /// Targets that were sent operations since they were flushed.
    pub fn touched(&self) -> Vec<u32> {
        (0..self.toward.len() as u32).filter(|target| self.toward[*target as usize].is_touched).collect()
    }

    /// Takes the targets whose locks were requested in an epoch that locks all.
    pub fn take_asked_locks(&mut self) -> Vec<u32> {
        let asked = self.toward.iter_mut().map(|toward| std::mem::take(&mut toward.is_lock_asked));
        asked.zip(0..).filter_map(|(asked, target)| asked.then_some(target)).collect()
    }

    /// Records that all operations on these targets are done.
    pub fn settled(&mut self, targets: &[u32]) {
        for target in targets {
            self.toward[*target as usize].is_touched = false;
        }
    }

    /// Returns true if this epoch requests the lock of each target when it first reaches the target.
    pub fn locks_all(&self) -> bool {
        *self.epochs.access() == Access::LockedAll { unchecked: false }
    }

    /// Returns true if this epoch needs the target's lock and has not requested it. From now on the lock counts as
    /// requested.
    pub fn needs_lock(&mut self, target: u32) -> bool {
        self.locks_all() && !std::mem::replace(&mut self.toward[target as usize].is_lock_asked, true)
    }

    fn tag(&mut self) -> i32 {
        self.tag_count += 1;
        (self.tag_count & 0x3fff_ffff) as i32
    }
}

impl Window {
    /// Sends data to a target: with the request or, if they are lent and long, in a message after it. Returns the
    /// program's request, if `effect` asks for one.
    pub fn push(
        &self,
        target: u32,
        order: impl FnOnce(Option<i32>) -> Order,
        data: Payload,
        effect: Effect,
    ) -> Option<RequestId> {
        let apart = matches!(data, Payload::User { .. }) && data.len() > APART_BYTES_MIN;
        let tag = apart.then(|| lock(&self.origin).tag());
        let _issuing = lock(&self.issuing);
        if !apart {
            use redrt_transport::network::Source;
            self.issue(target, order(None), data.bytes());
            return self.user_request(effect, true);
        }
        self.issue(target, order(tag), &[]);
        let sent = self.send(Purpose::Data, target, tag.unwrap_or_default(), data);
        let user = self.user_request(effect, sent.is_none());
        if let Some(operation) = sent {
            self.record(target, operation, user);
        }
        user
    }

    /// Sends a target a request whose answer goes to `into`. Returns the program's request, if `effect` asks for one.
    pub fn ask(
        &self,
        target: u32,
        order: impl FnOnce(i32) -> Order,
        data: &[u8],
        into: Target,
        effect: Effect,
    ) -> Option<RequestId> {
        let tag = lock(&self.origin).tag();
        let _issuing = lock(&self.issuing);
        let operation = engine::cell().lock().post(self.context(Purpose::Answers), Some(target), Some(tag), into);
        let user = self.user_request(effect, false);
        self.record(target, operation, user);
        self.issue(target, order(tag), data);
        user
    }

    #[inline(always)]
    pub(super) fn user_request(&self, effect: Effect, is_complete: bool) -> Option<RequestId> {
        match effect {
            Effect::Plain => None,
            Effect::Requested => Some(self.new_request(is_complete)),
        }
    }

    #[inline(never)]
    fn new_request(&self, is_complete: bool) -> RequestId {
        let mut engine = engine::cell().lock();
        let id = engine.requests.insert(Operation::Other);
        engine.requests.get(id).comm = self.comm.handle().0;
        if is_complete {
            engine.requests.complete(id, Status::EMPTY);
        }
        id
    }

    fn record(&self, target: u32, operation: RequestId, user: Option<RequestId>) {
        let count = {
            let mut origin = lock(&self.origin);
            origin.linked_count += usize::from(user.is_some());
            let pending = &mut origin.toward[target as usize].pending;
            pending.push_back(Pending { operation, user });
            pending.len()
        };
        if count % REAP_INTERVAL == 0 {
            self.reap();
        }
    }

    /// Sends a request. If it needs a lock, sends the request for the lock before it.
    fn issue(&self, target: u32, order: Order, data: &[u8]) {
        let (fence, needs_lock) = {
            let mut origin = lock(&self.origin);
            let is_operation = is_operation(&order);
            let fence = (is_operation && *origin.epochs.access() == Access::Fence).then_some(origin.fence);
            let needs_lock = is_operation && origin.needs_lock(target);
            let toward = &mut origin.toward[target as usize];
            toward.fence_count += u64::from(fence.is_some());
            toward.is_touched |= is_operation;
            (fence, needs_lock)
        };
        if needs_lock {
            self.request(target, Order::Lock { exclusive: false, tag: None }, None, &[]);
        }
        self.request(target, order, fence, data);
    }

    pub(super) fn request(&self, target: u32, order: Order, fence: Option<u64>, data: &[u8]) {
        let bytes = Request { fence, order }.encode(data);
        self.send(Purpose::Requests, target, 0, Payload::Owned(bytes));
    }

    /// Sends a target a request for its lock. With `wait`, waits until this process has it.
    pub(super) fn ask_lock(&self, target: u32, exclusive: bool, wait: bool) {
        let tag = wait.then(|| lock(&self.origin).tag());
        let inbox = Inbox::default();
        let answer = tag.map(|tag| {
            engine::cell().lock().post(self.context(Purpose::Answers), Some(target), Some(tag), inbox.target())
        });
        self.request(target, Order::Lock { exclusive, tag }, None, &[]);
        if let Some(answer) = answer {
            engine::cell().finish(answer);
            if target == self.rank() {
                self.take_note();
            }
        }
    }

    /// Records that the lock of this target was requested in this epoch.
    pub(super) fn record_lock(&self, target: u32) {
        lock(&self.origin).toward[target as usize].is_lock_asked = true;
    }

    /// Sends each target a request that is answered when all earlier ones are done. Waits for the answers, and for
    /// operations that are pending here. Fails if an operation has failed at a target.
    ///
    /// This process comes last: its server stands still from the answer until [`Window::take_note`], and other targets
    /// may need it before.
    pub(super) fn settle(&self, targets: &[u32], order: impl Fn(i32) -> Order) -> Result {
        let others: Vec<_> = targets.iter().copied().filter(|target| *target != self.rank()).collect();
        let mut outcome = self.settle_with(&others, &order);
        if others.len() < targets.len() {
            let own = self.settle_with(&[self.rank()], &order);
            self.take_note();
            outcome = outcome.and(own);
        }
        outcome
    }

    fn settle_with(&self, targets: &[u32], order: &impl Fn(i32) -> Order) -> Result {
        let mut answers = Vec::with_capacity(targets.len());
        for target in targets {
            let _issuing = lock(&self.issuing);
            let tag = {
                let mut origin = lock(&self.origin);
                origin.toward[*target as usize].is_touched = false;
                origin.tag()
            };
            let inbox = Inbox::default();
            let context = self.context(Purpose::Answers);
            let id = engine::cell().lock().post(context, Some(*target), Some(tag), inbox.target());
            answers.push((*target, id, inbox));
            self.request(*target, order(tag), None, &[]);
        }
        // Answers to earlier operations come first, in the order of requests.
        self.complete_here(targets);
        let mut outcome = Ok(());
        for (target, id, inbox) in answers {
            engine::cell().finish(id);
            let class = inbox.take().try_into().map_or(0, c_int::from_ne_bytes);
            if class != 0 && outcome.is_ok() {
                let what = format!("an operation failed at rank {target} of {}", self.label());
                outcome = Err(Error::new(class, what));
            }
        }
        outcome
    }

    /// Waits until operations on these targets are complete at the origin: the program may use their buffers again.
    pub(super) fn complete_here(&self, targets: &[u32]) {
        for target in targets {
            let pending = {
                let mut origin = lock(&self.origin);
                let pending = std::mem::take(&mut origin.toward[*target as usize].pending);
                origin.linked_count -= pending.iter().filter(|pending| pending.user.is_some()).count();
                pending
            };
            for Pending { operation, user } in pending {
                let status = engine::cell().finish(operation);
                if let Some(user) = user {
                    engine::cell().lock().requests.complete(user, outcome_of(&status));
                }
            }
        }
    }

    /// Completes requests of the program whose operations have completed.
    pub(super) fn finish_linked(&self) {
        if lock(&self.origin).linked_count > 0 {
            self.reap();
        }
    }

    fn reap(&self) {
        let mut engine = engine::cell().lock();
        let mut origin = lock(&self.origin);
        let mut linked = 0;
        for toward in &mut origin.toward {
            while let Some(first) = toward.pending.front().filter(|first| engine.requests.is_complete(first.operation))
            {
                linked += usize::from(first.user.is_some());
                finish(&mut engine, first);
                toward.pending.pop_front();
            }
        }
        origin.linked_count -= linked;
    }
}

/// Lent data longer than this are not copied into the request: they go in a message of their own.
const APART_BYTES_MIN: usize = 8 << 10;

fn is_operation(order: &Order) -> bool {
    match order {
        Order::Put { .. } | Order::Get { .. } | Order::Accumulate { .. } | Order::Fetch { .. } => true,
        Order::Compare { .. } => true,
        Order::Lock { .. } | Order::Unlock { .. } | Order::Flush { .. } | Order::Complete => false,
        Order::Attach { .. } | Order::Detach { .. } | Order::Close => false,
    }
}

fn finish(engine: &mut Engine, pending: &Pending) {
    let status = engine.requests.take(pending.operation);
    if let Some(user) = pending.user {
        engine.requests.complete(user, outcome_of(&status));
    }
}

/// Status of the program's request for an operation: only its error is defined (MPI-5.0 §12.3.5).
fn outcome_of(status: &Status) -> Status {
    Status { error: status.error, ..Status::EMPTY }
}
