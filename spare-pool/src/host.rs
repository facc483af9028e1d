//! A spare host: its configuration, and the facts found on it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A host as configured when it was added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spare {
    /// Name by which daemons reach it.
    pub name: String,
    /// User to log in as; `None` for the current one.
    pub user: Option<String>,
    /// Number of replicas of one job that it takes.
    pub slot_count: u32,
    /// Rack, or another group of hosts that fail together.
    pub rack: Option<String>,
    /// Name of the launcher that starts daemons there; `None` for the usual one. Each host that starts daemons resolves
    /// the name by itself.
    pub launcher: Option<String>,
}

impl Spare {
    /// A host with a name and a number of places, and nothing else known.
    #[must_use]
    pub fn new(name: impl Into<String>, slot_count: u32) -> Self {
        Self { name: name.into(), user: None, slot_count, rack: None, launcher: None }
    }
}

/// Facts found on a host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Version of redrt on the host.
    pub version: String,
    /// Available memory in bytes.
    pub memory_bytes: u64,
    /// Processor flags and architecture.
    pub cpu_features: BTreeSet<String>,
    /// Number of processors that it has.
    pub cpu_count: u32,
    /// Number of runnable processes, in thousandths.
    pub load_milli: u64,
}

/// Reason why facts of a host are unknown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Unseen {
    /// It did not answer in time.
    #[error("no answer")]
    NoAnswer,
    /// No thread could be started to look at it; number of the system's error.
    #[error("it cannot be looked at: {}", std::io::Error::from_raw_os_error(*.0))]
    NoThread(i32),
    /// Last line that was printed while connecting to it.
    #[error("{0}")]
    Said(String),
}

/// Decision about leasing a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Admission {
    /// It is leased like any other host.
    Open,
    /// It is not leased, so that it becomes free and stays so.
    Draining,
    /// It is not leased, because something is wrong with it.
    Bad {
        /// Reason of the decision, for messages.
        why: String,
    },
}
