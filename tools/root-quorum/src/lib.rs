//! Several hosts keep the records of a job's root, and agree which of them runs it. Pure: no I/O, no clock, no threads.
//!
//! ```text
//!   root ── propose ─▶ member 1 ══ Message ══ member 2
//!        ◀── Kept ───  (leads)  ══ Message ══ member 3      each has all records
//!
//!   member 1 is lost:           member 2 ── Lead ─▶ another root, which goes on with the records
//! ```
//! * A record is *kept* when most voters have it. Nothing that follows from it leaves the root before that.
//! * Who leads runs the root. One that does not hear of most voters for the timeout yields, and its root ends; another
//!   leads at the earliest then.
//! * The first member is alone at first. Others join it, learn what it has, and become voters three (or five) at a
//!   time, so that no change makes the loss of one host worse than before it. With fewer than three the one that leads
//!   is the only voter.
//! * Daemons of the job hear of it before the first member has others to decide with ([`Notice`]).
//! * A member that is silent for four timeouts is lost, and does not come back: another joins in its place, under a
//!   number of its own. So nothing of it has to be on a disk.
//!
//! Agreement is that of the crate `raft`, of TiKV: it has no I/O of its own, pre-votes (a member that was cut off
//! disturbs nobody when it is back), leaders that step down without a quorum, and joint changes of voters. Crate
//! `raftbare` was looked at and not taken: its voters compare the lengths of logs, and not the terms of their ends, so
//! that records which were kept can be lost.
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

/// Which member; never 0, and never the same one again.
pub type Id = u64;

/// Ticks after which one that hears of no leader stands for election, and a leader that hears of no quorum yields.
pub const TIMEOUT_TICKS: usize = 10;
/// Ticks between heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// One that is not heard for so long is taken for lost by who leads: another is to join in its place.
const LOST_TICKS: u64 = 4 * TIMEOUT_TICKS as u64;
/// Members wait a number of ticks beyond that, so that most do not stand at the same time. Deterministic, so that
/// simulations are.
const SPREAD_TICKS: u64 = 5;
/// Bytes of records in one message, as a rule.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Where a member is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Where it listens.
    pub address: SocketAddr,
    /// The host, as users call it.
    pub host: String,
}

/// What a root wants to be kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proposal {
    /// These records come behind those that there are.
    Append(Vec<ByteBuf>),
    /// These take the place of all that there were.
    Replace(Vec<ByteBuf>),
    /// There will be no more: the job is over, or not to come back. Why, if somebody is to know that.
    End(String),
}

/// What follows.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Goes to another member. It may be lost, and may come late.
    Send {
        /// To whom.
        to: Id,
        /// What.
        message: Box<Message>,
    },
    /// How many of the proposals of the root that runs are kept ([`Member::begin_root`]).
    Kept(u64),
    /// This member leads: it runs the root, with the records that there are ([`Member::records`]).
    Lead,
    /// It does not lead any more: its root is to end before anything else.
    Yield,
    /// The records are not needed any more. Why, if somebody is to know that.
    Ended(String),
}

/// A mistake that a test plants.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    /// A proposal is called kept when it is made.
    KeptAtOnce,
    /// Who was elected leads before it knows what was kept.
    LeadsUnsure,
    /// One that was elected goes on without the last record.
    ForgetsLast,
    /// Another root on the same host begins while what the one before has proposed is on its way.
    BeginsEarly,
    /// Proposals of the root before are counted as those of the root that has followed on the same host.
    CountsOthers,
    /// Others become voters before that is permitted.
    GrowsEarly,
    /// It is permitted before all daemons know.
    PermitsEarly,
    /// Voters are said to decide while a change of voters is under way.
    DecidesEarly,
    /// Who was not elected stands again when the other does.
    StandsTogether,
}

/// A number that follows from these two, and is another one for others.
fn mixed(id: Id, count: u64) -> u64 {
    (id ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn sorted(ids: &[Id]) -> Vec<Id> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted
}

/// One of them. See the crate.
pub struct Member {
    node: RawNode<Log>,
    /// Have asked to be added.
    joining: BTreeMap<Id, Place>,
    lost: BTreeSet<Id>,
    /// Ticks until now, and when each was heard last.
    now: u64,
    heard: BTreeMap<Id, u64>,
    voter_count: usize,
    /// All daemons know that there are to be other voters than this one.
    may_have_others: bool,
    is_leading: bool,
    has_ended: bool,
    /// Indices of proposals since it leads that are not kept yet …
    proposed: std::collections::VecDeque<u64>,
    /// … and the number of those that are, of the root that runs.
    kept: u64,
    outputs: Vec<Output>,
    /// See [`Member::deciding`].
    deciding: Vec<Id>,
    /// Where the last change of voters is.
    conf_index: u64,
    /// How often it has stood for election, and for how many ticks it does not stand again.
    stands: u64,
    rests: u64,
    #[cfg(test)]
    mistake: Option<Mistake>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {} ({:?}, term {})", self.id(), self.node.raft.state, self.term())
    }
}

