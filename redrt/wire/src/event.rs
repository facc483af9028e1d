//! What a process reports for the audit log and the summary.

use redrt_types::{ContextId, Digest, ReplicaId, SeqNum, ViewNumber, VirtualRank};
use serde::{Deserialize, Serialize};

/// Where a mismatch was found to come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// One replica of the sender disagrees with the majority: it is named.
    ReplicaCorrupt,
    /// The senders agree; the payload changed on the way.
    TransportCorrupt,
    /// The senders disagree and there is no majority.
    Undecidable,
}

/// What was done about a mismatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The payload that had arrived was delivered as it was.
    Delivered,
    /// The payload was fetched again and the agreed one delivered.
    Refetched,
    /// The payload that had arrived was the agreed one; only a digest was outvoted.
    Outvoted,
    /// The job was ended, as `--on-sdc=abort` asks.
    Aborted,
}

/// One vote on a logical message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The replica of the sending sphere whose vote it is.
    pub replica: ReplicaId,
    /// Its digest of the message.
    pub digest: Digest,
}

/// A comparison between replicas that did not come out unanimous.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    /// The replica that compared.
    pub receiver: ReplicaId,
    /// The virtual rank that sent.
    pub sender: VirtualRank,
    /// The replica that supplied the payload.
    pub supplier: ReplicaId,
    /// The communicator's name and context.
    pub communicator: String,
    /// The context the message travelled in.
    pub context: ContextId,
    /// Message tag.
    pub tag: i32,
    /// Position on the channel.
    pub sequence: SeqNum,
    /// Payload length in bytes.
    pub length_bytes: u64,
    /// Digest of the payload as it arrived.
    pub payload: Digest,
    /// What each replica of the sender said of it.
    pub votes: Vec<Vote>,
    /// The conclusion.
    pub finding: Finding,
    /// The replica that was outvoted, when it is known.
    pub culprit: Option<ReplicaId>,
    /// What was done.
    pub action: Action,
    /// The view it happened in.
    pub view: ViewNumber,
}

/// One event for the audit log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A message comparison that was not unanimous.
    Mismatch(Mismatch),
    /// Replicas of one rank took different paths outside messages (a decision that one replica did not ask for, a clock).
    Divergence {
        /// Who noticed.
        replica: ReplicaId,
        /// What differed, in words.
        what: String,
    },
    /// A connection that was lost between two living processes is there again.
    Reconnected {
        /// Who says so.
        replica: ReplicaId,
        /// The other end.
        peer: ReplicaId,
    },
    /// A fault that `--inject` asked for was carried out.
    Injected {
        /// Where.
        replica: ReplicaId,
        /// Which, in the words of `--inject`.
        fault: String,
    },
}

/// Counters of one process, for the summary; all since the start of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Logical messages sent.
    pub messages_sent: u64,
    /// Payload bytes of them.
    pub bytes_sent: u64,
    /// Logical messages delivered to the application after comparison with at least one other replica.
    pub messages_compared: u64,
    /// Payload bytes of them.
    pub bytes_compared: u64,
    /// Decisions made or followed.
    pub decisions: u64,
    /// Most bytes ever held in the retention log at once.
    pub retention_bytes_max: u64,
    /// Messages sent again to another replica after a loss.
    pub messages_resent: u64,
}
