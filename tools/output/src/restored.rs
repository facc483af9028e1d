//! Where the output of a replica goes on that was restored from an image.

use redrt_types::ReplicaIndex;
use serde::{Deserialize, Serialize};

/// A replica that goes on from an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The replica.
    pub index: ReplicaIndex,
    /// Bytes that it had printed when its image was taken.
    pub printed_bytes: u64,
    /// Those that may not have been shown then: what it had printed behind `shown_bytes`.
    pub unshown: Vec<u8>,
    /// Bytes that had been shown for sure when `unshown` was noted.
    pub shown_bytes: u64,
}

impl Restored {
    /// What it had printed that is not among the first `shown` bytes, and how many bytes it will print that are.
    pub(super) fn at(&self, shown: u64) -> (Vec<u8>, u64) {
        let behind = shown.saturating_sub(self.shown_bytes).min(self.unshown.len() as u64) as usize;
        (self.unshown[behind..].to_vec(), shown.saturating_sub(self.printed_bytes))
    }
}
