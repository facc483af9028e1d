//! Memory of processes, in which bits flip; its comparisons, and the images that have it.

use super::*;
use redrt_wire::checkpoint::Proof;
use redrt_wire::scrub::{Answer as Compared, Scrub, Stretch};

/// See the module.
#[derive(Default)]
pub struct Memory {
    /// Processes whose memory is wrong, each with the number of the flip. A copy has its source's.
    wrong: BTreeMap<ReplicaId, u64>,
    flip_count: u64,
    /// Checkpoints with an image of wrong memory.
    of_wrong: BTreeSet<Generation>,
    /// The newest checkpoint that is proven.
    proven: Option<Generation>,
    /// The checkpoint to which the job goes back because replicas differ.
    back_to: Option<Generation>,
}

impl Memory {
    /// A bit flips in a process.
    pub fn flip(&mut self, replica: ReplicaId) {
        self.flip_count += 1;
        self.wrong.insert(replica, self.flip_count);
    }

    pub fn is_wrong(&self, replica: ReplicaId) -> bool {
        self.wrong.contains_key(&replica)
    }

    pub fn copy(&mut self, copy: ReplicaId, source: ReplicaId) {
        match self.wrong.get(&source).copied() {
            Some(flip) => self.wrong.insert(copy, flip),
            None => self.wrong.remove(&copy),
        };
    }

    /// Images of these processes are cut.
    pub fn cut(&mut self, generation: Generation, sources: &[ReplicaId]) {
        if sources.iter().any(|source| self.is_wrong(*source)) {
            self.of_wrong.insert(generation);
        }
    }

    /// A life begins. All replicas of a rank have the memory of one image.
    pub fn begin_life(&mut self, from: Generation) {
        self.wrong = BTreeMap::new();
        self.proven.take_if(|proven| *proven > from);
    }

    /// Processes are launched: a return is over, which may have been chosen several times.
    pub fn launched(&mut self) {
        self.back_to = None;
    }

    /// The newest checkpoint that is proven.
    pub fn proven(&self) -> Option<Generation> {
        self.proven
    }

    /// A process's part in a round of comparisons.
    pub fn answer(&self, message: &Scrub, replica: ReplicaId) -> Option<(u64, Compared)> {
        match message {
            Scrub::Where { round } => Some((*round, Compared::Position(0))),
            Scrub::Orders { round, orders } => {
                let order = orders.get(replica.rank.0 as usize).filter(|order| order.collective != u64::MAX)?;
                let digest = self.wrong.get(&replica).map_or(1, |flip| 1 + flip);
                let stretches = vec![Stretch { start: 4096, digests: vec![digest], plain: Vec::new() }];
                Some((*round, Compared::Pages { collective: order.collective, stretches, next: 0 }))
            }
        }
    }

    /// Checks a proof.
    pub fn record_proof(&mut self, generation: Generation, proof: Proof) -> Option<String> {
        self.proven = Some(generation);
        let is_wrong = proof == Proof::Independent && self.of_wrong.contains(&generation);
        is_wrong.then(|| format!("{generation} is proven, and has wrong memory"))
    }

    /// Replicas differ, and the job goes back to this checkpoint.
    pub fn goes_back(&mut self, generation: Generation) {
        self.back_to = Some(generation);
    }

    /// Checks that a checkpoint which is to be kept leaves the proven one in its place.
    pub fn check_pinned(&self, generation: Generation, pinned: &[Generation]) -> Option<String> {
        let lost = self.proven.filter(|proven| *proven != generation && !pinned.contains(proven))?;
        Some(format!("{lost} is proven, and {generation} lets it go"))
    }

    /// Checks a return. None if replicas have not differed: then another rule decides.
    pub fn check_return(&self, generation: Generation) -> Option<Option<String>> {
        let meant = self.back_to?;
        let is_meant = meant == generation && self.proven == Some(generation);
        Some((!is_meant).then(|| format!("back to {generation} and not to {meant}, which is proven")))
    }
}