impl Member {
    /// The first one, which leads. There are to be `voter_count` voters.
    ///
    /// # Panics
    /// When its number is 0.
    #[must_use]
    pub fn found(id: Id, place: Place, voter_count: usize) -> Self {
        let mut member = Self::new(id, Log::founded(id, place), 1);
        member.voter_count = voter_count;
        // It is the only voter, so it is elected.
        let _ = member.node.campaign();
        member.settle();
        member
    }

    /// One that is to be added by who leads ([`Member::greet`] there). There are to be `voter_count` voters.
    ///
    /// # Panics
    /// When its number is 0.
    #[must_use]
    pub fn join(id: Id, voter_count: usize) -> Self {
        let mut member = Self::new(id, Log::default(), 0);
        member.voter_count = voter_count;
        member
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
            #[cfg(test)]
            mistake: None,
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> Id {
        self.node.raft.id
    }

    /// The newest term it has heard of. One member at most leads in each.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Whether it runs the root.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.is_leading
    }

    /// Who leads, as far as it knows. One that has no vote notices only by the silence that nobody does.
    #[must_use]
    pub fn leader(&self) -> Option<Id> {
        let leader = Some(self.node.raft.leader_id).filter(|id| *id != raft::INVALID_ID)?;
        let is_silent = |heard: &u64| self.now - heard > 2 * TIMEOUT_TICKS as u64;
        let is_gone = leader != self.id() && self.heard.get(&leader).is_none_or(is_silent);
        (!is_gone).then_some(leader)
    }

    /// Where members are, those among them that are lost and not left out yet.
    #[must_use]
    pub fn places(&self) -> &BTreeMap<Id, Place> {
        &self.node.store().places
    }

    /// Those whose votes count.
    #[must_use]
    pub fn voters(&self) -> Vec<Id> {
        sorted(&self.node.store().conf().voters)
    }

    /// Those of whom any majority can go on. During a change of voters these are the voters before it: until others
    /// know that it has ended, they cannot elect anybody without most of those.
    #[must_use]
    pub fn deciding(&self) -> &[Id] {
        &self.deciding
    }

    fn look_who_decides(&mut self) {
        let conf = self.node.store().conf();
        #[cfg(test)]
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

    /// All records that are kept, in their order.
    #[must_use]
    pub fn records(&self) -> Vec<ByteBuf> {
        let records = self.node.store().records_until(self.node.raft.raft_log.applied);
        #[cfg(test)]
        if self.mistake == Some(Mistake::ForgetsLast) {
            return records[..records.len().saturating_sub(1)].to_vec();
        }
        records
    }

    /// A tick of time has passed.
    pub fn tick(&mut self) {
        self.now += 1;
        self.tick_of_election();
        self.settle();
        if self.is_leading {
            self.look_for_lost();
            self.change_voters();
        }
    }

    /// The trap: two that stand at the same time vote for themselves, and if they wait equally long they stand together
    /// again, for ever. So who was not elected rests for a while, and for another one each time.
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
        #[cfg(test)]
        let has_stood = has_stood && self.mistake != Some(Mistake::StandsTogether);
        if has_stood {
            self.stands += 1;
            self.rests = mixed(self.id(), self.stands) % TIMEOUT_TICKS as u64;
        }
    }

    /// Another member has said something.
    pub fn hear(&mut self, message: Message) {
        self.heard.insert(message.from, self.now);
        self.lost.remove(&message.from);
        // One that is not a member any more, or not yet, is no concern of Raft's.
        let _ = self.node.step(message.into());
        self.settle();
    }

    /// Another member is there and wants to have the records.
    pub fn greet(&mut self, id: Id, place: Place) {
        if !self.places().contains_key(&id) {
            self.joining.insert(id, place);
            self.heard.insert(id, self.now);
            self.change_voters();
        }
    }

    /// All daemons of the job know that there are to be others that decide with this one, which does so alone.
    pub fn permit(&mut self) {
        self.may_have_others = self.voters() == [self.id()];
        self.change_voters();
    }

    /// Others that are silent. A change of voters needs most of them, so who is cut off leaves out nobody.
    fn look_for_lost(&mut self) {
        let others = self.node.store().places.keys().copied().filter(|id| *id != self.node.raft.id);
        let silent = |id: &Id| self.heard.get(id).is_none_or(|heard| self.now - heard > LOST_TICKS);
        let lost: Vec<Id> = others.filter(silent).collect();
        self.lost.extend(lost);
    }

