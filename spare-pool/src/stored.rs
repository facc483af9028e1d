//! What of a pool outlives the process that holds it.
//!
//! No times are stored: whoever restores a pool begins them anew, so a lease whose job could not renew it while the daemon
//! was away is not lost, and clocks of two lives need not agree.

use crate::host::{Admission, Spare};
use crate::lease::{Lease, LeaseId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// What was said when it was added.
    pub spare: Spare,
    /// Whether it may be leased.
    pub admission: Admission,
    /// Failures that were not made up for.
    pub strikes: u32,
}

/// A change of what is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A host is there, or is different.
    Host(HostRecord),
    /// A host is gone.
    HostRemoved(String),
    /// A lease was given.
    Lease(Lease),
    /// A lease has ended.
    LeaseEnded(LeaseId),
}

/// All that is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The hosts by name.
    pub hosts: BTreeMap<String, HostRecord>,
    /// The leases by number.
    pub leases: BTreeMap<LeaseId, Lease>,
    /// The number of the next lease.
    pub next_lease: u64,
}

impl Stored {
    /// Makes a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Host(record) => drop(self.hosts.insert(record.spare.name.clone(), record)),
            Change::HostRemoved(name) => drop(self.hosts.remove(&name)),
            Change::Lease(lease) => {
                self.next_lease = self.next_lease.max(lease.id.0 + 1);
                self.leases.insert(lease.id, lease);
            }
            Change::LeaseEnded(id) => drop(self.leases.remove(&id)),
        }
    }
}
