//! Simulation of peers, their coordinators and the network between them, from a seed. Peers are lost for good, stopped
//! for a while, or cut off; messages are lost, late or doubled. A coordinator proposes unique records, and relies on
//! those that it was told are kept. It is killed now and then, and another takes its place on the same host. It informs
//! the job's daemons, some of them late or lost, of the hosts with its records.
//!
//! Invariants:
//! * Kept records stay, in order: the next leader has all of them, with no other coordinator's between them.
//! * In each term at most one peer leads, and a coordinator begins with all records that earlier coordinators were told
//!   are kept.
//! * When another host has the coordinator, no daemon takes the former host for the only one that can.
//!
//! At the end, without further losses, some peer leads, its proposals are kept, and it does not decide alone.

use super::{Id, Message, Mistake, Notice, Output, Peer, Place, Proposal, Step};
use raft::eraftpb::{Entry, EntryType};
use redrt_wire::daemon::Coordinators;
use redrt_wire::frame::{decode_body, encode_body};
use serde_bytes::ByteBuf;
use simulation_kit::schedule::Agenda;
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The coordinator that a peer runs.
struct Coordinator {
    term: u64,
    /// Position in the history of the records that it began with.
    at: usize,
    begun: Vec<ByteBuf>,
    /// Proposals of this coordinator, and how many of them it was told are kept.
    proposed: Vec<Vec<ByteBuf>>,
    kept: u64,
    notice: Notice,
}

/// A daemon of the job.
struct FollowingDaemon {
    knows: Coordinators,
    /// Notices under way, with their times of arrival.
    mail: VecDeque<(u64, Coordinators)>,
    lost_at: Option<u64>,
}

/// Time until a coordinator knows that a daemon is lost.
const DETECTION: u64 = 200;

struct SimulatedPeer {
    peer: Peer,
    coordinator: Option<Coordinator>,
    /// True if the peer leads and its coordinator was killed.
    is_coordinator_due: bool,
    /// Until then the peer is stopped.
    stopped_until: u64,
}

impl SimulatedPeer {
    fn of(peer: Peer) -> Self {
        Self { peer, coordinator: None, is_coordinator_due: false, stopped_until: 0 }
    }
}

struct World {
    random: Random,
    trace: Trace,
    now: u64,
    simulated_peers: BTreeMap<Id, SimulatedPeer>,
    /// Messages under way: sender, receiver, message.
    network: Agenda<(Id, Id, Message)>,
    /// Cut links.
    cut: BTreeSet<(Id, Id)>,
    lost: BTreeSet<Id>,
    next: Id,
    /// All records ever kept, in order: coordinators were told so, or began with them.
    history: Vec<ByteBuf>,
    leaders: BTreeMap<u64, Id>,
    /// Peer of the last coordinator that began.
    coordinator_id: Option<Id>,
    daemons: Vec<FollowingDaemon>,
    coordinators: u64,
    voters: usize,
    wrong: Option<String>,
    mistake: Option<Mistake>,
}

fn place(id: Id) -> Place {
    Place { address: ([127, 0, 0, 1], id as u16).into(), host: format!("h{id}") }
}

impl World {
    fn new(seed: u64, setup: &Setup<QuorumSimulator>) -> Self {
        let (mut random, mistake) = (Random::new(seed), setup.mistake);
        let voters = random.pick(&[3, 5]);
        let mut first = Peer::found(1, place(1), voters);
        first.mistake = mistake;
        let mut world = Self {
            random,
            trace: setup.trace,
            now: 0,
            simulated_peers: BTreeMap::from([(1, SimulatedPeer::of(first))]),
            network: Agenda::default(),
            cut: BTreeSet::new(),
            lost: BTreeSet::new(),
            next: 2,
            history: Vec::new(),
            leaders: BTreeMap::new(),
            coordinator_id: None,
            daemons: (0..4)
                .map(|_| FollowingDaemon { knows: Coordinators::One, mail: VecDeque::new(), lost_at: None })
                .collect(),
            coordinators: 0,
            voters,
            wrong: None,
            mistake,
        };
        world.carry_out(1);
        world
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(|| format!("{:>6}  {}", self.now, what()));
    }

    fn join(&mut self) {
        let id = self.next;
        self.say(|| format!("{id}  joins"));
        self.next += 1;
        let mut peer = Peer::join(id, self.voters);
        peer.mistake = self.mistake;
        self.simulated_peers.insert(id, SimulatedPeer::of(peer));
        // Announces itself once; processes repeat this.
        self.simulated_peers.values_mut().for_each(|simulated| simulated.peer.greet(id, place(id)));
        self.carry_out_all();
    }

