//! The clones under way: the orders to daemons and the pins of processes, from the first order until the copy is in
//! step.
//!
//! Enters: reports of daemons, processes and the loss of both. Leaves: orders, pins, and how far a clone has come
//! ([`Stepped`]). Why a copy is made, and what follows from its failure, is decided elsewhere (`making`).

use super::attempt::{Attempt, PIN_TIME_MAX, Proof, Stage, Unreported};
use super::hosts::Hosts;
use crate::effect::{CopyEffect, Effects};
use crate::facts::Facts;
use crate::members::Admitted;
use crate::scrub::ScrubWatch;
use crate::{CloneFailure, Output, Report};
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, VirtualRank};
use redrt_wire::card::Card;
use redrt_wire::clone::{CloneId, CloneOrder, CloneStep, Newcomer, Pins};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::no_image::NoImage;
use serde::{Deserialize, Serialize};
use spare_pool::PlaceOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A consequence of a daemon's report that does not concern the clone alone.
#[derive(Debug)]
pub(super) enum Stepped {
    /// The report concerns the clone alone.
    None,
    /// The copy may be complete.
    Advanced,
    /// The clone has failed. The host is blamed if the cause is there.
    Failed { why: NoImage, blames_host: bool },
}

/// The clones under way; see the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Clones {
    attempts: BTreeMap<CloneId, Attempt>,
    /// Copies in step that were not reported yet, because their cost is unknown.
    untold: BTreeMap<CloneId, Unreported>,
    /// Incarnations that can never be copied.
    pub(super) unfit: BTreeSet<(ReplicaId, Incarnation)>,
    /// Incarnations whose memory others contradicted when they were to be copied.
    pub(super) distrusted: BTreeSet<(ReplicaId, Incarnation)>,
    /// Number of cuts so far. Orders them against comparisons of memory.
    cut_count: u64,
}

impl Clones {
    /// A job in which `cut_count` cuts were made before.
    pub(super) fn new(cut_count: u64) -> Self {
        let (unfit, distrusted) = (BTreeSet::new(), BTreeSet::new());
        Self { attempts: BTreeMap::new(), untold: BTreeMap::new(), unfit, distrusted, cut_count }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (CloneId, &Attempt)> {
        self.attempts.iter().map(|(id, attempt)| (*id, attempt))
    }

    pub(super) fn get(&self, id: CloneId) -> Option<&Attempt> {
        self.attempts.get(&id)
    }

    /// The clones under way, without copies that stand ready.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (CloneId, Newcomer)> {
        self.all().filter(|(_, attempt)| attempt.is_at_work()).map(|(id, attempt)| (id, attempt.newcomer))
    }

    /// The copies that stand ready to judge.
    pub(crate) fn held(&self) -> impl Iterator<Item = Newcomer> {
        self.all().filter(|(_, attempt)| !attempt.is_at_work()).map(|(_, attempt)| attempt.newcomer)
    }

    /// The clones of copies that are to judge and have not joined.
    pub(super) fn to_judge(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.values().filter(|attempt| attempt.is_to_judge())
    }

    /// Returns true if a clone is between its pins and the view with its copy.
    pub(crate) fn is_cutting(&self) -> bool {
        self.attempts.values().any(Attempt::is_cutting)
    }

    /// Returns true if a replica of this rank is about to be stopped for a copy, or was, and the copy is not in the
    /// view yet.
    pub(crate) fn is_cutting_in(&self, rank: VirtualRank) -> bool {
        self.attempts.values().any(|attempt| attempt.newcomer.replica.rank == rank && attempt.is_cutting())
    }

