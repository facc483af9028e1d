//! Exhaustive check of small worlds: the simulator's processes, every order of deliveries, deaths and views.
//!
//! A process runs until it blocks whenever a frame or a view reaches it. Slower processes need no extra states: a death
//! can cut each of its links anywhere, which loses the frames that a slower process would not have sent.

use super::app::Progress;
use super::broken::Broken;
use super::check;
use super::paths::Departure;
use super::process::{Control, Packet, Process};
use super::program::{Instruction, To};
use crate::frame::{Finding, MessageId, MismatchReport};
use crate::matching::Pattern;
use crate::mutation::Mutation;
use crate::path::{PathFinding, PathReport};
use crate::replica::{Config, Verification};
use crate::view::Protocol;
use redrt_types::{Admission, ContextId, CutNumber, Incarnation, ReplicaId, Tag, View, VirtualRank, World};
use rustc_hash::FxHasher;
use stateright::{Checker, Model, Property};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A world to be explored.
struct Small {
    world: World,
    programs: Vec<Vec<Instruction>>,
    protocol: Protocol,
    deaths: usize,
    resets: usize,
    /// Victims run on until their own view reaches them.
    fenced: bool,
    /// A place that is free at the start. A copy for it is made once, at any time.
    free: Option<ReplicaId>,
    /// The replica whose program leaves the path of its siblings, the call at which it does, and the way.
    departs: Option<(ReplicaId, u64, Departure)>,
    mutation: Option<Mutation>,
}

/// The progress of the copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Join {
    /// No copy was begun.
    None,
    /// All processes are to set its pin. This place is copied then.
    Pinning(usize),
    /// Copied from this place, and in no view.
    Restoring(usize),
    /// In the view, and not in step yet.
    Joining,
    /// It has joined, or was given up.
    Over,
}

#[derive(Clone, Hash)]
#[expect(clippy::derived_hash_with_manual_eq, reason = "equality is that of the hash")]
struct State {
    processes: Vec<Process>,
    links: BTreeMap<(usize, usize), VecDeque<(u32, Packet)>>,
    view: View,
    deaths_left: usize,
    resets_left: usize,
    join: Join,
    panicked: bool,
    /// Number of times all processes were asked for their waits since any other event was possible.
    asked_count: u32,
    /// Values that ranks have written to their files, by rank and position.
    files: BTreeMap<(VirtualRank, u64), u64>,
    /// True if a sound replica was outvoted, or if no verdict was reached where two of three are sound.
    is_misjudged: bool,
}

/// Equality by hash, since the model checker tells states apart by their hash.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let fingerprint = |state: &Self| {
            let mut hasher = FxHasher::default();
            state.hash(&mut hasher);
            hasher.finish()
        };
        fingerprint(self) == fingerprint(other)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for process in &self.processes {
            let me = process.me();
            writeln!(f, "{me} {:?} at {:?}", process.replica.view().number, process.app.current())?;
        }
        writeln!(f, "{:?}", self.links)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Action {
    Deliver(usize, usize),
    /// The remaining frames on a dead process's link are lost.
    Cut(usize, usize),
    View(usize),
    Kill(usize),
    /// A connection is lost in both directions. The first process notices, and the other learns of it by the new epoch.
    Reset(usize, usize),
    /// A copy of this place is wanted.
    Begin(usize),
    /// The join takes its next step.
    Advance,
    /// The join is given up.
    Abandon,
    /// No other event is possible, so all processes claim their waits.
    Ask,
}

/// Maximum number of those rounds in a row. Overdue messages are asked for in each.
const ASKED_MAX: u32 = 2;

impl Small {
    fn events(&self, state: &State, actions: &mut Vec<Action>) {
        for ((from, to), link) in &state.links {
            if !link.is_empty() && state.processes[*to].alive && !self.keeps_back(state, *from, *to) {
                actions.push(Action::Deliver(*from, *to));
                if !state.processes[*from].alive {
                    actions.push(Action::Cut(*from, *to));
                }
            }
        }
        for (place, process) in state.processes.iter().enumerate() {
            if process.alive && !process.controls.is_empty() {
                actions.push(Action::View(place));
            }
        }
        let is_live = |place: usize| state.view.is_live(state.processes[place].me());
        match state.join {
            Join::Pinning(source) | Join::Restoring(source) if !is_live(source) => actions.push(Action::Abandon),
            Join::Pinning(_) if self.is_told(state) => actions.push(Action::Advance),
            Join::Restoring(_) => actions.push(Action::Advance),
            Join::Joining if !is_live(self.newcomer()) => actions.push(Action::Abandon),
            Join::Joining if state.processes[self.newcomer()].replica.is_in_step() => actions.push(Action::Advance),
            _ => {}
        }
        if self.departs.is_some() && actions.is_empty() && state.asked_count < ASKED_MAX {
            actions.push(Action::Ask);
        }
    }

