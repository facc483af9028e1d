//! Output of one replica: its length, and the part that is still to be compared or shown.

use super::position::TextPosition;
use super::restored::Restored;
use redrt_wire::checkpoint::SavedText;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Output of a replica: see the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Printed {
    /// Bytes that were neither compared nor shown yet.
    pub pending: VecDeque<u8>,
    /// Total bytes; for a copy including those that its source printed before the copy.
    pub bytes: u64,
    /// Coming bytes to skip: they were shown before they came, or nothing is left to compare them with.
    pub late_bytes: u64,
}

impl Printed {
    /// Output of a replica that continues from an image.
    pub fn restored(restored: &Restored) -> Self {
        let saved = &restored.output;
        let pending = saved.text.iter().copied().collect();
        Self { pending, bytes: restored.printed_bytes, late_bytes: saved.late_bytes }
    }

    /// Output of a replica that is not followed, and has printed `bytes`.
    pub fn of_newcomer(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Output of a copy made when this replica had printed `bytes`: the copy prints everything since again.
    pub fn copied_at(&self, bytes: u64) -> Self {
        let since = self.since(bytes);
        let kept = self.pending.len() as u64;
        let pending = self.pending.iter().copied().take(kept.saturating_sub(since) as usize).collect();
        Self { pending, bytes, late_bytes: self.late_bytes + since.saturating_sub(kept) }
    }

    /// True if a copy made when this replica had printed `bytes` begins within `pending`.
    pub fn reaches_back_to(&self, bytes: u64) -> bool {
        self.since(bytes) <= self.pending.len() as u64
    }

    fn since(&self, bytes: u64) -> u64 {
        self.bytes.saturating_sub(bytes)
    }

    /// Takes output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let late = self.late_bytes.min(bytes.len() as u64);
        self.late_bytes -= late;
        self.pending.extend(&bytes[late as usize..]);
    }

    /// Counts output of a replica that is not followed.
    pub fn pass(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }

    /// State for an image, compared up to `place`.
    pub fn saved(&self, place: &TextPosition) -> SavedText {
        SavedText { late_bytes: self.late_bytes, ..place.saved(self.pending.iter().copied()) }
    }
}
