//! What no sound replica says.
//!
//! A replica whose memory is corrupt may send anything. A frame that cannot be right is refused, and changes nothing
//! (of decisions, those before the wrong one are taken); one that can be right but is not is found by comparing
//! digests, or is not found.

use crate::outcome::{DecisionKey, StreamId};
use redrt_types::{ContextId, ReplicaId, SeqNum};

/// A frame was refused, for it contradicts what is known. Either replica may be the one that errs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{by} {breach}")]
pub struct ProtocolError {
    /// Who sent the frame.
    pub by: ReplicaId,
    /// What is wrong with it.
    pub breach: Breach,
}

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Breach {
    /// Offers of a channel come in order.
    #[error("offers message {} of context {:016x} where {expected} is the next", .sequence.0, .context.0)]
    OfferOutOfOrder {
        /// The channel's context.
        context: ContextId,
        /// What was offered.
        sequence: SeqNum,
        /// What comes next.
        expected: u64,
    },
    /// Each replica speaks of the messages of a channel in order, beginning with one that the receiver has asked for.
    #[error("speaks of message {} of context {:016x}, and nobody has spoken of {end} yet", .sequence.0, .context.0)]
    FarAhead {
        /// The channel's context.
        context: ContextId,
        /// What it spoke of.
        sequence: SeqNum,
        /// The first message that nobody has spoken of.
        end: u64,
    },
    /// What was acknowledged is not asked for.
    #[error("asks for message {} of context {:016x}, which it has acknowledged", .sequence.0, .context.0)]
    FetchAfterAck {
        /// The channel's context.
        context: ContextId,
        /// What was asked for.
        sequence: SeqNum,
    },
    /// Decisions come in order.
    #[error("tells decisions from number {first} on, and only {known} are known")]
    DecisionGap {
        /// Number of the first one.
        first: u64,
        /// How many are known.
        known: u64,
    },
    /// A decision that cannot have been made.
    #[error("tells decision number {number} on {key:?}, which is none")]
    BadDecision {
        /// Its number.
        number: u64,
        /// What it is about.
        key: DecisionKey,
    },
    /// The outcomes of a stream are decided in order.
    #[error("tells outcome {index} of {stream:?} where {expected} is the next")]
    OutcomeOutOfOrder {
        /// The stream.
        stream: StreamId,
        /// The outcome.
        index: u64,
        /// The next one.
        expected: u64,
    },
    /// Only what was told can be acknowledged or stable.
    #[error("says that the decisions before {upto} are held, and only {known} were told")]
    UnknownDecisions {
        /// What it claims to hold, or to be stable.
        upto: u64,
        /// How many were told.
        known: u64,
    },
    /// All hold what is stable.
    #[error("says that it holds no decision from {held} on, but those before {kept} are stable and forgotten")]
    ForgottenDecisions {
        /// What it holds.
        held: u64,
        /// The first decision that is still kept here.
        kept: u64,
    },
    /// A thread asks for one cancellation at a time.
    #[error("casts more than {max} ballots on outcomes that are not decided")]
    TooManyBallots {
        /// The limit.
        max: usize,
    },
    /// What it speaks of was decided by a replica of its rank.
    #[error("speaks of a leader with index {by}, and its rank has {degree} replicas")]
    NoSuchLeader {
        /// The index.
        by: u16,
        /// How many replicas there are.
        degree: u16,
    },
    /// A thread waits for one outcome at a time.
    #[error("says of more than {max} streams what it asks for")]
    TooManyClaims {
        /// The limit.
        max: usize,
    },
}
