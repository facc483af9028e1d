//! What a job asks for and what it gets.

use crate::host::Spare;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The random identity of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Numbers the leases of a pool; never given twice, also when the pool was stored and restored in between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Numbers the requests that wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// One place on a host, lent to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// Its number.
    pub id: LeaseId,
    /// Who has it.
    pub job: JobId,
    /// Whose job that is, where users are told apart.
    pub user: Option<String>,
    /// The host, which no other job has meanwhile.
    pub spare: Spare,
    /// Memory that was asked for.
    pub memory_bytes: u64,
}

/// What a job needs for one replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The job.
    pub job: JobId,
    /// Whose job it is, where users are told apart: the pool knows by the key that was used.
    pub user: Option<String>,
    /// Memory of the largest replica.
    pub memory_bytes: u64,
    /// Processor features that its replicas run with; empty if any processor will do.
    pub cpu_features: BTreeSet<String>,
    /// The version of redrt it runs; absent if any will do.
    pub version: Option<String>,
    /// Hosts to stay away from if others can be had: where siblings live.
    pub apart_from_hosts: BTreeSet<String>,
    /// Racks to stay away from if others can be had.
    pub apart_from_racks: BTreeSet<String>,
    /// Hosts not to be given at all.
    pub excluded: BTreeSet<String>,
}

impl Request {
    /// A place anywhere.
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

    /// The same, where there is so much memory.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// The same, if possible on another host than these.
    #[must_use]
    pub fn apart_from<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Self {
        self.apart_from_hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// The same, on none of these hosts.
    #[must_use]
    pub fn excluding<N: Into<String>>(mut self, hosts: impl IntoIterator<Item = N>) -> Self {
        self.excluded.extend(hosts.into_iter().map(Into::into));
        self
    }
}
