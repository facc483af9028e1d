//! Readings of clocks past MPI: see `decision::times`.

use super::Replica;
use crate::decision::Timed;
use crate::outcome::{Outcome, Place, Question};

impl Replica {
    /// Asks for a reading of a clock ([`Question::reading`]), until there is an answer and not again. Ask again at
    /// `Output::Decided` and after a change of view.
    pub fn ask_time(&mut self, question: Question) -> Timed {
        self.decisions.ask_time(&question, &mut self.outputs)
    }

    /// Decides the reading of [`Replica::ask_time`].
    ///
    /// # Panics
    /// When this process does not decide.
    pub fn decide_time(&mut self, question: Question, outcome: Outcome) {
        self.decisions.decide_time(&question, outcome, &mut self.outputs);
    }

    /// Notes the leader's statement that it is past a reading for which this process waits. Returns true if the asker
    /// was not known to be apart before.
    pub fn record_apart(&mut self, question: Question) -> bool {
        self.decisions.record_apart(question.arguments)
    }

    /// Drops the leader's readings before this place, which the thread has reached.
    pub fn pass_times(&mut self, place: Place) {
        self.decisions.pass_times(place, &mut self.outputs);
    }

    /// Number of readings by a thread that are known and that it has not made.
    #[must_use]
    pub fn early_times(&self, thread: u64) -> usize {
        self.decisions.known_count(crate::StreamId::Readings(thread))
    }
}
