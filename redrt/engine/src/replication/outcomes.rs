//! Outcomes that depend on timing: what a thread asks of the leader of its sphere, and what the leader says.

use super::super::Engine;
use super::Replication;
use crate::asked::{Ahead, Asked};
use quiesce::{DecisionKey, Lookup, Outcome, StreamId};
use redrt_wire::control::FromAgent;
use tracing::trace;

/// How many empty polls a follower takes over in a row without making progress.
const AHEAD_COUNT: u32 = 64;

impl Replication {
    /// Whether this process decides what its sphere does.
    pub(crate) fn is_deciding(&self) -> bool {
        self.replica.is_deciding()
    }

    /// Whether a decision that can be put off should be; see `quiesce::Replica::is_far_ahead`.
    pub(crate) fn is_far_ahead(&self, stream: StreamId) -> bool {
        self.replica.is_far_ahead(stream)
    }

    /// How many outcomes a stream has taken or decided.
    pub(crate) fn passed(&self, stream: StreamId) -> u64 {
        self.streams.passed(stream)
    }

    /// The next outcome of a stream, if it is known; it stays the next.
    pub(crate) fn peek(&self, stream: StreamId) -> Option<&Outcome> {
        self.replica.peek(self.streams.next(stream))
    }

    /// Asks for the next outcome of a stream, whatever it is.
    pub(crate) fn ask(&mut self, stream: StreamId) -> Asked {
        match self.replica.lookup(self.streams.next(stream)) {
            Lookup::Decided(outcome) => {
                self.streams.pass(stream);
                Asked::Decided(outcome)
            }
            Lookup::MustDecide => Asked::Decide,
            Lookup::Wait => Asked::Wait,
        }
    }
}

impl Engine {
    /// Asks for the next outcome of a stream that is not a reading of a clock.
    pub fn ask(&mut self, stream: StreamId) -> Asked {
        self.skip_readings(stream);
        self.ask_any(stream)
    }

    /// Asks for the next outcome of a stream if the leader has said it already.
    ///
    /// A follower must go through the empty polls of its leader faster than the leader makes them: what the leader
    /// polls for may depend on what this process sends after them, and a lag that grows while the leader waits for it
    /// would never end. So they cost no look at the transports.
    pub fn ask_ahead(&mut self, stream: StreamId) -> Ahead {
        let replication = self.replication();
        if replication.replica.is_deciding() || replication.ahead_count >= AHEAD_COUNT {
            replication.ahead_count = 0;
            return Ahead::Unknown;
        }
        match self.ask(stream) {
            Asked::Decided(Outcome::NotReady) => {
                self.replication().ahead_count += 1;
                Ahead::Nothing
            }
            Asked::Decided(outcome) => Ahead::Decided(outcome),
            Asked::Decide | Asked::Wait => Ahead::Unknown,
        }
    }

    /// The next outcome of a stream, if it is known, which stays the next.
    pub fn peek_outcome(&mut self, stream: StreamId) -> Option<Outcome> {
        self.replication().peek(stream).cloned()
    }

    /// Takes the next outcome of a stream, which has been seen.
    pub fn pass_outcome(&mut self, stream: StreamId) {
        let asked = self.ask_any(stream);
        debug_assert!(matches!(asked, Asked::Decided(_)), "it was just seen");
    }

    /// Whether this process decides what its sphere does.
    pub fn is_deciding(&mut self) -> bool {
        self.replication().is_deciding()
    }

    /// Says what this process can take for the next outcome of the stream; see `quiesce::Replica::cast_ballot`.
    pub fn cast_ballot(&mut self, stream: StreamId, says: u64) {
        let replication = self.replication();
        replication.replica.cast_ballot(replication.streams.next(stream), says);
        self.carry_out();
    }

    /// What all siblings can take for it; see `quiesce::Replica::highest_ballot`.
    pub(crate) fn highest_ballot(&mut self, stream: StreamId) -> Option<u64> {
        let replication = self.replication();
        replication.replica.highest_ballot(replication.streams.next(stream))
    }

    /// Whether all siblings can; see `quiesce::Replica::count_ballots`.
    pub fn count_ballots(&mut self, stream: StreamId) -> Option<bool> {
        let replication = self.replication();
        let key = replication.streams.next(stream);
        let agreed = replication.replica.count_ballots(key);
        let is_hindered = agreed.is_none() && replication.replica.is_hindered(key);
        if is_hindered && !std::mem::replace(&mut replication.is_known_hindered, true) {
            self.runtime.tell(FromAgent::Hindered);
        }
        agreed
    }

    /// Decides the outcome that [`Engine::ask`] was asked for.
    pub fn answer(&mut self, stream: StreamId, outcome: Outcome) {
        let replication = self.replication();
        let key = replication.streams.next(stream);
        replication.streams.pass(stream);
        trace!(target: "engine", ?key, ?outcome, "decided");
        replication.replica.decide(key, outcome);
        self.carry_out();
    }

    /// A wildcard receive was matched here: a decision for the followers.
    pub(crate) fn record_match(&mut self, context: u32, decided: Option<u64>, source: u32) {
        let (Some(index), Some(replication)) = (decided, &mut self.replication) else { return };
        if !replication.has_siblings {
            return;
        }
        replication.streams.note_match();
        let key = DecisionKey { stream: StreamId::Match(self.contexts.get(context).id), index };
        replication.replica.decide(key, Outcome::Source(source));
        self.carry_out();
    }

    /// A follower tells its leader how many wildcard receives of a context are decided before they are posted.
    pub(crate) fn note_early(&mut self, context: u32) {
        let contexts = self.contexts.get(context);
        let (id, count) = (contexts.id, contexts.queues.early_count());
        self.replication().replica.note_early(id, count as u64);
    }

    /// A follower has posted a wildcard receive.
    #[inline]
    pub(crate) fn wildcard_posted(&mut self, context: u32) {
        if self.replication.as_ref().is_some_and(|replication| replication.replica.is_behind()) {
            self.note_early(context);
            self.carry_out();
        }
    }

    /// Whether a wildcard receive of this context should not be posted yet: this process would decide its source, and
    /// followers have yet to hear of many decisions, or to post many receives that are decided. What waits for
    /// `completions` is then told when that may be over.
    ///
    /// A leader cannot wait for ever so. All that followers need to come as far as it has been sent to them, or to
    /// those who send to them. That holds of what this process has come to itself, so a new leader goes through what
    /// its predecessor has decided without waiting.
    pub fn is_crowded(&mut self, context: u64) -> bool {
        if !self.replication.as_ref().is_some_and(|replication| replication.has_siblings && replication.is_deciding()) {
            return false;
        }
        let context = self.contexts.index(context);
        let contexts = self.contexts.get(context);
        let (id, early) = (contexts.id, contexts.queues.early_count());
        let replication = self.replication();
        let is_crowded = early == 0 && replication.is_far_ahead(StreamId::Match(id));
        replication.is_crowded |= is_crowded;
        is_crowded
    }

    /// A sibling has said how far it is. Whatever waits for that looks again.
    pub(crate) fn sibling_spoke(&mut self) {
        if std::mem::take(&mut self.replication().is_crowded) {
            self.requests.completions += 1;
        }
    }

    /// The replicas of this rank took different paths: the decision of the leader does not fit what this one asked.
    pub fn diverged<T>(&self, expected: &str, decided: &Outcome) -> Option<T> {
        let message = format!(
            "replica {}: its program took another path than the leader's: it asked for {expected}, the leader decided \
             {decided:?}; try --check-determinism",
            self.me
        );
        self.runtime.abort(1, message)
    }
}
