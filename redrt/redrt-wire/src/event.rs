//! Reports of a process for the audit log and the summary.

use crate::fault::ProcessFault;
use crate::trace::Trace;
use redrt_types::{ContextId, Digest, ReplicaId, SeqNum, ViewNumber, VirtualRank};
use sdc_detect::{Difference, Element, Sketch};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Origin of a mismatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// A replica of the sender disagrees with the majority, and is named.
    ReplicaCorrupt,
    /// The senders agree; the payload changed under way.
    TransportCorrupt,
    /// The senders disagree and there is no majority.
    Undecidable,
}

/// Consequence of a mismatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The payload was delivered as it had arrived.
    Delivered,
    /// The payload was fetched again and the agreed one delivered.
    Refetched,
    /// The arrived payload was the agreed one, and was delivered; only a digest was outvoted.
    Outvoted,
    /// The job was ended, as `--on-sdc=abort` asks.
    Aborted,
    /// No replica has the payload as it was sent, or an arbiter cannot tell which one it is. The receiver is ended,
    /// because a sibling of it can go on.
    Withheld,
    /// The receiver waits for the votes of copies that stand ready.
    Disputed,
}

/// One vote on a logical message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// Author of the vote, a replica of the sending sphere.
    pub replica: ReplicaId,
    /// Its digest of the message.
    pub digest: Digest,
    /// The processor that it was sent from; `None` when the vote does not say.
    pub core: Option<u16>,
}

/// A process's extract of a payload that others have too, for comparison by `redrun`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Excerpt {
    /// The whole payload, at most [`Excerpt::WHOLE_BYTES_MAX`] or, in a checked program,
    /// [`Excerpt::CHECKED_BYTES_MAX`].
    Whole(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The sketch of a longer payload.
    Sketch(Sketch),
}

impl Excerpt {
    /// Bound on the bytes of a payload that is reported as a whole …
    pub const WHOLE_BYTES_MAX: usize = 16 << 10;
    /// … and the bound where the program is being checked.
    pub const CHECKED_BYTES_MAX: usize = 1 << 20;
}

/// The difference between two payloads of one message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// The receiving replica; one of two if the payloads came from two receivers.
    pub receiver: ReplicaId,
    /// The virtual rank of the sender.
    pub sender: VirtualRank,
    /// The context the message travelled in.
    pub context: ContextId,
    /// Message tag.
    pub tag: i32,
    /// Position on the channel.
    pub sequence: SeqNum,
    /// Suppliers of the first and of the second payload. The same replica twice when the payload changed under way.
    pub suppliers: [ReplicaId; 2],
    /// True if the second payload is the agreed one.
    pub is_decided: bool,
    /// View of the comparison that this belongs to.
    pub view: ViewNumber,
    /// Position and kind of the difference.
    pub difference: Difference,
}

/// A comparison between replicas that was not unanimous.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    /// The receiving replica, which compared.
    pub receiver: ReplicaId,
    /// The virtual rank of the sender.
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
    /// Votes of the sender's replicas.
    pub votes: Vec<Vote>,
    /// The conclusion.
    pub finding: Finding,
    /// The replica that was outvoted, when it is known.
    pub culprit: Option<ReplicaId>,
    /// Type of the payload's elements, as the receiver knows it.
    pub element: Element,
    /// The payload as it arrived, if no replica can tell which one is right and it is still there.
    pub excerpt: Option<Excerpt>,
    /// The consequence.
    pub action: Action,
    /// View of the comparison.
    pub view: ViewNumber,
}

/// Divergence of replicas of one rank outside messages, in words that follow on the name of the replica that noticed
/// it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Parting {
    /// Its leader read a clock where it made another call.
    #[error("its leader read a clock where this replica did not")]
    ClockOfLeader,
    /// It read a clock where its leader made another call.
    #[error("it read a clock where its leader did not")]
    ClockAlone,
    /// Threads of its interpreter reached other positions than its leader's.
    #[error("a thread of its interpreter waits for a lock that it had in its leader")]
    Turns,
    /// A thread waits for ever at a position other than that where it took a lock in its leader.
    #[error("a thread stands still elsewhere than in its leader, where it took a lock that others wait for")]
    Locks,
    /// A thread is about to take a lock where its leader's has ended, or made another call.
    #[error("a thread takes a lock that it did not take in its leader")]
    LockAlone,
    /// A thread has ended without an operation on a lock that it made in its leader.
    #[error("a thread has ended without taking a lock that it took in its leader, and for which others wait")]
    Ended,
    /// The replica and its leader read different bytes at one place of a file.
    #[error("it reads other bytes from {path} than its leader has read")]
    Read {
        /// Path of the file, or its name for the user where it has none.
        path: String,
    },
}

