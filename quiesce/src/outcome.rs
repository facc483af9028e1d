//! Outcomes that depend on timing: their names, and the questions for which they are decided. Decisions are sent in
//! these terms.

use redrt_types::{ContextId, ReplicaIndex, Tag, VirtualRank};
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A sequence of outcomes that the program asks for in a fixed order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum StreamId {
    /// The sources of the `MPI_ANY_SOURCE` receives of one context, by wildcard index.
    Match(ContextId),
    /// Outcomes of the calls of one thread, in program order.
    Thread(u64),
    /// Events from outside at a call that is agreed on. Entries alternate between the event and the call.
    Signals,
    /// The messages of a channel, by position. They are not decided, but replicas are asked if they send them.
    Channel(VirtualRank, ContextId),
    /// Readings of clocks, and of counters of the system, by one thread outside MPI. Each is known by its moment
    /// ([`Question::reading`]) and not by its position, since replicas need not make the same ones.
    Readings(u64),
}

/// The name of one outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DecisionKey {
    /// The stream of the outcome.
    pub stream: StreamId,
    /// Position in the stream, from 0.
    pub index: u64,
}

/// The place of a thread in its program. Actions that no thread takes at a place of its own, for example those of a
/// nonblocking collective, have the thread of [`Place::NOWHERE`]. Sound replicas ask for the same outcome at the same
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// Number of the thread; the same in all replicas.
    pub thread: u64,
    /// Number of MPI calls that the thread has begun. `u64::MAX` when it has ended.
    pub calls: u64,
    /// Number of the kind of the latest of these calls. A replica may be in another call there, and never return from
    /// it.
    pub kind: u16,
}

/// The kind of a question. Its text follows on the name of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Call {
    /// `MPI_Test` or `MPI_Testall`, and any poll that found nothing.
    #[default]
    Test,
    /// A call of `MPI_Testany`.
    TestAny,
    /// A call of `MPI_Testsome`.
    TestSome,
    /// A call of `MPI_Iprobe` or `MPI_Improbe`.
    TestMessage,
    /// A call of `MPI_Waitany`.
    WaitAny,
    /// A call of `MPI_Waitsome`.
    WaitSome,
    /// `MPI_Probe` or `MPI_Mprobe` for any source.
    Probe,
    /// A call of `MPI_Cancel`.
    Cancel,
    /// A call of `MPI_Wtime`.
    Clock,
    /// A call of the system that changes nothing: `stat`, `read`.
    Observe,
    /// A change that others can see: `write`, `unlink`, `mkdir`.
    Change,
    /// A number that differs between hosts.
    Number,
    /// An action that all replicas must be able to take.
    Agreement,
    /// A request of another rank for one-sided communication is served.
    Serve,
    /// A signal is delivered.
    Signal,
    /// A receive from any source is posted.
    Receive,
    /// A message is sent.
    Send,
    /// A thread takes the lock of its interpreter.
    Turn,
    /// A reading of a clock outside MPI, perhaps by the runtime of a language.
    Reading,
    /// A reading of what the system counts, outside MPI: memory, faults, load.
    Facts,
}

impl Call {
    /// Returns true for questions without a position among the thread's other ones.
    pub(crate) fn is_reading(self) -> bool {
        matches!(self, Self::Reading | Self::Facts)
    }

    /// Returns true if this question can have such an outcome. Frames that claim otherwise are refused.
    fn can_have(self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::NotReady => self == Self::Test,
            Outcome::Flag(_) => matches!(self, Self::Test | Self::Cancel | Self::Agreement),
            Outcome::Index(_) => matches!(self, Self::TestAny | Self::WaitAny),
            Outcome::Indices(_) => matches!(self, Self::TestSome | Self::WaitSome),
            Outcome::Message { .. } => matches!(self, Self::TestMessage | Self::Probe),
            Outcome::Clock { .. } => matches!(self, Self::Clock | Self::Reading),
            Outcome::Bytes(_) => matches!(self, Self::Observe | Self::Change | Self::Turn | Self::Facts),
            Outcome::Value(_) => matches!(self, Self::Number | Self::Serve | Self::Signal),
            Outcome::Source(_) => self == Self::Receive,
            Outcome::Retracted => true,
        }
    }
}