    /// Returns true if no clone is under way, apart from copies that stand ready to judge.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way().next().is_none()
    }

    pub(crate) fn cut_count(&self) -> CutNumber {
        CutNumber(self.cut_count)
    }

    /// Returns true if a replica is being copied.
    pub(super) fn is_source(&self, replica: ReplicaId) -> bool {
        let is_its = |attempt: &Attempt| attempt.newcomer.source == replica && !attempt.is_joining();
        self.attempts.values().any(|attempt| attempt.is_at_work() && is_its(attempt))
    }

    /// Returns true if a replica is being copied, or is a copy that is being made.
    pub(super) fn is_busy(&self, replica: ReplicaId) -> bool {
        self.under_way().any(|(_, newcomer)| newcomer.source == replica || newcomer.replica == replica)
    }

    /// The clone that is to fill a place, until the copy has joined.
    pub(super) fn filling(&self, place: ReplicaId) -> Option<CloneId> {
        let is_its = |attempt: &Attempt| attempt.newcomer.replica == place && !attempt.is_joining();
        self.all().find(|(_, attempt)| is_its(attempt)).map(|(id, _)| id)
    }

    /// Returns true if a place has a clone, joining or not.
    pub(super) fn has(&self, place: ReplicaId) -> bool {
        self.attempts.values().any(|attempt| attempt.newcomer.replica == place)
    }

    /// The clone whose copy is in the place of a pool with this number.
    pub(super) fn in_place(&self, number: u64) -> Option<(CloneId, &Attempt)> {
        self.all().find(|(_, attempt)| attempt.number == number)
    }

    /// The time at which [`Clones::late_pins`] has a clone, or at which a source is copied without proof.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let deadline = |attempt: &Attempt| match (&attempt.stage, attempt.proof) {
            (Stage::Pinning { since, .. }, _) => Some(*since + PIN_TIME_MAX),
            (Stage::Ready, Proof::Asked { until, .. }) => Some(until),
            _ => None,
        };
        self.attempts.values().filter_map(deadline).min()
    }

    /// The clones whose pins are not confirmed in time.
    pub(super) fn late_pins(&self, now: Duration) -> Vec<CloneId> {
        let is_late =
            |attempt: &Attempt| matches!(attempt.stage, Stage::Pinning { since, .. } if now >= since + PIN_TIME_MAX);
        self.all().filter(|(_, attempt)| is_late(attempt)).map(|(id, _)| id).collect()
    }

    /// The clones to a host that have not joined.
    pub(super) fn to_host(&self, host: u32) -> Vec<CloneId> {
        let is_its = |attempt: &Attempt| attempt.host == host && !attempt.is_joining();
        self.all().filter(|(_, attempt)| is_its(attempt)).map(|(id, _)| id).collect()
    }

    /// Returns true if a clone needs a host, for its source or for a copy that has not joined.
    pub(super) fn need_host(&self, host: u32) -> bool {
        let needs = |attempt: &Attempt| attempt.source_host == host || attempt.host == host && !attempt.is_joining();
        self.attempts.values().any(needs)
    }
}

/// The course of a clone.
impl Clones {
    /// Begins a clone: the host of the copy is to receive it.
    pub(super) fn begin(&mut self, id: CloneId, attempt: Attempt, memory_bytes: u64, out: &mut Effects) {
        let (host, newcomer) = (attempt.host, attempt.newcomer);
        self.attempts.insert(id, attempt);
        out.output(Output::Moved { replica: newcomer.replica, host });
        order(host, id, CloneOrder::Receive { newcomer, memory_bytes }, out);
    }

    /// Takes the loss of replicas. Returns the clones that end by it, each with true if its copy had joined. Such a
    /// copy is lost like any other replica.
    pub(super) fn lose(&mut self, lost: &[ReplicaId]) -> Vec<(CloneId, bool)> {
        let mut ended = Vec::new();
        for (id, attempt) in &mut self.attempts {
            let needed = if attempt.is_joining() { attempt.newcomer.replica } else { attempt.newcomer.source };
            if lost.contains(&needed) {
                ended.push((*id, attempt.is_joining()));
            }
            if let Stage::Pinning { missing, .. } = &mut attempt.stage {
                missing.retain(|replica| !lost.contains(replica));
            }
        }
        ended
    }

    /// Drops the clone of a copy that was in the view.
    pub(super) fn forget(&mut self, id: CloneId, out: &mut Effects) {
        if self.attempts.remove(&id).is_some() {
            self.send_pins(out);
        }
    }

