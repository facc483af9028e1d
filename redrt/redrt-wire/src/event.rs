//! What a process reports for the audit log and the summary.

use crate::fault::ProcessFault;
use crate::trace::Trace;
use redrt_types::{ContextId, Digest, ReplicaId, SeqNum, ViewNumber, VirtualRank};
use sdc_detect::{Difference, Element, Sketch};
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// Nobody has the payload as it was sent, or an arbiter cannot tell which one it is; the receiver is ended, because
    /// a sibling of it can go on.
    Withheld,
    /// It waits: copies that stand ready are asked.
    Disputed,
}

/// One vote on a logical message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The replica of the sending sphere whose vote it is.
    pub replica: ReplicaId,
    /// Its digest of the message.
    pub digest: Digest,
    /// The processor it was sent from, where the vote tells.
    pub core: Option<u16>,
}

/// What a process tells of a payload that others have too, so that `redrun` can compare.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Excerpt {
    /// All of it, at most [`Excerpt::WHOLE_BYTES_MAX`].
    Whole(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Of a longer one.
    Sketch(Sketch),
}

impl Excerpt {
    /// Payloads up to this length are told in full …
    pub const WHOLE_BYTES_MAX: usize = 16 << 10;
    /// … and where the program is being checked, up to this.
    pub const CHECKED_BYTES_MAX: usize = 1 << 20;
}

/// How two payloads of one message differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// The replica that received, one of them if two payloads of two were compared.
    pub receiver: ReplicaId,
    /// The virtual rank that sent.
    pub sender: VirtualRank,
    /// The context the message travelled in.
    pub context: ContextId,
    /// Message tag.
    pub tag: i32,
    /// Position on the channel.
    pub sequence: SeqNum,
    /// Who supplied the one payload, and who the other. The same replica when it was changed on its way.
    pub suppliers: [ReplicaId; 2],
    /// Whether the other is the one that all agree on.
    pub is_decided: bool,
    /// The view in which the comparison was made that this is about.
    pub view: ViewNumber,
    /// Where and how they differ.
    pub difference: Difference,
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
    /// What the receiver takes the payload for.
    pub element: Element,
    /// The payload as it arrived, where nobody can tell which one is right and it is still there.
    pub excerpt: Option<Excerpt>,
    /// What was done.
    pub action: Action,
    /// The view it happened in.
    pub view: ViewNumber,
}

/// Where replicas of one rank took different paths outside messages, in words that follow on the name of the replica
/// that noticed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Parting {
    /// Its leader read a clock, and it made another call there.
    #[error("its leader read a clock where this replica did not")]
    ClockOfLeader,
    /// It read a clock, and its leader made another call there.
    #[error("it read a clock where its leader did not")]
    ClockAlone,
    /// Threads of its interpreter came to other places than its leader's.
    #[error("a thread of its interpreter waits for a lock that it had in its leader")]
    Turns,
    /// A thread waits for ever where in its leader it took a lock.
    #[error("a thread stands still elsewhere than in its leader, where it took a lock that others wait for")]
    Locks,
    /// The same bytes of a file are not the same for both.
    #[error("it reads other bytes from {path} than its leader has read")]
    Read {
        /// The file, or its name for the user where it has no path.
        path: String,
    },
}

/// In the place of a clock's number: what the system has counted of the process (`getrusage`).
pub const COUNT_OF_PROCESS: i32 = 64;
/// The same of its host (`sysinfo`).
pub const COUNT_OF_HOST: i32 = 65;
/// On which processor the thread runs.
pub const COUNT_OF_PROCESSOR: i32 = 66;
/// What a file of `/proc` or `/sys` says of such things.
pub const COUNT_IN_FILE: i32 = 67;

/// Whether this stands for what the system counts, and for no clock.
#[must_use]
pub fn is_count(clock: i32) -> bool {
    clock >= COUNT_OF_PROCESS
}

/// A replica read a clock where no sibling of it does: perhaps the runtime of a language, at a moment of its own. Or it
/// asked for something that the system counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadingAlone {
    /// The replica.
    pub replica: ReplicaId,
    /// The clock, as the system numbers it; negative for the processor time of another thread; or one of the numbers
    /// above.
    pub clock: i32,
    /// The thread that read it, as all replicas number it.
    pub thread: u64,
    /// The stack of the call.
    pub trace: Trace,
}

