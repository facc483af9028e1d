//! Claims of this process and of its siblings about the questions of their programs, and the votes on them.
//!
//! ```text
//!  0.0 (leader)            0.1                      0.2
//!   │ decides 3: Iprobe     │                        │
//!   ├── Decisions ────────► │ ─────────────────────► │
//!   │                       │ stat, but 3 is Iprobe  │
//!   │ ◄── Claim 3: stat ────┤ ─────────────────────► │ stat, but 3 is Iprobe
//!   │ ◄── Claim 3: stat ────│────────────────────────┤
//!   │ outvoted              │ waits                  │ waits        all report it; the maker of views ends 0.0
//!   ╳                       │ leads: 3 is retracted, decided anew ─► │
//! ```
//! A replica makes a claim in three cases: when an outcome was decided for another question than its own; when it asks
//! for a change that others can see, which waits for a majority ([`Replica::is_backed`]); and when it waits and is
//! asked for its questions ([`Replica::state_waits`]). A sibling that receives a claim answers with its own question at
//! that position, or with the statement that its thread has passed the place ([`Replica::record_place`]), as soon as
//! either is known. No timeout is involved.

use super::Replica;
use crate::decision::{Lookup, OutcomeAnswer};
use crate::error::{Breach, ProtocolError};
use crate::frame::{Frame, Output};
use crate::mutation::Mutation;
use crate::outcome::{Call, Decided, DecisionKey, Place, Question, StreamId};
use crate::path::{Claim, Judged, MAJORITY_DEGREE, PathFinding, PathReport, Statement, judge};
use redrt_types::{Kinship, ReplicaId, ReplicaIndex, ReplicaSet};

/// Maximum number of streams that one sibling has made statements about. It needs one for each of its threads.
const CLAIMS_MAX: usize = 1 << 12;

/// Number of disputes that are kept though they are judged and passed, since copies may join that have yet to come
/// there.
const JUDGED_MAX: usize = 64;

/// One process's knowledge of the paths of its sphere.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Paths {
    /// Questions of this process's threads without an answer, where siblings may have to know them.
    asking: Vec<(DecisionKey, Question)>,
    /// The latest statements of siblings: one for each sibling and each stream, or message of a channel.
    heard: Vec<Statement>,
    /// The latest statements of this process, with the question of the leader as far as it was known.
    said: Vec<(Statement, Option<Decided>)>,
    disputes: Vec<Dispute>,
    /// Streams on which this process asks no more.
    ended: Vec<StreamId>,
}

/// An outcome about which replicas have made different statements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Dispute {
    key: DecisionKey,
    /// The question for which it was decided, if it was.
    decided: Option<Decided>,
    /// True if the leader that decided it is not live any more.
    author_is_gone: bool,
    /// True if it was left to arbiters, and that was reported.
    is_left: bool,
    verdict: Option<Verdict>,
}

