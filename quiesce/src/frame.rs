//! What replicas tell each other, and what the machine tells its engine.
//!
//! Frames between two processes arrive in the order they were sent (per ordered pair); that is all the protocol asks
//! of a transport. Engines put the hot ones, offers, digests and acknowledgements, into headers of their own; the
//! others go through serde.

use crate::outcome::{Decided, DecisionItem, DecisionKey, Question, StreamId};
use crate::path::{Claim, PathReport};
use crate::view::Service;
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, ReplicaSet, SeqNum, ViewNumber, VirtualRank};
use sdc_detect::Vote;
use serde::{Deserialize, Serialize};

/// The engine's handle of one payload: of bytes it keeps until [`Output::Release`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PayloadKey(pub u64);

/// One frame between two replicas. `context` and a sequence number name a message on the channel from the sender of
/// the message to its receiver; which of the two sends the frame is said with each.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Frame {
    /// From a supplier: the message itself; its payload follows, or is announced for a rendezvous.
    Offer {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
        /// What the receiver matches on.
        envelope: Envelope,
        /// What the supplier says the message is.
        digest: Digest,
        /// The processor it was sent from: the engine fills it in, and nothing but reports depends on it.
        core: Option<u16>,
    },
    /// From another replica of the sender: what it says the message is. The digest covers tag and length.
    Digest {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
        /// What that replica says the message is.
        digest: Digest,
        /// As in an offer.
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
    /// From a receiver, after a change of view: from now on do this for me, starting at the bookmarks. The addressee
    /// obeys whatever view it knows itself.
    Resume {
        /// What is wanted.
        service: Service,
        /// The next position wanted on each channel; on channels that are not listed, the first.
        bookmarks: Vec<(ContextId, SeqNum)>,
        /// The view the receiver acts on.
        view: ViewNumber,
    },
    /// From a receiver: offer me this message (again), as soon as you have it.
    Fetch {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
    },
    /// From a receiver: some replicas of the addressee's rank have sent this message, or vouched for it, and others
    /// have not.
    Overdue {
        /// Context of the channel.
        context: ContextId,
        /// Position on the channel.
        sequence: SeqNum,
    },
    /// From the leader of the own sphere: decisions number `first` and following.
    Decisions {
        /// Number of the first one.
        first: u64,
        /// The decisions, in order.
        items: Vec<DecisionItem>,
    },
    /// From a follower: it holds all decisions before `upto`.
    DecisionAck {
        /// The first decision it does not hold.
        upto: u64,
    },
    /// From a follower: on these streams, of its threads, it has yet to ask for many outcomes that it holds. Its leader
    /// waits for it there. Said when that changes, and again to a new leader.
    Behind {
        /// All of them.
        streams: Vec<StreamId>,
    },
    /// From the leader: all live replicas hold the decisions before `upto`.
    Stable {
        /// The first decision that is not stable.
        upto: u64,
    },
    /// From a follower: what it can take for this outcome, which the leader decides by that. Said again to a new
    /// leader.
    Ballot {
        /// The outcome.
        key: DecisionKey,
        /// What the sender asks for.
        question: Question,
        /// 1 if it can take `Flag(true)`, else 0; or the least number that it can take. It stays so until the decision.
        says: u64,
    },
    /// From a sibling: what it asks for at this outcome, or that it has gone past it.
    Claim {
        /// The outcome.
        key: DecisionKey,
        /// What it says.
        claim: Claim,
        /// What the outcome was decided for, if that is something else than the sender asks for.
        decided: Option<Decided>,
    },
    /// From a follower to its new leader: the decisions it holds that may be unknown to others. It will take
    /// decisions from nobody else.
    DecisionSync {
        /// Number of the first one.
        first: u64,
        /// The decisions, in order.
        items: Vec<DecisionItem>,
    },
}

/// Names a logical message that this process receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct MessageId {
    /// The virtual rank that sent it.
    pub sender: VirtualRank,
    /// Context of the channel.
    pub context: ContextId,
    /// Position on the channel.
    pub sequence: SeqNum,
}

/// A message that is sent: its number, and what goes out at once, before anything that is asked for by an [`Output`].
/// Both sets are empty while the message waits for a decision to become stable.
///
/// It is handed back and not put into the queue of outputs, because every message comes this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outbound {
    /// Position on the channel.
    pub sequence: SeqNum,
    /// Replicas of the receiver that get an [`Frame::Offer`].
    pub offer_to: ReplicaSet,
    /// Replicas of the receiver that get a [`Frame::Digest`].
    pub digest_to: ReplicaSet,
}

