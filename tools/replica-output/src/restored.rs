//! Output of a replica in an image, and its continuation after a restore.

use redrt_types::ReplicaIndex;
use redrt_wire::checkpoint::SavedText;
use serde::{Deserialize, Serialize};

/// A replica that continues from an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// Index of the replica.
    pub index: ReplicaIndex,
    /// Bytes of standard output that were printed at the image.
    pub printed_bytes: u64,
    /// Standard output at the image.
    pub output: SavedText,
    /// Standard error at the image.
    pub error: SavedText,
}

/// State of a text for an image, not yet aligned to a boundary of the shown text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Saved {
    pub text: SavedText,
    /// Offset of `text.text` in the agreed output.
    pub begin_bytes: u64,
}
