//! Sound replicas that are to leave: they move to another host, their host is to become free, or their rank is to have
//! fewer replicas.
//!
//! A replica leaves by being killed, since the protocol can bear that at any moment. It is killed only when enough
//! others are in step that its rank has as many as before.

use super::request::{ChangeRequest, ChangeRequestError};
use super::{Copies, Purpose};
use crate::effect::{CopyEffect, Effects};
use crate::facts::Facts;
use crate::{CloneFailure, Output, Report, StayReason};
use redrt_types::ReplicaId;
use spare_pool::PlaceOrder;
use std::time::Duration;

impl Copies {
    /// Checks that a request can be fulfilled. `room` is the number of copies that the hosts concerned can still take,
    /// if known.
    pub(crate) fn check(
        &self,
        facts: Facts<'_>,
        request: &ChangeRequest,
        room: Option<u32>,
    ) -> Result<(), ChangeRequestError> {
        request.check(facts, &self.hosts, self.plans(), room)
    }

    /// Carries out a request that was [checked](Copies::check). Degrees are as wished already.
    pub(crate) fn grant(&mut self, facts: Facts<'_>, request: ChangeRequest, out: &mut Effects) {
        match request {
            ChangeRequest::Migrate { replica, to } => self.let_go(facts, replica, to, out),
            ChangeRequest::Drain { host } => {
                let there = facts.members.live_on(host).into_iter();
                let there: Vec<_> = there.filter(|replica| !self.moves.contains(*replica)).collect();
                self.close_host(facts, host, out);
                there.into_iter().for_each(|replica| self.let_go(facts, replica, None, out));
            }
            ChangeRequest::Degree { degree, ranks } => {
                out.report(Report::Degree { degree, rank_count: ranks.len() });
                for rank in ranks {
                    self.moves.forget_surplus(rank);
                    self.plan(facts, rank, Purpose::Growth, None, out);
                    self.moves.choose_surplus(facts, rank);
                }
            }
        }
    }

    /// Plans the departure of a replica, which follows when a copy has its part.
    fn let_go(&mut self, facts: Facts<'_>, replica: ReplicaId, to: Option<u32>, out: &mut Effects) {
        self.moves.add(replica, to);
        let name = to.map(|to| self.hosts.name(to).to_owned());
        out.report(Report::Leaving { replica, to: name });
        self.plan(facts, replica.rank, Purpose::Move, to, out);
    }

    /// Closes a host: it gets no more copies, and those under way to it are given up.
    fn close_host(&mut self, facts: Facts<'_>, host: u32, out: &mut Effects) {
        let name = self.hosts.close(host);
        out.output(Output::Place(PlaceOrder::Close(name)));
        self.needs.give_back_on(host, out);
        self.give_up_on_host(facts, host, &CloneFailure::HostLeaves, out);
        self.cancel_moves_to(facts, host, out);
    }

    /// Frees the host of a place, because the pool wants it back.
    pub(super) fn leave_place(&mut self, facts: Facts<'_>, number: u64, out: &mut Effects) {
        let host = self.needs.replica_in(number).and_then(|replica| facts.members.host_of(replica));
        let host = host.or_else(|| self.clones.in_place(number).map(|(_, attempt)| attempt.host));
        if let Some(host) = host {
            self.free_host(facts, host, out);
        }
    }

    /// Closes a host and moves its replicas away, unless it is closed.
    pub(crate) fn free_host(&mut self, facts: Facts<'_>, host: u32, out: &mut Effects) {
        if self.hosts.is_closed(host) {
            return;
        }
        self.close_host(facts, host, out);
        for replica in facts.members.live_on(host) {
            self.let_go(facts, replica, None, out);
        }
    }

    /// Acts on the loss of a host: plans that need it are given up.
    pub(crate) fn host_lost(&mut self, facts: Facts<'_>, name: &str, out: &mut Effects) {
        let Some(number) = self.hosts.lose(name) else { return };
        self.needs.lose_host(number, |replica| facts.members.host_of(replica));
        self.give_up_on_host(facts, number, &CloneFailure::HostLost, out);
        self.clones.report_recovered(|untold| untold.source_host == number, out);
        self.cancel_moves_to(facts, number, out);
    }

    /// Has the replicas killed that are to leave and that their ranks can do without, one of each rank at a time.
    /// Reports hosts that were to become free, once they are.
    pub(super) fn let_leave(&mut self, facts: Facts<'_>, out: &mut Effects) {
        for replica in self.moves.take_free(facts, &self.clones) {
            out.copy(CopyEffect::Leave(replica));
        }
        let members = facts.members;
        let is_empty = |host: u32| {
            let mut here = members.all().filter(|(replica, _)| members.host_of(*replica) == Some(host));
            here.all(|(_, process)| process.is_gone()) && !self.clones.need_host(host)
        };
        for (number, host) in self.hosts.newly_free(is_empty) {
            out.report(Report::HostFree { host });
            out.output(Output::HostFree(number));
        }
    }

    /// Drops the plan for a replica that is not in the view any more. If it died before a successor had its part, that
    /// copy now makes good a loss.
    pub(super) fn forget_mover(&mut self, now: Duration, replica: ReplicaId) {
        let going = self.moves.remove(replica).filter(|going| !going.is_ending && !going.is_surplus);
        if going.is_some() && !self.needs.make_loss_of_move(now, replica.rank) {
            self.clones.make_loss_of_move(now, replica.rank);
        }
    }

    /// Cancels moves to this host, which cannot be used any more. The replicas stay on their hosts.
    fn cancel_moves_to(&mut self, facts: Facts<'_>, host: u32, out: &mut Effects) {
        for replica in self.moves.to_host(host) {
            self.stay(facts, replica, StayReason::HostUnfit, out);
        }
    }

    /// Cancels the move for which this copy was meant, because it failed too often. The replica stays on its host.
    pub(super) fn cancel_move_for(
        &mut self,
        facts: Facts<'_>,
        place: ReplicaId,
        why: &CloneFailure,
        out: &mut Effects,
    ) {
        let only = self.needs.get(place).and_then(|missing| missing.only);
        if let Some(replica) = only.and_then(|only| self.moves.waiting_for(place.rank, only)) {
            self.stay(facts, replica, StayReason::Clone(why.clone()), out);
        }
    }

    fn stay(&mut self, facts: Facts<'_>, replica: ReplicaId, why: StayReason, out: &mut Effects) {
        self.moves.remove(replica);
        out.report(Report::Stays { replica, why });
        self.plan(facts, replica.rank, Purpose::Move, None, out);
    }
}
