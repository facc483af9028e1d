//! Missing replicas: the places that are to be filled, and the hosts for their copies.

use super::attempt::{Attempt, Stage};
use super::{Copies, Purpose};
use crate::{CloneFailure, Coordinator, NotHeld, Output, Phase, Report};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::clone::{CloneId, CloneOrder, Newcomer};
use serde::{Deserialize, Serialize};
use spare_pool::{PlaceNews, PlaceOrder};
use std::time::Duration;

/// Rest after a pool took a place back. It keeps the coordinator from asking a failing pool without pause.
const REST_AFTER_LOSS: Duration = Duration::from_secs(1);

/// The state of the request for a place on a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Seat {
    None,
    /// A pool was asked, and has not granted a place yet.
    Asked {
        number: u64,
    },
    Granted {
        number: u64,
        host: u32,
    },
}

/// A place of a rank that is to be filled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Missing {
    pub purpose: Purpose,
    /// Time of the loss, or of the wish.
    pub since: Duration,
    pub not_before: Duration,
    pub failure_count: u32,
    /// The user was told that there is no spare.
    pub was_told: bool,
    /// The latest attempt failed because a host had too little memory.
    pub is_short: bool,
    /// Number of the only host that will do. None if any will.
    pub only: Option<u32>,
    /// The replica that must be copied. None if any sibling will do.
    pub source: Option<ReplicaId>,
    pub seat: Seat,
}

impl Coordinator {
    /// Removes lost replicas from all plans, ends the clones that need them, and plans their replacement.
    pub(crate) fn replace(&mut self, now: Duration, lost: &[ReplicaId]) {
        if self.recovery.is_none() {
            return;
        }
        for replica in lost {
            self.forget_difference(*replica);
            self.forget_mover(now, *replica);
        }
        self.give_up_without(now, lost);
        let mut ranks: Vec<_> = lost.iter().map(|replica| replica.rank).collect();
        ranks.dedup();
        for rank in ranks {
            self.plan(now, rank, Purpose::Loss, None);
        }
        self.cut_when_pinned(now);
    }

    /// Marks as many places of a rank missing as it has too few replicas, or gives up those that would be too many.
    pub(super) fn plan(&mut self, now: Duration, rank: VirtualRank, purpose: Purpose, only: Option<u32>) {
        let Some(recovery) = &self.recovery else { return };
        let stays = |replica: &ReplicaId| !recovery.leaving.contains_key(replica);
        let staying = self.members.view().live(rank).filter(stays).count();
        let is_awaited = |replica: &ReplicaId| {
            let is_copied = |attempt: &Attempt| attempt.newcomer.replica == *replica && attempt.stage != Stage::Joining;
            recovery.missing.contains_key(replica) || recovery.attempts.values().any(is_copied)
        };
        let taken: Vec<_> = self.members.world().sphere(rank).filter(is_awaited).collect();
        // Copies that stand ready to judge are no replacement.
        let awaited: Vec<_> = taken.iter().copied().filter(|replica| !recovery.is_to_judge(*replica)).collect();
        let degree = usize::from(self.members.degree(rank));
        if degree <= staying + awaited.len() {
            let surplus = staying + awaited.len() - degree;
            return awaited.into_iter().rev().take(surplus).for_each(|replica| self.want_no_more(now, replica));
        }
        let count = degree - staying - awaited.len();
        let is_free = |replica: &ReplicaId| !self.members.view().is_live(*replica) && !taken.contains(replica);
        let mut free: Vec<_> = self.members.world().sphere(rank).filter(is_free).collect();
        // Places that have lost a replica come before those that never had one.
        free.sort_by_key(|replica| self.members.of(*replica).is_vacant);
        let (not_before, failure_count, was_told, is_short) = (now, 0, false, false);
        let moving = self.members.view().live(rank).filter(|replica| !stays(replica)).count();
        let missing = recovery.missing.iter().map(|(place, missing)| (place.rank, missing));
        let copied = recovery.attempts.values().filter(|attempt| attempt.stage != Stage::Joining);
        let copied = copied.map(|attempt| (attempt.newcomer.replica.rank, &attempt.missing));
        let is_move = |(of, missing): &(VirtualRank, &Missing)| *of == rank && missing.purpose == Purpose::Move;
        let mut moves_left = moving.saturating_sub(missing.chain(copied).filter(is_move).count());
        for replica in free.into_iter().take(count) {
            // Replicas that are waiting to move get the first copies, since an earlier move may have had to wait for a
            // place.
            let purpose = if moves_left > 0 { Purpose::Move } else { purpose };
            moves_left = moves_left.saturating_sub(1);
            let (source, seat) = (None, Seat::None);
            let missing =
                Missing { purpose, since: now, not_before, failure_count, was_told, is_short, only, source, seat };
            if let Some(recovery) = &mut self.recovery {
                recovery.missing.insert(replica, missing);
            }
        }
    }

