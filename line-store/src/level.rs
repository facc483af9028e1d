//! How far from its processes a line is kept, and so what may be lost before it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Level {
    /// Each host keeps what its processes had: a line survives the loss of processes, and no loss of a host.
    Local,
    /// So does another host: a line survives the loss of any one host.
    Partner,
    /// The same, in the memory of the two hosts: nothing goes to a disk.
    Memory,
    /// So does an object store, with the manifest: a line survives the loss of all hosts.
    Object,
    /// All is in a directory that all hosts see.
    #[default]
    Shared,
}

impl Level {
    /// Whether each host has a directory of its own.
    #[must_use]
    pub fn is_of_hosts(self) -> bool {
        self != Self::Shared
    }

    /// Whether what a host lacks can be had from elsewhere, by any.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self == Self::Object
    }

    /// Whether another host has a copy of what each has.
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
