//! Replicas whose program has left the path of its siblings, as the replication manager sees them. Outvoted replicas
//! are lost. Where the right replica is unknown, the run has no further results to check, and ends.

use super::{Member, SimulatedJob, member_lost};
use crate::program::leaving::{Departure, Leaves};
use crate::world::Event;
use crate::wrong::Wrong;
use redrt_types::{ProcessIndex, ReplicaId};
use redrt_wire::control::{FromAgent, Passive};
use redrt_wire::event;
use std::collections::BTreeMap;

/// Waits of processes, asked for in waves. A wave is one question to all.
#[derive(Debug, Default)]
pub(super) struct Waves {
    number: u64,
    answers: BTreeMap<ProcessIndex, Option<Passive>>,
    /// Waits of all processes in the latest wave in which all waited.
    before: Option<Vec<Passive>>,
}

impl SimulatedJob {
    /// True if a process has left the path of its siblings.
    pub(super) fn has_left(&self, process: ProcessIndex) -> bool {
        let world = self.world();
        // A reported injection counts at once, before the report is handled.
        let is_injected = |(from, message): &(ProcessIndex, FromAgent)| {
            *from == process && matches!(message, FromAgent::Event(event::Event::Injected { .. }))
        };
        world.left.contains(&process) || world.told.iter().any(is_injected)
    }

    /// True if a process reports that the right replica is unknown. Its data may be wrong then, and end it.
    pub(super) fn has_reason(&self, process: ProcessIndex) -> bool {
        let is_open = |(from, message): &(ProcessIndex, FromAgent)| match message {
            FromAgent::Event(event::Event::Mismatch(mismatch)) if *from == process => {
                mismatch.finding == event::Finding::Undecidable
            }
            // Its changes are decided anew: a lost leader may have acted already, and the process notices that.
            FromAgent::Event(event::Event::Path(path)) if *from == process => {
                path.finding != event::Finding::ReplicaCorrupt
            }
            _ => false,
        };
        self.leaves.is_some() && self.world().told.iter().any(is_open)
    }

    fn has_sibling_left(&self, replica: ReplicaId) -> bool {
        let is_of_rank = |process: &ProcessIndex| self.members[process.0 as usize].replica.rank == replica.rank;
        self.world().left.iter().any(is_of_rank)
    }

    /// True if a process may leave in this run, or has left: then `redrun` asks again and again for waits. A process
    /// that is lost may have sent a message before that no sibling sends.
    pub(super) fn may_leave(&self) -> bool {
        self.leaves.is_some_and(|leaves| {
            let member = &self.members[leaves.process.0 as usize];
            !member.is_lost || self.has_left(leaves.process)
        })
    }

    /// True if the run has no further results to check: the right replica is unknown, or none of its rank is left.
    pub(super) fn is_open(&self) -> bool {
        let is_sound = |member: &&Member| !member.is_lost && !self.has_left(self.members_index(member.replica));
        let has_sound = |rank: u32| self.members.iter().filter(|it| it.replica.rank.0 == rank).any(|it| is_sound(&it));
        self.is_undecided || (self.leaves.is_some() && !(0..self.summary.rank_count).all(has_sound))
    }

    fn members_index(&self, replica: ReplicaId) -> ProcessIndex {
        let at = self.members.iter().position(|member| member.replica == replica);
        ProcessIndex(at.expect("it is of the job") as u32)
    }

    /// Handles a message about the paths of siblings, or about a stray message. Returns a message about anything else.
    pub(super) fn handle_paths(
        &mut self,
        process: ProcessIndex,
        message: FromAgent,
    ) -> Result<Option<FromAgent>, Wrong> {
        if self.is_undecided {
            return Ok(None);
        }
        let replica = self.members[process.0 as usize].replica;
        let mut accused = Vec::new();
        match &message {
            FromAgent::Event(event::Event::Injected { fault, .. }) => {
                let mut world = self.world();
                world.say(|| format!("{replica} leaves the path of its siblings: {fault}"));
                world.left.insert(process);
                drop(world);
                return Ok(None);
            }
            FromAgent::Event(event::Event::Path(path)) => {
                accused.extend_from_slice(&path.culprits);
                self.is_undecided |= path.finding != event::Finding::ReplicaCorrupt;
            }
            FromAgent::Event(event::Event::Mismatch(mismatch)) => {
                accused.extend(mismatch.culprit);
                self.is_undecided |= mismatch.finding == event::Finding::Undecidable;
            }
            FromAgent::Event(event::Event::PathStack(_)) => return Ok(None),
            FromAgent::Refused { peer: Some(peer), .. } => accused.push(*peer),
            FromAgent::Event(event::Event::Divergence { .. }) if self.has_sibling_left(replica) => return Ok(None),
            FromAgent::Pace { .. } | FromAgent::Event(event::Event::Evidence(_)) if self.leaves.is_some() => {
                return Ok(None);
            }
            FromAgent::Answer { wave, passive, .. } if self.leaves.is_some() => {
                self.answered(process, *wave, passive.clone())?;
                return Ok(None);
            }
            // The report of a process that has left is due to its departure.
            _ if self.has_left(process) && !is_of_every_run(&message) => accused.push(replica),
            _ => return Ok(Some(message)),
        }
        if self.world().left.is_empty() {
            return Err(Wrong::Said { replica, message: Box::new(message) });
        }
        let may_be_open = self.members.iter().filter(|it| it.replica.rank == replica.rank && !it.is_lost).count() < 3;
        if self.is_undecided && !may_be_open && self.summary.losses == 0 {
            return Err(Wrong::Said { replica, message: Box::new(message) });
        }
        for one in accused {
            let index = self.members_index(one);
            if !self.has_left(index) {
                return Err(Wrong::Said { replica, message: Box::new(message) });
            }
            let member = &self.members[index.0 as usize];
            if !member.is_lost && member.output.is_none() {
                member_lost(self, index);
            }
        }
        Ok(None)
    }

