//! Simulation of members, their roots and the network between them, from a seed. Members are lost for good, stopped for
//! a while, or cut off; messages are lost, late or doubled. A root proposes unique records, and relies on those that it
//! was told are kept. It is killed now and then, and another takes its place on the same host. It informs the job's
//! daemons, some of them late or lost, of the hosts with its records.
//!
//! Invariants:
//! * Kept records stay, in order: the next leader has all of them, with no other root's between them.
//! * In each term at most one member leads, and a root begins with all records that earlier roots were told are kept.
//! * When another host has the root, no daemon takes the former host for the only one that can.
//!
//! At the end, without further losses, some member leads, its proposals are kept, and it does not decide alone.

use super::{Id, Member, Message, Mistake, Notice, Output, Place, Proposal, Step};
use raft::eraftpb::{Entry, EntryType};
use redrt_wire::daemon::Roots;
use redrt_wire::frame::{decode_body, encode_body};
use serde_bytes::ByteBuf;
use simulation_kit::schedule::Agenda;
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The root that a member runs.
struct Root {
    term: u64,
    /// Position in the history of the records that it began with.
    at: usize,
    begun: Vec<ByteBuf>,
    /// Proposals of this root, and how many of them it was told are kept.
    proposed: Vec<Vec<ByteBuf>>,
    kept: u64,
    notice: Notice,
}

/// A daemon of the job.
struct Daemon {
    knows: Roots,
    /// Notices under way, with their times of arrival.
    mail: VecDeque<(u64, Roots)>,
    lost_at: Option<u64>,
}

/// Time until a root knows that a daemon is lost.
const DETECTION: u64 = 200;

struct Seat {
    member: Member,
    root: Option<Root>,
    /// True if the member leads and its root was killed.
    is_root_due: bool,
    /// Until then the member is stopped.
    stopped_until: u64,
}

impl Seat {
    fn of(member: Member) -> Self {
        Self { member, root: None, is_root_due: false, stopped_until: 0 }
    }
}

struct World {
    random: Random,
    trace: Trace,
    now: u64,
    seats: BTreeMap<Id, Seat>,
    /// Messages under way: sender, receiver, message.
    network: Agenda<(Id, Id, Message)>,
    /// Cut links.
    cut: BTreeSet<(Id, Id)>,
    lost: BTreeSet<Id>,
    next: Id,
    /// All records ever kept, in order: roots were told so, or began with them.
    history: Vec<ByteBuf>,
    leaders: BTreeMap<u64, Id>,
    /// Seat of the last root that began.
    root_seat: Option<Id>,
    daemons: Vec<Daemon>,
    roots: u64,
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
        let mut first = Member::found(1, place(1), voters);
        first.mistake = mistake;
        let mut world = Self {
            random,
            trace: setup.trace,
            now: 0,
            seats: BTreeMap::from([(1, Seat::of(first))]),
            network: Agenda::default(),
            cut: BTreeSet::new(),
            lost: BTreeSet::new(),
            next: 2,
            history: Vec::new(),
            leaders: BTreeMap::new(),
            root_seat: None,
            daemons: (0..4).map(|_| Daemon { knows: Roots::One, mail: VecDeque::new(), lost_at: None }).collect(),
            roots: 0,
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
        let mut member = Member::join(id, self.voters);
        member.mistake = self.mistake;
        self.seats.insert(id, Seat::of(member));
        // Announces itself once; processes repeat this.
        self.seats.values_mut().for_each(|seat| seat.member.greet(id, place(id)));
        self.carry_out_all();
    }

    fn lose(&mut self, id: Id) {
        self.say(|| format!("{id}  is lost"));
        self.seats.remove(&id);
        self.lost.insert(id);
        self.drop_mail(id);
        self.cut.retain(|(one, other)| *one != id && *other != id);
    }

    /// Drops notices of a root that is gone which have not arrived. The next root repeats them.
    fn drop_mail(&mut self, of: Id) {
        if self.root_seat == Some(of) {
            self.daemons.iter_mut().for_each(|daemon| daemon.mail.clear());
        }
    }

    /// Delivers notices that are due, and sends those of this seat's root.
    fn tell_daemons(&mut self, id: Id) {
        let (now, random) = (self.now, &mut self.random);
        let Some(Seat { member, root: Some(root), .. }) = self.seats.get_mut(&id) else { return };
        for daemon in self.daemons.iter_mut().filter(|daemon| daemon.lost_at.is_none()) {
            while let Some((_, roots)) = daemon.mail.pop_front_if(|(due, _)| *due <= now) {
                daemon.knows = roots;
            }
        }
        let is_there = |daemon: &&Daemon| daemon.lost_at.is_none_or(|at| now < at + DETECTION);
        while let Some(step) = root.notice.look(member.deciding().len(), member.places().len(), || {
            self.daemons.iter().filter(is_there).all(|daemon| daemon.mail.is_empty())
        }) {
            match step {
                Step::Permit => member.permit(),
                Step::Tell(roots) => {
                    for daemon in &mut self.daemons {
                        let late = if random.one_in(4) { random.within(0..5000) } else { random.within(0..20) };
                        let due = daemon.mail.back().map_or(0, |(due, _)| *due).max(now + 1 + late);
                        daemon.mail.push_back((due, roots));
                    }
                }
            }
        }
        self.carry_out(id);
    }