    /// Number of the place that is free.
    fn newcomer(&self) -> usize {
        self.world.process(self.free.expect("a join is under way")).0 as usize
    }

    /// Returns true if every process knows that a copy is wanted.
    fn is_told(&self, state: &State) -> bool {
        let pins = Control::pins(self.free.into_iter().collect());
        !state.processes.iter().any(|process| process.alive && process.controls.contains(&pins))
    }

    /// Returns true if frames on a link wait for a view: they are for a newcomer that no view contains, or from one
    /// that the addressee does not know yet.
    fn keeps_back(&self, state: &State, from: usize, to: usize) -> bool {
        let addressee = &state.processes[to];
        let sender = state.processes[from].me();
        let is_coming = |control: &Control| matches!(control, Control::View(view) if view.is_live(sender));
        let is_unknown = Some(sender) == self.free
            && !addressee.replica.view().is_live(sender)
            && addressee.controls.iter().any(is_coming);
        addressee.is_new() || is_unknown
    }

    /// Sends a control message to all. Copies receive none before a view contains them.
    fn send_all(state: &mut State, control: &Control) {
        for process in state.processes.iter_mut().filter(|process| process.alive) {
            if !process.is_new() || state.view.is_live(process.me()) {
                process.controls.push_back(control.clone());
            }
        }
    }

    fn advance(&self, state: &mut State) {
        let (place, newcomer) = (self.newcomer(), self.free.expect("a join is under way"));
        state.join = match state.join {
            Join::Pinning(source) => {
                Self::run(state, source, &self.world);
                state.processes[place] = state.processes[source].copy(newcomer);
                Join::Restoring(source)
            }
            Join::Restoring(source) => {
                let source = state.processes[source].me().index;
                let admission = Admission { replica: newcomer, incarnation: Incarnation(1), source, cut: CutNumber(1) };
                state.view = state.view.with(admission);
                Self::send_all(state, &Control::View(state.view.clone()));
                Self::send_all(state, &Control::pins(vec![newcomer]));
                Join::Joining
            }
            Join::Joining => {
                Self::send_all(state, &Control::pins(Vec::new()));
                Join::Over
            }
            join => panic!("{join:?} has no next step"),
        };
    }

    /// Lets a process run until it blocks, and puts its frames on the wire.
    fn run(state: &mut State, place: usize, world: &World) {
        let process = &mut state.processes[place];
        while process.alive {
            let progress = process.step();
            process.answer_questions();
            match progress {
                Progress::Went => {}
                Progress::Polled => panic!("polling programs have no end of states"),
                Progress::Blocked | Progress::Finished => {
                    process.flush();
                    break;
                }
            }
        }
        for (to, epoch, packet) in std::mem::take(&mut process.outgoing) {
            state.links.entry((place, world.process(to).0 as usize)).or_default().push_back((epoch, packet));
        }
    }

    /// Records the changes and reports of processes, and ends those that have left the path of their siblings.
    fn watch(&self, state: &mut State) {
        let mut named = Vec::new();
        for process in &mut state.processes {
            let rank = process.me().rank;
            state.files.extend(process.changes.drain(..).map(|(at, value)| ((rank, at), value)));
            for PathReport { finding, .. } in process.partings.drain(..) {
                match finding {
                    PathFinding::Outvoted(culprits) => {
                        named.extend(culprits.iter().map(|index| ReplicaId { rank, index }));
                    }
                    PathFinding::Undecidable | PathFinding::Disputed => state.is_misjudged = true,
                }
            }
            let is_named = |report: &MismatchReport| report.finding == Finding::ReplicaCorrupt;
            named.extend(process.reports.iter().filter(|it| is_named(it)).filter_map(|report| report.culprit));
        }
        for replica in named {
            let place = self.world.process(replica).0 as usize;
            state.is_misjudged |= !state.processes[place].is_tainted;
            if state.view.is_live(replica) {
                Self::lose(state, place, self.fenced);
            }
        }
    }

    fn lose(state: &mut State, place: usize, fenced: bool) {
        state.view = state.view.without(&[state.processes[place].me()]);
        state.processes[place].alive = fenced;
        Self::send_all(state, &Control::View(state.view.clone()));
    }

