//! Agreement within a sphere on outcomes that depend on timing, and output commit.
//!
//! The leader decides, numbers its decisions 0, 1, 2 … over all streams, and sends them to its followers. Each follower
//! holds a prefix of that one sequence. A decision is *stable* when every live replica of the sphere holds it. Messages
//! that a process sends after it made or learned of a decision leave it only when that decision is stable. Otherwise
//! the leader and its partner could act on an outcome that dies with the leader, and the next leader would decide anew.
//!
//! ```text
//!   leader     decide 7 ── send m (held) ──────────────► m goes out
//!                 │                    ▲ stable = 8          │
//!       Decisions{7,..}          DecisionAck{8}           Stable{8}   (only with three live replicas or more: of two,
//!                 ▼                    │                     ▼         the follower knows that both hold it)
//!   follower   holds 7 ────────────────┘               its m goes out
//! ```
//!
//! When the leader dies, each follower sends its decisions to the new leader (`DecisionSync`), and ignores all other
//! replicas from then on. The new leader waits for all live siblings. All hold prefixes of one sequence, so the longest
//! is the union. The new leader sends each sibling the decisions that it lacks, and continues from there.

mod stream;
mod times;

use self::stream::Stream;
pub use self::times::Timed;
use crate::error::{Breach, ProtocolError};
use crate::frame::{Frame, Output};
use crate::hashable_map::{HashableMap, Table};
use crate::lag::Lag;
use crate::outcome::{Decided, DecisionItem, DecisionKey, Outcome, Place, Question, StreamId};
use crate::path::MAJORITY_DEGREE;
use redrt_types::{ReplicaId, ReplicaIndex, ReplicaSet, VirtualRank};
use std::collections::VecDeque;

/// Maximum number of outcomes that the leader buffers before it sends them. A polled `false` counts as one.
const BATCH: u32 = 64;

/// Number of unstable decisions from which a leader puts off decisions that can wait.
const UNSTABLE_MAX: u64 = 1 << 10;

/// Maximum number of ballots of one sibling on open outcomes. It needs one for each thread that cancels a receive.
const BALLOTS_MAX: usize = 1 << 12;

/// The answer of `Replica::lookup`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Lookup {
    /// The outcome, which is handed out once.
    Decided(Outcome),
    /// This process decides: determine the outcome and call `Replica::decide`.
    MustDecide,
    /// The leader's decision is not known yet: handle frames and ask again.
    Wait,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Role {
    /// The only live replica, for which every decision is stable.
    Sole,
    Leader,
    /// Leader in the view, while these siblings have not sent their decisions.
    Syncing {
        missing: ReplicaSet,
    },
    /// `in_sync` is false from a change of leader until the new leader has sent a frame.
    Follower {
        leader: ReplicaIndex,
        in_sync: bool,
    },
}

/// One replica's knowledge of the decisions of its sphere.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Decisions {
    me: ReplicaId,
    live: ReplicaSet,
    role: Role,
    /// Number of decisions that are known.
    count: u64,
    /// Number of decisions that this leader has sent to its followers.
    announced: u64,
    /// Number of decisions that all live replicas hold.
    stable: u64,
    /// Number of stable decisions, as of the leader's latest report.
    told: u64,
    /// Decisions `kept..count`. `kept` is the number of stable decisions, unless a newcomer may lack some of them.
    log: VecDeque<DecisionItem>,
    kept: u64,
    /// True while newcomers are expected, for which stable decisions are kept.
    pinned: bool,
    /// Newcomers, and siblings whose connection was lost, that have not reported their decisions to this leader.
    silent: ReplicaSet,
    /// Number of outcomes in the buffered decisions `announced..count`.
    buffered: u32,
    /// Number of decisions that each replica holds, by index. Used by the leader.
    held_by: Vec<u64>,
    /// Syncs that arrived before the view that makes this process the leader.
    early_syncs: Vec<(ReplicaIndex, u64, Vec<DecisionItem>)>,
    /// Ballots of siblings on open outcomes.
    ballots: Vec<(ReplicaIndex, Ballot)>,
    /// Ballots of this process on outcomes that it does not know yet.
    own_ballots: Vec<Ballot>,
    /// A planted bug: see `Mutation::SyncSkipped`.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) sync_skipped: bool,
    /// A planted bug: see `Mutation::SyncFromStable`.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) sync_from_stable: bool,
    /// A planted bug: see `Mutation::LeaderTrusted`.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) leader_trusted: bool,
    /// A planted bug: see `Mutation::AskersIgnored`.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) askers_ignored: bool,
    lag: Lag,
    streams: Table<StreamId, Stream>,
    /// Wildcard receives that are posted and have no source, with their questions.
    posted: HashableMap<DecisionKey, Question>,
    /// Wildcard receives whose source was decided since [`Decisions::news_of_sources`] was called. The leader is named
    /// if its source was taken.
    news_of_sources: Vec<(DecisionKey, Option<ReplicaIndex>)>,
    /// Digests of code that reads clocks at moments of its own ([`times`]).
    apart: HashableMap<u64, ()>,
}