    /// Gives up the plan or the copy for a place that need not be filled any more.
    pub(super) fn want_no_more(&mut self, now: Duration, replica: ReplicaId) {
        let Some(recovery) = &mut self.recovery else { return };
        if let Some(missing) = recovery.missing.remove(&replica) {
            return self.give_seat_back(missing.seat);
        }
        let is_its = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.stage != Stage::Joining;
        let id = recovery.attempts.iter().find(|(_, attempt)| is_its(attempt)).map(|(id, _)| *id);
        if let Some(id) = id {
            self.withdraw(now, id, None);
        }
    }

    pub(super) fn give_seat_back(&mut self, seat: Seat) {
        match seat {
            Seat::None => {}
            Seat::Asked { number } => self.place(PlaceOrder::Withdraw(number)),
            Seat::Granted { number, .. } => self.place(PlaceOrder::Release(number)),
        }
    }

    /// Asks for places on hosts, and begins a clone for each place that is granted.
    pub(super) fn fill_places(&mut self, now: Duration) {
        let Some(recovery) = self
            .recovery
            .as_ref()
            .filter(|_| !self.machines.line.as_ref().is_some_and(crate::LineWatch::needs_membership))
        else {
            return;
        };
        let due = recovery.missing.iter().filter(|(_, missing)| now >= missing.not_before);
        let due = due.filter(|(replica, missing)| !self.is_hopeless(replica.rank, missing.source));
        let due: Vec<_> = due.map(|(replica, _)| *replica).collect();
        for replica in due {
            let Some(recovery) = &self.recovery else { return };
            match recovery.missing[&replica].seat {
                Seat::None => self.ask_for_place(replica),
                Seat::Asked { .. } => {}
                Seat::Granted { number, host } => self.begin_clone(now, replica, number, host),
            }
        }
    }

    fn ask_for_place(&mut self, replica: ReplicaId) {
        // A copy that is to judge should not be on the host of its original. The host of the other replica is fine.
        let original = self.recovery.as_ref().and_then(|recovery| recovery.missing.get(&replica)?.source);
        let siblings: Vec<_> =
            original.map_or_else(|| self.members.view().live(replica.rank).collect(), |original| vec![original]);
        let memory_bytes = self.members.all().map(|(_, process)| process.latest.resident_bytes).max().unwrap_or(0);
        let had_host = !self.members.of(replica).is_vacant;
        let Some(recovery) = &mut self.recovery else { return };
        // Hosts of siblings are avoided, and so are the host of the loss and hosts where memory ran out.
        let apart = siblings.into_iter().chain(had_host.then_some(replica));
        let mut apart_from: Vec<_> =
            apart.filter_map(|other| Some(recovery.name(self.members.host_of(other)?).to_owned())).collect();
        apart_from.extend(recovery.hosts.values().filter(|host| host.is_short).map(|host| host.name.clone()));
        let number = recovery.next_number();
        let missing = recovery.missing.get_mut(&replica).expect("it is due");
        missing.seat = Seat::Asked { number };
        let only = missing.only.map(|host| recovery.name(host).to_owned());
        self.place(PlaceOrder::Ask { number, memory_bytes, apart_from, only });
    }

    /// Acts on the news of a pool. `host` is the number of the host on which a place was granted.
    pub(crate) fn hear_of_place(&mut self, now: Duration, news: PlaceNews, host: Option<u32>) {
        let Some(recovery) = &mut self.recovery else { return };
        let asked = |number: u64, recovery: &Copies| {
            let is_its = |missing: &Missing| missing.seat == Seat::Asked { number };
            recovery.missing.iter().find(|(_, missing)| is_its(missing)).map(|(replica, _)| *replica)
        };
        match news {
            PlaceNews::Granted { number, .. } => {
                let usable =
                    host.filter(|host| recovery.hosts.get(host).is_some_and(|host| host.is_alive && !host.is_closed));
                match (asked(number, recovery), usable) {
                    (Some(replica), Some(host)) => {
                        let missing = recovery.missing.get_mut(&replica).expect("it was just found");
                        missing.seat = Seat::Granted { number, host };
                    }
                    (replica, _) => {
                        if let Some(missing) = replica.and_then(|replica| recovery.missing.get_mut(&replica)) {
                            missing.seat = Seat::None;
                        }
                        self.place(PlaceOrder::Release(number));
                    }
                }
            }
            PlaceNews::NoneYet { number, why } => {
                let Some(replica) = asked(number, recovery) else { return };
                let missing = recovery.missing.get_mut(&replica).expect("it was just found");
                let purpose = missing.purpose;
                if purpose == Purpose::Arbitration {
                    return self.tell_not_held(replica.rank, NotHeld::NoPlace(why));
                }
                if self.make_room(now) {
                    return;
                }
                let Some(recovery) = &mut self.recovery else { return };
                let missing = recovery.missing.get_mut(&replica).expect("it was just found");
                if !std::mem::replace(&mut missing.was_told, true) {
                    self.report(Report::NoSpare { replica, purpose, why });
                }
            }
            PlaceNews::Lost { number, why } => self.lose_place(now, number, &why),
            PlaceNews::Leave(number) => self.leave_place(now, number),
            PlaceNews::Note(_) => {}
        }
    }

