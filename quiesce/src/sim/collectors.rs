//! Runtimes of languages that read clocks at moments of their own, as when they collect garbage, in programs
//! that read it as well.
//!
//! A collection reads when a number that only this process has says so. What it finds is nobody's outcome. What the
//! program reads goes into `state`, as any outcome does.

use super::app::Progress;
use super::process::Process;
use super::random::mix;
use crate::decision::Timed;
use crate::outcome::{Outcome, Question};

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
                Timed::MustDecide => self.replica.decide_time(question, self.shown_time()),
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

    /// The program reads a clock.
    pub(super) fn read_time(&mut self) -> Option<Progress> {
        let is_generated = self.app.calls > self.generates_after;
        let question = self.time_question(if is_generated { GENERATED } else { MAIN });
        let outcome = match self.replica.ask_time(question) {
            Timed::Decided(outcome) => outcome,
            Timed::MustDecide => {
                let outcome = self.shown_time();
                self.replica.decide_time(question, outcome.clone());
                outcome
            }
            // The leader makes all readings of its program's: its siblings part here.
            Timed::Alone { .. } => self.shown_time(),
            Timed::Wait => {
                self.drain();
                return Some(Progress::Blocked);
            }
        };
        self.drain();
        let Outcome::Clock { ns, .. } = outcome else { panic!("{} decided {outcome:?} for a clock", self.me()) };
        self.app.absorb(ns);
        None
    }

    fn time_question(&self, asker: u64) -> Question {
        Question::reading(asker, self.app.told_place(), self.app.decision_index)
    }

    /// What the clock shows: another time in each process.
    fn shown_time(&self) -> Outcome {
        Outcome::Clock { clock: 2, ns: mix(self.clock) }
    }
}
