//! Proofs of checkpoints: replicas of other lineages vouch for the memory that is in the images.
//!
//! ```text
//!   kept ──▶ on trial ──each source is vouched for by a pass that began since──▶ proven
//!               ├──a source differs from all replicas of other lineages────────▶ not proven
//!               └──a source is lost, memory cannot be compared, or too late────▶ not proven
//! ```
//! A pass compares all memory of a rank at a place of the program after the cut ([`scrub`](super::scrub)). What was
//! corrupt in the image and has had any effect until there shows on some page, or has shown in a message. If nothing
//! differs, a job that begins from the image comes to the same sound state.
//!
//! Enters: checkpoints that are kept, passes that are complete, changes of the membership. Leaves: [`Verdict`]s, and
//! whether another round of comparisons is needed.

use super::scrub::{Pass, ScrubWatch};
use redrt_types::{Incarnation, ReplicaId, View, VirtualRank};
use redrt_wire::checkpoint::{Generation, Proof};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The checkpoints that are proven (`--checkpoint-proof`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ProofMode {
    /// None.
    #[default]
    Off,
    /// Checkpoints of processes that have [`SMALL_BYTES_MAX`] at most: comparing them takes no longer than the cut.
    WhereSmall,
    /// All.
    Always,
}

/// Maximum bytes of a process that are compared for a proof which the user has not asked for: 15 ms at 4.5 GB/s.
pub const SMALL_BYTES_MAX: u64 = 64 << 20;

/// Time between the rounds of a trial.
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// Processes whose images are in a checkpoint, each with its incarnation.
pub(super) type Sources = Vec<(ReplicaId, Incarnation)>;

/// The reason why a checkpoint is not proven.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum NoProof {
    /// No replica of another lineage has the memory that this source has.
    #[error("rank {} was saved from replica {of}, and no other has the same on {pages} of its pages", of.rank)]
    Differs {
        /// The source.
        of: ReplicaId,
        /// Number of pages on which it differs.
        pages: u64,
    },
    /// This source was lost before.
    #[error("replica {0}, which was saved, was lost before its memory was compared")]
    SourceLost(ReplicaId),
    /// This source has no sibling that could vouch for it.
    #[error("replica {0}, which was saved, has no sibling")]
    Single(ReplicaId),
    /// The memory of this replica cannot be compared, for this reason. No checkpoint of the job is proven.
    #[error("{0} {1}; no checkpoint of this job is")]
    Incomparable(ReplicaId, String),
    /// Processes of this rank have more memory than is compared without being asked for. No checkpoint is proven.
    #[error(
        "processes of rank {0} have more than {small} MiB, which are compared only with --checkpoint-proof always",
        small = SMALL_BYTES_MAX >> 20
    )]
    TooLarge(VirtualRank),
    /// Two newer checkpoints were kept before its memory was compared.
    #[error("two newer ones were kept before its memory was compared")]
    Late,
}

/// The end of a trial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub generation: Generation,
    pub outcome: Result<Proof, NoProof>,
}

/// A checkpoint whose memory is being compared.
#[derive(Debug, Serialize, Deserialize)]
struct Trial {
    generation: Generation,
    sources: Sources,
    /// Number of the first round that began after the cut.
    first_round: u64,
    /// Ranks that nobody vouches for yet.
    open: BTreeSet<VirtualRank>,
    /// The testimony so far.
    proof: Proof,
}

impl Trial {
    /// The reason why nobody can vouch for it any more.
    fn hindrance(&self, view: &View) -> Option<NoProof> {
        let why = |(source, life): &(ReplicaId, Incarnation)| {
            let is_there = view.member(*source).is_some_and(|member| member.incarnation == *life);
            let is_single = view.live(source.rank).count() < 2;
            let single = || is_single.then_some(NoProof::Single(*source));
            if is_there { single() } else { Some(NoProof::SourceLost(*source)) }
        };
        self.sources.iter().find_map(why)
    }
}

/// Decides which checkpoints are proven; see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Proofs {
    mode: ProofMode,
    /// True if no checkpoint of this life can be proven.
    is_off: bool,
    trial: Option<Trial>,
    /// The newest that waits for the end of the trial.
    next: Option<Trial>,
    /// The newest that is proven.
    newest: Option<Generation>,
}

