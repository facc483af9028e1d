//! `redrun` and the daemons of a simulated job: its members, the messages to each of them and their times, its losses.

mod asking;
mod checkpoint;
mod leaving;
pub mod signals;

use super::Mutation;
use super::program::leaving::Leaves;
use super::program::{self, ProgramKind};
use super::world::actor::{self, Actor, End, Pause};
use super::world::network::{NAME, Receiving, Simulated};
use super::world::{self, Event, Parted, World};
use super::wrong::Wrong;
use leaving::Waves;
use redrt::api::init::init_simulated;
use redrt_engine as engine;
use redrt_runtime as runtime;
use redrt_runtime::control::Control;
use redrt_runtime::links::networks::SIMULATED;
use redrt_runtime::mutation::PLANTED;
use redrt_transport::network::{Incoming, Network, Opened};
use redrt_types::{Incarnation, ProcessIndex, ReplicaId, View};
use redrt_wire::card::{Card, Endpoint};
use redrt_wire::control::{FromAgent, Options, Protocol, ToAgent, Transport, Verification, Welcome};
use redrt_wire::dynamic::{Origin, Request};
use redrt_wire::secret::Secret;
use simulation_kit::replay::chosen;
use simulation_kit::{Named, Random, Refusal, Setup, Simulator, Violation, parsed};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

simulation_kit::named! {
    /// Faults of which a run is about. Losses and checkpoints are there without them.
    pub enum Faults {
        /// The program of one process leaves the path of its siblings.
        Path,
    }
}

/// The parts of a run that are fixed; the seed chooses the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Number of ranks.
    pub rank_count: Option<u32>,
    /// Number of replicas of each rank.
    pub degree: Option<u16>,
    /// Kind of the program.
    pub kind: Option<ProgramKind>,
    /// True if no process and no connection is lost, and no checkpoint is taken.
    pub is_undisturbed: bool,
}

/// The simulator of the whole library.
pub enum LibrarySimulator {}

impl Simulator for LibrarySimulator {
    const NAME: &'static str = "library";
    const ABOUT: &'static str = "Whole jobs of the real library, with losses of processes and checkpoints";
    type Faults = Faults;
    type Mistake = Mutation;
    type Shape = Shape;
    type Summary = Summary;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<Summary, Violation> {
        run(seed, setup).map_err(Violation::of)
    }

    fn fix(shape: &mut Shape, option: &str, value: &str) -> Result<(), Refusal> {
        match option {
            "rank-count" => shape.rank_count = Some(parsed(option, value)?),
            "degree" => shape.degree = Some(parsed(option, value)?),
            "program" => shape.kind = Some(chosen(option, value)?),
            "undisturbed" => shape.is_undisturbed = true,
            _ => return Err(Refusal::NoOption { simulator: Self::NAME, option: option.to_owned() }),
        }
        Ok(())
    }

    fn options(shape: &Shape) -> String {
        let option = |name, value: Option<String>| value.map(|value| format!(" --{name} {value}"));
        let options = [
            option("rank-count", shape.rank_count.map(|count| count.to_string())),
            option("degree", shape.degree.map(|degree| degree.to_string())),
            option("program", shape.kind.map(ProgramKind::word)),
            shape.is_undisturbed.then(|| " --undisturbed".to_owned()),
        ];
        options.into_iter().flatten().collect()
    }
}

/// Counts of a successful run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Kind of the program.
    pub kind: Option<ProgramKind>,
    /// Number of events until the end of the run.
    pub events: u64,
    /// Number of processes that were lost.
    pub losses: u64,
    /// Number of connections that broke between two live processes.
    pub breaks: u64,
    /// Number of times that two hosts were cut off from each other.
    pub parts: u64,
    /// Number of checkpoints that were taken.
    pub checkpoints: u64,
    /// Number of times that the job went back to a checkpoint.
    pub returns: u64,
    /// Number of signals that programs got.
    pub signals: u64,
    /// Number of processes that left the path of their siblings.
    pub left: u64,
    /// 1 if the run ended without a decision: the right replica was unknown, or none was left.
    pub open: u64,
    /// Number of ranks.
    pub rank_count: u32,
    /// Number of replicas of each rank.
    pub degree: u16,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, events, losses, breaks, parts, checkpoints, returns, signals, left, open, rank_count, degree } =
            self;
        let kind = kind.map(|kind| format!("{kind:?}")).unwrap_or_default();
        write!(
            f,
            "{kind} on {rank_count} x {degree}, {events} events, {losses} losses, {breaks} connections broken, \
             {parts} hosts parted, "
        )?;
        write!(f, "{checkpoints} checkpoints, {returns} returns, {signals} signals, {left} left the path")?;
        if *open > 0 { write!(f, ", left open") } else { Ok(()) }
    }
}

