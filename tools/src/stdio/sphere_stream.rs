//! The standard output of one virtual rank, made from the outputs of its replicas.
//!
//! Enters: what each replica prints, as it arrives; which replica was lost; which one ended. Leaves: the bytes to show,
//! each once, and at most one [`Divergence`] per replica.
//!
//! A byte is released when every replica that still counts has produced it and all agree. Where they differ, three or
//! more vote and the outvoted replica no longer counts. Without a majority the difference is reported once, and from
//! there on only the leader (the first in the order given to [`SphereStream::new`] that is not lost) is shown.
//!
//! The trap: the end of a replica's output means two things. When it was lost, its siblings owe what it had not yet
//! printed, and what it had printed beyond them they will print too. When it ended well, having printed less than the
//! others is a difference like any other. Hence `lose` and `end` are separate and the caller must know which it is.

use redrt_types::ReplicaIndex;
use std::collections::VecDeque;

/// Output of replicas of one rank that is not the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Position of the first byte that differs.
    pub offset: u64,
    /// The replicas that were outvoted; empty when there was no majority.
    pub outvoted: Vec<ReplicaIndex>,
}

#[derive(Debug)]
struct Source {
    index: ReplicaIndex,
    /// Bytes from the released position on.
    pending: VecDeque<u8>,
    /// So many bytes are still to come that were released before it came.
    late_bytes: u64,
    ended: bool,
    state: SourceState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SourceState {
    Counting,
    /// Outvoted or, without a majority, not the leader: followed no more unless nothing else is left.
    Ignored,
    Lost,
}

/// The stream of one sphere.
#[derive(Debug)]
pub struct SphereStream {
    sources: Vec<Source>,
    released_bytes: u64,
    divergences: Vec<Divergence>,
}

impl SphereStream {
    /// A sphere of these replicas, in order of leadership.
    pub fn new(replicas: impl IntoIterator<Item = ReplicaIndex>) -> Self {
        let source = |index| Source {
            index,
            pending: VecDeque::new(),
            late_bytes: 0,
            ended: false,
            state: SourceState::Counting,
        };
        Self { sources: replicas.into_iter().map(source).collect(), released_bytes: 0, divergences: Vec::new() }
    }

    /// How far `replica` is ahead of what could be released, in bytes.
    #[must_use]
    pub fn ahead_bytes(&self, replica: ReplicaIndex) -> usize {
        self.sources.iter().find(|source| source.index == replica).map_or(0, |source| source.pending.len())
    }

    /// A replica printed `bytes`. What may be shown is appended to `out`.
    pub fn push(&mut self, replica: ReplicaIndex, bytes: &[u8], out: &mut Vec<u8>) {
        let alone = self.counting().count() == 1;
        let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) else { return };
        if source.state != SourceState::Counting {
            return;
        }
        let late = source.late_bytes.min(bytes.len() as u64);
        source.late_bytes -= late;
        let bytes = &bytes[late as usize..];
        if alone && source.pending.is_empty() {
            self.released_bytes += bytes.len() as u64;
            out.extend_from_slice(bytes);
            return;
        }
        source.pending.extend(bytes);
        self.release(out);
    }

