//! The replication machine of one process: sends, frames and views in; frames, arrivals, verdicts and releases out.
//!
//! ```text
//!  engine: send ──► log ──► Outbound: Offer, Digest      handle(Offer) ──► Arrival ──► matching
//!                    │  (held until decisions stable)     payload_received ─► vote ─► Verified ──► completion
//!                    └◄── Ack ◄───────────────────────────────────────────────┘  │
//!                    └──► Release                                    Mismatch ◄──┘
//! ```
//!
//! It handles metadata only: payloads stay with the engine under a [`PayloadKey`](crate::PayloadKey). It has no clock,
//! socket or thread. After each call the engine takes everything from [`Replica::poll_output`]. A transport must keep
//! frames from one process to another in order, and nothing else. The engine does the fencing: it hands over no frame
//! of an incarnation that is not in its view, and keeps back frames of one that is not in it *yet*.

mod arbitration;
mod envelopes;
#[cfg(test)]
mod fuzz;
mod join;
mod membership;
mod paths;
mod receiving;
mod reset;
#[cfg(test)]
mod scale;
mod sending;
#[cfg(test)]
mod tests;
mod times;
mod wildcards;

use crate::channel::{Inbox, Outbox, Released};
use crate::decision::Decisions;
use crate::error::ProtocolError;
use crate::frame::{Arrival, Frame, Output};
use crate::hashable_map::{ChannelKey, Channels};
use crate::mutation::Mutation;
use crate::outcome::{DecisionKey, Outcome, Question, StreamId};
use crate::path::PathReport;
use crate::view::{Protocol, Service, service};
use paths::Paths;
use redrt_types::{ReplicaId, ReplicaIndex, ReplicaSet, SeqNum, View, VirtualRank, World};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

/// The moment at which a receive may complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verification {
    /// When the verdict on its message is in.
    Strict,
    /// When its payload is complete. The verdict follows.
    Deferred,
}

/// The settings of a machine. `view` must be the same in all processes that start with it. Later views come through
/// [`Replica::apply_view`].
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The place of this process.
    pub me: ReplicaId,
    /// The shape of the job.
    pub world: World,
    /// The view at its start.
    pub view: View,
    /// The way in which payloads are compared.
    pub protocol: Protocol,
    /// The moment at which a receive may complete.
    pub verification: Verification,
}

/// Counters since the start of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counters {
    /// Number of logical messages sent.
    pub messages_sent: u64,
    /// Sum of the payload bytes of messages sent.
    pub bytes_sent: u64,
    /// Number of messages whose verdict came from at least two votes.
    pub messages_compared: u64,
    /// Sum of the payload bytes of these messages.
    pub bytes_compared: u64,
    /// Number of messages sent again, after a loss or because a payload was corrupt.
    pub messages_resent: u64,
    /// Payload bytes in the retention log now.
    pub retained_bytes: u64,
    /// Maximum of `retained_bytes` so far.
    pub retained_bytes_max: u64,
}

/// Number of empty polls after which batched frames are sent.
const POLLS_PER_FLUSH: u32 = 64;

/// A send that waits until the decisions before `needed` are stable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Held {
    needed: u64,
    channel: ChannelKey,
    sequence: SeqNum,
}

