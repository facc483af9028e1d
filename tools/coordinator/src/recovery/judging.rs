//! Disputes: two replicas of a rank differ, and copies of them stand ready to judge.
//!
//! ```text
//!  two differ ──▶ dispute: held copies are let in ──▶ a verdict of the vote ──▶ all in step ──▶ surplus replicas leave
//!                   └── no arbiter or asker is left, or arbiters do not come to the point ──▶ no verdict
//! ```
//! The verdict itself is not made here. Receivers compare the messages that two replicas have sent, and the replicas of
//! a rank compare the outcomes they ask for (`quiesce`, arbitration). This module decides which copies judge and which
//! replicas leave.

use super::attempt::{Attempt, Stage};
use super::holding::Holding;
use super::leaving::Move;
use crate::health::Judges;
use crate::{Coordinator, NotHeld, Report, RetireReason};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::event::{Action, Finding, Mismatch, PathMismatch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Time in which arbiters must come to the point in dispute. In addition they get several intervals, since they may
/// have fallen behind by one.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of those intervals.
const PATIENCE_INTERVALS: u32 = 4;

/// A copy that was let in to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arbiter {
    /// The place it has taken.
    pub replica: ReplicaId,
    /// The replica it is a copy of.
    pub source: ReplicaId,
    /// Time from its cut until it was let in.
    pub age: Duration,
}

/// The result of a dispute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arbitration {
    /// The rank whose replicas differed.
    pub rank: VirtualRank,
    /// The copies that judged.
    pub arbiters: Vec<Arbiter>,
    /// The replica that is wrong. None if no verdict was reached.
    pub culprit: Option<ReplicaId>,
    /// Time from the begin of the dispute to the verdict.
    pub took: Duration,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    pub begun_at: Duration,
    arbiters: Vec<Arbiter>,
    /// Processes that have asked: receivers that wait, or replicas whose paths differ.
    askers: BTreeSet<ReplicaId>,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Verdict {
    culprit: Option<ReplicaId>,
    /// True if its siblings do not follow its path. It is ended then under every policy.
    has_parted: bool,
    found_at: Duration,
}

impl Holding {
    pub(super) fn patience(&self) -> Duration {
        PATIENCE + self.interval * PATIENCE_INTERVALS
    }
}

impl Case {
    /// Records a verdict, which may replace one without a culprit. One message may be undecidable and the next clear.
    fn note(&mut self, new: Verdict) {
        if self.verdict.is_none_or(|verdict| verdict.culprit.is_none()) {
            self.verdict = Some(new);
        }
    }
}

impl Coordinator {
    /// Lets in the copies of this rank that stand ready, because two replicas differ and `asker` waits. If there are
    /// none, the replicas that wait know it, or will know it soon.
    pub(crate) fn dispute(&mut self, now: Duration, rank: VirtualRank, asker: ReplicaId) {
        self.machines.stall.reset(now);
        let view = self.members.view();
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

    /// Returns true if copies have yet to judge where two paths differ. A replica that reports the outcome as
    /// undecidable may not know of copies that stand ready, or that joined after its view.
    fn has_yet_to_be_judged(&self, path: &PathMismatch) -> bool {
        let has_joined = |replica| {
            let member = self.members.view().member(replica);
            member.is_some_and(|member| member.origin.is_some() && member.joined > path.view)
        };
        let is_fit = |(copy, source): (ReplicaId, ReplicaId)| {
            copy.rank == path.outcome.rank && self.members.view().is_live(source)
        };
        let is_open = path.finding == Finding::Undecidable && path.action != Action::Aborted;
        path.action == Action::Disputed
            || is_open && (self.members.view().live(path.outcome.rank).any(has_joined) || self.held().any(is_fit))
    }

    /// The part that copies have in a difference between paths.
    pub(crate) fn judges(&self, path: &PathMismatch) -> Judges {
        let holding = self.recovery.as_ref().and_then(|recovery| recovery.holding.as_ref());
        let is_open = holding.is_some_and(|holding| holding.cases.contains_key(&path.outcome.rank));
        match self.has_yet_to_be_judged(path) {
            true => Judges::Awaited,
            false if is_open => Judges::Done,
            false => Judges::None,
        }
    }

    /// Takes the comparison of paths within a rank as the verdict, if a dispute is open. Returns the culprit it names,
    /// who is ended when a copy can take its part.
    pub(crate) fn judged_path(
        &mut self,
        now: Duration,
        rank: VirtualRank,
        culprit: Option<ReplicaId>,
        has_parted: bool,
    ) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        if let Some(case) = holding.and_then(|holding| holding.cases.get_mut(&rank)) {
            case.note(Verdict { culprit, has_parted, found_at: now });
        }
    }

    /// Takes a receiver's comparison of votes as the verdict, if a dispute is open.
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

    /// Ends the mark that a rank's replicas differ, because one is lost and the others agree as far as known. A surplus
    /// replica does not count, since both opponents may remain.
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

    /// Ends disputes that have a verdict, or will never have one.
    pub(super) fn conclude_cases(&mut self, now: Duration) {
        let Some(holding) = self.recovery.as_ref().and_then(|recovery| recovery.holding.as_ref()) else { return };
        let (ranks, patience) = (holding.cases.keys().copied().collect::<Vec<_>>(), holding.patience());
        self.give_up_cases(now, |begun_at| now >= begun_at + patience);
        ranks.into_iter().for_each(|rank| self.conclude(now, rank));
    }

    /// Ends arbiters of disputes without verdict that `which` selects by their begin. They do not come to the point in
    /// dispute, like those of a program that has left its own path. Returns true if any was ended.
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
        let is_live = |replica: ReplicaId| self.members.view().is_live(replica);
        let judging = case.arbiters.iter().filter(|arbiter| is_live(arbiter.replica));
        let is_over = judging.clone().next().is_none()
            || !case.askers.iter().any(|asker| is_live(*asker))
            || !case.arbiters.iter().all(|arbiter| is_live(arbiter.source));
        let open = Verdict { culprit: None, has_parted: false, found_at: now };
        let Some(verdict) = case.verdict.or(is_over.then_some(open)) else { return };
        // Before all arbiters are in step, none of them can take the culprit's part.
        let counts = |replica: ReplicaId| self.members.of(replica).counts();
        if !judging.clone().all(|arbiter| self.members.is_in_step(arbiter.replica) || !counts(arbiter.replica)) {
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

    /// Chooses the arbiters that leave because the rank has too many replicas. Those whose originals stay leave first,
    /// so that the remaining replicas have the least in common.
    fn dismiss(&mut self, arbiters: &[Arbiter], rank: VirtualRank, culprit: Option<ReplicaId>) {
        let Some(recovery) = &self.recovery else { return };
        let stays = |replica: &ReplicaId| {
            let process = self.members.of(*replica);
            process.counts() && !recovery.leaving.contains_key(replica)
        };
        let staying = self.members.view().live(rank).filter(stays).count();
        let surplus = staying.saturating_sub(usize::from(self.members.degree(rank)));
        let mut candidates: Vec<_> =
            arbiters.iter().filter(|it| self.members.view().is_live(it.replica) && stays(&it.replica)).collect();
        candidates
            .sort_by_key(|arbiter| Some(arbiter.source) == culprit || !self.members.view().is_live(arbiter.source));
        let going: Vec<_> = candidates.into_iter().take(surplus).map(|arbiter| arbiter.replica).collect();
        if let Some(recovery) = &mut self.recovery {
            recovery.leaving.extend(going.into_iter().map(|replica| (replica, Move::surplus())));
        }
    }
}
