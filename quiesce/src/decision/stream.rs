//! One process's knowledge of the outcomes of one stream.

use crate::outcome::{Decided, DecisionItem, Outcome, Place, Question};
use redrt_types::ReplicaIndex;
use std::collections::VecDeque;

/// The known outcomes of one stream, and the position of this process in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Stream {
    /// Outcomes that are known and were not asked for. Those of a thread are in order, sources of receives are by
    /// index.
    pub(super) waiting: VecDeque<DecisionItem>,
    /// Number of outcomes that were taken or decided. For wildcard receives, the number that were posted.
    pub(super) passed: u64,
    /// The first outcome from which on decisions of an earlier leader were void. None if no leader has retracted any.
    pub(super) retracted: Option<u64>,
    /// Chained digest of all wildcard receives that were posted.
    pub(super) chain: u64,
    /// The latest wildcard receives that got a source, by index, since their sources may be decided anew.
    received: VecDeque<(u64, Decided)>,
}

/// A new leader that decides a source anew does so soon after the loss of the one before, so few are kept.
const RECEIVED_MAX: usize = 16;

impl Stream {
    /// The decision on an outcome that was not asked for yet.
    #[inline]
    pub(super) fn known(&self, index: u64) -> Option<&DecisionItem> {
        let first = self.waiting.front()?;
        let next = match index < first.end() {
            true => first,
            false => self.waiting.iter().find(|item| index < item.end())?,
        };
        (next.key.index <= index).then_some(next)
    }

    /// Takes an outcome, and drops all before it. Of a run that goes on, the rest stays.
    pub(super) fn take(&mut self, index: u64) -> Option<Outcome> {
        while self.waiting.front().is_some_and(|item| item.end() <= index) {
            self.waiting.pop_front();
        }
        let item = self.waiting.front().filter(|item| item.key.index <= index)?;
        self.passed = index + 1;
        if item.end() > self.passed {
            return Some(item.outcome.clone());
        }
        self.waiting.pop_front().map(|item| item.outcome)
    }

    /// Number of known outcomes from this index on.
    pub(super) fn known_from(&self, index: u64) -> u64 {
        self.waiting.back().map_or(0, |last| last.end().saturating_sub(index))
    }

    /// Adds the source of a wildcard receive, in any order, since receives match in another order than they are posted
    /// in. It replaces an earlier source of the same leader.
    pub(super) fn insert_source(&mut self, item: DecisionItem) {
        self.waiting.retain(|other| (other.key.index, other.by) != (item.key.index, item.by));
        let place = self.waiting.partition_point(|other| other.key.index < item.key.index);
        self.waiting.insert(place, item);
    }

    /// The sources that leaders have decided for this index, the latest first.
    pub(super) fn sources(&self, index: u64) -> impl Iterator<Item = &DecisionItem> {
        let first = self.waiting.partition_point(|item| item.key.index < index);
        self.waiting.range(first..).take_while(move |item| item.key.index == index)
    }

    /// Records that a posted receive, with this question, has a source that the leader `by` decided.
    pub(super) fn receive(&mut self, index: u64, question: Question, by: ReplicaIndex) {
        if self.received.len() == RECEIVED_MAX {
            self.received.pop_front();
        }
        self.received.push_back((index, Decided { by, question }));
    }

    /// The receive that got the source with this index here. Only recent ones are kept.
    pub(super) fn received(&self, index: u64) -> Option<Decided> {
        self.received.iter().rev().find(|(of, _)| *of == index).map(|(_, decided)| *decided)
    }

    /// Drops all sources of one receive.
    pub(super) fn forget_source(&mut self, index: u64) {
        self.waiting.retain(|item| item.key.index != index);
    }

    /// Drops outcomes that have a place of their own behind `place`: readings of clocks, and sources of receives that
    /// the thread at `place` will not post.
    pub(super) fn forget_after(&mut self, place: Place) {
        self.waiting.retain(|item| {
            let asked_at = item.question.place;
            let is_placed = item.outcome.is_source() || item.question.call.is_reading();
            !is_placed || asked_at.thread != place.thread || asked_at.calls <= place.calls
        });
    }

    /// The first request that is served only when the program's thread has passed this place.
    pub(super) fn first_served_after(&self, place: Place) -> Option<&DecisionItem> {
        self.waiting.iter().find(|item| item.served_at().is_some_and(|at| place.is_before(&at)))
    }

    /// Voids all known outcomes from this index on.
    pub(super) fn retract(&mut self, index: u64) {
        self.retracted = Some(self.retracted.map_or(index, |first| first.min(index)));
        while self.waiting.back_mut().is_some_and(|item| !item.truncate(index)) {
            self.waiting.pop_back();
        }
    }
}