    /// The root wants this to be kept. Returns whether this member leads.
    pub fn propose(&mut self, proposal: &Proposal) -> bool {
        if !self.is_leading || self.node.propose(Vec::new(), encode_long(proposal)).is_err() {
            return false;
        }
        self.proposed.push_back(self.node.raft.raft_log.last_index());
        #[cfg(test)]
        if self.mistake == Some(Mistake::KeptAtOnce) {
            self.tell_kept(u64::MAX);
        }
        self.settle();
        true
    }

    /// Whether another root may begin: this member leads, and all that was proposed is kept, and not the end.
    #[must_use]
    pub fn may_begin_root(&self) -> bool {
        #[cfg(test)]
        if self.mistake == Some(Mistake::BeginsEarly) {
            return self.is_leading;
        }
        self.is_leading && self.proposed.is_empty() && !self.has_ended
    }

    /// A root begins with the records that there are. What is proposed from now on is its own. Called for each but the
    /// founder's first, which may have proposed something by the time its member is heard of.
    ///
    /// # Panics
    /// When none may begin.
    pub fn begin_root(&mut self) {
        assert!(self.may_begin_root(), "{self:?} has {} proposals under way", self.proposed.len());
        #[cfg(test)]
        if self.mistake == Some(Mistake::CountsOthers) {
            return;
        }
        self.kept = 0;
        // Of the root before, and not told yet.
        self.outputs.retain(|output| !matches!(output, Output::Kept(_)));
    }

    /// Lets another voter lead, if one has all that this one has.
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

    /// What has followed since the last call.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Takes what Raft has to say until it has nothing more.
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
        self.look_who_decides();
    }

    fn send(&mut self, messages: Vec<raft::eraftpb::Message>) {
        for message in messages {
            // Whether it arrives shows by what comes behind it.
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
                // None is made.
                EntryType::EntryConfChange => {}
            }
            self.node.mut_store().applied = Some(entry.index);
            self.tell_kept(entry.index);
        }
    }

    fn apply_proposal(&mut self, entry: &Entry) {
        // A new leader's first entry is empty.
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
        let change: ConfChangeV2 = protobuf::Message::parse_from_bytes(&entry.data).expect("a member has written it");
        // Raft itself makes changes that say nothing of it.
        if let Ok(places) = decode_body(&entry.context) {
            self.node.mut_store().places = places;
        }
        let conf = self.node.apply_conf_change(&change).expect("who leads makes sound changes");
        // By another that led before, and did not hear this one. Raft leaves it to its user to step down.
        if !conf.voters.contains(&self.id()) && !conf.voters_outgoing.contains(&self.id()) {
            let term = self.term();
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        // By the time there are to be others again daemons may have been told otherwise.
        self.may_have_others &= conf.voters.len() > 1 || self.voters().len() == 1;
        self.node.mut_store().set_conf(conf);
        self.conf_index = entry.index;
    }

    fn tell_kept(&mut self, index: u64) {
        let before = self.kept;
        while self.proposed.pop_front_if(|proposed| *proposed <= index).is_some() {
            self.kept += 1;
        }
        if self.kept > before {
            self.outputs.push(Output::Kept(self.kept));
        }
    }

    /// Before anything is applied: entries of another that leads may have the indices of what was proposed here.
    fn see_loss_of_lead(&mut self) {
        if self.is_leading && self.node.raft.state != StateRole::Leader {
            self.proposed.clear();
            self.is_leading = false;
            self.outputs.push(Output::Yield);
        }
    }

    fn see_lead(&mut self) {
        let is_elected = self.node.raft.state == StateRole::Leader;
        // Until an entry of its own term is kept, it does not know which others are.
        let knows_all = self.node.raft.raft_log.term(self.node.raft.raft_log.applied) == Ok(self.term());
        #[cfg(test)]
        let knows_all = knows_all || self.mistake == Some(Mistake::LeadsUnsure);
        if is_elected && knows_all && !self.is_leading {
            (self.kept, self.is_leading) = (0, true);
            // Only from now on do all answer this one.
            self.heard = self.places().keys().map(|id| (*id, self.now)).collect();
            self.lost.clear();
            // Most of them have elected it.
            let conf = self.node.store().conf();
            let deciding = if conf.voters_outgoing.is_empty() { &conf.voters } else { &conf.voters_outgoing };
            self.deciding = sorted(deciding);
            self.outputs.push(Output::Lead);
        }
    }

    /// Adds who waits for that, makes voters of those that have all, and leaves out who is lost.
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
        // Where some are left out, not those that answer.
        voters.sort_by_key(|id| !is_heard(id));
        let learners = conf.learners.iter().copied().filter(is_there).filter(|id| is_heard(id) && has_all(id));
        let mut wanted: Vec<Id> = std::iter::once(own).chain(voters).chain(learners).collect();
        let is_permitted = self.may_have_others || conf.voters.len() > 1;
        #[cfg(test)]
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
        // Another one that led may have added them since they asked.
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

#[cfg(test)]
mod sim;
