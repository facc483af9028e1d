//! One attempt to make a copy, from its first order until the copy is in step.

use super::missing::{Missing, Seat};
use super::{Copies, Purpose, Recovered};
use crate::members::Admitted;
use crate::{CloneFailure, Coordinator, Exit, NotHeld, Output, Report};
use redrt_types::{Admission, CutNumber, ReplicaId, VirtualRank};
use redrt_wire::card::Card;
use redrt_wire::clone::{CloneId, CloneOrder, CloneStep, Cost, Newcomer, Pins, Position};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::no_image::NoImage;
use serde::{Deserialize, Serialize};
use spare_pool::PlaceOrder;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum time for all processes to confirm that they keep messages for the copy. They confirm at once, unless one was
/// stopped. The source is not kept ready for such a one for ever.
pub(super) const PIN_TIME_MAX: Duration = Duration::from_secs(20);
/// Rest after the first failed attempt. It doubles with each further one.
const REST_FIRST: Duration = Duration::from_millis(250);
const REST_MAX: Duration = Duration::from_secs(60);
/// Number of failures after which a copy on a host of the user's choice is given up.
const TRIES_ON_ONE_HOST: u32 = 3;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Stage {
    Opening,
    Copying,
    Ready,
    Pinning {
        missing: BTreeSet<ReplicaId>,
        since: Duration,
    },
    Cutting,
    /// The copy stands ready to judge.
    Held,
    Joining,
}

/// Evidence of other replicas for the memory that is to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Proof {
    /// No comparison was asked for yet.
    Unasked,
    /// The answer comes with this round of comparisons or a later one. The clone goes on without it at `until`.
    Asked { round: u64, until: Duration },
    /// All is known that can be known.
    Settled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub newcomer: Newcomer,
    /// The need that the copy fills. Its seat is that of this attempt.
    pub missing: Missing,
    /// Number of the host of the copy, followed by that of its place.
    pub host: u32,
    pub number: u64,
    /// Number of the source's host.
    pub source_host: u32,
    pub stage: Stage,
    pub proof: Proof,
    /// Number of its cut among all cuts. Zero before the cut.
    pub cut: CutNumber,
    begun_at: Duration,
    ready_at: Duration,
    /// Time at which the source was stopped.
    pub stopped_at: Duration,
    position: Option<Position>,
    /// Process id of the copy, once it runs.
    pid: Option<i32>,
    card: Option<Card>,
    cost: Option<Cost>,
    /// True if the source's host will not report the cost any more.
    source_has_ended: bool,
}

/// A copy in step that is reported when its cost is known. The daemon of `source_host` knows it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Untold {
    pub recovered: Recovered,
    pub source_host: u32,
}

impl Attempt {
    pub(super) fn new(
        newcomer: Newcomer,
        missing: Missing,
        (host, number): (u32, u64),
        source_host: u32,
        now: Duration,
    ) -> Self {
        Self {
            newcomer,
            missing,
            host,
            number,
            source_host,
            stage: Stage::Opening,
            proof: Proof::Unasked,
            cut: CutNumber(0),
            begun_at: now,
            ready_at: now,
            stopped_at: now,
            position: None,
            pid: None,
            card: None,
            cost: None,
            source_has_ended: false,
        }
    }

    /// Returns true if all processes must keep messages that the copy may ask for.
    fn is_awaited(&self) -> bool {
        matches!(self.stage, Stage::Pinning { .. } | Stage::Cutting | Stage::Held | Stage::Joining)
    }

    /// Returns true if the copy is being made, which keeps its source and its host busy.
    pub(super) fn is_at_work(&self) -> bool {
        self.stage != Stage::Held
    }
}

impl Coordinator {
    /// Ends the clones that need one of these lost replicas.
    pub(super) fn give_up_without(&mut self, now: Duration, lost: &[ReplicaId]) {
        let Some(recovery) = &mut self.recovery else { return };
        let mut given_up = Vec::new();
        for (id, attempt) in &mut recovery.attempts {
            if attempt.stage == Stage::Joining {
                if lost.contains(&attempt.newcomer.replica) {
                    given_up.push((*id, None));
                }
                continue;
            }
            if lost.contains(&attempt.newcomer.source) {
                given_up.push((*id, Some(CloneFailure::SourceLost)));
            }
            if let Stage::Pinning { missing, .. } = &mut attempt.stage {
                missing.retain(|replica| !lost.contains(replica));
            }
        }
        for (id, why) in given_up {
            match why {
                Some(why) => self.give_up(now, id, &why, false),
                None => self.forget(id),
            }
        }
    }