/// Writes the action of a replica that asks so, to follow on its name.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Test | Self::TestAny | Self::TestSome => "polls",
            Self::TestMessage => "probes for a message",
            Self::WaitAny | Self::WaitSome => "waits for one of several requests",
            Self::Probe => "waits in a probe",
            Self::Cancel => "cancels a receive",
            Self::Clock => "reads a clock",
            Self::Observe => "reads a file or its state",
            Self::Change => "changes a file",
            Self::Number => "asks for a number of its host",
            Self::Agreement => "asks whether all replicas agree",
            Self::Serve => "serves a one-sided request",
            Self::Signal => "takes a signal",
            Self::Receive => "receives from any source",
            Self::Send => "sends a message",
            Self::Turn => "takes its interpreter's lock",
            Self::Reading => "reads a clock of the system",
            Self::Facts => "asks what the system counts",
        })
    }
}

/// A thread's question. An outcome is of use only for the same question, so the replicas of a rank compare it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Question {
    /// The kind of call.
    pub call: Call,
    /// Digest of the arguments that decide on the path, such as the requests, the file or the offset.
    pub arguments: u64,
    /// Digest of the data that is written. Zero where nothing is.
    pub data: u64,
    /// The place of the thread that asks.
    pub place: Place,
}

impl Place {
    /// The number of calls of a thread that has ended.
    pub const ENDED: u64 = u64::MAX;

    /// A place that no thread passes while it lives. It stands for questions of no thread in particular, and for those
    /// of programs whose replicas need not make the same calls. A replica that is asked about it can only answer that a
    /// thread has ended.
    pub const NOWHERE: Self = Self { thread: u64::MAX, calls: u64::MAX - 1, kind: 0 };

    /// Returns true if this place is before the other, of the same thread.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.thread == other.thread && self.calls < other.calls
    }

    /// Returns true if a thread at this place will not come to the other any more.
    pub(crate) fn is_past(&self, other: &Self) -> bool {
        self.calls > other.calls || self.calls == other.calls && self.kind != other.kind
    }
}

impl Question {
    /// The question of the server of a window, which is no thread of the program: how many MPI calls must `thread` have
    /// begun when the next request is served? Requests arrive as messages and are compared as such, so nothing more is
    /// compared here.
    #[must_use]
    pub fn serve(server: u64, thread: u64) -> Self {
        Self { call: Call::Serve, arguments: thread, data: 0, place: Place { thread: server, ..Place::NOWHERE } }
    }

    /// The question for a reading of a clock. `asker` identifies the code that asks ([`Question::asker`]), `place` is
    /// the thread's place, and `outcomes` is the number of outcomes it has had. Readings in which all these agree are
    /// the same.
    #[must_use]
    pub fn reading(asker: u64, place: Place, outcomes: u64) -> Self {
        Self { call: Call::Reading, arguments: asker, data: outcomes, place }
    }

    /// The question for a counter of the system. It works like [`Question::reading`].
    #[must_use]
    pub fn facts(asker: u64, place: Place, outcomes: u64) -> Self {
        Self { call: Call::Facts, ..Self::reading(asker, place, outcomes) }
    }

    /// Identifies the code that reads a clock. `innermost` is a digest of the clock and of the function that asks.
    /// `all` also covers its callers, as far as they are known. `is_cut` is true if callers are missing, because code
    /// that was generated at run time is among them. Replicas generate such code at different times.
    #[must_use]
    pub fn asker(innermost: u64, all: u64, is_cut: bool) -> u64 {
        innermost >> 32 << 32 | all >> 32 & !1 | u64::from(is_cut)
    }

