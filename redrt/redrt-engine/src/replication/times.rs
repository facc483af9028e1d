//! Readings past MPI in a replicated world, of clocks and of the system's counts. Replicas take the leader's where
//! siblings make the same reading, and their own where they do not.
//!
//! `quiesce`'s `decision::times` says which readings are the same, and when a follower need not wait for its leader's.
//! Where the leader's decisions do not tell, this module asks for the progress of the leader's thread, as for all
//! readings ([`crate::reading`]).

use super::reading::{Awaited, Patience};
use super::sphere::{Act, Sphere};
use crate::traces;
use quiesce::{Outcome, Place, Question, StreamId, Timed};
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Event, ReadingAlone, is_count};

/// Number of a thread's readings at hand from which on a follower checks the thread's position. It is below the lag
/// from which on the leader waits.
const EARLY_MAX: usize = 128;

/// Bound on the readings alone that a process reports: one for each way of asking.
const TOLD_MAX: u32 = 32;

/// A reading that a thread of the program makes.
#[derive(Clone, Copy)]
pub struct Read {
    /// The stream of the thread's outcomes.
    pub stream: StreamId,
    /// The asking code in the program ([`Question::asker`]).
    pub asker: u64,
    /// The clock or the count that is read ([`ReadingAlone::clock`]).
    pub of: i32,
}

/// The answer to a question for such a reading.
pub enum Time {
    /// Value of the clock, or of the count.
    Decided(Outcome),
    /// This process decides: read, and answer.
    Decide,
    /// No sibling makes this reading: read, and keep it.
    Alone,
    /// The leader has not decided yet.
    Wait,
    /// Followers are far behind: wait for them.
    Crowded,
}

impl Sphere<'_> {
    fn time_question(&self, read: Read) -> Question {
        let StreamId::Thread(thread) = read.stream else { return Question::default() };
        let place = Place { thread, ..self.program_place() };
        let outcomes = self.passed(read.stream);
        let question = if is_count(read.of) { Question::facts } else { Question::reading };
        question(read.asker, place, outcomes)
    }

    /// Asks for a reading. `patience`: that of the waiting thread.
    pub fn ask_time(&mut self, read: Read, patience: &mut Patience) -> Time {
        let question = self.time_question(read);
        let is_news = match self.replica.ask_time(question) {
            Timed::Decided(outcome) => {
                self.outcomes.decisions += 1;
                return Time::Decided(outcome);
            }
            Timed::MustDecide if self.is_far_ahead(StreamId::Readings(question.place.thread)) => {
                return Time::Crowded;
            }
            Timed::MustDecide => return Time::Decide,
            Timed::Alone { is_news } => is_news,
            Timed::Wait => match patience.awaited_time(self, read.stream) {
                Awaited::Perhaps | Awaited::Voted => return Time::Wait,
                Awaited::Never => self.replica.record_apart(question),
                // Threads that race may read more often before they see that they must end.
                Awaited::Ended => false,
            },
        };
        if is_news {
            self.report_alone(read.of, question.place.thread);
        }
        Time::Alone
    }

    /// Decides the reading that [`Sphere::ask_time`] asked for. `now_ns` is this machine's monotonic clock.
    pub fn answer_time(&mut self, read: Read, outcome: Outcome, now_ns: u64) {
        let question = self.time_question(read);
        self.outcomes.decisions += 1;
        self.replica.decide_time(question, outcome);
        self.send_reading(now_ns);
    }

    /// Takes in that a reading of this thread was decided. Readings of positions that the thread has passed are its
    /// leader's alone.
    pub(crate) fn pass_times(&mut self, thread: u64) {
        let early = self.replica.early_times(thread);
        if early >= EARLY_MAX && early.is_multiple_of(EARLY_MAX / 2) && self.outcomes.counts_calls() {
            let here = self.program.place_of(thread);
            self.replica.pass_times(Place { thread, ..here });
        }
    }

    fn report_alone(&mut self, clock: i32, thread: u64) {
        let told_alone = &mut self.readings().told_alone;
        *told_alone += 1;
        if *told_alone <= TOLD_MAX {
            let trace = traces::here(thread, &traces::maps());
            let alone = ReadingAlone { replica: self.me(), clock, thread, trace };
            self.ask_for(Act::Send(FromAgent::Event(Event::ReadingAlone(Box::new(alone)))));
        }
    }
}