    /// Drops the attempt of a newcomer that was in the view and is lost like any other replica.
    fn forget(&mut self, id: CloneId) {
        if self.recovery.as_mut().is_some_and(|recovery| recovery.attempts.remove(&id).is_some()) {
            self.tell_pins();
        }
    }

    /// Gives up the copies that were to be put on this host.
    pub(super) fn give_up_on_host(&mut self, now: Duration, host: u32, why: &CloneFailure) {
        let Some(recovery) = &self.recovery else { return };
        let concerned = |attempt: &Attempt| attempt.host == host && attempt.stage != Stage::Joining;
        let concerned = recovery.attempts.iter().filter(|(_, attempt)| concerned(attempt));
        for id in concerned.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.give_up(now, id, why, false);
        }
    }

    /// Ends an attempt without a copy in the view, and undoes its orders everywhere. With `blame`, the pool counts a
    /// failure of the host.
    pub(super) fn withdraw(&mut self, now: Duration, id: CloneId, blame: Option<&CloneFailure>) -> Option<Attempt> {
        let attempt = self.recovery.as_mut()?.attempts.remove(&id)?;
        let number = attempt.number;
        match blame {
            Some(why) => self.place(PlaceOrder::Failed { number, why: why.to_string() }),
            None if attempt.stage != Stage::Joining => self.place(PlaceOrder::Release(number)),
            None => {}
        }
        if attempt.is_awaited() {
            self.tell_pins();
        }
        if attempt.stage != Stage::Joining {
            self.order(attempt.source_host, id, CloneOrder::Abandon);
            self.order(attempt.host, id, CloneOrder::Abandon);
            self.pin_next(now);
        }
        Some(attempt)
    }

    /// Ends an attempt that has failed. The next one follows after a rest.
    pub(super) fn give_up(&mut self, now: Duration, id: CloneId, why: &CloneFailure, blames_host: bool) {
        let Some(attempt) = self.withdraw(now, id, blames_host.then_some(why)) else { return };
        let Some(recovery) = &mut self.recovery else { return };
        let failure_count = attempt.missing.failure_count + 1;
        let rest = REST_FIRST.saturating_mul(1 << (failure_count - 1).min(16)).min(REST_MAX);
        let (replica, source) = (attempt.newcomer.replica, attempt.newcomer.source);
        let is_for_arbitration = attempt.missing.purpose == Purpose::Arbitration;
        let is_short = why.is_want_of_memory();
        let is_told = is_short && attempt.missing.is_short;
        let missing = Missing { not_before: now + rest, failure_count, is_short, seat: Seat::None, ..attempt.missing };
        let gives_up = missing.only.is_some() && failure_count >= TRIES_ON_ONE_HOST;
        recovery.missing.insert(replica, missing);
        let host = recovery.name(attempt.host).to_owned();
        // Arbiters are tried again and again, but their failure is reported once.
        if is_for_arbitration {
            return self.tell_not_held(replica.rank, NotHeld::Clone(why.clone()));
        }
        if !is_told {
            self.report(Report::CloneFailed { replica, source, host, why: why.clone() });
        }
        if gives_up {
            self.cancel_move_for(replica, why);
        }
    }

    /// Ends an attempt that fails with any host, because this source cannot be copied.
    fn give_up_source(&mut self, now: Duration, id: CloneId, why: NoImage) {
        let Some(attempt) = self.recovery.as_ref().and_then(|recovery| recovery.attempts.get(&id)) else { return };
        let (newcomer, source, wanted) = (attempt.newcomer.replica, attempt.newcomer.source, attempt.missing.source);
        let life = self.members.view().member(source).map(|member| (source, member.incarnation));
        if let Some(recovery) = &mut self.recovery {
            recovery.unfit.extend(life);
        }
        if !self.is_hopeless(newcomer.rank, wanted) {
            return self.give_up(now, id, &CloneFailure::NoImage(why), false);
        }
        self.give_up(now, id, &CloneFailure::Hopeless(why.clone()), false);
        // If no other source is left, places that were granted for the rank are of no use.
        let Some(recovery) = &mut self.recovery else { return };
        let of_rank = recovery.missing.iter_mut().filter(|(place, missing)| {
            place.rank == newcomer.rank && (missing.source == wanted || missing.source == Some(source))
        });
        let seats: Vec<_> = of_rank.map(|(_, missing)| std::mem::replace(&mut missing.seat, Seat::None)).collect();
        seats.into_iter().for_each(|seat| self.give_seat_back(seat));
        self.cancel_move_for(newcomer, &CloneFailure::NoImage(why));
    }

    pub(super) fn give_up_late_pins(&mut self, now: Duration) {
        let Some(recovery) = &self.recovery else { return };
        let late = recovery.attempts.iter().filter_map(|(id, attempt)| match attempt.stage {
            Stage::Pinning { since, .. } if now >= since + PIN_TIME_MAX => Some(*id),
            _ => None,
        });
        for id in late.collect::<Vec<_>>() {
            self.give_up(now, id, &CloneFailure::Silent, false);
        }
    }

    /// Acts on a daemon's report of progress.
    pub(crate) fn clone_step(&mut self, now: Duration, host: u32, id: CloneId, step: CloneStep) {
        let Some(recovery) = &mut self.recovery else { return };
        let Some(attempt) = recovery.attempts.get_mut(&id) else {
            let cost = match step {
                CloneStep::Sent(cost) => Some(cost),
                CloneStep::Failed(_) => None,
                _ => return,
            };
            if let Some(untold) = recovery.untold.get_mut(&id).filter(|untold| untold.source_host == host) {
                untold.recovered.cost = cost;
                let replica = untold.recovered.replica;
                self.tell_recovered(|untold| untold.recovered.replica == replica);
            }
            return;
        };
        let (is_source, is_destination) = (host == attempt.source_host, host == attempt.host);
        let newcomer = attempt.newcomer;
        match (step, attempt.stage.clone()) {
            (CloneStep::Listening(address), Stage::Opening) if is_destination => {
                attempt.stage = Stage::Copying;
                let (source_host, purpose) = (attempt.source_host, attempt.missing.purpose);
                let (Newcomer { replica, source, .. }, host) = (newcomer, recovery.name(host).to_owned());
                self.report(Report::CloneBegun { replica, source, purpose, host });
                self.order(source_host, id, CloneOrder::Send { newcomer, address });
            }
            (CloneStep::Progress(progress), Stage::Copying) if is_source => {
                self.outputs.push_back(Output::Progress { newcomer, progress });
            }
            (CloneStep::Ready, Stage::Copying) if is_source => {
                attempt.stage = Stage::Ready;
                attempt.ready_at = now;
                self.ask_for_proof(now, id);
                self.pin_next(now);
            }
            (CloneStep::Stopped(position), Stage::Cutting) if is_source => {
                attempt.position = Some(position);
                attempt.stopped_at = now;
                self.admit_when_complete(now, id);
            }
            (CloneStep::Running { pid }, Stage::Cutting) if is_destination => {
                attempt.pid = Some(pid);
                // A copy that is to judge is reported when it is let in, since it is no replica before that.
                if attempt.missing.purpose != Purpose::Arbitration {
                    self.report(Report::CopyRuns { replica: newcomer.replica, pid });
                }
                self.admit_when_complete(now, id);
            }
            (CloneStep::Sent(cost), _) if is_source => attempt.cost = Some(cost),
            (CloneStep::Failed(_), Stage::Joining) if is_source && !is_destination => attempt.source_has_ended = true,
            (CloneStep::Failed(why), Stage::Joining) if is_destination => {
                // The copy ended before the coordinator knew that it has its place.
                let (replica, source) = (newcomer.replica, newcomer.source);
                let why = CloneFailure::NoImage(why);
                self.report(Report::CloneFailed { replica, source, host: String::new(), why });
                self.handle_end_of_newcomer(now, replica);
            }
            (CloneStep::Failed(why), stage) if stage != Stage::Joining && (is_source || is_destination) => {
                if why.is_lasting() {
                    return self.give_up_source(now, id, why);
                }
                if why.is_want_of_memory() {
                    self.memory_ran_out(host);
                }
                // A host is not blamed for lack of room.
                let blames_host = is_destination && !is_source && !why.is_want_of_memory();
                self.give_up(now, id, &CloneFailure::NoImage(why), blames_host);
            }
            // A step that does not fit the stage belongs to an attempt that was given up, or changes nothing.
            _ => {}
        }
    }

    fn handle_end_of_newcomer(&mut self, now: Duration, replica: ReplicaId) {
        self.members.drained(replica);
        self.exited(now, replica, Exit::Signal(crate::SIGKILL));
        self.place_freed(replica);
    }

    /// Lets the next clone that is ready ask for pins, unless another is between its pins and the view.
    pub(super) fn pin_next(&mut self, now: Duration) {
        let live: BTreeSet<_> = (0..self.members.world().rank_count())
            .flat_map(|rank| self.members.view().live(VirtualRank(rank)))
            .collect();
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.is_cutting() {
            return;
        }
        let can_be_cut = |attempt: &&mut Attempt| attempt.stage == Stage::Ready && attempt.proof == Proof::Settled;
        let next = recovery.attempts.values_mut().find(can_be_cut);
        let Some(attempt) = next else { return };
        attempt.stage = Stage::Pinning { missing: live, since: now };
        self.tell_pins();
    }

    /// Sends all processes the complete list of newcomers for which they are to keep messages beyond the view.
    pub(super) fn tell_pins(&mut self) {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let kept = attempts.filter(|attempt| attempt.is_awaited());
        let (ready, awaited): (Vec<_>, Vec<_>) = kept.partition(|attempt| attempt.stage == Stage::Held);
        let places = |attempts: Vec<&Attempt>| attempts.into_iter().map(|attempt| attempt.newcomer.replica).collect();
        let pins = Pins { awaited: places(awaited), ready: places(ready) };
        self.send(ToDaemon::Pins(pins));
    }

    /// Records that a process keeps messages for these newcomers.
    pub(crate) fn pinned(&mut self, now: Duration, by: ReplicaId, newcomers: &[ReplicaId]) {
        let Some(recovery) = &mut self.recovery else { return };
        for attempt in recovery.attempts.values_mut().filter(|attempt| newcomers.contains(&attempt.newcomer.replica)) {
            if let Stage::Pinning { missing, .. } = &mut attempt.stage {
                missing.remove(&by);
            }
        }
        self.cut_when_pinned(now);
    }

    pub(super) fn cut_when_pinned(&mut self, now: Duration) {
        let Some(recovery) = &mut self.recovery else { return };
        let is_pinned =
            |attempt: &Attempt| matches!(&attempt.stage, Stage::Pinning { missing, .. } if missing.is_empty());
        match recovery.attempts.iter_mut().find(|(_, attempt)| is_pinned(attempt)) {
            Some((id, attempt)) => {
                recovery.cut_count += 1;
                (attempt.stage, attempt.cut) = (Stage::Cutting, CutNumber(recovery.cut_count));
                let (id, host) = (*id, attempt.source_host);
                self.order(host, id, CloneOrder::Cut);
            }
            None => self.pin_next(now),
        }
    }

    /// Records the card of a copy. Returns false if no clone waits for that process.
    pub(crate) fn copy_ready(&mut self, now: Duration, replica: ReplicaId, card: &Card) -> bool {
        let Some(recovery) = &mut self.recovery else { return false };
        let waits = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.stage == Stage::Cutting;
        let Some((id, attempt)) = recovery.attempts.iter_mut().find(|(_, attempt)| waits(attempt)) else {
            return false;
        };
        attempt.card = Some(card.clone());
        let id = *id;
        self.admit_when_complete(now, id);
        true
    }

    /// Lets the copy into the view, or holds it ready, once it runs and its card is known.
    fn admit_when_complete(&mut self, now: Duration, id: CloneId) {
        let Some(recovery) = &mut self.recovery else { return };
        let attempt = recovery.attempts.get_mut(&id).expect("the caller has seen it");
        if attempt.position.is_none() || attempt.card.is_none() || attempt.pid.is_none() {
            return;
        }
        let (source, is_to_judge) = (attempt.newcomer.source, attempt.missing.purpose == Purpose::Arbitration);
        if !self.members.view().is_live(source) || !self.members.counts(source) {
            return self.give_up(now, id, &CloneFailure::SourceLost, false);
        }
        if is_to_judge {
            self.hold(id);
        } else {
            self.let_in(now, &[id]);
        }
        self.pin_next(now);
    }

    /// Gives copies their places, all in one view. All copies must have the same purpose.
    pub(super) fn let_in(&mut self, now: Duration, ids: &[CloneId]) {
        let Some(recovery) = &mut self.recovery else { return };
        let admitted: Vec<_> = ids.iter().map(|id| (*id, recovery.attempts[id].clone())).collect();
        let new_cards: Vec<_> = admitted.iter().filter_map(|(_, attempt)| attempt.card.clone()).collect();
        let mut copies = Vec::new();
        for (_, attempt) in &admitted {
            let Newcomer { replica, incarnation, source } = attempt.newcomer;
            recovery.places.insert(replica, attempt.number);
            copies.push(Admitted {
                admission: Admission { replica, incarnation, source: source.index, cut: attempt.cut },
                card: attempt.card.clone(),
                pid: attempt.pid,
                lacks_script: attempt.position.as_ref().is_some_and(|at| at.lacks_script),
            });
        }
        let is_to_judge = admitted.iter().any(|(_, attempt)| attempt.missing.purpose == Purpose::Arbitration);
        self.members.admit(copies, is_to_judge);
        self.machines.membership_changed(now, self.members.view());
        let cards = self.members.cards();
        for (id, attempt) in &admitted {
            let Newcomer { replica, source, .. } = attempt.newcomer;
            let position = attempt.position.clone().expect("it is complete");
            let offset = position.output_bytes;
            self.order(attempt.host, *id, CloneOrder::Meet { cards: cards.clone(), position });
            let kinship = self.members.view().kinship(replica.rank).clone();
            let live = self.members.view().live_set(replica.rank);
            let is_one = live.len() > 2 && kinship.is_one_lineage(live);
            self.outputs.push_back(Output::StreamJoined { replica, source, offset, kinship });
            if is_one {
                self.report(Report::OneLineage(replica.rank));
            }
            if let Some(pid) = attempt.pid.filter(|_| is_to_judge) {
                self.report(Report::CopyRuns { replica, pid });
            }
        }
        if is_to_judge {
            // Pins of others may have been set after the cut. The arbiter must know them before it hears from replicas
            // in the view, or it would release messages that those newcomers still need.
            self.tell_pins();
        }
        self.send(ToDaemon::Cards(new_cards));
        self.send(ToDaemon::View(self.members.view().clone()));
        let Some(recovery) = &mut self.recovery else { return };
        for (id, _) in admitted {
            recovery.attempts.get_mut(&id).expect("it was just admitted").stage = Stage::Joining;
        }
        // The copy has received no pins since its cut.
        self.tell_pins();
    }

    /// A copy has caught up with its leader, and counts like any other replica from now on.
    pub(crate) fn in_step(&mut self, now: Duration, replica: ReplicaId) {
        let Some(recovery) = &mut self.recovery else { return };
        let joins = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.stage == Stage::Joining;
        let Some(id) = recovery.attempts.iter().find(|(_, attempt)| joins(attempt)).map(|(id, _)| *id) else { return };
        let attempt = recovery.attempts.remove(&id).expect("it was just found");
        self.members.in_step_now(replica);
        self.place(PlaceOrder::Succeeded(attempt.number));
        self.tell_pins();
        let since = attempt.missing.since;
        let recovered = Recovered {
            replica,
            source: attempt.newcomer.source,
            purpose: attempt.missing.purpose,
            window: now.saturating_sub(since),
            waited: attempt.begun_at.saturating_sub(since),
            copied: attempt.ready_at.saturating_sub(attempt.begun_at),
            cost: attempt.cost,
        };
        let source_host = attempt.source_host;
        let Some(recovery) = &mut self.recovery else { return };
        let is_told_of = attempt.cost.is_some() || attempt.source_has_ended || !recovery.hosts[&source_host].is_alive;
        recovery.untold.insert(id, Untold { recovered, source_host });
        if is_told_of {
            self.tell_recovered(|untold| untold.recovered.replica == replica);
        }
    }

    /// Reports copies in step, with their cost if it is known.
    pub(super) fn tell_recovered(&mut self, which: impl Fn(&Untold) -> bool) {
        let Some(recovery) = &mut self.recovery else { return };
        let told: Vec<_> = recovery.untold.extract_if(.., |_, untold| which(untold)).collect();
        for (_, untold) in told {
            self.report(Report::Recovered(untold.recovered));
        }
    }
}

impl Copies {
    /// Returns true if a replica is being copied.
    pub(super) fn is_source(&self, replica: ReplicaId) -> bool {
        let is_its = |attempt: &Attempt| attempt.newcomer.source == replica && attempt.stage != Stage::Joining;
        self.attempts.values().any(|attempt| attempt.is_at_work() && is_its(attempt))
    }
}
