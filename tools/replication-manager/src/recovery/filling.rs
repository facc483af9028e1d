//! One rule drives all copies: a rank's replicas that stay, and the copies under way, are to be as many as its degree.
//! Here places become missing, and a clone is begun for each once a host has room for it.

use super::attempt::Attempt;
use super::missing::{Missing, PlaceRequest};
use super::{Copies, Purpose};
use crate::effect::{CopyEffect, Effects};
use crate::facts::Facts;
use crate::{CloneFailure, NotHeld, Output, Report};
use redrt_types::{Incarnation, ReplicaId, VirtualRank};
use redrt_wire::clone::{CloneId, Newcomer};
use spare_pool::{PlaceNews, PlaceOrder};
use std::time::Duration;

impl Copies {
    /// Removes lost replicas from all plans, ends the clones that need them, and plans their replacement.
    pub(crate) fn replace(&mut self, facts: Facts<'_>, lost: &[ReplicaId], out: &mut Effects) {
        for replica in lost {
            // The others agree as far as known. A surplus replica does not count, since both opponents may remain.
            if let Some(holding) = self.holding.as_mut().filter(|_| !self.moves.is_surplus(*replica)) {
                holding.agree(replica.rank);
            }
            self.forget_mover(facts.now, *replica);
        }
        self.give_up_without(facts, lost, out);
        let mut ranks: Vec<_> = lost.iter().map(|replica| replica.rank).collect();
        ranks.dedup();
        for rank in ranks {
            self.plan(facts, rank, Purpose::Loss, None, out);
        }
        self.clones.cut_when_pinned(facts, out);
    }

    /// Marks as many places of a rank missing as it has too few replicas, or gives up those that would be too many.
    pub(super) fn plan(
        &mut self,
        facts: Facts<'_>,
        rank: VirtualRank,
        purpose: Purpose,
        only: Option<u32>,
        out: &mut Effects,
    ) {
        let (members, view) = (facts.members, facts.members.view());
        let staying = view.live(rank).filter(|replica| !self.moves.contains(*replica)).count();
        let is_awaited = |place: &ReplicaId| self.needs.contains(*place) || self.clones.filling(*place).is_some();
        let taken: Vec<_> = members.world().sphere(rank).filter(is_awaited).collect();
        // Copies that stand ready to judge are no replacement.
        let awaited: Vec<_> = taken.iter().copied().filter(|place| !self.is_to_judge(*place)).collect();
        let degree = usize::from(members.degree(rank));
        if degree <= staying + awaited.len() {
            let surplus = staying + awaited.len() - degree;
            return awaited.into_iter().rev().take(surplus).for_each(|place| self.want_no_more(facts, place, out));
        }
        let count = degree - staying - awaited.len();
        let is_free = |place: &ReplicaId| !view.is_live(*place) && !taken.contains(place);
        let mut free: Vec<_> = members.world().sphere(rank).filter(is_free).collect();
        // Places that have lost a replica come before those that never had one.
        free.sort_by_key(|place| members.of(*place).is_vacant);
        let moving = view.live(rank).count() - staying;
        let missing = self.needs.all();
        let copied = self.clones.all().map(|(_, attempt)| attempt).filter(|attempt| !attempt.is_joining());
        let planned = missing.chain(copied.map(|attempt| (attempt.newcomer.replica, &attempt.missing)));
        let is_move = |(of, missing): &(ReplicaId, &Missing)| of.rank == rank && missing.purpose == Purpose::Move;
        let moves_left = moving.saturating_sub(planned.filter(is_move).count());
        for (number, place) in free.into_iter().take(count).enumerate() {
            // Replicas that are waiting to move get the first copies, since an earlier move may have had to wait for a
            // place.
            let purpose = if number < moves_left { Purpose::Move } else { purpose };
            self.needs.add(place, Missing { only, ..Missing::new(facts.now, purpose) });
        }
    }

