//! Storage level of a checkpoint: how far from its processes it is stored, and hence which losses it survives.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Storage level, from the nearest to the farthest but `Shared`, which is the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Level {
    /// Each host stores its own part: survives the loss of processes, but not of a host.
    Local,
    /// A partner host has a copy of each part: survives the loss of any one host.
    Partner,
    /// As [`Level::Partner`], but in the memory of both hosts instead of on disks.
    Memory,
    /// An object store has a copy of each part and the manifest: survives the loss of all hosts.
    Object,
    /// Everything is in a directory that all hosts share.
    #[default]
    Shared,
}

impl Level {
    /// Returns true if each host stores its part in a directory of its own.
    #[must_use]
    pub fn is_of_hosts(self) -> bool {
        self != Self::Shared
    }

    /// Returns true if any host can fetch the parts that it lacks.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self == Self::Object
    }

    /// Returns true if each part has a copy on a partner host.
    #[must_use]
    pub fn has_copies(self) -> bool {
        matches!(self, Self::Partner | Self::Memory)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Partner => "partner",
            Self::Memory => "memory",
            Self::Object => "object",
            Self::Shared => "shared",
        })
    }
}
