//! Outcomes that depend on timing: questions of threads to the leader of their sphere, and its decisions.

use super::sphere::{Act, Sphere};
use crate::asked::{Ahead, Asked};
use crate::tasks;
use quiesce::{Call, DecisionKey, Lookup, MAJORITY_DEGREE, Outcome, Place, Question, StreamId};
use redrt_types::{ContextId, ReplicaId};
use redrt_wire::control::FromAgent;
use std::collections::BTreeSet;
use tracing::trace;

/// Bound on the empty polls that a follower takes over in a row without making progress.
const AHEAD_COUNT: u32 = 64;

impl Sphere<'_> {
    /// Returns true if this process decides for its sphere.
    pub fn is_deciding(&self) -> bool {
        self.replica.is_deciding()
    }

    /// Returns true if a decision that can wait should wait; see `quiesce::Replica::is_far_ahead`.
    pub fn is_far_ahead(&self, stream: StreamId) -> bool {
        self.replica.is_far_ahead(stream)
    }

    /// Number of decisions that some sibling may not hold yet.
    pub fn unstable_count(&self) -> u64 {
        self.replica.unstable_count()
    }

    /// Number of outcomes that a stream has taken or decided.
    pub(crate) fn passed(&self, stream: StreamId) -> u64 {
        self.replica.passed(stream)
    }

    /// Key of the next outcome of a stream.
    pub(crate) fn next(&self, stream: StreamId) -> DecisionKey {
        DecisionKey { stream, index: self.passed(stream) }
    }

    /// Takes the next outcome of a stream, for whichever question it was decided.
    pub(crate) fn take(&mut self, key: DecisionKey) -> Option<Outcome> {
        let taken = self.replica.take(key);
        self.outcomes.decisions += u64::from(taken.is_some());
        taken
    }

    /// Returns true if the own rank has so many live replicas that a majority can outvote one.
    pub(crate) fn has_majority(&self) -> bool {
        self.replica.view().live(self.me().rank).count() >= usize::from(MAJORITY_DEGREE)
    }

    /// Returns true if the next outcome was decided by a leader that is no longer live, in a rank of a degree at which
    /// a majority can outvote one.
    pub(crate) fn follows_lost_leader(&self, stream: StreamId) -> bool {
        let rank = self.me().rank;
        let author = self.replica.author(self.next(stream));
        author.is_some_and(|index| {
            self.replica.degree() >= MAJORITY_DEGREE && !self.replica.view().is_live(ReplicaId { rank, index })
        })
    }

    /// Number of MPI calls that the thread with this number has begun.
    pub(crate) fn calls_of(&self, thread: u64) -> u64 {
        self.program.calls_of(thread)
    }

    /// The calling thread's question at its present position in the program. `arguments`, `data`: digests, as in
    /// [`Question`].
    pub fn question(&self, stream: StreamId, call: Call, arguments: u64, data: u64) -> Question {
        let place = self.program_place();
        let place = match stream {
            StreamId::Thread(thread) => Place { thread, ..place },
            _ => place,
        };
        Question { call, arguments, data, place }
    }

    /// The calling thread's position. Where polls are not agreed on, replicas do not make the same calls, and it is
    /// unknown.
    #[inline]
    pub(crate) fn program_place(&self) -> Place {
        let is_counted = self.outcomes.counts_calls() && !tasks::is_in_task();
        if is_counted { self.program.place() } else { Place::NOWHERE }
    }

    /// Asks for the next outcome of a stream, except a reading of a clock.
    pub fn ask(&mut self, stream: StreamId, question: Question) -> Asked {
        let key = self.skip_readings(stream);
        self.ask_any(key, question)
    }

    /// Returns true if a majority of the own rank asks for the change that this process is to make; see
    /// `quiesce::Replica::is_backed`.
    pub fn is_backed(&self, stream: StreamId) -> bool {
        self.replica.is_backed(self.next(stream))
    }

    /// Counts a change that was possible and waited `ns` nanoseconds for a majority.
    pub fn record_change_waited(&mut self, ns: u64) {
        let waited = &mut self.outcomes.changes_waited;
        waited.count += 1;
        waited.all_ns += ns;
        waited.longest_ns = waited.longest_ns.max(ns);
    }

    /// Makes changes wait for a majority, or no longer; see `quiesce::Replica::vote_on_changes`.
    pub fn vote_on_changes(&mut self, votes: bool) {
        self.replica.vote_on_changes(votes);
    }

    /// Announces to siblings what the threads of this process wait for, and the progress that siblings ask about. They
    /// may wait for outcomes for which this process, or its leader, does not ask.
    pub fn announce_paths(&mut self) {
        self.replica.state_waits();
        self.replica.ask_overdue();
        self.record_passed();
        self.answer_siblings();
    }

    /// Takes note of threads that have passed positions where their leader asked for an outcome, and will not ask
    /// there.
    pub(crate) fn record_passed(&mut self) {
        if self.outcomes.counts_calls() {
            for thread in self.replica.threads_behind() {
                let here = self.program.place_of(thread);
                self.replica.record_passed(here);
            }
        }
    }

    /// Tells siblings whether threads have passed the positions that they ask about.
    pub(crate) fn answer_siblings(&mut self) {
        if !self.replica.has_questions() {
            return;
        }
        self.replica.forget_settled_claims();
        // A thread may be asked about many positions, and answers for all of them at once.
        let threads: BTreeSet<_> = self.replica.questions().collect();
        for thread in threads {
            let here = self.program.place_of(thread);
            self.replica.record_place(here);
        }
    }

    /// Ends a thread's stream: the thread asks nothing more.
    pub fn end_thread(&mut self, stream: StreamId) {
        self.replica.end_thread(stream);
    }

    /// Ends a stream: the program asks nothing more in it.
    pub fn end_stream(&mut self, stream: StreamId) {
        self.replica.end_stream(stream);
    }

    /// Takes the next outcome of a stream if the leader has decided it already.
    ///
    /// The trap: a follower must go through the empty polls of its leader faster than the leader makes them. The leader
    /// may poll for a message that this process sends after them, and a lag that grew while the leader waits would
    /// never end. So these polls cost no look at the transports.
    pub fn ask_ahead(&mut self, stream: StreamId, question: Question) -> Ahead {
        if self.replica.is_deciding() || self.outcomes.ahead_count >= AHEAD_COUNT {
            self.outcomes.ahead_count = 0;
            return Ahead::Unknown;
        }
        match self.ask(stream, question) {
            Asked::Decided(Outcome::NotReady) => {
                self.outcomes.ahead_count += 1;
                Ahead::Nothing
            }
            Asked::Decided(outcome) => Ahead::Decided(outcome),
            Asked::Decide | Asked::Wait => Ahead::Unknown,
        }
    }

    /// The next outcome of a stream, if known; it stays the next.
    pub fn peek_outcome(&self, stream: StreamId) -> Option<Outcome> {
        self.replica.peek(self.next(stream)).cloned()
    }

    /// Takes the next outcome of a stream, which must be known.
    pub fn pass_outcome(&mut self, stream: StreamId) {
        let taken = self.take(self.next(stream));
        debug_assert!(taken.is_some(), "it was just seen");
    }

    /// Casts this process's ballot for the next outcome of the stream; see `quiesce::Replica::cast_ballot`.
    pub fn cast_ballot(&mut self, stream: StreamId, question: Question, says: u64) {
        self.replica.cast_ballot(self.next(stream), question, says);
    }

    /// The highest ballot once all siblings have voted; see `quiesce::Replica::highest_ballot`.
    pub(crate) fn highest_ballot(&mut self, stream: StreamId) -> Option<u64> {
        self.replica.highest_ballot(self.next(stream))
    }

    /// Returns true if all siblings agree, `None` until that is known; see `quiesce::Replica::count_ballots`.
    pub fn count_ballots(&mut self, stream: StreamId, question: Question) -> Option<bool> {
        let key = self.next(stream);
        let agreed = self.replica.count_ballots(key, question);
        let is_hindered = agreed.is_none() && self.replica.is_hindered(key, question);
        if is_hindered && !std::mem::replace(&mut self.outcomes.is_known_hindered, true) {
            self.ask_for(Act::Send(FromAgent::Hindered));
        }
        agreed
    }

    /// Decides the outcome that [`Sphere::ask`] asked for.
    pub fn answer(&mut self, stream: StreamId, question: Question, outcome: Outcome) {
        let key = self.next(stream);
        self.outcomes.decisions += 1;
        trace!(target: "engine", ?key, ?question, ?outcome, "decided");
        self.replica.decide(key, question, outcome);
        if let Some(traces) = &mut self.outcomes.traces {
            traces.record_outcome(key, self.program.place().thread);
        }
    }

    /// Records the source of a wildcard receive that was matched here, as a decision for the followers.
    pub(crate) fn decide_source(&mut self, context: ContextId, index: u64, source: u32) {
        if !self.outcomes.has_siblings {
            return self.replica.withdraw_wildcard(context, index);
        }
        self.outcomes.decisions += 1;
        self.replica.decide_source(context, index, source);
    }

    /// The source decided for the wildcard receive that is about to be posted in this context as the one of this
    /// number; `None` if it is not decided.
    pub(crate) fn post_wildcard(&mut self, context: ContextId, index: u64, tag: Option<i32>) -> Option<u32> {
        let arguments = tag.map_or(0, |tag| 1 + u64::from(tag.cast_unsigned()));
        let question = Question { call: Call::Receive, arguments, data: 0, place: self.program_place() };
        if let Some(traces) = &mut self.outcomes.traces {
            let key = DecisionKey { stream: StreamId::Match(context), index };
            traces.record_outcome(key, self.program.place().thread);
        }
        self.replica.post_wildcard(context, index, question)
    }

    /// Number of wildcard receives of a context whose sources are decided and that are not posted yet.
    pub(crate) fn early_count(&self, context: u64) -> usize {
        self.replica.early_count(ContextId(context))
    }

    /// Returns true if a wildcard receive of this context must not be posted yet: this process would decide its source,
    /// and followers lag by many decisions, or by many posted receives. Then the end of the crowding counts as a
    /// completion.
    ///
    /// A leader cannot wait for ever. All that followers need to catch up has been sent to them, or to their senders.
    /// That holds for the leader's own progress, so a new leader goes through its predecessor's decisions without
    /// waiting.
    pub(crate) fn is_crowded(&mut self, context: u64) -> bool {
        if !self.outcomes.has_siblings || !self.is_deciding() {
            return false;
        }
        let is_crowded = self.early_count(context) == 0 && self.is_far_ahead(StreamId::Match(ContextId(context)));
        self.outcomes.is_crowded |= is_crowded;
        is_crowded
    }

    /// Takes in the progress of a sibling, and makes waiters for it look again.
    pub(crate) fn sibling_spoke(&mut self) {
        if std::mem::take(&mut self.outcomes.is_crowded) {
            self.ask_for(Act::Stir);
        }
    }

    /// Asks for the next outcome of a stream, be it of a clock or not.
    pub(crate) fn ask_any(&mut self, key: DecisionKey, question: Question) -> Asked {
        match self.replica.lookup(key, question) {
            Lookup::Decided(outcome) => {
                self.outcomes.decisions += 1;
                if let Some(traces) = &mut self.outcomes.traces {
                    traces.record_outcome(key, self.program.place().thread);
                }
                Asked::Decided(outcome)
            }
            Lookup::MustDecide => Asked::Decide,
            Lookup::Wait => {
                self.report_parting();
                Asked::Wait
            }
        }
    }
}
