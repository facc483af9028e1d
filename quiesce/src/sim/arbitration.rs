//! The coordinator's side of arbitration. Copies of both replicas of a rank are made and wait. When the two differ, the
//! copies are let in. The outvoted replica is ended, and one of the copies takes its part once it is in step.
//!
//! ```text
//!  begin ─▶ pinning ─▶ restoring ─▶ ready ── a dispute ──▶ joining ─▶ in step ─▶ a verdict: culprit, surplus copies go
//!              ▲                      │ now and then, a source is lost, they are in the way
//!              └──────────────────────┘
//! ```

use super::broken::Broken;
use super::check;
use super::joins::{Join, Stage};
use super::process::{Control, Process};
use super::world::Simulation;
use crate::frame::{Action, Finding};
use crate::path::{PathFinding, PathReport};
use redrt_types::{ReplicaId, VirtualRank, World};
use simulation_kit::Random;
use std::collections::BTreeSet;

/// Two replicas of each rank, and a copy of each.
pub(super) const PLACES: u16 = 4;
/// Number of replicas that a rank is to have.
const DEGREE: usize = 2;

/// The state of arbitration in a run.
pub(super) struct Arbitration {
    /// Number of further copies that are made.
    holds_left: usize,
    /// Number of each process's reports that the coordinator has handled, by process.
    heard: Vec<usize>,
    /// Reports on paths that the coordinator has not handled.
    unheard_paths: Vec<(ReplicaId, PathReport)>,
    /// Replicas that were outvoted.
    condemned: BTreeSet<ReplicaId>,
    /// Ranks whose disputes have found a verdict.
    judged: BTreeSet<VirtualRank>,
    /// Ranks that lost a replica for another reason.
    losers: BTreeSet<VirtualRank>,
    /// True if the cause of the corruption is in memory from the beginning.
    is_latent: bool,
    has_named: bool,
}

impl Arbitration {
    pub(super) fn new(random: &mut Random, world: &World) -> Self {
        Self {
            // With few copies, some disputes find none ready.
            holds_left: random.pick(&[0, 2, 8, 16, 16]) * world.rank_count() as usize / 2,
            heard: vec![0; world.process_count() as usize],
            unheard_paths: Vec::new(),
            condemned: BTreeSet::new(),
            judged: BTreeSet::new(),
            losers: BTreeSet::new(),
            is_latent: random.chance(25),
            has_named: false,
        }
    }

    pub(super) fn corrupt_one(&self, random: &mut Random, processes: &mut [Process]) -> Option<ReplicaId> {
        let live: Vec<_> = (0..processes.len()).filter(|place| processes[*place].alive).collect();
        let corrupt = &mut processes[random.pick(&live)];
        (corrupt.corrupt_send, corrupt.is_latent) = (Some(random.below(60)), self.is_latent);
        Some(corrupt.me())
    }

    /// Returns true if the cause of the corruption is in memory from the beginning.
    pub(super) fn is_latent(&self) -> bool {
        self.is_latent
    }

    /// Queues a replica's report on paths.
    pub(super) fn told(&mut self, by: ReplicaId, report: PathReport) {
        self.unheard_paths.push((by, report));
    }

    pub(super) fn is_condemned(&self, replica: ReplicaId) -> bool {
        self.condemned.contains(&replica)
    }

    /// Returns true if this rank lost a replica that was not named.
    pub(super) fn has_lost(&self, rank: VirtualRank) -> bool {
        self.losers.contains(&rank)
    }
}

impl Simulation {
    /// The coordinator's work on copies that wait, and on disputes.
    pub(super) fn arbitrate(&mut self) {
        if self.arbitration.is_none() {
            return;
        }
        self.begin_hold();
        if self.random.below(6) == 0 {
            self.handle_reports();
        }
        if self.random.below(20) == 0 {
            self.end_arbitrations();
        }
        let hindered = |process: &Process| process.is_hindered && process.alive;
        if self.random.below(8) == 0
            && let Some(place) = self.processes.iter().position(hindered)
        {
            self.processes[place].is_hindered = false;
            let rank = self.processes[place].me().rank;
            self.drop_ready(|join| join.newcomer.rank == rank);
        }
    }

    fn state(&mut self) -> &mut Arbitration {
        self.arbitration.as_mut().expect("this run is about it")
    }

