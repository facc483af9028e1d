//! Memory that is corrupted at rest: the state of one program changes, and with it all that it sends from then on.
//! Copies that are made of it later have it, too.
//!
//! The coordinator's side: who is named goes, and is replaced. A rank keeps two lineages at least, so that it never
//! consists of one image that may be corrupt: what nobody contradicts cannot be found.

use super::check;
use super::process::Control;
use super::program::Instruction;
use super::world::Simulation;
use crate::frame::{Finding, MismatchReport};
use redrt_types::{CutNumber, Kinship, ReplicaId, ReplicaSet, View, ViewNumber, VirtualRank};
use std::collections::BTreeSet;

/// Events without any progress after which a run stands still: processes only poll.
const STALL: u64 = 20_000;

/// What is known of the corruption.
#[derive(Default)]
pub(super) struct Rest {
    /// All views, by number.
    views: Vec<View>,
    /// Places with the view in which a tainted replica came there, or was there when it was corrupted.
    tainted: Vec<(ReplicaId, ViewNumber)>,
    /// Ranks a replica of which has taken a message that nobody could judge, which is live or was.
    open: BTreeSet<VirtualRank>,
    /// Who was named.
    named: BTreeSet<ReplicaId>,
}

impl Simulation {
    /// Takes note of who is tainted and of the view, and ends who was named.
    pub(super) fn watch_rest(&mut self) {
        self.note_view();
        let Some(rest) = &mut self.rest else { return };
        let mut found = Vec::new();
        for process in self.processes.iter().filter(|process| process.is_tainted) {
            let me = process.me();
            // One that is cut off and taken for dead may still be heard.
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

    /// Remembers the view, if it is new: there may be two between two events.
    pub(super) fn note_view(&mut self) {
        if let Some(rest) = &mut self.rest
            && rest.views.last().is_none_or(|view| view.number < self.view.number)
        {
            rest.views.push(self.view.clone());
        }
    }

    /// Compares the memory of a rank's replicas now and then: who is found equal need not be kin any more.
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
            self.tell(&Control::View(self.view.clone()));
        }
    }

    /// Whether who was at this place in a view was tainted.
    pub(super) fn was_tainted(&self, replica: ReplicaId, view: ViewNumber) -> bool {
        let Some(rest) = &self.rest else { return false };
        let joined = |view: &View| view.member(replica).map(|member| member.joined);
        // A payload counts also when its supplier has died since.
        let last = rest.views.iter().rev().filter(|other| other.number <= view).find_map(joined);
        last.is_some_and(|joined| rest.tainted.contains(&(replica, joined)))
    }

    /// Whether a replica of this rank has taken a message that nobody could judge.
    pub(super) fn is_open(&self, rank: VirtualRank) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.open.contains(&rank))
    }

    /// How many sound replicas were outvoted where two sides of a message had been taken.
    pub(super) fn misnamed(&self) -> u64 {
        let reports = self.processes.iter().flat_map(|process| &process.reports);
        let is_sound = |report: &&MismatchReport| {
            report.culprit.is_some_and(|culprit| self.rest.is_some() && !self.was_tainted(culprit, report.view))
        };
        let sound: BTreeSet<_> = reports.filter(is_sound).filter_map(|report| report.culprit).collect();
        sound.len() as u64
    }

    /// Who was kin in a view.
    pub(super) fn kinship_in(&self, number: ViewNumber, rank: VirtualRank) -> Kinship {
        let views = self.rest.iter().flat_map(|rest| &rest.views);
        views.filter(|view| view.number == number).map(|view| view.kinship(rank).clone()).next().unwrap_or_default()
    }

    /// Whether no process has come further for a while: some poll, and the others wait.
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

    /// Where a replica waits: what is left of its program, and how it came there, where that is compared. A leader that
    /// polls has made more calls than its followers.
    fn stands_at(&self, replica: ReplicaId) -> (usize, u64) {
        let app = &self.process(replica).app;
        let polls = matches!(app.current(), Some(Instruction::TestNext | Instruction::PollProbe { .. }));
        (app.waits_for(), if self.paths.is_some() && !polls { app.calls } else { 0 })
    }

    /// Nothing can happen any more. A replica that has left the path of two siblings, which have no image in common,
    /// goes: the others may go on without it. Whether there was one.
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
        // If one is sound that stands apart, the run hangs, which is said.
        let place = place.filter(|place| self.rest.is_some() || self.processes[*place].is_tainted);
        if let Some(place) = place {
            self.summary.retired += 1;
            self.lose(place, false);
            self.stands.1 = self.step;
        }
        place.is_some()
    }

    /// Whether a rank would be left with one lineage only.
    pub(super) fn would_be_one_lineage(&self, victim: ReplicaId) -> bool {
        let others = self.view.live(victim.rank).filter(|other| *other != victim && self.is_full_member(*other));
        let others: ReplicaSet = others.map(|other| other.index).collect();
        others.len() < 2 || self.view.kinship(victim.rank).is_one_lineage(others)
    }
}
