//! Memory that is corrupted at rest: the state of one program changes, and with it all its later messages. Copies that
//! are made later contain the corruption.
//!
//! The coordinator's side: named replicas are ended and replaced. A rank keeps at least two lineages, so that it never
//! consists of one image that may be corrupt. Corruption that no replica contradicts cannot be found.

use super::check;
use super::process::Control;
use super::program::Instruction;
use super::world::Simulation;
use crate::frame::{Finding, MismatchReport};
use redrt_types::{CutNumber, Kinship, ReplicaId, ReplicaSet, View, ViewNumber, VirtualRank};
use std::collections::BTreeSet;

/// Number of events without progress after which a run counts as standing still: processes only poll.
const STALL: u64 = 20_000;

/// The corruption in a run, and its consequences so far.
#[derive(Default)]
pub(super) struct Rest {
    /// All views, by number.
    views: Vec<View>,
    /// Corrupt replicas: the place, and the view of the join or of the corruption.
    tainted: Vec<(ReplicaId, ViewNumber)>,
    /// Ranks in which a replica, live or lost, has delivered a message that no vote could decide.
    open: BTreeSet<VirtualRank>,
    /// Replicas that were named.
    named: BTreeSet<ReplicaId>,
}

impl Simulation {
    /// Records the view and newly corrupt replicas, and ends named replicas.
    pub(super) fn watch_rest(&mut self) {
        self.record_view();
        let Some(rest) = &mut self.rest else { return };
        let mut found = Vec::new();
        for process in self.processes.iter().filter(|process| process.is_tainted) {
            let me = process.me();
            // A fenced replica may still send frames.
            let Some(since) = rest.views.iter().rev().find_map(|view| Some(view.member(me)?.joined)) else { continue };
            if !rest.tainted.contains(&(me, since)) {
                rest.tainted.push((me, since));
                found.push(me);
            }
        }
        let reports = self.processes.iter().flat_map(|process| &process.reports);
        let open = self.processes.iter().filter(|process| check::is_open(process));
        rest.open.extend(open.map(|process| process.me().rank));
        let named = reports.filter(|report| report.finding == Finding::ReplicaCorrupt);
        let is_its = |replica: &ReplicaId, view: ViewNumber| {
            self.view.member(*replica).is_some_and(|member| member.joined <= view)
        };
        let named = named.filter_map(|report| Some((report.culprit?, report.view)));
        let named: BTreeSet<_> = named.filter(|(replica, view)| is_its(replica, *view)).map(|(it, _)| it).collect();
        rest.named = named;
        found.iter().for_each(|me| self.say(|| format!("{me}  corrupt at rest")));
        for culprit in self.rest.iter().flat_map(|rest| rest.named.clone()).collect::<Vec<_>>() {
            let place = self.world.process(culprit).0 as usize;
            if self.random.below(20) == 0 && self.may_lose(place) {
                self.summary.retired += 1;
                self.summary.named += 1;
                self.lose(place, false);
            }
        }
    }

    /// Records the view if it is new, since two may be made between two events.
    pub(super) fn record_view(&mut self) {
        if let Some(rest) = &mut self.rest
            && rest.views.last().is_none_or(|view| view.number < self.view.number)
        {
            rest.views.push(self.view.clone());
        }
    }

    /// Compares the memory of a rank's replicas now and then. Replicas that are found equal may no longer count as kin.
    pub(super) fn prove(&mut self) {
        if self.rest.is_none() || self.random.below(400) > 0 {
            return;
        }
        let rank = VirtualRank(self.random.below(self.world.rank_count() as usize) as u32);
        let is_tainted = |index| self.process(ReplicaId { rank, index }).is_tainted;
        let compared = self.view.live(rank).filter(|replica| self.is_full_member(*replica));
        let compared: ReplicaSet = compared.map(|replica| replica.index).collect();
        let tainted: ReplicaSet = compared.iter().filter(|index| is_tainted(*index)).collect();
        let sides = if tainted.is_empty() { vec![] } else { vec![tainted, compared.without(tainted)] };
        let view = self.view.with_proof(rank, compared, &sides, CutNumber(self.cut_count));
        if view.kinship(rank) != self.view.kinship(rank) {
            self.view = view;
            self.summary.proven += 1;
            self.say(|| format!("rank {}  proven  {compared:?}, sides {sides:?}", rank.0));
            self.send_all(&Control::View(self.view.clone()));
        }
    }

