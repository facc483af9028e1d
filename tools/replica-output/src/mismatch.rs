//! Reports about outputs of replicas that differ.

use redrt_types::ReplicaIndex;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a reported line.
pub const EXCERPT_BYTES_MAX: usize = 256;

/// A difference between outputs of a rank's replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputMismatch {
    /// Line of the first differing byte, from 1.
    pub line: u64,
    /// Place of that byte within the line, from 1.
    pub column: u64,
    /// The outvoted replica. `None` without a majority.
    pub culprit: Option<ReplicaIndex>,
    /// The differing texts; the first is the shown one.
    pub sides: Vec<Side>,
    /// Replicas that are not compared any more: too many of their lines differed, or one of two has ended.
    pub given_up: Vec<ReplicaIndex>,
}

/// Text of some replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Replicas that agree on it.
    pub replicas: Vec<ReplicaIndex>,
    /// The line as far as it had arrived, without its end: at most [`EXCERPT_BYTES_MAX`] bytes around the difference.
    pub text: Vec<u8>,
    /// True if the output ends there.
    pub has_ended: bool,
}

/// Finding of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Finding {
    /// Replicas differ.
    Mismatch(OutputMismatch),
    /// A replica is so far behind that its next output cannot be compared any more.
    Uncompared {
        /// The replica that is behind.
        replica: ReplicaIndex,
    },
}
