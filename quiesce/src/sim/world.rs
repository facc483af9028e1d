//! The simulated network, coordinator and faults, and the scheduler that picks the next event.

use super::app::{Part, Progress};
use super::arbitration::{Arbitration, PLACES};
use super::broken::Broken;
use super::checkpoints::Checkpoints;
use super::joins::{Join, with_free_places};
use super::paths::{Departure, PathWatch};
use super::process::{Control, Packet, Process};
use super::program::{PhaseKinds, generate, with_times};
use super::resets::Breaks;
use super::rest::Rest;
use super::{Failure, Faults, ProtocolSimulator, Summary, check};
use crate::frame::{Action, Frame, MessageId};
use crate::replica::{Config, Verification};
use crate::view::Protocol;
use redrt_types::{ContextId, Incarnation, ProcessIndex, ReplicaId, View, VirtualRank, World};
use simulation_kit::network::Links;
use simulation_kit::schedule::Speeds;
use simulation_kit::{Random, Setup, Trace};

/// Number of steps after which a run counts as hanging.
const STEP_LIMIT: u64 = 400_000;

/// A payload that was corrupted on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireFlip {
    pub(super) from: ReplicaId,
    pub(super) to: ReplicaId,
    pub(super) message: MessageId,
}

/// A payload that may overtake other packets: sender, receiver, epoch of their connection, and the packet.
pub(super) type Transfer = (ReplicaId, ReplicaId, u32, Packet);

pub(super) struct Simulation {
    pub(super) world: World,
    pub(super) processes: Vec<Process>,
    pub(super) view: View,
    pub(super) flipped: Option<WireFlip>,
    /// The replica whose memory is to be corrupted.
    pub(super) corrupt: Option<ReplicaId>,
    pub(super) links: Links<(ProcessIndex, ProcessIndex), (u32, Packet)>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) breaks: Breaks,
    pub(super) random: Random,
    pub(super) deaths_left: usize,
    pub(super) joins_left: usize,
    pub(super) joins: Vec<Join>,
    /// Number of cuts so far.
    pub(super) cut_count: u64,
    /// True if copies are the subject of the run: several at a time, with all faults that may hit them.
    pub(super) is_about_clones: bool,
    /// Present where copies wait to judge.
    pub(super) arbitration: Option<Arbitration>,
    /// Present where checkpoints are taken.
    pub(super) checkpoints: Option<Checkpoints>,
    /// The progress of each process, and the event of its latest change, where that is watched.
    pub(super) stands: (Vec<usize>, u64),
    /// Present where memory is corrupted at rest.
    pub(super) rest: Option<Rest>,
    /// Present where a program leaves the path of its siblings.
    pub(super) paths: Option<PathWatch>,
    wire_flip_after: Option<usize>,
    /// Incarnation of each place, by process.
    pub(super) lives: Vec<u32>,
    /// How eager each process is to run. Some lag.
    speeds: Speeds,
    pub(super) step: u64,
    trace: Trace,
    pub(super) summary: Summary,
}

#[derive(Clone, Copy)]
enum Event {
    Deliver(ProcessIndex, ProcessIndex),
    Transfer(usize),
    Run(usize),
    View(usize),
    Notice(usize),
}

