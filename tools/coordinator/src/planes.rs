//! Replicas that share memory with those of the same index in other ranks: a *plane*. If one of them is lost, the
//! others would read memory that is not written any more. So a plane ends as a whole, in one view, and ranks go on with
//! replicas of other indexes. An image of one such replica alone fits no plane, so none is copied.

use super::{CloneFailure, Coordinator, Exit, Report, SIGKILL};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::lack::Lack;
use std::time::Duration;

impl Coordinator {
    /// Records the ranks with which a process shares memory from now on.
    pub(super) fn shares(&mut self, now: Duration, replica: ReplicaId, ranks: Vec<VirtualRank>) {
        let absent = ranks.iter().copied().find(|rank| !self.view.is_live(ReplicaId { rank: *rank, ..replica }));
        self.process(replica).shares = ranks;
        if let Some(rank) = absent.filter(|_| self.view.is_live(replica)) {
            self.unable(now, replica, Lack::Neighbor { rank: rank.0 });
        }
    }

    /// Returns true if a process shares memory with other ranks.
    pub(super) fn is_in_plane(&self, replica: ReplicaId) -> bool {
        !self.processes[self.world().process(replica).0 as usize].shares.is_empty()
    }

    fn share(&self, one: ReplicaId, other: ReplicaId) -> bool {
        let shares = |of: ReplicaId, with: ReplicaId| {
            self.processes[self.world().process(of).0 as usize].shares.contains(&with.rank)
        };
        one.index == other.index && (shares(one, other) || shares(other, one))
    }

    /// These replicas, followed by all that share memory with them, directly or through others.
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

    /// A source that shares memory with a process which is no source. Their images would not fit each other.
    pub(super) fn source_apart(&self, sources: &[ReplicaId]) -> Option<ReplicaId> {
        let is_apart = |source: &ReplicaId| self.planes_of(&[*source]).iter().any(|other| !sources.contains(other));
        sources.iter().copied().find(is_apart)
    }

    /// Returns true if no replica of its plane is being ended.
    pub(super) fn is_plane_whole(&self, replica: ReplicaId) -> bool {
        let mut plane = self.planes_of(&[replica]).into_iter();
        plane.all(|one| self.processes[self.world().process(one).0 as usize].counts())
    }

    /// Returns these lost replicas, followed by the rest of their planes, which is ended here.
    pub(super) fn with_planes(&mut self, lost: &[ReplicaId]) -> Vec<ReplicaId> {
        let all = self.planes_of(lost);
        let ended = all[lost.len()..].to_vec();
        if let (Some(replica), false) = (lost.first().copied(), ended.is_empty()) {
            self.report(Report::PlaneLost { replica, others: ended.clone() });
        }
        for other in ended {
            // It is not in the next view, so its real exit does not matter.
            self.process(other).exit.get_or_insert(Exit::Signal(SIGKILL));
            self.send(ToDaemon::Kill(other));
        }
        all
    }

    /// Reports once in a job that places stay empty because their ranks share memory.
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
