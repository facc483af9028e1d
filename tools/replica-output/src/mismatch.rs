//! What is said of outputs of replicas that are not the same.

use redrt_types::ReplicaIndex;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes told of a line.
pub const EXCERPT_BYTES_MAX: usize = 256;

/// Output of replicas of one rank that is not the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputMismatch {
    /// The line in which the first byte differs, from 1.
    pub line: u64,
    /// That byte's number within the line, from 1.
    pub column: u64,
    /// The replica that was outvoted; none when there was no majority.
    pub culprit: Option<ReplicaIndex>,
    /// What was printed, first the side that is shown.
    pub sides: Vec<Side>,
    /// Replicas whose output is compared no more, because too many of their lines differed, or one of two has ended.
    pub given_up: Vec<ReplicaIndex>,
}

/// What some replicas have printed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    /// The replicas.
    pub replicas: Vec<ReplicaIndex>,
    /// The line, as far as it had arrived, without its end. At most [`EXCERPT_BYTES_MAX`] around the byte that differs.
    pub text: Vec<u8>,
    /// Its output ends there.
    pub has_ended: bool,
}

/// Something that a stream found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Finding {
    /// Replicas differ.
    Mismatch(OutputMismatch),
    /// A replica is so far behind that what it prints next cannot be compared any more.
    Uncompared {
        /// The replica.
        replica: ReplicaIndex,
    },
}