    /// Messages that a process has not received by its program, and that no sound replica has sent.
    fn strays(state: &State, process: &Process) -> Vec<MessageId> {
        let has_sent = |sender: &Process, message: &MessageId| {
            let key = (process.me().rank, message.context, message.sequence.0);
            sender.sent.iter().any(|(to, context, number, _)| (*to, *context, *number) == key)
        };
        let is_sent = |message: &MessageId| {
            let mut sound = state.processes.iter().filter(|it| it.me().rank == message.sender && !it.is_tainted);
            sound.any(|sender| has_sent(sender, message))
        };
        let unread = process.incoming.iter().filter(|incoming| !check::is_read(incoming));
        unread.map(|incoming| incoming.message).filter(|message| !is_sent(message)).collect()
    }

    /// Checks that files have exactly the contents that sound replicas have written.
    fn check_files(&self, state: &State) -> Result<(), Broken> {
        for process in state.processes.iter().filter(|process| state.view.is_live(process.me()) && !process.is_tainted)
        {
            let rank = process.me().rank;
            let wanted = (0..).zip(process.app.written.iter().copied());
            let has = state.files.range((rank, 0)..=(rank, u64::MAX)).map(|((_, at), value)| (*at, *value));
            if !has.eq(wanted) {
                return Err(Broken::Written { rank, at: process.app.written.len() as u64 });
            }
        }
        Ok(())
    }

    fn end(&self, state: &State) -> Result<(), Broken> {
        let live = || state.processes.iter().filter(|process| state.view.is_live(process.me()) && !process.is_tainted);
        if self.departs.is_some() {
            live().try_for_each(|process| check::ended(process, &Self::strays(state, process)))?;
            self.check_files(state)?;
        } else {
            live().try_for_each(check::finished)?;
        }
        for process in live() {
            let same = |other: &&Process| other.me().rank == process.me().rank;
            if let Some(other) = live().filter(same).find(|other| other.app.history != process.app.history) {
                return Err(Broken::Parted(process.me(), other.me()));
            }
        }
        Ok(())
    }

    fn is_right(&self, state: &State) -> bool {
        let is_said = |process: &Process| process.reports.is_empty() || self.departs.is_some();
        let sane = |process: &Process| process.failure.is_none() && is_said(process);
        let mut actions = Vec::new();
        self.events(state, &mut actions);
        !state.panicked
            && !state.is_misjudged
            && state.processes.iter().all(sane)
            && (!actions.is_empty() || self.end(state).is_ok())
    }

    fn check(self) -> (bool, usize) {
        let checker = self.checker().threads(2).spawn_bfs().join();
        (checker.discovery("right").is_none(), checker.unique_state_count())
    }
}