impl Simulation {
    pub(super) fn new(seed: u64, setup: &Setup<ProtocolSimulator>) -> Self {
        let shape = setup.shape;
        let mut random = Random::new(seed);
        let rank_count = shape.rank_count.unwrap_or_else(|| 1 + random.below(4) as u32);
        let faults = setup.faults.unwrap_or_else(|| Breaks::perhaps(seed, random.pick(&Faults::DRAWN)));
        let is_arbitrated = matches!(faults, Faults::Arbitration | Faults::PathArbitration);
        let has_departure = matches!(faults, Faults::Path | Faults::PathArbitration);
        let mut degree = || shape.degree.unwrap_or_else(|| degree(&mut random, faults));
        let degrees = (0..rank_count).map(|_| if is_arbitrated { PLACES } else { degree() }).collect();
        let world = World::new(degrees);
        let breaks = Breaks::new(seed, faults);
        let protocol =
            shape.protocol.unwrap_or_else(|| if random.chance(25) { Protocol::AllToAll } else { Protocol::Hash });
        // With deferred verdicts, a corrupt payload is delivered and corrupts its receiver, and then any report is
        // possible.
        let needs_strict = is_arbitrated || has_departure || matches!(faults, Faults::Memory | Faults::Rest);
        let strict = random.chance(75) || needs_strict;
        let verification = if strict { Verification::Strict } else { Verification::Deferred };
        // Copies take some time before they can judge.
        let phase_count =
            if is_arbitrated || faults == Faults::Rest { 4 + random.below(12) } else { 1 + random.below(6) };
        let kinds = match faults {
            Faults::Clones => PhaseKinds::WITH_COLLECTIVES,
            Faults::Path | Faults::PathArbitration => PhaseKinds::WITH_FILES,
            _ => PhaseKinds::WITHOUT,
        };
        let mut programs = generate(&mut random, rank_count, phase_count, kinds);
        if faults == Faults::Collectors {
            programs = with_times(&mut random, programs);
        }
        let mut contexts = vec![ContextId(1), ContextId(2)];
        contexts.extend((0..phase_count as u64).map(|phase| ContextId(100 + phase)));
        let full = View::initial(&world);
        let view = match faults {
            Faults::Clones => with_free_places(&full, &world, &mut random),
            _ if is_arbitrated => View::with_degrees(&world, &vec![2; rank_count as usize]),
            _ => full.clone(),
        };
        let start = |me: ReplicaId| {
            // The process in a free place never runs.
            let view = if view.is_live(me) { view.clone() } else { full.clone() };
            let config = Config { me, world: world.clone(), view, protocol, verification };
            Process::new(config, &contexts, programs[me.rank.0 as usize].clone())
        };
        let mut processes: Vec<_> = world.replicas().map(start).collect();
        processes.iter_mut().for_each(|process| process.alive = view.is_live(process.me()));
        if let Some(mutation) = setup.mistake {
            processes.iter_mut().for_each(|process| process.replica.mutate(mutation));
        }
        let corrupt = (faults == Faults::Memory).then(|| {
            let place = random.below(processes.len());
            processes[place].corrupt_send = Some(random.below(8));
            processes[place].me()
        });
        let arbitration = is_arbitrated.then(|| Arbitration::new(&mut random, &world));
        let corrupt = match &arbitration {
            Some(arbitration) if !has_departure => arbitration.corrupt_one(&mut random, &mut processes),
            _ => corrupt,
        };
        let corrupt = if faults == Faults::Rest {
            let place = random.below(processes.len());
            let part = random.pick(&[Part::Data, Part::Data, Part::Envelope, Part::Path]);
            processes[place].corrupt_at_rest = Some((part, random.below(30)));
            Some(processes[place].me())
        } else {
            corrupt
        };
        let departing = has_departure.then(|| {
            let live: Vec<_> = (0..processes.len()).filter(|place| processes[*place].alive).collect();
            let place = random.pick(&live);
            // Copies should be ready by then.
            let calls_max = if is_arbitrated { 160 } else { 40 };
            let leaves_path = (random.below(calls_max) as u64, Departure::any(&mut random));
            processes[place].leaves_path = (!shape.uncounted).then_some(leaves_path);
            processes[place].is_latent = arbitration.as_ref().is_some_and(Arbitration::is_latent);
            processes[place].me()
        });
        for (number, process) in processes.iter_mut().enumerate() {
            process.clock = number as u64;
            process.app.counts_calls = !shape.uncounted;
            process.collects = faults == Faults::Collectors;
            process.generates_after = 10 + 7 * number as u64;
        }
        if faults == Faults::Log {
            let place = random.below(processes.len());
            processes[place].corrupt_log = Some(random.below(8));
        }
        let deaths_left = match faults {
            Faults::Deaths => 1 + random.below(4),
            Faults::Collectors => random.below(4),
            Faults::Checkpoints => random.below(4),
            Faults::Resets => random.below(3),
            Faults::Clones => random.below(6),
            Faults::Wire | Faults::Path => random.below(2),
            Faults::Log | Faults::Rest => 1 + random.below(3),
            Faults::Arbitration | Faults::PathArbitration => random.below(3),
            _ => 0,
        };
        let joins_left = match faults {
            Faults::Deaths | Faults::Resets | Faults::Checkpoints | Faults::Collectors => random.below(4),
            Faults::Arbitration | Faults::PathArbitration => random.below(4),
            Faults::Clones | Faults::Rest => 2 + random.below(6),
            _ => 0,
        };
        let wire_flip_after = (faults == Faults::Wire).then(|| random.below(20));
        let speeds = Speeds::draw(&mut random, processes.len(), &[5, 40, 100, 100]);
        let processes_count = processes.len();
        Self {
            world,
            processes,
            view,
            flipped: None,
            corrupt,
            links: Links::default(),
            transfers: Vec::new(),
            breaks,
            random,
            deaths_left,
            joins_left,
            joins: Vec::new(),
            cut_count: 0,
            is_about_clones: faults == Faults::Clones,
            arbitration,
            checkpoints: (faults == Faults::Checkpoints).then(|| Checkpoints::new(seed)),
            stands: (Vec::new(), 0),
            rest: (faults == Faults::Rest).then(Rest::default),
            paths: departing.map(PathWatch::new),
            wire_flip_after,
            lives: vec![0; processes_count],
            speeds,
            step: 0,
            trace: setup.trace,
            summary: Summary { faults: Some(faults), ..Summary::default() },
        }
    }

