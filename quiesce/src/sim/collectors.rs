//! Runtimes of languages that read clocks at moments of their own, like garbage collectors, in programs that read
//! clocks as well.
//!
//! A collection happens when a number of this process alone says so. It reads a clock and a counter of the system, and
//! its readings do not enter `state`. Readings of the program do, as any outcome does.

use super::app::Progress;
use super::process::Process;
use crate::decision::Timed;
use crate::outcome::{Call, Outcome, Question};
use simulation_kit::random::mix;

/// Askers: the program, its code that is generated sooner in one process than in another, and two collectors.
const MAIN: u64 = 1 << 32 | 2;
const GENERATED: u64 = 1 << 32 | 1;
const COLLECTORS: [u64; 2] = [2 << 32 | 2, 3 << 32 | 2];
/// The runtime collects once in this many steps of the program.
const STEPS_PER_COLLECTION: u64 = 3;

impl Process {
    /// Lets the runtime collect, if it is time.
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
                // It asks how far its leader is, and learns that the leader has passed this moment.
                Timed::Wait => {
                    self.replica.record_apart(question);
                    self.alone_count += 1;
                }
            }
            self.drain();
        }
    }

    /// Lets the program read a clock or a counter of the system.
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
            // The leader makes all readings of its program, so a sibling without one has parted here.
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

    /// Alternates between a clock and a counter of the system.
    fn time_question(&self, asker: u64) -> Question {
        let question = if self.app.calls.is_multiple_of(2) { Question::reading } else { Question::facts };
        question(asker, self.app.told_place(), self.app.decision_index)
    }

    /// The reading of clock or counter, different in each process.
    fn shown(&self, question: Question) -> Outcome {
        let shown = mix(self.clock);
        match question.call {
            Call::Facts => Outcome::Bytes(shown.to_le_bytes().to_vec()),
            _ => Outcome::Clock { clock: 2, ns: shown },
        }
    }
}