    /// A replica was lost: it is waited for no more. The last one that counts is kept, so that what it printed before
    /// its death is shown.
    pub fn lose(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        if self.counting().all(|source| source.index == replica) && !self.revive_ignored(replica) {
            return;
        }
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) {
            source.state = SourceState::Lost;
            source.pending = VecDeque::new();
        }
        self.release(out);
    }

    /// A copy of `source` prints from now on. It was made when its source had printed `offset` bytes; what of them was not
    /// released yet counts as printed by both.
    pub fn join(&mut self, replica: ReplicaIndex, source: ReplicaIndex, offset: u64, out: &mut Vec<u8>) {
        let released_bytes = self.released_bytes;
        let shared = offset.saturating_sub(released_bytes) as usize;
        let from = self.sources.iter().find(|other| other.index == source && other.state == SourceState::Counting);
        let prefix = from.map(|from| from.pending.iter().copied().take(shared).collect());
        if let Some(newcomer) = self.sources.iter_mut().find(|other| other.index == replica) {
            // A copy of one that is followed no more is followed as little.
            newcomer.state = if prefix.is_some() { SourceState::Counting } else { SourceState::Ignored };
            newcomer.pending = prefix.unwrap_or_default();
            newcomer.late_bytes = released_bytes.saturating_sub(offset);
            newcomer.ended = false;
        }
        self.release(out);
    }

    /// A replica will print no more, and was not lost.
    pub fn end(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) {
            source.ended = true;
        }
        self.release(out);
    }

    /// The next difference found and not yet told.
    pub fn poll_divergence(&mut self) -> Option<Divergence> {
        (!self.divergences.is_empty()).then(|| self.divergences.remove(0))
    }

    fn counting(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.state == SourceState::Counting)
    }

    /// When the only counting source is about to be lost, one that was ignored is better than none. Its position is its
    /// own: it goes on with what it prints from now on.
    fn revive_ignored(&mut self, lost: ReplicaIndex) -> bool {
        let heir = self.sources.iter_mut().find(|source| source.state == SourceState::Ignored && source.index != lost);
        heir.map(|source| source.state = SourceState::Counting).is_some()
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        loop {
            let common_bytes = self.counting().map(|source| source.pending.len()).min().unwrap_or(0);
            let agreed_bytes = self.agreed_prefix(common_bytes);
            self.pass(agreed_bytes, out);
            if agreed_bytes < common_bytes || self.someone_stopped_short() {
                self.settle_difference();
            } else {
                return;
            }
        }
    }

    /// Length of the prefix, up to `limit`, in which all counting sources are the same.
    fn agreed_prefix(&mut self, limit: usize) -> usize {
        let mut counting = self.sources.iter_mut().filter(|source| source.state == SourceState::Counting);
        let Some(first) = counting.next() else { return 0 };
        let first = &first.pending.make_contiguous()[..limit];
        counting.fold(limit, |agreed, source| {
            let other = &source.pending.make_contiguous()[..agreed];
            if *other == first[..agreed] {
                return agreed;
            }
            first.iter().zip(other).position(|(left, right)| left != right).unwrap_or(agreed)
        })
    }

    /// Shows `count` bytes of the leader and drops them everywhere.
    fn pass(&mut self, count: usize, out: &mut Vec<u8>) {
        let mut shown = false;
        for source in self.sources.iter_mut().filter(|source| source.state == SourceState::Counting) {
            let bytes = source.pending.drain(..count);
            if !shown {
                out.extend(bytes);
                shown = true;
            }
        }
        self.released_bytes += count as u64;
    }

    /// Whether a source has ended here while another goes on: all that can be compared has been.
    fn someone_stopped_short(&self) -> bool {
        let stopped = self.counting().any(|source| source.ended && source.pending.is_empty());
        stopped
            && self.counting().all(|source| source.ended || !source.pending.is_empty())
            && self.counting().any(|source| !source.pending.is_empty())
    }

    /// Votes on the next byte, an end counting as a byte of its own, and stops counting who loses the vote.
    fn settle_difference(&mut self) {
        let next = |source: &Source| source.pending.front().copied();
        let voters: Vec<_> = self.counting().map(|source| (source.index, next(source))).collect();
        let votes_for = |byte| voters.iter().filter(|(_, other)| *other == byte).count();
        let majority = voters.iter().map(|(_, byte)| *byte).find(|byte| votes_for(*byte) * 2 > voters.len());
        let leader = voters[0].0;
        let keeps = |source: &Source| match majority {
            Some(byte) => next(source) == byte,
            None => source.index == leader,
        };
        let mut outvoted = Vec::new();
        for source in self.sources.iter_mut().filter(|source| source.state == SourceState::Counting) {
            if !keeps(source) {
                source.state = SourceState::Ignored;
                source.pending = VecDeque::new();
                outvoted.push(source.index);
            }
        }
        if majority.is_none() {
            outvoted.clear();
        }
        self.divergences.push(Divergence { offset: self.released_bytes, outvoted });
    }
}

#[cfg(test)]
mod tests;
