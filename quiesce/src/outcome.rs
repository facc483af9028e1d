//! Outcomes that depend on timing, how replicas name them, and what a thread asked for when it got one: the words in
//! which decisions are told.

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
    /// What comes from outside at a call that is agreed on: by turns what it is, and which call.
    Signals,
    /// The messages of a channel, by position: nobody decides them, but replicas are asked whether they send them.
    Channel(VirtualRank, ContextId),
    /// Readings of clocks by one thread, past MPI, and of what the system counts: each is known by its moment
    /// ([`Question::reading`]), and not by its position, since replicas need not make the same ones.
    Readings(u64),
}

/// Names one outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DecisionKey {
    /// The stream.
    pub stream: StreamId,
    /// Position in the stream, from 0.
    pub index: u64,
}

/// Where a thread is in its program. What no thread does at a place of its own, a nonblocking collective say, has the
/// thread [`Place::NOWHERE`]. Sound replicas ask for the same outcome at the same place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// Number of the thread; the same in all replicas.
    pub thread: u64,
    /// How many MPI calls the thread has begun; `u64::MAX` when it has ended.
    pub calls: u64,
    /// The number of the kind of the last of them: a replica may be in another call there, and never come out.
    pub kind: u16,
}

/// The kind of a question, in words that follow on the name of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Call {
    /// `MPI_Test`, `MPI_Testall`; and any poll that found nothing.
    #[default]
    Test,
    /// `MPI_Testany`.
    TestAny,
    /// `MPI_Testsome`.
    TestSome,
    /// `MPI_Iprobe`, `MPI_Improbe`.
    TestMessage,
    /// `MPI_Waitany`.
    WaitAny,
    /// `MPI_Waitsome`.
    WaitSome,
    /// `MPI_Probe`, `MPI_Mprobe` for any source.
    Probe,
    /// `MPI_Cancel`.
    Cancel,
    /// `MPI_Wtime`.
    Clock,
    /// A question to the system that changes nothing: `stat`, `read`.
    Observe,
    /// A change that others can see: `write`, `unlink`, `mkdir`.
    Change,
    /// A number that differs between hosts.
    Number,
    /// Something that all replicas must be able to do.
    Agreement,
    /// A request of another rank for one-sided communication is served.
    Serve,
    /// A signal comes.
    Signal,
    /// A receive from any source.
    Receive,
    /// A message is sent.
    Send,
    /// A thread takes the lock of its interpreter.
    Turn,
    /// A reading of a clock past MPI, perhaps by the runtime of a language.
    Reading,
    /// A reading of what the system counts, likewise: memory, faults, load.
    Facts,
}

impl Call {
    /// Whether it has no position among what else a thread asks for.
    pub(crate) fn is_reading(self) -> bool {
        matches!(self, Self::Reading | Self::Facts)
    }

    /// Whether an outcome can be one of this question. A frame that says otherwise is refused.
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

/// What a replica does that asks so, in words that follow on its name.
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

/// What a thread asks for: replicas of one rank compare it, since an outcome is of use only for the same question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Question {
    /// Of which kind.
    pub call: Call,
    /// Digest of the arguments that decide on the path: which requests, which file, which offset.
    pub arguments: u64,
    /// Digest of what is written; 0 where nothing is.
    pub data: u64,
    /// Where the thread is.
    pub place: Place,
}

impl Place {
    /// The number of calls of a thread that has ended.
    pub const ENDED: u64 = u64::MAX;

    /// A place that no thread passes as long as it lives: of what is asked by no thread in particular, and in programs
    /// whose replicas need not make the same calls. A replica that is asked about it can say only that a thread ended.
    pub const NOWHERE: Self = Self { thread: u64::MAX, calls: u64::MAX - 1, kind: 0 };

    /// Whether it is before another place of the same thread.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.thread == other.thread && self.calls < other.calls
    }

    /// Whether a thread that is at this place now will not come to the other any more.
    pub(crate) fn is_past(&self, other: &Self) -> bool {
        self.calls > other.calls || self.calls == other.calls && self.kind != other.kind
    }
}

impl Question {
    /// Of the server of a window, which is no thread of the program: how many MPI calls has this thread to have begun
    /// when the next request is served? Requests come as messages, so nothing more is compared.
    #[must_use]
    pub fn serve(server: u64, thread: u64) -> Self {
        Self { call: Call::Serve, arguments: thread, data: 0, place: Place { thread: server, ..Place::NOWHERE } }
    }

    /// Of a reading of a clock. `asker` is who in the program asks ([`Question::asker`]); `place` is where the thread
    /// is, and `outcomes` how many outcomes it has had. Readings with the same four are the same.
    #[must_use]
    pub fn reading(asker: u64, place: Place, outcomes: u64) -> Self {
        Self { call: Call::Reading, arguments: asker, data: outcomes, place }
    }

    /// The same of what the system counts.
    #[must_use]
    pub fn facts(asker: u64, place: Place, outcomes: u64) -> Self {
        Self { call: Call::Facts, ..Self::reading(asker, place, outcomes) }
    }

    /// Who in the program reads a clock. `innermost`: a digest of the clock and of the function that asks; `all`: of
    /// those that called it, too, as far as they are known. `is_cut`: they are not, for code that was generated while
    /// the program ran has called them. When that is generated differs between replicas.
    #[must_use]
    pub fn asker(innermost: u64, all: u64, is_cut: bool) -> u64 {
        innermost >> 32 << 32 | all >> 32 & !1 | u64::from(is_cut)
    }