/// In place of a clock's number: the system's counts for the process (`getrusage`).
pub const COUNT_OF_PROCESS: i32 = 64;
/// In place of a clock's number: the system's counts for the host (`sysinfo`).
pub const COUNT_OF_HOST: i32 = 65;
/// In place of a clock's number: the processor that the thread runs on.
pub const COUNT_OF_PROCESSOR: i32 = 66;
/// In place of a clock's number: the contents of a file of `/proc` or `/sys` with such counts.
pub const COUNT_IN_FILE: i32 = 67;

/// Returns true if the number stands for the system's counts, and for no clock.
#[must_use]
pub fn is_count(clock: i32) -> bool {
    clock >= COUNT_OF_PROCESS
}

/// A replica's reading of a clock that no sibling makes, perhaps by the runtime of a language at a moment of its own;
/// or a reading of the system's counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadingAlone {
    /// The replica.
    pub replica: ReplicaId,
    /// Number of the clock in the system's numbering; negative for the processor time of another thread; or one of the
    /// numbers above.
    pub clock: i32,
    /// Number of the reading thread, the same in all replicas.
    pub thread: u64,
    /// The stack of the call.
    pub trace: Trace,
}

/// Describes the reading in words that follow on the name of the replica.
impl fmt::Display for ReadingAlone {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // Linux's numbers: CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID and so on; 11 is CLOCK_TAI.
        let clock = match self.clock {
            0 | 5 | 8 | 11 => "the time of day",
            2 => "the processor time of its process",
            3 => "the processor time of its thread",
            ..0 => "the processor time of another thread",
            COUNT_OF_PROCESS => "what its process has used",
            COUNT_OF_HOST => "how loaded its host is",
            COUNT_OF_PROCESSOR => "the number of its processor",
            COUNT_IN_FILE => "a file in which the system counts",
            _ => "the time since a beginning",
        };
        write!(f, "read {clock} alone, in thread {}", self.thread)
    }
}

/// One replica's act, where a sibling did something else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The replica.
    pub replica: ReplicaId,
    /// The act, in words that follow on the replica's name.
    pub what: String,
    /// Number of MPI calls that its thread had begun; 0 where calls are not counted.
    pub calls: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.replica, self.what)?;
        if self.calls > 0 && self.calls < u64::MAX {
            write!(f, " at its MPI call {}", self.calls)?;
        }
        Ok(())
    }
}

/// A sequence that replicas go through in the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Course {
    /// Outcomes of calls of one thread, by its number in all replicas.
    Thread(u64),
    /// Sources of receives from any source in one context.
    Sources(ContextId),
    /// Calls at which signals come.
    Signals,
    /// Messages of one channel.
    Messages {
        /// Rank of the receiver.
        to: VirtualRank,
        /// The context they travel in.
        context: ContextId,
    },
}

impl Course {
    /// Number of the thread; `None` for other sequences.
    #[must_use]
    pub fn thread(&self) -> Option<u64> {
        if let Self::Thread(thread) = self { Some(*thread) } else { None }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Thread(thread) => write!(f, "calls of thread {thread}"),
            Self::Sources(context) => write!(f, "receives from any source in context {}", context.0),
            Self::Signals => f.write_str("signals"),
            Self::Messages { to, context } => write!(f, "messages to rank {to} in context {}", context.0),
        }
    }
}

/// Identity of an outcome among those that replicas of a rank ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OutcomeId {
    /// The rank.
    pub rank: VirtualRank,
    /// The sequence that it belongs to.
    pub course: Course,
    /// Position in the sequence, from 0.
    pub index: u64,
}

