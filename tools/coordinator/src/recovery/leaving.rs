//! Sound replicas that are to leave: they move to another host, their host is to become free, or their rank is to have
//! fewer replicas.
//!
//! A replica leaves by being killed, since the protocol can bear that at any moment. It is killed only when enough
//! others are in step that its rank has as many as before.

use super::Purpose;
use super::attempt::Stage;
use super::missing::Seat;
use super::wish::{Wish, WishError};
use crate::{CloneFailure, Coordinator, Output, Report, StayReason};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use spare_pool::PlaceOrder;
use std::time::Duration;

/// A replica that is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Number of the host of its successor. None if any host will do.
    pub to: Option<u32>,
    /// True if its rank has too many replicas, so that it has no successor.
    is_surplus: bool,
    /// True once it is being killed.
    is_ending: bool,
}

impl Move {
    pub(super) fn surplus() -> Self {
        Self { to: None, is_surplus: true, is_ending: false }
    }

    pub(super) fn is_surplus(&self) -> bool {
        self.is_surplus
    }
}

impl Coordinator {
    /// Changes the place or number of replicas. `room` is the number of copies that the hosts concerned can still take,
    /// if known.
    ///
    /// # Errors
    /// The reason why the wish cannot be fulfilled. Nothing has changed then.
    pub fn wish(&mut self, now: Duration, wish: Wish, room: Option<u32>) -> Result<(), WishError> {
        if self.recovery.is_none() {
            return Err(WishError::NotCloneable);
        }
        if !self.course.is_under_way() {
            return Err(WishError::NotRunning { phase: self.phase() });
        }
        match wish {
            Wish::Migrate { replica, to } => self.migrate(now, replica, to, room)?,
            Wish::Drain { host } => self.drain(now, host, room)?,
            Wish::Degree { degree, ranks } => self.change_degree(now, degree, &ranks, room)?,
        }
        self.pass_recovery_time(now);
        self.observe_redundancy(now);
        Ok(())
    }

    /// Number of places of a rank that have no replica, and for which none is planned.
    fn free_place_count(&self, rank: VirtualRank) -> usize {
        let Some(recovery) = &self.recovery else { return 0 };
        let is_used = |replica: &ReplicaId| {
            let mut attempts = recovery.attempts.values();
            self.members.view().is_live(*replica)
                || recovery.missing.contains_key(replica)
                || attempts.any(|attempt| attempt.newcomer.replica == *replica)
        };
        self.members.world().sphere(rank).filter(|replica| !is_used(replica)).count()
    }

    fn migrate(
        &mut self,
        now: Duration,
        replica: ReplicaId,
        to: Option<u32>,
        room: Option<u32>,
    ) -> Result<(), WishError> {
        let Some(recovery) = &self.recovery else { return Ok(()) };
        if !self.members.world().contains(replica)
            || !self.members.view().is_live(replica)
            || !self.members.of(replica).counts()
        {
            return Err(WishError::NotLive(replica));
        }
        if recovery.leaving.contains_key(&replica) {
            return Err(WishError::Leaving(replica));
        }
        self.check_planes([replica.rank])?;
        if let Some(to) = to.filter(|to| self.members.host_of(replica) == Some(*to)) {
            return Err(WishError::There { replica, host: recovery.name(to).to_owned() });
        }
        if let Some(to) = to.filter(|to| recovery.hosts[to].is_closed) {
            return Err(WishError::Closed { host: recovery.name(to).to_owned() });
        }
        self.check_room(replica.rank, 1, to, room)?;
        self.let_go(now, replica, to);
        Ok(())
    }

    /// Checks that these ranks can be copied: ranks that share memory cannot.
    fn check_planes(&self, ranks: impl IntoIterator<Item = VirtualRank>) -> Result<(), WishError> {
        let in_plane =
            |rank: &VirtualRank| self.members.view().live(*rank).any(|replica| self.members.is_in_plane(replica));
        ranks.into_iter().find(in_plane).map_or(Ok(()), |rank| Err(WishError::SharesMemory(rank)))
    }