impl Proofs {
    /// A life that may go back to `newest`, which was proven in an earlier one.
    pub fn new(mode: ProofMode, newest: Option<Generation>) -> Self {
        Self { mode, is_off: mode == ProofMode::Off, trial: None, next: None, newest }
    }

    /// The newest checkpoint that is proven.
    pub fn newest(&self) -> Option<Generation> {
        self.newest
    }

    /// The checkpoints that may be proven yet: they have to stay until then.
    pub fn on_trial(&self) -> Vec<Generation> {
        self.trial.iter().chain(&self.next).map(|trial| trial.generation).collect()
    }

    /// The job ends, or goes back: no later answer makes a proof.
    pub fn end(&mut self) {
        (self.is_off, self.trial, self.next) = (true, None, None);
    }

    /// Asks for the next round of a trial.
    pub fn go_on(&self, now: Duration, scrub: &mut ScrubWatch) {
        if self.trial.is_some() {
            scrub.demand_round(now + ROUND_PAUSE);
        }
    }

    /// A checkpoint is kept. `first_round`: the number of the next round of comparisons to begin.
    pub fn kept(&mut self, generation: Generation, sources: Sources, first_round: u64, view: &View) -> Option<Verdict> {
        if self.is_off {
            return None;
        }
        let open = sources.iter().map(|(source, _)| source.rank).collect();
        let kept = Trial { generation, sources, first_round, open, proof: Proof::Independent };
        // A source may have been lost between the cut and the commit.
        if let Some(why) = kept.hindrance(view) {
            return Some(Verdict { generation, outcome: Err(why) });
        }
        if self.trial.is_none() {
            self.trial = Some(kept);
            return None;
        }
        self.next.replace(kept)?;
        self.fail(NoProof::Late)
    }

    /// A pass over all memory of a rank is complete.
    pub fn compared(&mut self, rank: VirtualRank, pass: &Pass) -> Option<Verdict> {
        let trial = self.trial.as_mut().filter(|trial| pass.first_round >= trial.first_round)?;
        let (source, _) = trial.sources.iter().find(|(source, _)| source.rank == rank).copied()?;
        if !trial.open.contains(&rank) || !pass.compared.contains(source.index) {
            return None;
        }
        if pass.alone.contains(source.index) {
            return self.fail(NoProof::Differs { of: source, pages: pass.differing });
        }
        trial.open.remove(&rank);
        if pass.is_one_lineage {
            trial.proof = Proof::Kin;
        }
        if !trial.open.is_empty() {
            return None;
        }
        let Trial { generation, proof, .. } = std::mem::replace(&mut self.trial, self.next.take())?;
        self.newest = Some(generation);
        Some(Verdict { generation, outcome: Ok(proof) })
    }

    /// A round did not cover all memory of this rank.
    pub fn in_part(&mut self, rank: VirtualRank) -> Option<Verdict> {
        if self.mode == ProofMode::Always {
            return None;
        }
        self.stop(NoProof::TooLarge(rank))
    }

    /// The memory of this replica cannot be compared.
    pub fn unfit(&mut self, replica: ReplicaId, why: String) -> Option<Verdict> {
        self.stop(NoProof::Incomparable(replica, why))
    }

    /// Ends the trials of checkpoints that nobody can vouch for any more.
    pub fn membership_changed(&mut self, view: &View) -> Option<Verdict> {
        self.next.take_if(|next| next.hindrance(view).is_some());
        let why = self.trial.as_ref().and_then(|trial| trial.hindrance(view))?;
        self.fail(why)
    }

    fn fail(&mut self, why: NoProof) -> Option<Verdict> {
        let Trial { generation, .. } = std::mem::replace(&mut self.trial, self.next.take())?;
        Some(Verdict { generation, outcome: Err(why) })
    }

    fn stop(&mut self, why: NoProof) -> Option<Verdict> {
        let verdict = self.fail(why);
        if verdict.is_some() {
            self.end();
        }
        verdict
    }
}