/// A replica's vote on an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Ballot {
    key: DecisionKey,
    /// The question it was cast for. A replica on another path may have come to this outcome with another receive.
    question: Question,
    says: u64,
}

/// The knowledge of an outcome that a thread asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OutcomeAnswer {
    /// The outcome, which is taken.
    Outcome(Outcome),
    /// The outcome was decided for another question.
    Other(Decided),
    /// Nothing is known of the outcome.
    Nothing,
}

impl Decisions {
    pub(crate) fn new(me: ReplicaId, degree: u16, live: ReplicaSet, leader: ReplicaIndex) -> Self {
        let role = match leader {
            _ if live.len() == 1 => Role::Sole,
            leader if leader == me.index => Role::Leader,
            leader => Role::Follower { leader, in_sync: true },
        };
        Self {
            me,
            live,
            role,
            count: 0,
            announced: 0,
            stable: 0,
            told: 0,
            log: VecDeque::new(),
            kept: 0,
            pinned: false,
            silent: ReplicaSet::EMPTY,
            buffered: 0,
            held_by: vec![0; usize::from(degree)],
            early_syncs: Vec::new(),
            ballots: Vec::new(),
            own_ballots: Vec::new(),
            #[cfg(any(test, feature = "simulation"))]
            sync_skipped: false,
            #[cfg(any(test, feature = "simulation"))]
            sync_from_stable: false,
            #[cfg(any(test, feature = "simulation"))]
            leader_trusted: false,
            #[cfg(any(test, feature = "simulation"))]
            askers_ignored: false,
            lag: Lag::default(),
            streams: Table::new(),
            posted: HashableMap::default(),
            news_of_sources: Vec::new(),
            apart: HashableMap::default(),
        }
    }

    /// Returns true if a bug is planted by which outcomes are taken for whatever question.
    fn trusts_leader(&self) -> bool {
        #[cfg(any(test, feature = "simulation"))]
        return self.leader_trusted;
        #[cfg(not(any(test, feature = "simulation")))]
        false
    }

    pub(crate) fn is_deciding(&self) -> bool {
        matches!(self.role, Role::Sole | Role::Leader)
    }

