//! Of each rank with two replicas, a copy of either stands ready, to judge when the two differ (`redrun --arbitrate`).
//!
//! ```text
//!  missing ─▶ … ─▶ cutting ─▶ held ──── two differ ────▶ joining ─▶ in step ─▶ a verdict ─▶ one stays, if its sibling is to go
//!     ▲                        │ after the interval, its source is lost, it is in the way
//!     └────────────────────────┘
//! ```
//! Until *held* it is a clone like any other ([`attempt`](super::attempt)); its place is asked for like any other, too. While it is held
//! it waits at the gate of MPI, and every process keeps for it what it may ask for: for the interval, and no longer.
//!
//! A *case* begins when a receiver says that two replicas differ, and ends with the verdict of a receiver, or when there is nobody left to
//! judge or to ask. Who judges is not decided here: the receivers compare votes (`quiesce`, arbitration). Here is decided who goes.

use super::Purpose;
use super::Recovery;
use super::attempt::{Attempt, Stage};
use super::leaving::Move;
use super::missing::{Missing, Seat};
use crate::coordinator::{Coordinator, Phase, Report, RetireReason};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::clone::CloneId;
use redrt_wire::event::{Finding, Mismatch};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Only where two replicas differ is there something to judge.
const DEGREE: u16 = 2;
/// Arbiters get this time, and besides several times that in which they may have fallen behind, to come to what is in dispute.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many times.
const PATIENCE_INTERVALS: u32 = 4;
/// When copies were in the way, none are made for this time; it doubles with each time, up to the interval.
const REST_FIRST: Duration = Duration::from_secs(1);

/// A copy that was let in to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arbiter {
    /// Its place.
    pub replica: ReplicaId,
    /// Whom it is a copy of.
    pub source: ReplicaId,
    /// How long ago it was copied when it was let in.
    pub age: Duration,
}

/// What came of a dispute.
#[derive(Clone, PartialEq, Eq, Debug)]
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

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Duration,
    lasts: Duration,
}

/// A dispute.
#[derive(Debug)]
struct Case {
    begun_at: Duration,
    arbiters: Vec<Arbiter>,
    /// Those who asked.
    receivers: BTreeSet<ReplicaId>,
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Verdict {
    culprit: Option<ReplicaId>,
    found_at: Duration,
}

/// Copies that stand ready, and what is asked of them.
#[derive(Debug)]
pub(super) struct Holding {
    interval: Duration,
    /// Ranks of which no copies are made for a while.
    resting: BTreeMap<VirtualRank, Rest>,
    cases: BTreeMap<VirtualRank, Case>,
    /// Ranks whose replicas have sent or taken different things, and nobody knows which of them is right. A copy would only repeat
    /// what its original says.
    differing: BTreeSet<VirtualRank>,
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

    fn patience(&self) -> Duration {
        PATIENCE + self.interval * PATIENCE_INTERVALS
    }
}

impl Attempt {
    fn is_to_judge(&self) -> bool {
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
            only: None,
            source: Some(source),
            seat: Seat::None,
        };
        if let Some(recovery) = &mut self.recovery {
            recovery.missing.insert(place, missing);
        }
    }

