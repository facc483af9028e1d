//! Disputes: two replicas of a rank differ, and copies of them stand ready to judge.
//!
//! ```text
//!  two differ ──▶ dispute: held copies are let in ──▶ a verdict of the vote ──▶ all in step ──▶ surplus replicas leave
//!                   └── no arbiter or asker is left, or arbiters do not come to the point ──▶ no verdict
//! ```
//! The verdict itself is not made here. Receivers compare the messages that two replicas have sent, and the replicas of
//! a rank compare the outcomes they ask for (`quiesce`, arbitration). This machine keeps the disputes until they have
//! one. Which copies judge and which replicas leave is decided in [`arbitration`](super::arbitration).

use crate::effect::Verdict;
use crate::facts::Facts;
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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
struct Case {
    begun_at: Duration,
    arbiters: Vec<Arbiter>,
    /// Processes that have asked: receivers that wait, or replicas whose paths differ.
    askers: BTreeSet<ReplicaId>,
    verdict: Option<Verdict>,
}

/// Open disputes by rank; see the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Cases(BTreeMap<VirtualRank, Case>);

impl Cases {
    pub fn contains(&self, rank: VirtualRank) -> bool {
        self.0.contains_key(&rank)
    }

    pub fn ranks(&self) -> Vec<VirtualRank> {
        self.0.keys().copied().collect()
    }

    /// The times at which disputes are given up. Copies are renewed after `interval`.
    pub fn deadlines(&self, interval: Duration) -> impl Iterator<Item = Duration> {
        self.0.values().map(move |case| case.begun_at + patience(interval))
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a process that waits for a verdict. Returns false if no dispute is open.
    pub fn ask(&mut self, rank: VirtualRank, asker: ReplicaId) -> bool {
        let case = self.0.get_mut(&rank);
        case.map(|case| case.askers.insert(asker)).is_some()
    }

    /// Opens a dispute.
    pub fn open(&mut self, now: Duration, rank: VirtualRank, arbiters: Vec<Arbiter>, asker: ReplicaId) {
        let askers = BTreeSet::from([asker]);
        self.0.insert(rank, Case { begun_at: now, arbiters, askers, verdict: None });
    }

    /// Records a verdict, if a dispute is open. It may replace one without a culprit. One message may be undecidable
    /// and the next clear.
    pub fn record(&mut self, rank: VirtualRank, new: Verdict) {
        let case = self.0.get_mut(&rank);
        if let Some(case) = case.filter(|case| case.verdict.is_none_or(|verdict| verdict.culprit.is_none())) {
            case.verdict = Some(new);
        }
    }

    /// Gives up disputes without verdict that `which` selects by their begin. Returns the arbiters, which do not come
    /// to the point in dispute, like those of a program that has left its own path.
    pub fn give_up(&mut self, now: Duration, which: impl Fn(Duration) -> bool) -> Vec<ReplicaId> {
        let is_given_up = |case: &&mut Case| case.verdict.is_none() && which(case.begun_at);
        let given_up = self.0.values_mut().filter(is_given_up);
        given_up
            .flat_map(|case| {
                case.verdict = Some(Verdict::open(now));
                case.arbiters.iter().map(|arbiter| arbiter.replica)
            })
            .collect()
    }

    /// The same for disputes that are open for too long.
    pub fn give_up_late(&mut self, now: Duration, interval: Duration) -> Vec<ReplicaId> {
        self.give_up(now, |begun_at| now >= begun_at + patience(interval))
    }

    /// The verdict on a dispute, once it can be carried out. None before.
    pub fn verdict(&self, facts: Facts<'_>, rank: VirtualRank) -> Option<Verdict> {
        let (members, case) = (facts.members, self.0.get(&rank)?);
        let is_live = |replica: ReplicaId| members.view().is_live(replica);
        let judging = case.arbiters.iter().filter(|arbiter| is_live(arbiter.replica));
        let is_over = judging.clone().next().is_none()
            || !case.askers.iter().any(|asker| is_live(*asker))
            || !case.arbiters.iter().all(|arbiter| is_live(arbiter.source));
        let verdict = case.verdict.or(is_over.then_some(Verdict::open(facts.now)))?;
        // Before all arbiters are in step, none of them can take the culprit's part.
        let is_ready = |arbiter: &Arbiter| members.is_in_step(arbiter.replica) || !members.counts(arbiter.replica);
        judging.clone().all(is_ready).then_some(verdict)
    }

    /// Ends a dispute.
    pub fn close(&mut self, rank: VirtualRank, verdict: Verdict) -> Option<Arbitration> {
        let Case { begun_at, arbiters, .. } = self.0.remove(&rank)?;
        let took = verdict.found_at.saturating_sub(begun_at);
        Some(Arbitration { rank, arbiters, culprit: verdict.culprit, took })
    }
}

fn patience(interval: Duration) -> Duration {
    PATIENCE + interval * PATIENCE_INTERVALS
}