impl Dispute {
    /// Returns true if no vote could decide who is right.
    fn is_open(&self) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict.finding == PathFinding::Undecidable)
    }

    /// Returns true if the decision has been retracted, or will be.
    fn is_over(&self) -> bool {
        let is_wrong = |decided: Decided| {
            self.verdict.as_ref().is_some_and(|verdict| {
                matches!(verdict.finding, PathFinding::Outvoted(_)) && verdict.others.contains(decided.by)
            })
        };
        self.author_is_gone && self.decided.is_some_and(is_wrong)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Verdict {
    finding: PathFinding,
    others: ReplicaSet,
}

/// Returns true if a statement is kept though its replica has made one about a later outcome, since it is still in
/// dispute.
fn is_kept(statement: &Statement, later: DecisionKey, disputes: &[Dispute]) -> bool {
    statement.key.index < later.index && disputes.iter().any(|dispute| dispute.key == statement.key)
}

impl Paths {
    /// Returns true if no claim was made or received, and no stream has ended.
    #[inline]
    fn is_empty(&self) -> bool {
        let Self { asking, heard, said, disputes, ended } = self;
        asking.is_empty() && heard.is_empty() && said.is_empty() && disputes.is_empty() && ended.is_empty()
    }

    fn asks(&self, key: DecisionKey) -> Option<Question> {
        self.asking.iter().find(|(asked, _)| *asked == key).map(|(_, question)| *question)
    }

    /// Records a question. Returns true if it is new.
    fn record_asking(&mut self, key: DecisionKey, question: Question) -> bool {
        if self.asks(key) == Some(question) {
            return false;
        }
        self.asking.retain(|(asked, _)| asked.stream != key.stream);
        self.asking.push((key, question));
        true
    }

    fn dispute(&self, key: DecisionKey) -> Option<&Dispute> {
        self.disputes.iter().find(|dispute| dispute.key == key)
    }

    /// The dispute about an outcome, which is begun if none exists. `others` are the live siblings.
    pub(super) fn open(&mut self, key: DecisionKey, decided: Option<Decided>, others: ReplicaSet) -> &mut Dispute {
        let place = self.disputes.iter().position(|dispute| dispute.key == key).unwrap_or_else(|| {
            self.disputes.push(Dispute { key, decided: None, author_is_gone: false, is_left: false, verdict: None });
            self.disputes.len() - 1
        });
        let dispute = &mut self.disputes[place];
        if let (None, Some(decided)) = (dispute.decided, decided) {
            dispute.decided = Some(decided);
            dispute.author_is_gone = !others.contains(decided.by);
        }
        dispute
    }

    /// Ends a dispute about a receive whose source another replica had decided, because `by` has decided it anew.
    pub(super) fn decided_anew(&mut self, key: DecisionKey, by: ReplicaIndex) {
        let is_other = |dispute: &Dispute| dispute.decided.is_some_and(|decided| decided.by != by);
        self.disputes.retain(|dispute| dispute.key != key || !is_other(dispute));
    }

    /// Number of disputes and statements that are kept.
    #[cfg(test)]
    pub(super) fn kept_count(&self) -> usize {
        self.disputes.len() + self.heard.len() + self.said.len()
    }

    /// In a copy, drops the statements of its source, and those that the source had received.
    pub(super) fn take_place(&mut self) {
        self.heard.clear();
        self.said.clear();
        self.disputes.clear();
    }
}

impl Replica {
    /// Asks for the outcome of a call that depends on timing. Streams are asked in order of their indices, each index
    /// until it is decided and not again. An outcome that was decided for another question is not handed out. Then the
    /// paths of this process and its leader have parted, and the answer is `Wait` until it is known who is wrong.
    ///
    /// Wildcard receives use [`Replica::post_wildcard`] instead.
    pub fn lookup(&mut self, key: DecisionKey, question: Question) -> Lookup {
        if self.has(Mutation::LeaderTrusted) {
            let outcome = self.decisions.take(key, &mut self.outputs);
            return outcome.map_or_else(|| self.unknown(), Lookup::Decided);
        }
        match self.decisions.ask(key, &question, &mut self.outputs) {
            OutcomeAnswer::Outcome(outcome) => {
                self.outcome_passed(key);
                Lookup::Decided(outcome)
            }
            OutcomeAnswer::Nothing => {
                self.claim_unknown(key, question);
                self.unknown()
            }
            OutcomeAnswer::Other(decided) => self.contradict(key, question, decided),
        }
    }

    /// Returns true if the next outcome of a stream was decided for this question, and false if for another. `None` if
    /// it is not known. A mismatch is no contradiction yet, since the caller may pass the outcome over
    /// ([`Replica::take`]).
    #[must_use]
    pub fn fits(&self, key: DecisionKey, question: Question) -> Option<bool> {
        self.decisions.decided(key).map(|decided| decided.question == self.decisions.compared(key, &question))
    }

    /// The leader that decided an outcome. `None` if it is not known.
    #[must_use]
    pub fn author(&self, key: DecisionKey) -> Option<ReplicaIndex> {
        self.decisions.decided(key).map(|decided| decided.by)
    }

    /// Number of places of the own rank.
    #[must_use]
    pub fn degree(&self) -> u16 {
        self.world.degree(self.me.rank)
    }

    /// Takes an outcome, for whatever question it was decided. For readings of clocks in programs with threads, whose
    /// replicas need not make the same.
    pub fn take(&mut self, key: DecisionKey) -> Option<crate::outcome::Outcome> {
        let outcome = self.decisions.take(key, &mut self.outputs)?;
        self.outcome_passed(key);
        Some(outcome)
    }

    /// Number of outcomes of a stream that this process has taken or decided, or of messages of a channel that it has
    /// sent.
    #[must_use]
    pub fn passed(&self, stream: StreamId) -> u64 {
        match stream {
            StreamId::Channel(to, context) => self.outboxes.get((to, context)).map_or(0, |outbox| outbox.next().0),
            _ => self.decisions.passed(stream),
        }
    }

    fn unknown(&self) -> Lookup {
        if self.decisions.is_deciding() { Lookup::MustDecide } else { Lookup::Wait }
    }

    /// Returns true if a majority asks for the same change, so that it may be made. If replicas differ without a
    /// majority, the leader's side is taken once that was reported.
    ///
    /// In ranks of three replicas or more a change waits for more than its leader. With two replicas a majority would
    /// be both, so a difference is found when the second one comes there.
    #[must_use]
    pub fn is_backed(&self, key: DecisionKey) -> bool {
        if !self.votes_on_changes() {
            return true;
        }
        match self.judge_claims(key, None) {
            Judged::Open => false,
            Judged::Agreed => true,
            Judged::Differ { finding: PathFinding::Outvoted(wrong), parted, .. } => {
                let is_wrong = wrong.contains(self.me.index);
                !is_wrong || (!self.corrects && !parted.contains(self.me.index))
            }
            Judged::Differ { .. } => !self.is_path_left(key),
        }
    }

    fn votes_on_changes(&self) -> bool {
        let degree = self.world.degree(self.me.rank);
        self.votes_on_changes
            && degree >= MAJORITY_DEGREE
            && self.live(self.me.rank).len() >= 2
            && !self.has(Mutation::ChangeUnbacked)
    }

    /// Makes changes that others can see wait for a majority from now on, in ranks of three replicas or more.
    pub fn vote_on_changes(&mut self, votes: bool) {
        self.votes_on_changes = votes;
    }

    /// Returns true if siblings ask if a thread of this process has passed a place. Answer with
    /// [`Replica::record_place`].
    #[must_use]
    #[inline]
    pub fn has_questions(&self) -> bool {
        !self.paths.heard.is_empty() && self.questions().next().is_some()
    }

    /// The threads that siblings ask about: if they have passed a place, or have sent a message.
    pub fn questions(&self) -> impl Iterator<Item = u64> {
        let open = self.paths.heard.iter().filter(|statement| {
            let key = statement.key;
            let has_answered = self.paths.said.iter().any(|(said, _)| said.of(key).is_some());
            let is_ahead = self.passed(key.stream) <= key.index && self.asks(key).is_none();
            (is_ahead || self.sent(key).is_some()) && !has_answered
        });
        open.filter_map(|statement| statement.asks_about(statement.key.stream)).map(|place| place.thread)
    }

    /// Drops statements about messages that this process has sent and that all receivers have settled. A program may
    /// use any number of channels, and all claims are checked with every frame.
    pub fn forget_settled_claims(&mut self) {
        let Paths { heard, said, .. } = &self.paths;
        if heard.is_empty() && said.is_empty() {
            return;
        }
        let is_open = |key: DecisionKey| {
            let is_channel = matches!(key.stream, StreamId::Channel(..));
            let has_gone = is_channel && self.passed(key.stream) > key.index && self.sent(key).is_none();
            !has_gone || self.paths.dispute(key).is_some()
        };
        let heard = heard.iter().filter(|heard| is_open(heard.key)).copied().collect();
        let said = said.iter().filter(|(said, _)| is_open(said.key)).copied().collect();
        (self.paths.heard, self.paths.said) = (heard, said);
    }

    /// Notes that a thread of this process is here, and not in the midst of a question. Answers siblings that ask about
    /// that.
    pub fn record_place(&mut self, here: Place) {
        let asked = self.paths.heard.clone();
        for statement in asked {
            let key = statement.key;
            let Some(place) = statement.asks_about(key.stream).filter(|place| place.thread == here.thread) else {
                continue;
            };
            if let Some(question) = self.sent(key).filter(|_| self.said(key).is_none()) {
                self.claim_sent(key, question);
                continue;
            }
            if self.is_before(key) {
                self.record_decided(key.stream, here);
                continue;
            }
            let has_passed = here.is_past(&place) && self.passed(key.stream) <= key.index;
            if has_passed && self.asks(key).is_none() && self.said(key).is_none() {
                self.say(key, Claim::At(here), None);
                self.judge_path(key);
            }
        }
    }

    /// Returns true if this process has not come to the outcome or message before this one. It makes a statement about
    /// that first, since a statement about a later one implies that earlier ones were taken.
    fn is_before(&self, key: DecisionKey) -> bool {
        !matches!(key.stream, StreamId::Match(_)) && self.passed(key.stream) < key.index
    }

    /// Notes the place of a thread. It may be past the place where the leader asked for this process's next outcome.
    fn record_decided(&mut self, stream: StreamId, here: Place) {
        let key = DecisionKey { stream, index: self.passed(stream) };
        if self.said(key).is_none()
            && self.asks(key).is_none()
            && let Some(decided) = self.decisions.decided(key).filter(|it| here.is_past(&it.question.place))
        {
            self.contradict_at(key, here, decided);
        }
    }

    /// Threads of this process that have not asked for an outcome that is known. Call [`Replica::record_passed`] with
    /// their places now and then.
    #[must_use]
    pub fn threads_behind(&self) -> Vec<u64> {
        self.decisions.threads_behind()
    }

    /// Notes that a thread of this process is here, and not in the midst of a question. The trap: it may have passed
    /// the place where the leader asked for an outcome, and never ask again. Then nothing else would show that paths
    /// have parted.
    pub fn record_passed(&mut self, here: Place) {
        // Threads may end at another reading of a clock in each replica.
        if here.calls != Place::ENDED {
            self.record_decided(StreamId::Thread(here.thread), here);
        }
    }

    /// Retracts decisions of a lost leader that was outvoted, where they depend on the place of its own thread behind
    /// its departure from the path: the times at which requests are served. The thread of this process may wait for
    /// such a request, and ask for nothing more. Outcomes that it does ask for are retracted by [`Replica::lookup`].
    pub(super) fn retract_served(&mut self) {
        if !self.decisions.is_deciding() {
            return;
        }
        let void = self.paths.disputes.iter().filter(|dispute| dispute.is_over());
        let places: Vec<_> = void.filter_map(|dispute| Some(dispute.decided?.question.place)).collect();
        places.into_iter().for_each(|place| self.decisions.retract_served_after(place, &mut self.outputs));
    }

    /// Claims that this process is here, and does not ask for the outcome that the leader has decided.
    fn contradict_at(&mut self, key: DecisionKey, here: Place, decided: Decided) {
        self.paths.open(key, Some(decided), self.siblings());
        self.say(key, Claim::At(here), Some(decided));
        self.judge_path(key);
    }

    /// Returns true if this process has taken or decided an outcome. The trap: a receive that was withdrawn has no
    /// source, and a source that was decided at its index is for another receive.
    fn has_taken(&self, key: DecisionKey) -> bool {
        let is_withdrawn = matches!(key.stream, StreamId::Match(_)) && self.decisions.decided(key).is_some();
        self.passed(key.stream) > key.index && self.decisions.posted(key).is_none() && !is_withdrawn
    }

    /// Claims the outcomes for which this process waits, because it has waited for a while. A sibling may have passed
    /// the place where they are asked for. Nothing is claimed twice.
    pub fn state_waits(&mut self) {
        for (key, question) in self.paths.asking.clone() {
            if self.said(key) != Some(Claim::Asks(question)) {
                self.say(key, Claim::Asks(question), None);
                self.judge_path(key);
            }
        }
        for (key, question) in self.decisions.first_posted() {
            self.claim_posted(key, question, None);
            self.judge_path(key);
        }
    }

    /// Ends a thread of the program. It asks its stream no more, and a leader whose thread goes on does not wait for it
    /// ([`Replica::is_far_ahead`]). Threads may end at another reading of a clock in each replica, so further decisions
    /// of the leader are no contradiction.
    pub fn end_thread(&mut self, stream: StreamId) {
        self.decisions.end_stream(stream, &mut self.outputs);
    }

    /// Ends a stream of the program. Further outcomes that the leader has decided, or will decide, belong to another
    /// path.
    pub fn end_stream(&mut self, stream: StreamId) {
        self.end_thread(stream);
        self.paths.ended.push(stream);
        self.check_ends();
    }

    /// Contradicts outcomes that were decided after the end of this process's program.
    pub(super) fn check_ends(&mut self) {
        for stream in self.paths.ended.clone() {
            let key = DecisionKey { stream, index: self.passed(stream) };
            if self.said(key).is_none()
                && let Some(decided) = self.decisions.decided(key)
            {
                let end = Place { calls: Place::ENDED, ..decided.question.place };
                self.contradict_at(key, end, decided);
            }
        }
    }

    /// The question of this process at a position of a stream, for which it has no answer yet.
    fn asks(&self, key: DecisionKey) -> Option<Question> {
        self.paths.asks(key).or_else(|| self.decisions.posted(key))
    }

    /// Claims the wildcard receive that this process has posted at an index, unless it has claimed one before that.
    /// Siblings come to agree on the first one that differs.
    pub(super) fn claim_posted(&mut self, key: DecisionKey, question: Question, decided: Option<Decided>) {
        let has_said = |said: &Statement| said.key.stream == key.stream && said.key.index <= key.index;
        if !self.paths.said.iter().any(|(said, _)| has_said(said)) {
            self.say(key, Claim::Asks(question), decided);
        }
    }

    /// The other live replicas of the own rank.
    pub(super) fn siblings(&self) -> ReplicaSet {
        self.live(self.me.rank).without(ReplicaSet::only(self.me.index))
    }

    /// The statement of this process about an outcome.
    fn said(&self, key: DecisionKey) -> Option<Claim> {
        self.paths.said.iter().find_map(|(said, _)| said.of(key))
    }

    fn say(&mut self, key: DecisionKey, claim: Claim, decided: Option<Decided>) {
        let Paths { said, disputes, .. } = &mut self.paths;
        said.retain(|(said, _)| !said.is_replaced_by(key) || is_kept(said, key, disputes));
        said.push((Statement { by: self.me.index, key, claim }, decided));
        for index in self.siblings().iter() {
            self.transmit(ReplicaId { rank: self.me.rank, index }, Frame::Claim { key, claim, decided });
        }
    }

    /// Handles a question whose outcome is not known yet, or is to be decided here.
    fn claim_unknown(&mut self, key: DecisionKey, question: Question) {
        let is_voted = question.call == Call::Change && self.votes_on_changes();
        let has_strays = !self.decisions.strays(key, &question).is_empty();
        if !is_voted && !has_strays && self.paths.heard.is_empty() && self.decisions.is_deciding() {
            return;
        }
        let is_new = self.paths.record_asking(key, question);
        let differs = |other: &Statement| other.key == key && other.claim != Claim::Asks(question);
        let is_contradicted = is_new && (is_voted || self.paths.heard.iter().any(differs));
        if is_contradicted || has_strays && self.said(key) != Some(Claim::Asks(question)) {
            self.say(key, Claim::Asks(question), None);
            self.judge_path(key);
        }
    }

    /// Siblings with another question, for which the leader does not wait: no vote can decide who is right, or the
    /// outvoted replica is not ended.
    pub(super) fn strays_passed_over(&self, key: DecisionKey, question: &Question) -> ReplicaSet {
        let verdict = self.paths.dispute(key).and_then(|dispute| dispute.verdict.as_ref());
        let goes_on = |verdict: &Verdict| match verdict.finding {
            PathFinding::Undecidable => true,
            PathFinding::Outvoted(_) => !self.corrects,
            PathFinding::Disputed => false,
        };
        if verdict.is_some_and(goes_on) { self.decisions.strays(key, question) } else { ReplicaSet::EMPTY }
    }

    /// Number of messages about which this process has made statements that it keeps.
    pub(super) fn claims_on_messages(&self) -> usize {
        self.paths.said.iter().filter(|(said, _)| matches!(said.key.stream, StreamId::Channel(..))).count()
    }

    /// Claims a message that this process has sent, and that other replicas have not announced to a receiver.
    pub(super) fn claim_sent(&mut self, key: DecisionKey, question: Question) {
        if self.said(key) != Some(Claim::Asks(question)) {
            self.say(key, Claim::Asks(question), None);
            self.judge_path(key);
        }
    }

    /// Handles a question for whose outcome another question was decided.
    fn contradict(&mut self, key: DecisionKey, question: Question, decided: Decided) -> Lookup {
        let is_new = self.paths.record_asking(key, question);
        // It may have asked before it knew of the decision, and have received a sibling's claim of a dispute.
        let has_said = self.said(key) == Some(Claim::Asks(question));
        if is_new || !has_said || self.paths.dispute(key).is_none_or(|it| it.decided.is_none()) {
            self.paths.open(key, Some(decided), self.siblings());
            self.say(key, Claim::Asks(question), Some(decided));
            self.judge_path(key);
        }
        self.resolve(key, question, decided)
    }

    /// Decides the answer to a question for whose outcome another question was decided.
    fn resolve(&mut self, key: DecisionKey, question: Question, decided: Decided) -> Lookup {
        let Some(dispute) = self.paths.dispute(key) else { return Lookup::Wait };
        let (author_is_gone, verdict) = (dispute.author_is_gone, dispute.verdict.clone());
        let Some(Verdict { finding, others }) = verdict else { return Lookup::Wait };
        let only_data = question.is_same_call(&decided.question);
        let author_is_wrong = matches!(finding, PathFinding::Outvoted(_)) && others.contains(decided.by);
        if only_data && !(author_is_wrong && self.corrects) {
            return self.take(key).map_or(Lookup::Wait, Lookup::Decided);
        }
        let is_void = match finding {
            PathFinding::Outvoted(_) => author_is_wrong && author_is_gone,
            PathFinding::Undecidable => true,
            PathFinding::Disputed => false,
        };
        if !is_void || !self.decisions.is_deciding() {
            return Lookup::Wait;
        }
        self.decisions.retract_served_after(decided.question.place, &mut self.outputs);
        self.decisions.retract(key, &question, &mut self.outputs);
        self.paths.disputes.retain(|dispute| dispute.key.stream != key.stream);
        self.unknown()
    }

    /// Returns true if this process has claimed another question. It may have to take the outcome without a majority,
    /// which is no vote for it.
    fn differs_from(&self, key: DecisionKey, decided: Decided) -> bool {
        matches!(self.said(key), Some(Claim::Asks(question)) if question != decided.question)
            && !decided.question.is_in_vain()
    }

    /// Notes that this process has taken or decided an outcome. Siblings that dispute it are told.
    #[inline]
    pub(super) fn outcome_passed(&mut self, key: DecisionKey) {
        if !self.paths.is_empty() {
            self.disputed_outcome_passed(key);
        }
    }

    fn disputed_outcome_passed(&mut self, key: DecisionKey) {
        self.paths.asking.retain(|(asked, _)| asked.stream != key.stream || asked.index > key.index);
        // The outcome was decided anew if the leader of the dispute was outvoted and is gone, or if the next leader has
        // retracted it.
        let is_retracted = self.decisions.is_retracted(key);
        let is_anew = |dispute: &Dispute| dispute.is_over() || is_retracted && dispute.author_is_gone;
        self.paths.disputes.retain(|dispute| dispute.key != key || !is_anew(dispute));
        let decided = self.paths.dispute(key).and_then(|dispute| dispute.decided);
        match (decided, self.said(key)) {
            // It takes an outcome with other data than its own. A sibling that learns later of its progress must know
            // that it differs.
            (Some(decided), Some(said)) if self.differs_from(key, decided) => self.say(key, said, Some(decided)),
            (Some(_), _) => self.say(key, self.claim_taken(key), None),
            (None, _) => {}
        }
        if decided.is_some() {
            self.judge_path(key);
        }
        let is_disputed = |paths: &Paths, of: DecisionKey| paths.disputes.iter().any(|dispute| dispute.key == of);
        let is_in_order = !matches!(key.stream, StreamId::Match(_));
        let (decisions, passed) = (&self.decisions, self.passed(key.stream));
        let has_source = |of: DecisionKey| of.index < passed && decisions.posted(of).is_none();
        let is_past = |of: DecisionKey| if is_in_order { of.index <= key.index } else { has_source(of) };
        let past = |of: DecisionKey| of.stream == key.stream && is_past(of);
        let paths = &self.paths;
        let kept = paths.heard.iter().filter(|heard| !past(heard.key) || is_disputed(paths, heard.key));
        self.paths.heard = kept.copied().collect();
        let paths = &self.paths;
        let kept = paths.said.iter().filter(|(said, _)| !past(said.key) || is_disputed(paths, said.key));
        self.paths.said = kept.copied().collect();
    }

    pub(super) fn handle_claim(
        &mut self,
        from: ReplicaIndex,
        key: DecisionKey,
        claim: Claim,
        decided: Option<Decided>,
    ) -> Result<(), ProtocolError> {
        self.forget_settled_claims();
        let blame = |breach| ProtocolError { by: ReplicaId { rank: self.me.rank, index: from }, breach };
        let degree = self.world.degree(self.me.rank);
        if let Some(Decided { by: ReplicaIndex(by), .. }) = decided
            && by >= degree
        {
            return Err(blame(Breach::NoSuchLeader { by, degree }));
        }
        let paths = &self.paths;
        if paths.heard.iter().filter(|heard| heard.by == from).count() >= CLAIMS_MAX
            || paths.disputes.len() >= CLAIMS_MAX * usize::from(degree)
        {
            return Err(blame(Breach::TooManyClaims { max: CLAIMS_MAX }));
        }
        let Paths { heard, disputes, .. } = &mut self.paths;
        heard.retain(|heard| heard.by != from || !heard.is_replaced_by(key) || is_kept(heard, key, disputes));
        heard.push(Statement { by: from, key, claim });
        let has_passed = self.has_taken(key);
        // An outcome that this process has taken may have been decided anew.
        let may_be_new = matches!(key.stream, StreamId::Match(_)) || self.decisions.is_retracted(key);
        let is_of_lost = |decided: &Decided| has_passed && !self.live(self.me.rank).contains(decided.by);
        let is_over = may_be_new && decided.as_ref().is_some_and(is_of_lost);
        let decided = decided.or_else(|| self.received_otherwise(key, claim));
        if let Some(decided) = decided.filter(|_| !is_over) {
            self.paths.open(key, Some(decided), self.siblings());
            let taken = self.claim_taken(key);
            if has_passed && self.said(key) != Some(taken) && !self.differs_from(key, decided) {
                self.say(key, taken, None);
            }
        }
        if let Some(question) = self.decisions.posted(key) {
            self.claim_posted(key, question, None);
        } else if let Some(question) = self.paths.asks(key).or_else(|| self.sent(key))
            && (claim != Claim::Asks(question) || decided.is_some())
            && self.said(key) != Some(Claim::Asks(question))
        {
            self.say(key, Claim::Asks(question), None);
        }
        // A statement about a later outcome implies that earlier ones were taken, which may complete a vote on them.
        let is_before = |it: &&Dispute| it.key.stream == key.stream && it.key.index < key.index && it.verdict.is_none();
        let before: Vec<_> = self.paths.disputes.iter().filter(is_before).map(|dispute| dispute.key).collect();
        before.into_iter().chain([key]).for_each(|key| self.judge_path(key));
        // Questions that wait for siblings, or for a verdict, are asked again.
        self.outputs.push_back(Output::Decided { key });
        Ok(())
    }

    /// The claim of this process about an outcome that it has taken. The source of a receive may be decided anew for
    /// another receive, so the receive that took it is named.
    fn claim_taken(&self, key: DecisionKey) -> Claim {
        self.decisions.received(key).map_or(Claim::Taken, |received| Claim::Asks(received.question))
    }

    /// The decision by which this process took a source, if a sibling has posted another receive at that index. The
    /// sibling knows of no decision for its receive, so it has begun no dispute.
    fn received_otherwise(&self, key: DecisionKey, claim: Claim) -> Option<Decided> {
        self.decisions.received(key).filter(|received| claim.is_other_receive(&received.question))
    }

    /// Begins a dispute about a source that was taken here, if a sibling has claimed before to have posted another
    /// receive.
    pub(super) fn compare_received(&mut self, key: DecisionKey, received: Decided) {
        let differs = |heard: &Statement| heard.key == key && heard.claim.is_other_receive(&received.question);
        if self.paths.heard.iter().any(differs) {
            self.paths.open(key, Some(received), self.siblings());
        }
    }

    /// A replica's claim about an outcome. If it has taken the outcome, that is the question for which it was decided.
    fn claim_of(&self, index: ReplicaIndex, key: DecisionKey, decided: Option<Decided>) -> Option<Claim> {
        let claim = if index != self.me.index {
            let heard = self.paths.heard.iter().filter(|heard| heard.by == index);
            heard.filter_map(|heard| heard.of(key)).next()
        } else if let Some(question) = self.sent(key) {
            Some(Claim::Asks(question))
        } else if let Some(question) = self.decisions.posted(key) {
            Some(Claim::Asks(question))
        } else if let Some(decided) = decided
            && self.differs_from(key, decided)
        {
            self.said(key)
        } else if self.has_taken(key) {
            Some(self.claim_taken(key))
        } else {
            self.paths.asks(key).map(Claim::Asks).or_else(|| self.said(key))
        };
        let own = decided.filter(|decided| decided.by == index && index != self.me.index);
        // The outcome that it has taken may have been decided anew by then.
        let is_void = own.is_none() && self.paths.dispute(key).is_some_and(Dispute::is_over);
        match claim {
            Some(Claim::Taken) if is_void => None,
            Some(Claim::Taken) | None if own.is_some() => own.map(|decided| Claim::Asks(decided.question)),
            Some(Claim::Taken) => decided.map(|decided| Claim::Asks(decided.question)),
            Some(Claim::Asks(question)) => {
                let is_in_vain = decided.is_some_and(|decided| decided.question.is_in_vain());
                Some(Claim::Asks(if is_in_vain { question.in_vain() } else { question }))
            }
            other => other,
        }
    }

    fn judge_claims(&self, key: DecisionKey, decided: Option<Decided>) -> Judged {
        let live = self.live(self.me.rank);
        let mut claims: Vec<_> = live.iter().map(|index| (index, self.claim_of(index, key, decided))).collect();
        if let Some(Decided { by, question }) = decided
            && !live.contains(by)
        {
            claims.push((by, Some(Claim::Asks(question))));
        }
        let unrelated = Kinship::default();
        let is_ignored = self.has(Mutation::PathKinshipIgnored);
        let kinship = if is_ignored { &unrelated } else { self.view.kinship(self.me.rank) };
        let leader = self.view.leader(self.me.rank).map_or(self.me.index, |leader| leader.index);
        judge(&claims, kinship, leader)
    }

    /// Judges the claims on an outcome, and reports a difference.
    pub(super) fn judge_path(&mut self, key: DecisionKey) {
        let known = self.decisions.decided(key);
        let decided = self.paths.dispute(key).and_then(|dispute| dispute.decided).or(known);
        let Judged::Differ { finding, others, parted } = self.judge_claims(key, decided) else { return };
        let is_left = finding == PathFinding::Undecidable && self.is_path_left(key);
        let dispute = self.paths.open(key, decided, self.siblings());
        if dispute.is_open() {
            // Some replicas have taken the leader's side since, and no newcomer has made a claim.
            return;
        }
        if is_left {
            if !std::mem::replace(&mut dispute.is_left, true) {
                self.report_path(key, decided, PathFinding::Disputed, ReplicaSet::EMPTY);
            }
            return;
        }
        let verdict = Some(Verdict { finding: finding.clone(), others });
        if dispute.verdict == verdict {
            return;
        }
        dispute.verdict = verdict;
        self.report_path(key, decided, finding, parted);
        self.retract_served();
        self.outputs.push_back(Output::Decided { key });
        self.forget_judged();
    }

    /// Drops the oldest disputes that are judged and behind this process. Two replicas that write different bytes may
    /// do so at each write, and all kept disputes are checked with each claim.
    fn forget_judged(&mut self) {
        let is_behind = |it: &&Dispute| it.verdict.is_some() && self.has_taken(it.key);
        let behind: Vec<_> = self.paths.disputes.iter().filter(is_behind).map(|dispute| dispute.key).collect();
        let surplus = behind.len().saturating_sub(JUDGED_MAX);
        let gone: Vec<_> = behind.into_iter().take(surplus).collect();
        if gone.is_empty() {
            return;
        }
        let Paths { heard, said, disputes, .. } = &mut self.paths;
        disputes.retain(|dispute| !gone.contains(&dispute.key));
        heard.retain(|heard| !gone.contains(&heard.key));
        said.retain(|(said, _)| !gone.contains(&said.key));
    }

    fn report_path(&mut self, key: DecisionKey, decided: Option<Decided>, finding: PathFinding, parted: ReplicaSet) {
        let live = self.live(self.me.rank);
        let claims = live.iter().filter_map(|index| Some((index, self.claim_of(index, key, decided)?))).collect();
        let report = PathReport { key, claims, finding, parted: parted.intersection(live), view: self.view.number };
        self.outputs.push_back(Output::Parted(Box::new(report)));
    }

    /// Returns true if a difference without a majority waits for arbiters.
    fn is_path_left(&self, key: DecisionKey) -> bool {
        let dispute = self.paths.dispute(key);
        let is_kept = self.has(Mutation::DisputeKept) && dispute.is_some_and(|dispute| dispute.is_left);
        (self.asks_arbiters(self.me.rank) || is_kept) && dispute.is_none_or(|dispute| dispute.verdict.is_none())
    }

    /// Judges the differences that are left to arbiters again, since there may be no arbiter left.
    pub(super) fn judge_disputed_paths(&mut self) {
        let left: Vec<_> = self.paths.disputes.iter().filter(|it| it.is_left).map(|dispute| dispute.key).collect();
        left.into_iter().for_each(|key| self.judge_path(key));
    }

    /// Applies a change of the sphere's membership: drops statements of lost replicas, and tells newcomers about
    /// disputes.
    pub(super) fn change_paths(&mut self, lost: ReplicaSet, newcomers: ReplicaSet) {
        if self.paths.is_empty() {
            return;
        }
        self.paths.heard.retain(|heard| !lost.contains(heard.by) && !newcomers.contains(heard.by));
        for dispute in &mut self.paths.disputes {
            dispute.author_is_gone |= dispute.decided.is_some_and(|decided| lost.contains(decided.by));
        }
        let live = self.live(self.me.rank);
        let paths = &mut self.paths;
        let is_settled = |dispute: &Dispute| {
            let verdict = dispute.verdict.as_ref();
            verdict.is_some_and(|verdict| verdict.others.intersection(live).is_empty())
        };
        let (asking, decisions) = (&paths.asking, &self.decisions);
        // This process asks for the outcome, or will.
        let matters = |of: DecisionKey| asking.iter().any(|(key, _)| *key == of) || decisions.decided(of).is_some();
        paths.disputes.retain(|dispute| !is_settled(dispute) || matters(dispute.key));
        for dispute in &mut self.paths.disputes {
            if dispute.is_open() {
                dispute.verdict = None;
            }
            // Copies that stand ready later are asked anew.
            dispute.is_left &= newcomers.is_empty();
        }
        newcomers.without(ReplicaSet::only(self.me.index)).iter().for_each(|index| self.repeat_claims(index));
        let keys: Vec<_> = self.paths.disputes.iter().map(|dispute| dispute.key).collect();
        let asked: Vec<_> = self.paths.asking.iter().map(|(key, _)| *key).collect();
        keys.into_iter().chain(asked).for_each(|key| self.judge_path(key));
        self.retract_served();
        self.decisions.ask_again(&mut self.outputs);
    }

    /// Repeats all statements of this process to one sibling.
    pub(super) fn repeat_claims(&mut self, index: ReplicaIndex) {
        let to = ReplicaId { rank: self.me.rank, index };
        for (Statement { key, claim, .. }, decided) in self.paths.said.clone() {
            self.transmit(to, Frame::Claim { key, claim, decided });
        }
    }
}
