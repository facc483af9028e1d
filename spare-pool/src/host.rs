//! A spare host: what the pool was told of it, and what was found there.

use crate::lease::JobId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// A host, as it was named when it was added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spare {
    /// Its name.
    pub name: String,
    /// The user to log in as, if another.
    pub user: Option<String>,
    /// How many replicas of one job may be put there.
    pub slot_count: u32,
    /// What else fails with it.
    pub rack: Option<String>,
    /// By what daemons are started there, if not as usual: a name, which each host that starts daemons looks up for
    /// itself.
    pub launcher: Option<String>,
}

impl Spare {
    /// A host of which nothing but the name and the number of places is known.
    #[must_use]
    pub fn new(name: impl Into<String>, slot_count: u32) -> Self {
        Self { name: name.into(), user: None, slot_count, rack: None, launcher: None }
    }
}

/// What was found on a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The version of redrt there.
    pub version: String,
    /// Memory that can be had.
    pub memory_bytes: u64,
    /// The flags of its processors, and their architecture.
    pub cpu_features: BTreeSet<String>,
    /// Processors.
    pub cpu_count: u32,
    /// Processes that want to run, in thousandths.
    pub load_milli: u64,
}

/// Whether a host may be leased, as far as somebody has decided that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Admission {
    /// It may.
    Open,
    /// It may not: it is to become free, and stay so.
    Draining,
    /// It may not: something is wrong with it.
    Bad {
        /// What.
        why: String,
    },
}

/// A host as the pool sees it, to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostStatus {
    /// What was said when it was added.
    pub spare: Spare,
    /// Whether it may be leased.
    pub admission: Admission,
    /// The job that has it.
    pub job: Option<JobId>,
    /// How many of its places that job has.
    pub leased_count: u32,
    /// Failures that were not made up for.
    pub strikes: u32,
    /// When it may be tried again after a failure, if that is to come.
    pub backs_off_until: Option<Duration>,
    /// Why it cannot be reached, if so.
    pub unreachable: Option<String>,
    /// What was found there, when it was last looked at.
    pub facts: Option<Facts>,
}

impl HostStatus {
    /// Its state in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (&self.admission, self.leased_count > 0) {
            (Admission::Bad { .. }, _) => "bad",
            (Admission::Draining, true) => "draining",
            (Admission::Draining, false) => "drained",
            (Admission::Open, true) => "leased",
            (Admission::Open, false) if self.unreachable.is_some() => "unreachable",
            (Admission::Open, false) if self.backs_off_until.is_some() => "resting",
            (Admission::Open, false) => "idle",
        }
    }
}