    /// Runs until no event is possible, and checks the end.
    pub(super) fn run(mut self) -> Result<Summary, Failure> {
        loop {
            self.watch_rest();
            // Processes are asked for their waits now and then, and whenever no other event is possible.
            if self.paths.is_some() && self.random.below(500) == 0 {
                self.ask_for_waits();
            }
            if self.deaths_left > 0 && self.random.below(60) == 0 {
                self.kill();
            }
            self.break_connections();
            self.take_checkpoints();
            self.advance_joins();
            self.arbitrate();
            self.end_withholding();
            self.prove();
            let events = self.events();
            let ends = events.is_empty() && self.joins.is_empty() && !self.is_holding();
            if self.stands_still() || ends {
                if self.handle_paths() || self.ask_for_waits() || self.retire_stray() || self.give_up_arbiters() {
                    continue;
                }
                break;
            }
            if events.is_empty() && self.is_waiting_with_ready() && self.ask_for_waits() {
                continue;
            }
            if events.is_empty() && self.release_ready().map_err(|broken| self.failure(broken))? {
                continue;
            }
            self.step += 1;
            if self.step > STEP_LIMIT && check::is_believed(&self) {
                break;
            }
            if self.step > STEP_LIMIT {
                return Err(self.failure(Broken::Endless));
            }
            if events.is_empty() {
                continue;
            }
            let event = self.choose(&events);
            self.happen(event);
            self.end_refused();
            if let Some(failure) = self.processes.iter().find_map(|process| process.failure.clone()) {
                return Err(self.failure(failure));
            }
            if check::is_decided(&self) || self.is_path_open() {
                break;
            }
        }
        self.count_verdicts(check::is_decided(&self) || self.is_path_open());
        self.summary.open += u64::from(self.rest.is_some() && check::has_open(&self));
        self.summary.misnamed = self.misnamed();
        let summary = &mut self.summary;
        summary.steps = self.step;
        summary.messages = self.processes.iter().map(|process| process.sent.len() as u64).sum();
        summary.reports = self.processes.iter().map(|process| process.reports.len() as u64).sum();
        summary.alone = self.processes.iter().map(|process| process.alone_count).sum();
        summary.decisions = self.processes.iter().map(|process| process.replica.decision_count()).sum();
        let summary = *summary;
        check::end(&self).map_err(|broken| self.failure(broken))?;
        Ok(summary)
    }

    pub(super) fn process(&self, replica: ReplicaId) -> &Process {
        &self.processes[self.world.process(replica).0 as usize]
    }

    fn failure(&self, broken: Broken) -> Failure {
        let mut state = String::new();
        for process in &self.processes {
            let replica = &process.replica;
            state += &format!(
                "\n  {} {} view {} at {:?}, {} retained, {} unsettled, {} held, {} sends open, {} decisions",
                process.me(),
                if process.fenced {
                    "fenced"
                } else if process.alive {
                    "live"
                } else {
                    "dead"
                },
                replica.view().number.0,
                process.app.current(),
                replica.retained_count(),
                replica.unsettled_count(),
                replica.held_count(),
                process.sends_open,
                replica.decision_count(),
            );
        }
        Failure { step: self.step, broken, state }
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(|| format!("{:>7}  {}", self.step, what()));
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let is_free = |replica: ReplicaId| !self.is_held(replica);
        for (from, to) in self.links.ready() {
            if !self.keeps_back(from, to) && is_free(self.world.replica(to)) {
                events.push(Event::Deliver(from, to));
            }
        }
        let transfers = (0..self.transfers.len()).filter(|number| is_free(self.transfers[*number].1));
        events.extend(transfers.map(Event::Transfer));
        events.extend((0..self.breaks.notices.len()).map(Event::Notice));
        for (place, process) in self.processes.iter().enumerate().filter(|(_, process)| process.alive) {
            if !is_free(process.me()) {
                continue;
            }
            if process.runnable {
                events.push(Event::Run(place));
            }
            if !process.controls.is_empty() {
                events.push(Event::View(place));
            }
        }
        events
    }

