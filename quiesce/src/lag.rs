//! Followers that have yet to ask for many outcomes that their leader has decided, and which threads of theirs.
//!
//! A leader that polls decides again and again that nothing is ready, and each follower goes through all of that call
//! by call. The trap: what the leader polls for may depend on what a follower does after those calls. A leader that
//! polls as fast as its followers would keep them as far behind as they are, for ever. So a follower says when a thread
//! of its own is far behind, and when it has caught up; meanwhile that thread of the leader finds out nothing that is
//! not so yet.

use crate::hashable_map::HashableMap;
use crate::outcome::StreamId;
use redrt_types::{ReplicaIndex, ReplicaSet};

/// A thread that has yet to ask for more outcomes than this is behind …
const BEHIND: u64 = 256;
/// … until it has yet to ask for no more than this.
const CAUGHT_UP: u64 = 64;

/// Threads of one sibling that are believed to be behind, at most.
const STREAMS_MAX: usize = 1 << 12;

/// Who is behind, as far as one replica knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Lag {
    own: Vec<StreamId>,
    /// Streams that this process asks no more. What is decided of them from now on puts nobody behind.
    ended: HashableMap<StreamId, ()>,
    siblings: Vec<(ReplicaIndex, StreamId)>,
}

impl Lag {
    /// What this process tells its leader.
    pub(crate) fn own(&self) -> &[StreamId] {
        &self.own
    }

    /// A sibling that is behind on this stream, and for which this process waits.
    pub(crate) fn sibling_behind(&self, stream: StreamId) -> Option<ReplicaIndex> {
        self.siblings.iter().find(|(_, behind)| *behind == stream).map(|(sibling, _)| *sibling)
    }

    /// This process does not wait for that sibling on this stream, until it says again that it is behind.
    pub(crate) fn go_ahead(&mut self, sibling: ReplicaIndex, stream: StreamId) {
        self.siblings.retain(|behind| *behind != (sibling, stream));
    }

    /// `count` outcomes of a stream are known and not asked for. Whether that is news for the leader.
    pub(crate) fn learned(&mut self, stream: StreamId, waiting: u64) -> bool {
        let is_news = waiting > BEHIND && !self.own.contains(&stream) && !self.ended.contains_key(&stream);
        if is_news {
            self.own.push(stream);
        }
        is_news
    }

    /// One was asked for, and `waiting` outcomes are left. Whether that is news for the leader.
    pub(crate) fn asked(&mut self, stream: StreamId, waiting: u64) -> bool {
        self.is_behind() && waiting <= CAUGHT_UP && self.catch_up(stream)
    }

    /// Whether this process is behind on any stream.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.own.is_empty()
    }

    /// This process is not behind on a stream any more. Whether it was.
    fn catch_up(&mut self, stream: StreamId) -> bool {
        let before = self.own.len();
        self.own.retain(|behind| *behind != stream);
        self.own.len() < before
    }

    /// This process asks for no more outcomes of a stream. Whether that is news for the leader.
    pub(crate) fn end(&mut self, stream: StreamId) -> bool {
        self.ended.insert(stream, ());
        self.catch_up(stream)
    }

    /// A sibling says on which streams it is behind.
    pub(crate) fn hear(&mut self, sibling: ReplicaIndex, streams: Vec<StreamId>) {
        self.forget(sibling);
        self.siblings.extend(streams.into_iter().take(STREAMS_MAX).map(|stream| (sibling, stream)));
    }

    /// What a sibling has said does not hold any more: its connection was lost, and it says again what does.
    pub(crate) fn forget(&mut self, sibling: ReplicaIndex) {
        self.siblings.retain(|(other, _)| *other != sibling);
    }

    /// Nobody waits for those that are lost.
    pub(crate) fn keep(&mut self, live: ReplicaSet) {
        self.siblings.retain(|(sibling, _)| live.contains(*sibling));
    }
}
