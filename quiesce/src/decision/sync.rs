//! Who leads: what a new leader and its followers tell each other, and newcomers.

use super::{DecisionItem, Decisions, Role};
use crate::error::ProtocolError;
use crate::frame::{Frame, Output};
use redrt_types::ReplicaIndex;
use sdc_detect::ReplicaSet;
use std::collections::VecDeque;

impl Decisions {
    pub(crate) fn handle_sync(
        &mut self,
        from: ReplicaIndex,
        first: u64,
        items: Vec<DecisionItem>,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        if self.role == Role::Leader && self.silent.contains(from) {
            let held = first.saturating_add(items.len() as u64);
            self.check_known(from, held, self.announced)?;
            self.check_kept(from, held)?;
            self.admit(from, held, outputs);
            Ok(())
        } else {
            // The latest word of a sibling holds for all it has said before.
            self.early_syncs.retain(|(other, ..)| *other != from);
            self.early_syncs.push((from, first, items));
            self.continue_sync(outputs)
        }
    }

    /// A newcomer has said how many decisions it holds: sends it what has been announced meanwhile.
    pub(super) fn admit(&mut self, newcomer: ReplicaIndex, held: u64, outputs: &mut VecDeque<Output>) {
        self.announce(outputs);
        self.silent.remove(newcomer);
        self.held_by[usize::from(newcomer.0)] = held;
        if held < self.count {
            self.transmit(newcomer, Frame::Decisions { first: held, items: self.items_from(held) }, outputs);
        }
        // Not only to the newcomer: a sibling that was the only one knew by itself what is stable, and now does not.
        for sibling in self.siblings().without(self.silent).iter() {
            self.transmit(sibling, Frame::Stable { upto: self.stable }, outputs);
        }
        self.advance_stable(outputs);
    }

    /// The sphere's membership has changed.
    pub(crate) fn apply_view(
        &mut self,
        live: ReplicaSet,
        leader: ReplicaIndex,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        let mut outcome = Ok(());
        let was_deciding = self.is_deciding();
        self.silent = self.silent.intersection(live);
        let newcomers = live.without(self.live);
        if was_deciding {
            for newcomer in newcomers.iter() {
                self.silent.insert(newcomer);
                self.held_by[usize::from(newcomer.0)] = 0;
            }
        }
        self.live = live;
        self.early_syncs.retain(|(from, ..)| live.contains(*from));
        self.ballots.retain(|(_, from, _)| live.contains(*from));
        if live.len() == 1 {
            self.role = Role::Sole;
            self.announced = self.count;
            self.buffered = 0;
            self.set_stable(self.count);
            if !was_deciding {
                outputs.push_back(Output::BecameLeader);
            }
        } else if leader != self.me.index {
            self.follow(leader, outputs);
        } else if was_deciding {
            self.role = Role::Leader;
            for (from, first, items) in std::mem::take(&mut self.early_syncs) {
                outcome = outcome.and(self.handle_sync(from, first, items, outputs));
            }
            self.advance_stable(outputs);
        } else {
            let missing = match self.role {
                Role::Syncing { missing } => missing.intersection(live).union(newcomers),
                #[cfg(any(test, feature = "mutation"))]
                _ if self.sync_skipped => ReplicaSet::EMPTY,
                _ => self.siblings(),
            };
            self.role = Role::Syncing { missing };
            outcome = self.continue_sync(outputs);
        }
        outcome
    }

    pub(super) fn follow(&mut self, leader: ReplicaIndex, outputs: &mut VecDeque<Output>) {
        if matches!(self.role, Role::Follower { leader: known, .. } if known == leader) {
            self.stabilize_pair();
            return;
        }
        self.role = Role::Follower { leader, in_sync: false };
        self.report_to(leader, outputs);
    }

    /// Says what this process holds, and what it can take.
    pub(super) fn report_to(&self, leader: ReplicaIndex, outputs: &mut VecDeque<Output>) {
        // Not only what is not stable: the new leader may be a newcomer that the old one had not told yet what was.
        let first = self.kept;
        #[cfg(any(test, feature = "mutation"))]
        let first = if self.sync_from_stable { self.stable } else { first };
        let frame = Frame::DecisionSync { first, items: self.items_from(first) };
        self.transmit(leader, frame, outputs);
        for (key, agrees) in self.own_ballots.iter().copied() {
            self.transmit(leader, Frame::Ballot { key, agrees }, outputs);
        }
    }

    pub(super) fn continue_sync(&mut self, outputs: &mut VecDeque<Output>) -> Result<(), ProtocolError> {
        let Role::Syncing { mut missing } = self.role else { return Ok(()) };
        let mut outcome = Ok(());
        for (from, first, items) in std::mem::take(&mut self.early_syncs) {
            let held = first.saturating_add(items.len() as u64);
            if let Err(error) = self.learn(from, first, items, outputs) {
                // Whoever says this stays missing, until a view is without it.
                outcome = Err(error);
                continue;
            }
            missing.remove(from);
            self.held_by[usize::from(from.0)] = held;
        }
        for sibling in self.siblings().without(missing).iter() {
            if let Err(error) = self.check_kept(sibling, self.held_by[usize::from(sibling.0)]) {
                missing.insert(sibling);
                outcome = Err(error);
            }
        }
        self.role = Role::Syncing { missing };
        if missing.is_empty() {
            self.lead(outputs);
        }
        outcome
    }

    /// All live siblings have said what they hold: sends each what it lacks and starts to decide.
    pub(super) fn lead(&mut self, outputs: &mut VecDeque<Output>) {
        self.role = Role::Leader;
        self.announced = self.count;
        self.buffered = 0;
        for sibling in self.siblings().iter() {
            let first = self.held_by[usize::from(sibling.0)];
            if first < self.count {
                self.transmit(sibling, Frame::Decisions { first, items: self.items_from(first) }, outputs);
            }
        }
        let stable = self.held_by_all();
        self.set_stable(stable);
        for sibling in self.siblings().iter() {
            self.transmit(sibling, Frame::Stable { upto: self.stable }, outputs);
        }
        outputs.push_back(Output::BecameLeader);
    }

    /// The connection with a sibling was lost: a follower says again what it holds, a leader waits for that.
    pub(crate) fn reset(&mut self, sibling: ReplicaIndex, outputs: &mut VecDeque<Output>) {
        self.early_syncs.retain(|(from, ..)| *from != sibling);
        match &mut self.role {
            Role::Leader => self.silent.insert(sibling),
            Role::Syncing { missing } => missing.insert(sibling),
            Role::Follower { leader, .. } if *leader == sibling => self.report_to(sibling, outputs),
            Role::Follower { .. } | Role::Sole => {}
        }
    }
}
