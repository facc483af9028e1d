//! Strikes against hosts: for each replica that was ended because it was wrong, and for slowness (`slowness`).
//!
//! A host with `--strikes` of them gets no more replicas. Those it has move away, each as soon as another has its part
//! (as by `redctl drain`), and the command for the batch system is shown.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Strikes by host number.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Strikes(BTreeMap<u32, u32>);

impl Strikes {
    /// Adds a strike. Returns the number of strikes that the host has now.
    pub(super) fn add(&mut self, host: u32) -> u32 {
        let count = self.0.entry(host).or_default();
        *count += 1;
        *count
    }
}