/// First failure of a run, with the size of its job.
#[derive(Debug)]
struct Failure {
    /// After how many events.
    event: u64,
    /// Ranks of the job.
    rank_count: u32,
    /// Replicas of each.
    degree: u16,
    /// Kind of program.
    kind: ProgramKind,
    /// What.
    wrong: Wrong,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, rank_count, degree, kind, wrong } = self;
        write!(f, "after {event} events: {rank_count} ranks x {degree}, {kind:?}: {wrong}")
    }
}

impl std::error::Error for Failure {}

/// Limit on events, above the need of any run. Programs that poll for one another's messages make the longest runs: 2.2
/// million events at most in a million seeds.
const EVENTS_MAX: u64 = 10_000_000;
/// The same for a job with a planted bug, of which another seed may end sooner.
const EVENTS_MAX_PLANTED: u64 = 400_000;
/// After this number of events, a process that has left the path of its siblings stands still, while others poll for
/// its messages.
const EVENTS_LAGGING: u64 = 200_000;
/// Limit on time, above the need of any run. Waiting processes look again once in a minute.
const TIME_MAX_NS: u64 = 3_600_000_000_000;

/// Longest time between two waves of questions to all processes ([`Event::Asks`]).
const LOOK_NS_MAX: u64 = 5_000_000_000;
/// Largest number of events between two waves: for ranks that poll, time hardly advances.
const EVENTS_PER_LOOK: u64 = 100_000;

/// A process of the job, as its daemon sees it.
pub(super) struct Member {
    pub(super) replica: ReplicaId,
    pub(super) actor: Actor,
    pub(super) is_lost: bool,
    pub(super) output: Option<Vec<u64>>,
    /// Number of the latest sleep: a process wakes once from each.
    sleeps: u64,
    /// True if the process is scheduled to run.
    is_due: bool,
    /// View in which the process called `MPI_Finalize`.
    pub(super) finalizing: Option<redrt_types::ViewNumber>,
    /// True if the process goes on from a checkpoint and has not received the cards of the others yet.
    pub(super) awaits_cards: bool,
    /// Time of the latest message that is scheduled for the process: messages keep their order.
    told_ns: u64,
}

pub(super) struct SimulatedJob {
    world: Arc<Mutex<World>>,
    pub(super) view: View,
    pub(super) members: Vec<Member>,
    pub(super) cards: Vec<Card>,
    pub(super) is_released: bool,
    /// True if checkpoints are taken. Some are taken just when a message is sent to all.
    pub(super) takes_checkpoints: bool,
    /// Processes that wait for a checkpoint, and the numbers of their questions.
    pub(super) askers: Vec<(ProcessIndex, u64)>,
    pub(super) signal_count: u64,
    /// The departure of a process from the path of its siblings, if the run has one.
    pub(super) leaves: Option<Leaves>,
    waves: Waves,
    /// True if replicas have parted and the right one is unknown.
    pub(super) is_undecided: bool,
    pub(super) summary: Summary,
    pub(super) mutation: Option<Mutation>,
}

