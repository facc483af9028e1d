//! What an image needs of the output of a replica, and where that goes on when it is restored.

use redrt_types::ReplicaIndex;
use redrt_wire::line::SavedText;
use serde::{Deserialize, Serialize};

/// A replica that goes on from an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The replica.
    pub index: ReplicaIndex,
    /// Bytes that it had printed to standard output when its image was taken.
    pub printed_bytes: u64,
    /// Its standard output then.
    pub output: SavedText,
    /// Its standard error then.
    pub error: SavedText,
}

/// What an image needs of a text, before that is known to begin at a boundary of what was shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Saved {
    /// It.
    pub text: SavedText,
    /// Where `text.text` begins, in the bytes that were agreed on.
    pub begin_bytes: u64,
}
