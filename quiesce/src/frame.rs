//! Frames between replicas, and the orders of the machine to its engine.
//!
//! The protocol asks one thing of a transport: frames from one process to another arrive in the order they were sent.
//! Engines put the frequent frames (offers, digests and acknowledgements) into headers of their own. The others are
//! encoded by serde.

use crate::outcome::{Decided, DecisionItem, DecisionKey, Question, StreamId};
use crate::path::{Claim, PathReport};
use crate::view::Service;
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, ReplicaSet, SeqNum, ViewNumber, VirtualRank};
use sdc_detect::Vote;
use serde::{Deserialize, Serialize};

/// The engine's handle of one payload, whose bytes it keeps until [`Output::Release`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PayloadKey(pub u64);

/// A frame between two replicas. `context` and a sequence number name a message on the channel from its sender to its
/// receiver. Each variant says which of the two sends the frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Frame {
    /// From a supplier: the message itself. Its payload follows, or is announced for a rendezvous.
    Offer {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
        /// Source, tag and length, for matching.
        envelope: Envelope,
        /// Digest of the message that the supplier has sent, by its own account.
        digest: Digest,
        /// The processor it was sent from. The engine fills it in, and only reports use it.
        core: Option<u16>,
    },
    /// From another replica of the sender: its digest of the message. It covers tag and length.
    Digest {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
        /// Digest of the message, by this replica's account.
        digest: Digest,
        /// The processor it was sent from, as in an offer.
        core: Option<u16>,
    },
    /// From a receiver: it will never ask again for messages before `upto`.
    Ack {
        /// Context of the channel.
        context: ContextId,
        /// The first position not acknowledged.
        upto: SeqNum,
    },
    /// From a receiver: it will never ask again for this message, though earlier ones are still open.
    AckOne {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
    },
    /// From a receiver: a request for a service, starting at the bookmarks. It is sent after a change of view, and the
    /// addressee obeys it whatever its own view is.
    Resume {
        /// The service wanted from now on.
        service: Service,
        /// The next position wanted on each channel. On channels that are not listed, that is the first.
        bookmarks: Vec<(ContextId, SeqNum)>,
        /// The view of the receiver.
        view: ViewNumber,
    },
    /// From a receiver: a request to offer this message, once more or as soon as it exists.
    Fetch {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
    },
    /// From a receiver: some replicas of the addressee's rank have sent this message or its digest, and others have
    /// not.
    Overdue {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
    },
    /// From the leader of the own sphere: decisions number `first` and following.
    Decisions {
        /// Number of the first decision.
        first: u64,
        /// The decisions, in order.
        items: Vec<DecisionItem>,
    },
    /// From a follower: it holds all decisions before `upto`.
    DecisionAck {
        /// The first decision it does not hold.
        upto: u64,
    },
    /// From a follower: threads that have not asked for many outcomes that it holds. Its leader waits for them. Sent
    /// when that changes, and again to a new leader.
    Behind {
        /// The streams of all threads that are behind.
        streams: Vec<StreamId>,
    },
    /// From the leader: all live replicas hold the decisions before `upto`.
    Stable {
        /// The first decision that is not stable.
        upto: u64,
    },
    /// From a follower: its ballot on an outcome, by which the leader decides. Sent again to a new leader.
    Ballot {
        /// The outcome that is voted on.
        key: DecisionKey,
        /// The sender's question for it.
        question: Question,
        /// 1 if the sender can take `Flag(true)`, else 0; or the least number that it can take. It does not change
        /// before the decision.
        says: u64,
    },
    /// From a sibling: its question for this outcome, or its place beyond that.
    Claim {
        /// The outcome in question.
        key: DecisionKey,
        /// The sender's statement about it.
        claim: Claim,
        /// The question for which it was decided, if the sender asks another one.
        decided: Option<Decided>,
    },
    /// From a follower to its new leader: the decisions it holds that others may lack. From then on it accepts
    /// decisions from no other replica.
    DecisionSync {
        /// Number of the first decision.
        first: u64,
        /// The decisions, in order.
        items: Vec<DecisionItem>,
    },
}

/// The name of a logical message that this process receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct MessageId {
    /// The virtual rank that sent it.
    pub sender: VirtualRank,
    /// Context of the channel.
    pub context: ContextId,
    /// Position on the channel.
    pub sequence: SeqNum,
}

/// The number of a message that is sent, and the frames that go out at once, before those of any [`Output`]. Both sets
/// are empty while the message waits for a decision to become stable.
///
/// It is returned rather than queued as an output, because every message takes this path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outbound {
    /// Position on the channel.
    pub sequence: SeqNum,
    /// Replicas of the receiver that get a [`Frame::Offer`].
    pub offer_to: ReplicaSet,
    /// Replicas of the receiver that get a [`Frame::Digest`].
    pub digest_to: ReplicaSet,
}