/// The replication machine of one process; see the module's documentation. Methods are in this order: getters,
/// `handle`, commands, `poll_output`.
#[derive(Clone, Debug)]
pub struct Replica {
    me: ReplicaId,
    world: World,
    view: View,
    protocol: Protocol,
    verification: Verification,
    /// True if an outvoted payload is fetched again from a replica that agrees with the majority.
    corrects: bool,
    /// True if a payload that no sender has intact is not delivered while this process has a sibling.
    withholds: bool,
    /// Live replicas in the view, by rank.
    live: Vec<ReplicaSet>,
    /// Replicas that are expected to join, by rank.
    pinned: Vec<ReplicaSet>,
    /// Members of `pinned` that stand ready to join as arbiters.
    ready: Vec<ReplicaSet>,
    /// True if the view has an arbiter.
    has_arbiters: bool,
    /// True in a copy that no view contains yet.
    joining: bool,
    /// The service that each process has asked of this one, by dense number.
    services: Vec<Service>,
    /// The service that this process has asked of each process, by dense number.
    wanted: Vec<Service>,
    /// Ranks from which a frame has come, and the latest of them. No service is negotiated with the others until a
    /// frame comes.
    partners: FxHashSet<VirtualRank>,
    met_last: Option<VirtualRank>,
    /// True once the view has changed. Until then services follow from the first view.
    view_has_changed: bool,
    outboxes: Channels<Outbox>,
    inboxes: Channels<Inbox>,
    /// Inboxes with messages to acknowledge.
    unacknowledged: Vec<ChannelKey>,
    decisions: Decisions,
    paths: Paths,
    /// True if changes that others can see wait for a majority.
    votes_on_changes: bool,
    held: VecDeque<Held>,
    /// Number of empty polls in a row.
    polls: u32,
    outputs: VecDeque<Output>,
    released: Vec<Released>,
    counters: Counters,
    #[cfg(any(test, feature = "simulation"))]
    mutation: Option<Mutation>,
}

/// Counters are left out, so that machines with equal behaviour hash equally.
impl Hash for Replica {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.me, self.view.number, &self.live, &self.services, &self.wanted).hash(state);
        (&self.outboxes, &self.inboxes, &self.unacknowledged, &self.decisions, &self.paths).hash(state);
        (&self.held, self.polls, &self.outputs).hash(state);
    }
}