    /// Gives up the plan or the copy for a place that need not be filled any more.
    pub(super) fn want_no_more(&mut self, facts: Facts<'_>, place: ReplicaId, out: &mut Effects) {
        if let Some(missing) = self.needs.take(place) {
            missing.place_request.give_back(out);
        } else if let Some(id) = self.clones.filling(place) {
            self.clones.withdraw(facts, id, None, out);
        }
    }

    /// Asks for places on hosts, and begins a clone for each place that is granted.
    pub(super) fn fill_places(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let is_due = |(place, missing): &(ReplicaId, &Missing)| {
            facts.now >= missing.not_before && !self.clones.is_hopeless(facts, place.rank, missing.source)
        };
        let due: Vec<_> =
            self.needs.all().filter(is_due).map(|(place, missing)| (place, missing.place_request.clone())).collect();
        for (place, place_request) in due {
            match place_request {
                PlaceRequest::None => self.ask_for_place(facts, place, out),
                PlaceRequest::Asked { .. } => {}
                PlaceRequest::Granted { number, host } => self.begin_clone(facts, place, number, host, out),
            }
        }
    }

    fn ask_for_place(&mut self, facts: Facts<'_>, place: ReplicaId, out: &mut Effects) {
        let members = facts.members;
        let (original, only) = self.needs.get(place).map_or((None, None), |missing| (missing.source, missing.only));
        // A copy that is to judge should not be on the host of its original. The host of the other replica is fine.
        let siblings: Vec<_> = match original {
            Some(original) => vec![original],
            None => members.view().live(place.rank).collect(),
        };
        let memory_bytes = members.all().map(|(_, process)| process.latest.resident_bytes).max().unwrap_or(0);
        let had_host = !members.of(place).is_vacant;
        // Hosts of siblings are avoided, and so are the host of the loss and hosts where memory ran out.
        let apart = siblings.into_iter().chain(had_host.then_some(place)).filter_map(|other| members.host_of(other));
        let apart = apart.map(|host| self.hosts.name(host).to_owned());
        let apart_from: Vec<_> = apart.chain(self.hosts.short_names()).collect();
        let only = only.map(|host| self.hosts.name(host).to_owned());
        let number = self.next_number();
        self.needs.ask(place, number);
        out.output(Output::Place(PlaceOrder::Ask { number, memory_bytes, apart_from, only }));
    }

    fn begin_clone(&mut self, facts: Facts<'_>, place: ReplicaId, number: u64, host: u32, out: &mut Effects) {
        let members = facts.members;
        // All output of the dead process must have arrived before another prints in its place.
        if !members.of(place).is_gone() || self.clones.under_way().count() >= self.clone_count_max {
            return;
        }
        let wanted = self.needs.get(place).and_then(|missing| missing.source);
        let Some(source) = self.clones.source_for(facts, place.rank, wanted) else { return };
        let Some(source_host) = members.host_of(source) else { return };
        let missing = self.needs.take(place).expect("the caller has seen it");
        let id = CloneId(self.next_number());
        let incarnation = Incarnation(members.incarnation(place).0 + 1);
        let newcomer = Newcomer { replica: place, incarnation, source };
        let attempt = Attempt::new(newcomer, missing, (host, number), source_host, facts.now);
        out.copy(CopyEffect::Begin { replica: place, host });
        self.clones.begin(id, attempt, self.memory_for(facts, place.rank, host), out);
    }

    /// Bytes that a copy of this rank needs on a host, as far as known. Where memory ran out before, an eighth is added
    /// for growth, so that the kernel's next victim is not the source.
    fn memory_for(&self, facts: Facts<'_>, rank: VirtualRank, host: u32) -> u64 {
        let of = |replica: ReplicaId| facts.members.of(replica).latest.resident_bytes;
        let bytes = facts.members.world().sphere(rank).map(of).max().unwrap_or(0);
        if self.hosts.is_short(host) { bytes.saturating_add(bytes / 8) } else { bytes }
    }