    fn lose(&mut self, id: Id) {
        self.say(|| format!("{id}  is lost"));
        self.simulated_peers.remove(&id);
        self.lost.insert(id);
        self.drop_mail(id);
        self.cut.retain(|(one, other)| *one != id && *other != id);
    }

    /// Drops notices of a coordinator that is gone which have not arrived. The next coordinator repeats them.
    fn drop_mail(&mut self, of: Id) {
        if self.coordinator_id == Some(of) {
            self.daemons.iter_mut().for_each(|daemon| daemon.mail.clear());
        }
    }

    /// Delivers notices that are due, and sends those of this peer's coordinator.
    fn notify_daemons(&mut self, id: Id) {
        let (now, random) = (self.now, &mut self.random);
        let Some(SimulatedPeer { peer, coordinator: Some(coordinator), .. }) = self.simulated_peers.get_mut(&id) else {
            return;
        };
        for daemon in self.daemons.iter_mut().filter(|daemon| daemon.lost_at.is_none()) {
            while let Some((_, coordinators)) = daemon.mail.pop_front_if(|(due, _)| *due <= now) {
                daemon.knows = coordinators;
            }
        }
        let is_there = |daemon: &&FollowingDaemon| daemon.lost_at.is_none_or(|at| now < at + DETECTION);
        while let Some(step) = coordinator.notice.poll(peer.deciding().len(), peer.places().len(), || {
            self.daemons.iter().filter(is_there).all(|daemon| daemon.mail.is_empty())
        }) {
            match step {
                Step::Permit => peer.permit(),
                Step::Send(coordinators) => {
                    for daemon in &mut self.daemons {
                        let late = if random.one_in(4) { random.within(0..5000) } else { random.within(0..20) };
                        let due = daemon.mail.back().map_or(0, |(due, _)| *due).max(now + 1 + late);
                        daemon.mail.push_back((due, coordinators));
                    }
                }
            }
        }
        self.carry_out(id);
    }

