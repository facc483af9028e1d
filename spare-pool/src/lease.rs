//! Requests of jobs, and the leases granted for them.

use crate::host::Spare;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Random identity of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Number of a lease in its pool. Never reused, even after the pool was stored and restored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a waiting request in its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// A place on a host, lent to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// Number of the lease in its pool.
    pub id: LeaseId,
    /// Job that holds the lease.
    pub job: JobId,
    /// User of the job, where users are distinguished.
    pub user: Option<String>,
    /// The host. No other job has a lease on it meanwhile.
    pub spare: Spare,
    /// Memory that was requested, in bytes.
    pub memory_bytes: u64,
}

/// Requirements of a job for one replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Job for which a place is requested.
    pub job: JobId,
    /// User of the job, where users are distinguished: the pool knows by the key that was used.
    pub user: Option<String>,
    /// Memory of the largest replica, in bytes.
    pub memory_bytes: u64,
    /// Processor features that the job's replicas run with; empty if any processor will do.
    pub cpu_features: BTreeSet<String>,
    /// Version of redrt that the job runs; `None` if any will do.
    pub version: Option<String>,
    /// Hosts to avoid if possible, because siblings live there.
    pub apart_from_hosts: BTreeSet<String>,
    /// Racks to avoid if possible.
    pub apart_from_racks: BTreeSet<String>,
    /// Hosts that must not be granted.
    pub excluded: BTreeSet<String>,
}

impl Request {
    /// A request without any requirements.
    #[must_use]
    pub fn new(job: JobId) -> Self {
        Self {
            job,
            user: None,
            memory_bytes: 0,
            cpu_features: BTreeSet::new(),
            version: None,
            apart_from_hosts: BTreeSet::new(),
            apart_from_racks: BTreeSet::new(),
            excluded: BTreeSet::new(),
        }
    }

    /// Requires this much memory, in bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Avoids these hosts if possible.
    #[must_use]
    pub fn apart_from<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Self {
        self.apart_from_hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Rules these hosts out.
    #[must_use]
    pub fn excluding<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Self {
        self.excluded.extend(hosts.into_iter().map(Into::into));
        self
    }
}
