//! Replicas that share memory with those of the same index of other ranks: a *plane*. Who loses one of it would read
//! what nobody writes any more, so a plane ends as a whole, in one view; ranks go on with their replicas of other
//! indexes. And an image of one of it alone fits no plane, so none is copied.

use super::{CloneFailure, Coordinator, Exit, Report, SIGKILL};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::lack::Lack;
use std::time::Duration;

impl Coordinator {
    /// A process says with which ranks it shares memory from now on.
    pub(super) fn shares(&mut self, now: Duration, replica: ReplicaId, ranks: Vec<VirtualRank>) {
        let absent = ranks.iter().copied().find(|rank| !self.view.is_live(ReplicaId { rank: *rank, ..replica }));
        self.process(replica).shares = ranks;
        if let Some(rank) = absent.filter(|_| self.view.is_live(replica)) {
            self.unable(now, replica, Lack::Neighbor { rank: rank.0 });
        }
    }

    /// Whether a process shares memory with those of other ranks.
    pub(super) fn is_in_plane(&self, replica: ReplicaId) -> bool {
        !self.processes[self.world().process(replica).0 as usize].shares.is_empty()
    }

    fn share(&self, one: ReplicaId, other: ReplicaId) -> bool {
        let shares = |of: ReplicaId, with: ReplicaId| {
            self.processes[self.world().process(of).0 as usize].shares.contains(&with.rank)
        };
        one.index == other.index && (shares(one, other) || shares(other, one))
    }

    /// These, and behind them all that share memory with them, or with those that do.
    fn planes_of(&self, replicas: &[ReplicaId]) -> Vec<ReplicaId> {
        let mut all = replicas.to_vec();
        let mut next = 0;
        while let Some(one) = all.get(next).copied() {
            let others = self.world().replicas().filter(|other| self.view.is_live(*other) && self.share(one, *other));
            let others: Vec<_> = others.filter(|other| !all.contains(other)).collect();
            all.extend(others);
            next += 1;
        }
        all
    }

    /// One of these that shares memory with another which is not among them: their images would not fit each other.
    pub(super) fn source_apart(&self, sources: &[ReplicaId]) -> Option<ReplicaId> {
        let is_apart = |source: &ReplicaId| self.planes_of(&[*source]).iter().any(|other| !sources.contains(other));
        sources.iter().copied().find(is_apart)
    }

    /// Whether nobody of its plane is on its way out.
    pub(super) fn is_plane_whole(&self, replica: ReplicaId) -> bool {
        let mut plane = self.planes_of(&[replica]).into_iter();
        plane.all(|one| self.processes[self.world().process(one).0 as usize].counts())
    }

    /// These are lost: with all that cannot go on without them, which are ended.
    pub(super) fn with_planes(&mut self, lost: &[ReplicaId]) -> Vec<ReplicaId> {
        let all = self.planes_of(lost);
        let ended = all[lost.len()..].to_vec();
        if let (Some(replica), false) = (lost.first().copied(), ended.is_empty()) {
            self.report(Report::PlaneLost { replica, others: ended.clone() });
        }
        for other in ended {
            // It is gone with this view; what it ends with does not matter any more.
            self.process(other).exit.get_or_insert(Exit::Signal(SIGKILL));
            self.send(ToDaemon::Kill(other));
        }
        all
    }

    /// Places stay empty because those whose copies could be there share memory: says so, once in a job.
    pub(super) fn tell_of_planes(&mut self) {
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| !recovery.was_told_of_planes) else { return };
        let in_plane = |place: ReplicaId| self.view.live(place.rank).find(|source| self.is_in_plane(*source));
        let found = recovery.empty_places().find_map(|place| Some((place, in_plane(place)?)));
        let Some((replica, source)) = found else { return };
        if let Some(recovery) = &mut self.recovery {
            recovery.was_told_of_planes = true;
        }
        let (host, why) = (String::new(), CloneFailure::SharesMemory);
        self.report(Report::CloneFailed { replica, source, host, why });
    }
}
