//! Checkpoints of a simulated job: one replica of each rank is held, and the job goes on, or goes back. Messages of
//! daemons meanwhile are handled when the processes go on.
//!
//! Where messages have no numbers, all that is in flight arrives first.
//!
//! An image of a process is its whole state, and a seed is a run. So a job that goes back to a checkpoint continues
//! this run from the checkpoint on: the sources are in a job that does not know them, without connections and without
//! siblings. The time between the checkpoint and the loss is not simulated, since nothing of it remains. Other tests
//! (`quiesce`) cover siblings that are loaded from the image of a source, and siblings that go on while sources are
//! held one after another.

use super::{SimulatedJob, member_lost};
use crate::world::Event;
use crate::wrong::Wrong;
use redrt_engine::cloning::Held;
use redrt_membership::{go_on_simulated, hold_simulated, restore_simulated};
use redrt_runtime::mutation::Mutation;
use redrt_types::{Admission, CutNumber, Incarnation, ProcessIndex, ReplicaId, VirtualRank};
use redrt_wire::checkpoint::{Generation, UndoPlace};
use redrt_wire::clone::Pins;
use redrt_wire::control::ToAgent;

impl SimulatedJob {
    /// Plans checkpoints, and chooses those to which the job goes back.
    pub(super) fn plan_checkpoints(&mut self, checkpoints: usize) {
        let mut world = self.world();
        for _ in 0..checkpoints {
            let span = world.random.pick(&[10, 100, 1000]);
            let at_ns = world.now_ns + world.random.number() % (world.delay_ns_max * span);
            let goes_back = world.random.chance(60);
            world.plan(at_ns, Event::Checkpoint(goes_back));
        }
    }

    /// Takes a checkpoint, unless a process is missing. Returns true if it was taken.
    pub(super) fn checkpoint(&mut self, goes_back: bool) -> Result<bool, Wrong> {
        let world = self.world();
        let is_whole = self.members.iter().zip(0..).all(|(member, process)| {
            let is_fit = world.hears(ProcessIndex(process)) && member.output.is_none() && !member.awaits_cards;
            if member.is_lost { !self.view.is_live(member.replica) } else { is_fit }
        });
        drop(world);
        // A released job does not go back. Its processes may be held until all of them know that they may leave.
        if !is_whole || self.is_released && goes_back {
            return Ok(false);
        }
        let sources = self.choose_sources();
        if self.summary.degree == 1 {
            self.come_to_rest()?;
        }
        self.summary.checkpoints += 1;
        self.world().line_count = self.summary.checkpoints;
        if goes_back {
            self.go_back(&sources)?;
        } else {
            let siblings = self.living().into_iter().filter(|process| !sources.contains(process));
            if self.mutation != Some(Mutation::SiblingsUnsent) {
                for sibling in siblings.collect::<Vec<_>>() {
                    self.send(sibling, ToAgent::ChangesSince(self.undo_place()));
                }
            }
            for process in sources {
                self.go_on(process)?;
                self.wake(process);
            }
            self.answer_askers(true);
        }
        Ok(true)
    }

    /// The leader of each rank.
    fn choose_sources(&self) -> Vec<ProcessIndex> {
        let process = |replica: ReplicaId| {
            let place = self.members.iter().position(|member| member.replica == replica);
            ProcessIndex(place.expect("who lives is a member") as u32)
        };
        let choose = |rank| match self.mutation {
            Some(Mutation::CheckpointOfFollowers) => self.view.live(rank).next_back(),
            _ => self.view.leader(rank),
        };
        let sources = (0..self.summary.rank_count).map(VirtualRank).filter_map(choose);
        sources.map(process).collect()
    }

    /// Place of the records of changes since the checkpoint.
    fn undo_place(&self) -> UndoPlace {
        UndoPlace::beside("/line".as_ref(), Generation(self.summary.checkpoints), false)
    }

    /// Lets a process go on from the checkpoint. Its daemon's messages come with the one to go on: some before it, some
    /// after.
    fn go_on(&self, process: ProcessIndex) -> Result<(), Wrong> {
        let mut world = self.world();
        let told = world.take_told(process);
        let before = world.random.below(told.len() + 1);
        drop(world);
        self.hold(process, |held| go_on_simulated(held, self.undo_place(), &told, before))
    }

    fn living(&self) -> Vec<ProcessIndex> {
        let living = self.members.iter().zip(0..).filter(|(member, _)| !member.is_lost);
        living.map(|(_, process)| ProcessIndex(process)).collect()
    }

    /// Holds a process between two calls, and calls `act`. No other process runs meanwhile; its messages wait.
    fn hold<T>(&self, process: ProcessIndex, act: impl FnOnce(Held<'static>) -> T) -> Result<T, Wrong> {
        let member = &self.members[process.0 as usize];
        let done = member.actor.act(|| hold_simulated().map(act));
        done.ok_or(Wrong::NotHeld { replica: member.replica })
    }

    /// Runs events of the network until nothing is in flight between any two processes.
    fn come_to_rest(&mut self) -> Result<(), Wrong> {
        loop {
            // A process sends only after the other end has admitted it, so new connections come first.
            let mut is_quiet = !self.world().is_anybody_knocking();
            for process in self.living() {
                is_quiet &= self.hold(process, |mut held| held.settle())?;
            }
            if is_quiet || self.mutation == Some(Mutation::CheckpointUnquiet) {
                return Ok(());
            }
            let event = self.world().next_of_network();
            let event = event.ok_or(Wrong::NotQuiet)?;
            self.world().say(|| format!("{event:?}, before a checkpoint"));
            self.happen(event)?;
        }
    }

    /// Loads the sources again, in a job whose replication manager sends all its messages anew.
    fn go_back(&mut self, sources: &[ProcessIndex]) -> Result<(), Wrong> {
        for sibling in self.living().into_iter().filter(|process| !sources.contains(process)) {
            member_lost(self, sibling);
        }
        self.world().forget();
        self.is_released = false;
        // The sources' images show that the checkpoint was taken: they need no answer.
        self.askers.clear();
        self.summary.returns += 1;
        // Without replicas no process has a new incarnation.
        let life = Incarnation(if self.summary.degree == 1 { 0 } else { self.summary.returns as u32 });
        let mut loaded = Vec::new();
        for process in sources.iter().copied() {
            let restored = self.hold(process, |held| restore_simulated(held, life, &self.undo_place()))?;
            restored.map_err(|error| Wrong::NotRestored { process, error })?;
            let member = &mut self.members[process.0 as usize];
            (member.finalizing, member.awaits_cards) = (None, true);
            // From now on it is the last replica of its rank.
            member.actor.lose_after(0);
            let (replica, cut) = (member.replica, CutNumber(0));
            loaded.push(Admission { replica, incarnation: life, source: replica.index, cut });
        }
        let cards = self.cards.clone();
        if self.summary.degree == 1 {
            // Some processes had the latest view, and for others it was in flight.
            self.send_view();
            self.send_all(|_| ToAgent::Cards(cards.clone()));
        } else {
            self.view = self.view.of_images(&loaded);
            self.send_all(|_| ToAgent::Cards(cards.clone()));
            self.send_view();
            self.send_all(|_| ToAgent::Pins(Pins::default()));
        }
        Ok(())
    }

    fn send_view(&mut self) {
        if self.mutation != Some(Mutation::ViewUnsaid) {
            self.send_all(|view| ToAgent::View(view.clone()));
        }
    }
}