/// The engine's task for the frame it has handed over, before that of any [`Output`].
///
/// It is returned rather than queued as an output, because every message takes this path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// No task. An `Offer` is a duplicate then: its bytes are dropped, and its rendezvous is not answered.
    Nothing,
    /// The `Offer` is a new logical message. Keep it, and give it to matching if it is agreed. Give the digest of its
    /// payload, when complete, to `payload_received`. The payload comes with this offer, or is pulled from its sender.
    New {
        /// True if matching gets it now. Otherwise [`Output::Agreed`] follows.
        is_agreed: bool,
    },
    /// The `Offer` is a message that arrived before and whose payload is still wanted: its supplier was lost before the
    /// payload was complete, or payload or envelope were corrupt. Take both from this offer. Later data of another
    /// replica for it is void.
    Again {
        /// The engine's number of the message: see `Replica::set_place`.
        place: u32,
    },
    /// All-to-all protocol: the `Offer` is a further copy of a message. Take its payload, hash it, drop it and call
    /// `shadow_received`.
    Shadow,
}

/// A task for the engine. Outputs are in order, and `Transmit`s to one process must keep that order on the wire.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// Send a frame, possibly to this process itself. With a payload the frame is an `Offer`: send the bytes with it,
    /// or announce them for a rendezvous.
    Transmit {
        /// The receiver of the frame.
        to: ReplicaId,
        /// The frame to send.
        frame: Frame,
        /// The payload of an `Offer`, none for other frames.
        payload: Option<PayloadKey>,
    },
    /// The envelope of a message is agreed, and so are those before it on its channel. Give it to matching, with the
    /// envelope of the latest offer that was accepted.
    Agreed {
        /// The message that is agreed.
        message: MessageId,
        /// The engine's number of it: see `Replica::set_place`.
        place: u32,
    },
    /// The message may be delivered, at most once. In `Verification::Strict` its verdict is in.
    Verified {
        /// The message to deliver.
        message: MessageId,
        /// The engine's number of it.
        place: u32,
    },
    /// A comparison was not unanimous: report it.
    Mismatch(Box<MismatchReport>),
    /// Replicas of this rank ask for different outcomes at one position: report it. The maker of views ends those that
    /// were outvoted or, without a majority, those that have left the leader's path.
    Parted(Box<PathReport>),
    /// Every live replica of the receiver has acknowledged the message. Its payload is not needed any more, and a send
    /// that waited for that is complete.
    Release {
        /// The payload to free.
        payload: PayloadKey,
    },
    /// Every live replica of the receiver has acknowledged the message, and it is kept for newcomers only, which may be
    /// long in coming. A send that waited for its release is complete. The engine keeps a copy of its own until
    /// [`Output::Release`].
    Detach {
        /// The payload to copy.
        payload: PayloadKey,
    },
    /// The leader has decided the source of an `MPI_ANY_SOURCE` receive that is posted (`Replica::post_wildcard`).
    /// Apply it to the context's queues (`MatchQueues::apply_decision`).
    WildcardDecided {
        /// Context of the receive.
        context: ContextId,
        /// Index of the wildcard receive in its context.
        index: u64,
        /// The source that the leader matched.
        source: u32,
    },
    /// An outcome is known for which `lookup` may have returned `Wait`.
    Decided {
        /// Stream and index of the outcome.
        key: DecisionKey,
    },
    /// This process decides from now on. Set all queues to `Order::Deciding`.
    BecameLeader,
}

/// A comparison that was not unanimous, for the audit log. The engine adds the communicator's name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MismatchReport {
    /// The message that was compared.
    pub message: MessageId,
    /// The envelope of its first offer.
    pub envelope: Envelope,
    /// The replica whose payload was compared.
    pub supplier: ReplicaId,
    /// Digest of that payload as it arrived.
    pub payload: Digest,
    /// Votes of live replicas and of the supplier.
    pub votes: Vec<Vote>,
    /// The origin of the difference.
    pub finding: Finding,
    /// The replica that was outvoted. None if there is no majority. With several, each has a report of its own.
    pub culprit: Option<ReplicaId>,
    /// The reaction to the difference.
    pub action: Action,
    /// The view of the receiver.
    pub view: ViewNumber,
}

/// The origin of a mismatch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Finding {
    /// One replica of the sender disagrees with the majority.
    ReplicaCorrupt,
    /// The payload differs from the digest that its supplier sent.
    TransportCorrupt,
    /// The senders disagree and there is no majority.
    Undecidable,
}

/// The reaction to a mismatch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The payload that had arrived is delivered.
    Delivered,
    /// Another payload is fetched and delivered.
    Refetched,
    /// The payload that had arrived is the agreed one, and only another replica's vote was wrong.
    Outvoted,
    /// The message is not delivered here, since no replica of the sender has it intact, or no vote can decide and this
    /// is an arbiter. A sibling can go on without this process, and the maker of views ends it.
    Withheld,
    /// The message is not delivered yet, and copies of the senders that stand ready are to judge. The maker of views
    /// lets them in, or reports that none are left.
    Disputed,
}
