//! For each rank with two replicas, a copy of either stands ready to judge if the two differ (`redrun --arbitrate`).
//!
//! ```text
//!  missing ─▶ … ─▶ cutting ─▶ held ──── two differ ─▶ joining ─▶ in step ─▶ a verdict ─▶ one may stay
//!     ▲                        │ after the interval, its source is lost, it is in the way
//!     └────────────────────────┘
//! ```
//! Until *held* it is a clone like any other ([`attempt`](super::attempt)), and so is its request for a place. While it
//! is held it waits at its entry into MPI, and every process keeps the messages that it may ask for. To bound that
//! memory, it is held for the interval only.
//!
//! The sequel of a difference is in [`judging`](super::judging).

use super::Copies;
use super::Purpose;
use super::attempt::{Attempt, Stage};
use super::judging::Case;
use super::missing::{Missing, Seat};
use crate::{Coordinator, NotHeld, Phase, Report};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::clone::CloneId;
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

/// Copies that stand ready, and disputes that some of them judge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Holding {
    pub interval: Duration,
    /// Ranks for which no copies are made before a given time.
    resting: BTreeMap<VirtualRank, Rest>,
    pub cases: BTreeMap<VirtualRank, Case>,
    /// Ranks whose replicas differ, where no vote could decide which is right. A copy would only repeat what its
    /// original says.
    pub differing: BTreeSet<VirtualRank>,
    /// Ranks for which the user was told that no copy is held.
    told: BTreeSet<VirtualRank>,
}

impl Holding {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            resting: BTreeMap::new(),
            cases: BTreeMap::new(),
            differing: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }
}

impl Attempt {
    pub(super) fn is_to_judge(&self) -> bool {
        self.missing.purpose == Purpose::Arbitration && self.stage != Stage::Joining
    }
}

impl Copies {
    /// Returns true if the place is for a copy that is to judge, and that has not joined yet.
    pub(super) fn is_to_judge(&self, replica: ReplicaId) -> bool {
        let missing = self.missing.get(&replica).is_some_and(|missing| missing.purpose == Purpose::Arbitration);
        let is_its = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.is_to_judge();
        missing || self.attempts.values().any(is_its)
    }

    /// The next time at which a held copy is due to be renewed, a rest ends, or a dispute is given up.
    pub(super) fn next_renewal(&self, now: Duration) -> Option<Duration> {
        let holding = self.holding.as_ref()?;
        let held = self.attempts.values().filter(|attempt| attempt.stage == Stage::Held);
        let rests = holding.resting.values().map(|rest| rest.until);
        let ends = held.flat_map(|attempt| [1, 2].map(|times| attempt.stopped_at + holding.interval * times));
        let cases = holding.cases.values().map(|case| case.begun_at + holding.patience());
        ends.chain(rests).chain(cases).filter(|at| *at > now).min()
    }
}