    /// Returns true if both may be the same reading, where one asker or both are not known in full.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let (asker, other_asker) = (self.arguments, other.arguments);
        self.call == other.call && (asker ^ other_asker) >> 32 == 0 && (asker | other_asker) & 1 == 1
    }

    /// The moment of a reading in the course of its thread. Readings are in this order.
    pub(crate) fn moment(&self) -> (u64, u64) {
        (self.place.calls, self.data)
    }

    /// The question without its details, for the case that nothing was found. A poll that finds nothing may be any
    /// poll.
    pub(crate) fn in_vain(mut self) -> Self {
        let is_poll = matches!(self.call, Call::Test | Call::TestAny | Call::TestSome | Call::TestMessage);
        let call = if is_poll { Call::Test } else { self.call };
        (self.call, self.arguments, self.data) = (call, 0, 0);
        self
    }

    /// Returns true if this is such a poll, without details.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.call == Call::Test && self.in_vain() == *self
    }

    /// The question of a wildcard receive, chained to the receives before it in its context. `others` is their digest,
    /// and the arguments become the digest of all.
    pub(crate) fn receive_after(mut self, others: u64) -> Self {
        let place = Some(self.place).filter(|place| place.thread != Place::NOWHERE.thread);
        let mut hasher = FxHasher::default();
        (others, self.arguments, place).hash(&mut hasher);
        self.arguments = hasher.finish();
        self
    }

    /// Returns true if this is the same wildcard receive. A receive without a place of its own may be any one with the
    /// same tag.
    pub(crate) fn is_same_receive(&self, other: &Self) -> bool {
        let is_somewhere = |question: &Self| question.place.thread != Place::NOWHERE.thread;
        let is_apart = is_somewhere(self) && is_somewhere(other) && self.place != other.place;
        (self.call, self.arguments) == (other.call, other.arguments) && !is_apart
    }

    /// Returns true if two questions differ at most in the data that is written.
    #[must_use]
    pub fn is_same_call(&self, other: &Self) -> bool {
        (self.call, self.arguments, self.place) == (other.call, other.arguments, other.place)
    }
}

/// The result of a decision.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// A test or probe found nothing. A run of them takes one place in the log.
    NotReady,
    /// The source of a wildcard receive.
    Source(u32),
    /// The request that completed (`MPI_Waitany`, `MPI_Testany`).
    Index(u32),
    /// The requests that completed (`MPI_Waitsome`, `MPI_Testsome`).
    Indices(Vec<u32>),
    /// A condition (`MPI_Test`, `MPI_Test_cancelled`).
    Flag(bool),
    /// The message that a probe found.
    Message {
        /// Rank of the sender in the communicator.
        source: u32,
        /// Tag of the message.
        tag: Tag,
    },
    /// A number read from outside.
    Value(u64),
    /// The reading of a clock.
    Clock {
        /// Number of the clock, as in the system's interface.
        clock: i32,
        /// Its reading in nanoseconds.
        ns: u64,
    },
    /// Bytes that were read from outside.
    Bytes(Vec<u8>),
    /// A new leader voids an earlier one's decisions on this stream, from this outcome on, because its program had left
    /// the path of its siblings.
    Retracted,
}

impl Outcome {
    /// Returns true for the source of a wildcard receive.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Self::Source(_))
    }
}

/// The question for which a leader decided an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Decided {
    /// The leader that decided.
    pub by: ReplicaIndex,
    /// The question of the leader.
    pub question: Question,
}

/// One entry in the sequence of decisions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct DecisionItem {
    /// The outcome it decides, or the first of a run.
    pub key: DecisionKey,
    /// Number of consecutive outcomes that it decides: 1, or more for a run of `NotReady`.
    pub repeat: u32,
    /// In a run, the number of MPI calls from one poll to the next.
    pub stride: u32,
    /// The outcome, the same for the whole run.
    pub outcome: Outcome,
    /// The leader's question at the first outcome.
    pub question: Question,
    /// The leader that decided.
    pub by: ReplicaIndex,
}