    fn carry_out_all(&mut self) {
        self.seats.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.carry_out(id));
    }

    fn carry_out(&mut self, id: Id) {
        let outputs = self.seats.get_mut(&id).map(|seat| seat.member.outputs());
        for output in outputs.into_iter().flatten() {
            if !matches!(output, Output::Send { .. }) {
                self.say(|| format!("{id}  {output:?}"));
            }
            let Some(seat) = self.seats.get_mut(&id) else { return };
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
                    let Some(root) = &mut seat.root else { continue };
                    root.kept = count.min(root.proposed.len() as u64);
                    if count > root.kept {
                        self.wrong
                            .get_or_insert(format!("root of term {} was told of what it has not said", root.term));
                    }
                    let mut known = root.begun.clone();
                    known.extend(root.proposed[..root.kept as usize].iter().flatten().cloned());
                    let after = &self.history[root.at..];
                    // A root that does not know its successor yet may hear late of kept records: the successor has
                    // them.
                    let is_last = self.leaders.keys().next_back() == Some(&root.term);
                    if is_last && known.starts_with(after) {
                        self.history.splice(root.at.., known);
                    } else if !after.starts_with(&known) {
                        self.wrong
                            .get_or_insert(format!("root of term {} was told that is kept which is not", root.term));
                    }
                }
                Output::Lead => {
                    let term = seat.member.term();
                    if self.leaders.insert(term, id).is_some_and(|other| other != id) {
                        self.wrong.get_or_insert(format!("two roots in term {term}"));
                    }
                    self.begin_root(id);
                }
                Output::Yield => {
                    (seat.root, seat.is_root_due) = (None, false);
                    self.drop_mail(id);
                }
                Output::Ended(_) => {}
            }
        }
    }

    /// Begins another root at the leader.
    fn begin_root(&mut self, id: Id) {
        let Some(Seat { member, root, is_root_due, .. }) = self.seats.get_mut(&id) else { return };
        let (term, begun) = (member.term(), member.records());
        member.begin_root();
        let is_first = |record: &ByteBuf| begun.first() == Some(record);
        let at = match begun.first().is_some_and(|first| first.starts_with(b"all ")) {
            true => self.history.iter().position(is_first).unwrap_or(self.history.len()),
            false => 0,
        };
        // The leader may have more records than any root was told of. A former leader that does not know its successor
        // has nothing kept.
        let is_last = self.leaders.keys().next_back() == Some(&term);
        if is_last && begun.starts_with(&self.history[at..]) {
            self.history.splice(at.., begun.clone());
        } else if is_last || !self.history[at..].starts_with(&begun) {
            self.wrong.get_or_insert(format!("the root of term {term} lacks records"));
        }
        self.roots += 1;
        let mut notice = Notice::default();
        notice.mistake = self.mistake;
        (*root, *is_root_due) = (Some(Root { term, at, begun, proposed: Vec::new(), kept: 0, notice }), false);
        let is_elsewhere = self.root_seat.replace(id).is_some_and(|before| before != id);
        let is_gone = |daemon: &Daemon| daemon.lost_at.is_none() && daemon.knows == Roots::One;
        if is_elsewhere && is_last && self.daemons.iter().any(is_gone) {
            self.wrong.get_or_insert(format!("a daemon has left before the root of term {term} has begun"));
        }
    }

    fn propose(&mut self, id: Id) {
        let number = self.random.number();
        let Some(Seat { member, root: Some(root), .. }) = self.seats.get_mut(&id) else { return };
        let replaces = number.is_multiple_of(40) && root.kept as usize == root.proposed.len();
        let records = match replaces {
            true => vec![ByteBuf::from(format!("all {number} by {id}")), ByteBuf::from(format!("and {number}"))],
            false => vec![ByteBuf::from(format!("{number} by {id}"))],
        };
        let proposal = match replaces {
            true => Proposal::Replace(records.clone()),
            false => Proposal::Append(records.clone()),
        };
        root.proposed.push(records);
        if !member.propose(&proposal) {
            root.proposed.pop();
        }
        self.carry_out(id);
    }

    /// A step of time.
    fn step(&mut self, is_calm: bool) {
        self.now += 1;
        while let Some((from, to, message)) = self.network.due(self.now) {
            let is_cut = self.cut.contains(&(from, to)) || self.cut.contains(&(to, from));
            let Some(seat) = self.seats.get_mut(&to).filter(|_| !is_cut) else { continue };
            if seat.stopped_until > self.now {
                // The message waits in the socket.
                self.network.plan(seat.stopped_until, (from, to, message));
                continue;
            }
            seat.member.hear(message);
            self.carry_out(to);
        }
        let ids: Vec<Id> = self.seats.keys().copied().collect();
        for id in ids {
            let Some(seat) = self.seats.get_mut(&id).filter(|seat| seat.stopped_until <= self.now) else { continue };
            // Clocks differ between members.
            if (self.now + id * 7).is_multiple_of(19 + id % 3) {
                seat.member.tick();
                self.carry_out(id);
            }
            if self.seats.get(&id).is_some_and(|seat| seat.is_root_due && seat.member.may_begin_root()) {
                self.begin_root(id);
            }
            if self.random.one_in(30) {
                self.propose(id);
            }
            if self.root_seat == Some(id) {
                self.tell_daemons(id);
            }
        }
        // The root adds members while there are too few.
        let leading = self.seats.values().filter(|seat| seat.root.is_some());
        let few = leading.map(|seat| seat.member.places().len()).max().is_some_and(|count| count <= self.voters);
        if few && self.random.one_in(200) && self.seats.len() < 9 {
            self.join();
        }
        if !is_calm {
            self.harm();
        }
    }

    fn harm(&mut self) {
        let ids: Vec<Id> = self.seats.keys().copied().collect();
        let any = |random: &mut Random| random.pick(&ids);
        match self.random.below(3000) {
            0..4 => {
                // At most a minority is lost, by any member's view of the voters.
                let id = any(&mut self.random);
                let has_quorum = |voters: &[Id]| {
                    let alive = voters.iter().filter(|voter| self.seats.contains_key(voter) && **voter != id).count();
                    voters.is_empty() || alive > voters.len() / 2
                };
                let spare = self.seats.values().all(|seat| {
                    let conf = seat.member.node.store().conf();
                    // A change under way may rely on the member to be lost.
                    let log = &seat.member.node.raft.raft_log;
                    let is_change =
                        |entry: &Entry| entry.index > log.applied && entry.entry_type != EntryType::EntryNormal;
                    let is_changing = log.all_entries().iter().any(is_change);
                    // So may a member that does not know of earlier losses, or counts unreachable members as lost.
                    let mut others = conf.voters.iter().chain(&conf.voters_outgoing).chain(&conf.learners);
                    let knows_all = others.all(|other| self.seats.contains_key(other));
                    !is_changing && knows_all && has_quorum(&conf.voters) && has_quorum(&conf.voters_outgoing)
                });
                let spare =
                    spare && self.cut.is_empty() && self.seats.values().all(|seat| seat.stopped_until < self.now);
                if spare && self.seats.len() > 3 {
                    self.lose(id);
                }
            }
            4..14 if self.seats.len() > 1 => {
                let (one, other) = (any(&mut self.random), any(&mut self.random));
                self.say(|| format!("{one}  does not hear {other} any more"));
                self.cut.insert((one, other));
            }
            14..20 => {
                // One member is cut off from all.
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
                if let Some(seat) = self.seats.get_mut(&id) {
                    seat.stopped_until = until;
                }
            }
            60..62 => {
                let at = self.random.below(self.daemons.len());
                self.daemons[at].lost_at.get_or_insert(self.now);
            }
            50..58 => {
                self.say(|| "the root is killed".into());
                let killed = self.seats.values_mut().filter(|seat| seat.root.is_some());
                killed.for_each(|seat| (seat.root, seat.is_root_due) = (None, true));
            }
            58..60 => {
                let id = any(&mut self.random);
                if let Some(seat) = self.seats.get_mut(&id) {
                    seat.member.hand_over();
                    self.carry_out(id);
                }
            }
            _ => {}
        }
    }
}