    /// The pool gives this place to another job, so a copy that is there already moves away.
    fn lose_place(&mut self, now: Duration, number: u64, why: &str) {
        let Some(recovery) = &mut self.recovery else { return };
        let has_it = |missing: &Missing| match missing.seat {
            Seat::Asked { number: other } | Seat::Granted { number: other, .. } => other == number,
            Seat::None => false,
        };
        if let Some(missing) = recovery.missing.values_mut().find(|missing| has_it(missing)) {
            (missing.seat, missing.not_before) = (Seat::None, now + REST_AFTER_LOSS);
            return;
        }
        let replica = recovery.places.iter().find(|(_, other)| **other == number).map(|(replica, _)| *replica);
        let id = recovery.attempts.iter().find(|(_, attempt)| attempt.number == number).map(|(id, _)| *id);
        match (id, replica) {
            (_, Some(replica)) => {
                self.report(Report::PlaceLost { replica, why: why.to_owned() });
                self.leave_place(now, number);
            }
            (Some(id), None) => self.give_up(now, id, &CloneFailure::PlaceLost(why.to_owned()), false),
            (None, None) => {}
        }
    }

    /// Returns true if a replica cannot be copied, either as long as it lives or as long as it shares memory.
    pub(crate) fn is_unfit(&self, source: ReplicaId) -> bool {
        let life = self.members.view().member(source).map(|member| (source, member.incarnation));
        let is_unfit = self.recovery.as_ref().zip(life).is_some_and(|(recovery, life)| recovery.unfit.contains(&life));
        is_unfit || self.members.is_in_plane(source)
    }

    /// Returns true if a place of this rank stays empty, because no allowed source can be copied.
    pub(super) fn is_hopeless(&self, rank: VirtualRank, wanted: Option<ReplicaId>) -> bool {
        let mut sources = self.members.view().live(rank).filter(|source| wanted.is_none_or(|wanted| wanted == *source));
        sources.all(|source| self.is_unfit(source))
    }

    /// Chooses the replica to copy: a sibling that is at work and not being copied, of the lineage with the fewest
    /// replicas. The leader is spared if there is another choice, since it decides for its siblings.
    fn source_for(&self, replica: ReplicaId) -> Option<ReplicaId> {
        let recovery = self.recovery.as_ref()?;
        let leader = self.members.view().leader(replica.rank);
        let is_fit = |source: &ReplicaId| {
            let process = self.members.of(*source);
            let is_busy = |attempt: &Attempt| attempt.newcomer.source == *source || attempt.newcomer.replica == *source;
            let mut at_work = recovery.attempts.values().filter(|attempt| attempt.is_at_work());
            process.counts() && process.phase == Phase::Ready && !at_work.any(is_busy) && !self.is_unfit(*source)
        };
        if let Some(source) = recovery.missing.get(&replica).and_then(|missing| missing.source) {
            return Some(source).filter(|source| self.members.view().is_live(*source) && is_fit(source));
        }
        // A rank must not come to descend from one image, so the rarest lineage is copied.
        let live = self.members.view().live_set(replica.rank);
        let relatives = |source: &ReplicaId| self.members.view().kinship(replica.rank).relatives(source.index, live);
        let rank = |source: &ReplicaId| {
            (self.is_distrusted(*source), relatives(source), Some(*source) == leader, source.index)
        };
        self.members.view().live(replica.rank).filter(is_fit).min_by_key(rank)
    }

    fn begin_clone(&mut self, now: Duration, replica: ReplicaId, number: u64, host: u32) {
        // All output of the dead process must have arrived before another prints in its place.
        if !self.members.of(replica).is_gone() {
            return;
        }
        let Some(source) = self.source_for(replica) else { return };
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.attempts.values().filter(|attempt| attempt.is_at_work()).count() >= recovery.clone_count_max {
            return;
        }
        let missing = recovery.missing.remove(&replica).expect("the caller has seen it");
        let Some(source_host) = self.members.host_of(source) else { return };
        let id = CloneId(recovery.next_number());
        self.members.begin_life(replica, host);
        let newcomer = Newcomer { replica, incarnation: self.members.incarnation(replica), source };
        recovery.attempts.insert(id, Attempt::new(newcomer, missing, (host, number), source_host, now));
        self.outputs.push_back(Output::Moved { replica, host });
        let memory_bytes = self.memory_for(replica.rank, host);
        self.order(host, id, CloneOrder::Receive { newcomer, memory_bytes });
    }
}
