//! What one replica has printed: how much, and what of it is still to be compared or shown.

use super::position::TextPosition;
use super::restored::Restored;
use redrt_wire::line::SavedText;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Printed {
    /// What was neither compared nor shown yet.
    pub pending: VecDeque<u8>,
    /// Bytes in all; of a copy, what its source had printed before it was copied among them.
    pub bytes: u64,
    /// Bytes still to come that are passed over: they were shown before they came, or nothing is left to compare with.
    pub late_bytes: u64,
}

impl Printed {
    /// Of a replica that goes on from an image.
    pub fn restored(restored: &Restored) -> Self {
        let saved = &restored.output;
        let pending = saved.text.iter().copied().collect();
        Self { pending, bytes: restored.printed_bytes, late_bytes: saved.late_bytes }
    }

    /// Of a replica from which nothing is waited for, and which had printed this much.
    pub fn of_newcomer(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Of a copy that was made when this replica had printed `bytes`: what it has printed since comes from the copy
    /// again.
    pub fn copied_at(&self, bytes: u64) -> Self {
        let since = self.since(bytes);
        let kept = self.pending.len() as u64;
        let pending = self.pending.iter().copied().take(kept.saturating_sub(since) as usize).collect();
        Self { pending, bytes, late_bytes: self.late_bytes + since.saturating_sub(kept) }
    }

    /// Whether a copy that was made when this replica had printed `bytes` begins within what is pending.
    pub fn reaches_back_to(&self, bytes: u64) -> bool {
        self.since(bytes) <= self.pending.len() as u64
    }

    fn since(&self, bytes: u64) -> u64 {
        self.bytes.saturating_sub(bytes)
    }

    /// It prints this.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let late = self.late_bytes.min(bytes.len() as u64);
        self.late_bytes -= late;
        self.pending.extend(&bytes[late as usize..]);
    }

    /// The same, where it is not followed.
    pub fn pass(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }

    /// What an image of it needs, when it was compared up to `place`.
    pub fn saved(&self, place: &TextPosition) -> SavedText {
        SavedText { late_bytes: self.late_bytes, ..place.saved(self.pending.iter().copied()) }
    }
}