    /// Picks any event, but rarely one of a process that lags.
    fn choose(&mut self, events: &[Event]) -> Event {
        self.speeds.choose(&mut self.random, events, |event| match event {
            Event::Deliver(_, to) => to.0 as usize,
            Event::Transfer(number) => self.world.process(self.transfers[number].1).0 as usize,
            Event::Notice(number) => self.world.process(self.breaks.notices[number].at).0 as usize,
            Event::Run(place) | Event::View(place) => place,
        })
    }

    fn happen(&mut self, event: Event) {
        let place = match event {
            Event::Deliver(from, to) => {
                let packet = self.links.deliver((from, to)).expect("it is not empty");
                let (from, to) = (self.world.replica(from), self.world.replica(to));
                self.deliver(from, to, packet.0, packet.1)
            }
            Event::Transfer(number) => {
                let (from, to, epoch, packet) = self.transfers.swap_remove(number);
                self.deliver(from, to, epoch, packet)
            }
            Event::Notice(number) => self.notice(number),
            Event::View(place) => {
                let control = self.next_control(place);
                self.say(|| format!("{}  told    {control:?}", self.processes[place].me()));
                let process = &mut self.processes[place];
                match control {
                    Control::View(view) if !view.is_live(process.me()) && !process.is_new() => process.alive = false,
                    Control::View(view) => process.apply_view(view),
                    Control::Pins { awaited, ready } => process.set_pins(&awaited, &ready),
                }
                process.runnable = !process.is_new();
                place
            }
            Event::Run(place) => {
                let process = &mut self.processes[place];
                let current = process.app.current().copied();
                let mut progress = process.step();
                // A follower repeats known outcomes faster than its leader finds them, since the leader waits for
                // events.
                for _ in 0..100 {
                    if progress == Progress::Polled && !process.replica.is_deciding() {
                        progress = process.step();
                    }
                }
                if matches!(progress, Progress::Blocked | Progress::Finished) {
                    process.flush();
                    process.runnable = false;
                }
                self.say(|| format!("{}  run     {progress:?} {current:?}", self.processes[place].me()));
                place
            }
        };
        self.watch_paths(place);
        self.post_outgoing(place);
    }

    fn deliver(&mut self, from: ReplicaId, to: ReplicaId, epoch: u32, mut packet: Packet) -> usize {
        let place = self.world.process(to).0 as usize;
        if self.processes[place].alive && epoch >= self.processes[place].epoch(from) {
            self.flip(from, to, &mut packet);
            self.say(|| format!("{to}  from {from} {packet:?}"));
            self.processes[place].receive(from, epoch, packet);
            self.processes[place].runnable = true;
        }
        place
    }

    /// Corrupts one payload in flight.
    fn flip(&mut self, from: ReplicaId, to: ReplicaId, packet: &mut Packet) {
        let Some(left) = self.wire_flip_after else { return };
        let live =
            self.view.is_live(from) && self.processes[self.world.process(to).0 as usize].replica.view().is_live(from);
        let found = match packet {
            Packet::Frame { frame: Frame::Offer { context, sequence, .. }, eager: Some(payload), .. } => {
                let message = MessageId { sender: from.rank, context: *context, sequence: *sequence };
                // Only a payload that will be used.
                let known = self.process(to).knows(message);
                (!known).then_some((message, payload))
            }
            Packet::Data { message, payload, .. } => {
                self.process(to).awaits(from, *message).then_some((*message, payload))
            }
            _ => None,
        };
        let Some((message, payload)) = found.filter(|_| live) else { return };
        self.wire_flip_after = left.checked_sub(1);
        if left == 0 {
            *payload ^= 1 << 40;
            self.flipped = Some(WireFlip { from, to, message });
            self.say(|| format!("{to}  flip    {message:?} from {from}"));
        }
    }

    pub(super) fn post_outgoing(&mut self, place: usize) {
        let from = self.processes[place].me();
        for (to, epoch, packet) in std::mem::take(&mut self.processes[place].outgoing) {
            let link = (self.world.process(from), self.world.process(to));
            if self.breaks.cut.get(&link).is_some_and(|cut| *cut >= epoch) {
                continue;
            }
            if matches!(packet, Packet::Data { .. }) {
                self.transfers.push((from, to, epoch, packet));
            } else {
                self.links.send(link, (epoch, packet));
            }
        }
    }

    /// Kills or fences a random replica, if its sphere can do without it.
    fn kill(&mut self) {
        let place = self.random.below(self.processes.len());
        self.kill_at(place);
    }

