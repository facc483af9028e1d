//! The choice of the replica that is copied.

use super::clones::Clones;
use crate::facts::Facts;
use crate::process::Phase;
use redrt_types::{ReplicaId, VirtualRank};

impl Clones {
    /// A replica can never be copied, as long as it lives.
    pub(super) fn mark_unfit(&mut self, facts: Facts<'_>, source: ReplicaId) {
        self.unfit.extend(facts.members.life(source));
    }

    /// Returns true if a replica cannot be copied, either as long as it lives or as long as it shares memory.
    fn is_unfit(&self, facts: Facts<'_>, source: ReplicaId) -> bool {
        let is_unfit = facts.members.life(source).is_some_and(|life| self.unfit.contains(&life));
        is_unfit || facts.members.is_in_plane(source)
    }

    /// Other replicas contradict the memory of one that was to be copied.
    pub(super) fn distrust(&mut self, facts: Facts<'_>, source: ReplicaId) {
        self.distrusted.extend(facts.members.life(source));
    }

    /// Returns true if other replicas contradicted its memory when it was to be copied. It is then the last choice as a
    /// source.
    pub(crate) fn is_distrusted(&self, facts: Facts<'_>, source: ReplicaId) -> bool {
        facts.members.life(source).is_some_and(|life| self.distrusted.contains(&life))
    }

    /// Returns true if a place of this rank stays empty, because no allowed source can be copied.
    pub(super) fn is_hopeless(&self, facts: Facts<'_>, rank: VirtualRank, wanted: Option<ReplicaId>) -> bool {
        let live = facts.members.view().live(rank);
        let mut sources = live.filter(|source| wanted.is_none_or(|wanted| wanted == *source));
        sources.all(|source| self.is_unfit(facts, source))
    }

    /// Chooses the replica to copy: a sibling that is at work and not being copied, of the lineage with the fewest
    /// replicas. The leader is spared if there is another choice, since it decides for its siblings. If one is
    /// `wanted`, no other will do.
    pub(super) fn source_for(
        &self,
        facts: Facts<'_>,
        rank: VirtualRank,
        wanted: Option<ReplicaId>,
    ) -> Option<ReplicaId> {
        let (members, view) = (facts.members, facts.members.view());
        let is_fit = |source: &ReplicaId| {
            let process = members.of(*source);
            let is_at_work = process.counts() && process.phase == Phase::Ready;
            is_at_work && !self.is_busy(*source) && !self.is_unfit(facts, *source)
        };
        if wanted.is_some() {
            return wanted.filter(|source| view.is_live(*source) && is_fit(source));
        }
        // A rank must not come to descend from one image, so the rarest lineage is copied.
        let (leader, live) = (view.leader(rank), view.live_set(rank));
        let relatives = |source: &ReplicaId| view.kinship(rank).relatives(source.index, live);
        let order = |source: &ReplicaId| {
            (self.is_distrusted(facts, *source), relatives(source), Some(*source) == leader, source.index)
        };
        view.live(rank).filter(is_fit).min_by_key(order)
    }
}
