//! Reasons why there is no copy of a process, or no image of it.

use crate::exit::Exit;
use redrt_types::ReplicaId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A failure that one process reports to another: a sentence for the user, and its consequence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{sentence}")]
pub struct ReportedFailure {
    /// Sentence for the user, in one line.
    pub sentence: String,
    /// True if another attempt with the same process would fail too.
    pub is_lasting: bool,
}

impl ReportedFailure {
    /// A failure after which another attempt may succeed.
    pub fn passing(what: impl fmt::Display) -> Self {
        Self { sentence: what.to_string(), is_lasting: false }
    }

    /// The same, attributed to `side`. Without control characters: it comes from another host, and may go to a
    /// terminal.
    #[must_use]
    pub fn heard_from(self, side: &str) -> Self {
        let sentence = self.sentence.replace(char::is_control, " ");
        Self { sentence: format!("{side} says: {sentence}"), ..self }
    }
}

/// The reason why there is no copy of a process, or no image of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum NoImage {
    /// The daemon has not got the launch yet.
    #[error("the daemon has no job yet")]
    NoJob,
    /// The world has no such replica.
    #[error("the job has no place {0}")]
    NoPlace(ReplicaId),
    /// The process is on another host.
    #[error("replica {0} is not on this host")]
    NotHere(ReplicaId),
    /// The process ended before it could be copied.
    #[error("replica {0} has ended")]
    SourceEnded(ReplicaId),
    /// The daemon cannot start a helper.
    #[error("cannot start a helper: {0}")]
    NoHelper(ReportedFailure),
    /// The helper ended without a result.
    #[error("the helper of redrtd that makes the image has ended: {0}")]
    HelperEnded(Exit),
    /// The process that was to become the copy, or was the copy, ended.
    #[error("the copy has ended: {0}")]
    CopyEnded(Exit),
    /// The host has too little memory for the copy.
    #[error("it needs about {}, and {} are free there", mebibytes(*.needed_bytes), mebibytes(*.free_bytes))]
    NotEnoughMemory {
        /// Memory that the copy needs, in bytes.
        needed_bytes: u64,
        /// Free memory on the host, in bytes.
        free_bytes: u64,
    },
    /// The helper has failed, with this reason.
    #[error("{0}")]
    Helper(ReportedFailure),
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl NoImage {
    /// Returns true if a copy failed, or ended, for want of memory.
    #[must_use]
    pub fn is_want_of_memory(&self) -> bool {
        matches!(self, Self::NotEnoughMemory { .. } | Self::CopyEnded(Exit::OutOfMemory))
    }

    /// Returns true if another attempt with the same process would fail too.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Helper(told) => told.is_lasting,
            Self::NoJob
            | Self::NoPlace(_)
            | Self::NotHere(_)
            | Self::SourceEnded(_)
            | Self::NoHelper(_)
            | Self::HelperEnded(_)
            | Self::CopyEnded(_)
            | Self::NotEnoughMemory { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_helpers_reason_is_lasting_and_its_text_is_harmless() {
        let told = ReportedFailure { sentence: "a\x1b[2Jb".into(), is_lasting: true }.heard_from("the source");
        assert_eq!(told.to_string(), "the source says: a [2Jb");
        assert!(NoImage::Helper(told.clone()).is_lasting());
        assert!(!NoImage::Helper(ReportedFailure::passing("it is full")).is_lasting());
        assert!(!NoImage::NoHelper(told).is_lasting());
        assert_eq!(NoImage::CopyEnded(Exit::Signal(9)).to_string(), "the copy has ended: signal 9 (SIGKILL)");
        let not_enough_memory = NoImage::NotEnoughMemory { needed_bytes: 90 << 20, free_bytes: (31 << 20) + 5 };
        assert_eq!(not_enough_memory.to_string(), "it needs about 90 MiB, and 31 MiB are free there");
        assert!(!not_enough_memory.is_lasting());
        assert_eq!(NoImage::HelperEnded(Exit::Status(3)).to_string().rsplit(": ").next(), Some("status 3"));
    }
}
