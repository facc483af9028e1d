//! Settings of checkpoints, and what follows from them and the hosts alone.

use super::copying;
use crate::hosts::Hosts;
use checkpoint_store::copies::Place;
use checkpoint_store::{Level, Manifest, StoredCheckpoint};
use redrt_wire::checkpoint::Compression;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of checkpoints, fixed at the start of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointSettings {
    /// Level of their storage.
    pub level: Level,
    /// Directory of this job's checkpoints.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// How images are compressed.
    pub compression: Compression,
    /// True if a checkpoint may be built on another.
    pub are_chained: bool,
    /// True if the memory that processes of a host share is a file of its own.
    pub has_host_memory: bool,
    /// Interval between checkpoints that go to the archive besides. None without one.
    pub archive_interval: Option<Duration>,
    /// The newest checkpoint that is in the archive when the job begins, as it is loaded from there.
    pub archived: Option<Box<StoredCheckpoint>>,
    /// The newest checkpoint that is proven when the job begins.
    pub proven: Option<Box<StoredCheckpoint>>,
    /// Racks of hosts, by name.
    pub racks: Vec<(String, u32)>,
}

impl CheckpointSettings {
    /// All hosts, by number, as places for copies.
    pub(super) fn places(&self, hosts: &Hosts) -> Vec<Place> {
        let place = |host| {
            let machine = hosts.name(host).to_owned();
            let rack = self.racks.iter().find(|(name, _)| *name == machine).map(|(_, rack)| *rack);
            Place { machine, rack, is_there: hosts.has(host) }
        };
        (0..hosts.count()).map(place).collect()
    }

    /// True if the parts of a new checkpoint go to the same places as those of `basis`, copies included.
    pub(super) fn can_build_on(&self, basis: &Manifest, hosts: &Hosts) -> bool {
        let are_placed_alike = || basis.hosts == hosts.names() && copying::are_partners_of(basis, &self.places(hosts));
        basis.level == self.level && (!self.level.is_of_hosts() || are_placed_alike())
    }
}