    /// Says once of a rank that no copy of it stands ready.
    pub(super) fn tell_not_held(&mut self, rank: VirtualRank, why: &str) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        if holding.is_some_and(|holding| holding.told.insert(rank)) {
            self.report(Report::NotHeld { rank, why: why.to_owned() });
        }
    }

    /// Somebody needs a place: one that only stands ready gives way. Whether there was one.
    pub(super) fn make_room(&mut self, now: Duration) -> bool {
        let Some(recovery) = &self.recovery else { return false };
        let first = recovery.attempts.values().find(|attempt| attempt.is_to_judge());
        let Some(rank) = first.map(|attempt| attempt.newcomer.replica.rank) else { return false };
        self.drop_held(now, rank, "its places are needed for replicas that were lost");
        true
    }

    /// A process cannot go on while copies of its rank stand ready.
    pub(in crate::coordinator) fn hindered(&mut self, now: Duration, replica: ReplicaId) {
        self.drop_held(now, replica.rank, "its program has come to what all replicas of it must agree on, a receive that is cancelled or a file system");
    }

    /// Standard input came: who was copied before would lack it.
    pub fn input_passed(&mut self, now: Duration) {
        self.latest = now;
        if self.held().any(|(replica, _)| replica.rank == VirtualRank(0)) {
            self.drop_held(now, VirtualRank(0), "it reads standard input, and some came after it was copied");
        }
    }

    /// Copies of a rank that stand ready, or are made to, do so no more for a while.
    fn drop_held(&mut self, now: Duration, rank: VirtualRank, why: &str) {
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

    /// Two replicas differ and a receiver waits: whoever stands ready is let in. If nobody does, the receivers know it, or are about to.
    pub(in crate::coordinator) fn dispute(&mut self, now: Duration, mismatch: &Mismatch) {
        self.stall.reset(now);
        let rank = mismatch.sender;
        let (view, receiver) = (&self.view, mismatch.receiver);
        let Some(recovery) = &mut self.recovery else { return };
        let Some(holding) = &mut recovery.holding else { return };
        if let Some(case) = holding.cases.get_mut(&rank) {
            case.receivers.insert(receiver);
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
        let receivers = BTreeSet::from([receiver]);
        holding.cases.insert(rank, Case { begun_at: now, arbiters, receivers, verdict: None });
        self.let_in(now, &ids);
    }

    /// A receiver has compared votes: if that was in dispute, this is the verdict.
    pub(in crate::coordinator) fn judged(&mut self, now: Duration, mismatch: &Mismatch) {
        self.note_verdict(now, mismatch);
        if mismatch.finding == Finding::Undecidable {
            self.note_difference(now, mismatch.sender);
            self.note_difference(now, mismatch.receiver.rank);
        }
    }

    fn note_difference(&mut self, now: Duration, rank: VirtualRank) {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        if holding.is_some_and(|holding| holding.differing.insert(rank)) {
            self.drop_held(now, rank, "its replicas differ, and nobody knows which one is right");
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
        // What is open for one message may be plain for the next.
        if is_verdict && case.verdict.is_none_or(|verdict| verdict.culprit.is_none()) {
            case.verdict = Some(Verdict { culprit, found_at: now });
        }
    }

    /// Ends cases that have a verdict, or will never have one.
    pub(super) fn conclude_cases(&mut self, now: Duration) {
        let Some(holding) = self.recovery.as_ref().and_then(|recovery| recovery.holding.as_ref()) else { return };
        let (ranks, patience) = (holding.cases.keys().copied().collect::<Vec<_>>(), holding.patience());
        self.give_up_cases(now, |begun_at| now >= begun_at + patience);
        ranks.into_iter().for_each(|rank| self.conclude(now, rank));
    }

    /// Arbiters do not come to what is in dispute, as those of a program that has left its own path: they are ended. `which` says by when it
    /// began whether that is so. Whether any was ended.
    pub(in crate::coordinator) fn give_up_cases(&mut self, now: Duration, which: impl Fn(Duration) -> bool) -> bool {
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        let cases = holding.into_iter().flat_map(|holding| holding.cases.values_mut());
        let mut strays = Vec::new();
        for case in cases.filter(|case| case.verdict.is_none() && which(case.begun_at)) {
            case.verdict = Some(Verdict { culprit: None, found_at: now });
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
            || !case.receivers.iter().any(|receiver| is_live(*receiver))
            || !case.arbiters.iter().all(|arbiter| is_live(arbiter.source));
        let open = Verdict { culprit: None, found_at: now };
        let Some(verdict) = case.verdict.or(is_over.then_some(open)) else { return };
        // Before that none of them can take another's part.
        let counts = |replica: ReplicaId| self.processes[self.world().process(replica).0 as usize].counts();
        if !judging.clone().all(|arbiter| self.is_in_step(arbiter.replica) || !counts(arbiter.replica)) {
            return;
        }
        if let Some(culprit) = verdict.culprit {
            self.evict(now, culprit);
        }
        let holding = self.recovery.as_mut().and_then(|recovery| recovery.holding.as_mut());
        let Some(case) = holding.and_then(|holding| holding.cases.remove(&rank)) else { return };
        self.dismiss(&case.arbiters, rank, verdict.culprit);
        let took = verdict.found_at.saturating_sub(case.begun_at);
        self.report(Report::Arbitrated(Arbitration { rank, arbiters: case.arbiters, culprit: verdict.culprit, took }));
    }

    /// Arbiters that their rank has too many leave: rather those whose originals stay, so that what stays has the least in common.
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
