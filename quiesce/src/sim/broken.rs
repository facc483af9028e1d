//! Properties that must hold in a run, and the ways in which they do not.

use crate::error::ProtocolError;
use crate::frame::{MessageId, PayloadKey};
use redrt_types::{ReplicaId, VirtualRank};

/// One violated property. `by` is the process in which it shows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Broken {
    /// The run has events without end.
    #[error("it does not end")]
    Endless,
    /// No event is possible, and the program of this process has not ended.
    #[error("{0} hangs")]
    Hangs(ReplicaId),
    /// The process owes messages to copies that are never needed.
    #[error("{0} cannot leave")]
    CannotLeave(ReplicaId),
    /// A message was never received.
    #[error("{by} has not received {message:?}")]
    Unreceived {
        /// The receiver that lacks it.
        by: ReplicaId,
        /// The message that is missing.
        message: MessageId,
    },
    /// The process keeps messages that no replica can ask for.
    #[error("{0} has not emptied its logs")]
    LogKept(ReplicaId),
    /// The logs are empty, and the count of their bytes is not zero.
    #[error("{by} accounts for {bytes} bytes too many")]
    BytesKept {
        /// The process with that count.
        by: ReplicaId,
        /// The count of bytes.
        bytes: u64,
    },
    /// A verdict is missing.
    #[error("{0} waits for more of a message")]
    Unsettled(ReplicaId),
    /// The rank has no sound replica left.
    #[error("the sphere of rank {0} is lost")]
    SphereLost(VirtualRank),
    /// Sound replicas of one rank took different paths.
    #[error("{0} and {1} went different ways")]
    Parted(ReplicaId, ReplicaId),
    /// A replica was outvoted whose program has stayed on its path.
    #[error("{by} says that {replica} has left its path, and it has not")]
    SoundOutvoted {
        /// The process that reported it.
        by: ReplicaId,
        /// The replica that was outvoted.
        replica: ReplicaId,
    },
    /// No verdict was reached, though two lineages have stayed on their path and one has left it.
    #[error("{0} does not say who has left the path, and two lineages agree")]
    PathLeftOpen(ReplicaId),
    /// A file differs from the contents that sound replicas write.
    #[error("the file of rank {} is wrong at {at}", .rank.0)]
    Written {
        /// The rank whose file it is.
        rank: VirtualRank,
        /// Position in the file.
        at: u64,
    },
    /// A message was delivered with other contents than were sent.
    #[error("{by} received something else than was sent: {message:?}")]
    Altered {
        /// The receiver of the message.
        by: ReplicaId,
        /// The message that was altered.
        message: MessageId,
    },
    /// A vote counted of a replica that has none.
    #[error("{by} counted a vote that is none, about {message:?}")]
    Vote {
        /// The receiver that counted it.
        by: ReplicaId,
        /// The message that was voted on.
        message: MessageId,
    },
    /// A report is not true.
    #[error("{by} reported falsely of {message:?}: it {why}")]
    FalseReport {
        /// The process that reported it.
        by: ReplicaId,
        /// The message that was reported.
        message: MessageId,
        /// The error in the report.
        why: FalseReport,
    },
    /// A flip on the way was reported too often, or not at all.
    #[error("{by} reported {count} flips, not {expected}")]
    Flips {
        /// The receiver of the payload.
        by: ReplicaId,
        /// Number of reports so far.
        count: usize,
        /// Number of reports that were due.
        expected: usize,
    },
    /// A corrupt replica was named too often, or not at all.
    #[error("{by} named {culprit} {count} times")]
    Named {
        /// The receiver that should name it.
        by: ReplicaId,
        /// The replica that is corrupt.
        culprit: ReplicaId,
        /// Number of reports that name it.
        count: usize,
    },
    /// A corrupt payload was delivered where a sound one could be had.
    #[error("{0} delivered a corrupt payload")]
    CorruptDelivered(ReplicaId),
    /// A frame was refused, though no replica of the simulator sends an impossible one.
    #[error("{by} refuses a frame: {error}")]
    Refused {
        /// The process that refused it.
        by: ReplicaId,
        /// The reason for the refusal.
        error: ProtocolError,
    },
    /// A verdict came twice, or before the payload.
    #[error("{0:?} verified twice or without payload")]
    Verified(MessageId),
    /// Matching got the message twice.
    #[error("{0:?} arrived twice")]
    Arrived(MessageId),
    /// Machine and engine number a message differently.
    #[error("{message:?} is called {place}, and is {token}")]
    Misnumbered {
        /// The message in question.
        message: MessageId,
        /// The number of the machine.
        place: u32,
        /// The number of the engine.
        token: usize,
    },
    /// A payload was released twice.
    #[error("{0:?} released twice")]
    Released(PayloadKey),
    /// The program has its buffer back already.
    #[error("{0:?} detached twice, or after its release")]
    Detached(PayloadKey),
    /// A payload is to be sent after its release.
    #[error("{0:?} is sent after its release")]
    SentLate(PayloadKey),
}

/// The error in a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum FalseReport {
    /// No fault was injected that it could be about.
    #[error("is about nothing that happened")]
    NoFault,
    /// There is a majority, and no minority was named.
    #[error("names nobody")]
    NobodyNamed,
    /// The named replica has sound memory.
    #[error("names a sound replica")]
    SoundNamed,
    /// The transport was blamed, and no connection was faulty.
    #[error("blames a transport that was sound")]
    TransportBlamed,
    /// No verdict was reached, though there was a majority of lineages.
    #[error("leaves open what two lineages agree on")]
    LeftOpen,
}
