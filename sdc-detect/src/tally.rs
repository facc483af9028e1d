//! Collects the votes on one message until every vote that counts is in.
//!
//! The live replicas of the sender count, and so does the supplier of the payload at hand even if it has died since:
//! its payload stands until it is outvoted. No other dead replica is waited for or counted.

use crate::vote::{Verdict, Vote, judge};
use redrt_types::{Digest, Kinship, ReplicaIndex, ReplicaSet};

/// Votes held inline; a larger sphere spills to the heap.
const INLINE: usize = 3;
/// Marks an unknown processor.
const NO_CORE: u16 = u16::MAX;

/// The votes on one message so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tally {
    claimed: ReplicaSet,
    /// Replicas whose vote is final. A vote that comes with a payload stays open until that payload has been hashed.
    final_votes: ReplicaSet,
    /// By index; valid for the replicas in `claimed`.
    claims: [Digest; INLINE],
    /// Processors that the votes were sent from; [`NO_CORE`] when unknown.
    cores: [u16; INLINE],
    more: Vec<Vote>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            claimed: ReplicaSet::EMPTY,
            final_votes: ReplicaSet::EMPTY,
            claims: [Digest(0); INLINE],
            cores: [NO_CORE; INLINE],
            more: Vec::new(),
        }
    }
}

impl Tally {
    /// Records a replica's vote. The first vote stands, but an open one may be replaced.
    #[inline]
    pub fn record(&mut self, replica: ReplicaIndex, digest: Digest, is_final: bool) {
        if self.final_votes.contains(replica) {
            return;
        }
        if is_final {
            self.final_votes.insert(replica);
        }
        if let Some(claim) = self.claims.get_mut(usize::from(replica.0)) {
            *claim = digest;
        } else if let Some(vote) = self.more.iter_mut().find(|vote| vote.replica == replica) {
            vote.digest = digest;
        } else {
            self.more.push(Vote { replica, digest, core: None });
        }
        self.claimed.insert(replica);
    }

    /// Notes the processor that a replica's vote was sent from.
    #[inline]
    pub fn record_core(&mut self, replica: ReplicaIndex, core: Option<u16>) {
        if let Some(place) = self.cores.get_mut(usize::from(replica.0)) {
            *place = core.unwrap_or(NO_CORE);
        } else if let Some(vote) = self.more.iter_mut().find(|vote| vote.replica == replica) {
            vote.core = core;
        }
    }

    /// The processor that a replica's vote was sent from; `None` when the vote did not say.
    #[must_use]
    pub fn core(&self, replica: ReplicaIndex) -> Option<u16> {
        match self.cores.get(usize::from(replica.0)) {
            Some(core) => Some(*core).filter(|core| *core != NO_CORE),
            None => self.more.iter().find(|vote| vote.replica == replica)?.core,
        }
    }

    /// Marks a replica's vote final: the payload that came with it has been hashed. The replica must have voted.
    #[inline]
    pub fn confirm(&mut self, replica: ReplicaIndex) {
        debug_assert!(self.claimed.contains(replica), "{replica:?} has not voted");
        self.final_votes.insert(replica);
    }

    /// Forgets the open votes of these replicas: the payloads that came with them will not be hashed.
    pub fn drop_open(&mut self, of: ReplicaSet) {
        let open = self.claimed.without(self.final_votes).intersection(of);
        self.claimed = self.claimed.without(open);
        self.more.retain(|vote| !open.contains(vote.replica));
    }

    /// Forgets the votes of these replicas, open or final.
    pub fn forget(&mut self, of: ReplicaSet) {
        self.claimed = self.claimed.without(of);
        self.final_votes = self.final_votes.without(of);
        self.more.retain(|vote| !of.contains(vote.replica));
    }

    /// The replica's digest of the message; `None` before it has voted.
    #[must_use]
    #[inline]
    pub fn claim(&self, replica: ReplicaIndex) -> Option<Digest> {
        if !self.claimed.contains(replica) {
            return None;
        }
        match self.claims.get(usize::from(replica.0)) {
            Some(claim) => Some(*claim),
            None => self.more.iter().find(|vote| vote.replica == replica).map(|vote| vote.digest),
        }
    }

    /// Replicas that have voted, open votes included.
    #[must_use]
    #[inline]
    pub fn claimed(&self) -> ReplicaSet {
        self.claimed
    }

    /// Replicas whose vote is final.
    #[must_use]
    #[inline]
    pub fn final_votes(&self) -> ReplicaSet {
        self.final_votes
    }

    /// The votes of the `counting` replicas, by index.
    #[must_use]
    pub fn votes(&self, counting: ReplicaSet) -> Vec<Vote> {
        let counting = self.claimed.intersection(counting);
        let vote = |replica| Some(Vote { replica, digest: self.claim(replica)?, core: self.core(replica) });
        counting.iter().filter_map(vote).collect()
    }

    /// The verdict on the payload that `supplier` sent; `None` until the vote of every `live` replica is final.
    /// `kinship` says which replicas share an image that may have been corrupt.
    #[must_use]
    #[inline]
    pub fn verdict(
        &self,
        computed: Digest,
        supplier: ReplicaIndex,
        live: ReplicaSet,
        kinship: &Kinship,
    ) -> Option<Verdict> {
        if !live.without(self.final_votes).is_empty() {
            return None;
        }
        let mut counting = live;
        counting.insert(supplier);
        if counting.iter().all(|replica| self.claim(replica) == Some(computed)) {
            return Some(Verdict::Unanimous);
        }
        Some(judge(computed, supplier, &self.votes(counting), kinship))
    }
}

#[cfg(test)]
mod tests;