    fn carry_out_all(&mut self) {
        self.simulated_peers.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.carry_out(id));
    }

    fn carry_out(&mut self, id: Id) {
        let outputs = self.simulated_peers.get_mut(&id).map(|simulated| simulated.peer.outputs());
        for output in outputs.into_iter().flatten() {
            if !matches!(output, Output::Send { .. }) {
                self.say(|| format!("{id}  {output:?}"));
            }
            let Some(simulated) = self.simulated_peers.get_mut(&id) else { return };
            match output {
                Output::Send { to, message } => {
                    // Through the wire's encoding.
                    let message: Message = decode_body(&encode_body(&*message)).expect("it is whole");
                    let copies = match self.random.below(100) {
                        0..3 => 0,
                        3..5 => 2,
                        _ => 1,
                    };
                    for _ in 0..copies {
                        let late_max = if self.random.one_in(50) { 400 } else { 20 };
                        let late = self.random.within(0..late_max);
                        self.network.plan(self.now + 1 + late, (id, to, message.clone()));
                    }
                }
                Output::Kept(count) => {
                    let Some(coordinator) = &mut simulated.coordinator else { continue };
                    coordinator.kept = count.min(coordinator.proposed.len() as u64);
                    if count > coordinator.kept {
                        self.wrong.get_or_insert(format!(
                            "coordinator of term {} was told of what it has not said",
                            coordinator.term
                        ));
                    }
                    let mut known = coordinator.begun.clone();
                    known.extend(coordinator.proposed[..coordinator.kept as usize].iter().flatten().cloned());
                    let after = &self.history[coordinator.at..];
                    // A coordinator that does not know its successor yet may hear late of kept records: the successor
                    // has them.
                    let is_last = self.leaders.keys().next_back() == Some(&coordinator.term);
                    if is_last && known.starts_with(after) {
                        self.history.splice(coordinator.at.., known);
                    } else if !after.starts_with(&known) {
                        self.wrong.get_or_insert(format!(
                            "coordinator of term {} was told that is kept which is not",
                            coordinator.term
                        ));
                    }
                }
                Output::Lead => {
                    let term = simulated.peer.term();
                    if self.leaders.insert(term, id).is_some_and(|other| other != id) {
                        self.wrong.get_or_insert(format!("two coordinators in term {term}"));
                    }
                    self.begin_coordinator(id);
                }
                Output::Yield => {
                    (simulated.coordinator, simulated.is_coordinator_due) = (None, false);
                    self.drop_mail(id);
                }
                Output::Ended(_) => {}
            }
        }
    }

    /// Begins another coordinator at the leader.
    fn begin_coordinator(&mut self, id: Id) {
        let Some(SimulatedPeer { peer, coordinator, is_coordinator_due, .. }) = self.simulated_peers.get_mut(&id)
        else {
            return;
        };
        let (term, begun) = (peer.term(), peer.records());
        peer.begin_coordinator();
        let is_first = |record: &ByteBuf| begun.first() == Some(record);
        let at = match begun.first().is_some_and(|first| first.starts_with(b"all ")) {
            true => self.history.iter().position(is_first).unwrap_or(self.history.len()),
            false => 0,
        };
        // The leader may have more records than any coordinator was told of. A former leader that does not know its
        // successor has nothing kept.
        let is_last = self.leaders.keys().next_back() == Some(&term);
        if is_last && begun.starts_with(&self.history[at..]) {
            self.history.splice(at.., begun.clone());
        } else if is_last || !self.history[at..].starts_with(&begun) {
            self.wrong.get_or_insert(format!("the coordinator of term {term} lacks records"));
        }
        self.coordinators += 1;
        let mut notice = Notice::default();
        notice.mistake = self.mistake;
        (*coordinator, *is_coordinator_due) =
            (Some(Coordinator { term, at, begun, proposed: Vec::new(), kept: 0, notice }), false);
        let is_elsewhere = self.coordinator_id.replace(id).is_some_and(|before| before != id);
        let is_gone = |daemon: &FollowingDaemon| daemon.lost_at.is_none() && daemon.knows == Coordinators::One;
        if is_elsewhere && is_last && self.daemons.iter().any(is_gone) {
            self.wrong.get_or_insert(format!("a daemon has left before the coordinator of term {term} has begun"));
        }
    }

    fn propose(&mut self, id: Id) {
        let number = self.random.number();
        let Some(SimulatedPeer { peer, coordinator: Some(coordinator), .. }) = self.simulated_peers.get_mut(&id) else {
            return;
        };
        let replaces = number.is_multiple_of(40) && coordinator.kept as usize == coordinator.proposed.len();
        let records = match replaces {
            true => vec![ByteBuf::from(format!("all {number} by {id}")), ByteBuf::from(format!("and {number}"))],
            false => vec![ByteBuf::from(format!("{number} by {id}"))],
        };
        let proposal = match replaces {
            true => Proposal::Replace(records.clone()),
            false => Proposal::Append(records.clone()),
        };
        coordinator.proposed.push(records);
        if !peer.propose(&proposal) {
            coordinator.proposed.pop();
        }
        self.carry_out(id);
    }

    /// A step of time.
    fn step(&mut self, is_calm: bool) {
        self.now += 1;
        while let Some((from, to, message)) = self.network.due(self.now) {
            let is_cut = self.cut.contains(&(from, to)) || self.cut.contains(&(to, from));
            let Some(simulated) = self.simulated_peers.get_mut(&to).filter(|_| !is_cut) else { continue };
            if simulated.stopped_until > self.now {
                // The message waits in the socket.
                self.network.plan(simulated.stopped_until, (from, to, message));
                continue;
            }
            simulated.peer.handle(message);
            self.carry_out(to);
        }
        let ids: Vec<Id> = self.simulated_peers.keys().copied().collect();
        for id in ids {
            let Some(simulated) =
                self.simulated_peers.get_mut(&id).filter(|simulated| simulated.stopped_until <= self.now)
            else {
                continue;
            };
            // Clocks differ between peers.
            if (self.now + id * 7).is_multiple_of(19 + id % 3) {
                simulated.peer.tick();
                self.carry_out(id);
            }
            if self
                .simulated_peers
                .get(&id)
                .is_some_and(|simulated| simulated.is_coordinator_due && simulated.peer.may_begin_coordinator())
            {
                self.begin_coordinator(id);
            }
            if self.random.one_in(30) {
                self.propose(id);
            }
            if self.coordinator_id == Some(id) {
                self.notify_daemons(id);
            }
        }
        // The coordinator adds peers while there are too few.
        let leading = self.simulated_peers.values().filter(|simulated| simulated.coordinator.is_some());
        let few =
            leading.map(|simulated| simulated.peer.places().len()).max().is_some_and(|count| count <= self.voters);
        if few && self.random.one_in(200) && self.simulated_peers.len() < 9 {
            self.join();
        }
        if !is_calm {
            self.harm();
        }
    }

    fn harm(&mut self) {
        let ids: Vec<Id> = self.simulated_peers.keys().copied().collect();
        let any = |random: &mut Random| random.pick(&ids);
        match self.random.below(3000) {
            0..4 => {
                // At most a minority is lost, by any peer's view of the voters.
                let id = any(&mut self.random);
                let has_quorum = |voters: &[Id]| {
                    let alive =
                        voters.iter().filter(|voter| self.simulated_peers.contains_key(voter) && **voter != id).count();
                    voters.is_empty() || alive > voters.len() / 2
                };
                let spare = self.simulated_peers.values().all(|simulated| {
                    let conf = simulated.peer.node.store().conf();
                    // A change under way may rely on the peer to be lost.
                    let log = &simulated.peer.node.raft.raft_log;
                    let is_change =
                        |entry: &Entry| entry.index > log.applied && entry.entry_type != EntryType::EntryNormal;
                    let is_changing = log.all_entries().iter().any(is_change);
                    // So may a peer that does not know of earlier losses, or counts unreachable peers as lost.
                    let mut others = conf.voters.iter().chain(&conf.voters_outgoing).chain(&conf.learners);
                    let knows_all = others.all(|other| self.simulated_peers.contains_key(other));
                    !is_changing && knows_all && has_quorum(&conf.voters) && has_quorum(&conf.voters_outgoing)
                });
                let spare = spare
                    && self.cut.is_empty()
                    && self.simulated_peers.values().all(|simulated| simulated.stopped_until < self.now);
                if spare && self.simulated_peers.len() > 3 {
                    self.lose(id);
                }
            }
            4..14 if self.simulated_peers.len() > 1 => {
                let (one, other) = (any(&mut self.random), any(&mut self.random));
                self.say(|| format!("{one}  does not hear {other} any more"));
                self.cut.insert((one, other));
            }
            14..20 => {
                // One peer is cut off from all.
                let one = any(&mut self.random);
                self.say(|| format!("{one}  is cut off"));
                self.cut.extend(ids.iter().map(|other| (one, *other)));
            }
            20..45 => {
                self.say(|| "all hear each other".into());
                self.cut.clear();
            }
            45..50 => {
                let id = any(&mut self.random);
                let until = self.now + self.random.within(0..1500);
                self.say(|| format!("{id}  is stopped until {until}"));
                if let Some(simulated) = self.simulated_peers.get_mut(&id) {
                    simulated.stopped_until = until;
                }
            }
            60..62 => {
                let at = self.random.below(self.daemons.len());
                self.daemons[at].lost_at.get_or_insert(self.now);
            }
            50..58 => {
                self.say(|| "the coordinator is killed".into());
                let killed = self.simulated_peers.values_mut().filter(|simulated| simulated.coordinator.is_some());
                killed.for_each(|simulated| (simulated.coordinator, simulated.is_coordinator_due) = (None, true));
            }
            58..60 => {
                let id = any(&mut self.random);
                if let Some(simulated) = self.simulated_peers.get_mut(&id) {
                    simulated.peer.hand_over();
                    self.carry_out(id);
                }
            }
            _ => {}
        }
    }
}

