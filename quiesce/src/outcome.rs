//! Outcomes that depend on timing, and how replicas name them: the words in which decisions are told.

use redrt_types::{ContextId, Tag};
use serde::{Deserialize, Serialize};

/// A sequence of outcomes that the program asks for in a fixed order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum StreamId {
    /// The sources of the `MPI_ANY_SOURCE` receives of one context, by wildcard index.
    Match(ContextId),
    /// Outcomes of the calls of one thread, in program order.
    Thread(u64),
    /// What comes from outside at a call that is agreed on: by turns what it is, and which call.
    Signals,
}

/// Names one outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DecisionKey {
    /// The stream.
    pub stream: StreamId,
    /// Position in the stream, from 0.
    pub index: u64,
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// A test or probe found nothing. Runs of it take one place in the log.
    NotReady,
    /// The source of a wildcard receive.
    Source(u32),
    /// Which request completed (`MPI_Waitany`, `MPI_Testany`).
    Index(u32),
    /// Which requests completed (`MPI_Waitsome`, `MPI_Testsome`).
    Indices(Vec<u32>),
    /// Whether something was so (`MPI_Test`, `MPI_Test_cancelled`).
    Flag(bool),
    /// What a probe found.
    Message {
        /// Rank of the sender in the communicator.
        source: u32,
        /// Its tag.
        tag: Tag,
    },
    /// A number read from outside.
    Value(u64),
    /// What a clock showed.
    Clock {
        /// Which clock, as the system numbers them.
        clock: i32,
        /// Its reading in nanoseconds.
        ns: u64,
    },
    /// Bytes read from outside.
    Bytes(Vec<u8>),
}

/// One place in the sequence of decisions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct DecisionItem {
    /// The (first) outcome it decides.
    pub key: DecisionKey,
    /// How many consecutive outcomes of the stream it decides: 1, or more for a run of `NotReady`.
    pub repeat: u32,
    /// What they are.
    pub outcome: Outcome,
}
