//! Outcomes that depend on timing: what a thread asks of the leader of its sphere, and what the leader says.

use super::super::{Engine, tasks};
use super::Replication;
use crate::asked::{Ahead, Asked};
use crate::matching::Context;
use quiesce::{Call, DecisionKey, Lookup, MAJORITY_DEGREE, Outcome, PathReport, Place, Question, StreamId};
use redrt_types::{ContextId, ReplicaId, ReplicaIndex};
use redrt_wire::control::{Determinism, FromAgent};
use std::collections::BTreeSet;
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

    /// The sibling for which a leader that is far ahead waits; see `quiesce::Replica::sibling_behind`.
    pub(crate) fn sibling_behind(&self, stream: StreamId) -> Option<ReplicaIndex> {
        self.replica.sibling_behind(stream)
    }

    /// A leader waits for this sibling no more; see `quiesce::Replica::go_ahead`.
    pub(crate) fn go_ahead(&mut self, sibling: ReplicaIndex, stream: StreamId) {
        self.replica.go_ahead(sibling, stream);
    }

    /// Whether sound replicas make the same calls.
    pub(crate) fn counts_calls(&self) -> bool {
        self.determinism == Determinism::Full
    }

    /// How many outcomes a stream has taken or decided.
    pub(crate) fn passed(&self, stream: StreamId) -> u64 {
        self.replica.passed(stream)
    }

    /// The next outcome of a stream.
    pub(crate) fn next(&self, stream: StreamId) -> DecisionKey {
        DecisionKey { stream, index: self.passed(stream) }
    }

    /// The next outcome of a stream, if it is known; it stays the next.
    pub(crate) fn peek(&self, key: DecisionKey) -> Option<&Outcome> {
        self.replica.peek(key)
    }

    /// Whether the next outcome of a stream was decided for this question, if it is known.
    pub(crate) fn fits(&self, key: DecisionKey, question: Question) -> Option<bool> {
        self.replica.fits(key, question)
    }

    /// Takes the next outcome of a stream, whatever it was decided for.
    pub(crate) fn take(&mut self, key: DecisionKey) -> Option<Outcome> {
        let taken = self.replica.take(key);
        self.decisions += u64::from(taken.is_some());
        taken
    }

    /// Whether the own rank has so many live replicas that a majority can outvote one.
    pub(crate) fn has_majority(&self) -> bool {
        self.view().live(self.replica.me().rank).count() >= usize::from(MAJORITY_DEGREE)
    }

    /// Whether the next outcome was decided by a leader that is not live any more, in a rank in which a majority could
    /// outvote one.
    pub(crate) fn follows_lost_leader(&self, stream: StreamId) -> bool {
        let rank = self.replica.me().rank;
        let author = self.replica.author(self.next(stream));
        author.is_some_and(|index| {
            self.replica.degree() >= MAJORITY_DEGREE && !self.view().is_live(ReplicaId { rank, index })
        })
    }

    /// Whether siblings want to know how far threads of this process have come; see `quiesce::Replica::has_questions`.
    #[inline]
    pub(crate) fn has_questions(&self) -> bool {
        self.replica.has_questions()
    }

    /// What is to be told of paths that have parted; see `quiesce::Replica::parting`.
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
    /// What the calling thread asks for where its program is now. `arguments`, `data`: digests, as in [`Question`].
    pub fn question(&mut self, stream: StreamId, call: Call, arguments: u64, data: u64) -> Question {
        let place = self.program_place();
        let place = match stream {
            StreamId::Thread(thread) => Place { thread, ..place },
            _ => place,
        };
        Question { call, arguments, data, place }
    }

    /// Where the calling thread is. Where polls are not agreed on, replicas do not make the same calls.
    #[inline]
    pub(crate) fn program_place(&mut self) -> Place {
        let is_counted = self.replication().counts_calls() && !tasks::is_in_task();
        if is_counted { self.runtime.place() } else { Place::NOWHERE }
    }

    /// Asks for the next outcome of a stream that is not a reading of a clock.
    pub fn ask(&mut self, stream: StreamId, question: Question) -> Asked {
        let key = self.skip_readings(stream);
        self.ask_any(key, question)
    }

    /// Whether a majority of the own rank asks for the change that this process is to make; see
    /// `quiesce::Replica::is_backed`.
    pub fn is_backed(&mut self, stream: StreamId) -> bool {
        let replication = self.replication();
        replication.replica.is_backed(replication.next(stream))
    }

    /// A change that could be made has waited for a majority so long.
    pub fn note_change_waited(&mut self, ns: u64) {
        if let Some(replication) = &mut self.replication {
            let waited = &mut replication.changes_waited;
            waited.count += 1;
            waited.all_ns += ns;
            waited.longest_ns = waited.longest_ns.max(ns);
        }
    }

    /// Whether changes wait for a majority; see `quiesce::Replica::vote_on_changes`.
    pub fn vote_on_changes(&mut self, votes: bool) {
        if let Some(replication) = &mut self.replication {
            replication.replica.vote_on_changes(votes);
        }
    }

    /// Siblings may wait for outcomes for which this process, or its leader, does not ask: says what its threads wait
    /// for, and what siblings want to know of them.
    pub fn tell_paths(&mut self) {
        if let Some(replication) = &mut self.replication {
            replication.replica.state_waits();
            replication.replica.ask_overdue();
            self.note_passed();
            self.answer_siblings();
        }
    }

    /// Looks whether threads have passed places where their leader asked for an outcome, and ask for none any more.
    pub(crate) fn note_passed(&mut self) {
        if self.replication().counts_calls() {
            for thread in self.replication().replica.threads_behind() {
                let here = self.runtime.place_of(thread);
                self.replication().replica.note_passed(here);
            }
        }
        self.carry_out();
    }

    /// Tells siblings whether threads have passed the places that they have asked about.
    pub(crate) fn answer_siblings(&mut self) {
        let Some(replication) = &mut self.replication else { return };
        if !replication.has_questions() {
            return;
        }
        replication.replica.forget_settled_claims();
        // One thread may be asked about many places, and answers for all of them at once.
        let threads: BTreeSet<_> = replication.replica.questions().collect();
        for thread in threads {
            let here = self.runtime.place_of(thread);
            self.replication().replica.note_place(here);
        }
        self.carry_out();
    }

    /// A thread of the program has ended, and asks nothing more.
    pub fn end_thread(&mut self, stream: StreamId) {
        if let Some(replication) = &mut self.replication {
            replication.replica.end_thread(stream);
            self.carry_out();
        }
    }

    /// The program asks nothing more in this stream.
    pub fn end_stream(&mut self, stream: StreamId) {
        if let Some(replication) = &mut self.replication {
            replication.replica.end_stream(stream);
            self.carry_out();
        }
    }

    /// Asks for the next outcome of a stream if the leader has said it already.
    ///
    /// A follower must go through the empty polls of its leader faster than the leader makes them: what the leader
    /// polls for may depend on what this process sends after them, and a lag that grows while the leader waits for it
    /// would never end. So they cost no look at the transports.
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

    /// The next outcome of a stream, if it is known, which stays the next.
    pub fn peek_outcome(&mut self, stream: StreamId) -> Option<Outcome> {
        let replication = self.replication();
        replication.peek(replication.next(stream)).cloned()
    }

    /// Takes the next outcome of a stream, which has been seen.
    pub fn pass_outcome(&mut self, stream: StreamId) {
        let replication = self.replication();
        let taken = replication.take(replication.next(stream));
        debug_assert!(taken.is_some(), "it was just seen");
        self.carry_out();
    }

    /// Whether this process decides what its sphere does.
    pub fn is_deciding(&mut self) -> bool {
        self.replication().is_deciding()
    }

    /// Says what this process can take for the next outcome of the stream; see `quiesce::Replica::cast_ballot`.
    pub fn cast_ballot(&mut self, stream: StreamId, question: Question, says: u64) {
        let replication = self.replication();
        replication.replica.cast_ballot(replication.next(stream), question, says);
        self.carry_out();
    }

    /// What all siblings can take for it; see `quiesce::Replica::highest_ballot`.
    pub(crate) fn highest_ballot(&mut self, stream: StreamId) -> Option<u64> {
        let replication = self.replication();
        replication.replica.highest_ballot(replication.next(stream))
    }

    /// Whether all siblings can; see `quiesce::Replica::count_ballots`.
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

    /// Decides the outcome that [`Engine::ask`] was asked for.
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

    /// A wildcard receive was matched here: a decision for the followers.
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

    /// A wildcard receive is about to be posted: takes the source that was decided for it, if one was.
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
            // Nothing is matched by it: the receive is not posted yet.
            queues.apply_decision(index, source, &mut Vec::new());
        }
        self.carry_out();
    }

    /// A wildcard receive that had no source was cancelled.
    pub(crate) fn withdraw_wildcard(&mut self, context: u32, undecided: Option<u64>) {
        if let (Some(index), Some(replication)) = (undecided, &mut self.replication) {
            replication.replica.withdraw_wildcard(self.contexts.get(context).id, index);
        }
    }

    /// How many wildcard receives of a context have a source that are not posted yet.
    pub(crate) fn early_count(&mut self, context: u64) -> usize {
        self.replication().replica.early_count(ContextId(context))
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
        let early = self.early_count(context);
        let replication = self.replication();
        let is_crowded = early == 0 && replication.is_far_ahead(StreamId::Match(ContextId(context)));
        replication.is_crowded |= is_crowded;
        is_crowded
    }

    /// A sibling has said how far it is. Whatever waits for that looks again.
    pub(crate) fn sibling_spoke(&mut self) {
        if std::mem::take(&mut self.replication().is_crowded) {
            self.requests.completions += 1;
        }
    }
}