/// What the engine is to do with the frame that it has handed over, before anything that is asked for by an
/// [`Output`].
///
/// It is handed back and not put into the queue of outputs, because every message comes this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Nothing. If the frame is an `Offer` it is a duplicate: its bytes are dropped, its rendezvous is not answered.
    Nothing,
    /// The `Offer` is a new logical message: keep it, give it to matching if it is agreed, and its payload, when
    /// complete and hashed, to `payload_received`. The payload comes with this offer, or is to be pulled from its
    /// sender.
    New {
        /// Whether matching gets it now. If not, [`Output::Agreed`] follows.
        is_agreed: bool,
    },
    /// The `Offer` is a message that arrived before and whose payload is still wanted: its supplier was lost before the
    /// payload was complete, or the payload or its envelope was corrupt. Take payload and envelope from this offer;
    /// what another replica still sends of it is void.
    Again {
        /// What the engine calls the message: see `Replica::set_place`.
        place: u32,
    },
    /// All-to-all protocol: the `Offer` is a further copy of a message. Take its payload, hash it, drop it and call
    /// `shadow_received`.
    Shadow,
}

/// What the engine is to do. Outputs are in order; `Transmit`s to one process must keep that order on the wire.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// Send a frame, possibly to this process itself. With a payload, the frame is an `Offer`: send the bytes with it
    /// or announce them for a rendezvous.
    Transmit {
        /// The addressee.
        to: ReplicaId,
        /// The frame.
        frame: Frame,
        /// The payload of an `Offer`.
        payload: Option<PayloadKey>,
    },
    /// The envelope of a message that has arrived is vouched for, and those before it on its channel are: give it to
    /// matching, with the envelope of the last offer that was taken of it.
    Agreed {
        /// The message.
        message: MessageId,
        /// What the engine calls it: see `Replica::set_place`.
        place: u32,
    },
    /// The message may be delivered; at most once for each. In `Verification::Strict` its verdict is in.
    Verified {
        /// The message.
        message: MessageId,
        /// What the engine calls it.
        place: u32,
    },
    /// A comparison was not unanimous.
    Mismatch(Box<MismatchReport>),
    /// Replicas of this rank ask for different outcomes at one position. The maker of views ends those that were
    /// outvoted; without a majority, those that have parted from the leader.
    Parted(Box<PathReport>),
    /// Every live replica of the receiver has acknowledged the message: its payload is not needed any more, and a
    /// send that waited for that is complete.
    Release {
        /// The payload.
        payload: PayloadKey,
    },
    /// Every live replica of the receiver has acknowledged the message, and it is kept for newcomers only, which may be
    /// long in coming. A send that waited for its release is complete: the engine keeps a copy of its own until
    /// [`Output::Release`].
    Detach {
        /// The payload.
        payload: PayloadKey,
    },
    /// The leader's decision on an `MPI_ANY_SOURCE` receive that is posted (`Replica::post_wildcard`): to be applied to
    /// the context's queues (`MatchQueues::apply_decision`).
    WildcardDecided {
        /// The context.
        context: ContextId,
        /// Index of the wildcard receive in its context.
        index: u64,
        /// The source that the leader matched.
        source: u32,
    },
    /// A decision is in that `lookup` may have answered `Wait` for.
    Decided {
        /// Its stream and index.
        key: DecisionKey,
    },
    /// This process decides from now on: all queues are to be set to `Order::Deciding`.
    BecameLeader,
}

/// What the audit log is told of a comparison that was not unanimous; the engine adds the communicator's name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MismatchReport {
    /// The message.
    pub message: MessageId,
    /// Its envelope as it arrived first.
    pub envelope: Envelope,
    /// The replica whose payload was compared.
    pub supplier: ReplicaId,
    /// Digest of that payload as it arrived.
    pub payload: Digest,
    /// The votes that counted.
    pub votes: Vec<Vote>,
    /// The conclusion.
    pub finding: Finding,
    /// The replica that was outvoted, when it is known; one report for each.
    pub culprit: Option<ReplicaId>,
    /// What was done.
    pub action: Action,
    /// The view it happened in.
    pub view: ViewNumber,
}

/// Where a mismatch comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Finding {
    /// One replica of the sender disagrees with the majority.
    ReplicaCorrupt,
    /// The payload changed after its supplier had hashed it.
    TransportCorrupt,
    /// The senders disagree and there is no majority.
    Undecidable,
}

/// What is done about a mismatch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The payload that had arrived is delivered.
    Delivered,
    /// Another payload is fetched and delivered.
    Refetched,
    /// The payload that had arrived is the agreed one; only another replica's vote was wrong.
    Outvoted,
    /// No replica of the sender has the payload as it was sent, or nobody can judge it and this is an arbiter: it is
    /// not delivered here, where a sibling can go on without this process. The maker of views ends it.
    Withheld,
    /// It is not delivered yet: copies of the senders stand ready to judge. The maker of views lets them in, or says
    /// that there are none any more.
    Disputed,
}