    fn check_room(&self, rank: VirtualRank, count: u32, to: Option<u32>, room: Option<u32>) -> Result<(), WishError> {
        let Some(recovery) = &self.recovery else { return Ok(()) };
        if self.free_place_count(rank) == 0 {
            return Err(WishError::RankFull { rank, place_count: self.members.world().degree(rank) });
        }
        match (room, to) {
            (Some(0), Some(to)) => Err(WishError::HostFull { host: recovery.name(to).to_owned() }),
            (Some(free), _) if free < count => Err(WishError::NoRoom { needed: count, free }),
            _ => Ok(()),
        }
    }

    /// Plans the departure of a replica, which follows when a copy has its part.
    fn let_go(&mut self, now: Duration, replica: ReplicaId, to: Option<u32>) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.leaving.entry(replica).or_insert(Move { to, is_surplus: false, is_ending: false }).is_surplus = false;
        let name = to.map(|to| recovery.name(to).to_owned());
        self.report(Report::Leaving { replica, to: name });
        self.plan(now, replica.rank, Purpose::Move, to);
    }

    /// The replicas on a host that are live and not being ended.
    fn replicas_on(&self, host: u32) -> Vec<ReplicaId> {
        self.members.live_on(host)
    }

    fn drain(&mut self, now: Duration, host: u32, room: Option<u32>) -> Result<(), WishError> {
        let Some(recovery) = &self.recovery else { return Ok(()) };
        if recovery.hosts[&host].is_closed {
            return Err(WishError::Draining { host: recovery.name(host).to_owned() });
        }
        let there: Vec<_> =
            self.replicas_on(host).into_iter().filter(|replica| !recovery.leaving.contains_key(replica)).collect();
        self.check_planes(there.iter().map(|replica| replica.rank))?;
        for replica in &there {
            self.check_room(replica.rank, there.len() as u32, None, room)?;
        }
        self.close_host(now, host);
        there.into_iter().for_each(|replica| self.let_go(now, replica, None));
        Ok(())
    }

    /// Closes a host: it gets no more copies, and those under way to it are given up.
    fn close_host(&mut self, now: Duration, host: u32) {
        let Some(recovery) = &mut self.recovery else { return };
        if let Some(host) = recovery.hosts.get_mut(&host) {
            host.is_closed = true;
        }
        let name = recovery.name(host).to_owned();
        let is_there = |seat: &Seat| matches!(seat, Seat::Granted { host: other, .. } if *other == host);
        let seats = recovery.missing.values_mut().filter(|missing| is_there(&missing.seat));
        let seats: Vec<_> = seats.map(|missing| std::mem::replace(&mut missing.seat, Seat::None)).collect();
        self.place(PlaceOrder::Close(name));
        seats.into_iter().for_each(|seat| self.give_seat_back(seat));
        self.give_up_on_host(now, host, &CloneFailure::HostLeaves);
        self.cancel_moves_to(host);
    }

    /// Frees the host of a place, because the pool wants it back.
    pub(super) fn leave_place(&mut self, now: Duration, number: u64) {
        let Some(recovery) = &self.recovery else { return };
        let replica = recovery.places.iter().find(|(_, other)| **other == number).map(|(replica, _)| *replica);
        let host = replica.and_then(|replica| self.members.host_of(replica));
        let host = host.or_else(|| {
            recovery.attempts.values().find(|attempt| attempt.number == number).map(|attempt| attempt.host)
        });
        let Some(host) = host.filter(|host| !recovery.hosts[host].is_closed) else { return };
        self.free_host(now, host);
    }

    /// Closes a host and moves its replicas away.
    pub(crate) fn free_host(&mut self, now: Duration, host: u32) {
        if self.recovery.as_ref().is_none_or(|recovery| recovery.hosts[&host].is_closed) {
            return;
        }
        self.close_host(now, host);
        for replica in self.replicas_on(host) {
            self.let_go(now, replica, None);
        }
    }

    fn change_degree(
        &mut self,
        now: Duration,
        degree: u16,
        ranks: &[VirtualRank],
        room: Option<u32>,
    ) -> Result<(), WishError> {
        let world = self.members.world();
        if degree == 0 {
            return Err(WishError::DegreeZero);
        }
        if let Some(rank) = ranks.iter().find(|rank| world.degree(**rank) < degree) {
            return Err(WishError::DegreeTooGreat { rank: *rank, place_count: world.degree(*rank) });
        }
        self.check_planes(ranks.iter().copied())?;
        let more = ranks.iter().map(|rank| degree.saturating_sub(self.members.degree(*rank)));
        let needed: u32 = more.map(u32::from).sum();
        if let Some(free) = room.filter(|free| *free < needed) {
            return Err(WishError::NoRoom { needed, free });
        }
        ranks.iter().for_each(|rank| self.members.want(*rank, degree));
        self.report(Report::Degree { degree, rank_count: ranks.len() });
        for rank in ranks {
            if let Some(recovery) = &mut self.recovery {
                recovery.leaving.retain(|replica, going| replica.rank != *rank || !going.is_surplus || going.is_ending);
            }
            self.plan(now, *rank, Purpose::Growth, None);
            self.choose_surplus(*rank);
        }
        Ok(())
    }

    /// Chooses replicas of a rank with too many to leave. The leader stays. Those that share their host with another
    /// leave first, then the youngest.
    fn choose_surplus(&mut self, rank: VirtualRank) {
        let Some(recovery) = &self.recovery else { return };
        let age =
            |replica: &ReplicaId| (self.members.view().member(*replica).map(|member| member.joined), replica.index);
        let mut staying: Vec<_> =
            self.members.view().live(rank).filter(|replica| !recovery.leaving.contains_key(replica)).collect();
        staying.sort_by_key(age);
        let surplus = staying.len().saturating_sub(usize::from(self.members.degree(rank)));
        let host = |replica: &ReplicaId| self.members.host_of(*replica);
        let mut candidates: Vec<_> = staying.iter().skip(1).copied().collect();
        candidates.sort_by_key(|replica| staying.iter().filter(|other| host(other) == host(replica)).count());
        let going: Vec<_> = candidates.into_iter().rev().take(surplus).collect();
        if let Some(recovery) = &mut self.recovery {
            let going = going.into_iter();
            recovery.leaving.extend(going.map(|replica| (replica, Move::surplus())));
        }
    }

    /// Kills the replicas that are to leave and that their ranks can do without, one of each rank at a time.
    pub(super) fn let_leave(&mut self) {
        let Some(recovery) = &self.recovery else { return };
        let is_free = |(replica, going): &(&ReplicaId, &Move)| {
            let rank = replica.rank;
            let is_whole = |other: &ReplicaId| {
                let process = self.members.of(*other);
                process.counts() && !process.is_doomed && self.members.is_in_step(*other)
            };
            let count = self.members.view().live(rank).filter(is_whole).count();
            let wanted = self.members.degree(rank).min(self.members.world().degree(rank) - 1);
            let is_first = recovery.leaving.keys().find(|other| other.rank == rank) == Some(replica);
            let is_idle = !recovery.is_source(**replica) && is_whole(replica);
            is_first && is_idle && !going.is_ending && count > usize::from(wanted)
        };
        let free: Vec<_> = recovery.leaving.iter().filter(is_free).map(|(replica, _)| *replica).collect();
        for replica in free {
            if let Some(going) = self.recovery.as_mut().and_then(|recovery| recovery.leaving.get_mut(&replica)) {
                going.is_ending = true;
            }
            self.members.leave(replica);
            self.send(ToDaemon::Kill(replica));
        }
        self.tell_free_hosts();
    }

    /// Reports hosts that were to become free, once they are.
    fn tell_free_hosts(&mut self) {
        let Some(recovery) = &self.recovery else { return };
        let is_empty = |host: u32| {
            let mut here = self.members.all().filter(|(replica, _)| self.members.host_of(*replica) == Some(host));
            let mut attempts = recovery.attempts.values();
            here.all(|(_, process)| process.is_gone())
                && !attempts.any(|attempt| {
                    attempt.source_host == host || attempt.host == host && attempt.stage != Stage::Joining
                })
        };
        let may_be_told = |host: &super::Host| host.is_closed && host.is_alive && !host.is_told_free;
        let closed = recovery.hosts.iter().filter(|(_, host)| may_be_told(host)).map(|(number, _)| *number);
        for host in closed.filter(|host| is_empty(*host)).collect::<Vec<_>>() {
            let Some(at) = self.recovery.as_mut().and_then(|recovery| recovery.hosts.get_mut(&host)) else { return };
            at.is_told_free = true;
            let name = at.name.clone();
            self.report(Report::HostFree { host: name });
            self.outputs.push_back(Output::HostFree(host));
        }
    }

    /// Drops the plan for a replica that is not in the view any more. If it died before a successor had its part, that
    /// copy now makes good a loss.
    pub(super) fn forget_mover(&mut self, now: Duration, replica: ReplicaId) {
        let Some(recovery) = &mut self.recovery else { return };
        let Some(going) = recovery.leaving.remove(&replica) else { return };
        if going.is_ending || going.is_surplus {
            return;
        }
        let missing = recovery.missing.iter_mut().map(|(place, missing)| (*place, missing));
        let copied = recovery.attempts.values_mut().map(|attempt| (attempt.newcomer.replica, &mut attempt.missing));
        let mut awaited = missing.chain(copied);
        let found = awaited.find(|(place, missing)| place.rank == replica.rank && missing.purpose == Purpose::Move);
        if let Some((_, missing)) = found {
            (missing.purpose, missing.since, missing.only) = (Purpose::Loss, now, None);
        }
    }

    /// Cancels moves to this host, which cannot be used any more. The replicas stay on their hosts.
    pub(super) fn cancel_moves_to(&mut self, host: u32) {
        let Some(recovery) = &self.recovery else { return };
        let to_host = |going: &Move| going.to == Some(host) && !going.is_ending;
        let replicas: Vec<_> =
            recovery.leaving.iter().filter(|(_, going)| to_host(going)).map(|(replica, _)| *replica).collect();
        for replica in replicas {
            self.stay(replica, StayReason::HostUnfit);
        }
    }

    /// Cancels the move for which this copy was meant, because it failed too often. The replica stays on its host.
    pub(super) fn cancel_move_for(&mut self, place: ReplicaId, why: &CloneFailure) {
        let Some(recovery) = &self.recovery else { return };
        let only = recovery.missing.get(&place).and_then(|missing| missing.only);
        let is_its = |replica: &ReplicaId, going: &Move| {
            replica.rank == place.rank && going.to == only && only.is_some() && !going.is_ending
        };
        let mover =
            recovery.leaving.iter().find(|(replica, going)| is_its(replica, going)).map(|(replica, _)| *replica);
        if let Some(replica) = mover {
            self.stay(replica, StayReason::Clone(why.clone()));
        }
    }

    fn stay(&mut self, replica: ReplicaId, why: StayReason) {
        let now = self.latest;
        if let Some(recovery) = &mut self.recovery {
            recovery.leaving.remove(&replica);
        }
        self.report(Report::Stays { replica, why });
        self.plan(now, replica.rank, Purpose::Move, None);
    }

    /// The replicas that are to leave, each with the number of its new host. None if any host will do.
    pub fn leaving(&self) -> impl Iterator<Item = (ReplicaId, Option<u32>)> + '_ {
        let leaving = self.recovery.iter().flat_map(|recovery| &recovery.leaving);
        leaving.map(|(replica, going)| (*replica, going.to))
    }
}