    /// Handles a process's answer to a question. If no process can go on, a process whose wait differs from two
    /// siblings' is the cause, and is lost.
    fn answered(&mut self, process: ProcessIndex, wave: u64, passive: Option<Passive>) -> Result<(), Wrong> {
        if wave != self.waves.number {
            return Ok(());
        }
        self.waves.answers.insert(process, passive);
        let is_there = |member: &Member| !member.is_lost && member.output.is_none();
        let live = (0..self.members.len()).filter(|at| is_there(&self.members[*at]));
        let live: Vec<_> = live.map(|at| ProcessIndex(at as u32)).collect();
        let answer = |process: &ProcessIndex| self.waves.answers.get(process).cloned().flatten();
        let Some(waits) = live.iter().map(answer).collect::<Option<Vec<_>>>() else { return Ok(()) };
        if self.waves.before.replace(waits.clone()) != Some(waits.clone()) {
            return Ok(());
        }
        let all: Vec<_> = live.into_iter().zip(waits).collect();
        let rank = |process: ProcessIndex| self.members[process.0 as usize].replica.rank;
        // The same rule as `replication_manager::stall`.
        let differing = |says: &dyn Fn(&Passive, &Passive) -> bool| {
            let agreeing = |of: ProcessIndex, own: &Passive| {
                all.iter().filter(|(other, waits)| rank(*other) == rank(of) && says(waits, own)).count()
            };
            let is_stray = |(process, own): &&(ProcessIndex, Passive)| {
                let mut siblings = all.iter().filter(|(other, _)| rank(*other) == rank(*process));
                agreeing(*process, own) < 2 && siblings.any(|(other, waits)| agreeing(*other, waits) > 1)
            };
            all.iter().filter(is_stray).map(|(process, _)| *process).collect::<Vec<_>>()
        };
        let mut strays = differing(&|one, other| one.places == other.places);
        if strays.is_empty() {
            strays = differing(&|one, other| one.waits_for == other.waits_for);
        }
        let is_sibling = |it: ProcessIndex, of: ProcessIndex| it != of && rank(it) == rank(of);
        let is_alone = |process: &ProcessIndex| all.iter().filter(|(it, _)| is_sibling(*it, *process)).count() < 2;
        let may_be_open = self.world().left.iter().any(is_alone) || self.has_sent_to_itself();
        if may_be_open {
            self.is_undecided = true;
            return Ok(());
        }
        if strays.is_empty() || !strays.iter().all(|stray| self.has_left(*stray)) {
            return Err(Wrong::Stalled { state: self.state() });
        }
        strays.into_iter().for_each(|stray| member_lost(self, stray));
        Ok(())
    }

    /// True if a lost replica has sent an additional message to its own rank, which it received without a vote. As the
    /// leader it may have matched the message with a receive from any source; its siblings then wait for a message that
    /// never comes (docs/sdc.md).
    fn has_sent_to_itself(&self) -> bool {
        self.leaves.is_some_and(|Leaves { process, departure, .. }| {
            let member = &self.members[process.0 as usize];
            member.is_lost && departure == Departure::Send(member.replica.rank.0 as usize)
        })
    }

    /// Loses processes that have left while others poll for their messages, as `replication_manager::pace` does.
    pub(super) fn lose_laggards(&mut self) {
        let left: Vec<_> = self.world().left.iter().copied().collect();
        for process in left {
            let rank = self.members[process.0 as usize].replica.rank;
            let is_live = |member: &&Member| member.replica.rank == rank && !member.is_lost;
            if self.members.iter().filter(is_live).count() < 3 {
                self.is_undecided = true;
            } else if !self.members[process.0 as usize].is_lost {
                member_lost(self, process);
            }
        }
    }

    /// Begins the next wave. Returns its number.
    pub(super) fn next_wave(&mut self) -> u64 {
        self.waves.number += 1;
        self.waves.answers.clear();
        self.waves.number
    }

    /// Plans a question to all processes for their waits.
    pub(super) fn plan_looks(&mut self) {
        let mut world = self.world();
        let at_ns = world.soon();
        world.plan(at_ns, Event::Asks);
    }
}

/// True for messages that occur in every run.
fn is_of_every_run(message: &FromAgent) -> bool {
    let FromAgent::Event(event) = message else {
        return !matches!(message, FromAgent::Abort { .. } | FromAgent::Refused { .. });
    };
    matches!(event, event::Event::Reconnected { .. })
}