/// In words that follow on the name of the replica.
impl fmt::Display for ReadingAlone {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // As Linux numbers them: CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID and so on; 11 is CLOCK_TAI.
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

/// What one replica did, where a sibling of it did something else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The replica.
    pub replica: ReplicaId,
    /// What it did, in words that follow on its name.
    pub what: String,
    /// How many MPI calls its thread had begun; 0 where that is not counted.
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

/// What it is that replicas ask for in one order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Course {
    /// Outcomes of calls of one thread, as all replicas number it.
    Thread(u64),
    /// Sources of receives from any source in one context.
    Sources(ContextId),
    /// Calls at which signals come.
    Signals,
    /// Messages of one channel.
    Messages {
        /// To whom.
        to: VirtualRank,
        /// The context they travel in.
        context: ContextId,
    },
}

impl Course {
    /// The thread, if it is one's.
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

/// Names one of the outcomes that replicas of a rank ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OutcomeId {
    /// The rank.
    pub rank: VirtualRank,
    /// What it is of.
    pub course: Course,
    /// Which one of these, from 0.
    pub index: u64,
}

/// Where in its program a replica asked for an outcome in which it differs from its siblings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathStack {
    /// The replica.
    pub replica: ReplicaId,
    /// The outcome: that of a [`PathMismatch`].
    pub outcome: OutcomeId,
    /// The stack of its call.
    pub trace: Trace,
}

/// Replicas of one rank asked for different outcomes at one place of their programs, or would have written different
/// bytes there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathMismatch {
    /// The outcome.
    pub outcome: OutcomeId,
    /// What each replica did.
    pub steps: Vec<Step>,
    /// The conclusion: `ReplicaCorrupt` or `Undecidable`.
    pub finding: Finding,
    /// The replicas that were outvoted.
    pub culprits: Vec<ReplicaId>,
    /// The replicas that cannot go on beside their leader; empty where only the bytes differ that they write, and where
    /// copies are to judge first.
    pub parted: Vec<ReplicaId>,
    /// What was done.
    pub action: Action,
    /// The view it happened in.
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
    /// What can be said of such a comparison besides, once two payloads are there to be compared.
    Evidence(Box<Evidence>),
    /// Replicas of one rank asked for different outcomes at one place.
    Path(Box<PathMismatch>),
    /// Where in its program one of them is then, told before [`Event::Path`] where that is known.
    PathStack(Box<PathStack>),
    /// A replica of a rank read a clock where its leader did not, or the other way round, or reads other bytes.
    Divergence {
        /// Who noticed.
        replica: ReplicaId,
        /// Where they parted.
        parting: Parting,
    },
    /// A replica read a clock where no sibling does.
    ReadingAlone(Box<ReadingAlone>),
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
        /// What was asked for.
        asked: ProcessFault,
        /// What was done, in words.
        fault: String,
    },
    /// The program has called what cannot be in this job, and may hide that.
    Unsupported {
        /// Who.
        replica: ReplicaId,
        /// The function.
        function: String,
        /// Why, and what to do.
        why: String,
    },
}

/// What a process has compared in one communicator, since its start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Coverage {
    /// Its name and context.
    pub communicator: String,
    /// Messages.
    pub messages: u64,
    /// Their payload bytes.
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
    /// Most bytes ever held in the retention log at once.
    pub retention_bytes_max: u64,
    /// Messages sent again to another replica after a loss.
    pub messages_resent: u64,
    /// Messages in the retention log now …
    pub retention_messages: u64,
    /// … and their bytes.
    pub retention_bytes: u64,
    /// Messages received, or announced, that are not settled or not acknowledged in order: the windows of all channels.
    pub window_messages: u64,
    /// After a view without somebody had come, the longest time until a call that was waiting went on, in nanoseconds.
    pub stall_ns_max: u64,
    /// Changes of files that were ready to be made and waited for a majority to ask for the same …
    pub changes_waited: u64,
    /// … how long all of them did, in nanoseconds …
    pub change_wait_ns: u64,
    /// … and the one that waited longest.
    pub change_wait_ns_max: u64,
    /// Memory that the process occupies now.
    pub resident_bytes: u64,
    /// A sum over all messages sent, the same in all replicas that sent the same; 0 where no faults are injected.
    pub sent_sum: u64,
    /// The same over all messages from other ranks, as the program got them.
    pub received_sum: u64,
}