/// Runs one seed to its end.
///
/// # Errors
/// When a process finds a result that MPI does not allow, panics, reports what did not happen, or when all wait for
/// each other.
fn run(seed: u64, setup: &Setup<LibrarySimulator>) -> Result<Summary, Failure> {
    let (options, is_about_paths) = (setup.shape, setup.faults == Some(Faults::Path));
    let mut random = Random::stream(seed, "library!");
    let degree = options.degree.unwrap_or_else(|| random.pick(&[1, 2, 2, 3]));
    let rank_count = options.rank_count.unwrap_or_else(|| random.pick(&[1, 2, 2, 3, 3, 4, 5]));
    let mut kind = options.kind.unwrap_or_else(|| random.pick(ProgramKind::ALL));
    if is_about_paths && matches!(kind, ProgramKind::Windows | ProgramKind::Mixed) && options.kind.is_none() {
        kind = ProgramKind::Polls;
    }
    let plan = program::Plan { seed: random.number(), kind };
    let losses = if options.is_undisturbed || degree == 1 { 0 } else { random.below(1 + usize::from(degree)) };
    let checkpoints = if options.is_undisturbed || random.chance(50) { 0 } else { 1 + random.below(3) };
    let breaks = if options.is_undisturbed || degree == 1 || random.chance(70) { 0 } else { 1 + random.below(3) };
    let parts = !options.is_undisturbed && degree > 1 && checkpoints == 0 && random.chance(70);
    redrt_process::simulation::install(&super::SIMULATION);
    let leaves = (is_about_paths && degree > 1).then(|| Leaves::any(seed, rank_count * u32::from(degree), rank_count));
    let mut job = SimulatedJob::new(random, (rank_count, degree), plan, checkpoints > 0, (setup, leaves));
    job.plan_faults(losses, breaks, parts);
    job.plan_checkpoints(checkpoints);
    if degree > 1 {
        job.plan_signals(seed);
    }
    if leaves.is_some() {
        job.plan_looks();
    }
    let result = job.run();
    world::leave();
    result.map_err(|wrong| Failure { event: job.summary.events, rank_count, degree, kind, wrong })
}

impl SimulatedJob {
    fn new(
        random: Random,
        (rank_count, degree): (u32, u16),
        plan: program::Plan,
        takes_checkpoints: bool,
        (setup, leaves): (&Setup<LibrarySimulator>, Option<Leaves>),
    ) -> Self {
        let mutation = setup.mistake;
        let mut random = random;
        let protocol = random.pick(&[Protocol::Hash, Protocol::Hash, Protocol::AllToAll]);
        // Replicated windows need strict verification. With deferred verification, programs that depart might use a
        // wrong payload before its verdict, so runs with departures are strict too.
        let is_strict =
            matches!(plan.kind, ProgramKind::Windows | ProgramKind::Mixed) || random.chance(70) || leaves.is_some();
        let verification = if is_strict { Verification::Strict } else { Verification::Deferred };
        let compared = (protocol, verification);
        let shape = redrt_types::World::uniform(rank_count, degree);
        let world = Arc::new(Mutex::new(World::new(random, setup.trace)));
        world::enter(world.clone());
        let view = View::initial(&shape);
        let card = |process: ProcessIndex| Card {
            process,
            host_number: process.0,
            host: format!("h{}", process.0),
            pid: 0,
            endpoints: vec![Endpoint { network: NAME.into(), address: process.0.to_string() }],
            early_threads: Vec::new(),
        };
        let cards: Vec<_> = (0..shape.process_count()).map(|process| card(ProcessIndex(process))).collect();
        let member = |replica: ReplicaId| {
            let at = shape.process(replica);
            let faults = leaves.map(|leaves| leaves.faults(at)).unwrap_or_default();
            let welcome = Welcome { faults, ..welcome(&shape, &view, replica, compared, takes_checkpoints) };
            let cards = cards.clone();
            let begin = move || {
                let network: Arc<dyn Network> = Arc::new(Simulated);
                SIMULATED.get_or_init(|| network);
                if let Some(mutation) = mutation {
                    PLANTED.get_or_init(|| mutation);
                }
                let handle = move |message: &FromAgent| {
                    world::with_current(|world| world.send(at, message));
                };
                init_simulated(welcome, cards, Control::simulated(Box::new(handle)));
                // No program begins before all processes have joined.
                actor::sleep(None);
                if let Some(leaves) = leaves {
                    leaves.begin(at);
                }
                let mut output = program::run(plan, replica.rank.0, rank_count);
                output.extend(signals::raised());
                output
            };
            Member {
                replica,
                actor: Actor::new(&world, at, begin),
                is_lost: false,
                output: None,
                sleeps: 0,
                is_due: false,
                finalizing: None,
                awaits_cards: false,
                told_ns: 0,
            }
        };
        let members = shape.replicas().map(member).collect();
        let summary = Summary { kind: Some(plan.kind), rank_count, degree, ..Summary::default() };
        Self {
            world,
            view,
            members,
            cards,
            is_released: false,
            takes_checkpoints,
            askers: Vec::new(),
            signal_count: 0,
            leaves,
            waves: Waves::default(),
            is_undecided: false,
            summary,
            mutation,
        }
    }

