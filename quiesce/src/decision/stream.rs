//! What one process knows of the outcomes of one stream.

use crate::outcome::{Decided, DecisionItem, Outcome, Place, Question};
use redrt_types::ReplicaIndex;
use std::collections::VecDeque;

/// One stream, as far as it has come here.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Stream {
    /// Outcomes known but not asked for yet: those of a thread in their order, sources of receives by index.
    pub(super) waiting: VecDeque<DecisionItem>,
    /// How many outcomes were taken or decided; of wildcard receives, how many are posted.
    pub(super) passed: u64,
    /// The first outcome from which on what an earlier leader had decided was void.
    pub(super) retracted: Option<u64>,
    /// A digest of all wildcard receives that were posted.
    pub(super) chain: u64,
    /// The last wildcard receives that got a source, with their indices: their sources may be decided anew.
    received: VecDeque<(u64, Decided)>,
}

/// A leader that decides anew does so soon after the one before it was lost.
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

    /// The same outcome, which is known no more, and nothing before it. Of a run that goes on the rest stays.
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

    /// How many outcomes from this one on are known.
    pub(super) fn known_from(&self, index: u64) -> u64 {
        self.waiting.back().map_or(0, |last| last.end().saturating_sub(index))
    }

    /// The source of a wildcard receive: receives match in another order than they are posted in. What the same leader
    /// has said of it before does not hold any more.
    pub(super) fn insert_source(&mut self, item: DecisionItem) {
        self.waiting.retain(|other| (other.key.index, other.by) != (item.key.index, item.by));
        let place = self.waiting.partition_point(|other| other.key.index < item.key.index);
        self.waiting.insert(place, item);
    }

    /// What leaders have decided of the source with this index, the latest first.
    pub(super) fn sources(&self, index: u64) -> impl Iterator<Item = &DecisionItem> {
        let first = self.waiting.partition_point(|item| item.key.index < index);
        self.waiting.range(first..).take_while(move |item| item.key.index == index)
    }

    /// A receive that was posted has a source, which this leader has decided. `question`: the receive.
    pub(super) fn receive(&mut self, index: u64, question: Question, by: ReplicaIndex) {
        if self.received.len() == RECEIVED_MAX {
            self.received.pop_front();
        }
        self.received.push_back((index, Decided { by, question }));
    }

    /// The receive that got the source with this index here, if that was not long ago.
    pub(super) fn received(&self, index: u64) -> Option<Decided> {
        self.received.iter().rev().find(|(of, _)| *of == index).map(|(_, decided)| *decided)
    }

    /// What was decided of the source of one receive is not needed any more.
    pub(super) fn forget_source(&mut self, index: u64) {
        self.waiting.retain(|item| item.key.index != index);
    }

    /// What has a place of its own, and not in a row: sources of receives that the thread at this place has not posted,
    /// and will not, and its readings of clocks.
    pub(super) fn forget_after(&mut self, place: Place) {
        self.waiting.retain(|item| {
            let asked_at = item.question.place;
            let is_placed = item.outcome.is_source() || item.question.call.is_reading();
            !is_placed || asked_at.thread != place.thread || asked_at.calls <= place.calls
        });
    }

    /// The first request that is to be served when the thread of the program is behind this place.
    pub(super) fn first_served_after(&self, place: Place) -> Option<&DecisionItem> {
        self.waiting.iter().find(|item| item.served_at().is_some_and(|at| place.is_before(&at)))
    }

    /// What is known from this outcome on is void.
    pub(super) fn retract(&mut self, index: u64) {
        self.retracted = Some(self.retracted.map_or(index, |first| first.min(index)));
        while self.waiting.back_mut().is_some_and(|item| !item.truncate(index)) {
            self.waiting.pop_back();
        }
    }
}