    /// Kills or fences this replica, if its sphere can do without it.
    pub(super) fn kill_at(&mut self, place: usize) {
        let is_last_lineage = self.rest.is_some() && self.would_be_one_lineage(self.processes[place].me());
        if !self.may_lose(place) || is_last_lineage {
            return;
        }
        self.deaths_left -= 1;
        self.summary.deaths += 1;
        let fenced = self.random.chance(25);
        self.lose(place, fenced);
    }

    /// Ends a replica that withholds a message, if its sphere can do without it.
    fn end_withholding(&mut self) {
        let withholds = |process: &Process| process.reports.iter().any(|report| report.action == Action::Withheld);
        let place = self.processes.iter().position(|process| self.view.is_live(process.me()) && withholds(process));
        if let Some(place) = place.filter(|place| self.may_lose(*place)) {
            self.summary.withheld += 1;
            self.lose(place, false);
        }
    }

    /// Returns true if its sphere can do without it. A newcomer that is not in step does not count: it may lack
    /// decisions that its source has made since the cut, and whose consequences others may have seen.
    pub(super) fn may_lose(&self, place: usize) -> bool {
        let victim = self.processes[place].me();
        let others = self.view.live(victim.rank).filter(|other| *other != victim && self.is_full_member(*other));
        self.view.is_live(victim) && others.count() > 0
    }

    /// Removes a process from the view, because it died or is not wanted any more.
    pub(super) fn lose(&mut self, place: usize, fenced: bool) {
        let victim = self.processes[place].me();
        self.processes[place].fenced = fenced;
        self.processes[place].alive = fenced;
        self.say(|| format!("{victim}  {}", if fenced { "fenced" } else { "dies" }));
        self.record_loss(victim);
        self.view = self.view.without(&[victim]);
        self.send_all(&Control::View(self.view.clone()));
        if !fenced {
            // Frames that it has sent and not posted come after those in flight, and may be lost as well.
            self.post_outgoing(place);
            let number = self.world.process(victim);
            self.links.cut(&mut self.random, |(from, _)| from == number);
            let lost = |transfer: &Transfer| transfer.0 == victim;
            let survives = self.random.chance(50);
            self.transfers.retain(|transfer| survives || !lost(transfer));
        }
    }

    /// The next control message for a process. Of several views in a row some may be skipped.
    fn next_control(&mut self, place: usize) -> Control {
        let controls = &mut self.processes[place].controls;
        let mut control = controls.pop_front().expect("there is one");
        while matches!((&control, controls.front()), (Control::View(_), Some(Control::View(_))))
            && self.random.chance(50)
        {
            control = controls.pop_front().expect("there is one");
        }
        control
    }

    /// Sends a control message to all processes. Copies receive none before a view contains them.
    pub(super) fn send_all(&mut self, control: &Control) {
        self.record_view();
        for process in self.processes.iter_mut().filter(|process| process.alive) {
            // A process that goes on from a checkpoint gets messages from its first view on.
            if !process.is_new() || self.view.is_live(process.me()) || !process.controls.is_empty() {
                process.controls.push_back(control.clone());
            }
        }
    }

    /// The live replicas of a rank at the end.
    pub(super) fn survivors(&self, rank: VirtualRank) -> impl Iterator<Item = &Process> {
        self.view.live(rank).map(|replica| self.process(replica))
    }
}

impl Simulation {
    /// Returns true if frames on a link wait for a view: they are from a newcomer that the addressee does not know yet,
    /// or for one that no view contains.
    fn keeps_back(&self, from: ProcessIndex, to: ProcessIndex) -> bool {
        let addressee = &self.processes[to.0 as usize];
        let view = addressee.replica.view();
        let replica = self.world.replica(from);
        let life = Incarnation(self.lives[from.0 as usize]);
        let is_coming = addressee.controls.iter().any(|control| {
            matches!(control, Control::View(view) if view.member(replica).is_some_and(|member| member.incarnation == life))
        });
        let is_unknown = life.0 > 0 && view.member(replica).is_none_or(|member| member.incarnation < life) && is_coming;
        addressee.is_new() || is_unknown
    }
}

fn degree(random: &mut Random, faults: Faults) -> u16 {
    match faults {
        Faults::Memory => random.pick(&[2, 3, 3, 4, 5]),
        Faults::Rest => random.pick(&[3, 3, 4, 5]),
        Faults::Path => random.pick(&[2, 3, 3, 3, 4]),
        _ => random.pick(&[1, 2, 2, 2, 3, 3, 4]),
    }
}