/// Position in its program at which a replica asked for an outcome in which it differs from its siblings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathStack {
    /// The replica.
    pub replica: ReplicaId,
    /// The outcome, that of a [`PathMismatch`].
    pub outcome: OutcomeId,
    /// The stack of its call.
    pub trace: Trace,
}

/// Replicas of one rank asked for different outcomes at one position of their programs, or would have written different
/// bytes there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathMismatch {
    /// The outcome.
    pub outcome: OutcomeId,
    /// Acts of the replicas.
    pub steps: Vec<Step>,
    /// The conclusion: `ReplicaCorrupt` or `Undecidable`.
    pub finding: Finding,
    /// The replicas that were outvoted.
    pub culprits: Vec<ReplicaId>,
    /// Replicas that cannot go on beside their leader. Empty where only the bytes to be written differ, and where
    /// copies have to judge first.
    pub parted: Vec<ReplicaId>,
    /// The consequence.
    pub action: Action,
    /// View of the comparison.
    pub view: ViewNumber,
}

impl fmt::Display for PathMismatch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let what = match self.action {
            Action::Disputed => "ask for different things",
            _ if self.parted.is_empty() => "would write different bytes",
            _ => "took different paths",
        };
        write!(f, "replicas of rank {} {what}:", self.outcome.rank)?;
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "{} {step}", if number > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// One event for the audit log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A message comparison that was not unanimous.
    Mismatch(Box<Mismatch>),
    /// Evidence on such a comparison, once two payloads are there to be compared.
    Evidence(Box<Evidence>),
    /// Replicas of one rank asked for different outcomes at one position.
    Path(Box<PathMismatch>),
    /// Position in its program of one of these replicas, sent before [`Event::Path`] if it is known.
    PathStack(Box<PathStack>),
    /// A replica read a clock where its leader did not, or the other way round, or reads other bytes.
    Divergence {
        /// The replica that noticed it.
        replica: ReplicaId,
        /// The kind of divergence.
        parting: Parting,
    },
    /// A replica read a clock where no sibling does.
    ReadingAlone(Box<ReadingAlone>),
    /// The threads of a process are not ordered any more: the program shares semaphores with children.
    Unordered {
        /// The replica.
        replica: ReplicaId,
    },
    /// A connection that was lost between two living processes is back.
    Reconnected {
        /// The reporting end.
        replica: ReplicaId,
        /// The other end.
        peer: ReplicaId,
    },
    /// A fault that `--inject` asked for was carried out.
    Injected {
        /// The replica in which it was carried out.
        replica: ReplicaId,
        /// The fault that was asked for.
        asked: ProcessFault,
        /// The act, in words.
        fault: String,
    },
    /// The program has called a function that this job cannot have, and may hide that.
    Unsupported {
        /// The replica.
        replica: ReplicaId,
        /// The function.
        function: String,
        /// Reason and remedy.
        why: String,
    },
}

/// Messages that a process has compared in one communicator, since its start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coverage {
    /// Its name and context.
    pub communicator: String,
    /// Number of messages.
    pub messages: u64,
    /// Payload bytes of the messages.
    pub bytes: u64,
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
    /// Largest size in bytes of the retention log so far.
    pub retention_bytes_max: u64,
    /// Messages sent again to another replica after a loss.
    pub messages_resent: u64,
    /// Messages in the retention log now …
    pub retention_messages: u64,
    /// … and their bytes.
    pub retention_bytes: u64,
    /// Messages received or announced that are not settled, or not acknowledged in order: the windows of all channels.
    pub window_messages: u64,
    /// Longest time from a view without some replica until a call that was waiting went on, in nanoseconds.
    pub stall_ns_max: u64,
    /// Changes of files that were ready and waited until a majority asked for the same …
    pub changes_waited: u64,
    /// … the sum of their waits in nanoseconds …
    pub change_wait_ns: u64,
    /// … and the longest of these waits.
    pub change_wait_ns_max: u64,
    /// Memory that the process occupies now, in bytes.
    pub resident_bytes: u64,
    /// Sum over all messages sent, the same in all replicas with the same messages; 0 where no faults are injected.
    pub sent_sum: u64,
    /// The same over all messages from other ranks, as the program got them.
    pub received_sum: u64,
}
