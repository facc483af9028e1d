//! The newest checkpoint whose memory others vouch for, to which a job goes back whose replicas differ.
//!
//! It stays on hosts until a newer one is proven. A proof may come when a newer checkpoint was kept already: the one
//! before the newest is remembered until then.

use checkpoint_store::{Manifest, StoredCheckpoint};
use redrt_wire::checkpoint::{Generation, Proof};
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Proven {
    newest: Option<Box<StoredCheckpoint>>,
    /// The checkpoint before the newest that is kept, if it stays.
    before: Option<Box<StoredCheckpoint>>,
    /// True if the job ends because its replicas differ.
    have_differed: bool,
}

impl Proven {
    pub fn new(newest: Option<Box<StoredCheckpoint>>) -> Self {
        Self { newest, before: None, have_differed: false }
    }

    pub fn newest(&self) -> Option<&StoredCheckpoint> {
        self.newest.as_deref()
    }

    /// Bytes of standard input in the images of the oldest one to which the job may go back.
    pub fn input_bytes(&self) -> Option<u64> {
        self.newest.iter().chain(&self.before).map(|kept| kept.manifest.input_bytes).min()
    }

    /// The job ends because its replicas differ.
    pub fn differ(&mut self) {
        self.have_differed = true;
    }

    /// The checkpoint from which a job that ended because its replicas differ is to be resumed, if `newest` is another.
    pub fn instead_of(&self, newest: Option<&StoredCheckpoint>) -> Option<Generation> {
        let newest = newest.filter(|_| self.have_differed)?.manifest.generation;
        self.newest().map(|proven| proven.manifest.generation).filter(|proven| *proven < newest)
    }

    /// A newer checkpoint takes the place of `before`.
    pub fn replaced(&mut self, before: Option<Box<StoredCheckpoint>>, newest: Option<&StoredCheckpoint>) {
        let pinned = |generation| newest.is_some_and(|newest| newest.manifest.pinned.contains(&generation));
        self.before = before.filter(|before| pinned(before.manifest.generation));
    }

    /// Records who vouches for a checkpoint. `newest`: the newest that is kept. Returns its manifest. None if it does
    /// not stay.
    pub fn prove(
        &mut self,
        generation: Generation,
        proof: Proof,
        newest: Option<&mut StoredCheckpoint>,
    ) -> Option<Manifest> {
        let all = newest.into_iter().chain(self.before.as_deref_mut());
        let mut fitting = all.filter(|kept| kept.manifest.generation == generation);
        let kept = fitting.next()?;
        kept.manifest.proof = Some(proof);
        self.newest = Some(Box::new(kept.clone()));
        Some(kept.manifest.clone())
    }

    /// A life begins from this checkpoint: newer ones do not count any more.
    pub fn begin_life(&mut self, from: Option<Generation>) {
        self.newest.take_if(|newest| from.is_none_or(|from| newest.manifest.generation > from));
        self.before = None;
    }
}