impl DecisionItem {
    /// The decision of `by` on one outcome, at its own question.
    #[must_use]
    pub fn new(key: DecisionKey, question: Question, outcome: Outcome, by: ReplicaIndex) -> Self {
        let question = if outcome == Outcome::NotReady { question.in_vain() } else { question };
        Self { key, repeat: 1, stride: 0, outcome, question, by }
    }

    /// The index after the last outcome it decides.
    pub(crate) fn end(&self) -> u64 {
        self.key.index + u64::from(self.repeat)
    }

    /// Returns true if a leader can have made this decision: only empty polls come in runs, and a wildcard receive gets
    /// a source.
    pub(crate) fn is_possible(&self) -> bool {
        let is_run = self.repeat > 1;
        let fits = match self.key.stream {
            StreamId::Match(_) => matches!(self.outcome, Outcome::Source(_)) && !is_run,
            StreamId::Thread(_) => !is_run || self.outcome == Outcome::NotReady,
            StreamId::Signals => matches!(self.outcome, Outcome::Value(_)) && !is_run,
            StreamId::Channel(..) => false,
            StreamId::Readings(_) => self.question.call.is_reading() && !is_run,
        };
        let is_apart = matches!(self.key.stream, StreamId::Readings(_));
        fits && (is_apart || !self.question.call.is_reading())
            && self.question.call.can_have(&self.outcome)
            && self.repeat > 0
            && self.key.index.checked_add(u64::from(self.repeat)).is_some()
    }

    /// For a one-sided request, the place that the program's thread must have reached when it is served
    /// ([`Question::serve`]).
    pub(crate) fn served_at(&self) -> Option<Place> {
        match self.outcome {
            Outcome::Value(calls) if self.question.call == Call::Serve => {
                Some(Place { thread: self.question.arguments, calls, kind: 0 })
            }
            _ => None,
        }
    }

    /// The leader's question at this outcome of a run.
    pub(crate) fn question_at(&self, index: u64) -> Question {
        let steps = index.saturating_sub(self.key.index).saturating_mul(u64::from(self.stride));
        let place = Place { calls: self.question.place.calls.saturating_add(steps), ..self.question.place };
        Question { place, ..self.question }
    }

    /// The form of a question for this outcome in which it is compared with the leader's.
    pub(crate) fn compared(&self, question: &Question) -> Question {
        if self.outcome == Outcome::NotReady { question.in_vain() } else { *question }
    }

    /// Extends a run of empty polls by one more, if this is the next one at the same distance. Returns false if it is
    /// not.
    pub(crate) fn extend(&mut self, key: DecisionKey, question: &Question) -> bool {
        let question = question.in_vain();
        let follows = self.outcome == Outcome::NotReady && self.key.stream == key.stream && self.end() == key.index;
        let last = self.question_at(self.end() - 1);
        let Some(distance) = question.place.calls.checked_sub(last.place.calls) else { return false };
        let what = |question: &Question| (question.call, question.place.thread, question.place.kind);
        let is_alike = what(&last) == what(&question);
        let fits = self.repeat == 1 || u64::from(self.stride) == distance;
        let (true, Ok(stride), Some(repeat)) =
            (follows && is_alike && fits, u32::try_from(distance), self.repeat.checked_add(1))
        else {
            return false;
        };
        (self.stride, self.repeat) = (stride, repeat);
        true
    }

    /// Removes the outcomes from `index` on. Returns true if any are left.
    pub(crate) fn truncate(&mut self, index: u64) -> bool {
        let left = index.saturating_sub(self.key.index).min(u64::from(self.repeat));
        self.repeat = left as u32;
        left > 0
    }
}