impl Model for Small {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let full = View::initial(&self.world);
        let view = self.free.map_or_else(|| full.clone(), |free| full.without(&[free]));
        let start = |me: ReplicaId| {
            // The process in the free place never runs.
            let view = if view.is_live(me) { view.clone() } else { full.clone() };
            let world = self.world.clone();
            let config = Config { me, world, view, protocol: self.protocol, verification: Verification::Strict };
            let mut process = Process::new(config, &[CONTEXT], self.programs[me.rank.0 as usize].clone());
            if let Some(mutation) = self.mutation {
                process.replica.mutate(mutation);
            }
            process.alive = Some(me) != self.free;
            let departs = self.departs.filter(|(replica, ..)| *replica == me);
            process.leaves_path = departs.map(|(_, call, departure)| (call, departure));
            process
        };
        let processes: Vec<_> = self.world.replicas().map(start).collect();
        let mut state = State {
            processes,
            links: BTreeMap::new(),
            view: view.clone(),
            deaths_left: self.deaths,
            resets_left: self.resets,
            join: Join::None,
            panicked: false,
            asked_count: 0,
            files: BTreeMap::new(),
            is_misjudged: false,
        };
        for place in 0..state.processes.len() {
            Self::run(&mut state, place, &self.world);
        }
        self.watch(&mut state);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.panicked {
            return;
        }
        self.events(state, actions);
        for (place, process) in state.processes.iter().enumerate() {
            let me = process.me();
            // A newcomer that is not in step does not keep its sphere alive.
            let counts =
                |other: &ReplicaId| *other != me && !(state.join == Join::Joining && Some(*other) == self.free);
            let may_go = state.view.is_live(me) && state.view.live(me.rank).filter(counts).count() > 0;
            if state.deaths_left > 0 && may_go {
                actions.push(Action::Kill(place));
            }
            let is_sibling = self.free.is_some_and(|free| free.rank == me.rank);
            if state.join == Join::None && is_sibling && state.view.is_live(me) {
                actions.push(Action::Begin(place));
            }
        }
        if matches!(state.join, Join::Pinning(_) | Join::Restoring(_)) && !actions.contains(&Action::Abandon) {
            actions.push(Action::Abandon);
        }
        // A link without frames can lose none.
        let busy = |from: usize, to: usize| state.links.get(&(from, to)).is_some_and(|link| !link.is_empty());
        let count = state.processes.len();
        for (one, other) in (0..count).flat_map(|one| (0..count).map(move |other| (one, other))) {
            let both_run = state.processes[one].alive && state.processes[other].alive && one != other;
            if state.resets_left > 0 && both_run && (busy(one, other) || busy(other, one)) {
                actions.push(Action::Reset(one, other));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let step = std::panic::AssertUnwindSafe(|| self.happen(&mut next, action));
        if self.mutation.is_none() {
            step();
        } else if std::panic::catch_unwind(step).is_err() {
            next.panicked = true;
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("right", |model: &Self, state: &State| model.is_right(state))]
    }
}

impl Small {
    fn happen(&self, state: &mut State, action: Action) {
        state.asked_count = if action == Action::Ask { state.asked_count + 1 } else { 0 };
        match action {
            Action::Deliver(from, to) => {
                let link = state.links.get_mut(&(from, to)).expect("it has a packet");
                let (epoch, packet) = link.pop_front().expect("it has a packet");
                let from = state.processes[from].me();
                state.processes[to].receive(from, epoch, packet);
                Self::run(state, to, &self.world);
            }
            Action::Cut(from, to) => state.links.get_mut(&(from, to)).expect("it has a packet").clear(),
            Action::View(place) => {
                let process = &mut state.processes[place];
                match process.controls.pop_front().expect("it was told something") {
                    Control::View(view) if !view.is_live(process.me()) && !process.is_new() => process.alive = false,
                    Control::View(view) => process.apply_view(view),
                    Control::Pins { awaited, ready } => process.set_pins(&awaited, &ready),
                }
                if !state.processes[place].is_new() {
                    Self::run(state, place, &self.world);
                }
            }
            Action::Begin(source) => {
                state.join = Join::Pinning(source);
                Self::send_all(state, &Control::pins(self.free.into_iter().collect()));
            }
            Action::Advance => self.advance(state),
            Action::Abandon => {
                if matches!(state.join, Join::Restoring(_)) {
                    state.processes[self.newcomer()].alive = false;
                }
                state.join = Join::Over;
                Self::send_all(state, &Control::pins(Vec::new()));
            }
            Action::Reset(one, other) => {
                state.resets_left -= 1;
                state.links.remove(&(one, other));
                state.links.remove(&(other, one));
                let peer = state.processes[other].me();
                let epoch = state.processes[one].epoch(peer) + 1;
                state.processes[one].begin_epoch(peer, epoch);
                Self::run(state, one, &self.world);
            }
            Action::Kill(place) => {
                state.deaths_left -= 1;
                Self::lose(state, place, self.fenced);
            }
            Action::Ask => {
                for place in 0..state.processes.len() {
                    if state.processes[place].alive {
                        state.processes[place].state_waits();
                        Self::run(state, place, &self.world);
                    }
                }
            }
        }
        self.watch(state);
        state.links.retain(|(_, to), link| !link.is_empty() && state.processes[*to].alive);
    }
}

const CONTEXT: ContextId = ContextId(1);

fn send(to: To) -> Instruction {
    Instruction::Send { to, context: CONTEXT, tag: Tag(0), length_bytes: 8 }
}

fn post(source: Option<u32>) -> Instruction {
    Instruction::Post { context: CONTEXT, pattern: Pattern { source, tag: Some(Tag(0)) } }
}

use Instruction::WaitNext;

/// Rank 0 sends twice, and rank 1 answers.
fn dialogue(degrees: &[u16], protocol: Protocol, fenced: bool, mutation: Option<Mutation>) -> Small {
    let first = vec![send(To::Rank(1)), send(To::Rank(1)), post(Some(1)), WaitNext];
    let second = vec![post(Some(0)), WaitNext, send(To::Rank(0)), post(Some(0)), WaitNext];
    Small {
        world: World::new(degrees.to_vec()),
        programs: vec![first, second],
        protocol,
        deaths: 1,
        resets: 0,
        fenced,
        free: None,
        departs: None,
        mutation,
    }
}

/// Ranks 0 and 1 ask, and rank 2 answers each in the order in which it receives.
fn service(degrees: &[u16], deaths: usize, fenced: bool, mutation: Option<Mutation>) -> Small {
    let client = vec![send(To::Rank(2)), post(Some(2)), WaitNext];
    let answer = [post(None), WaitNext, send(To::Matched)];
    Small {
        world: World::new(degrees.to_vec()),
        programs: vec![client.clone(), client, [answer, answer].concat()],
        protocol: Protocol::Hash,
        deaths,
        resets: 0,
        fenced,
        free: None,
        departs: None,
        mutation,
    }
}

fn assert_right(name: &str, model: Small) {
    let (is_right, states) = model.check();
    println!("{name}: {states} states");
    assert!(is_right, "{name}: a state is wrong");
}

/// Rank 0 sends once, and rank 1 answers.
fn question(degrees: &[u16]) -> Small {
    let first = vec![send(To::Rank(1)), post(Some(1)), WaitNext];
    let second = vec![post(Some(0)), WaitNext, send(To::Rank(0))];
    Small { programs: vec![first, second], ..dialogue(degrees, Protocol::Hash, false, None) }
}

#[test]
fn two_spheres_of_two_survive_any_death() {
    assert_right("question, death", question(&[2, 2]));
    assert_right("dialogue, death", dialogue(&[2, 1], Protocol::Hash, false, None));
    assert_right("dialogue, death", dialogue(&[1, 2], Protocol::Hash, false, None));
}

#[test]
#[ignore = "takes a minute"]
fn two_spheres_of_two_with_more_messages_survive_any_death() {
    assert_right("dialogue, death", dialogue(&[2, 2], Protocol::Hash, false, None));
}

#[test]
fn two_spheres_of_two_survive_any_fencing() {
    assert_right("dialogue, fencing", dialogue(&[2, 1], Protocol::Hash, true, None));
    assert_right("dialogue, fencing", dialogue(&[1, 2], Protocol::Hash, true, None));
}

#[test]
fn all_to_all_survives_any_death() {
    assert_right("dialogue, all to all", dialogue(&[2, 1], Protocol::AllToAll, false, None));
}

#[test]
#[ignore = "scripts/test.sh --all: it takes 25 s of processor time; seeds of the simulator play it"]
fn wildcard_choices_survive_the_leader() {
    assert_right("service", service(&[1, 1, 2], 1, false, None));
}

#[test]
#[ignore = "takes a minute"]
fn wildcard_choices_survive_a_fenced_leader() {
    assert_right("service, fencing", service(&[1, 1, 2], 1, true, None));
}

#[test]
fn spheres_survive_any_lost_connection() {
    let reset = |model: Small| Small { deaths: 0, resets: 1, ..model };
    assert_right("question, reset", reset(question(&[2, 2])));
    assert_right("dialogue, reset", reset(dialogue(&[2, 1], Protocol::Hash, false, None)));
    assert_right("dialogue, reset", reset(dialogue(&[1, 2], Protocol::AllToAll, false, None)));
    assert_right("service, reset", reset(service(&[1, 1, 2], 0, false, None)));
}

#[test]
#[ignore = "takes a minute"]
fn spheres_survive_a_lost_connection_and_a_death() {
    let both = |model: Small| Small { deaths: 1, resets: 1, ..model };
    assert_right("question, reset and death", both(question(&[2, 1])));
    assert_right("question, reset and death", both(question(&[1, 2])));
    assert_right("question, reset and fencing", both(Small { fenced: true, ..question(&[2, 1]) }));
    let twice = |model: Small| Small { deaths: 0, resets: 2, ..model };
    assert_right("question, two resets", twice(question(&[2, 1])));
}

#[test]
fn planted_bugs_are_found_exhaustively() {
    for mutation in [Mutation::AckLost, Mutation::BookmarkLate, Mutation::SupplierWrong, Mutation::ReleasedEarly] {
        let (is_right, states) = dialogue(&[2, 1], Protocol::Hash, false, Some(mutation)).check();
        assert!(!is_right, "{mutation:?} is not found in {states} states");
    }
    let deaf = dialogue(&[2, 1], Protocol::Hash, false, Some(Mutation::ResetIgnored));
    let (is_right, states) = Small { deaths: 0, resets: 1, ..deaf }.check();
    assert!(!is_right, "a lost connection that is ignored is not found in {states} states");
    let (is_right, states) = service(&[1, 1, 2], 1, false, Some(Mutation::OutputCommitSkipped)).check();
    assert!(!is_right, "skipping output commit is not found in {states} states");
}

/// A question, with a copy made at any time for a place of either rank.
fn question_with_join(degrees: &[u16], free: ReplicaId, deaths: usize) -> Small {
    Small { free: Some(free), deaths, ..question(degrees) }
}

#[test]
fn a_copy_joins_at_any_time() {
    assert_right("the asker is copied", question_with_join(&[2, 1], ReplicaId::new(0, 1), 0));
    assert_right("the answerer is copied", question_with_join(&[1, 2], ReplicaId::new(1, 1), 0));
    assert_right("the asker is copied and the source dies", question_with_join(&[2, 1], ReplicaId::new(0, 0), 1));
    let skipped =
        Small { mutation: Some(Mutation::PinSkipped), ..question_with_join(&[1, 2], ReplicaId::new(1, 1), 0) };
    assert!(!skipped.check().0, "a join without pins is not found out");
}

#[test]
#[ignore = "takes minutes"]
fn a_copy_joins_at_any_time_while_others_die() {
    assert_right("a third asker is copied", question_with_join(&[3, 1], ReplicaId::new(0, 2), 1));
    assert_right("a partner dies", question_with_join(&[2, 2], ReplicaId::new(0, 1), 1));
    assert_right(
        "a server is copied",
        Small { free: Some(ReplicaId::new(2, 1)), ..service(&[1, 1, 2], 1, false, None) },
    );
}

/// Rank 0 has three replicas and runs this program, one of them another. Rank 1 takes a message if there is one.
fn work(first: Vec<Instruction>, departs: Option<(ReplicaId, u64, Departure)>, mutation: Option<Mutation>) -> Small {
    let is_sent = first.iter().any(|it| matches!(it, Instruction::Send { .. }));
    let (degrees, second) = if is_sent { (&[3, 1][..], vec![post(Some(0)), WaitNext]) } else { (&[3][..], Vec::new()) };
    let programs = if is_sent { vec![first, second] } else { vec![first] };
    Small { programs, departs, deaths: 0, ..dialogue(degrees, Protocol::Hash, false, mutation) }
}

/// Each way in which the leader and a follower may leave the path of their siblings, at each of two calls.
fn departures(ways: &[Departure]) -> impl Iterator<Item = Option<(ReplicaId, u64, Departure)>> + '_ {
    let places = (0..2).flat_map(|index| (0..2).map(move |call| (ReplicaId::new(0, index), call)));
    let all = places.flat_map(move |(replica, call)| ways.iter().map(move |way| Some((replica, call, *way))));
    std::iter::once(None).chain(all)
}

