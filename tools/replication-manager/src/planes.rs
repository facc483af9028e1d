//! Replicas that share memory with those of the same index in other ranks: a *plane*. If one of them is lost, the
//! others would read memory that is not written any more. So a plane ends as a whole, in one view, and ranks go on with
//! replicas of other indexes. An image of one such replica alone fits no plane, so none is copied.

use super::members::Members;
use redrt_types::{ReplicaId, VirtualRank};

impl Members {
    /// Records the ranks with which a process shares memory from now on. Returns one that has no replica to share with.
    pub(super) fn share(&mut self, replica: ReplicaId, ranks: Vec<VirtualRank>) -> Option<VirtualRank> {
        let absent = ranks.iter().copied().find(|rank| !self.view().is_live(ReplicaId { rank: *rank, ..replica }));
        self.process(replica).shares = ranks;
        absent.filter(|_| self.view().is_live(replica))
    }

    /// Returns true if a process shares memory with other ranks.
    pub(super) fn is_in_plane(&self, replica: ReplicaId) -> bool {
        !self.of(replica).shares.is_empty()
    }

    fn shares(&self, one: ReplicaId, other: ReplicaId) -> bool {
        let shares = |of: ReplicaId, with: ReplicaId| self.of(of).shares.contains(&with.rank);
        one.index == other.index && (shares(one, other) || shares(other, one))
    }

    /// These replicas, followed by all that share memory with them, directly or through others.
    pub(super) fn planes_of(&self, replicas: &[ReplicaId]) -> Vec<ReplicaId> {
        let mut all = replicas.to_vec();
        let mut next = 0;
        while let Some(one) = all.get(next).copied() {
            let others = self.live().map(|(other, _)| other).filter(|other| self.shares(one, *other));
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
        self.planes_of(&[replica]).into_iter().all(|one| self.counts(one))
    }
}
