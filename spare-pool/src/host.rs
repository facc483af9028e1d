//! A spare host: what the pool was told of it, and what was found there.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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

/// Why it is not known what a host is like.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Unseen {
    /// It was not heard of in time.
    #[error("no answer")]
    NoAnswer,
    /// Nobody could be sent there, by the number of the system's error.
    #[error("it cannot be looked at: {}", std::io::Error::from_raw_os_error(*.0))]
    NoThread(i32),
    /// The last line that was printed on the way there.
    #[error("{0}")]
    Said(String),
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