/// The number of roots of a run, and of records that were kept.
pub struct Summary {
    roots: u64,
    kept: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} roots, {} records kept", self.roots, self.kept)
    }
}

/// The simulator of members and their roots.
pub enum QuorumSimulator {}

impl Simulator for QuorumSimulator {
    const NAME: &'static str = "root-quorum";
    const ABOUT: &'static str = "Hosts that keep the records of a root, and elect which of them runs it";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = Summary;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<Summary, Violation> {
        let mut world = World::new(seed, setup);
        world.play();
        match world.wrong {
            Some(wrong) => Err(wrong.into()),
            None => Ok(Summary { roots: world.roots, kept: world.history.len() }),
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
        self.seats.values_mut().for_each(|seat| seat.stopped_until = 0);
        self.steps(6000, true);
        let before = self.history.len();
        self.steps(3000, true);
        if self.wrong.is_none() && self.history.len() == before {
            let states = self.seats.values();
            let states: Vec<_> =
                states.map(|seat| format!("{:?} {:?}", seat.member, seat.member.node.store().conf())).collect();
            self.wrong = Some(format!("nothing is kept any more: {states:#?}, lost {:?}", self.lost));
        }
        let leading = self.root_seat.and_then(|id| self.seats.get(&id)).map(|seat| &seat.member);
        if let Some(alone) = leading.filter(|member| member.places().len() >= 3 && member.voters().len() < 3) {
            self.wrong.get_or_insert(format!("{alone:?} decides alone"));
        }
    }
}

#[cfg(test)]
mod tests;
