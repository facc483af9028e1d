//! The hosts on which the processes are, and were.

use redrt_types::{ProcessIndex, ReplicaId, ViewNumber};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The current and former hosts of all processes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Homes {
    /// By process. None for free places. Empty until processes are launched.
    placement: Vec<Option<u32>>,
    /// Former hosts of replicas, each with the last view in which it was valid.
    past: BTreeMap<ReplicaId, Vec<(ViewNumber, u32)>>,
    /// The hosts at the begin of the newest checkpoint. Images are written there, even if the process has moved or
    /// gone.
    at_checkpoint: Vec<Option<u32>>,
}

impl Homes {
    pub fn is_known(&self) -> bool {
        !self.placement.is_empty()
    }

    pub fn placement(&self) -> &[Option<u32>] {
        &self.placement
    }

    pub fn host(&self, process: ProcessIndex) -> Option<u32> {
        self.placement.get(process.0 as usize).copied().flatten()
    }

    /// Keeps the current hosts for a checkpoint. No replica joins or moves until all are copied, or the checkpoint is
    /// void.
    pub fn checkpoint_begins(&mut self) {
        self.at_checkpoint.clone_from(&self.placement);
    }

    pub fn host_at_checkpoint(&self, process: ProcessIndex) -> Option<u32> {
        self.at_checkpoint.get(process.0 as usize).copied().flatten()
    }

    /// The host of a replica in this view. None if it is still there.
    pub fn past_host(&self, replica: ReplicaId, view: ViewNumber) -> Option<u32> {
        let mut past = self.past.get(&replica).into_iter().flatten();
        past.find(|(until, _)| view <= *until).map(|(_, host)| *host)
    }

    pub fn settle(&mut self, placement: Vec<Option<u32>>) {
        self.placement = placement;
    }

    /// Records that the process in this place runs on `host` in all views after `view`.
    pub fn moved(&mut self, process: ProcessIndex, replica: ReplicaId, host: u32, view: ViewNumber) {
        if let Some(before) = self.placement[process.0 as usize].replace(host) {
            self.past.entry(replica).or_default().push((view, before));
        }
    }

    pub fn vacate(&mut self, process: ProcessIndex) {
        self.placement[process.0 as usize] = None;
    }
}