    /// Ends an attempt without a copy in the view, and undoes its orders everywhere. With `blame`, the pool counts a
    /// failure of the host.
    pub(super) fn withdraw(
        &mut self,
        facts: Facts<'_>,
        id: CloneId,
        blame: Option<&CloneFailure>,
        out: &mut Effects,
    ) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        let number = attempt.number;
        match blame {
            Some(why) => out.output(Output::Place(PlaceOrder::Failed { number, why: why.to_string() })),
            None if !attempt.is_joining() => out.output(Output::Place(PlaceOrder::Release(number))),
            None => {}
        }
        if attempt.is_awaited() {
            self.send_pins(out);
        }
        if !attempt.is_joining() {
            order(attempt.source_host, id, CloneOrder::Abandon, out);
            order(attempt.host, id, CloneOrder::Abandon, out);
            self.pin_next(facts, out);
        }
        Some(attempt)
    }

    /// Acts on a daemon's report of progress.
    pub(super) fn step(
        &mut self,
        facts: Facts<'_>,
        (hosts, scrub): (&Hosts, Option<&ScrubWatch>),
        (host, id, step): (u32, CloneId, CloneStep),
        out: &mut Effects,
    ) -> Stepped {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            self.learn_cost(host, id, &step, out);
            return Stepped::None;
        };
        let (is_source, is_destination) = (host == attempt.source_host, host == attempt.host);
        let newcomer = attempt.newcomer;
        let Newcomer { replica, source, .. } = newcomer;
        match (step, &attempt.stage) {
            (CloneStep::Listening(address), Stage::Opening) if is_destination => {
                attempt.stage = Stage::Copying;
                let (purpose, host) = (attempt.missing.purpose, hosts.name(host).to_owned());
                out.report(Report::CloneBegun { replica, source, purpose, host });
                order(attempt.source_host, id, CloneOrder::Send { newcomer, address }, out);
            }
            (CloneStep::Progress(progress), Stage::Copying) if is_source => {
                out.output(Output::Progress { newcomer, progress });
            }
            (CloneStep::Ready, Stage::Copying) if is_source => {
                (attempt.stage, attempt.ready_at) = (Stage::Ready, facts.now);
                self.ask_for_proof(facts, scrub, id, out);
                self.pin_next(facts, out);
            }
            (CloneStep::Stopped(position), Stage::Cutting) if is_source => {
                (attempt.position, attempt.stopped_at) = (Some(position), facts.now);
                return Stepped::Advanced;
            }
            (CloneStep::Running { pid }, Stage::Cutting) if is_destination => {
                attempt.pid = Some(pid);
                // A copy that is to judge is reported when it is let in, since it is no replica before that.
                if !attempt.is_for_judging() {
                    out.report(Report::CopyRuns { replica, pid });
                }
                return Stepped::Advanced;
            }
            (CloneStep::Sent(cost), _) if is_source => attempt.cost = Some(cost),
            (CloneStep::Failed(_), Stage::Joining) if is_source && !is_destination => attempt.source_has_ended = true,
            (CloneStep::Failed(why), Stage::Joining) if is_destination => {
                // The copy ended before the replication manager knew that it has its place.
                let why = CloneFailure::NoImage(why);
                out.report(Report::CloneFailed { replica, source, host: String::new(), why });
                out.copy(CopyEffect::NewcomerEnded(replica));
            }
            (CloneStep::Failed(why), stage) if *stage != Stage::Joining && (is_source || is_destination) => {
                // A host is not blamed for lack of room.
                let blames_host = is_destination && !is_source && !why.is_want_of_memory();
                return Stepped::Failed { why, blames_host };
            }
            // A step that does not fit the stage belongs to an attempt that was given up, or changes nothing.
            _ => {}
        }
        Stepped::None
    }

    /// Lets the next clone that is ready ask for pins, unless another is between its pins and the view.
    pub(super) fn pin_next(&mut self, facts: Facts<'_>, out: &mut Effects) {
        if self.is_cutting() {
            return;
        }
        let can_be_cut = |attempt: &&mut Attempt| attempt.stage == Stage::Ready && attempt.proof == Proof::Settled;
        let Some(attempt) = self.attempts.values_mut().find(can_be_cut) else { return };
        let live = facts.members.live().map(|(replica, _)| replica).collect();
        attempt.stage = Stage::Pinning { missing: live, since: facts.now };
        self.send_pins(out);
    }

    /// Sends all processes the complete list of newcomers for which they are to keep messages beyond the view.
    fn send_pins(&self, out: &mut Effects) {
        let kept = self.attempts.values().filter(|attempt| attempt.is_awaited());
        let (ready, awaited): (Vec<_>, Vec<_>) = kept.partition(|attempt| attempt.stage == Stage::Held);
        let places = |attempts: Vec<&Attempt>| attempts.into_iter().map(|attempt| attempt.newcomer.replica).collect();
        let pins = Pins { awaited: places(awaited), ready: places(ready) };
        out.send(ToDaemon::Pins(pins));
    }

    /// Records that a process keeps messages for these newcomers.
    pub(super) fn pinned(&mut self, facts: Facts<'_>, by: ReplicaId, newcomers: &[ReplicaId], out: &mut Effects) {
        for attempt in self.attempts.values_mut().filter(|attempt| newcomers.contains(&attempt.newcomer.replica)) {
            if let Stage::Pinning { missing, .. } = &mut attempt.stage {
                missing.remove(&by);
            }
        }
        self.cut_when_pinned(facts, out);
    }

    /// Orders the cut whose pins are complete.
    pub(super) fn cut_when_pinned(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let is_pinned =
            |attempt: &Attempt| matches!(&attempt.stage, Stage::Pinning { missing, .. } if missing.is_empty());
        match self.attempts.iter_mut().find(|(_, attempt)| is_pinned(attempt)) {
            Some((id, attempt)) => {
                self.cut_count += 1;
                (attempt.stage, attempt.cut) = (Stage::Cutting, CutNumber(self.cut_count));
                order(attempt.source_host, *id, CloneOrder::Cut, out);
            }
            None => self.pin_next(facts, out),
        }
    }

    /// Records the card of a copy. Returns its clone. None if no clone waits for that process.
    pub(super) fn copy_ready(&mut self, replica: ReplicaId, card: &Card) -> Option<CloneId> {
        let waits = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.stage == Stage::Cutting;
        let (id, attempt) = self.attempts.iter_mut().find(|(_, attempt)| waits(attempt))?;
        attempt.card = Some(card.clone());
        Some(*id)
    }

    /// Holds a complete copy ready to judge.
    pub(super) fn hold(&mut self, id: CloneId, out: &mut Effects) {
        let attempt = self.attempts.get_mut(&id).expect("the caller has seen it");
        attempt.stage = Stage::Held;
        attempt.missing.failure_count = 0;
        let Newcomer { replica, source, .. } = attempt.newcomer;
        self.send_pins(out);
        out.report(Report::CopyHeld { replica, source });
    }

    /// The held copies of this rank whose sources are live are let in. Returns them with the time since their cuts.
    pub(super) fn let_judge(&mut self, facts: Facts<'_>, rank: VirtualRank) -> Vec<(CloneId, Newcomer, Duration)> {
        let is_fit = |attempt: &Attempt| {
            let Newcomer { replica, source, .. } = attempt.newcomer;
            replica.rank == rank && attempt.stage == Stage::Held && facts.members.view().is_live(source)
        };
        let fit = self.attempts.iter_mut().filter(|(_, attempt)| is_fit(attempt));
        fit.map(|(id, attempt)| {
            attempt.missing.since = facts.now;
            (*id, attempt.newcomer, facts.now.saturating_sub(attempt.stopped_at))
        })
        .collect()
    }

    /// These copies as members, and true if they are to judge.
    pub(crate) fn admission(&self, ids: &[CloneId]) -> (Vec<Admitted>, bool) {
        let attempts = || ids.iter().map(|id| &self.attempts[id]);
        let admitted = |attempt: &Attempt| {
            let Newcomer { replica, incarnation, source } = attempt.newcomer;
            Admitted {
                admission: Admission { replica, incarnation, source: source.index, cut: attempt.cut },
                card: attempt.card.clone(),
                pid: attempt.pid,
                lacks_script: attempt.position.as_ref().is_some_and(|at| at.lacks_script),
            }
        };
        (attempts().map(admitted).collect(), attempts().any(Attempt::is_for_judging))
    }

    /// Copies are in the view. All of them have the same purpose.
    pub(super) fn admitted(&mut self, facts: Facts<'_>, ids: &[CloneId], out: &mut Effects) {
        let (cards, view) = (facts.members.cards(), facts.members.view());
        let are_to_judge = ids.iter().any(|id| self.attempts[id].is_for_judging());
        let mut new_cards = Vec::new();
        for id in ids {
            let attempt = &self.attempts[id];
            let Newcomer { replica, source, .. } = attempt.newcomer;
            let position = attempt.position.clone().expect("it is complete");
            let offset = position.output_bytes;
            new_cards.extend(attempt.card.clone());
            order(attempt.host, *id, CloneOrder::Meet { cards: cards.clone(), position }, out);
            let (kinship, live) = (view.kinship(replica.rank).clone(), view.live_set(replica.rank));
            let is_one = live.len() > 2 && kinship.is_one_lineage(live);
            out.output(Output::StreamJoined { replica, source, offset, kinship });
            if is_one {
                out.report(Report::OneLineage(replica.rank));
            }
            if let Some(pid) = attempt.pid.filter(|_| are_to_judge) {
                out.report(Report::CopyRuns { replica, pid });
            }
        }
        if are_to_judge {
            // Pins of others may have been set after the cut. The arbiter must know them before it hears from replicas
            // in the view, or it would release messages that those newcomers still need.
            self.send_pins(out);
        }
        out.send(ToDaemon::Cards(new_cards));
        out.send(ToDaemon::View(view.clone()));
        for id in ids {
            self.attempts.get_mut(id).expect("it was just admitted").stage = Stage::Joining;
        }
        // The copy has received no pins since its cut.
        self.send_pins(out);
        if !are_to_judge {
            self.pin_next(facts, out);
        }
    }

    /// A copy has caught up with its leader, and counts like any other replica from now on.
    pub(super) fn in_step(&mut self, facts: Facts<'_>, hosts: &Hosts, replica: ReplicaId, out: &mut Effects) {
        let joins = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.is_joining();
        let Some(id) = self.all().find(|(_, attempt)| joins(attempt)).map(|(id, _)| id) else { return };
        let attempt = self.attempts.remove(&id).expect("it was just found");
        out.copy(CopyEffect::InStep(replica));
        out.output(Output::Place(PlaceOrder::Succeeded(attempt.number)));
        self.send_pins(out);
        let (recovered, source_host) = (attempt.recovered(facts.now), attempt.source_host);
        let is_told_of = attempt.cost.is_some() || attempt.source_has_ended || !hosts.is_alive(source_host);
        self.untold.insert(id, Unreported { recovered, source_host });
        if is_told_of {
            self.report_recovered(|untold| untold.recovered.replica == replica, out);
        }
    }

    /// The cost of a clone is known, or never will be.
    fn learn_cost(&mut self, host: u32, id: CloneId, step: &CloneStep, out: &mut Effects) {
        let cost = match step {
            CloneStep::Sent(cost) => Some(*cost),
            CloneStep::Failed(_) => None,
            _ => return,
        };
        if let Some(untold) = self.untold.get_mut(&id).filter(|untold| untold.source_host == host) {
            untold.recovered.cost = cost;
            let replica = untold.recovered.replica;
            self.report_recovered(|untold| untold.recovered.replica == replica, out);
        }
    }

    /// Reports copies in step, with their cost if it is known.
    pub(super) fn report_recovered(&mut self, which: impl Fn(&Unreported) -> bool, out: &mut Effects) {
        for (_, untold) in self.untold.extract_if(.., |_, untold| which(untold)) {
            out.report(Report::Recovered(untold.recovered));
        }
    }

    pub(super) fn set_proof(&mut self, id: CloneId, proof: Proof) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.proof = proof;
        }
    }

    /// Makes good a loss by the copy that is made for a mover of this rank.
    pub(super) fn make_loss_of_move(&mut self, now: Duration, rank: VirtualRank) {
        let is_its = |attempt: &&mut Attempt| {
            attempt.newcomer.replica.rank == rank && attempt.missing.purpose == super::Purpose::Move
        };
        if let Some(attempt) = self.attempts.values_mut().find(is_its) {
            attempt.missing.become_loss(now);
        }
    }
}

fn order(host: u32, id: CloneId, order: CloneOrder, out: &mut Effects) {
    out.output(Output::SendTo(host, ToDaemon::Clone { id, order }));
}
