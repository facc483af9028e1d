//! Outcomes that depend on timing: questions of threads to the leader of their sphere, and its decisions.

use super::super::{Engine, tasks};
use super::Replication;
use crate::asked::{Ahead, Asked};
use crate::matching::Context;
use quiesce::{Call, DecisionKey, Lookup, MAJORITY_DEGREE, Outcome, PathReport, Place, Question, StreamId};
use redrt_types::{ContextId, ReplicaId, ReplicaIndex};
use redrt_wire::control::{Determinism, FromAgent};
use std::collections::BTreeSet;
use tracing::trace;

/// Bound on the empty polls that a follower takes over in a row without making progress.
const AHEAD_COUNT: u32 = 64;

impl Replication {
    /// Returns true if this process decides for its sphere.
    pub(crate) fn is_deciding(&self) -> bool {
        self.replica.is_deciding()
    }

    /// Returns true if a decision that can wait should wait; see `quiesce::Replica::is_far_ahead`.
    pub(crate) fn is_far_ahead(&self, stream: StreamId) -> bool {
        self.replica.is_far_ahead(stream)
    }

    /// The sibling for which a leader that is far ahead waits; see `quiesce::Replica::sibling_behind`.
    pub(crate) fn sibling_behind(&self, stream: StreamId) -> Option<ReplicaIndex> {
        self.replica.sibling_behind(stream)
    }

    /// Ends a leader's wait for this sibling; see `quiesce::Replica::go_ahead`.
    pub(crate) fn go_ahead(&mut self, sibling: ReplicaIndex, stream: StreamId) {
        self.replica.go_ahead(sibling, stream);
    }

    /// Returns true if sound replicas make the same calls.
    pub(crate) fn counts_calls(&self) -> bool {
        self.determinism == Determinism::Full
    }

    /// Number of outcomes that a stream has taken or decided.
    pub(crate) fn passed(&self, stream: StreamId) -> u64 {
        self.replica.passed(stream)
    }

    /// Key of the next outcome of a stream.
    pub(crate) fn next(&self, stream: StreamId) -> DecisionKey {
        DecisionKey { stream, index: self.passed(stream) }
    }

    /// The next outcome of a stream, if known; it stays the next.
    pub(crate) fn peek(&self, key: DecisionKey) -> Option<&Outcome> {
        self.replica.peek(key)
    }

    /// Returns true if the next outcome of a stream was decided for this question; `None` if it is unknown.
    pub(crate) fn fits(&self, key: DecisionKey, question: Question) -> Option<bool> {
        self.replica.fits(key, question)
    }

    /// Takes the next outcome of a stream, for whichever question it was decided.
    pub(crate) fn take(&mut self, key: DecisionKey) -> Option<Outcome> {
        let taken = self.replica.take(key);
        self.decisions += u64::from(taken.is_some());
        taken
    }

    /// Returns true if the own rank has so many live replicas that a majority can outvote one.
    pub(crate) fn has_majority(&self) -> bool {
        self.view().live(self.replica.me().rank).count() >= usize::from(MAJORITY_DEGREE)
    }

    /// Returns true if the next outcome was decided by a leader that is no longer live, in a rank of a degree at which
    /// a majority can outvote one.
    pub(crate) fn follows_lost_leader(&self, stream: StreamId) -> bool {
        let rank = self.replica.me().rank;
        let author = self.replica.author(self.next(stream));
        author.is_some_and(|index| {
            self.replica.degree() >= MAJORITY_DEGREE && !self.view().is_live(ReplicaId { rank, index })
        })
    }

    /// Returns true if siblings ask for the progress of threads of this process; see `quiesce::Replica::has_questions`.
    #[inline]
    pub(crate) fn has_questions(&self) -> bool {
        self.replica.has_questions()
    }

    /// The report on paths that have parted, if it is due; see `quiesce::Replica::parting`.
    pub(crate) fn parting(&self) -> Option<&PathReport> {
        self.replica.parting()
    }

    /// Asks for the next outcome of a stream.
    pub(crate) fn ask(&mut self, key: DecisionKey, question: Question) -> Asked {
        match self.replica.lookup(key, question) {
            Lookup::Decided(outcome) => {
                self.decisions += 1;
                Asked::Decided(outcome)
            }
            Lookup::MustDecide => Asked::Decide,
            Lookup::Wait => Asked::Wait,
        }
    }
}

