//! Runtimes of languages that read clocks at moments of their own, as when they collect garbage, in programs
//! that read it as well.
//!
//! A collection reads when a number that only this process has says so, and asks what the system has counted. What it
//! finds is nobody's outcome. What the program reads of either goes into `state`, as any outcome does.

use super::app::Progress;
use super::process::Process;
use super::random::mix;
use crate::decision::Timed;
use crate::outcome::{Call, Outcome, Question};

/// Who asks: the program, from code that is generated sooner in one process than in another, and two that collect.
const MAIN: u64 = 1 << 32 | 2;
const GENERATED: u64 = 1 << 32 | 1;
const COLLECTORS: [u64; 2] = [2 << 32 | 2, 3 << 32 | 2];
/// It collects once in this many steps of the program.
const STEPS_PER_COLLECTION: u64 = 3;

impl Process {
    /// A collection, if it is time for one.
    pub(super) fn collect(&mut self) {
        self.clock = mix(self.clock ^ 0x6763);
        if !self.clock.is_multiple_of(STEPS_PER_COLLECTION) {
            return;
        }
        for asker in COLLECTORS {
            let question = self.time_question(asker);
            match self.replica.ask_time(question) {
                Timed::Decided(_) => {}
                Timed::MustDecide => self.replica.decide_time(question, self.shown(question)),
                Timed::Alone { .. } => self.alone_count += 1,
                // It asks how far its leader is, and hears that this is past.
                Timed::Wait => {
                    self.replica.note_apart(question);
                    self.alone_count += 1;
                }
            }
            self.drain();
        }
    }

    /// The program reads a clock, or asks what the system counts.
    pub(super) fn read_time(&mut self) -> Option<Progress> {
        let is_generated = self.app.calls > self.generates_after;
        let question = self.time_question(if is_generated { GENERATED } else { MAIN });
        let outcome = match self.replica.ask_time(question) {
            Timed::Decided(outcome) => outcome,
            Timed::MustDecide => {
                let outcome = self.shown(question);
                self.replica.decide_time(question, outcome.clone());
                outcome
            }
            // The leader makes all readings of its program's: its siblings part here.
            Timed::Alone { .. } => self.shown(question),
            Timed::Wait => {
                self.drain();
                return Some(Progress::Blocked);
            }
        };
        self.drain();
        self.app.absorb(match (question.call, outcome) {
            (Call::Reading, Outcome::Clock { ns, .. }) => ns,
            (Call::Facts, Outcome::Bytes(bytes)) => u64::from_le_bytes(bytes.try_into().expect("a number")),
            (call, outcome) => panic!("{} decided {outcome:?} where it {call}", self.me()),
        });
        None
    }

    /// By turns one about a clock and one about what the system counts.
    fn time_question(&self, asker: u64) -> Question {
        let question = if self.app.calls.is_multiple_of(2) { Question::reading } else { Question::facts };
        question(asker, self.app.told_place(), self.app.decision_index)
    }

    /// What the clock or the system shows: something else in each process.
    fn shown(&self, question: Question) -> Outcome {
        let shown = mix(self.clock);
        match question.call {
            Call::Facts => Outcome::Bytes(shown.to_le_bytes().to_vec()),
            _ => Outcome::Clock { clock: 2, ns: shown },
        }
    }
}
