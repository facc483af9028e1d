//! Requests: operations under way, and completed ones whose outcome will be asked for.

use super::payload::Target;
use slab::Slab;

/// Number of a request within the engine. Reused after the request is freed; handles add a generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub u32);

const INDEX_BITS: u32 = 22;
const HANDLE_MIN: usize = 0x1000;
const INDEX_COUNT: u32 = (1 << INDEX_BITS) - HANDLE_MIN as u32;
const GENERATION_COUNT: u16 = 1 << (31 - INDEX_BITS);

/// Contents of `MPI_Status` for a completed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Rank of the sender in the communicator, or `MPI_PROC_NULL`, or `MPI_ANY_SOURCE` in an empty status.
    pub source: i32,
    /// Tag, or `MPI_ANY_TAG` in an empty status.
    pub tag: i32,
    /// Error class, `MPI_SUCCESS` = 0.
    pub error: i32,
    /// Received payload in bytes.
    pub bytes: u64,
    /// True if the operation was cancelled.
    pub cancelled: bool,
}

impl Status {
    /// The status of a wait on an inactive request, or on a completed send (MPI-5.0 §3.7.3).
    pub const EMPTY: Self =
        Self { source: crate::ANY_SOURCE, tag: crate::ANY_TAG, error: 0, bytes: 0, cancelled: false };
}

/// Begins a round of a persistent request. The error type is its maker's, which downcasts it.
pub type Start = dyn Fn() -> Result<Option<RequestId>, Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// Kind of a request's operation.
pub enum Operation {
    /// Completes when the payload is no longer needed.
    Send,
    /// Completes when the payload is in place, and verified where that is asked for.
    Receive {
        /// Destination of the payload.
        target: Target,
        /// Context it was posted in; needed to cancel it.
        context: u32,
    },
    /// Completed from outside, as a task is.
    Other,
    /// Set up once, started many times (MPI-5.0 §3.9). Complete while it is inactive.
    Persistent {
        /// Begins one round; `None` while it does. Moved out for that and not shared: counting references takes locked
        /// instructions, which wait until the message before is visible to its receiver.
        start: Option<Box<Start>>,
        /// The round under way; `None` when none exists.
        round: Option<RequestId>,
        /// True from its start until the application finds it complete.
        active: bool,
    },
}

/// An operation, and its outcome.
pub struct Request {
    /// Kind of the operation, with its data.
    pub operation: Operation,
    /// Its outcome; valid once `complete`.
    pub status: Status,
    /// True once it has completed.
    pub complete: bool,
    /// True if nobody will ask for the outcome: it is freed on completion.
    pub detached: bool,
    /// Handle of the communicator whose error handler is called on failure.
    pub comm: usize,
}

/// The request of all sends that were complete when they returned: they need no state of their own.
const COMPLETE: RequestId = RequestId(0);

/// All requests of a process.
pub struct Requests {
    slots: Slab<Request>,
    /// Number of sends that [`COMPLETE`] stands for.
    complete_count: usize,
    /// Number of times each slot was freed. It is part of handles, so that a stale handle is recognised.
    generations: Vec<u16>,
    /// Counts completions and other events that end waits.
    pub completions: u64,
}

impl Default for Requests {
    fn default() -> Self {
        let mut requests = Self { slots: Slab::new(), complete_count: 0, generations: Vec::new(), completions: 0 };
        let complete = requests.insert(Operation::Send);
        assert_eq!(complete, COMPLETE, "it is the first");
        requests.complete(complete, Status::EMPTY);
        requests
    }
}

impl Requests {
    /// Makes the request of a send that is complete.
    #[inline]
    pub fn insert_complete(&mut self) -> RequestId {
        self.complete_count += 1;
        COMPLETE
    }

    /// Begins an operation.
    #[inline]
    pub fn insert(&mut self, operation: Operation) -> RequestId {
        let request = Request { operation, status: Status::EMPTY, complete: false, detached: false, comm: 0 };
        let slot = self.slots.insert(request);
        if slot == self.generations.len() {
            self.generations.push(0);
        }
        RequestId(slot as u32)
    }

    /// All requests, except that of complete sends.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().filter(|(slot, _)| *slot != COMPLETE.0 as usize).map(|(_, request)| request)
    }

    /// Returns true if the application has asked for the outcome of all it has begun.
    pub fn is_at_rest(&self) -> bool {
        let is_idle = |request: &Request| {
            request.detached || matches!(request.operation, Operation::Persistent { active: false, .. })
        };
        self.complete_count == 0 && self.iter().all(is_idle)
    }

    /// The request with this number.
    ///
    /// # Panics
    /// Without such a request: numbers are only handed to code that frees them exactly once.
    #[inline]
    pub fn get(&mut self, id: RequestId) -> &mut Request {
        &mut self.slots[id.0 as usize]
    }

    /// Returns true if the operation has completed.
    #[inline]
    pub fn is_complete(&self, id: RequestId) -> bool {
        self.slots[id.0 as usize].complete
    }

    /// Completes an operation with this outcome.
    #[inline]
    pub fn complete(&mut self, id: RequestId, status: Status) {
        let request = &mut self.slots[id.0 as usize];
        assert!(!request.complete, "request {} completes twice", id.0);
        request.complete = true;
        request.status = status;
        self.completions += 1;
        if request.detached {
            self.free(id);
        }
    }

    #[inline]
    fn free(&mut self, id: RequestId) -> Option<Request> {
        if id == COMPLETE {
            // A program may, in error, ask for such a request twice.
            self.complete_count = self.complete_count.saturating_sub(1);
            return None;
        }
        let generation = &mut self.generations[id.0 as usize];
        *generation = (*generation + 1) % GENERATION_COUNT;
        Some(self.slots.remove(id.0 as usize))
    }

    /// The handle of a request: a positive C `int`, above the ABI's constants.
    #[inline]
    pub fn handle(&self, id: RequestId) -> usize {
        assert!(id.0 < INDEX_COUNT, "{INDEX_COUNT} requests are in use");
        usize::from(self.generations[id.0 as usize]) << INDEX_BITS | (id.0 as usize + HANDLE_MIN)
    }

    /// The request with this handle; `None` when there is none or it was freed.
    #[inline]
    pub fn resolve(&self, handle: usize) -> Option<RequestId> {
        let slot = (handle & ((1 << INDEX_BITS) - 1)).checked_sub(HANDLE_MIN)?;
        let generation = self.generations.get(slot)?;
        let is_there = slot != COMPLETE.0 as usize || self.complete_count > 0;
        let live = is_there && self.slots.get(slot).is_some_and(|request| !request.detached);
        (live && handle >> INDEX_BITS == usize::from(*generation)).then_some(RequestId(slot as u32))
    }

    /// Frees a completed request, and returns its outcome.
    #[inline]
    pub fn take(&mut self, id: RequestId) -> Status {
        let Request { complete, status, .. } = self.slots[id.0 as usize];
        assert!(complete, "request {} is taken before it completed", id.0);
        self.free(id);
        status
    }

    /// Drops interest in the outcome (`MPI_Request_free`). Returns the request if it is freed already: a persistent
    /// request may hold values that must not be dropped while the engine is locked. Its round is detached separately.
    pub fn detach(&mut self, id: RequestId) -> Option<Request> {
        let is_persistent = matches!(self.get(id).operation, Operation::Persistent { .. });
        if is_persistent || self.is_complete(id) {
            return self.free(id);
        }
        self.get(id).detached = true;
        None
    }
}
