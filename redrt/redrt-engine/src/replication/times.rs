//! Readings of clocks past MPI in a replicated world, and of what the system counts: the leader's where siblings make
//! the same, each replica's own where they do not.
//!
//! Which reading is the same, and when a follower need not wait for its leader's, is `quiesce`'s `decision::times`.
//! Here it is asked how far the leader's thread has come where what it decides does not tell, as for all readings
//! ([`crate::reading`]).

use super::super::{Engine, traces};
use crate::reading::{Awaited, Patience};
use quiesce::{Outcome, Place, Question, StreamId, Timed};
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Event, ReadingAlone, is_count};

/// A follower with this many readings of a thread ahead of what it has made looks where the thread is: fewer
/// than make it one that is far behind.
const EARLY_MAX: usize = 128;

/// Readings alone of which a process tells, at most: one for each that asks in another way.
const TOLD_MAX: u32 = 32;

/// What a thread of the program reads.
#[derive(Clone, Copy)]
pub struct Read {
    /// The stream of the thread's outcomes.
    pub stream: StreamId,
    /// Who in the program asks ([`Question::asker`]).
    pub asker: u64,
    /// Of which clock, or of what the system counts ([`ReadingAlone::clock`]).
    pub of: i32,
}

/// The answer to a question for such a reading.
pub enum Time {
    /// The clock, or what the system counts, shows this.
    Decided(Outcome),
    /// Read it and answer.
    Decide,
    /// Read it: no sibling makes this reading.
    Alone,
    /// The leader has not said yet.
    Wait,
    /// Followers are far behind: wait for them.
    Crowded,
}

impl Engine {
    fn time_question(&mut self, read: Read) -> Question {
        let StreamId::Thread(thread) = read.stream else { return Question::default() };
        let place = Place { thread, ..self.program_place() };
        let outcomes = self.replication().passed(read.stream);
        let question = if is_count(read.of) { Question::facts } else { Question::reading };
        question(read.asker, place, outcomes)
    }

    /// Asks for a reading. `patience`: for how long it is awaited.
    pub fn ask_time(&mut self, read: Read, patience: &mut Patience) -> Time {
        let question = self.time_question(read);
        let asked = self.replication().replica.ask_time(question);
        self.carry_out();
        let is_news = match asked {
            Timed::Decided(outcome) => {
                self.replication().decisions += 1;
                return Time::Decided(outcome);
            }
            Timed::MustDecide if self.is_far_ahead(StreamId::Readings(question.place.thread)) => {
                return Time::Crowded;
            }
            Timed::MustDecide => return Time::Decide,
            Timed::Alone { is_news } => is_news,
            Timed::Wait => match patience.awaited_time(self, read.stream) {
                Awaited::Perhaps | Awaited::Voted => return Time::Wait,
                Awaited::Never => self.replication().replica.note_apart(question),
                // Threads that race may read more often before they see that they are to end.
                Awaited::Ended => false,
            },
        };
        if is_news {
            self.report_alone(read.of, question.place.thread);
        }
        Time::Alone
    }

    /// Decides the reading that [`Engine::ask_time`] was asked for. `now_ns` is this machine's monotonic clock.
    pub fn answer_time(&mut self, read: Read, outcome: Outcome, now_ns: u64) {
        let question = self.time_question(read);
        let replication = self.replication();
        replication.decisions += 1;
        replication.replica.decide_time(question, outcome);
        self.carry_out();
        self.tell_reading(now_ns);
    }

    /// A reading of this thread was decided. Those of before the place to which the thread has come are its leader's
    /// alone.
    pub(crate) fn pass_times(&mut self, thread: u64) {
        let early = self.replication().replica.early_times(thread);
        if early >= EARLY_MAX && early.is_multiple_of(EARLY_MAX / 2) && self.replication().counts_calls() {
            let here = self.runtime.place_of(thread);
            self.replication().replica.pass_times(Place { thread, ..here });
            self.carry_out();
        }
    }

    fn report_alone(&mut self, clock: i32, thread: u64) {
        self.readings.told_alone += 1;
        if self.readings.told_alone <= TOLD_MAX {
            let trace = traces::here(&traces::maps());
            let alone = ReadingAlone { replica: self.me, clock, thread, trace };
            self.runtime.tell(FromAgent::Event(Event::ReadingAlone(Box::new(alone))));
        }
    }
}
