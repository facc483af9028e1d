//! Of each rank with two replicas, a copy of either stands ready, to judge when the two differ (`redrun --arbitrate`).
//!
//! ```text
//!  missing ─▶ … ─▶ cutting ─▶ held ──── two differ ─▶ joining ─▶ in step ─▶ a verdict ─▶ one may stay
//!     ▲                        │ after the interval, its source is lost, it is in the way
//!     └────────────────────────┘
//! ```
//! Until *held* it is a clone like any other ([`attempt`](super::attempt)); its place is asked for like any other, too.
//! While it is held it waits at the gate of MPI, and every process keeps for it what it may ask for: for the interval,
//! and no longer.
//!
//! What follows when two differ is [`judging`](super::judging).

use super::Purpose;
use super::Recovery;
use super::attempt::{Attempt, Stage};
use super::judging::Case;
use super::missing::{Missing, Seat};
use crate::{Coordinator, NotHeld, Phase, Report};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::clone::CloneId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Only where two replicas differ is there something to judge.
const DEGREE: u16 = 2;
/// When copies were in the way, none are made for this time; it doubles with each time, up to the interval.
const REST_FIRST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Rest {
    until: Duration,
    lasts: Duration,
}

/// Copies that stand ready, and what is asked of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Holding {
    pub interval: Duration,
    /// Ranks of which no copies are made for a while.
    resting: BTreeMap<VirtualRank, Rest>,
    pub cases: BTreeMap<VirtualRank, Case>,
    /// Ranks whose replicas have sent or taken different things, and nobody knows which of them is right. A copy would
    /// only repeat what its original says.
    pub differing: BTreeSet<VirtualRank>,
    /// Ranks of which it was said that no copy is held.
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

impl Recovery {
    /// Whether a copy for this place is made, or stands ready, to judge.
    pub(super) fn is_to_judge(&self, replica: ReplicaId) -> bool {
        let missing = self.missing.get(&replica).is_some_and(|missing| missing.purpose == Purpose::Arbitration);
        let is_its = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.is_to_judge();
        missing || self.attempts.values().any(is_its)
    }

    /// When a copy that stands ready is to be made anew, or one may be made again.
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
    /// Copies that stand ready, with their sources.
    pub fn held(&self) -> impl Iterator<Item = (ReplicaId, ReplicaId)> + '_ {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let held = attempts.filter(|attempt| attempt.stage == Stage::Held);
        held.map(|attempt| (attempt.newcomer.replica, attempt.newcomer.source))
    }

    /// The copy runs and can be reached: it stands ready.
    pub(super) fn hold(&mut self, id: CloneId) {
        let Some(recovery) = &mut self.recovery else { return };
        let attempt = recovery.attempts.get_mut(&id).expect("the caller has seen it");
        attempt.stage = Stage::Held;
        attempt.missing.failure_count = 0;
        let (replica, source) = (attempt.newcomer.replica, attempt.newcomer.source);
        self.tell_pins();
        self.report(Report::CopyHeld { replica, source });
    }

    /// Makes copies that are to stand ready, anew when they have done so for long enough.
    pub(super) fn hold_copies(&mut self, now: Duration) {
        self.renew(now);
        let ranks = (0..self.world().rank_count()).map(VirtualRank);
        for rank in ranks.filter(|rank| self.can_hold(now, *rank)).collect::<Vec<_>>() {
            for source in self.view.live(rank).collect::<Vec<_>>() {
                self.want_copy_of(now, source);
            }
        }
    }

    /// Gives up what is old, and what is not wanted any more.
    fn renew(&mut self, now: Duration) {
        let Some((recovery, holding)) =
            self.recovery.as_ref().and_then(|recovery| Some((recovery, recovery.holding.as_ref()?)))
        else {
            return;
        };
        let is_wanted = |rank: VirtualRank, source: ReplicaId| {
            recovery.degrees[rank.0 as usize] == DEGREE
                && self.view.is_live(source)
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
            // One of the two stands ready while the other is made, but not for ever.
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
        // Of one rank one at a time.
        needless.extend(old.map(|attempt| attempt.newcomer.replica).filter(|replica| ranks.insert(replica.rank)));
        needless.into_iter().for_each(|replica| self.want_no_more(now, replica));
    }

    /// Whether copies of a rank can stand ready: it is whole, and nothing is about to change in it.
    fn can_hold(&self, now: Duration, rank: VirtualRank) -> bool {
        let Some((recovery, holding)) =
            self.recovery.as_ref().and_then(|recovery| Some((recovery, recovery.holding.as_ref()?)))
        else {
            return false;
        };
        let is_whole = |replica: ReplicaId| {
            let process = &self.processes[self.world().process(replica).0 as usize];
            let is_at_work = process.counts() && !process.is_doomed && process.phase == Phase::Ready;
            is_at_work && self.is_in_step(replica) && !recovery.leaving.contains_key(&replica)
        };
        let mut others =
            recovery.missing.iter().map(|(replica, missing)| (replica.rank, missing.purpose)).chain(
                recovery.attempts.values().map(|attempt| (attempt.newcomer.replica.rank, attempt.missing.purpose)),
            );
        recovery.degrees[rank.0 as usize] == DEGREE
            && self.view.degree(rank) == DEGREE
            && self.view.live(rank).all(is_whole)
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
            !self.view.is_live(*place) && !is_taken
        };
        let Some(place) = self.world().sphere(source.rank).find(is_free) else { return };
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

    /// Says once of a rank that no copy of it stands ready.
    pub(super) fn tell_not_held(&mut self, rank: VirtualRank, why: NotHeld) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        if holding.is_some_and(|holding| holding.told.insert(rank)) {
            self.report(Report::NotHeld { rank, why });
        }
    }

    /// Somebody needs a place: one that only stands ready gives way. Whether there was one.
    pub(super) fn make_room(&mut self, now: Duration) -> bool {
        let Some(recovery) = &self.recovery else { return false };
        let first = recovery.attempts.values().find(|attempt| attempt.is_to_judge());
        let Some(rank) = first.map(|attempt| attempt.newcomer.replica.rank) else { return false };
        self.drop_held(now, rank, NotHeld::PlacesNeeded);
        true
    }

    /// A process cannot go on while copies of its rank stand ready.
    pub(crate) fn hindered(&mut self, now: Duration, replica: ReplicaId) {
        self.drop_held(now, replica.rank, NotHeld::MustAgree);
    }

    /// Standard input came: who was copied before would lack it.
    pub fn input_passed(&mut self, now: Duration) {
        self.latest = now;
        if self.held().any(|(replica, _)| replica.rank == VirtualRank(0)) {
            self.drop_held(now, VirtualRank(0), NotHeld::InputCame);
        }
    }

    /// Copies of a rank that stand ready, or are made to, do so no more for a while.
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