impl Coordinator {
    /// The copies that stand ready, each with its source.
    pub fn held(&self) -> impl Iterator<Item = (ReplicaId, ReplicaId)> + '_ {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let held = attempts.filter(|attempt| attempt.stage == Stage::Held);
        held.map(|attempt| (attempt.newcomer.replica, attempt.newcomer.source))
    }

    /// Holds a copy that runs and whose card is known.
    pub(super) fn hold(&mut self, id: CloneId) {
        let Some(recovery) = &mut self.recovery else { return };
        let attempt = recovery.attempts.get_mut(&id).expect("the caller has seen it");
        attempt.stage = Stage::Held;
        attempt.missing.failure_count = 0;
        let (replica, source) = (attempt.newcomer.replica, attempt.newcomer.source);
        self.tell_pins();
        self.report(Report::CopyHeld { replica, source });
    }

    /// Keeps a copy of each replica that may need an arbiter, and renews those that are too old.
    pub(super) fn hold_copies(&mut self, now: Duration) {
        self.renew(now);
        let ranks = (0..self.members.world().rank_count()).map(VirtualRank);
        for rank in ranks.filter(|rank| self.can_hold(now, *rank)).collect::<Vec<_>>() {
            for source in self.members.view().live(rank).collect::<Vec<_>>() {
                self.want_copy_of(now, source);
            }
        }
    }

    /// Gives up copies that are too old, and those that are not wanted any more.
    fn renew(&mut self, now: Duration) {
        let Some((recovery, holding)) =
            self.recovery.as_ref().and_then(|recovery| Some((recovery, recovery.holding.as_ref()?)))
        else {
            return;
        };
        let is_wanted = |rank: VirtualRank, source: ReplicaId| {
            self.members.degree(rank) == DEGREE
                && self.members.view().is_live(source)
                && !recovery.leaving.contains_key(&source)
        };
        let is_being_made = |rank: VirtualRank| {
            let is_made = |attempt: &Attempt| attempt.is_to_judge() && attempt.is_at_work();
            let made =
                recovery.attempts.values().filter(|attempt| is_made(attempt)).map(|attempt| attempt.newcomer.replica);
            let to_be_made = recovery.missing.iter().filter(|(_, missing)| missing.purpose == Purpose::Arbitration);
            made.chain(to_be_made.map(|(replica, _)| *replica)).any(|replica| replica.rank == rank)
        };
        let is_old = |attempt: &Attempt| {
            let age = now.saturating_sub(attempt.stopped_at);
            // Of the two copies one stands ready while the other is made, but not for ever.
            let is_alone = is_being_made(attempt.newcomer.replica.rank) && age < holding.interval * 2;
            attempt.stage == Stage::Held && age >= holding.interval && !is_alone
        };
        let attempts = recovery.attempts.values().filter(|attempt| attempt.is_to_judge());
        let old = attempts
            .filter(|attempt| is_old(attempt) || !is_wanted(attempt.newcomer.replica.rank, attempt.newcomer.source));
        let missing = recovery
            .missing
            .iter()
            .filter(|(replica, missing)| missing.source.is_some_and(|source| !is_wanted(replica.rank, source)));
        let mut needless: Vec<_> = missing.map(|(replica, _)| *replica).collect();
        let mut ranks = BTreeSet::new();
        // At most one copy of each rank is given up at a time.
        needless.extend(old.map(|attempt| attempt.newcomer.replica).filter(|replica| ranks.insert(replica.rank)));
        needless.into_iter().for_each(|replica| self.want_no_more(now, replica));
    }

    /// Returns true if copies of a rank can stand ready: it has two sound replicas, and no change of it is under way.
    fn can_hold(&self, now: Duration, rank: VirtualRank) -> bool {
        let Some((recovery, holding)) =
            self.recovery.as_ref().and_then(|recovery| Some((recovery, recovery.holding.as_ref()?)))
        else {
            return false;
        };
        let is_whole = |replica: ReplicaId| {
            let process = self.members.of(replica);
            let is_at_work = process.counts() && !process.is_doomed && process.phase == Phase::Ready;
            is_at_work && self.members.is_in_step(replica) && !recovery.leaving.contains_key(&replica)
        };
        let mut others =
            recovery.missing.iter().map(|(replica, missing)| (replica.rank, missing.purpose)).chain(
                recovery.attempts.values().map(|attempt| (attempt.newcomer.replica.rank, attempt.missing.purpose)),
            );
        self.members.degree(rank) == DEGREE
            && self.members.view().degree(rank) == DEGREE
            && self.members.view().live(rank).all(is_whole)
            && !holding.cases.contains_key(&rank)
            && !holding.differing.contains(&rank)
            && holding.resting.get(&rank).is_none_or(|rest| now >= rest.until)
            && !others.any(|(of, purpose)| of == rank && purpose != Purpose::Arbitration)
    }

    fn want_copy_of(&mut self, now: Duration, source: ReplicaId) {
        let Some(recovery) = &self.recovery else { return };
        let is_its = |attempt: &Attempt| attempt.newcomer.source == source && attempt.is_to_judge();
        let is_wanted = recovery.missing.values().any(|missing| missing.source == Some(source));
        if is_wanted || recovery.attempts.values().any(is_its) {
            return;
        }
        let is_free = |place: &ReplicaId| {
            let is_copied = |attempt: &Attempt| attempt.newcomer.replica == *place;
            let is_taken = recovery.missing.contains_key(place) || recovery.attempts.values().any(is_copied);
            !self.members.view().is_live(*place) && !is_taken
        };
        let Some(place) = self.members.world().sphere(source.rank).find(is_free) else { return };
        let missing = Missing {
            purpose: Purpose::Arbitration,
            since: now,
            not_before: now,
            failure_count: 0,
            was_told: false,
            is_short: false,
            only: None,
            source: Some(source),
            seat: Seat::None,
        };
        if let Some(recovery) = &mut self.recovery {
            recovery.missing.insert(place, missing);
        }
    }

    /// Reports once for each rank that no copy of it stands ready.
    pub(super) fn tell_not_held(&mut self, rank: VirtualRank, why: NotHeld) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        if holding.is_some_and(|holding| holding.told.insert(rank)) {
            self.report(Report::NotHeld { rank, why });
        }
    }

    /// Gives up a copy that stands ready, because its place is needed elsewhere. Returns true if there was one.
    pub(super) fn make_room(&mut self, now: Duration) -> bool {
        let Some(recovery) = &self.recovery else { return false };
        let first = recovery.attempts.values().find(|attempt| attempt.is_to_judge());
        let Some(rank) = first.map(|attempt| attempt.newcomer.replica.rank) else { return false };
        self.drop_held(now, rank, NotHeld::PlacesNeeded);
        true
    }

    /// Gives up copies of a rank, because one of its replicas cannot go on while they stand ready.
    pub(crate) fn hindered(&mut self, now: Duration, replica: ReplicaId) {
        self.drop_held(now, replica.rank, NotHeld::MustAgree);
    }

    /// Tells the coordinator that standard input has arrived. Copies of rank 0 that were cut before lack it, and are
    /// given up.
    pub fn input_passed(&mut self, now: Duration) {
        self.latest = now;
        if self.held().any(|(replica, _)| replica.rank == VirtualRank(0)) {
            self.drop_held(now, VirtualRank(0), NotHeld::InputCame);
        }
    }

    /// Gives up all copies of a rank that are to judge. New ones are made after a rest.
    pub(super) fn drop_held(&mut self, now: Duration, rank: VirtualRank, why: NotHeld) {
        let Some(recovery) = &mut self.recovery else { return };
        let Some(holding) = &mut recovery.holding else { return };
        let places = recovery.attempts.values().filter(|attempt| attempt.is_to_judge());
        let places = places.map(|attempt| attempt.newcomer.replica).filter(|replica| replica.rank == rank);
        let missing = recovery
            .missing
            .iter()
            .filter(|(replica, missing)| replica.rank == rank && missing.purpose == Purpose::Arbitration);
        let needless: Vec<_> = places.chain(missing.map(|(replica, _)| *replica)).collect();
        if needless.is_empty() {
            return;
        }
        let lasts = holding.resting.get(&rank).map_or(REST_FIRST, |rest| rest.lasts * 2).min(holding.interval);
        holding.resting.insert(rank, Rest { until: now + lasts, lasts });
        needless.into_iter().for_each(|replica| self.want_no_more(now, replica));
        self.tell_not_held(rank, why);
    }
}
