//! Readings of clocks past MPI: see `decision::times`.

use super::Replica;
use crate::decision::Timed;
use crate::outcome::{Outcome, Place, Question};

impl Replica {
    /// Asks for a reading of a clock ([`Question::reading`]). It is asked for until there is an answer,
    /// and not again. `Output::Decided` tells when to ask again, and so does a change of view.
    pub fn ask_time(&mut self, question: Question) -> Timed {
        self.decisions.ask_time(&question, &mut self.outputs)
    }

    /// Decides the reading that [`Replica::ask_time`] was asked for.
    ///
    /// # Panics
    /// When this process does not decide.
    pub fn decide_time(&mut self, question: Question, outcome: Outcome) {
        self.decisions.decide_time(&question, outcome, &mut self.outputs);
    }

    /// The leader has said that it is past a reading which this process waits for. Whether it is news that who asks
    /// does so at moments of its own.
    pub fn note_apart(&mut self, question: Question) -> bool {
        self.decisions.note_apart(question.arguments)
    }

    /// The thread has come to this place: readings of clocks that its leader made before are not its own.
    pub fn pass_times(&mut self, place: Place) {
        self.decisions.pass_times(place, &mut self.outputs);
    }

    /// How many readings of clocks by a thread are known that it has not made.
    #[must_use]
    pub fn early_times(&self, thread: u64) -> usize {
        self.decisions.known_count(crate::StreamId::Readings(thread))
    }
}