/// The number of coordinators of a run, and of records that were kept.
pub struct Summary {
    coordinators: u64,
    kept: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} coordinators, {} records kept", self.coordinators, self.kept)
    }
}

/// The simulator of peers and their coordinators.
pub enum QuorumSimulator {}

impl Simulator for QuorumSimulator {
    const NAME: &'static str = "quorum";
    const ABOUT: &'static str = "Hosts that keep the records of a coordinator, and elect which of them runs it";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = Summary;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<Summary, Violation> {
        let mut world = World::new(seed, setup);
        world.play();
        match world.wrong {
            Some(wrong) => Err(wrong.into()),
            None => Ok(Summary { coordinators: world.coordinators, kept: world.history.len() }),
        }
    }
}

impl World {
    fn steps(&mut self, count: u64, is_calm: bool) {
        for _ in 0..count {
            if self.wrong.is_none() {
                self.step(is_calm);
            }
        }
    }

    fn play(&mut self) {
        for _ in 0..4 {
            let count = self.random.within(1..300);
            self.steps(count, true);
            self.join();
        }
        let count = self.random.within(1..600);
        self.steps(count, true);
        self.steps(15_000, false);
        // No more harm.
        self.cut.clear();
        self.simulated_peers.values_mut().for_each(|simulated| simulated.stopped_until = 0);
        self.steps(6000, true);
        let before = self.history.len();
        self.steps(3000, true);
        if self.wrong.is_none() && self.history.len() == before {
            let states = self.simulated_peers.values();
            let states: Vec<_> = states
                .map(|simulated| format!("{:?} {:?}", simulated.peer, simulated.peer.node.store().conf()))
                .collect();
            self.wrong = Some(format!("nothing is kept any more: {states:#?}, lost {:?}", self.lost));
        }
        let leading = self.coordinator_id.and_then(|id| self.simulated_peers.get(&id)).map(|simulated| &simulated.peer);
        if let Some(alone) = leading.filter(|peer| peer.places().len() >= 3 && peer.voters().len() < 3) {
            self.wrong.get_or_insert(format!("{alone:?} decides alone"));
        }
    }
}

#[cfg(test)]
mod tests;
