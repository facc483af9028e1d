//! Flow control between a leader and its followers: which threads of a follower have not asked for many outcomes that
//! the leader has decided.
//!
//! A leader that polls decides again and again that nothing is ready, and each follower goes through all of that call
//! by call. The trap: the event for which the leader polls may depend on what a follower does after those calls. A
//! leader that polls as fast as its followers would keep them equally far behind for ever. So a follower reports when a
//! thread of its own is far behind, and when it has caught up. Meanwhile that thread of the leader makes no decision
//! that it can put off.

use crate::hashable_map::HashableMap;
use crate::outcome::StreamId;
use redrt_types::{ReplicaIndex, ReplicaSet};

/// A thread is behind when more known outcomes than this wait for it …
const BEHIND: u64 = 256;
/// … until no more than this wait for it.
const CAUGHT_UP: u64 = 64;

/// Maximum number of threads of one sibling that count as behind.
const STREAMS_MAX: usize = 1 << 12;

/// The threads that are behind: those of this process, and those that siblings have reported.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Lag {
    own: Vec<StreamId>,
    /// Streams that this process asks no more. Further decisions on them cannot put it behind.
    ended: HashableMap<StreamId, ()>,
    siblings: Vec<(ReplicaIndex, StreamId)>,
}

impl Lag {
    /// The streams to report to the leader.
    pub(crate) fn own(&self) -> &[StreamId] {
        &self.own
    }

    /// A sibling that is behind on this stream, so that this process should wait for it.
    pub(crate) fn sibling_behind(&self, stream: StreamId) -> Option<ReplicaIndex> {
        self.siblings.iter().find(|(_, behind)| *behind == stream).map(|(sibling, _)| *sibling)
    }

    /// Stops waiting for that sibling on this stream, until it reports again that it is behind.
    pub(crate) fn go_ahead(&mut self, sibling: ReplicaIndex, stream: StreamId) {
        self.siblings.retain(|behind| *behind != (sibling, stream));
    }

    /// Notes that `waiting` outcomes of a stream are known and not asked for. Returns true if the leader must be told.
    pub(crate) fn learned(&mut self, stream: StreamId, waiting: u64) -> bool {
        let is_news = waiting > BEHIND && !self.own.contains(&stream) && !self.ended.contains_key(&stream);
        if is_news {
            self.own.push(stream);
        }
        is_news
    }

    /// Notes that an outcome was asked for and `waiting` are left. Returns true if the leader must be told.
    pub(crate) fn asked(&mut self, stream: StreamId, waiting: u64) -> bool {
        self.is_behind() && waiting <= CAUGHT_UP && self.catch_up(stream)
    }

    /// Returns true if this process is behind on any stream.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.own.is_empty()
    }

    /// Notes that this process has caught up on a stream. Returns true if it was behind.
    fn catch_up(&mut self, stream: StreamId) -> bool {
        let before = self.own.len();
        self.own.retain(|behind| *behind != stream);
        self.own.len() < before
    }

    /// Notes that this process asks a stream no more. Returns true if the leader must be told.
    pub(crate) fn end(&mut self, stream: StreamId) -> bool {
        self.ended.insert(stream, ());
        self.catch_up(stream)
    }

    /// Records a sibling's complete list of streams on which it is behind.
    pub(crate) fn handle(&mut self, sibling: ReplicaIndex, streams: Vec<StreamId>) {
        self.forget(sibling);
        self.siblings.extend(streams.into_iter().take(STREAMS_MAX).map(|stream| (sibling, stream)));
    }

    /// Drops a sibling's report, because its connection was lost. It will report anew.
    pub(crate) fn forget(&mut self, sibling: ReplicaIndex) {
        self.siblings.retain(|(other, _)| *other != sibling);
    }

    /// Drops the reports of lost siblings.
    pub(crate) fn keep(&mut self, live: ReplicaSet) {
        self.siblings.retain(|(sibling, _)| live.contains(*sibling));
    }
}
