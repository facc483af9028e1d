//! Processes of a simulated job that ask for a checkpoint, and the part of `redrun` that answers them.

use super::SimulatedJob;
use crate::world::Event;
use crate::wrong::Wrong;
use redrt_types::ProcessIndex;
use redrt_wire::control::ToAgent;
use redrt_wire::dynamic::Answer;

/// Share of attempts, in percent, in which a requested checkpoint is given up if a process is missing.
const GIVEN_UP_PERCENT: usize = 30;

impl SimulatedJob {
    /// Records that a process asks for a checkpoint, by the question with this number.
    pub(super) fn asks_for_checkpoint(&mut self, process: ProcessIndex, number: u64) {
        self.askers.push((process, number));
        self.plan_asked_checkpoint();
    }

    fn plan_asked_checkpoint(&self) {
        let mut world = self.world();
        let at_ns = world.soon();
        world.plan(at_ns, Event::Asked);
    }

    /// Takes a checkpoint for the processes that have asked. If it cannot be taken yet, the attempt is repeated or
    /// given up.
    pub(super) fn asked_checkpoint(&mut self) -> Result<(), Wrong> {
        self.askers.retain(|(process, _)| !self.members[process.0 as usize].is_lost);
        if self.askers.is_empty() {
            return Ok(());
        }
        let goes_back = self.world().random.chance(30);
        if self.checkpoint(goes_back)? {
            return Ok(());
        }
        if self.world().random.chance(GIVEN_UP_PERCENT) {
            self.answer_askers(false);
        } else {
            self.plan_asked_checkpoint();
        }
        Ok(())
    }

    /// Answers the processes that have asked: all images are copied (`is_taken`), or the checkpoint is given up.
    pub(super) fn answer_askers(&mut self, is_taken: bool) {
        for (process, number) in std::mem::take(&mut self.askers) {
            self.send(process, ToAgent::Dynamic(number, Answer::Checkpoint(is_taken)));
        }
    }
}