    fn begin_hold(&mut self) {
        let place = self.random.below(self.processes.len());
        let newcomer = self.processes[place].me();
        let is_taken = self.joins.iter().any(|join| join.newcomer == newcomer);
        // Messages of a corrupt replica are checked at the end.
        let is_looked_at = Some(newcomer) == self.corrupt || self.processes[place].is_tainted;
        let is_free = !self.processes[place].alive && !self.view.is_live(newcomer) && !is_looked_at;
        if self.state().holds_left == 0 || is_taken || !is_free {
            return;
        }
        let is_held = |source: &ReplicaId| self.joins.iter().any(|join| join.is_arbiter && join.source == *source);
        let source = self.view.live(newcomer.rank).find(|source| self.is_full_member(*source) && !is_held(source));
        if let Some(source) = source {
            self.state().holds_left -= 1;
            self.state().heard[place] = 0;
            self.begin(newcomer, source, true);
        }
    }

    fn handle_reports(&mut self) {
        for place in 0..self.processes.len() {
            let heard = std::mem::take(&mut self.state().heard[place]);
            let reports: Vec<_> = self.processes[place].reports.iter().skip(heard).cloned().collect();
            self.state().heard[place] = heard + reports.len();
            if !self.view.is_live(self.processes[place].me()) {
                continue;
            }
            for report in reports {
                let rank = report.message.sender;
                match (report.finding, report.action) {
                    (Finding::Undecidable, Action::Disputed) => self.let_in(rank),
                    (Finding::ReplicaCorrupt, _) => {
                        let culprit = report.culprit.expect("it was named");
                        self.condemn(culprit);
                    }
                    _ => {}
                }
            }
        }
        self.handle_paths();
    }

    /// Handles reports on paths. Returns true if there were any.
    pub(super) fn handle_paths(&mut self) -> bool {
        let Some(arbitration) = &mut self.arbitration else { return false };
        let reports = std::mem::take(&mut arbitration.unheard_paths);
        let is_new = !reports.is_empty();
        for (by, report) in reports.into_iter().filter(|(by, _)| self.view.is_live(*by)).collect::<Vec<_>>() {
            self.handle_path(by, report);
        }
        is_new
    }

    fn condemn(&mut self, culprit: ReplicaId) {
        self.record_named(culprit);
        let state = self.state();
        state.condemned.insert(culprit);
        state.judged.insert(culprit.rank);
        state.has_named = true;
    }

    fn handle_path(&mut self, by: ReplicaId, report: PathReport) {
        let rank = by.rank;
        let is_in = |replica: ReplicaId| {
            let member = self.view.member(replica);
            member.is_some_and(|member| member.origin.is_some() && member.joined > report.view)
        };
        let have_joined = self.view.live(rank).any(is_in);
        let is_fit = |join: &Join| self.is_fit(join, rank);
        match &report.finding {
            PathFinding::Disputed => self.let_in(rank),
            PathFinding::Outvoted(culprits) => {
                let is_its =
                    |replica: &ReplicaId| self.view.member(*replica).is_some_and(|member| member.joined <= report.view);
                let culprits = culprits.iter().map(|index| ReplicaId { rank, index });
                let culprits: Vec<_> = culprits.filter(is_its).collect();
                culprits.into_iter().for_each(|culprit| self.condemn(culprit));
            }
            // The reporter did not know of copies that stand ready. They have been let in, or will be.
            PathFinding::Undecidable if have_joined => {}
            PathFinding::Undecidable if self.joins.iter().any(is_fit) => self.let_in(rank),
            PathFinding::Undecidable => self.record_open_path(),
        }
    }

    fn is_fit(&self, join: &Join, rank: VirtualRank) -> bool {
        join.newcomer.rank == rank && join.stage == Stage::Ready && self.view.is_live(join.source)
    }

    /// The replica that may be corrupt or leave its path.
    pub(super) fn suspect(&self) -> Option<ReplicaId> {
        self.corrupt.or(self.paths.as_ref().map(|watch| watch.departing()))
    }

    /// Returns true if nothing is under way except copies that wait, where paths are judged. Processes are then asked
    /// for their waits.
    pub(super) fn is_waiting_with_ready(&self) -> bool {
        self.arbitration.is_some() && self.joins.iter().all(|join| join.stage == Stage::Ready)
    }

    /// Called when no event is possible. Ends an arbiter that has not come to the point in dispute. Returns true if
    /// there was one.
    pub(super) fn give_up_arbiters(&mut self) -> bool {
        if self.arbitration.is_none() || self.paths.is_none() {
            return false;
        }
        let is_arbiter = |process: &Process| {
            let origin = self.view.member(process.me()).and_then(|member| member.origin);
            let original = origin.map(|origin| ReplicaId { rank: process.me().rank, index: origin.index });
            original.is_some_and(|original| self.view.is_live(original))
        };
        let place = self.processes.iter().position(is_arbiter).filter(|place| self.may_lose(*place));
        if let Some(place) = place {
            self.summary.retired += 1;
            self.lose(place, false);
        }
        place.is_some()
    }

