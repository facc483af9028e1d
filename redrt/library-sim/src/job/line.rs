//! Lines of a simulated job: one replica of each rank is held, and the job goes on, or goes back. What their daemons
//! say meanwhile is heeded when they go on.
//!
//! Where messages are not numbered, what is on its way arrives before.
//!
//! An image of a process is all that it has, and a seed is a run. So a job that goes back to a line is this one from
//! the line on: the sources find themselves in a job that has heard nothing of them, without connections and without
//! siblings. What happened between the line and the loss is not simulated, since nothing of it remains. Simulated
//! where a process can be copied (`quiesce`) is that its siblings are loaded from the image of a source, too, and that
//! they go on while sources are held one after another.

use super::{SimulatedJob, member_lost};
use crate::world::Event;
use crate::wrong::Wrong;
use redrt_engine::cloning::Held;
use redrt_membership::{go_on_simulated, hold_simulated, restore_simulated};
use redrt_runtime::mutation::Mutation;
use redrt_types::{Admission, CutNumber, Incarnation, ProcessIndex, ReplicaId, VirtualRank};
use redrt_wire::clone::Pins;
use redrt_wire::control::ToAgent;
use redrt_wire::line::{Generation, UndoPlace};

impl SimulatedJob {
    /// Chooses when lines are taken, and to which of them the job goes back.
    pub(super) fn plan_lines(&mut self, lines: usize) {
        let mut world = self.world();
        for _ in 0..lines {
            let span = world.random.pick(&[10, 100, 1000]);
            let at_ns = world.now_ns + world.random.number() % (world.delay_ns_max * span);
            let goes_back = world.random.chance(60);
            world.plan(at_ns, Event::Line(goes_back));
        }
    }

    /// Takes a line, unless somebody is missing. Whether it was taken.
    pub(super) fn line(&mut self, goes_back: bool) -> Result<bool, Wrong> {
        let world = self.world();
        let is_whole = self.members.iter().zip(0..).all(|(member, process)| {
            let is_fit = world.hears(ProcessIndex(process)) && member.output.is_none() && !member.awaits_cards;
            if member.is_lost { !self.view.is_live(member.replica) } else { is_fit }
        });
        drop(world);
        // One that is released needs not go back, but it may be held until all have heard that they may leave.
        if !is_whole || self.is_released && goes_back {
            return Ok(false);
        }
        let sources = self.choose_sources();
        if self.summary.degree == 1 {
            self.come_to_rest()?;
        }
        self.summary.lines += 1;
        self.world().line_count = self.summary.lines;
        if goes_back {
            self.go_back(&sources)?;
        } else {
            let siblings = self.living().into_iter().filter(|process| !sources.contains(process));
            if self.mutation != Some(Mutation::SiblingsUntold) {
                for sibling in siblings.collect::<Vec<_>>() {
                    self.tell(sibling, ToAgent::ChangesSince(self.undo_place()));
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

    /// Of each rank the replica that decides.
    fn choose_sources(&self) -> Vec<ProcessIndex> {
        let process = |replica: ReplicaId| {
            let place = self.members.iter().position(|member| member.replica == replica);
            ProcessIndex(place.expect("who lives is a member") as u32)
        };
        let choose = |rank| match self.mutation {
            Some(Mutation::LineOfFollowers) => self.view.live(rank).next_back(),
            _ => self.view.leader(rank),
        };
        let sources = (0..self.summary.rank_count).map(VirtualRank).filter_map(choose);
        sources.map(process).collect()
    }

    /// Where changes since the line are written down.
    fn undo_place(&self) -> UndoPlace {
        UndoPlace::beside("/line".as_ref(), Generation(self.summary.lines), false)
    }

    /// A process hears that the line goes, and what else its daemon has to tell it: some of it before, some with that.
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

    /// Nobody else runs meanwhile, so it is held between two calls, too: what it has to send waits.
    fn hold<T>(&self, process: ProcessIndex, act: impl FnOnce(Held<'static>) -> T) -> Result<T, Wrong> {
        let member = &self.members[process.0 as usize];
        let done = member.actor.act(|| hold_simulated().map(act));
        done.ok_or(Wrong::NotHeld { replica: member.replica })
    }

    /// Until nothing is on its way between any two.
    fn come_to_rest(&mut self) -> Result<(), Wrong> {
        loop {
            // Who sends over a connection that was opened has been admitted at the other end.
            let mut is_quiet = !self.world().is_anybody_knocking();
            for process in self.living() {
                is_quiet &= self.hold(process, |mut held| held.settle())?;
            }
            if is_quiet || self.mutation == Some(Mutation::LineUnquiet) {
                return Ok(());
            }
            let event = self.world().next_of_network();
            let event = event.ok_or(Wrong::NotQuiet)?;
            self.world().say(|| format!("{event:?}, before a line"));
            self.happen(event)?;
        }
    }

    /// The sources are loaded again, in a job whose coordinator is told everything anew.
    fn go_back(&mut self, sources: &[ProcessIndex]) -> Result<(), Wrong> {
        for sibling in self.living().into_iter().filter(|process| !sources.contains(process)) {
            member_lost(self, sibling);
        }
        self.world().forget();
        self.is_released = false;
        // They know by themselves that it was taken.
        self.askers.clear();
        self.summary.returns += 1;
        // Where nobody has siblings nobody is another than before.
        let life = Incarnation(if self.summary.degree == 1 { 0 } else { self.summary.returns as u32 });
        let mut loaded = Vec::new();
        for process in sources.iter().copied() {
            let restored = self.hold(process, |held| restore_simulated(held, life, &self.undo_place()))?;
            restored.map_err(|error| Wrong::NotRestored { process, error })?;
            let member = &mut self.members[process.0 as usize];
            (member.finalizing, member.awaits_cards) = (None, true);
            // From now on it is the last one of its rank.
            member.actor.lose_after(0);
            let (replica, cut) = (member.replica, CutNumber(0));
            loaded.push(Admission { replica, incarnation: life, source: replica.index, cut });
        }
        let cards = self.cards.clone();
        if self.summary.degree == 1 {
            // Some had heard of the last change, and to others it was still on its way.
            self.tell_view();
            self.tell_all(|_| ToAgent::Cards(cards.clone()));
        } else {
            self.view = self.view.of_images(&loaded);
            self.tell_all(|_| ToAgent::Cards(cards.clone()));
            self.tell_view();
            self.tell_all(|_| ToAgent::Pins(Pins::default()));
        }
        Ok(())
    }

    fn tell_view(&mut self) {
        if self.mutation != Some(Mutation::ViewUnsaid) {
            self.tell_all(|view| ToAgent::View(view.clone()));
        }
    }
}