    /// Acts on the news of a pool. `host` is the number of the host on which a place was granted.
    pub(crate) fn handle_place(&mut self, facts: Facts<'_>, news: PlaceNews, host: Option<u32>, out: &mut Effects) {
        match news {
            PlaceNews::Granted { number, .. } => {
                let usable = host.filter(|host| self.hosts.is_open(*host));
                let asked = self.needs.asked(number).map(|(_, missing)| missing);
                match (asked, usable) {
                    (Some(missing), Some(host)) => missing.place_request = PlaceRequest::Granted { number, host },
                    (missing, _) => {
                        if let Some(missing) = missing {
                            missing.place_request = PlaceRequest::None;
                        }
                        out.output(Output::Place(PlaceOrder::Release(number)));
                    }
                }
            }
            PlaceNews::NoneYet { number, why } => self.handle_no_place(facts, number, why, out),
            PlaceNews::Lost { number, why } => self.lose_place(facts, number, &why, out),
            PlaceNews::Leave(number) => self.leave_place(facts, number, out),
            PlaceNews::Note(_) => {}
        }
    }

    fn handle_no_place(&mut self, facts: Facts<'_>, number: u64, why: Vec<String>, out: &mut Effects) {
        let Some((replica, missing)) = self.needs.asked(number) else { return };
        let purpose = missing.purpose;
        if purpose == Purpose::Arbitration {
            return self.report_not_held(replica.rank, NotHeld::NoPlace(why), out);
        }
        // A copy that stands ready to judge makes room.
        let ready = self.clones.to_judge().next().map(|attempt| attempt.newcomer.replica.rank);
        if let Some(rank) = ready {
            return self.drop_held(facts, rank, NotHeld::PlacesNeeded, out);
        }
        let Some((_, missing)) = self.needs.asked(number) else { return };
        if !std::mem::replace(&mut missing.was_told, true) {
            out.report(Report::NoSpare { replica, purpose, why });
        }
    }

    /// The pool gives this place to another job, so a copy that is there already moves away.
    fn lose_place(&mut self, facts: Facts<'_>, number: u64, why: &str, out: &mut Effects) {
        if self.needs.lose_place(facts.now, number) {
            return;
        }
        let id = self.clones.in_place(number).map(|(id, _)| id);
        match (id, self.needs.replica_in(number)) {
            (_, Some(replica)) => {
                out.report(Report::PlaceLost { replica, why: why.to_owned() });
                self.leave_place(facts, number, out);
            }
            (Some(id), None) => self.give_up(facts, id, &CloneFailure::PlaceLost(why.to_owned()), false, out),
            (None, None) => {}
        }
    }

    /// Frees the place of a process that has ended and whose output is complete.
    pub(crate) fn place_freed(&mut self, facts: Facts<'_>, replica: ReplicaId, out: &mut Effects) {
        let Some(host) = facts.members.host_of(replica).filter(|_| facts.course.is_under_way()) else { return };
        match self.needs.leave_place(replica) {
            Some(number) => out.output(Output::Place(PlaceOrder::Release(number))),
            None if self.hosts.is_alive(host) => {
                out.output(Output::Place(PlaceOrder::Freed(self.hosts.name(host).to_owned())));
            }
            None => {}
        }
    }

    /// Reports once in a job that places stay empty because their ranks share memory.
    pub(super) fn report_planes(&mut self, facts: Facts<'_>, out: &mut Effects) {
        if self.was_told_of_planes {
            return;
        }
        let members = facts.members;
        let in_plane = |rank: VirtualRank| members.view().live(rank).find(|source| members.is_in_plane(*source));
        let found = self.needs.all().find_map(|(place, _)| Some((place, in_plane(place.rank)?)));
        if let Some((replica, source)) = found {
            self.was_told_of_planes = true;
            let (host, why) = (String::new(), CloneFailure::SharesMemory);
            out.report(Report::CloneFailed { replica, source, host, why });
        }
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// The next time at which a place is to be asked for again, a clone is late, or a copy is to be renewed.
    pub(crate) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let held = self
            .holding
            .iter()
            .flat_map(|holding| holding.deadlines(self.plans()).chain(self.cases.deadlines(holding.interval())));
        let (rest, clone) = (self.needs.next_deadline(now), self.clones.next_deadline());
        held.filter(|at| *at > now).chain(rest).chain(clone).min()
    }
}