    /// Lets in copies that stand ready, because two replicas differ.
    fn let_in(&mut self, rank: VirtualRank) {
        let joins: Vec<_> = self.joins.iter().filter(|join| self.is_fit(join, rank)).copied().collect();
        if joins.is_empty() {
            return;
        }
        let mut arbiters = Vec::new();
        for join in &joins {
            arbiters.push(self.admission(*join));
        }
        self.summary.joins += arbiters.len() as u64;
        self.summary.arbiters += arbiters.len() as u64;
        self.view = self.view.with_arbiters(&arbiters);
        self.say(|| format!("{rank}    admit   {arbiters:?} view {}", self.view.number.0));
        // Must precede their view: they keep messages for others whose joins began after their cuts.
        self.send_pins(None);
        self.send_all(&Control::View(self.view.clone()));
        for join in self.joins.iter_mut().filter(|join| joins.iter().any(|it| it.newcomer == join.newcomer)) {
            join.stage = Stage::Joining;
        }
        self.send_pins(None);
        joins.into_iter().for_each(|join| self.kill_somebody(join));
    }

    /// Ends outvoted replicas, and copies that are too many.
    fn end_arbitrations(&mut self) {
        for culprit in self.state().condemned.clone() {
            let place = self.world.process(culprit).0 as usize;
            if self.view.is_live(culprit) && self.may_lose(place) {
                self.summary.retired += 1;
                let is_fenced = self.random.chance(30);
                self.lose(place, is_fenced);
            }
        }
        for rank in self.state().judged.clone() {
            let full: Vec<_> = self.view.live(rank).filter(|replica| self.is_full_member(*replica)).collect();
            // A copy is chosen whose original stays, since both are of one side.
            let is_second = |replica: &&ReplicaId| {
                let origin = self.view.member(**replica).and_then(|member| member.origin);
                origin.is_some_and(|origin| self.view.is_live(ReplicaId { rank, index: origin.index }))
            };
            let victim = full.iter().rev().find(is_second).or(full.last()).copied();
            if let Some(victim) = victim.filter(|_| full.len() > DEGREE) {
                self.summary.retired += 1;
                self.lose(self.world.process(victim).0 as usize, false);
            }
        }
    }

    /// Drops the copies that stand ready and that `which` selects.
    fn drop_ready(&mut self, which: impl Fn(&Join) -> bool) {
        for place in (0..self.joins.len()).rev() {
            if self.joins[place].stage == Stage::Ready && which(&self.joins[place]) {
                let join = self.joins.remove(place);
                self.end_join(join, true);
            }
        }
    }

    /// Called when no event is possible, so that all programs are done. Drops the copies that were never needed.
    /// Returns true if there were any.
    pub(super) fn release_ready(&mut self) -> Result<bool, Broken> {
        let is_ready = |join: &Join| join.stage == Stage::Ready;
        let waits =
            self.arbitration.is_some() && self.processes.iter().any(|process| process.is_hindered && process.alive);
        if self.arbitration.is_none() || waits || !self.joins.iter().all(is_ready) || self.has_unheard() {
            return Ok(false);
        }
        let live = self.processes.iter().filter(|process| self.view.is_live(process.me()));
        // A replica that has left its path may owe messages that are never received.
        let is_exempt = check::is_believed(self) || self.paths.is_some();
        let mut live = live.filter(|process| !process.fenced && !is_exempt);
        if let Some(process) = live.find(|process| process.replica.is_owing()) {
            return Err(Broken::CannotLeave(process.me()));
        }
        self.state().holds_left = 0;
        self.drop_ready(|_| true);
        Ok(true)
    }

    fn has_unheard(&mut self) -> bool {
        let counts: Vec<_> = self.processes.iter().map(|process| process.reports.len()).collect();
        let is_live: Vec<_> = self.processes.iter().map(|process| self.view.is_live(process.me())).collect();
        if !self.state().unheard_paths.is_empty() {
            return true;
        }
        let heard = &self.state().heard;
        counts.iter().zip(heard).zip(is_live).any(|((count, heard), is_live)| is_live && count > heard)
    }

    /// Records a loss, for the checks at the end.
    pub(super) fn record_loss(&mut self, replica: ReplicaId) {
        if let Some(arbitration) = &mut self.arbitration
            && !arbitration.condemned.contains(&replica)
        {
            arbitration.losers.insert(replica.rank);
        }
    }

    /// Counts the verdicts of the run.
    pub(super) fn count_verdicts(&mut self, is_open: bool) {
        if let Some(arbitration) = &self.arbitration {
            self.summary.named += u64::from(arbitration.has_named);
            self.summary.open += u64::from(is_open);
        }
    }
}