    /// Returns true if the replica in this place, in that view, was corrupt.
    pub(super) fn was_tainted(&self, replica: ReplicaId, view: ViewNumber) -> bool {
        let Some(rest) = &self.rest else { return false };
        let joined = |view: &View| view.member(replica).map(|member| member.joined);
        // A payload counts even if its supplier has died since, so earlier views are searched too.
        let last = rest.views.iter().rev().filter(|other| other.number <= view).find_map(joined);
        last.is_some_and(|joined| rest.tainted.contains(&(replica, joined)))
    }

    /// Returns true if a replica of this rank has delivered a message that no vote could decide.
    pub(super) fn is_open(&self, rank: VirtualRank) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.open.contains(&rank))
    }

    /// Number of sound replicas that were outvoted, where two sides of a message had been taken.
    pub(super) fn misnamed(&self) -> u64 {
        let reports = self.processes.iter().flat_map(|process| &process.reports);
        let is_sound = |report: &&MismatchReport| {
            report.culprit.is_some_and(|culprit| self.rest.is_some() && !self.was_tainted(culprit, report.view))
        };
        let sound: BTreeSet<_> = reports.filter(is_sound).filter_map(|report| report.culprit).collect();
        sound.len() as u64
    }

    /// The kinship of a rank in a view.
    pub(super) fn kinship_in(&self, number: ViewNumber, rank: VirtualRank) -> Kinship {
        let views = self.rest.iter().flat_map(|rest| &rest.views);
        views.filter(|view| view.number == number).map(|view| view.kinship(rank).clone()).next().unwrap_or_default()
    }

    /// Returns true if no program has made progress for a while: some poll, and the others wait.
    pub(super) fn stands_still(&mut self) -> bool {
        if self.rest.is_none() && self.paths.is_none() {
            return false;
        }
        let stands = self.processes.iter().map(|process| process.app.waits_for()).collect();
        if self.stands.0 != stands {
            self.stands = (stands, self.step);
        }
        self.step - self.stands.1 > STALL
    }

    /// The position at which a replica waits: the rest of its program and, where paths are compared, its number of
    /// calls. Calls of a polling leader are left out, since it makes more than its followers.
    fn stands_at(&self, replica: ReplicaId) -> (usize, u64) {
        let app = &self.process(replica).app;
        let polls = matches!(app.current(), Some(Instruction::TestNext | Instruction::PollProbe { .. }));
        (app.waits_for(), if self.paths.is_some() && !polls { app.calls } else { 0 })
    }

    /// Called when no event is possible. Ends a replica that waits elsewhere than two siblings without a common image,
    /// since the others may go on without it. Returns true if there was one.
    pub(super) fn retire_stray(&mut self) -> bool {
        if self.rest.is_none() && self.paths.is_none() {
            return false;
        }
        let is_stray = |simulation: &Self, replica: ReplicaId| {
            let live = simulation.view.live(replica.rank);
            let waits: Vec<_> = live.map(|other| (other.index, simulation.stands_at(other))).collect();
            let kinship = simulation.view.kinship(replica.rank);
            let most = sdc_detect::agreed(&waits, kinship);
            most.is_some_and(|most| *most != simulation.stands_at(replica))
        };
        let live = |rank| self.view.live(VirtualRank(rank)).collect::<Vec<_>>();
        let live: Vec<_> = (0..self.world.rank_count()).flat_map(live).collect();
        let stray = live.into_iter().find(|replica| is_stray(self, *replica));
        let place = stray.map(|stray| self.world.process(stray).0 as usize).filter(|place| self.may_lose(*place));
        // If the one that stands apart is sound, it stays, and the run is reported to hang.
        let place = place.filter(|place| self.rest.is_some() || self.processes[*place].is_tainted);
        if let Some(place) = place {
            self.summary.retired += 1;
            self.lose(place, false);
            self.stands.1 = self.step;
        }
        place.is_some()
    }

    /// Returns true if the loss of `victim` would leave its rank with one lineage only.
    pub(super) fn would_be_one_lineage(&self, victim: ReplicaId) -> bool {
        let others = self.view.live(victim.rank).filter(|other| *other != victim && self.is_full_member(*other));
        let others: ReplicaSet = others.map(|other| other.index).collect();
        others.len() < 2 || self.view.kinship(victim.rank).is_one_lineage(others)
    }
}
