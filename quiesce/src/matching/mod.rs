//! MPI matching for one process and one communicator context: receives and messages in, pairs out.
//!
//! The same engine serves an unreplicated rank, the leader of a sphere and its followers. They differ in one thing
//! only: who chooses the source of an `MPI_ANY_SOURCE` receive ([`Order`]).
//!
//! ```text
//!            post(pattern)                    arrive(source, tag)
//!                 │                                   │
//!       oldest message it accepts           oldest receive that accepts it
//!        found │        │ none                found │        │ none
//!         Matched     posted queue             Matched     unexpected queue
//! ```
//!
//! Both sides prefer the oldest partner. So the pairs do not depend on how posts and arrivals interleave, as long as
//! every receive has a source: only the order of the receives, and of the messages of each source, matters. That is why
//! a follower that knows the sources of the wildcards ends with the pairs of its leader.
//!
//! The trap is a follower's wildcard whose decision is not known. Any message that it accepts might be its own. So such
//! a message may not go to a later receive, and a later receive that would prefer such a message may not take another
//! one. Both wait, and [`MatchQueues::apply_decision`] tries them again.
//!
//! Payloads, communicators, completion, and the agreement on decisions are elsewhere (`crate::replica`).

mod arena;
mod posted;
#[cfg(test)]
mod tests;
mod unexpected;

use posted::PostedQueue;
use redrt_types::Tag;
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};
use unexpected::UnexpectedQueue;

/// Depth up to which a queue is scanned. A longer one is also kept in bins.
const LINEAR_LIMIT: usize = 64;

/// The chooser of sources for `MPI_ANY_SOURCE` receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// This process chooses: a wildcard takes the oldest message it accepts. Used by the leader of a sphere, and by
    /// unreplicated ranks.
    Deciding,
    /// Another process chooses: a wildcard waits until [`MatchQueues::apply_decision`] names its source.
    Following,
}

/// The messages that a receive or probe accepts. `None` is the wildcard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// Rank of the sender in the communicator, or `None` for `MPI_ANY_SOURCE`.
    pub source: Option<u32>,
    /// Tag, or `None` for `MPI_ANY_TAG`.
    pub tag: Option<Tag>,
}

impl Pattern {
    /// Accepts this source and tag only.
    #[must_use]
    pub fn exact(source: u32, tag: Tag) -> Self {
        Self { source: Some(source), tag: Some(tag) }
    }

    /// Returns true if a message with this source and tag may go to a receive with this pattern.
    #[must_use]
    #[inline]
    pub fn accepts(self, source: u32, tag: Tag) -> bool {
        self.source.is_none_or(|named| named == source) && self.tag.is_none_or(|named| named == tag)
    }
}

/// The result of posting a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted<M> {
    /// The receive took a message that had already arrived.
    Matched(Taken<M>),
    /// The receive waits for a message.
    Queued,
}

/// A message that a receive or a matched probe took out of the unexpected queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken<M> {
    /// The engine's token for the message.
    pub message: M,
    /// Rank of its sender.
    pub source: u32,
    /// Tag of the message.
    pub tag: Tag,
    /// The index of the `MPI_ANY_SOURCE` receive whose source this match decided. `None` when the source was named, or
    /// had been decided before.
    pub decided: Option<u64>,
}

/// The result of a message's arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived<R> {
    /// A waiting receive took the message.
    Matched {
        /// The engine's token for the receive.
        receive: R,
        /// The index of a wildcard, as in [`Taken::decided`].
        decided: Option<u64>,
    },
    /// No receive took the message, which waits.
    Queued,
}

/// A pair found when something other than a post or an arrival unblocked it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match<R, M> {
    /// The engine's token for the receive.
    pub receive: R,
    /// The message it took.
    pub taken: Taken<M>,
}

/// The posted-receive queue and the unexpected queue of one context.
///
/// `R` and `M` are the engine's tokens for receives and messages. Posting and arriving cost the same at any depth.
/// Cancelling scans the posted receives.
#[derive(Clone, Debug)]
pub struct MatchQueues<R, M> {
    order: Order,
    posted: PostedQueue<R>,
    unexpected: UnexpectedQueue<M>,
    /// Number of `MPI_ANY_SOURCE` receives posted so far, which is the index of the next one.
    wildcard_count: u64,
    /// Sources of wildcards that are not posted yet.
    decided_early: FxHashMap<u64, u32>,
}

/// Equal queues hash equally, whatever their history.
impl<R: Copy + Eq + Hash, M: Copy + Eq + Hash> Hash for MatchQueues<R, M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order.hash(state);
        self.wildcard_count.hash(state);
        self.posted().for_each(|receive| receive.hash(state));
        self.unexpected().for_each(|message| message.hash(state));
        let mut early: Vec<_> = self.decided_early.iter().collect();
        early.sort_unstable();
        early.hash(state);
    }
}