    pub(super) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses the lost processes, each with a step of its own or a time. Each rank keeps one replica.
    fn plan_faults(&mut self, losses: usize, breaks: usize, parts: bool) {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self.view.degrees();
        for _ in 0..losses {
            let victim = world.random.below(self.members.len());
            let member = &self.members[victim];
            let rank = member.replica.rank.0 as usize;
            if left[rank] < 2 {
                continue;
            }
            left[rank] -= 1;
            if world.random.chance(60) {
                let steps = 1 + world.random.number() % *[10, 100, 1000].get(world.random.below(3)).unwrap_or(&10);
                member.actor.lose_after(steps);
            } else {
                let at_ns = world.now_ns + world.random.number() % (world.delay_ns_max * 200);
                world.plan(at_ns, Event::Lost(ProcessIndex(victim as u32)));
            }
        }
        if parts {
            let [victim, other] = [(); 2].map(|()| world.random.below(self.members.len()));
            if victim != other && left[self.members[victim].replica.rank.0 as usize] > 1 {
                let at_ns = world.now_ns + world.random.number() % (world.delay_ns_max * 100);
                let [victim, other] = [victim, other].map(|number| ProcessIndex(number as u32));
                world.plan(at_ns, Event::Parts(Parted { victim, other }));
            }
        }
        for _ in 0..breaks {
            let count = self.members.len();
            let ends = [world.random.below(count), world.random.below(count)];
            let at_ns = world.now_ns + world.random.number() % (world.delay_ns_max * 100);
            world.plan(at_ns, Event::Breaks(ProcessIndex(ends[0] as u32), ProcessIndex(ends[1] as u32)));
        }
    }

    fn run(&mut self) -> Result<Summary, Wrong> {
        for member in &self.members {
            if let Pause::Ended(end) = member.actor.run() {
                return Err(Wrong::Begin { replica: member.replica, end });
            }
        }
        for process in 0..self.members.len() {
            self.wake(ProcessIndex(process as u32));
        }
        while self.members.iter().any(|member| !member.is_lost && member.output.is_none()) {
            let Some(event) = self.world().next() else { return Err(Wrong::Stalled { state: self.state() }) };
            self.summary.events += 1;
            let limit = if self.mutation.is_some() { EVENTS_MAX_PLANTED } else { EVENTS_MAX };
            if self.summary.events > limit || self.world().now_ns > TIME_MAX_NS {
                return Err(Wrong::Endless { state: self.state() });
            }
            self.world().say(|| format!("{event:?}"));
            if self.summary.events == EVENTS_LAGGING {
                self.lose_laggards();
            }
            if self.summary.events.is_multiple_of(EVENTS_PER_LOOK) && self.is_looked_at() {
                self.poll();
            }
            self.happen(event)?;
            let told = std::mem::take(&mut self.world().told);
            for (process, message) in told {
                self.handle(process, message)?;
            }
            if self.is_open() {
                break;
            }
        }
        self.summary.open = self.is_open().into();
        let left_count = self.world().left.len() as u64;
        self.summary.left = left_count;
        if self.summary.open == 0 {
            self.compare()?;
        }
        let raised_count = self.world().raised_count;
        self.summary.signals = raised_count;
        Ok(self.summary)
    }

    pub(super) fn state(&self) -> String {
        let say = |member: &Member| {
            let what = match (&member.output, member.is_lost, member.finalizing) {
                (_, true, _) => "lost".into(),
                (Some(_), ..) => "done".into(),
                (None, false, _) if member.awaits_cards => "waits for cards".into(),
                (None, false, Some(view)) => format!("finalizing in view {}", view.0),
                (None, false, None) => {
                    let taken = member.actor.act(|| engine::cell().lock().statistics().decisions);
                    let passive = member.actor.act(|| engine::cell().passive(1, &self.view));
                    let waits_for = passive.map_or("nothing".into(), |passive| passive.waits_for.join(", "));
                    let calls = member.actor.act(|| runtime::threads::place_of(0).calls);
                    format!("at call {calls} after {taken} decisions, waits for {waits_for}")
                }
            };
            format!(" {} {what};", member.replica)
        };
        self.members.iter().map(say).collect()
    }

