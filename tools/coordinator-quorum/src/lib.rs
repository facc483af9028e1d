//! Agreement of several hosts on the records of a job's coordinator, and on the host that runs it. Pure: no I/O, no
//! clock, no threads.
//!
//! ```text
//!   coordinator ── propose ─▶ peer 1 ══ Message ══ peer 2
//!        ◀── Kept ───  (leads)  ══ Message ══ peer 3        each has all records
//!
//!   peer 1 is lost:             peer 2 ── Lead ─▶ another coordinator, which goes on with the records
//! ```
//! * A record is *kept* once most voters have it. Before that, nothing that follows from it leaves the coordinator.
//! * The leader runs the coordinator. A leader that does not hear most voters for the timeout yields, and its
//!   coordinator ends; another peer leads at that time at the earliest.
//! * The first peer begins alone. Others join it, learn its records, and become voters three (or five) at a time, so
//!   that no change makes the loss of one host worse than before. With fewer than three peers the leader is the only
//!   voter.
//! * The job's daemons learn of other voters before the first peer may have any ([`Notice`]).
//! * A peer that is silent for four timeouts is lost, and does not come back: another joins in its place, under a new
//!   number. So no peer needs a disk.
//!
//! The crate `raft`, of TiKV, provides agreement: it has no I/O of its own, pre-votes (a peer that was cut off
//! disturbs nobody on its return), leaders that step down without a quorum, and joint changes of voters. Crate
//! `raftbare` was not taken: its voters compare the lengths of logs, and not the terms of their last entries, so that
//! kept records can be lost.
#![forbid(unsafe_code)]

mod log;
mod message;
mod notice;

pub use message::Message;
pub use notice::{Notice, Step};

use log::Log;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, Entry, EntryType, MessageType, Snapshot};
use raft::{Config, ProgressState, RawNode, SnapshotStatus, StateRole};
use redrt_wire::frame::{decode_body, encode_body, encode_long};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Number of a peer; never 0, and never reused.
pub type Id = u64;

/// Ticks without a leader after which a peer stands for election, and without a quorum after which a leader yields.
pub const TIMEOUT_TICKS: usize = 10;
/// Ticks between heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// Ticks of silence after which the leader counts a peer as lost, so that another may join.
const LOST_TICKS: u64 = 4 * TIMEOUT_TICKS as u64;
/// Range of extra ticks before a peer stands, so that peers rarely stand at the same time. Derived from the number,
/// so simulations are deterministic.
const SPREAD_TICKS: u64 = 5;
/// Bytes of records in one message. A single longer record may exceed it.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Address and host of a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Address on which the peer listens.
    pub address: SocketAddr,
    /// Name of the host, for users.
    pub host: String,
}

/// A coordinator's proposal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proposal {
    /// Adds these records behind the existing ones.
    Append(Vec<ByteBuf>),
    /// Replaces all records by these.
    Replace(Vec<ByteBuf>),
    /// Ends the records: the job is over, or is not to come back. The text is the reason, empty if none is to be told.
    End(String),
}

/// Consequence for the peer's process.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// A message for another peer. It may be lost or late.
    Send {
        /// Receiver of the message.
        to: Id,
        /// The message, to be passed to [`Peer::handle`] there.
        message: Box<Message>,
    },
    /// Number of proposals of the present coordinator that are kept ([`Peer::begin_coordinator`]).
    Kept(u64),
    /// This peer leads: it runs the coordinator, from the kept records ([`Peer::records`]).
    Lead,
    /// This peer does not lead any more: its coordinator must end before anything else.
    Yield,
    /// The records are not needed any more. The text is the reason, empty if none is to be told.
    Ended(String),
}

#[cfg(any(test, feature = "simulation"))]
simulation_kit::named! {
    /// A mistake that a test plants.
    pub enum Mistake {
        /// A proposal counts as kept when it is made.
        KeptAtOnce,
        /// An elected peer leads before it knows the kept records.
        LeadsUnsure,
        /// An elected peer drops the last record.
        ForgetsLast,
        /// A new coordinator on the same host begins while proposals of the one before are under way.
        BeginsEarly,
        /// Proposals of the previous coordinator on the same host count as the new coordinator's.
        CountsOthers,
        /// Other peers become voters without permission.
        GrowsEarly,
        /// Permission comes before all daemons know.
        PermitsEarly,
        /// New voters count as deciding while the change of voters is under way.
        DecidesEarly,
        /// A peer that lost an election stands again at the same time as the other.
        StandsTogether,
    }
}

