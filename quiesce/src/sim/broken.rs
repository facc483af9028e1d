//! What must hold in a run, and does not.

use crate::error::ProtocolError;
use crate::frame::{MessageId, PayloadKey};
use redrt_types::{ReplicaId, VirtualRank};

/// One thing that does not hold. `by` is the process in which it shows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Broken {
    /// Events go on and on.
    #[error("it does not end")]
    Endless,
    /// Nothing can happen any more, and its program has not ended.
    #[error("{0} hangs")]
    Hangs(ReplicaId),
    /// It owes something to copies that nobody needs.
    #[error("{0} cannot leave")]
    CannotLeave(ReplicaId),
    /// A message is missing.
    #[error("{by} has not received {message:?}")]
    Unreceived {
        /// Where.
        by: ReplicaId,
        /// The message.
        message: MessageId,
    },
    /// Messages are kept that nobody can ask for.
    #[error("{0} has not emptied its logs")]
    LogKept(ReplicaId),
    /// The logs are empty, and their account is not.
    #[error("{by} accounts for {bytes} bytes too many")]
    BytesKept {
        /// Where.
        by: ReplicaId,
        /// How many.
        bytes: u64,
    },
    /// A verdict is open.
    #[error("{0} waits for more of a message")]
    Unsettled(ReplicaId),
    /// No sound replica is left.
    #[error("the sphere of rank {0} is lost")]
    SphereLost(VirtualRank),
    /// Sound replicas of one rank.
    #[error("{0} and {1} went different ways")]
    Parted(ReplicaId, ReplicaId),
    /// A replica whose program has stayed on its path.
    #[error("{by} says that {replica} has left its path, and it has not")]
    SoundOutvoted {
        /// Who says so.
        by: ReplicaId,
        /// The sound one.
        replica: ReplicaId,
    },
    /// Two lineages have stayed on their path, and one has left it.
    #[error("{0} does not say who has left the path, and two lineages agree")]
    PathLeftOpen(ReplicaId),
    /// A file is not as sound replicas write it.
    #[error("the file of rank {} is wrong at {at}", .rank.0)]
    Written {
        /// Whose file.
        rank: VirtualRank,
        /// Where.
        at: u64,
    },
    /// What was delivered was not sent.
    #[error("{by} received something else than was sent: {message:?}")]
    Altered {
        /// Where.
        by: ReplicaId,
        /// The message.
        message: MessageId,
    },
    /// A vote of somebody who has none.
    #[error("{by} counted a vote that is none, about {message:?}")]
    Vote {
        /// Where.
        by: ReplicaId,
        /// The message that it was about.
        message: MessageId,
    },
    /// A report that is not true.
    #[error("{by} reported falsely of {message:?}: it {why}")]
    FalseReport {
        /// Where.
        by: ReplicaId,
        /// The message.
        message: MessageId,
        /// What is wrong with it.
        why: FalseReport,
    },
    /// A flip on the way was reported too often, or not at all.
    #[error("{by} reported {count} flips, not {expected}")]
    Flips {
        /// Where.
        by: ReplicaId,
        /// How often.
        count: usize,
        /// How often it had to.
        expected: usize,
    },
    /// A corrupt replica was named too often, or not at all.
    #[error("{by} named {culprit} {count} times")]
    Named {
        /// Where.
        by: ReplicaId,
        /// The corrupt one.
        culprit: ReplicaId,
        /// How often.
        count: usize,
    },
    /// There was a sound payload to deliver.
    #[error("{0} delivered a corrupt payload")]
    CorruptDelivered(ReplicaId),
    /// No replica of the simulator sends what is refused.
    #[error("{by} refuses a frame: {error}")]
    Refused {
        /// Where.
        by: ReplicaId,
        /// Why.
        error: ProtocolError,
    },
    /// A verdict came again, or before the payload.
    #[error("{0:?} verified twice or without payload")]
    Verified(MessageId),
    /// Matching saw it twice.
    #[error("{0:?} arrived twice")]
    Arrived(MessageId),
    /// Machine and engine number a message differently.
    #[error("{message:?} is called {place}, and is {token}")]
    Misnumbered {
        /// The message.
        message: MessageId,
        /// What the machine calls it.
        place: u32,
        /// What it was told to call it.
        token: usize,
    },
    /// The engine has freed it already.
    #[error("{0:?} released twice")]
    Released(PayloadKey),
    /// The program has its buffer already.
    #[error("{0:?} detached twice, or after its release")]
    Detached(PayloadKey),
    /// It is to be sent, and is gone.
    #[error("{0:?} is sent after its release")]
    SentLate(PayloadKey),
}

/// What is wrong with a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum FalseReport {
    /// Nothing was flipped that it could be about.
    #[error("is about nothing that happened")]
    NoFault,
    /// A majority without a minority.
    #[error("names nobody")]
    NobodyNamed,
    /// Whom it names has a sound memory.
    #[error("names a sound replica")]
    SoundNamed,
    /// No connection was faulty.
    #[error("blames a transport that was sound")]
    TransportBlamed,
    /// A majority of lineages was there.
    #[error("leaves open what two lineages agree on")]
    LeftOpen,
}
