//! How far the streams of this process have come: which outcome each asks for next.

use quiesce::{DecisionKey, StreamId};
use rustc_hash::FxHashMap;

/// The streams of this process.
#[derive(Default)]
pub(super) struct Streams {
    /// How many outcomes each has taken or decided.
    passed: FxHashMap<StreamId, u64>,
    /// How many all have together, and matches of wildcards.
    decisions: u64,
}

impl Streams {
    /// How many outcomes a stream has taken or decided.
    pub fn passed(&self, stream: StreamId) -> u64 {
        self.passed.get(&stream).copied().unwrap_or(0)
    }

    /// The next outcome of a stream.
    pub fn next(&self, stream: StreamId) -> DecisionKey {
        DecisionKey { stream, index: self.passed(stream) }
    }

    /// The next outcome of a stream is taken or decided.
    pub fn pass(&mut self, stream: StreamId) {
        *self.passed.entry(stream).or_insert(0) += 1;
        self.decisions += 1;
    }

    /// The source of a receive is decided. Its stream is that of a context, whose queues number the outcomes.
    pub fn note_match(&mut self) {
        self.decisions += 1;
    }

    /// How many outcomes were taken or decided.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_passes_its_own_outcomes_and_matches_count_with_them() {
        let (one, other) = (StreamId::Thread(1), StreamId::Thread(2));
        let mut streams = Streams::default();
        streams.pass(one);
        streams.pass(one);
        streams.note_match();
        assert_eq!([one, other].map(|stream| streams.next(stream).index), [2, 0]);
        assert_eq!(streams.decisions(), 3);
    }
}