    /// Whether the two may be one reading, by an asker whom not both know in full.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let (asker, other_asker) = (self.arguments, other.arguments);
        self.call == other.call && (asker ^ other_asker) >> 32 == 0 && (asker | other_asker) & 1 == 1
    }

    /// When in the course of its thread a reading of a clock is made: readings come in this order.
    pub(crate) fn moment(&self) -> (u64, u64) {
        (self.place.calls, self.data)
    }

    /// The question without what does not matter when nothing was found: a poll that finds nothing may be any poll.
    pub(crate) fn in_vain(mut self) -> Self {
        let is_poll = matches!(self.call, Call::Test | Call::TestAny | Call::TestSome | Call::TestMessage);
        let call = if is_poll { Call::Test } else { self.call };
        (self.call, self.arguments, self.data) = (call, 0, 0);
        self
    }

    /// Whether it is one of those.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.call == Call::Test && self.in_vain() == *self
    }

    /// The question of a wildcard receive that is posted after others of its context, whose digest is given: the
    /// arguments become one of all of them.
    pub(crate) fn receive_after(mut self, others: u64) -> Self {
        let place = Some(self.place).filter(|place| place.thread != Place::NOWHERE.thread);
        let mut hasher = FxHasher::default();
        (others, self.arguments, place).hash(&mut hasher);
        self.arguments = hasher.finish();
        self
    }

    /// Whether this is the same wildcard receive. One that no thread has posted at a place of its own may be any with
    /// the same tag.
    pub(crate) fn is_same_receive(&self, other: &Self) -> bool {
        let is_somewhere = |question: &Self| question.place.thread != Place::NOWHERE.thread;
        let is_apart = is_somewhere(self) && is_somewhere(other) && self.place != other.place;
        (self.call, self.arguments) == (other.call, other.arguments) && !is_apart
    }

    /// Whether two questions differ in nothing but what is written.
    #[must_use]
    pub fn is_same_call(&self, other: &Self) -> bool {
        (self.call, self.arguments, self.place) == (other.call, other.arguments, other.place)
    }
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// A test or probe found nothing. Runs of it take one place in the log.
    NotReady,
    /// The source of a wildcard receive.
    Source(u32),
    /// Which request completed (`MPI_Waitany`, `MPI_Testany`).
    Index(u32),
    /// Which requests completed (`MPI_Waitsome`, `MPI_Testsome`).
    Indices(Vec<u32>),
    /// Whether something was so (`MPI_Test`, `MPI_Test_cancelled`).
    Flag(bool),
    /// What a probe found.
    Message {
        /// Rank of the sender in the communicator.
        source: u32,
        /// Its tag.
        tag: Tag,
    },
    /// A number read from outside.
    Value(u64),
    /// What a clock showed.
    Clock {
        /// Which clock, as the system numbers them.
        clock: i32,
        /// Its reading in nanoseconds.
        ns: u64,
    },
    /// Bytes read from outside.
    Bytes(Vec<u8>),
    /// A new leader: what an earlier one decided of this stream from this outcome on is void, since its program had
    /// left the path of its siblings.
    Retracted,
}

impl Outcome {
    /// Whether it is the source of a wildcard receive.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Self::Source(_))
    }
}

/// What a leader asked for when it decided an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Decided {
    /// The leader.
    pub by: ReplicaIndex,
    /// Its question.
    pub question: Question,
}

/// One place in the sequence of decisions.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct DecisionItem {
    /// The (first) outcome it decides.
    pub key: DecisionKey,
    /// How many consecutive outcomes of the stream it decides: 1, or more for a run of `NotReady`.
    pub repeat: u32,
    /// In a run, how many MPI calls there are from one poll to the next.
    pub stride: u32,
    /// What they are.
    pub outcome: Outcome,
    /// What the leader asked for, at the first of them.
    pub question: Question,
    /// The leader that decided.
    pub by: ReplicaIndex,
}

impl DecisionItem {
    /// One outcome, decided by `by` at its own question.
    #[must_use]
    pub fn new(key: DecisionKey, question: Question, outcome: Outcome, by: ReplicaIndex) -> Self {
        let question = if outcome == Outcome::NotReady { question.in_vain() } else { question };
        Self { key, repeat: 1, stride: 0, outcome, question, by }
    }

    /// The outcome after those it decides.
    pub(crate) fn end(&self) -> u64 {
        self.key.index + u64::from(self.repeat)
    }

    /// Whether it can have been decided: only empty polls come in runs, and a wildcard receive gets a source.
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

    /// When a one-sided request is served: how far the thread of the program has to be ([`Question::serve`]).
    pub(crate) fn served_at(&self) -> Option<Place> {
        match self.outcome {
            Outcome::Value(calls) if self.question.call == Call::Serve => {
                Some(Place { thread: self.question.arguments, calls, kind: 0 })
            }
            _ => None,
        }
    }

    /// What the leader asked for at this outcome of a run.
    pub(crate) fn question_at(&self, index: u64) -> Question {
        let steps = index.saturating_sub(self.key.index).saturating_mul(u64::from(self.stride));
        let place = Place { calls: self.question.place.calls.saturating_add(steps), ..self.question.place };
        Question { place, ..self.question }
    }

    /// What a question for this outcome is compared as: what the leader asked for is, or is not, the same.
    pub(crate) fn compared(&self, question: &Question) -> Question {
        if self.outcome == Outcome::NotReady { question.in_vain() } else { *question }
    }

    /// Adds one more empty poll to a run of them, if this is the next at the same distance.
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

    /// Takes away the outcomes from `index` on; whether any is left.
    pub(crate) fn truncate(&mut self, index: u64) -> bool {
        let left = index.saturating_sub(self.key.index).min(u64::from(self.repeat));
        self.repeat = left as u32;
        left > 0
    }
}