impl Engine {
    /// The calling thread's question at its present position in the program. `arguments`, `data`: digests, as in
    /// [`Question`].
    pub fn question(&mut self, stream: StreamId, call: Call, arguments: u64, data: u64) -> Question {
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
    pub(crate) fn program_place(&mut self) -> Place {
        let is_counted = self.replication().counts_calls() && !tasks::is_in_task();
        if is_counted { self.runtime.place() } else { Place::NOWHERE }
    }

    /// Asks for the next outcome of a stream, except a reading of a clock.
    pub fn ask(&mut self, stream: StreamId, question: Question) -> Asked {
        let key = self.skip_readings(stream);
        self.ask_any(key, question)
    }

    /// Returns true if a majority of the own rank asks for the change that this process is to make; see
    /// `quiesce::Replica::is_backed`.
    pub fn is_backed(&mut self, stream: StreamId) -> bool {
        let replication = self.replication();
        replication.replica.is_backed(replication.next(stream))
    }

    /// Counts a change that was possible and waited `ns` nanoseconds for a majority.
    pub fn note_change_waited(&mut self, ns: u64) {
        if let Some(replication) = &mut self.replication {
            let waited = &mut replication.changes_waited;
            waited.count += 1;
            waited.all_ns += ns;
            waited.longest_ns = waited.longest_ns.max(ns);
        }
    }

    /// Makes changes wait for a majority, or no longer; see `quiesce::Replica::vote_on_changes`.
    pub fn vote_on_changes(&mut self, votes: bool) {
        if let Some(replication) = &mut self.replication {
            replication.replica.vote_on_changes(votes);
        }
    }

    /// Tells siblings what the threads of this process wait for, and the progress that siblings ask about. They may
    /// wait for outcomes for which this process, or its leader, does not ask.
    pub fn tell_paths(&mut self) {
        if let Some(replication) = &mut self.replication {
            replication.replica.state_waits();
            replication.replica.ask_overdue();
            self.note_passed();
            self.answer_siblings();
        }
    }

    /// Takes note of threads that have passed positions where their leader asked for an outcome, and will not ask
    /// there.
    pub(crate) fn note_passed(&mut self) {
        if self.replication().counts_calls() {
            for thread in self.replication().replica.threads_behind() {
                let here = self.runtime.place_of(thread);
                self.replication().replica.note_passed(here);
            }
        }
        self.carry_out();
    }

    /// Tells siblings whether threads have passed the positions that they ask about.
    pub(crate) fn answer_siblings(&mut self) {
        let Some(replication) = &mut self.replication else { return };
        if !replication.has_questions() {
            return;
        }
        replication.replica.forget_settled_claims();
        // A thread may be asked about many positions, and answers for all of them at once.
        let threads: BTreeSet<_> = replication.replica.questions().collect();
        for thread in threads {
            let here = self.runtime.place_of(thread);
            self.replication().replica.note_place(here);
        }
        self.carry_out();
    }

    /// Ends a thread's stream: the thread asks nothing more.
    pub fn end_thread(&mut self, stream: StreamId) {
        if let Some(replication) = &mut self.replication {
            replication.replica.end_thread(stream);
            self.carry_out();
        }
    }

    /// Ends a stream: the program asks nothing more in it.
    pub fn end_stream(&mut self, stream: StreamId) {
        if let Some(replication) = &mut self.replication {
            replication.replica.end_stream(stream);
            self.carry_out();
        }
    }

    /// Takes the next outcome of a stream if the leader has decided it already.
    ///
    /// The trap: a follower must go through the empty polls of its leader faster than the leader makes them. The leader
    /// may poll for a message that this process sends after them, and a lag that grew while the leader waits would
    /// never end. So these polls cost no look at the transports.
    pub fn ask_ahead(&mut self, stream: StreamId, question: Question) -> Ahead {
        let replication = self.replication();
        if replication.replica.is_deciding() || replication.ahead_count >= AHEAD_COUNT {
            replication.ahead_count = 0;
            return Ahead::Unknown;
        }
        match self.ask(stream, question) {
            Asked::Decided(Outcome::NotReady) => {
                self.replication().ahead_count += 1;
                Ahead::Nothing
            }
            Asked::Decided(outcome) => Ahead::Decided(outcome),
            Asked::Decide | Asked::Wait => Ahead::Unknown,
        }
    }

    /// The next outcome of a stream, if known; it stays the next.
    pub fn peek_outcome(&mut self, stream: StreamId) -> Option<Outcome> {
        let replication = self.replication();
        replication.peek(replication.next(stream)).cloned()
    }

    /// Takes the next outcome of a stream, which must be known.
    pub fn pass_outcome(&mut self, stream: StreamId) {
        let replication = self.replication();
        let taken = replication.take(replication.next(stream));
        debug_assert!(taken.is_some(), "it was just seen");
        self.carry_out();
    }

    /// Returns true if this process decides for its sphere.
    pub fn is_deciding(&mut self) -> bool {
        self.replication().is_deciding()
    }

    /// Casts this process's ballot for the next outcome of the stream; see `quiesce::Replica::cast_ballot`.
    pub fn cast_ballot(&mut self, stream: StreamId, question: Question, says: u64) {
        let replication = self.replication();
        replication.replica.cast_ballot(replication.next(stream), question, says);
        self.carry_out();
    }

    /// The highest ballot once all siblings have voted; see `quiesce::Replica::highest_ballot`.
    pub(crate) fn highest_ballot(&mut self, stream: StreamId) -> Option<u64> {
        let replication = self.replication();
        replication.replica.highest_ballot(replication.next(stream))
    }

    /// Returns true if all siblings agree, `None` until that is known; see `quiesce::Replica::count_ballots`.
    pub fn count_ballots(&mut self, stream: StreamId, question: Question) -> Option<bool> {
        let replication = self.replication();
        let key = replication.next(stream);
        let agreed = replication.replica.count_ballots(key, question);
        let is_hindered = agreed.is_none() && replication.replica.is_hindered(key, question);
        if is_hindered && !std::mem::replace(&mut replication.is_known_hindered, true) {
            self.runtime.tell(FromAgent::Hindered);
        }
        agreed
    }

    /// Decides the outcome that [`Engine::ask`] asked for.
    pub fn answer(&mut self, stream: StreamId, question: Question, outcome: Outcome) {
        let replication = self.replication();
        let key = replication.next(stream);
        replication.decisions += 1;
        trace!(target: "engine", ?key, ?question, ?outcome, "decided");
        replication.replica.decide(key, question, outcome);
        if let Some(traces) = &mut self.traces {
            traces.note_outcome(key);
        }
        self.carry_out();
    }

    /// Records the source of a wildcard receive that was matched here, as a decision for the followers.
    pub(crate) fn record_match(&mut self, context: u32, decided: Option<u64>, source: u32) {
        let (Some(index), Some(replication)) = (decided, &mut self.replication) else { return };
        let context = self.contexts.get(context).id;
        if !replication.has_siblings {
            return replication.replica.withdraw_wildcard(context, index);
        }
        replication.decisions += 1;
        replication.replica.decide_source(context, index, source);
        self.carry_out();
    }

    /// Applies the source decided for a wildcard receive that is about to be posted, if there is one.
    pub(crate) fn prepare_wildcard(&mut self, context: u32, tag: Option<i32>) {
        if !self.is_replicated() {
            return;
        }
        let arguments = tag.map_or(0, |tag| 1 + u64::from(tag.cast_unsigned()));
        let question = Question { call: Call::Receive, arguments, data: 0, place: self.program_place() };
        let Context { id, queues } = self.contexts.get(context);
        let index = queues.wildcard_count();
        if let Some(traces) = &mut self.traces {
            traces.note_outcome(DecisionKey { stream: StreamId::Match(*id), index });
        }
        let Some(replication) = &mut self.replication else { return };
        if let Some(source) = replication.replica.post_wildcard(*id, index, question) {
            // No match can result: the receive is not posted yet.
            queues.apply_decision(index, source, &mut Vec::new());
        }
        self.carry_out();
    }

    /// Withdraws a cancelled wildcard receive that had no source.
    pub(crate) fn withdraw_wildcard(&mut self, context: u32, undecided: Option<u64>) {
        if let (Some(index), Some(replication)) = (undecided, &mut self.replication) {
            replication.replica.withdraw_wildcard(self.contexts.get(context).id, index);
        }
    }

    /// Number of wildcard receives of a context whose sources are decided and that are not posted yet.
    pub(crate) fn early_count(&mut self, context: u64) -> usize {
        self.replication().replica.early_count(ContextId(context))
    }

    /// Returns true if a wildcard receive of this context must not be posted yet: this process would decide its source,
    /// and followers lag by many decisions, or by many posted receives. Then the end of the crowding counts as a
    /// completion.
    ///
    /// A leader cannot wait for ever. All that followers need to catch up has been sent to them, or to their senders.
    /// That holds for the leader's own progress, so a new leader goes through its predecessor's decisions without
    /// waiting.
    pub fn is_crowded(&mut self, context: u64) -> bool {
        if !self.replication.as_ref().is_some_and(|replication| replication.has_siblings && replication.is_deciding()) {
            return false;
        }
        let early = self.early_count(context);
        let replication = self.replication();
        let is_crowded = early == 0 && replication.is_far_ahead(StreamId::Match(ContextId(context)));
        replication.is_crowded |= is_crowded;
        is_crowded
    }

    /// Takes in the progress of a sibling, and makes waiters for it look again.
    pub(crate) fn sibling_spoke(&mut self) {
        if std::mem::take(&mut self.replication().is_crowded) {
            self.requests.completions += 1;
        }
    }
}
