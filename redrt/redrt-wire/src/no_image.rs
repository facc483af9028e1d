//! Why there is no copy of a process, or no image of it.

use crate::exit::Exit;
use redrt_types::ReplicaId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a process tells another of an error of its own: the sentence for the user, and what the other must know of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{sentence}")]
pub struct Told {
    /// One line.
    pub sentence: String,
    /// Another attempt with the same process would fail too.
    pub is_lasting: bool,
}

impl Told {
    /// Another attempt may succeed.
    pub fn passing(what: impl fmt::Display) -> Self {
        Self { sentence: what.to_string(), is_lasting: false }
    }

    /// The same, as words of `side`. They come from another host, and may go to a terminal.
    #[must_use]
    pub fn heard_from(self, side: &str) -> Self {
        let sentence = self.sentence.replace(char::is_control, " ");
        Self { sentence: format!("{side} says: {sentence}"), ..self }
    }
}

/// Why there is no copy of a process, or no image of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum NoImage {
    /// The daemon was asked before it was told of the job.
    #[error("the daemon has no job yet")]
    NoJob,
    /// The world has no such replica.
    #[error("the job has no place {0}")]
    NoPlace(ReplicaId),
    /// It is on another host.
    #[error("replica {0} is not on this host")]
    NotHere(ReplicaId),
    /// It ended before it could be copied.
    #[error("replica {0} has ended")]
    SourceEnded(ReplicaId),
    /// The daemon cannot start a helper.
    #[error("cannot start a helper: {0}")]
    NoHelper(Told),
    /// The helper ended before it had said how it went.
    #[error("the helper of redrtd that makes the image has ended: {0}")]
    HelperEnded(Exit),
    /// The process that was to become the copy, or had become it, ended.
    #[error("the copy has ended: {0}")]
    CopyEnded(Exit),
    /// The host has too little memory for it.
    #[error("it needs about {}, and {} are free there", mebibytes(*.needed_bytes), mebibytes(*.free_bytes))]
    NoRoom {
        /// What the copy needs.
        needed_bytes: u64,
        /// What there is for it.
        free_bytes: u64,
    },
    /// The helper has failed, and says why.
    #[error("{0}")]
    Helper(Told),
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl NoImage {
    /// Whether a copy did not come to be, or did not stay, for want of memory.
    #[must_use]
    pub fn is_want_of_memory(&self) -> bool {
        matches!(self, Self::NoRoom { .. } | Self::CopyEnded(Exit::OutOfMemory))
    }

    /// Whether another attempt with the same process would fail too.
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
            | Self::NoRoom { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_helper_says_is_lasting_and_its_words_are_harmless() {
        let told = Told { sentence: "a\x1b[2Jb".into(), is_lasting: true }.heard_from("the source");
        assert_eq!(told.to_string(), "the source says: a [2Jb");
        assert!(NoImage::Helper(told.clone()).is_lasting());
        assert!(!NoImage::Helper(Told::passing("it is full")).is_lasting());
        assert!(!NoImage::NoHelper(told).is_lasting());
        assert_eq!(NoImage::CopyEnded(Exit::Signal(9)).to_string(), "the copy has ended: signal 9 (SIGKILL)");
        let no_room = NoImage::NoRoom { needed_bytes: 90 << 20, free_bytes: (31 << 20) + 5 };
        assert_eq!(no_room.to_string(), "it needs about 90 MiB, and 31 MiB are free there");
        assert!(!no_room.is_lasting());
        assert_eq!(NoImage::HelperEnded(Exit::Status(3)).to_string().rsplit(": ").next(), Some("status 3"));
    }
}