    /// Returns true if it decides, or has received a frame of its leader since that became the leader.
    pub(crate) fn is_in_step(&self) -> bool {
        self.is_deciding() || matches!(self.role, Role::Follower { in_sync: true, .. })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn stable(&self) -> u64 {
        self.stable
    }

    /// Looks an outcome up, and takes it if it was decided for the same question.
    pub(crate) fn ask(
        &mut self,
        key: DecisionKey,
        question: &Question,
        outputs: &mut VecDeque<Output>,
    ) -> OutcomeAnswer {
        let Some(stream) = self.streams.get_mut(key.stream) else { return OutcomeAnswer::Nothing };
        let Some(item) = stream.known(key.index) else { return OutcomeAnswer::Nothing };
        let decided = item.question_at(key.index);
        if decided != item.compared(question) {
            return OutcomeAnswer::Other(Decided { by: item.by, question: decided });
        }
        let Some(outcome) = stream.take(key.index) else { return OutcomeAnswer::Nothing };
        self.taken(key, outputs);
        OutcomeAnswer::Outcome(outcome)
    }

    /// Takes a known outcome, for whatever question it was decided.
    pub(crate) fn take(&mut self, key: DecisionKey, outputs: &mut VecDeque<Output>) -> Option<Outcome> {
        let outcome = self.streams.get_mut(key.stream)?.take(key.index)?;
        self.taken(key, outputs);
        Some(outcome)
    }

    fn taken(&mut self, key: DecisionKey, outputs: &mut VecDeque<Output>) {
        self.forget_ballots(key);
        if !self.lag.is_behind() {
            return;
        }
        let waiting = self.streams.get(key.stream).map_or(0, |stream| stream.known_from(key.index));
        if self.lag.asked(key.stream, waiting) {
            self.report_lag(outputs);
        }
    }

    /// Number of outcomes of a stream that this process has taken or decided.
    pub(crate) fn passed(&self, stream: StreamId) -> u64 {
        self.streams.get(stream).map_or(0, |stream| stream.passed)
    }

    /// The question for which an outcome was decided, and its leader, if known here.
    pub(crate) fn decided(&self, key: DecisionKey) -> Option<Decided> {
        self.known(key).map(|item| Decided { by: item.by, question: item.question_at(key.index) })
    }

    /// The form of a question in which it is compared with the one decided.
    pub(crate) fn compared(&self, key: DecisionKey, question: &Question) -> Question {
        self.known(key).map_or(*question, |item| item.compared(question))
    }

    /// The known decision on an outcome that was not asked for yet.
    fn known(&self, key: DecisionKey) -> Option<&DecisionItem> {
        self.streams.get(key.stream)?.known(key.index)
    }

    /// Returns true if the leader should put off decisions on a stream, because followers are too far behind. Decisions
    /// that they have not received or not asked for take memory, and messages wait until followers hold them.
    pub(crate) fn is_far_ahead(&self, stream: StreamId) -> bool {
        self.count - self.stable > UNSTABLE_MAX || self.lag.sibling_behind(stream).is_some()
    }

    pub(crate) fn sibling_behind(&self, stream: StreamId) -> Option<ReplicaIndex> {
        self.lag.sibling_behind(stream)
    }

    pub(crate) fn go_ahead(&mut self, sibling: ReplicaIndex, stream: StreamId) {
        self.lag.go_ahead(sibling, stream);
    }

    /// Records that a wildcard receive was posted. Returns its source, if one was decided for it.
    pub(crate) fn post(&mut self, key: DecisionKey, question: Question, outputs: &mut VecDeque<Output>) -> Option<u32> {
        let stream = self.streams.get_or_insert_with(key.stream, Stream::default);
        stream.passed = key.index + 1;
        // A replica that has posted one receive more or less posts the same as its siblings later, perhaps at the same
        // places. The chained digest shows that their sources are not its own.
        let question = question.receive_after(if key.index == 0 { 0 } else { stream.chain });
        stream.chain = question.arguments;
        self.posted.insert(key, question);
        self.take_source(key, outputs)
    }

    /// Threads for which an outcome at a place of their own is known, and which have not asked for it. Readings of
    /// clocks do not count, since they are not voted on.
    pub(crate) fn threads_behind(&self) -> Vec<u64> {
        let is_at_place = |item: &DecisionItem| {
            let StreamId::Thread(thread) = item.key.stream else { return false };
            let place = item.question.place;
            let is_place = place.thread == thread && place.calls != Place::NOWHERE.calls;
            is_place && !matches!(item.outcome, Outcome::Clock { .. })
        };
        let known = self.streams.values().filter_map(|stream| stream.known(stream.passed));
        known.filter(|item| is_at_place(item)).map(|item| item.question.place.thread).collect()
    }

    /// The question of a posted wildcard receive that has no source yet.
    pub(crate) fn posted(&self, key: DecisionKey) -> Option<Question> {
        self.posted.get(&key).copied()
    }

    /// For each context, the first wildcard receive without a source that a thread has posted at a place of its own.
    pub(crate) fn first_posted(&self) -> Vec<(DecisionKey, Question)> {
        let is_somewhere = |question: &Question| question.place.thread != Place::NOWHERE.thread;
        let all = self.posted.iter().filter(|(_, question)| is_somewhere(question));
        let mut all: Vec<_> = all.map(|(key, question)| (*key, *question)).collect();
        all.sort_unstable();
        all.dedup_by_key(|(key, _)| key.stream);
        all
    }

    /// Drops a wildcard receive that needs no source any more.
    pub(crate) fn withdraw(&mut self, key: DecisionKey) {
        self.posted.remove(&key);
    }

    /// Number of outcomes of a stream that are known and not taken.
    pub(crate) fn known_count(&self, stream: StreamId) -> usize {
        self.streams.get(stream).map_or(0, |stream| stream.waiting.len())
    }

    /// Wildcard receives whose source was decided since the latest call, with the leader if its source was taken.
    pub(crate) fn news_of_sources(&mut self) -> Vec<(DecisionKey, Option<ReplicaIndex>)> {
        std::mem::take(&mut self.news_of_sources)
    }

    /// Takes the source of a posted receive, if it is known and was decided for this receive.
    fn take_source(&mut self, key: DecisionKey, outputs: &mut VecDeque<Output>) -> Option<u32> {
        let question = self.posted.get(&key)?;
        let trusts_leader = self.trusts_leader();
        let stream = self.streams.get(key.stream)?;
        stream.sources(key.index).next()?;
        let is_for_it = |item: &&DecisionItem| trusts_leader || item.question.is_same_receive(question);
        let Some(item) = stream.sources(key.index).find(is_for_it) else {
            self.news_of_sources.push((key, None));
            return None;
        };
        let Outcome::Source(source) = item.outcome else { return None };
        let by = item.by;
        self.news_of_sources.push((key, Some(by)));
        self.settle(key, by);
        if self.lag.asked(key.stream, self.known_count(key.stream) as u64) {
            self.report_lag(outputs);
        }
        Some(source)
    }

    /// Drops the decisions on a wildcard receive that has its source.
    fn settle(&mut self, key: DecisionKey, by: ReplicaIndex) {
        let posted = self.posted.remove(&key);
        let is_voted = self.held_by.len() >= usize::from(MAJORITY_DEGREE);
        if let Some(stream) = self.streams.get_mut(key.stream) {
            stream.forget_source(key.index);
            posted.filter(|_| is_voted).into_iter().for_each(|question| stream.receive(key.index, question, by));
        }
    }

    /// The receive that got this source here, and the leader that decided it. Only recent ones are kept.
    pub(crate) fn received(&self, key: DecisionKey) -> Option<Decided> {
        self.streams.get(key.stream)?.received(key.index)
    }

    /// Records the source of a wildcard receive. Sources arrive in the order in which receives were matched, and are
    /// kept by index. A new leader decides anew a source that its predecessor decided for another receive. The new
    /// leader may be the one that has left the path, so both decisions are kept.
    fn learn_source(&mut self, item: DecisionItem, outputs: &mut VecDeque<Output>) {
        let key = item.key;
        let is_taken = key.index < self.passed(key.stream) && !self.posted.contains_key(&key);
        if is_taken {
            return;
        }
        let stream = self.streams.get_or_insert_with(key.stream, Stream::default);
        stream.insert_source(item);
        if let (Some(source), StreamId::Match(context)) = (self.take_source(key, outputs), key.stream) {
            outputs.push_back(Output::WildcardDecided { context, index: key.index, source });
        } else if self.lag.learned(key.stream, self.known_count(key.stream) as u64) {
            self.report_lag(outputs);
        }
    }

    /// Voids sources and readings of a leader that left the path of the thread at this place. They lie after the place,
    /// so the thread has not taken them.
    fn forget_after(&mut self, place: Place) {
        self.streams.values_mut().for_each(|stream| stream.forget_after(place));
    }

    /// Ends a stream of this process. A leader no longer waits for it there.
    pub(crate) fn end_stream(&mut self, stream: StreamId, outputs: &mut VecDeque<Output>) {
        let mut is_news = self.lag.end(stream);
        if let StreamId::Thread(thread) = stream {
            is_news |= self.lag.end(StreamId::Readings(thread));
        }
        if is_news {
            self.report_lag(outputs);
        }
    }

    /// Reports to the leader the streams on which this follower is behind.
    fn report_lag(&self, outputs: &mut VecDeque<Output>) {
        if let Role::Follower { leader, .. } = self.role {
            self.transmit(leader, Frame::Behind { streams: self.lag.own().to_vec() }, outputs);
        }
    }

    pub(crate) fn handle_behind(&mut self, from: ReplicaIndex, streams: Vec<StreamId>) {
        // The frame may arrive before the view that makes this process the leader.
        self.lag.handle(from, streams);
    }

    /// The next outcome of a stream, if it is known, without taking it.
    pub(crate) fn peek(&self, key: DecisionKey) -> Option<&Outcome> {
        self.known(key).map(|item| &item.outcome)
    }

    pub(crate) fn decide(
        &mut self,
        key: DecisionKey,
        question: &Question,
        outcome: Outcome,
        outputs: &mut VecDeque<Output>,
    ) {
        if outcome != Outcome::Retracted {
            self.forget_ballots(key);
            if matches!(key.stream, StreamId::Match(_)) {
                self.settle(key, self.me.index);
            } else {
                self.streams.get_or_insert_with(key.stream, Stream::default).passed = key.index + 1;
            }
        }
        match self.role {
            Role::Sole => {
                self.push(key, question, outcome);
                self.announced = self.count;
                self.set_stable(self.count);
            }
            Role::Leader => {
                if !self.extend_run(key, question, &outcome) {
                    self.push(key, question, outcome);
                }
                self.buffered += 1;
                if self.buffered >= BATCH {
                    self.announce(outputs);
                }
            }
            _ => panic!("{} decides {key:?} but is {:?}", self.me, self.role),
        }
    }

    fn push(&mut self, key: DecisionKey, question: &Question, outcome: Outcome) {
        self.log.push_back(DecisionItem::new(key, *question, outcome, self.me.index));
        self.count += 1;
    }

    /// Voids an earlier leader's decisions on a stream from here on, because this leader's program has not followed its
    /// path.
    pub(crate) fn retract(&mut self, key: DecisionKey, question: &Question, outputs: &mut VecDeque<Output>) {
        self.forget_from(key);
        self.forget_after(question.place);
        self.decide(key, question, Outcome::Retracted, outputs);
    }

    /// Voids decisions to serve requests only after a thread has passed this place.
    pub(crate) fn retract_served_after(&mut self, place: Place, outputs: &mut VecDeque<Output>) {
        let void = self.streams.values().filter_map(|stream| stream.first_served_after(place));
        let void: Vec<_> = void.map(|item| (item.key, item.question)).collect();
        for (key, question) in void {
            self.forget_from(key);
            self.decide(key, &question, Outcome::Retracted, outputs);
            outputs.push_back(Output::Decided { key });
        }
    }

    /// Returns true if an outcome was decided anew, or will be, because its first leader had left the path.
    pub(crate) fn is_retracted(&self, key: DecisionKey) -> bool {
        self.streams.get(key.stream).and_then(|stream| stream.retracted).is_some_and(|first| key.index >= first)
    }

    fn forget_from(&mut self, key: DecisionKey) {
        self.forget_times_from(key);
        self.streams.get_or_insert_with(key.stream, Stream::default).retract(key.index);
    }

    pub(crate) fn cast_ballot(
        &mut self,
        key: DecisionKey,
        question: Question,
        says: u64,
        outputs: &mut VecDeque<Output>,
    ) {
        self.own_ballots.push(Ballot { key, question, says });
        if let Role::Follower { leader, .. } = self.role {
            self.transmit(leader, Frame::Ballot { key, question, says }, outputs);
        }
    }

    pub(crate) fn handle_ballot(
        &mut self,
        from: ReplicaIndex,
        key: DecisionKey,
        question: Question,
        says: u64,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        // The frame may arrive before the view that makes this process the leader. A follower keeps ballots too, and
        // never counts them.
        self.ballots.retain(|(by, ballot)| (ballot.key, *by) != (key, from));
        if self.ballots.iter().filter(|(by, _)| *by == from).count() >= BALLOTS_MAX {
            return Err(self.blame(from, Breach::TooManyBallots { max: BALLOTS_MAX }));
        }
        self.ballots.push((from, Ballot { key, question, says }));
        outputs.push_back(Output::Decided { key });
        Ok(())
    }

    fn ballot(&self, key: DecisionKey, sibling: ReplicaIndex) -> Option<&Ballot> {
        self.ballots.iter().find(|(by, ballot)| (ballot.key, *by) == (key, sibling)).map(|(_, ballot)| ballot)
    }

    pub(crate) fn highest_ballot(&self, key: DecisionKey) -> Option<u64> {
        let said = self.siblings().iter().map(|sibling| self.ballot(key, sibling).map(|ballot| ballot.says));
        said.collect::<Option<Vec<_>>>().map(|said| said.into_iter().max().unwrap_or(0))
    }

    /// Siblings that have voted on an outcome with another question.
    pub(crate) fn strays(&self, key: DecisionKey, question: &Question) -> ReplicaSet {
        let is_stray = |(by, ballot): &&(ReplicaIndex, Ballot)| {
            ballot.key == key && ballot.question != *question && self.live.contains(*by)
        };
        let strays = self.ballots.iter().filter(is_stray);
        strays.fold(ReplicaSet::EMPTY, |strays, (by, _)| strays.union(ReplicaSet::only(*by)))
    }

    /// The ballots of all siblings except `but`: false if one refuses, `None` if some are missing.
    pub(crate) fn count_ballots(&self, key: DecisionKey, question: &Question, but: ReplicaSet) -> Option<bool> {
        let mut unanimous = Some(true);
        for sibling in self.siblings().without(but).iter() {
            match self.ballot(key, sibling).filter(|ballot| ballot.question == *question) {
                Some(Ballot { says: 0, .. }) => return Some(false),
                Some(_) => {}
                None => unanimous = None,
            }
        }
        unanimous
    }

    /// Makes the engine ask again for the outcomes of own ballots, which can perhaps be counted now.
    pub(crate) fn ask_again(&self, outputs: &mut VecDeque<Output>) {
        outputs.extend(self.own_ballots.iter().map(|ballot| Output::Decided { key: ballot.key }));
    }

    /// Drops ballots on an outcome that was taken or decided. An outcome that is only known may be retracted, and keeps
    /// its ballots.
    fn forget_ballots(&mut self, key: DecisionKey) {
        let is_open = |ballot: &Ballot| ballot.key.stream != key.stream || ballot.key.index > key.index;
        self.ballots.retain(|(_, ballot)| is_open(ballot));
        self.own_ballots.retain(is_open);
    }

    /// Extends a run of `NotReady` that was not sent yet. Returns false if none exists.
    fn extend_run(&mut self, key: DecisionKey, question: &Question, outcome: &Outcome) -> bool {
        let is_open = self.announced != self.count && *outcome == Outcome::NotReady;
        is_open && self.log.back_mut().is_some_and(|last| last.extend(key, question))
    }

    /// In a leader, sends the buffered decisions to the followers.
    #[inline]
    pub(crate) fn announce(&mut self, outputs: &mut VecDeque<Output>) {
        if self.announced != self.count && self.role == Role::Leader {
            self.announce_new(outputs);
        }
    }

    fn announce_new(&mut self, outputs: &mut VecDeque<Output>) {
        for follower in self.siblings().without(self.silent).iter() {
            let frame = Frame::Decisions { first: self.announced, items: self.items_from(self.announced) };
            self.transmit(follower, frame, outputs);
        }
        self.announced = self.count;
        self.buffered = 0;
    }

    pub(crate) fn handle_decisions(
        &mut self,
        from: ReplicaIndex,
        first: u64,
        items: Vec<DecisionItem>,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        if !self.follows(from) {
            return Ok(());
        }
        self.handle_leader();
        self.learn(from, first, items, outputs)?;
        self.transmit(from, Frame::DecisionAck { upto: self.count }, outputs);
        self.stabilize_pair();
        Ok(())
    }

    pub(crate) fn handle_ack(
        &mut self,
        from: ReplicaIndex,
        upto: u64,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        if self.role == Role::Leader {
            self.check_known(from, upto, self.announced)?;
            let held = &mut self.held_by[usize::from(from.0)];
            *held = upto.max(*held);
            self.advance_stable(outputs);
        }
        Ok(())
    }

    pub(crate) fn handle_stable(&mut self, from: ReplicaIndex, upto: u64) -> Result<(), ProtocolError> {
        if self.follows(from) {
            self.check_known(from, upto, self.count)?;
            self.handle_leader();
            self.told = upto.max(self.told);
            self.set_stable(upto);
            self.stabilize_pair();
        }
        Ok(())
    }

    pub(crate) fn handle_sync(
        &mut self,
        from: ReplicaIndex,
        first: u64,
        items: Vec<DecisionItem>,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        if self.role == Role::Leader && self.silent.contains(from) {
            let held = first.saturating_add(items.len() as u64);
            self.check_known(from, held, self.announced)?;
            self.check_kept(from, held)?;
            self.admit(from, held, outputs);
            Ok(())
        } else {
            // A sync replaces all earlier ones of the same sibling.
            self.early_syncs.retain(|(other, ..)| *other != from);
            self.early_syncs.push((from, first, items));
            self.continue_sync(outputs)
        }
    }

    /// Adds a newcomer that has reported its number of decisions. Sends it those that it lacks.
    fn admit(&mut self, newcomer: ReplicaIndex, held: u64, outputs: &mut VecDeque<Output>) {
        self.announce(outputs);
        self.silent.remove(newcomer);
        self.held_by[usize::from(newcomer.0)] = held;
        if held < self.count {
            self.transmit(newcomer, Frame::Decisions { first: held, items: self.items_from(held) }, outputs);
        }
        // Sent to all: with a single follower, that follower could tell by itself which decisions are stable, and now
        // it cannot.
        for sibling in self.siblings().without(self.silent).iter() {
            self.transmit(sibling, Frame::Stable { upto: self.stable }, outputs);
        }
        self.advance_stable(outputs);
    }

    /// Applies a change of the sphere's membership.
    pub(crate) fn apply_view(
        &mut self,
        live: ReplicaSet,
        leader: ReplicaIndex,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        let mut outcome = Ok(());
        let was_deciding = self.is_deciding();
        self.silent = self.silent.intersection(live);
        let newcomers = live.without(self.live);
        if was_deciding {
            for newcomer in newcomers.iter() {
                self.silent.insert(newcomer);
                self.held_by[usize::from(newcomer.0)] = 0;
            }
        }
        self.live = live;
        self.early_syncs.retain(|(from, ..)| live.contains(*from));
        self.ballots.retain(|(from, _)| live.contains(*from));
        self.lag.keep(live);
        if live.len() == 1 {
            self.role = Role::Sole;
            self.announced = self.count;
            self.buffered = 0;
            self.set_stable(self.count);
            if !was_deciding {
                outputs.push_back(Output::BecameLeader);
            }
        } else if leader != self.me.index {
            self.follow(leader, outputs);
        } else if was_deciding {
            self.role = Role::Leader;
            for (from, first, items) in std::mem::take(&mut self.early_syncs) {
                outcome = outcome.and(self.handle_sync(from, first, items, outputs));
            }
            self.advance_stable(outputs);
        } else {
            let missing = match self.role {
                Role::Syncing { missing } => missing.intersection(live).union(newcomers),
                #[cfg(any(test, feature = "simulation"))]
                _ if self.sync_skipped => ReplicaSet::EMPTY,
                _ => self.siblings(),
            };
            self.role = Role::Syncing { missing };
            outcome = self.continue_sync(outputs);
        }
        outcome
    }

    fn follow(&mut self, leader: ReplicaIndex, outputs: &mut VecDeque<Output>) {
        if matches!(self.role, Role::Follower { leader: known, .. } if known == leader) {
            self.stabilize_pair();
            return;
        }
        self.role = Role::Follower { leader, in_sync: false };
        self.report_to(leader, outputs);
    }

    /// Sends the decisions that this process holds, and its ballots, to a new leader.
    fn report_to(&self, leader: ReplicaIndex, outputs: &mut VecDeque<Output>) {
        // Stable decisions are included. The new leader may be a newcomer to which the old one had not sent them yet.
        let first = self.kept;
        #[cfg(any(test, feature = "simulation"))]
        let first = if self.sync_from_stable { self.stable } else { first };
        let frame = Frame::DecisionSync { first, items: self.items_from(first) };
        self.transmit(leader, frame, outputs);
        for Ballot { key, question, says } in self.own_ballots.iter().copied() {
            self.transmit(leader, Frame::Ballot { key, question, says }, outputs);
        }
        if !self.lag.own().is_empty() {
            self.report_lag(outputs);
        }
    }

    fn continue_sync(&mut self, outputs: &mut VecDeque<Output>) -> Result<(), ProtocolError> {
        let Role::Syncing { mut missing } = self.role else { return Ok(()) };
        let mut outcome = Ok(());
        for (from, first, items) in std::mem::take(&mut self.early_syncs) {
            let held = first.saturating_add(items.len() as u64);
            if let Err(error) = self.learn(from, first, items, outputs) {
                // The sync is wrong, so its sender counts as missing until a view excludes it.
                outcome = Err(error);
                continue;
            }
            missing.remove(from);
            self.held_by[usize::from(from.0)] = held;
        }
        for sibling in self.siblings().without(missing).iter() {
            if let Err(error) = self.check_kept(sibling, self.held_by[usize::from(sibling.0)]) {
                missing.insert(sibling);
                outcome = Err(error);
            }
        }
        self.role = Role::Syncing { missing };
        if missing.is_empty() {
            self.lead(outputs);
        }
        outcome
    }

    /// Starts to decide, because all live siblings have sent their decisions. Sends each the ones that it lacks.
    fn lead(&mut self, outputs: &mut VecDeque<Output>) {
        self.role = Role::Leader;
        self.announced = self.count;
        self.buffered = 0;
        for sibling in self.siblings().iter() {
            let first = self.held_by[usize::from(sibling.0)];
            if first < self.count {
                self.transmit(sibling, Frame::Decisions { first, items: self.items_from(first) }, outputs);
            }
        }
        let stable = self.held_by_all();
        self.set_stable(stable);
        for sibling in self.siblings().iter() {
            self.transmit(sibling, Frame::Stable { upto: self.stable }, outputs);
        }
        outputs.push_back(Output::BecameLeader);
    }

    /// Acts on a lost connection with a sibling: a follower reports its decisions again, and a leader waits for that.
    pub(crate) fn reset(&mut self, sibling: ReplicaIndex, outputs: &mut VecDeque<Output>) {
        self.early_syncs.retain(|(from, ..)| *from != sibling);
        self.lag.forget(sibling);
        match &mut self.role {
            Role::Leader => self.silent.insert(sibling),
            Role::Syncing { missing } => missing.insert(sibling),
            Role::Follower { leader, .. } if *leader == sibling => self.report_to(sibling, outputs),
            Role::Follower { .. } | Role::Sole => {}
        }
    }

    fn blame(&self, by: ReplicaIndex, breach: Breach) -> ProtocolError {
        ProtocolError { by: ReplicaId { rank: self.me.rank, index: by }, breach }
    }

    /// Checks a follower's claim of decisions it holds, or a leader's claim of stable ones, against those that were
    /// sent.
    fn check_known(&self, from: ReplicaIndex, upto: u64, known: u64) -> Result<(), ProtocolError> {
        if upto <= known { Ok(()) } else { Err(self.blame(from, Breach::UnknownDecisions { upto, known })) }
    }

    /// Checks that the decisions which a sibling lacks are still kept.
    fn check_kept(&self, from: ReplicaIndex, held: u64) -> Result<(), ProtocolError> {
        let kept = self.kept;
        if held >= kept { Ok(()) } else { Err(self.blame(from, Breach::ForgottenDecisions { held, kept })) }
    }

    /// Checks that a decision is possible, and continues its stream.
    fn check_item(&self, from: ReplicaIndex, item: &DecisionItem) -> Result<(), ProtocolError> {
        let DecisionKey { stream, index } = item.key;
        let degree = self.held_by.len() as u16;
        if item.by.0 >= degree {
            return Err(self.blame(from, Breach::NoSuchLeader { by: item.by.0, degree }));
        }
        if item.outcome == Outcome::Retracted {
            return Ok(());
        }
        if !item.is_possible() {
            return Err(self.blame(from, Breach::BadDecision { number: self.count, key: item.key }));
        }
        // A thread's outcomes are decided in the order of its questions, but wildcard receives in the order in which
        // they match.
        let is_in_order = !matches!(stream, StreamId::Match(_) | StreamId::Readings(_));
        let last = self.streams.get(stream).and_then(|stream| stream.waiting.back()).filter(|_| is_in_order);
        match last.map(DecisionItem::end) {
            Some(expected) if expected != index => {
                Err(self.blame(from, Breach::OutcomeOutOfOrder { stream, index, expected }))
            }
            _ => Ok(()),
        }
    }

    /// Records those of decisions number `first` and following that are new. Stops at the first that is wrong.
    fn learn(
        &mut self,
        from: ReplicaIndex,
        first: u64,
        items: Vec<DecisionItem>,
        outputs: &mut VecDeque<Output>,
    ) -> Result<(), ProtocolError> {
        let known = self.count;
        if first > known {
            return Err(self.blame(from, Breach::DecisionGap { first, known }));
        }
        for item in items.into_iter().skip((known - first) as usize) {
            self.check_item(from, &item)?;
            self.count += 1;
            self.log.push_back(item.clone());
            match (item.key.stream, &item.outcome) {
                (_, Outcome::Retracted) => {
                    self.forget_from(item.key);
                    self.forget_after(item.question.place);
                    outputs.push_back(Output::Decided { key: item.key });
                }
                (StreamId::Match(_), Outcome::Source(_)) => self.learn_source(item, outputs),
                _ => {
                    let key = item.key;
                    let end = item.end();
                    let waiting = &mut self.streams.get_or_insert_with(key.stream, Stream::default).waiting;
                    waiting.push_back(item);
                    let first = waiting.front().map_or(end, |first| first.key.index);
                    if self.lag.learned(key.stream, end.saturating_sub(first)) {
                        self.report_lag(outputs);
                    }
                    outputs.push_back(Output::Decided { key });
                }
            }
        }
        Ok(())
    }

    /// Returns true if a frame is from the leader that this process follows.
    fn follows(&self, from: ReplicaIndex) -> bool {
        matches!(self.role, Role::Follower { leader, .. } if leader == from)
    }

    /// Notes that the leader has sent a frame.
    fn handle_leader(&mut self) {
        if let Role::Follower { in_sync, .. } = &mut self.role {
            *in_sync = true;
        }
    }

    /// With two live replicas, a decision is stable once the follower has it, since the leader holds it as well.
    fn stabilize_pair(&mut self) {
        if self.live.len() == 2 && matches!(self.role, Role::Follower { in_sync: true, .. }) {
            self.set_stable(self.count);
        }
    }

    fn advance_stable(&mut self, outputs: &mut VecDeque<Output>) {
        let stable = self.held_by_all();
        if stable > self.stable {
            self.set_stable(stable);
            if self.live.len() > 2 {
                for follower in self.siblings().iter() {
                    self.transmit(follower, Frame::Stable { upto: stable }, outputs);
                }
            }
        }
    }

    fn held_by_all(&self) -> u64 {
        let held = |sibling: ReplicaIndex| self.held_by[usize::from(sibling.0)];
        self.siblings().iter().map(held).min().map_or(self.count, |held| held.min(self.count))
    }

    fn set_stable(&mut self, stable: u64) {
        self.stable = stable.max(self.stable);
        // With two replicas this follower knew stable decisions before the leader's report. A newcomer, now the third,
        // may lack some.
        let is_one_of_many = self.live.len() > 2 && matches!(self.role, Role::Follower { .. });
        let needless = if is_one_of_many { self.told.min(self.stable) } else { self.stable };
        if !self.pinned && needless > self.kept {
            self.log.drain(..(needless - self.kept) as usize);
            self.kept = needless;
        }
    }

    fn items_from(&self, number: u64) -> Vec<DecisionItem> {
        assert!(number >= self.kept, "{}: decision {number} is stable and forgotten", self.me);
        self.log.range((number - self.kept) as usize..).cloned().collect()
    }

    /// Starts or ends keeping stable decisions that a newcomer may lack.
    pub(crate) fn set_pinned(&mut self, pinned: bool) {
        self.pinned = pinned;
        self.set_stable(self.stable);
    }

    /// Turns a copy of a replica into that of its own place. It neither decides nor follows until a view contains it.
    pub(crate) fn take_place(&mut self, me: ReplicaId) {
        // Otherwise the original could extend a run of polls that its copy holds too, and takes for complete.
        assert!(self.role != Role::Leader || self.announced == self.count, "{me}: flush before the cut");
        self.me = me;
        self.role = Role::Follower { leader: me.index, in_sync: false };
        self.silent = ReplicaSet::EMPTY;
        self.early_syncs.clear();
        self.ballots.clear();
        self.lag.keep(ReplicaSet::EMPTY);
    }

    fn siblings(&self) -> ReplicaSet {
        self.live.without(ReplicaSet::only(self.me.index))
    }

    fn transmit(&self, to: ReplicaIndex, frame: Frame, outputs: &mut VecDeque<Output>) {
        let VirtualRank(rank) = self.me.rank;
        outputs.push_back(Output::Transmit { to: ReplicaId::new(rank, to.0), frame, payload: None });
    }
}
