//! Frames that no sound replica sends.
//!
//! A replica with corrupt memory may send anything. A frame that cannot be right is refused and changes nothing, except
//! that decisions before the wrong one in it are taken. A frame that is wrong but possible is found by comparing
//! digests, or not at all.

use crate::outcome::{DecisionKey, StreamId};
use redrt_types::{ContextId, ReplicaId, SeqNum};

/// The refusal of a frame that contradicts known facts. Either of the two replicas may be the corrupt one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{by} {breach}")]
pub struct ProtocolError {
    /// The sender of the frame.
    pub by: ReplicaId,
    /// The fault in it.
    pub breach: Breach,
}

/// The fault in a frame, named by the rule it breaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Breach {
    /// Offers of a channel come in order.
    #[error("offers message {} of context {:016x} where {expected} is the next", .sequence.0, .context.0)]
    OfferOutOfOrder {
        /// Context of the channel.
        context: ContextId,
        /// The message that was offered.
        sequence: SeqNum,
        /// The next message of the channel.
        expected: u64,
    },
    /// Each replica announces the messages of a channel in order, from one that the receiver has asked for.
    #[error("speaks of message {} of context {:016x}, and nobody has spoken of {end} yet", .sequence.0, .context.0)]
    FarAhead {
        /// Context of the channel.
        context: ContextId,
        /// The message that was announced.
        sequence: SeqNum,
        /// The first message that no replica has announced yet.
        end: u64,
    },
    /// A receiver does not ask for a message that it has acknowledged.
    #[error("asks for message {} of context {:016x}, which it has acknowledged", .sequence.0, .context.0)]
    FetchAfterAck {
        /// Context of the channel.
        context: ContextId,
        /// The message that was asked for.
        sequence: SeqNum,
    },
    /// Decisions arrive in order.
    #[error("tells decisions from number {first} on, and only {known} are known")]
    DecisionGap {
        /// Number of the first decision in the frame.
        first: u64,
        /// Number of decisions that are known here.
        known: u64,
    },
    /// A leader cannot have made this decision.
    #[error("tells decision number {number} on {key:?}, which is none")]
    BadDecision {
        /// Number of the decision.
        number: u64,
        /// The outcome that it decides.
        key: DecisionKey,
    },
    /// The outcomes of a stream are decided in order.
    #[error("tells outcome {index} of {stream:?} where {expected} is the next")]
    OutcomeOutOfOrder {
        /// The stream of the outcome.
        stream: StreamId,
        /// Position of the outcome in the stream.
        index: u64,
        /// The next position without a decision.
        expected: u64,
    },
    /// Only decisions that were sent can be acknowledged or stable.
    #[error("says that the decisions before {upto} are held, and only {known} were told")]
    UnknownDecisions {
        /// End of the decisions that are claimed to be held or stable.
        upto: u64,
        /// Number of decisions that were sent.
        known: u64,
    },
    /// Every replica holds all stable decisions.
    #[error("says that it holds no decision from {held} on, but those before {kept} are stable and forgotten")]
    ForgottenDecisions {
        /// Number of decisions that the sender holds.
        held: u64,
        /// The first decision that is still kept here.
        kept: u64,
    },
    /// A thread asks for one cancellation at a time, which bounds the ballots of a replica.
    #[error("casts more than {max} ballots on outcomes that are not decided")]
    TooManyBallots {
        /// Maximum number of ballots.
        max: usize,
    },
    /// An outcome is decided by a replica of the same rank.
    #[error("speaks of a leader with index {by}, and its rank has {degree} replicas")]
    NoSuchLeader {
        /// The index that was named.
        by: u16,
        /// Number of places in the rank.
        degree: u16,
    },
    /// A thread waits for one outcome at a time, which bounds the claims of a replica.
    #[error("says of more than {max} streams what it asks for")]
    TooManyClaims {
        /// Maximum number of claims.
        max: usize,
    },
}