#[test]
fn a_replica_with_another_question_than_two_is_the_one_to_end() {
    use Instruction::{PollOnce, Read, Write};
    let more = [Read, Write, PollOnce { context: CONTEXT }].map(Departure::More);
    let other = [Read, Write].map(Departure::Other);
    let ways = [&more[..], &other, &[Departure::Less, Departure::Data, Departure::End]].concat();
    for departs in departures(&ways) {
        assert_right(&format!("{departs:?}"), work(vec![Read, Write], departs, None));
    }
}

#[test]
fn a_replica_that_sends_more_or_less_than_two_ends_alone() {
    for departs in departures(&[Departure::More(send(To::Rank(1))), Departure::Less, Departure::End]) {
        assert_right(&format!("{departs:?}"), work(vec![send(To::Rank(1))], departs, None));
    }
}

#[test]
fn bugs_in_votes_on_paths_are_found_exhaustively() {
    use Instruction::{Read, Write};
    let leader = ReplicaId::new(0, 0);
    let outcomes = |departure, mutation| work(vec![Read, Write], Some((leader, 0, departure)), Some(mutation));
    let planted = [
        ("the leader is right", outcomes(Departure::More(Read), Mutation::LeaderTrusted)),
        ("changes wait for nobody", outcomes(Departure::More(Write), Mutation::ChangeUnbacked)),
        (
            "what one has sent alone is not asked for",
            work(vec![send(To::Rank(1))], Some((leader, 0, Departure::Less)), Some(Mutation::OverdueIgnored)),
        ),
    ];
    for (name, model) in planted {
        let (is_right, states) = model.check();
        assert!(!is_right, "{name}: not found in {states} states");
    }
}
