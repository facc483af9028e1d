//! For each rank with two replicas, a copy of either stands ready to judge if the two differ (`redrun --arbitrate`).
//!
//! ```text
//!  missing ─▶ … ─▶ cutting ─▶ held ──── two differ ─▶ joining ─▶ in step ─▶ a verdict ─▶ one may stay
//!     ▲                        │ after the interval, its source is lost, it is in the way
//!     └────────────────────────┘
//! ```
//! Until *held* it is a clone like any other ([`clones`](super::clones)), and so is its request for a place. While it
//! is held it waits at its entry into MPI, and every process keeps the messages that it may ask for. To bound that
//! memory, it is held for the interval only.
//!
//! This machine decides for which ranks copies are held, and for how long. The sequel of a difference is in
//! [`judging`](super::judging).

use super::Plans;
use super::attempt::Attempt;
use crate::effect::Effects;
use crate::facts::Facts;
use crate::process::Phase;
use crate::{NotHeld, Report};
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// With one replica there is nothing to compare, and three can vote.
const DEGREE: u16 = 2;
/// Rest of a rank after its copies were given up because they were in the way. It doubles each time, up to the
/// interval.
const REST_FIRST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Rest {
    until: Duration,
    lasts: Duration,
}

/// The ranks for which copies are held; see the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Holding {
    interval: Duration,
    /// Ranks for which no copies are made before a given time.
    resting: BTreeMap<VirtualRank, Rest>,
    /// Ranks whose replicas differ, where no vote could decide which is right. A copy would only repeat what its
    /// original says.
    differing: BTreeSet<VirtualRank>,
    /// Ranks for which the user was told that no copy is held.
    told: BTreeSet<VirtualRank>,
}

impl Holding {
    pub fn new(interval: Duration) -> Self {
        Self { interval, resting: BTreeMap::new(), differing: BTreeSet::new(), told: BTreeSet::new() }
    }

    /// The time for which a copy is held.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The times at which held copies are due to be renewed, and at which rests end.
    pub fn deadlines<'a>(&'a self, plans: Plans<'a>) -> impl Iterator<Item = Duration> + 'a {
        let held = plans.clones.to_judge().filter(|attempt| !attempt.is_at_work());
        let ends = held.flat_map(|attempt| [1, 2].map(|times| attempt.stopped_at + self.interval * times));
        ends.chain(self.resting.values().map(|rest| rest.until))
    }

    /// Notes that a rank's replicas differ and no vote could decide. Returns false if that is known.
    pub fn differ(&mut self, rank: VirtualRank) -> bool {
        self.differing.insert(rank)
    }

    /// A rank's replicas agree as far as known.
    pub fn agree(&mut self, rank: VirtualRank) {
        self.differing.remove(&rank);
    }

    /// No copies of a rank are made for some time.
    pub fn rest(&mut self, now: Duration, rank: VirtualRank) {
        let lasts = self.resting.get(&rank).map_or(REST_FIRST, |rest| rest.lasts * 2).min(self.interval);
        self.resting.insert(rank, Rest { until: now + lasts, lasts });
    }

    /// Reports once for each rank that no copy of it stands ready.
    pub fn report(&mut self, rank: VirtualRank, why: NotHeld, out: &mut Effects) {
        if self.told.insert(rank) {
            out.report(Report::NotHeld { rank, why });
        }
    }

    /// The places of copies that are too old or not wanted any more.
    pub fn needless(&self, facts: Facts<'_>, plans: Plans<'_>) -> Vec<ReplicaId> {
        let Plans { clones, needs, moves } = plans;
        let members = facts.members;
        let is_wanted = |rank: VirtualRank, source: ReplicaId| {
            members.degree(rank) == DEGREE && members.view().is_live(source) && !moves.contains(source)
        };
        let is_being_made = |rank: VirtualRank| {
            let made = clones.to_judge().filter(|attempt| attempt.is_at_work());
            let made = made.map(|attempt| attempt.newcomer.replica);
            made.chain(needs.to_judge().map(|(place, _)| place)).any(|place| place.rank == rank)
        };
        let is_old = |attempt: &Attempt| {
            let age = facts.now.saturating_sub(attempt.stopped_at);
            // Of the two copies one stands ready while the other is made, but not for ever.
            let is_alone = is_being_made(attempt.newcomer.replica.rank) && age < self.interval * 2;
            !attempt.is_at_work() && age >= self.interval && !is_alone
        };
        let is_needless =
            |attempt: &&Attempt| is_old(attempt) || !is_wanted(attempt.newcomer.replica.rank, attempt.newcomer.source);
        let unwanted = |(place, source): (ReplicaId, Option<ReplicaId>)| {
            source.filter(|source| !is_wanted(place.rank, *source)).map(|_| place)
        };
        let mut needless: Vec<_> = needs.to_judge().filter_map(unwanted).collect();
        let mut ranks = BTreeSet::new();
        // At most one copy of each rank is given up at a time.
        let old = clones.to_judge().filter(is_needless).map(|attempt| attempt.newcomer.replica);
        needless.extend(old.filter(|replica| ranks.insert(replica.rank)));
        needless
    }

    /// Returns true if copies of a rank can stand ready: it has two sound replicas, and no change of it is under way.
    pub fn can_hold(&self, facts: Facts<'_>, plans: Plans<'_>, rank: VirtualRank) -> bool {
        let Plans { clones, needs, moves } = plans;
        let (members, view) = (facts.members, facts.members.view());
        let is_whole = |replica: ReplicaId| {
            let process = members.of(replica);
            let is_at_work = process.counts() && !process.is_doomed && process.phase == Phase::Ready;
            is_at_work && !process.joins && !moves.contains(replica)
        };
        let missing = needs.all().map(|(place, missing)| (place.rank, missing.purpose));
        let copied = clones.all().map(|(_, attempt)| (attempt.newcomer.replica.rank, attempt.missing.purpose));
        let mut others = missing.chain(copied).filter(|(of, _)| *of == rank);
        members.degree(rank) == DEGREE
            && view.degree(rank) == DEGREE
            && view.live(rank).all(is_whole)
            && !self.differing.contains(&rank)
            && self.resting.get(&rank).is_none_or(|rest| facts.now >= rest.until)
            && others.all(|(_, purpose)| purpose == super::Purpose::Arbitration)
    }
}
