//! Standard input on its way to rank 0: which hosts are given it, what each has taken, and what is in images.
//!
//! All counts are of bytes since the begin of the job's standard input, in whichever life they were read.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StandardInput {
    /// Read, and given to the hosts.
    read_bytes: u64,
    /// What each host that has replicas of rank 0 has taken of it.
    taken_bytes: BTreeMap<u32, u64>,
    /// What had been read when processes were last stopped for a line.
    line_bytes: u64,
}

impl StandardInput {
    /// Processes begin that have had so much.
    pub fn new(bytes: u64) -> Self {
        Self { read_bytes: bytes, taken_bytes: BTreeMap::new(), line_bytes: bytes }
    }

    /// Replicas of rank 0 are launched on these hosts.
    pub fn launched(&mut self, hosts: impl Iterator<Item = u32>) {
        self.taken_bytes = hosts.map(|host| (host, self.read_bytes)).collect();
    }

    /// A copy is there. It has been given what was sent before, which nobody has read meanwhile.
    pub fn join(&mut self, host: u32) {
        self.taken_bytes.entry(host).or_insert(self.read_bytes);
    }

    pub fn lose(&mut self, host: u32) {
        self.taken_bytes.remove(&host);
    }

    pub fn readers(&self) -> impl Iterator<Item = u32> + '_ {
        self.taken_bytes.keys().copied()
    }

    pub fn note_read(&mut self, byte_count: usize) {
        self.read_bytes += byte_count as u64;
    }

    pub fn note_taken(&mut self, host: u32, byte_count: u64) {
        *self.taken_bytes.entry(host).or_default() += byte_count;
    }

    pub fn line_begins(&mut self) {
        self.line_bytes = self.read_bytes;
    }

    pub fn bytes_at_line(&self) -> u64 {
        self.line_bytes
    }

    /// Read, and not yet taken by the slowest host that needs it.
    pub fn in_flight_bytes(&self) -> u64 {
        let slowest = self.taken_bytes.values().copied().min().unwrap_or(self.read_bytes);
        self.read_bytes.saturating_sub(slowest)
    }
}