impl Replica {
    /// A process at the start of the job, before it has sent or received anything.
    ///
    /// # Panics
    /// When `me` is not live in the view, or a degree exceeds [`ReplicaSet::CAPACITY`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let Config { me, world, view, protocol, verification } = config;
        assert!(view.is_live(me), "{me} is not live in view {}", view.number.0);
        assert!(world.max_degree() <= ReplicaSet::CAPACITY, "degree {} is too large", world.max_degree());
        let live: Vec<_> = (0..world.rank_count()).map(|rank| view.live_set(VirtualRank(rank))).collect();
        let of = |server: ReplicaId, client: ReplicaId| {
            service(&world, live[server.rank.0 as usize], protocol, server, client.index)
        };
        // A copy that takes a free place will ask for a service, and from where. Until then it gets none.
        let served = |client| if view.is_live(client) { of(me, client) } else { Service::None };
        let services = world.replicas().map(served).collect();
        let wanted = world.replicas().map(|server| of(server, me)).collect();
        let leader = view.leader(me.rank).expect("the own sphere has a live replica");
        let decisions = Decisions::new(me, world.degree(me.rank), live[me.rank.0 as usize], leader.index);
        Self {
            me,
            protocol,
            verification,
            corrects: true,
            withholds: false,
            pinned: vec![ReplicaSet::EMPTY; live.len()],
            ready: vec![ReplicaSet::EMPTY; live.len()],
            has_arbiters: false,
            joining: false,
            services,
            wanted,
            partners: FxHashSet::default(),
            met_last: None,
            view_has_changed: false,
            outboxes: Channels::new(),
            inboxes: Channels::new(),
            unacknowledged: Vec::new(),
            decisions,
            paths: Paths::default(),
            votes_on_changes: true,
            held: VecDeque::new(),
            polls: 0,
            outputs: VecDeque::new(),
            released: Vec::new(),
            counters: Counters::default(),
            live,
            view,
            world,
            #[cfg(any(test, feature = "simulation"))]
            mutation: None,
        }
    }

    /// Makes outvoted payloads only be reported from now on, and delivered as they came.
    pub fn correct_nothing(&mut self) {
        self.corrects = false;
    }

    /// Withholds payloads that no sender has intact, while this process has a sibling. The maker of views must then end
    /// this process, see [`Action::Withheld`](crate::Action::Withheld).
    pub fn withhold_corrupt(&mut self) {
        self.withholds = true;
    }

    /// The place of this process.
    #[must_use]
    pub fn me(&self) -> ReplicaId {
        self.me
    }

    /// The view that it acts on.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns true if this process makes the decisions of its sphere. A leader in the view that still collects its
    /// siblings' decisions does not, until [`Output::BecameLeader`].
    #[must_use]
    pub fn is_deciding(&self) -> bool {
        self.decisions.is_deciding()
    }

    /// Counters since the start of the process.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of decisions of the sphere that this process knows.
    #[must_use]
    pub fn decision_count(&self) -> u64 {
        self.decisions.count()
    }

    /// Number of messages in the retention log.
    #[must_use]
    pub fn retained_count(&self) -> usize {
        self.outboxes.values().map(Outbox::len).sum()
    }

    /// Number of messages in the log that each replica, live or awaited, has not acknowledged. Copies that stand ready
    /// are left out, since nothing waits for them.
    #[must_use]
    pub fn unacknowledged_by(&self) -> BTreeMap<ReplicaId, usize> {
        let mut counts = BTreeMap::new();
        for ((rank, _), outbox) in self.outboxes.iter() {
            let ready = self.ready(rank);
            for index in outbox.log().flat_map(|logged| logged.unacked.without(ready).iter()) {
                *counts.entry(ReplicaId { rank, index }).or_default() += 1;
            }
        }
        counts
    }

    /// Number of messages, received or announced by a digest, that are not settled or not acknowledged in order.
    #[must_use]
    pub fn unsettled_count(&self) -> usize {
        self.inboxes.values().map(Inbox::len).sum()
    }

    /// Number of messages that were compared since the start of the process, and their bytes, by context.
    #[must_use]
    pub fn coverage(&self) -> BTreeMap<redrt_types::ContextId, (u64, u64)> {
        let mut coverage = BTreeMap::new();
        for ((_, context), inbox) in self.inboxes.iter().filter(|(_, inbox)| inbox.compared.messages > 0) {
            let (messages, bytes) = coverage.entry(context).or_insert((0_u64, 0_u64));
            *messages += inbox.compared.messages;
            *bytes = bytes.saturating_add(inbox.compared.bytes);
        }
        coverage
    }

    /// Frees memory that new channels do not need now. Their state stays, since siblings and newcomers may still refer
    /// to them.
    pub fn shrink(&mut self) {
        self.outboxes.new_ones().for_each(Outbox::shrink);
        self.inboxes.new_ones().for_each(Inbox::shrink);
    }

    /// Number of sends that wait for a decision to become stable.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Handles a frame. Frames of replicas that are not live in the view are ignored. The engine acts on the returned
    /// value first, and then on the outputs.
    ///
    /// # Errors
    /// When a sound replica would not have sent the frame. The machine goes on as if it had not come. The sender's data
    /// is then missing for good, so a view without the sender must follow.
    #[inline]
    pub fn handle(&mut self, from: ReplicaId, frame: Frame) -> Result<Arrival, ProtocolError> {
        if !self.is_live(from) {
            return Ok(Arrival::Nothing);
        }
        let blame = |breach| ProtocolError { by: from, breach };
        match frame {
            Frame::Offer { context, sequence, envelope, digest, core } => {
                let arrival = self.handle_offer(from, context, sequence, envelope, (digest, core)).map_err(blame)?;
                self.meet(from.rank);
                return Ok(arrival);
            }
            Frame::Digest { context, sequence, digest, core } => {
                self.handle_digest(from, context, sequence, (digest, core)).map_err(blame)?;
                self.meet(from.rank);
            }
            Frame::Ack { context, upto } => self.handle_ack(from, context, upto),
            Frame::AckOne { context, sequence } => self.handle_ack_one(from, context, sequence),
            Frame::Resume { service, bookmarks, .. } => self.handle_resume(from, service, &bookmarks),
            Frame::Overdue { context, sequence } => self.handle_overdue(from, context, sequence),
            Frame::Fetch { context, sequence } => self.handle_fetch(from, context, sequence).map_err(blame)?,
            _ => self.handle_sphere(from, frame)?,
        }
        Ok(Arrival::Nothing)
    }

    /// Handles frames of siblings about decisions and paths.
    fn handle_sphere(&mut self, from: ReplicaId, frame: Frame) -> Result<(), ProtocolError> {
        if from.rank != self.me.rank || from == self.me {
            return Ok(());
        }
        let (decisions, outputs) = (&mut self.decisions, &mut self.outputs);
        let outcome = match frame {
            Frame::Decisions { first, items } => decisions.handle_decisions(from.index, first, items, outputs),
            Frame::DecisionAck { upto } => decisions.handle_ack(from.index, upto, outputs),
            Frame::Stable { upto } => decisions.handle_stable(from.index, upto),
            Frame::Behind { streams } => {
                decisions.handle_behind(from.index, streams);
                Ok(())
            }
            Frame::Ballot { key, question, says } => decisions.handle_ballot(from.index, key, question, says, outputs),
            Frame::Claim { key, claim, decided } => self.handle_claim(from.index, key, claim, decided),
            Frame::DecisionSync { first, items } => decisions.handle_sync(from.index, first, items, outputs),
            _ => unreachable!("{frame:?} is about a channel"),
        };
        self.record_sources();
        self.retract_served();
        self.transmit_stable();
        self.check_ends();
        outcome
    }

    /// The outcome that [`lookup`](Self::lookup) would hand out now, without taking it. For programs whose replicas
    /// need not ask the same questions.
    #[must_use]
    pub fn peek(&self, key: DecisionKey) -> Option<&Outcome> {
        self.decisions.peek(key)
    }

    /// Returns true if decisions that can wait should be put off, because followers have not received many, or not
    /// asked for them. Such decisions are that nothing has happened, readings of clocks, and sources of receives that
    /// are not posted yet.
    #[must_use]
    pub fn is_far_ahead(&self, stream: StreamId) -> bool {
        self.decisions.is_far_ahead(stream)
    }

    /// A sibling that has not asked for many outcomes of this stream, which makes the leader far ahead.
    #[must_use]
    pub fn sibling_behind(&self, stream: StreamId) -> Option<ReplicaIndex> {
        self.decisions.sibling_behind(stream)
    }

    /// Stops waiting for a sibling's thread that is behind, until it reports again. The thread stands still, and may
    /// wait for later decisions. Only for readings of clocks, which replicas of programs with threads need not make
    /// alike.
    pub fn go_ahead(&mut self, sibling: ReplicaIndex, stream: StreamId) {
        self.decisions.go_ahead(sibling, stream);
    }

    /// Number of decisions that some live sibling may not hold yet.
    #[must_use]
    pub fn unstable_count(&self) -> u64 {
        self.decisions.count() - self.decisions.stable()
    }

    /// Decides the outcome of a question. Messages that are sent later leave this process when all live siblings hold
    /// the decision.
    ///
    /// # Panics
    /// When this process does not decide.
    pub fn decide(&mut self, key: DecisionKey, question: Question, outcome: Outcome) {
        let found_nothing = outcome == Outcome::NotReady;
        self.decisions.decide(key, &question, outcome, &mut self.outputs);
        self.outcome_passed(key);
        // A program that polls never blocks, and the event it polls for may depend on its acknowledgements.
        self.polls = if found_nothing { self.polls + 1 } else { 0 };
        if self.polls >= POLLS_PER_FLUSH {
            self.polls = 0;
            self.flush();
        }
    }

    /// In a follower, casts a ballot on an outcome that all replicas must be able to take: 1 if this one can take
    /// `Flag(true)`, else 0; or the least number that it can take. The ballot stands until the decision is known.
    /// `question` is the one it is about to ask.
    pub fn cast_ballot(&mut self, key: DecisionKey, question: Question, says: u64) {
        self.decisions.cast_ballot(key, question, says, &mut self.outputs);
    }

    /// The least number that all live siblings can take for this outcome, 0 if there are none. `None` when ballots are
    /// missing. Ask again at `Output::Decided` and after a change of view.
    #[must_use]
    pub fn highest_ballot(&self, key: DecisionKey) -> Option<u64> {
        self.decisions.highest_ballot(key)
    }

    /// Returns true if all live siblings can take `Flag(true)` for this outcome, and false if one cannot. `None` when
    /// ballots are missing and none refuses, or a copy is being made. Ask again at `Output::Decided` and after a change
    /// of view.
    ///
    /// A sibling's ballot on another question does not count. [`Replica::lookup`] finds out who is wrong. If no vote
    /// can decide that, and the leader's side is taken, such a sibling is not waited for.
    #[must_use]
    pub fn count_ballots(&self, key: DecisionKey, question: Question) -> Option<bool> {
        if self.has(Mutation::BallotsIgnored) {
            return Some(true);
        }
        let count = self.decisions.count_ballots(key, &question, self.strays_passed_over(key, &question));
        // A copy that is being made comes to this outcome later, and may have matched the receive by then.
        count.filter(|agreed| !(*agreed && self.expects_sibling()))
    }

    /// Sends batched acknowledgements and decisions. Call it before the engine blocks or goes idle, and now and then
    /// while the program polls without decisions. Otherwise siblings and partners may wait for this process forever.
    pub fn flush(&mut self) {
        self.decisions.announce(&mut self.outputs);
        self.acknowledge_all();
    }

    /// A report on paths that is in the outputs and was not taken yet.
    #[must_use]
    pub fn parting(&self) -> Option<&PathReport> {
        self.outputs.iter().find_map(|output| match output {
            Output::Parted(report) => Some(&**report),
            _ => None,
        })
    }

    /// The next task for the engine.
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    #[inline]
    fn is_live(&self, replica: ReplicaId) -> bool {
        self.live.get(replica.rank.0 as usize).is_some_and(|live| live.contains(replica.index))
    }

    #[inline]
    fn live(&self, rank: VirtualRank) -> ReplicaSet {
        self.live[rank.0 as usize]
    }

    fn transmit(&mut self, to: ReplicaId, frame: Frame) {
        self.outputs.push_back(Output::Transmit { to, frame, payload: None });
    }

    /// The replica of `rank` that supplies this process.
    fn supplier(&self, rank: VirtualRank) -> Option<ReplicaIndex> {
        crate::view::supplier(&self.world, self.live(rank), rank, self.me.index)
    }

    /// Reports payloads that need not be kept any more.
    #[inline]
    fn release(&mut self) {
        if self.released.is_empty() {
            return;
        }
        let keeps_sends_open = self.has(Mutation::DetachSkipped);
        for released in self.released.drain(..) {
            match released {
                Released::Wholly { payload, length_bytes } => {
                    self.counters.retained_bytes -= length_bytes;
                    self.outputs.push_back(Output::Release { payload });
                }
                Released::ToNewcomers { .. } if keeps_sends_open => {}
                Released::ToNewcomers { payload } => self.outputs.push_back(Output::Detach { payload }),
            }
        }
    }

    /// Newcomers of a rank that no view contains yet.
    fn awaited(&self, rank: VirtualRank) -> ReplicaSet {
        self.pinned[rank.0 as usize].without(self.live(rank))
    }

    /// Plants a bug in this machine.
    #[cfg(any(test, feature = "simulation"))]
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutation = Some(mutation);
        self.decisions.sync_skipped = mutation == Mutation::SyncSkipped;
        self.decisions.sync_from_stable = mutation == Mutation::SyncFromStable;
        self.decisions.leader_trusted = mutation == Mutation::LeaderTrusted;
        self.decisions.askers_ignored = mutation == Mutation::AskersIgnored;
        if mutation == Mutation::FreePlaceServed {
            let live = self.live(self.me.rank);
            let served = |client: ReplicaId| service(&self.world, live, self.protocol, self.me, client.index);
            self.services = self.world.replicas().map(served).collect();
        }
    }

    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    #[cfg(not(any(test, feature = "simulation")))]
    #[inline(always)]
    pub(crate) fn has(&self, _: Mutation) -> bool {
        false
    }
}
