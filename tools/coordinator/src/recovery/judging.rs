//! What becomes of two replicas that differ, where copies of them stand ready.
//!
//! ```text
//!  somebody waits ──▶ case: a held copy is let in ──▶ a verdict of theirs ──▶ all in step ──▶ surplus ones go
//!                        └── nobody is left to judge or to ask, or they do not come to it ──▶ open
//! ```
//! Who is wrong is not decided here: receivers compare what two have sent, and the replicas of a rank what each of them
//! asks for (`quiesce`, arbitration). Here is decided who is asked, and who goes.

use super::attempt::{Attempt, Stage};
use super::holding::Holding;
use super::leaving::Move;
use crate::{Coordinator, NotHeld, Report, RetireReason};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::event::{Action, Finding, Mismatch, PathMismatch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Arbiters get this time, and besides several times that in which they may have fallen behind, to come to what is in
/// dispute.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of attempts.
const PATIENCE_INTERVALS: u32 = 4;

/// A copy that was let in to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arbiter {
    /// Its place.
    pub replica: ReplicaId,
    /// Whom it is a copy of.
    pub source: ReplicaId,
    /// How long ago it was copied when it was let in.
    pub age: Duration,
}

/// What came of a dispute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arbitration {
    /// Whose replicas differed.
    pub rank: VirtualRank,
    /// Who judged.
    pub arbiters: Vec<Arbiter>,
    /// Who is wrong, if that could be told.
    pub culprit: Option<ReplicaId>,
    /// From the dispute to the verdict.
    pub took: Duration,
}

/// A dispute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    pub begun_at: Duration,
    arbiters: Vec<Arbiter>,
    /// Processes that have asked: receivers that wait, or replicas that differ in their paths.
    askers: BTreeSet<ReplicaId>,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Verdict {
    culprit: Option<ReplicaId>,
    /// Its siblings do not go its way: it goes, whatever is done about corrupt data.
    has_parted: bool,
    found_at: Duration,
}

impl Holding {
    pub(super) fn patience(&self) -> Duration {
        PATIENCE + self.interval * PATIENCE_INTERVALS
    }
}

impl Case {
    /// What is open for one message may be plain for the next.
    fn note(&mut self, new: Verdict) {
        if self.verdict.is_none_or(|verdict| verdict.culprit.is_none()) {
            self.verdict = Some(new);
        }
    }
}

impl Coordinator {
    /// Two replicas of a rank differ and `asker` waits: copies that stand ready are let in. If none does, the replicas
    /// that wait know it, or are about to.
    pub(crate) fn dispute(&mut self, now: Duration, rank: VirtualRank, asker: ReplicaId) {
        self.stall.reset(now);
        let view = &self.view;
        let Some(recovery) = &mut self.recovery else { return };
        let Some(holding) = &mut recovery.holding else { return };
        if let Some(case) = holding.cases.get_mut(&rank) {
            case.askers.insert(asker);
            return;
        }
        let is_fit = |attempt: &Attempt| {
            attempt.newcomer.replica.rank == rank
                && attempt.stage == Stage::Held
                && view.is_live(attempt.newcomer.source)
        };
        let mut arbiters = Vec::new();
        let mut ids = Vec::new();
        for (id, attempt) in recovery.attempts.iter_mut().filter(|(_, attempt)| is_fit(attempt)) {
            let age = now.saturating_sub(attempt.stopped_at);
            arbiters.push(Arbiter { replica: attempt.newcomer.replica, source: attempt.newcomer.source, age });
            attempt.missing.since = now;
            ids.push(*id);
        }
        if ids.is_empty() {
            return;
        }
        let askers = BTreeSet::from([asker]);
        holding.cases.insert(rank, Case { begun_at: now, arbiters, askers, verdict: None });
        self.let_in(now, &ids);
    }

    /// Whether copies have yet to judge where two paths differ: who says that nobody can may not have heard of copies
    /// that stand ready, or have joined since.
    pub(crate) fn has_yet_to_be_judged(&self, path: &PathMismatch) -> bool {
        let has_joined = |replica| {
            let member = self.view.member(replica);
            member.is_some_and(|member| member.origin.is_some() && member.joined > path.view)
        };
        let is_fit =
            |(copy, source): (ReplicaId, ReplicaId)| copy.rank == path.outcome.rank && self.view.is_live(source);
        let is_open = path.finding == Finding::Undecidable && path.action != Action::Aborted;
        path.action == Action::Disputed
            || is_open && (self.view.live(path.outcome.rank).any(has_joined) || self.held().any(is_fit))
    }

    /// Replicas of a rank have compared what they ask for: if that was in dispute, this is the verdict. The one that is
    /// named by it, if any: it goes when somebody can take its part.
    pub(crate) fn judged_path(
        &mut self,
        now: Duration,
        rank: VirtualRank,
        culprits: &[ReplicaId],
        parted: &[ReplicaId],
    ) -> Option<ReplicaId> {
        let is_original = |replica: &&ReplicaId| self.view.member(**replica).is_some_and(|it| it.origin.is_none());
        let culprit = culprits.iter().find(is_original).or(culprits.first()).copied();
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        let case = holding.and_then(|holding| holding.cases.get_mut(&rank))?;
        let has_parted = culprit.is_some_and(|culprit| parted.contains(&culprit));
        case.note(Verdict { culprit, has_parted, found_at: now });
        culprit
    }