/// A number that depends on both arguments, and differs between peers.
fn mixed(id: Id, count: u64) -> u64 {
    (id ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn sorted(ids: &[Id]) -> Vec<Id> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted
}

/// A peer: see the crate.
pub struct Peer {
    node: RawNode<Log>,
    /// Peers that have asked to be added.
    joining: BTreeMap<Id, Place>,
    lost: BTreeSet<Id>,
    /// Number of ticks, and for each peer the tick of its last message.
    now: u64,
    heard: BTreeMap<Id, u64>,
    voter_count: usize,
    /// True once all daemons know that there are to be other voters.
    may_have_others: bool,
    is_leading: bool,
    has_ended: bool,
    /// Indices of proposals of this lead that are not kept yet.
    proposed: std::collections::VecDeque<u64>,
    /// Number of kept proposals of the present coordinator.
    kept: u64,
    outputs: Vec<Output>,
    /// See [`Peer::deciding`].
    deciding: Vec<Id>,
    /// Index of the last change of voters.
    conf_index: u64,
    /// Number of elections this peer has stood for, and remaining ticks of rest before the next.
    stands: u64,
    rests: u64,
    #[cfg(any(test, feature = "simulation"))]
    mistake: Option<Mistake>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "peer {} ({:?}, term {})", self.id(), self.node.raft.state, self.term())
    }
}

impl Peer {
    /// The first peer, which leads. `voter_count`: wanted number of voters.
    ///
    /// # Panics
    /// When `id` is 0.
    #[must_use]
    pub fn found(id: Id, place: Place, voter_count: usize) -> Self {
        let mut peer = Self::new(id, Log::founded(id, place), 1);
        peer.voter_count = voter_count;
        // As the only voter it is elected at once.
        let _ = peer.node.campaign();
        peer.settle();
        peer
    }

    /// A peer that the leader is to add ([`Peer::greet`] there). `voter_count`: wanted number of voters.
    ///
    /// # Panics
    /// When `id` is 0.
    #[must_use]
    pub fn join(id: Id, voter_count: usize) -> Self {
        let mut peer = Self::new(id, Log::default(), 0);
        peer.voter_count = voter_count;
        peer
    }