impl<R: Copy + Eq, M: Copy + Eq> MatchQueues<R, M> {
    /// Creates queues without receives and messages.
    #[must_use]
    pub fn new(order: Order) -> Self {
        Self {
            order,
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
            wildcard_count: 0,
            decided_early: FxHashMap::default(),
        }
    }

    /// Returns true if nothing waits, so that the queues can be replaced by new ones. With `counts`, wildcards must not
    /// have been posted either, since other replicas know their numbers.
    #[must_use]
    pub fn is_idle(&self, counts: bool) -> bool {
        let is_empty = self.posted.len() == 0 && self.unexpected.len() == 0 && self.decided_early.is_empty();
        is_empty && (self.wildcard_count == 0 || !counts)
    }

    /// The chooser of sources for wildcards.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Number of receives that wait.
    #[must_use]
    pub fn posted_depth(&self) -> usize {
        self.posted.len()
    }

    /// Number of messages that wait.
    #[must_use]
    pub fn unexpected_depth(&self) -> usize {
        self.unexpected.len()
    }

    /// Number of `MPI_ANY_SOURCE` receives posted so far, which is the index of the next one.
    #[must_use]
    pub fn wildcard_count(&self) -> u64 {
        self.wildcard_count
    }

    /// The receives that wait, in the order they were posted, for a queue dump.
    pub fn posted(&self) -> impl Iterator<Item = (Pattern, R)> + '_ {
        let next = |key: &u32| self.posted.after(*key);
        std::iter::successors(self.posted.oldest(), next).map(|key| {
            let receive = self.posted.get(key);
            (receive.pattern, receive.token)
        })
    }

    /// The messages that wait, in the order they arrived, for a queue dump.
    pub fn unexpected(&self) -> impl Iterator<Item = (u32, Tag, M)> + '_ {
        let next = |key: &u32| self.unexpected.after(*key);
        std::iter::successors(self.unexpected.oldest(), next).map(|key| {
            let waiting = self.unexpected.get(key);
            (waiting.source, waiting.tag, waiting.message)
        })
    }

    /// Posts a receive. An `MPI_ANY_SOURCE` receive gets the next wildcard index, even if it matches at once.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Posted<M> {
        let mut pattern = pattern;
        let mut undecided = None;
        if pattern.source.is_none() {
            let index = self.wildcard_count;
            self.wildcard_count += 1;
            if !self.decided_early.is_empty() {
                pattern.source = self.decided_early.remove(&index);
            }
            undecided = pattern.source.is_none().then_some(index);
        }
        // MPI-5.0 §3.5: of the messages that match a receive, the one sent first is received.
        match self.available(pattern) {
            Some(key) => Posted::Matched(self.remove_message(key, undecided)),
            None => {
                self.posted.push(pattern, receive, undecided);
                Posted::Queued
            }
        }
    }

    /// Takes a message that has arrived. Messages of one source must arrive in the order they were sent.
    #[inline]
    pub fn arrive(&mut self, source: u32, tag: Tag, message: M) -> Arrived<R> {
        // MPI-5.0 §3.5: of the receives that match a message, the one posted first takes it.
        if let Some(key) = self.posted.first(source, tag)
            && self.may_take_newest(key)
        {
            let receive = self.posted.remove(key);
            return Arrived::Matched { receive: receive.token, decided: receive.undecided };
        }
        self.unexpected.push(source, tag, message);
        Arrived::Queued
    }

    /// Changes the envelope of a message that waits. The message keeps its place in the queue. Pairs that this makes
    /// possible are appended to `matched`. Nothing happens if the message waits no more, since a match cannot be
    /// undone.
    pub fn refile(&mut self, message: M, source: u32, tag: Tag, matched: &mut Vec<Match<R, M>>) {
        if self.unexpected.refile(message, source, tag) {
            self.match_again_from(0, matched);
        }
    }

    /// The index of a wildcard receive that waits and has no source.
    pub fn undecided_index(&self, receive: R) -> Option<u64> {
        self.posted.get(self.posted.find(receive)?).undecided
    }

    /// Takes a receive back. Returns `false` when it is not waiting. In a follower this can free messages that an
    /// undecided wildcard held: the pairs are appended to `matched`.
    pub fn cancel(&mut self, receive: R, matched: &mut Vec<Match<R, M>>) -> bool {
        let Some(key) = self.posted.find(receive) else { return false };
        let place = self.posted.place(key);
        self.posted.remove(key);
        self.match_again_from(place, matched);
        true
    }

    /// Keeps a receive that waits from taking a message, until replicas agree if it is cancelled. Returns `false` when
    /// it is not waiting. Messages that it accepts are held, as for an undecided wildcard.
    pub fn freeze(&mut self, receive: R) -> bool {
        let Some(key) = self.posted.find(receive) else { return false };
        self.posted.set_frozen(key, true);
        true
    }

    /// Lets a frozen receive take messages again. Pairs that this makes possible are appended to `matched`.
    pub fn thaw(&mut self, receive: R, matched: &mut Vec<Match<R, M>>) {
        if let Some(key) = self.posted.find(receive) {
            self.posted.set_frozen(key, false);
            self.match_again_from(self.posted.place(key), matched);
        }
    }

    /// The message that a receive with this pattern would take if it were posted now.
    #[must_use]
    pub fn probe(&self, pattern: Pattern) -> Option<(u32, Tag, M)> {
        let waiting = self.unexpected.get(self.available(pattern)?);
        Some((waiting.source, waiting.tag, waiting.message))
    }

    /// Takes the message that [`probe`](Self::probe) would find (`MPI_Mprobe`). It uses no wildcard index, because the
    /// result of a matched probe is a decision of the thread that calls it.
    pub fn take(&mut self, pattern: Pattern) -> Option<Taken<M>> {
        let key = self.available(pattern)?;
        Some(self.remove_message(key, None))
    }

    /// Names the source of the wildcard receive with this index, which keeps its place among the posted receives.
    /// Decisions come in any order, also before their receive is posted. They are applied under either [`Order`], since
    /// a new leader is bound by its predecessor's decisions. Pairs that this makes possible are appended to `matched`.
    pub fn apply_decision(&mut self, index: u64, source: u32, matched: &mut Vec<Match<R, M>>) {
        if index >= self.wildcard_count {
            self.decided_early.insert(index, source);
        } else if let Some(key) = self.posted.decide(index, source) {
            self.match_named_from(self.posted.place(key), matched);
        }
    }

    /// Changes the chooser. When this process becomes the leader, wildcards without a decision take the oldest messages
    /// they accept: those pairs are appended to `matched` and have [`Taken::decided`] set.
    pub fn set_order(&mut self, order: Order, matched: &mut Vec<Match<R, M>>) {
        self.order = order;
        if order == Order::Deciding {
            self.match_all(matched);
        }
    }

    /// Matches again all messages that a receive posted at this place may have held.
    fn match_again_from(&mut self, place: u64, matched: &mut Vec<Match<R, M>>) {
        match self.order {
            Order::Deciding => self.match_all(matched),
            Order::Following => self.match_named_from(place, matched),
        }
    }

    /// Gives the waiting messages, in order of arrival, to the oldest receives that accept them.
    fn match_all(&mut self, matched: &mut Vec<Match<R, M>>) {
        let mut next = self.unexpected.oldest();
        while let Some(message) = next {
            next = self.unexpected.after(message);
            let waiting = self.unexpected.get(message);
            if let Some(key) = self.posted.first(waiting.source, waiting.tag)
                && !self.posted.get(key).frozen
                && (!self.is_holding() || self.unexpected.first(self.posted.get(key).pattern) == Some(message))
            {
                let receive = self.posted.remove(key);
                matched.push(Match { receive: receive.token, taken: self.remove_message(message, receive.undecided) });
            }
        }
    }

    /// The oldest message that the pattern accepts, unless it may belong to a receive that is already posted.
    #[inline(always)]
    fn available(&self, pattern: Pattern) -> Option<u32> {
        if self.order == Order::Following && pattern.source.is_none() {
            return None;
        }
        let key = self.unexpected.first(pattern)?;
        if self.is_holding() {
            let waiting = self.unexpected.get(key);
            if self.posted.first(waiting.source, waiting.tag).is_some() {
                return None;
            }
        }
        Some(key)
    }

    /// Returns true if a receive may take a message that has just arrived. It may not if it waits for a decision, or if
    /// it would prefer an older message that is held.
    #[inline]
    fn may_take_newest(&self, key: u32) -> bool {
        if !self.is_holding() {
            return true;
        }
        let receive = self.posted.get(key);
        let waits = receive.frozen || (self.order == Order::Following && receive.undecided.is_some());
        !waits && self.unexpected.first(receive.pattern).is_none()
    }

    /// Returns true if some message may be held for an undecided wildcard or a frozen receive.
    #[inline]
    fn is_holding(&self) -> bool {
        (self.order == Order::Following && self.posted.undecided_count() > 0) || self.posted.frozen_count() > 0
    }

    /// Matches the named receives from a place in the posted queue on. One pass is enough, since a new pair concerns
    /// only messages that later receives prefer less.
    fn match_named_from(&mut self, place: u64, matched: &mut Vec<Match<R, M>>) {
        if self.unexpected.len() == 0 {
            return;
        }
        let mut next = self.posted.named_from(place);
        while let Some(key) = next {
            next = self.posted.after_named(key);
            if let Some(message) = self.unexpected.first(self.posted.get(key).pattern) {
                let waiting = self.unexpected.get(message);
                if self.posted.first(waiting.source, waiting.tag) == Some(key) && !self.posted.get(key).frozen {
                    let receive = self.posted.remove(key);
                    matched.push(Match { receive: receive.token, taken: self.remove_message(message, None) });
                }
            }
        }
    }

    fn remove_message(&mut self, key: u32, decided: Option<u64>) -> Taken<M> {
        let waiting = self.unexpected.remove(key);
        Taken { message: waiting.message, source: waiting.source, tag: waiting.tag, decided }
    }
}