    /// A receiver has compared votes: if that was in dispute, this is the verdict.
    pub(crate) fn judged(&mut self, now: Duration, mismatch: &Mismatch) {
        self.note_verdict(now, mismatch);
        if mismatch.finding == Finding::Undecidable {
            self.note_difference(now, mismatch.sender);
            self.note_difference(now, mismatch.receiver.rank);
        }
    }

    fn note_difference(&mut self, now: Duration, rank: VirtualRank) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        if holding.is_some_and(|holding| holding.differing.insert(rank)) {
            self.drop_held(now, rank, NotHeld::Undecided);
        }
    }

    /// A replica is lost: what its rank has now agrees, as far as anybody knows; unless it was one too many.
    pub(super) fn forget_difference(&mut self, lost: ReplicaId) {
        let Some(recovery) = &mut self.recovery else { return };
        let was_surplus = recovery.leaving.get(&lost).is_some_and(Move::is_surplus);
        if let Some(holding) = recovery.holding.as_mut().filter(|_| !was_surplus) {
            holding.differing.remove(&lost.rank);
        }
    }

    fn note_verdict(&mut self, now: Duration, mismatch: &Mismatch) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        let Some(case) = holding.and_then(|holding| holding.cases.get_mut(&mismatch.sender)) else { return };
        let culprit = mismatch.culprit.filter(|_| mismatch.finding == Finding::ReplicaCorrupt);
        let is_verdict = culprit.is_some() || mismatch.finding == Finding::Undecidable;
        if is_verdict {
            case.note(Verdict { culprit, has_parted: false, found_at: now });
        }
    }

    /// Ends cases that have a verdict, or will never have one.
    pub(super) fn conclude_cases(&mut self, now: Duration) {
        let Some(holding) = self.recovery.as_ref().and_then(|recovery| recovery.holding.as_ref()) else { return };
        let (ranks, patience) = (holding.cases.keys().copied().collect::<Vec<_>>(), holding.patience());
        self.give_up_cases(now, |begun_at| now >= begun_at + patience);
        ranks.into_iter().for_each(|rank| self.conclude(now, rank));
    }

    /// Arbiters do not come to what is in dispute, as those of a program that has left its own path: they are ended.
    /// `which` says by when it began whether that is so. Whether any was ended.
    pub(crate) fn give_up_cases(&mut self, now: Duration, which: impl Fn(Duration) -> bool) -> bool {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        let cases = holding.into_iter().flat_map(|holding| holding.cases.values_mut());
        let mut strays = Vec::new();
        for case in cases.filter(|case| case.verdict.is_none() && which(case.begun_at)) {
            case.verdict = Some(Verdict { culprit: None, has_parted: false, found_at: now });
            strays.extend(case.arbiters.iter().map(|arbiter| arbiter.replica));
        }
        strays.into_iter().filter(|stray| self.retire(*stray, RetireReason::Strayed, 1)).count() > 0
    }

    fn conclude(&mut self, now: Duration, rank: VirtualRank) {
        let Some(case) = self.recovery.as_ref().and_then(|recovery| recovery.holding.as_ref()?.cases.get(&rank)) else {
            return;
        };
        let is_live = |replica: ReplicaId| self.view.is_live(replica);
        let judging = case.arbiters.iter().filter(|arbiter| is_live(arbiter.replica));
        let is_over = judging.clone().next().is_none()
            || !case.askers.iter().any(|asker| is_live(*asker))
            || !case.arbiters.iter().all(|arbiter| is_live(arbiter.source));
        let open = Verdict { culprit: None, has_parted: false, found_at: now };
        let Some(verdict) = case.verdict.or(is_over.then_some(open)) else { return };
        // Before that none of them can take another's part.
        let counts = |replica: ReplicaId| self.processes[self.world().process(replica).0 as usize].counts();
        if !judging.clone().all(|arbiter| self.is_in_step(arbiter.replica) || !counts(arbiter.replica)) {
            return;
        }
        if let Some(culprit) = verdict.culprit {
            self.end_outvoted(now, culprit, verdict.has_parted);
        }
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        let Some(case) = holding.and_then(|holding| holding.cases.remove(&rank)) else { return };
        self.dismiss(&case.arbiters, rank, verdict.culprit);
        let took = verdict.found_at.saturating_sub(case.begun_at);
        self.report(Report::Arbitrated(Arbitration { rank, arbiters: case.arbiters, culprit: verdict.culprit, took }));
    }

    /// Arbiters that their rank has too many leave: rather those whose originals stay, so that what stays has the least
    /// in common.
    fn dismiss(&mut self, arbiters: &[Arbiter], rank: VirtualRank, culprit: Option<ReplicaId>) {
        let Some(recovery) = &self.recovery else { return };
        let stays = |replica: &ReplicaId| {
            let process = &self.processes[self.world().process(*replica).0 as usize];
            process.counts() && !recovery.leaving.contains_key(replica)
        };
        let staying = self.view.live(rank).filter(stays).count();
        let surplus = staying.saturating_sub(usize::from(recovery.degrees[rank.0 as usize]));
        let mut candidates: Vec<_> =
            arbiters.iter().filter(|it| self.view.is_live(it.replica) && stays(&it.replica)).collect();
        candidates.sort_by_key(|arbiter| Some(arbiter.source) == culprit || !self.view.is_live(arbiter.source));
        let going: Vec<_> = candidates.into_iter().take(surplus).map(|arbiter| arbiter.replica).collect();
        if let Some(recovery) = &mut self.recovery {
            recovery.leaving.extend(going.into_iter().map(|replica| (replica, Move::surplus())));
        }
    }
}
