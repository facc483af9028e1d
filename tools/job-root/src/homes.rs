//! On which hosts the processes are, and were.

use redrt_types::{ProcessIndex, ReplicaId, ViewNumber};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Homes {
    /// By process; none for places that are free. Empty until processes are launched.
    placement: Vec<Option<u32>>,
    /// Where replicas were before: up to this view, on this host.
    past: BTreeMap<ReplicaId, Vec<(ViewNumber, u32)>>,
    /// Where processes were when the newest line was begun. Their images are written there, also when they have gone.
    at_line: Vec<Option<u32>>,
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

    /// A line is begun: until all are copied nobody joins, moves or goes, or nothing comes of it.
    pub fn line_begins(&mut self) {
        self.at_line.clone_from(&self.placement);
    }

    pub fn host_at_line(&self, process: ProcessIndex) -> Option<u32> {
        self.at_line.get(process.0 as usize).copied().flatten()
    }

    /// Where it was in this view, if it is elsewhere now.
    pub fn past_host(&self, replica: ReplicaId, view: ViewNumber) -> Option<u32> {
        let mut past = self.past.get(&replica).into_iter().flatten();
        past.find(|(until, _)| view <= *until).map(|(_, host)| *host)
    }

    pub fn settle(&mut self, placement: Vec<Option<u32>>) {
        self.placement = placement;
    }

    /// The process in this place runs here from now on, after `view`.
    pub fn moved(&mut self, process: ProcessIndex, replica: ReplicaId, host: u32, view: ViewNumber) {
        if let Some(before) = self.placement[process.0 as usize].replace(host) {
            self.past.entry(replica).or_default().push((view, before));
        }
    }

    pub fn vacate(&mut self, process: ProcessIndex) {
        self.placement[process.0 as usize] = None;
    }
}
