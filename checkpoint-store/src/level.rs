//! Storage level of a checkpoint: how far from its processes it is stored, and hence which losses it survives.

use crate::pieces::Code;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Storage level, from the nearest to the farthest but `Shared`, which is the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Level {
    /// Each host stores its own part: survives the loss of processes, but not of a host.
    Local,
    /// A partner host has a copy of each part: survives the loss of any one host.
    Partner,
    /// Each part is in pieces on several hosts: survives the loss of as many hosts as it has parity pieces, together.
    Erasure(Code),
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

    /// Returns true if hosts have the only parts, whole or in pieces.
    #[must_use]
    pub fn is_on_hosts(self) -> bool {
        !matches!(self, Self::Shared | Self::Object)
    }

    /// Returns true if any host can fetch the parts that it lacks.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self == Self::Object || self.code().is_some()
    }

    /// Code of the pieces, if each part is in pieces on several hosts.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Erasure(code) => Some(code),
            _ => None,
        }
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
            Self::Erasure(code) => return write!(f, "erasure:{code}"),
            Self::Local => "local",
            Self::Partner => "partner",
            Self::Memory => "memory",
            Self::Object => "object",
            Self::Shared => "shared",
        })
    }
}
