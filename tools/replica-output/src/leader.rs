//! Standard output of a rank as its leader prints it, for `--stdout=leader`: shown at once, not compared.
//!
//! Output of the other replicas is counted, so that another can go on where the leader stopped. Their text may differ
//! (this mode is for such programs), so places are counted in lines and bytes of the last line, not in bytes of all.
//! Output beyond the leader's is kept.

use super::position::TextPosition;
use super::printed::Printed;
use super::restored::{Restored, Saved};
use redrt_types::ReplicaIndex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Debug, Serialize, Deserialize)]
struct Source {
    index: ReplicaIndex,
    /// Place at which its kept text begins.
    place: TextPosition,
    /// Output of the replica; `pending` is beyond the shown text.
    printed: Printed,
    is_lost: bool,
}

impl Source {
    fn new(index: ReplicaIndex) -> Self {
        Self { index, place: TextPosition::default(), printed: Printed::default(), is_lost: false }
    }

    /// Drops the text before a place.
    fn skip_to(&mut self, shown: &TextPosition) {
        while !self.printed.pending.is_empty() {
            let line_end = self.printed.pending.iter().position(|byte| *byte == b'\n');
            let count = if self.place.lines < shown.lines {
                line_end.map_or(self.printed.pending.len(), |end| end + 1)
            } else if self.place.lines == shown.lines && self.place.column < shown.column {
                let missing = (shown.column - self.place.column) as usize;
                missing.min(line_end.unwrap_or(self.printed.pending.len()))
            } else {
                return;
            };
            if count == 0 {
                return;
            }
            self.take(count);
        }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let bytes: Vec<_> = self.printed.pending.drain(..count).collect();
        self.place.pass(&bytes);
        bytes
    }
}

/// Stream of the leader: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaderStream {
    /// In order of leadership.
    sources: Vec<Source>,
    shown: TextPosition,
    shown_bytes: u64,
}

impl LeaderStream {
    pub fn new(replicas: impl IntoIterator<Item = ReplicaIndex>) -> Self {
        let sources = replicas.into_iter().map(Source::new).collect();
        Self { sources, shown: TextPosition::default(), shown_bytes: 0 }
    }

    /// See [`super::sphere_stream::SphereStream::go_back`].
    pub fn go_back(&mut self, replicas: &[Restored], out: &mut Vec<u8>) {
        let source = |restored: &Restored| Source {
            place: TextPosition::before(&restored.output),
            printed: Printed::restored(restored),
            ..Source::new(restored.index)
        };
        self.sources = replicas.iter().map(source).collect();
        if let Some(first) = self.sources.first() {
            self.shown = first.place.clone();
        }
        self.release(out);
    }

    pub fn shown_bytes(&self) -> u64 {
        self.shown_bytes
    }

    /// See [`super::sphere_stream::SphereStream::saved`].
    pub fn saved(&self, replica: ReplicaIndex) -> Option<Saved> {
        let source = self.sources.iter().find(|source| source.index == replica)?;
        let begun_bytes = self.shown.begun().len() as u64;
        // The text of another replica may differ, so bytes say nothing there.
        let begin_bytes = if source.place.units == self.shown.units { self.shown_bytes - begun_bytes } else { 0 };
        Some(Saved { text: source.printed.saved(&source.place), begin_bytes })
    }

    pub fn ahead_bytes(&self, replica: ReplicaIndex) -> usize {
        self.sources.iter().find(|source| source.index == replica).map_or(0, |source| source.printed.pending.len())
    }

    pub fn push(&mut self, replica: ReplicaIndex, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica && !source.is_lost) {
            source.printed.push(bytes);
            source.skip_to(&self.shown);
        }
        self.release(out);
    }

    /// The last source is kept: its output before its death is shown.
    pub fn lose(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        if self.sources.iter().all(|source| source.is_lost || source.index == replica) {
            return;
        }
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) {
            source.is_lost = true;
            source.printed.pending = VecDeque::new();
        }
        self.release(out);
    }

    pub fn join(&mut self, replica: ReplicaIndex, source: ReplicaIndex, offset: u64, out: &mut Vec<u8>) {
        let Some(from) = self.sources.iter().find(|other| other.index == source) else { return };
        let mut newcomer = Source::new(replica);
        newcomer.place = from.place.clone();
        newcomer.printed = from.printed.copied_at(offset);
        self.sources.retain(|other| other.index != replica);
        self.sources.push(newcomer);
        self.release(out);
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        let Some(leader) = self.sources.iter_mut().find(|source| !source.is_lost) else { return };
        leader.skip_to(&self.shown);
        let is_there = (leader.place.lines, leader.place.column) >= (self.shown.lines, self.shown.column);
        // The leader's line was shorter than the shown part of the line: only the line's end is left of it.
        let is_at_line_end = leader.place.lines == self.shown.lines && leader.printed.pending.front() == Some(&b'\n');
        if leader.printed.pending.is_empty() || !(is_there || is_at_line_end) {
            return;
        }
        let bytes = leader.take(leader.printed.pending.len());
        out.extend_from_slice(&bytes);
        self.shown.pass(&bytes);
        self.shown_bytes += bytes.len() as u64;
        for source in self.sources.iter_mut().filter(|source| !source.is_lost) {
            source.skip_to(&self.shown);
        }
    }
}

#[cfg(test)]
mod tests;