    fn member(&mut self, process: ProcessIndex) -> &mut Member {
        &mut self.members[process.0 as usize]
    }

    /// Schedules a process to run soon.
    pub(super) fn wake(&mut self, process: ProcessIndex) {
        let member = &mut self.members[process.0 as usize];
        if member.is_lost || member.output.is_some() || std::mem::replace(&mut member.is_due, true) {
            return;
        }
        let sleeps = member.sleeps;
        let mut world = self.world();
        let at_ns = if world.random.chance(80) { world.now_ns } else { world.soon() };
        world.plan(at_ns, Event::Run(process, sleeps));
    }

    pub(super) fn happen(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Run(process, sleeps) if self.member(process).sleeps == sleeps => return self.let_run(process),
            Event::Run(..) => {}
            Event::Checkpoint(goes_back) => drop(self.checkpoint(goes_back)?),
            Event::Asked => self.asked_checkpoint()?,
            Event::Signal => self.send_signal(),
            Event::Opened(id) => {
                let (name, to, is_open) = {
                    let world = self.world();
                    (world.links[id].name, world.links[id].to, world.links[id].is_open())
                };
                // A connection over which data have arrived has been accepted already.
                if self.world().are_parted([name.from, to]) && !self.world().links[id].has_brought() {
                    return Ok(());
                }
                let member = self.member(to);
                if is_open && member.awaits_cards && !member.is_lost {
                    // The thread that admits connections waits until this process goes on.
                    let mut world = self.world();
                    let at_ns = world.soon();
                    world.plan(at_ns, Event::Opened(id));
                } else if is_open && !member.is_lost && member.output.is_none() {
                    member.actor.act(|| engine::cell().link_opened(Incoming::new(name, Box::new(Receiving::new(id)))));
                    self.wake(to);
                } else if is_open {
                    self.world().breaks(id);
                }
            }
            Event::Leaves(id) => {
                let waiting = self.world().leaves(id);
                waiting.into_iter().for_each(|process| self.wake(process));
            }
            Event::Arrives(id) => {
                let to = self.world().arrives(id);
                to.into_iter().for_each(|process| self.wake(process));
            }
            Event::Closes(id) => {
                let ends = self.world().closes(id);
                ends.into_iter().for_each(|process| self.wake(process));
            }
            Event::Told(process, incarnation, message) => {
                let _ = incarnation;
                let degree = self.summary.degree;
                let member = self.member(process);
                if !member.is_lost && member.output.is_none() {
                    // Copies get the view after the cards.
                    let is_known = match *message {
                        ToAgent::Cards(_) => degree == 1,
                        ToAgent::View(_) => degree > 1,
                        _ => false,
                    };
                    member.awaits_cards &= !is_known;
                    member.actor.act(|| {
                        let job = runtime::job().expect("it is in the job");
                        redrt_membership::agent::follow(job, job.control.expect("it has a daemon"), *message);
                    });
                    self.wake(process);
                }
            }
            Event::Missed(process) => {
                let lost = self.member(process).replica;
                self.view = self.view.without(&[lost]);
                self.send_all(|view| ToAgent::View(view.clone()));
            }
            Event::Lost(process) => {
                let member = self.member(process);
                if !member.is_lost && member.output.is_none() && !self.is_released {
                    member_lost(self, process);
                }
            }
            Event::Parts(parted) => {
                let mut world = self.world();
                world.parted.push(parted);
                let now_ns = world.now_ns;
                world.plan(now_ns, Event::Asks);
                drop(world);
                self.summary.parts += 1;
            }
            Event::Asks => self.ask_all(),
            Event::Unanswered(from, to, wanted) => {
                let member = self.member(from);
                if !member.is_lost && member.output.is_none() {
                    let result = Err(std::io::ErrorKind::HostUnreachable.into());
                    member.actor.act(|| engine::cell().link_dialled(Opened { to, wanted, result }));
                    self.wake(from);
                }
            }
            Event::Breaks(one, other) => {
                let mut world = self.world();
                let is_between = |ends: [ProcessIndex; 2]| ends == [one, other] || ends == [other, one];
                let broken: Vec<_> = (0..world.links.len())
                    .filter(|id| world.links[*id].is_open() && is_between(world.links[*id].ends()))
                    .collect();
                broken.iter().for_each(|id| world.breaks(*id));
                drop(world);
                self.summary.breaks += u64::from(!broken.is_empty());
            }
        }
        Ok(())
    }

    fn let_run(&mut self, process: ProcessIndex) -> Result<(), Wrong> {
        let member = self.member(process);
        if member.is_lost || member.output.is_some() {
            return Ok(());
        }
        member.is_due = false;
        member.sleeps += 1;
        let sleeps = member.sleeps;
        let pause = member.actor.run();
        match pause {
            Pause::Asleep(until) => {
                if let Some(until) = until {
                    let mut world = self.world();
                    // A polling process polls a few times for each event.
                    let until = until.max(world.now_ns + 1 + world.random.number() % world.delay_ns_max);
                    world.plan(until, Event::Run(process, sleeps));
                }
            }
            Pause::Ended(End::Done(output)) => member.output = Some(output),
            Pause::Ended(End::Lost) => self.gone(process),
            // The program, or the library in the process, has noticed the fault.
            Pause::Ended(End::Panicked(_)) if self.has_left(process) || self.has_reason(process) => self.gone(process),
            Pause::Ended(End::Panicked(why)) => {
                let replica = self.member(process).replica;
                let world = self.world();
                let told = world.told.iter().map(|(_, message)| format!("{message:?}"));
                let said = told.chain(world.lines.iter().cloned()).collect();
                return Err(Wrong::Panicked { replica, why, said });
            }
        }
        Ok(())
    }

    /// A process has unwound: breaks its links, and schedules the time at which it is missed.
    fn gone(&mut self, process: ProcessIndex) {
        self.member(process).is_lost = true;
        self.world().mute(process);
        self.summary.losses += 1;
        let mut world = self.world();
        let its: Vec<_> = (0..world.links.len())
            .filter(|id| world.links[*id].is_open() && world.links[*id].ends().contains(&process))
            .collect();
        its.into_iter().for_each(|id| world.breaks(id));
        let at_ns = world.soon() + world.random.number() % (3 * world.delay_ns_max);
        world.plan(at_ns, Event::Missed(process));
    }

    /// Sends a message to each live process. Delays differ; each process gets its messages in order.
    pub(super) fn send_all(&mut self, message: impl Fn(&View) -> ToAgent) {
        let view = self.view.clone();
        for number in 0..self.members.len() {
            self.send(ProcessIndex(number as u32), message(&view));
        }
        let mut world = self.world();
        if self.takes_checkpoints && world.random.chance(30) {
            let now_ns = world.now_ns;
            world.plan(now_ns, Event::Checkpoint(false));
        }
    }

    /// Sends a message to a process. Messages to one process keep their order.
    pub(super) fn send(&mut self, process: ProcessIndex, message: ToAgent) {
        let after_ns = self.member(process).told_ns + 1;
        let at_ns = self.world().soon().max(after_ns);
        self.member(process).told_ns = at_ns;
        self.world().plan(at_ns, Event::Told(process, Incarnation(0), Box::new(message)));
    }

    /// Handles a message of a process to its daemon.
    fn handle(&mut self, process: ProcessIndex, message: FromAgent) -> Result<(), Wrong> {
        let replica = self.member(process).replica;
        let Some(message) = self.handle_paths(process, message)? else { return Ok(()) };
        match message {
            FromAgent::Finalizing { view, .. } => {
                self.member(process).finalizing = Some(view);
                let number = self.view.number;
                let mut live = self.members.iter().filter(|member| self.view.is_live(member.replica));
                let are_all = live.all(|member| !member.is_lost && member.finalizing == Some(number));
                if are_all && !std::mem::replace(&mut self.is_released, true) {
                    self.send_all(|_| ToAgent::Release);
                }
            }
            FromAgent::Dynamic(number, Request::Checkpoint) if self.takes_checkpoints => {
                self.asks_for_checkpoint(process, number);
            }
            FromAgent::Suspect { peer, host_is_silent: true } => {
                let peer = redrt_types::World::uniform(self.summary.rank_count, self.summary.degree).process(peer);
                let mut world = self.world();
                let Some(parted) = world.parted.iter().copied().find(|parted| parted.are(process, peer)) else {
                    return Err(Wrong::Said { replica, message: Box::new(message) });
                };
                let at_ns = world.soon();
                world.plan(at_ns, Event::Lost(parted.victim));
            }
            FromAgent::Suspect { peer, .. } if self.degree_was(peer) > 1 => {}
            FromAgent::Pace { .. } | FromAgent::Answer { .. } if self.summary.parts > 0 => {}
            FromAgent::Event(redrt_wire::event::Event::Reconnected { .. })
            | FromAgent::Pinned(_)
            | FromAgent::InStep
            | FromAgent::Quiet => {}
            other => return Err(Wrong::Said { replica, message: Box::new(other) }),
        }
        Ok(())
    }

    /// Asks all processes if they wait, as `redrun` does, and again as long as some hosts are cut off or a process may
    /// leave.
    fn ask_all(&mut self) {
        if !self.is_looked_at() {
            return;
        }
        self.poll();
        let mut world = self.world();
        let at_ns = world.now_ns + world.random.number() % LOOK_NS_MAX;
        world.plan(at_ns, Event::Asks);
    }

    /// True if asking may show something: a process may have left its siblings' path, or hosts are cut off from each
    /// other.
    fn is_looked_at(&mut self) -> bool {
        let victims: Vec<_> = self.world().parted.iter().map(|parted| parted.victim).collect();
        self.may_leave() || victims.into_iter().any(|victim| !self.member(victim).is_lost)
    }

    fn poll(&mut self) {
        let wave = self.next_wave();
        for number in 0..self.members.len() {
            self.send(ProcessIndex(number as u32), ToAgent::Ask { wave });
        }
    }

    fn degree_was(&self, peer: ReplicaId) -> u16 {
        self.members.iter().filter(|member| member.replica.rank == peer.rank).count() as u16
    }

    /// Checks that replicas of a rank have the same results.
    fn compare(&self) -> Result<(), Wrong> {
        for rank in 0..self.summary.rank_count {
            let is_sound = |(at, member): &(usize, &Member)| {
                member.replica.rank.0 == rank && !member.is_lost && !self.has_left(ProcessIndex(*at as u32))
            };
            let sound = self.members.iter().enumerate().filter(is_sound);
            let mut outputs = sound.filter_map(|(_, member)| member.output.as_ref());
            let first = outputs.next();
            if outputs.any(|output| Some(output) != first) {
                return Err(Wrong::Results { rank });
            }
        }
        Ok(())
    }
}

/// Loses a process at its present place: its program unwinds.
pub(super) fn member_lost(job: &mut SimulatedJob, process: ProcessIndex) {
    let member = job.member(process);
    member.actor.lose();
    if let Pause::Ended(_) = member.actor.run() {
        job.gone(process);
    }
}

fn welcome(
    world: &redrt_types::World,
    view: &View,
    me: ReplicaId,
    compared: (Protocol, Verification),
    is_saved: bool,
) -> Welcome {
    let (protocol, verification) = compared;
    let job = 7;
    Welcome {
        job,
        link_secret: Secret::new([7; 32]),
        me,
        incarnation: Incarnation(0),
        view: view.clone(),
        world: world.clone(),
        options: Options { protocol, verification, is_saved, transport: Transport::Tcp, seed: 7, ..Options::default() },
        host: format!("h{}", world.process(me).0),
        host_number: world.process(me).0,
        core_sharers: 1,
        shared_memory: None,
        windows: None,
        neighborhood: me.rank,
        placed: view.number,
        listen: ([127, 0, 0, 1], 0).into(),
        faults: Vec::new(),
        application: 0,
        origin: Origin { tree: job, parent_port: None, place_count: world.rank_count() },
    }
}