    fn new(id: Id, log: Log, applied: u64) -> Self {
        let wait = TIMEOUT_TICKS + (id % SPREAD_TICKS) as usize;
        let config = Config {
            id,
            election_tick: TIMEOUT_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: wait,
            max_election_tick: wait + 1,
            applied,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            batch_append: true,
            ..Config::default()
        };
        let quiet = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &quiet).expect("the configuration is sound");
        Self {
            node,
            joining: BTreeMap::new(),
            lost: BTreeSet::new(),
            now: 0,
            heard: BTreeMap::new(),
            voter_count: 1,
            may_have_others: false,
            is_leading: false,
            has_ended: false,
            proposed: std::collections::VecDeque::new(),
            kept: 0,
            outputs: Vec::new(),
            deciding: Vec::new(),
            conf_index: 0,
            stands: 0,
            rests: 0,
            #[cfg(any(test, feature = "simulation"))]
            mistake: None,
        }
    }

    /// The peer's number.
    #[must_use]
    pub fn id(&self) -> Id {
        self.node.raft.id
    }

    /// The newest known term. At most one peer leads in each.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// True while the peer runs the coordinator.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.is_leading
    }

    /// The leader, as far as this peer knows. A peer without a vote notices the lack of a leader only by silence.
    #[must_use]
    pub fn leader(&self) -> Option<Id> {
        let leader = Some(self.node.raft.leader_id).filter(|id| *id != raft::INVALID_ID)?;
        let is_silent = |heard: &u64| self.now - heard > 2 * TIMEOUT_TICKS as u64;
        let is_gone = leader != self.id() && self.heard.get(&leader).is_none_or(is_silent);
        (!is_gone).then_some(leader)
    }

    /// Places of all peers, including lost ones that are not removed yet.
    #[must_use]
    pub fn places(&self) -> &BTreeMap<Id, Place> {
        &self.node.store().places
    }

    /// Peers that vote.
    #[must_use]
    pub fn voters(&self) -> Vec<Id> {
        sorted(&self.node.store().conf().voters)
    }

    /// Voters of which any majority can go on. During a change these are the voters before it: until others know that
    /// the change has ended, they cannot elect anybody without most of those.
    #[must_use]
    pub fn deciding(&self) -> &[Id] {
        &self.deciding
    }

    fn update_deciding(&mut self) {
        let conf = self.node.store().conf();
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::DecidesEarly) {
            self.deciding = self.voters();
        }
        if !self.is_leading || !conf.voters_outgoing.is_empty() {
            return;
        }
        let (own, progress, last) = (self.id(), self.node.raft.prs(), self.conf_index);
        let knows = |id: &&Id| **id == own || progress.get(**id).is_some_and(|other| other.committed_index >= last);
        if 2 * conf.voters.iter().filter(knows).count() > conf.voters.len() {
            self.deciding = self.voters();
        }
    }

    /// All kept records, in order.
    #[must_use]
    pub fn records(&self) -> Vec<ByteBuf> {
        let records = self.node.store().records_until(self.node.raft.raft_log.applied);
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::ForgetsLast) {
            return records[..records.len().saturating_sub(1)].to_vec();
        }
        records
    }

    /// Advances time by one tick.
    pub fn tick(&mut self) {
        self.now += 1;
        self.tick_of_election();
        self.settle();
        if self.is_leading {
            self.record_lost();
            self.change_voters();
        }
    }

    /// The trap: two peers that stand at the same time vote for themselves. If they wait equally long they stand
    /// together again, without end. So a peer that was not elected rests, each time for another number of ticks.
    fn tick_of_election(&mut self) {
        if self.leader().is_some() {
            self.rests = 0;
        }
        if self.rests > 0 {
            self.rests -= 1;
            return;
        }
        let elapsed = self.node.raft.election_elapsed;
        self.node.tick();
        let has_stood = elapsed > 0 && self.node.raft.election_elapsed == 0 && self.leader().is_none();
        #[cfg(any(test, feature = "simulation"))]
        let has_stood = has_stood && self.mistake != Some(Mistake::StandsTogether);
        if has_stood {
            self.stands += 1;
            self.rests = mixed(self.id(), self.stands) % TIMEOUT_TICKS as u64;
        }
    }

    /// Handles a message of another peer.
    pub fn handle(&mut self, message: Message) {
        self.heard.insert(message.from, self.now);
        self.lost.remove(&message.from);
        // Raft rejects messages of peers that it does not know, or not any more.
        let _ = self.node.step(message.into());
        self.settle();
    }

    /// Adds another peer, which wants the records, if this one leads.
    pub fn greet(&mut self, id: Id, place: Place) {
        if !self.places().contains_key(&id) {
            self.joining.insert(id, place);
            self.heard.insert(id, self.now);
            self.change_voters();
        }
    }

    /// Permits other voters. Called once all daemons know of them, while this peer decides alone.
    pub fn permit(&mut self) {
        self.may_have_others = self.voters() == [self.id()];
        self.change_voters();
    }

    /// Notes silent peers as lost. A change of voters needs a quorum, so a leader that is cut off removes nobody.
    fn record_lost(&mut self) {
        let others = self.node.store().places.keys().copied().filter(|id| *id != self.node.raft.id);
        let silent = |id: &Id| self.heard.get(id).is_none_or(|heard| self.now - heard > LOST_TICKS);
        let lost: Vec<Id> = others.filter(silent).collect();
        self.lost.extend(lost);
    }

    /// Proposes records of the coordinator. True if this peer leads.
    pub fn propose(&mut self, proposal: &Proposal) -> bool {
        if !self.is_leading || self.node.propose(Vec::new(), encode_long(proposal)).is_err() {
            return false;
        }
        self.proposed.push_back(self.node.raft.raft_log.last_index());
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::KeptAtOnce) {
            self.report_kept(u64::MAX);
        }
        self.settle();
        true
    }

    /// True if another coordinator may begin: this peer leads, all proposals are kept, and the records have not ended.
    #[must_use]
    pub fn may_begin_coordinator(&self) -> bool {
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::BeginsEarly) {
            return self.is_leading;
        }
        self.is_leading && self.proposed.is_empty() && !self.has_ended
    }

    /// Begins another coordinator, from the kept records. Later proposals are its own. Not called for the founder's
    /// first coordinator, which may have proposed something before its peer's [`Output::Lead`] is handled.
    ///
    /// # Panics
    /// Unless [`Peer::may_begin_coordinator`].
    pub fn begin_coordinator(&mut self) {
        assert!(self.may_begin_coordinator(), "{self:?} has {} proposals under way", self.proposed.len());
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(Mistake::CountsOthers) {
            return;
        }
        self.kept = 0;
        // These are about proposals of the previous coordinator.
        self.outputs.retain(|output| !matches!(output, Output::Kept(_)));
    }

    /// Transfers the lead to a voter that has all entries. False if none exists.
    pub fn hand_over(&mut self) -> bool {
        let last = self.node.raft.raft_log.last_index();
        let (own, conf) = (self.id(), self.node.store().conf().clone());
        let has_all = |id: &Id| self.node.raft.prs().get(*id).is_some_and(|progress| progress.matched == last);
        let other = conf.voters.iter().copied().find(|id| *id != own && !self.lost.contains(id) && has_all(id));
        if let Some(other) = other.filter(|_| self.is_leading) {
            self.node.transfer_leader(other);
            self.settle();
            return true;
        }
        false
    }

    /// Takes the outputs since the last call.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Handles Raft's output until none exists.
    fn settle(&mut self) {
        self.see_loss_of_lead();
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            self.send(ready.take_messages());
            if *ready.snapshot() != Snapshot::default() {
                self.node.mut_store().restore(ready.snapshot());
            }
            self.apply(ready.take_committed_entries());
            self.node.mut_store().append(ready.entries());
            if let Some(state) = ready.hs() {
                self.node.mut_store().set_hard_state(state.clone());
            }
            self.send(ready.take_persisted_messages());
            let mut light = self.node.advance(ready);
            if let Some(commit) = light.commit_index() {
                self.node.mut_store().set_commit(commit);
            }
            self.send(light.take_messages());
            self.apply(light.take_committed_entries());
            self.node.advance_apply();
        }
        self.see_loss_of_lead();
        self.see_lead();
        self.update_deciding();
    }

    fn send(&mut self, messages: Vec<raft::eraftpb::Message>) {
        for message in messages {
            // A lost snapshot shows by the follower's answers to later messages.
            if message.msg_type == MessageType::MsgSnapshot {
                self.node.report_snapshot(message.to, SnapshotStatus::Finish);
            }
            self.outputs.push(Output::Send { to: message.to, message: Box::new(message.into()) });
        }
    }

    fn apply(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.node.mut_store().applied = None;
            match entry.entry_type {
                EntryType::EntryNormal => self.apply_proposal(&entry),
                EntryType::EntryConfChangeV2 => self.apply_change(&entry),
                // This kind is never proposed.
                EntryType::EntryConfChange => {}
            }
            self.node.mut_store().applied = Some(entry.index);
            self.report_kept(entry.index);
        }
    }

    fn apply_proposal(&mut self, entry: &Entry) {
        // The first entry of a new leader is empty, and does not decode.
        match decode_body::<Proposal>(&entry.data) {
            Ok(Proposal::Replace(records)) => self.node.mut_store().compact(entry.index, records),
            Ok(Proposal::End(why)) if !self.has_ended => {
                self.has_ended = true;
                self.outputs.push(Output::Ended(why));
            }
            _ => {}
        }
    }

    fn apply_change(&mut self, entry: &Entry) {
        let change: ConfChangeV2 = protobuf::Message::parse_from_bytes(&entry.data).expect("a peer has written it");
        // Changes that Raft makes by itself carry no places.
        if let Ok(places) = decode_body(&entry.context) {
            self.node.mut_store().places = places;
        }
        let conf = self.node.apply_conf_change(&change).expect("who leads makes sound changes");
        // An earlier leader, which did not hear this peer, removed it. Raft leaves stepping down to its user.
        if !conf.voters.contains(&self.id()) && !conf.voters_outgoing.contains(&self.id()) {
            let term = self.term();
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        // Once a single voter is left, daemons may be told so: a later growth needs a new permission.
        self.may_have_others &= conf.voters.len() > 1 || self.voters().len() == 1;
        self.node.mut_store().set_conf(conf);
        self.conf_index = entry.index;
    }

    fn report_kept(&mut self, index: u64) {
        let before = self.kept;
        while self.proposed.pop_front_if(|proposed| *proposed <= index).is_some() {
            self.kept += 1;
        }
        if self.kept > before {
            self.outputs.push(Output::Kept(self.kept));
        }
    }

    /// Called before entries are applied: entries of another leader may have the indices of proposals made here.
    fn see_loss_of_lead(&mut self) {
        if self.is_leading && self.node.raft.state != StateRole::Leader {
            self.proposed.clear();
            self.is_leading = false;
            self.outputs.push(Output::Yield);
        }
    }

    fn see_lead(&mut self) {
        let is_elected = self.node.raft.state == StateRole::Leader;
        // Until an entry of its own term is kept, a leader does not know which earlier entries are.
        let knows_all = self.node.raft.raft_log.term(self.node.raft.raft_log.applied) == Ok(self.term());
        #[cfg(any(test, feature = "simulation"))]
        let knows_all = knows_all || self.mistake == Some(Mistake::LeadsUnsure);
        if is_elected && knows_all && !self.is_leading {
            (self.kept, self.is_leading) = (0, true);
            // Only from now on do all peers answer this one.
            self.heard = self.places().keys().map(|id| (*id, self.now)).collect();
            self.lost.clear();
            // The voters elected it, so most of them know the present change.
            let conf = self.node.store().conf();
            let deciding = if conf.voters_outgoing.is_empty() { &conf.voters } else { &conf.voters_outgoing };
            self.deciding = sorted(deciding);
            self.outputs.push(Output::Lead);
        }
    }

    /// Adds joining peers, makes up-to-date peers voters, and removes lost ones.
    fn change_voters(&mut self) {
        let conf = self.node.store().conf().clone();
        if !self.is_leading || self.node.raft.has_pending_conf() || !conf.voters_outgoing.is_empty() {
            return;
        }
        let own = self.id();
        let is_heard = |id: &Id| self.heard.get(id).is_some_and(|heard| self.now - heard < TIMEOUT_TICKS as u64);
        let has_all = |id: &Id| {
            let (progress, kept) = (self.node.raft.prs().get(*id), self.node.raft.raft_log.committed);
            progress.is_some_and(|progress| progress.state == ProgressState::Replicate || progress.matched >= kept)
        };
        let is_there = |id: &Id| *id != own && !self.lost.contains(id);
        let mut voters: Vec<Id> = conf.voters.iter().copied().filter(is_there).collect();
        // If some voters must go, keep those that answer.
        voters.sort_by_key(|id| !is_heard(id));
        let learners = conf.learners.iter().copied().filter(is_there).filter(|id| is_heard(id) && has_all(id));
        let mut wanted: Vec<Id> = std::iter::once(own).chain(voters).chain(learners).collect();
        let is_permitted = self.may_have_others || conf.voters.len() > 1;
        #[cfg(any(test, feature = "simulation"))]
        let is_permitted = is_permitted || self.mistake == Some(Mistake::GrowsEarly);
        let count = self.voter_count.min(wanted.len());
        wanted.truncate(if count < 3 || !is_permitted { 1 } else { count - usize::from(count.is_multiple_of(2)) });
        let mut changes: Vec<(ConfChangeType, Id)> = Vec::new();
        let of_kind = |kind| move |id: &Id| (kind, *id);
        changes.extend(wanted.iter().filter(|id| !conf.voters.contains(id)).map(of_kind(ConfChangeType::AddNode)));
        for id in conf.voters.iter().chain(&conf.learners).filter(|id| !wanted.contains(id)) {
            match (self.lost.contains(id), conf.voters.contains(id)) {
                (true, _) => changes.push((ConfChangeType::RemoveNode, *id)),
                (false, true) => changes.push((ConfChangeType::AddLearnerNode, *id)),
                (false, false) => {}
            }
        }
        // Another leader may have added them since.
        let mut joining = std::mem::take(&mut self.joining);
        joining.retain(|id, _| !self.places().contains_key(id));
        changes.extend(joining.keys().map(of_kind(ConfChangeType::AddLearnerNode)));
        if changes.is_empty() {
            return;
        }
        let mut places = self.places().clone();
        places.extend(joining.clone());
        places.retain(|id, _| !self.lost.contains(id));
        let singles = changes.into_iter().map(|(kind, id)| {
            let mut single = ConfChangeSingle::default();
            (single.change_type, single.node_id) = (kind, id);
            single
        });
        let mut change = ConfChangeV2::default();
        change.set_changes(singles.collect::<Vec<_>>().into());
        if self.node.propose_conf_change(encode_body(&places), change).is_err() {
            self.joining.extend(joining);
        }
        self.settle();
    }
}

#[cfg(any(test, feature = "simulation"))]
pub mod sim;
