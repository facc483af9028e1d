//! Simulated jobs around a coordinator. Daemons, processes, a store and a pool answer it in any order, while faults
//! happen. All inputs and outputs are recorded.

mod hosts;
mod images;
mod jobs;
mod memory;
mod pool;
mod scenario;
mod storage;
mod typed;

pub use scenario::{Mistake, Scenario};

use crate::*;
use jobs::Jobs;
use memory::Memory;
use placement::plan::PlannedHost;
use pool::SitePool;
use redrt_types::View;
use redrt_wire::card::Card;
use redrt_wire::checkpoint::{CheckpointOrder, CheckpointStep, Generation, Outlet, PartOrder, PartStep};
use redrt_wire::clone::{CloneOrder, CloneStep, Cost, Position};
use redrt_wire::control::FromAgent;
use redrt_wire::daemon::{FromDaemon, Stream};
use redrt_wire::dynamic::Answer;
use redrt_wire::event::Statistics;
use redrt_wire::exit::Exit;
use redrt_wire::frame::encode_long;
use redrt_wire::no_image::NoImage;
use redrt_wire::object::{Facts, Stored};
use replication_manager::{ChangeRequest, EndReason, ProofMode, Report};
use spare_pool::{JobId, Lease, News, Spare};
use std::collections::{BTreeMap, BTreeSet};
use storage::Storage;
use typed::Typed;

/// The inputs of a coordinator, and its outputs.
pub struct Recording {
    pub settings: Settings,
    pub inputs: Vec<(Duration, Input)>,
    /// The outputs of each input, in words.
    pub outputs: Vec<String>,
}

const JOB: u64 = 1;
/// The hosts of the job from its begin, with the number of copies that fit.
const HOSTS: [(&str, u32); 4] = [("a", 0), ("b", 0), ("c", 2), ("d", 1)];
/// Name of the site pool's host.
const SITE_HOST: &str = "site";

/// The surroundings of a coordinator.
struct Job {
    scenario: Scenario,
    settings: Settings,
    coordinator: Coordinator,
    now: Duration,
    pool: SitePool,
    /// True if the site's host is part of the job.
    has_joined: bool,
    /// Inputs that follow from outputs of the coordinator, by host and in order.
    answers: BTreeMap<u32, VecDeque<Input>>,
    /// Bytes that each process has printed.
    printed: BTreeMap<ReplicaId, u64>,
    gone: BTreeSet<ReplicaId>,
    /// Names of the hosts of this life, by number.
    hosts: Vec<String>,
    /// Names of the hosts of the next life.
    next_hosts: Vec<String>,
    dead_hosts: BTreeSet<u32>,
    /// Hosts whose daemons were dismissed.
    dismissed: BTreeSet<u32>,
    /// The checkpoint that this life goes on from.
    from: Option<Box<checkpoint_store::StoredCheckpoint>>,
    /// The clones of which the source and the destination are known.
    clones: BTreeMap<u64, (ReplicaId, ReplicaId, u32)>,
    asker_count: u64,
    /// Processes that wait for a checkpoint, with the numbers of their questions.
    checkpoint_askers: BTreeSet<(ReplicaId, u64)>,
    /// Sources of the current checkpoint, with their hosts at its begin. Their images are written even if they are
    /// lost.
    copied: BTreeMap<ReplicaId, u32>,
    /// The checkpoint whose images are being written, in any order, and the processes whose images are missing.
    writing: Option<(Generation, BTreeMap<ReplicaId, u32>)>,
    /// The host that is to keep a copy of each part.
    partners: BTreeMap<(Generation, u32), u32>,
    /// The host at each address at which pieces are awaited.
    piece_addresses: Vec<u32>,
    /// Number of living machines when the first piece of a checkpoint was asked for.
    machine_counts: BTreeMap<Generation, usize>,
    /// The checkpoint that daemons were last ordered to begin.
    begun: Option<Generation>,
    /// Processes whose first image of a checkpoint is close to completion.
    ready: BTreeSet<(Generation, ReplicaId)>,
    storage: Storage,
    /// Orders to the store and its answers, by checkpoint and in order.
    crossings: BTreeMap<Generation, Vec<Crossing>>,
    typed: Typed,
    memory: Memory,
    /// Number of returns because replicas differ.
    difference_returns: usize,
    /// Time at which processes were last ordered to be loaded.
    loading_at: Option<Duration>,
    /// Exit code of the job that has just ended.
    finish_code: Option<i32>,
    jobs: Jobs,
    /// Number of the question that the coordinator takes in.
    taken_number: u64,
    /// True if daemons hold all processes.
    are_held: bool,
    /// The first violation of an invariant.
    wrong: Option<String>,
    /// True while the daemons of another life are being started.
    is_to_launch: bool,
    coordinator_losses: u32,
    /// Number of returns to a checkpoint that is loaded from the archive.
    archive_returns: usize,
    is_over: bool,
    inputs: Vec<(Duration, Input)>,
    outputs: Vec<String>,
}

/// Simulates a job for a number of steps, or to its end.
pub fn record(scenario: Scenario) -> Recording {
    let mut job = begin(scenario);
    for _ in 0..400 {
        if job.is_over {
            break;
        }
        job.step();
    }
    job.recording()
}

/// Simulates a job. Returns the number of its returns to a checkpoint, and the first violated rule.
pub fn record_returns(scenario: Scenario) -> (usize, Option<String>) {
    let job = ended(scenario);
    (job.outputs.iter().filter(|output| output.contains("GoBack")).count(), job.wrong)
}

/// Simulates a job. Returns the number of its returns to the archive, and the first violated rule.
pub fn record_archive_returns(scenario: Scenario) -> (usize, Option<String>) {
    let job = ended(scenario);
    (job.archive_returns, job.wrong)
}

/// Simulates a job. Returns the number of its returns because replicas differ, and the first violated rule.
pub fn record_difference_returns(scenario: Scenario) -> (usize, Option<String>) {
    let job = ended(scenario);
    (job.difference_returns, job.wrong)
}

fn ended(scenario: Scenario) -> Job {
    let mut job = begin(scenario);
    for _ in 0..400 {
        if job.is_over || job.wrong.is_some() {
            break;
        }
        job.step();
    }
    job
}

/// A step of a checkpoint over the border between the coordinator and the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crossing {
    /// An order to make a place, and its answer.
    Open,
    Opened,
    /// An order to keep the checkpoint, and its answer.
    Commit,
    Kept,
    /// Any other order or answer.
    Other,
}

/// Simulates a job without failovers. Returns the steps over the border of each checkpoint that the store keeps.
pub fn record_crossings(scenario: Scenario) -> Vec<Vec<Crossing>> {
    let job = ended(scenario);
    assert_eq!(job.wrong, None);
    job.crossings.into_values().filter(|steps| steps.contains(&Crossing::Kept)).collect()
}

/// Simulates a job for this number of steps, and on until a checkpoint is under way. From then on nothing is answered.
/// Returns None if the job ends before.
pub fn record_silence(scenario: Scenario, step_count: usize) -> Option<Recording> {
    let mut job = begin(scenario);
    for step in 0..400 {
        if job.is_over {
            return None;
        }
        if step >= step_count && job.coordinator.manager().checkpoint_under_way().is_some() {
            job.fall_silent();
            return Some(job.recording());
        }
        job.step();
    }
    None
}

/// Simulates a job until images are being written, and then that these grow slowly. Returns whether the checkpoint is
/// given up. None if the job ends before.
pub fn record_growth(scenario: Scenario) -> Option<bool> {
    let mut job = begin(scenario);
    for _ in 0..400 {
        if job.is_over {
            return None;
        }
        if let Some((generation, missing)) = job.writing.clone() {
            for done_bytes in 1..6 {
                job.now += Duration::from_secs(500);
                for (replica, host) in missing.clone() {
                    let progress = Progress { round: 1, done_bytes, total_bytes: 9, bytes_per_second: 1 };
                    let step = CheckpointStep::Progress(progress);
                    job.give(Input::Daemon { host, message: FromDaemon::Checkpoint { generation, replica, step } });
                }
                job.give(Input::Tick);
            }
            return Some(job.coordinator.manager().checkpoint_under_way() != Some(generation));
        }
        job.step();
    }
    None
}

/// Simulates a job whose coordinators are killed for this number of steps, and on until no work on a checkpoint is
/// left. Returns the number of killed coordinators, and all unanswered requests and violations.
pub fn record_losses(scenario: Scenario, step_count: usize) -> (u32, Vec<String>) {
    let mut job = begin(scenario);
    for _ in 0..step_count {
        if job.is_over {
            break;
        }
        job.step();
    }
    let mut wrong = job.settle();
    wrong.extend(job.outputs.iter().find(|output| output.contains("StoreSilent")).cloned());
    wrong.extend(job.wrong);
    (job.coordinator_losses, wrong)
}

/// The coordinator that follows from these inputs.
fn replayed(settings: &Settings, inputs: &[(Duration, Input)]) -> Coordinator {
    let mut coordinator = Coordinator::new(settings.clone());
    super::outputs(&mut coordinator);
    for (now, input) in inputs {
        coordinator.handle(*now, input.clone());
        super::outputs(&mut coordinator);
    }
    coordinator
}

fn begin(scenario: Scenario) -> Job {
    let settings = scenario.settings();
    let mut coordinator = Coordinator::new(settings.clone());
    assert!(coordinator.poll_output().is_none());
    let mut job = Job {
        scenario,
        settings,
        coordinator,
        now: Duration::ZERO,
        pool: SitePool::default(),
        has_joined: false,
        answers: BTreeMap::new(),
        printed: BTreeMap::new(),
        gone: BTreeSet::new(),
        hosts: HOSTS.map(|(name, _)| name.to_owned()).to_vec(),
        next_hosts: Vec::new(),
        dead_hosts: BTreeSet::new(),
        dismissed: BTreeSet::new(),
        from: None,
        clones: BTreeMap::new(),
        asker_count: 0,
        checkpoint_askers: BTreeSet::new(),
        copied: BTreeMap::new(),
        writing: None,
        piece_addresses: Vec::new(),
        machine_counts: BTreeMap::new(),
        partners: BTreeMap::new(),
        begun: None,
        ready: BTreeSet::new(),
        storage: Storage::default(),
        crossings: BTreeMap::new(),
        typed: Typed::default(),
        memory: Memory::default(),
        difference_returns: 0,
        loading_at: None,
        finish_code: None,
        jobs: Jobs::default(),
        taken_number: 0,
        are_held: false,
        wrong: None,
        is_to_launch: false,
        coordinator_losses: 0,
        archive_returns: 0,
        is_over: false,
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    job.storage.world = Some(job.coordinator.world.clone());
    job.launch();
    job
}

impl Job {
    fn recording(self) -> Recording {
        Recording { settings: self.settings, inputs: self.inputs, outputs: self.outputs }
    }

    fn give(&mut self, input: Input) {
        self.record_jobs(&input);
        self.inputs.push((self.now, input.clone()));
        self.coordinator.handle(self.now, input);
        let mut said = String::new();
        while let Some(output) = self.coordinator.poll_output() {
            said += &super::words(&output);
            self.follow(output);
        }
        self.outputs.push(said);
        if let Some(code) = self.finish_code.take().filter(|_| self.scenario.loses_output) {
            // The last lines are written now.
            self.give(Input::OutputLost(OutputLoss::Closed));
            let wrong = self.coordinator.exit_code(code) == 0;
            self.record_wrong(wrong.then(|| "output was lost, and the job has succeeded".to_owned()));
        }
    }

    /// Simulates that neither daemons nor the store answer any more. A checkpoint under way must come to an end.
    fn fall_silent(&mut self) {
        let under_way = self.coordinator.manager().checkpoint_under_way();
        for _ in 0..1000 {
            if self.is_over || under_way.is_none() || self.coordinator.manager().checkpoint_under_way() != under_way {
                return;
            }
            let Some(deadline) = self.coordinator.next_deadline() else { break };
            self.now = self.now.max(deadline);
            self.give(Input::Tick);
        }
        panic!("checkpoint {under_way:?} is held for ever at {:?}", self.now);
    }

    /// Kills the coordinator's process, and with it the current work of the store. Another coordinator goes on, from
    /// the state that was written down or from the journal of all inputs: both are the same coordinator.
    fn lose_coordinator(&mut self) {
        self.coordinator_losses += 1;
        let written = super::written_down(&self.coordinator);
        if self.coordinator_losses.is_multiple_of(8) {
            let replayed = replayed(&self.settings, &self.inputs);
            assert!(encode_long(&replayed) == encode_long(&written), "a replay makes another coordinator");
            self.coordinator = replayed;
        } else {
            self.coordinator = written;
        }
        let ends_with_it = |input: &Input| matches!(input, Input::Store { .. } | Input::WentBack(_));
        self.answers.entry(u32::MAX).or_default().retain(|input| !ends_with_it(input));
        self.storage.lose_process();
        self.is_to_launch = false;
        if self.scenario.mistake == Some(Mistake::InputRepeated) {
            self.give(Input::StandardInput(self.typed.again()));
        }
        // Input that the coordinator before had read, and not handled.
        if self.coordinator.is_launched() && self.scenario.random.u8(0..4) == 0 {
            let bytes = self.typed.read(6);
            self.give(Input::StandardInput(bytes));
        }
        if self.scenario.mistake != Some(Mistake::OrdersForgotten) {
            let orders: Vec<_> = self.coordinator.unanswered().collect();
            orders.into_iter().for_each(|order| self.follow(order));
        }
    }

    /// Lets all parts answer, without further faults. Returns the work that does not come to an end.
    fn settle(&mut self) -> Vec<String> {
        for _ in 0..3000 {
            if self.is_over {
                return Vec::new();
            }
            let host = self.answers.iter().find(|(_, queue)| !queue.is_empty()).map(|(host, _)| *host);
            if self.is_to_launch {
                self.launch();
            } else if let Some(host) = host {
                self.answer(host);
            } else if self.writing.is_some() {
                self.write_image();
            } else if self.storage.has_work() {
                self.work_on_store();
            } else if self.coordinator.unanswered().next().is_none() {
                return Vec::new();
            } else if let Some(deadline) = self.coordinator.next_deadline() {
                self.now = self.now.max(deadline);
                self.give(Input::Tick);
            } else {
                break;
            }
        }
        self.coordinator.unanswered().map(|question| format!("{question:?}")).collect()
    }

    fn card(&self, replica: ReplicaId) -> Card {
        let process = self.coordinator.world.process(replica);
        Card { process, host_number: 0, host: "h".into(), pid: 1, endpoints: Vec::new(), early_threads: Vec::new() }
    }

    fn live(&self) -> Vec<ReplicaId> {
        let view = self.coordinator.manager().view();
        let is_there = |replica: &ReplicaId| view.is_live(*replica) && !self.gone.contains(replica);
        self.coordinator.world.replicas().filter(is_there).collect()
    }

    fn any_live(&mut self) -> Option<ReplicaId> {
        let live = self.live();
        self.scenario.random.choice(live)
    }

    /// Queues a message of the replica's daemon.
    fn says(&mut self, replica: ReplicaId, message: impl FnOnce(ReplicaId) -> FromDaemon) {
        if let Some(host) = self.coordinator.host(replica) {
            self.host_says(host, message(replica));
        }
    }

    fn host_says(&mut self, host: u32, message: FromDaemon) {
        if !self.dead_hosts.contains(&host) {
            self.answers.entry(host).or_default().push_back(Input::Daemon { host, message });
        }
    }

    fn agent(&mut self, replica: ReplicaId, message: FromAgent) {
        self.says(replica, |replica| FromDaemon::Agent { replica, message });
    }

    fn later(&mut self, input: Input) {
        self.answers.entry(u32::MAX).or_default().push_back(input);
    }

    fn end(&mut self, replica: ReplicaId, exit: Exit) {
        if self.gone.insert(replica) {
            self.says(replica, |replica| FromDaemon::Exited { replica, exit, found_at_ns: 0 });
            self.says(replica, FromDaemon::Drained);
        }
    }

    /// Carries out an output of the coordinator.
    fn follow(&mut self, output: Output) {
        match output {
            Output::Send(message) => self.all_follow(message),
            Output::SendTo(host, ToDaemon::Clone { id, order }) => self.clone_step(host, id, order),
            Output::SendTo(_, ToDaemon::Dynamic(replica, number, Answer::Checkpoint(_))) => {
                assert!(
                    self.checkpoint_askers.remove(&(replica, number)),
                    "{replica} is told of a checkpoint that it did not ask for"
                );
            }
            Output::SendTo(_, ToDaemon::Dynamic(replica, number, answer)) => {
                let wrong = self.jobs.told((replica, number), &answer);
                self.record_wrong(wrong);
            }
            Output::OtherJob(order) => {
                let fails = self.scenario.random.u8(0..5) == 0;
                let news = self.jobs.obey(order, self.taken_number, fails);
                news.into_iter().for_each(|news| self.later(Input::OtherJob(news)));
            }
            Output::SendTo(_, ToDaemon::Checkpoint { generation, order: CheckpointOrder::Begin { .. } }) => {
                self.begun = Some(generation);
                let has_place = self.storage.has_place(generation);
                self.record_wrong((!has_place).then(|| format!("images of {generation} have no place")));
            }
            Output::SendTo(_, ToDaemon::Kill(replica)) => self.end(replica, Exit::Signal(9)),
            Output::Site(order) => self.pool.obey(order),
            Output::FindHost(spare) => self.find_host(spare.name),
            Output::DismissHost(host) => {
                let is_used = self.live().into_iter().any(|replica| self.coordinator.host(replica) == Some(host));
                self.record_wrong(is_used.then(|| format!("host {host} is dismissed, and has processes")));
                self.dismissed.insert(host);
                self.has_joined &= self.hosts[host as usize] != SITE_HOST;
            }
            Output::SendTo(host, ToDaemon::Part { generation, source, order }) => {
                let is_lost = self.dead_hosts.contains(&host);
                self.record_wrong(is_lost.then(|| format!("host {host} is lost, and gets {order:?} for {generation}")));
                self.part(host, generation, source, order);
            }
            Output::SendTo(host, ToDaemon::Input { bytes }) => {
                let is_there = |replica: &ReplicaId| self.coordinator.host(*replica) == Some(host);
                let readers = self.live().into_iter().filter(|replica| replica.rank == VirtualRank(0));
                for replica in readers.filter(is_there).collect::<Vec<_>>() {
                    let wrong = self.typed.give(replica, &bytes);
                    self.record_wrong(wrong);
                }
                let message = FromDaemon::InputTaken { byte_count: bytes.len() as u64 };
                self.host_says(host, message);
            }
            Output::Store(order) => {
                let crossing = match order.work {
                    StoreWork::Open { .. } => Crossing::Open,
                    StoreWork::Commit(_) => Crossing::Commit,
                    StoreWork::Archive(_) | StoreWork::Prove(_) | StoreWork::Drop(_) | StoreWork::FindOlder(_) => {
                        Crossing::Other
                    }
                };
                self.crossings.entry(order.work.generation()).or_default().push(crossing);
                if let StoreWork::Commit(contents) = &order.work {
                    let generation = order.work.generation();
                    assert!(self.writing.is_none(), "{generation} is to be committed, and images are being written");
                    let wrong = self.typed.check(generation, contents.cut.input_bytes);
                    self.record_wrong(wrong);
                    let wrong = self.memory.check_pinned(generation, &contents.pinned);
                    self.record_wrong(wrong);
                }
                self.storage.is_stuck |= self.scenario.random.u8(0..6) == 0;
                match order.work {
                    StoreWork::Drop(_) if self.scenario.mistake == Some(Mistake::DroppedAtOnce) => {
                        self.later(Input::Store { number: order.number, answer: StoreAnswer::Dropped(None) });
                    }
                    _ => {
                        let wrong = self.storage.take(order, &self.dead_hosts);
                        self.record_wrong(wrong);
                    }
                }
            }
            Output::Report(Report::CheckpointProven { generation, proof }) => {
                let wrong = self.memory.record_proof(generation, proof);
                self.record_wrong(wrong);
            }
            Output::Report(Report::Ending(EndReason::GoesBack { loss: None, back })) => {
                self.memory.goes_back(back.generation);
            }
            Output::GoBack(chosen) => self.go_back(*chosen),
            Output::Failed(_) => self.is_over = true,
            Output::Returned(times) => {
                let wrong = self.loading_at.is_none_or(|at| at + times.loaded != self.now);
                self.record_wrong(wrong.then(|| format!("processes were loaded in {:?}", times.loaded)));
            }
            Output::Finish { code, .. } => {
                self.is_over = true;
                self.finish_code = Some(code);
                let newest = self.coordinator.newest_checkpoint().map(|kept| kept.manifest.generation);
                let newest = newest
                    .filter(|_| self.scenario.archive_interval.is_some() && code == replication_manager::RESUME_CODE);
                let is_told = |generation| {
                    let said = format!("Unarchived {{ generation: Generation({generation})");
                    self.outputs.iter().any(|output| output.contains(&said))
                };
                let missing = newest.filter(|newest| !self.storage.is_archived(*newest) && !is_told(newest.0));
                self.record_wrong(missing.map(|newest| format!("the job ends with {newest}, which is not archived")));
            }
            _ => {}
        }
    }

    fn record_wrong(&mut self, wrong: Option<String>) {
        self.wrong = self.wrong.take().or(wrong);
    }

    fn all_follow(&mut self, message: ToDaemon) {
        match message {
            ToDaemon::HoldOutput { replica: None, held } => self.are_held = held,
            ToDaemon::Kill(replica) => self.end(replica, Exit::Signal(9)),
            ToDaemon::KillAll => {
                self.coordinator.world.clone().replicas().for_each(|one| self.end(one, Exit::Signal(9)))
            }
            ToDaemon::Release => self.live().into_iter().for_each(|one| self.end(one, Exit::Status(0))),
            ToDaemon::Pins(pins) => {
                for replica in self.live() {
                    self.agent(replica, FromAgent::Pinned(pins.awaited.clone()));
                }
            }
            ToDaemon::Scrub(message) => {
                for replica in self.live() {
                    if let Some((round, answer)) = self.memory.answer(&message, replica) {
                        self.agent(replica, FromAgent::Scrubbed { round, answer });
                    }
                }
            }
            ToDaemon::Ask { wave } => {
                for replica in self.live() {
                    let answer =
                        FromAgent::Answer { wave, passive: None, waits: false, statistics: Statistics::default() };
                    self.agent(replica, answer);
                }
            }
            ToDaemon::Checkpoint { generation, order } => {
                let sources = self.sources();
                let step = match order {
                    CheckpointOrder::Begin { .. } => return,
                    CheckpointOrder::Round => Some(CheckpointStep::Ready),
                    CheckpointOrder::Stop => {
                        return sources.into_iter().for_each(|one| self.agent(one, FromAgent::Quiet));
                    }
                    CheckpointOrder::Rest => None,
                    CheckpointOrder::Copy => Some(CheckpointStep::Copied),
                    CheckpointOrder::GoOn => {
                        return self.writing = Some((generation, std::mem::take(&mut self.copied)));
                    }
                    CheckpointOrder::Abandon => return self.writing = None,
                };
                if let Some(source) = sources.first().filter(|source| source.rank == VirtualRank(0))
                    && order == CheckpointOrder::Rest
                {
                    self.typed.stop(generation, *source);
                }
                if order == CheckpointOrder::Copy {
                    self.memory.cut(generation, &sources);
                    let home = |replica| (replica, self.coordinator.host(replica).expect("who lives has a home"));
                    self.copied = sources.iter().copied().map(home).collect();
                }
                for replica in sources {
                    let step = step.clone().unwrap_or_else(|| CheckpointStep::Stopped(self.position(replica)));
                    self.says(replica, |replica| FromDaemon::Checkpoint { generation, replica, step });
                }
            }
            _ => {}
        }
    }

    fn position(&self, replica: ReplicaId) -> Position {
        let output_bytes = self.printed.get(&replica).copied().unwrap_or_default();
        Position { output_bytes, ..Position::default() }
    }

    fn clone_step(&mut self, host: u32, id: redrt_wire::clone::CloneId, order: CloneOrder) {
        let say = |job: &mut Self, step| job.host_says(host, FromDaemon::Clone { id, step });
        match order {
            CloneOrder::Receive { newcomer, .. } => {
                self.clones.insert(id.0, (newcomer.replica, newcomer.source, host));
                say(self, CloneStep::Listening(([127, 0, 0, 1], 9).into()));
            }
            CloneOrder::Send { .. } => say(self, CloneStep::Ready),
            CloneOrder::Cut => {
                let Some((replica, source, to)) = self.clones.get(&id.0).copied() else { return };
                let position = self.position(source);
                self.printed.insert(replica, position.output_bytes);
                self.typed.copy(replica, source);
                self.memory.copy(replica, source);
                self.gone.remove(&replica);
                say(self, CloneStep::Stopped(position));
                say(self, CloneStep::Sent(Cost::default()));
                let card = self.card(replica);
                self.host_says(to, FromDaemon::Agent { replica, message: FromAgent::Ready(card) });
                self.host_says(to, FromDaemon::Clone { id, step: CloneStep::Running { pid: 2 } });
            }
            CloneOrder::Meet { .. } => {
                let Some((replica, _, _)) = self.clones.get(&id.0).copied() else { return };
                self.host_says(host, FromDaemon::Agent { replica, message: FromAgent::InStep });
            }
            CloneOrder::Abandon => {}
        }
    }

    /// Delivers the next queued answer of this host.
    fn answer(&mut self, host: u32) {
        let input = self.answers.get_mut(&host).and_then(VecDeque::pop_front).expect("it waits");
        let begins = matches!(input, Input::WentBack(_));
        if begins {
            self.jobs.begin_life();
            self.hosts = std::mem::take(&mut self.next_hosts);
            (self.dead_hosts, self.dismissed) = Default::default();
            // Daemons are others on all hosts.
            self.answers.retain(|host, _| *host == u32::MAX);
        }
        self.give(input);
        if begins && self.scenario.loses_coordinators {
            self.is_to_launch = true;
        } else if begins {
            self.launch();
        }
    }

    /// Checks that no input is on its way when all daemons have said what they took.
    fn check_input_under_way(&mut self) {
        let is_taken = self.answers.values().all(VecDeque::is_empty) && self.dead_hosts.is_empty();
        let bytes = self.coordinator.input.in_flight_bytes();
        let wrong = is_taken && self.coordinator.is_launched() && bytes > 0;
        self.record_wrong(wrong.then(|| format!("{bytes} bytes of input are on their way to nobody")));
    }

    /// Checks that processes are held while output cannot be written, or will be printed again, and not longer.
    fn check_hold(&mut self) {
        let are_to_be_held = self.coordinator.is_output_full() || self.coordinator.printing.withholds();
        let wrong = self.coordinator.is_launched() && self.are_held != are_to_be_held;
        self.record_wrong(wrong.then(|| format!("processes are held: {}", self.are_held)));
    }

    /// Takes one step: mostly a queued answer, sometimes a fault.
    fn step(&mut self) {
        self.check_hold();
        self.check_input_under_way();
        self.check_jobs();
        self.now += Duration::from_millis(self.scenario.random.u64(0..300));
        if self.scenario.loses_coordinators && self.scenario.random.u8(0..10) == 0 {
            return self.lose_coordinator();
        }
        if self.is_to_launch {
            return self.launch();
        }
        if self.scenario.has_jobs && self.coordinator.is_launched() && self.scenario.random.u8(0..6) == 0 {
            return self.other_job();
        }
        if self.scenario.loses_output && self.coordinator.is_launched() && self.scenario.random.u8(0..200) == 0 {
            return self.give(Input::OutputLost(OutputLoss::Closed));
        }
        if self.writing.is_some() && self.scenario.random.u8(0..8) == 0 {
            return self.write_image();
        }
        if self.storage.is_stuck {
            self.storage.is_stuck = self.scenario.is_silent || self.scenario.random.u8(0..30) > 0;
        } else if self.storage.has_work() && self.scenario.random.u8(0..3) == 0 {
            return self.work_on_store();
        }
        let waiting: Vec<_> =
            self.answers.iter().filter(|(_, queue)| !queue.is_empty()).map(|(host, _)| *host).collect();
        if !waiting.is_empty() && self.scenario.random.u8(0..10) < 8 {
            let host = self.scenario.random.choice(waiting).expect("one waits");
            return self.answer(host);
        }
        let is_saving = self.scenario.is_calm && self.coordinator.manager().checkpoint_under_way().is_some();
        if is_saving && self.scenario.random.u8(0..100) == 0 {
            return self.lose_host();
        }
        let fault = self.scenario.random.u8(0..40);
        let is_print = self.scenario.proofs != ProofMode::Off && (10..24).contains(&fault);
        let is_rare = matches!(fault, 10..30 | 33..40) && !is_print;
        if self.scenario.is_calm && is_rare && self.scenario.random.u8(0..10) > 0 {
            self.give(Input::Tick);
            return self.open_checkpoint();
        }
        match fault {
            0..8 => self.give(Input::Tick),
            8..10 => {
                self.now += Duration::from_secs(4);
                self.give(Input::Tick);
                self.open_checkpoint();
            }
            10..24 => self.print(),
            24 if self.scenario.proofs != ProofMode::Off => {
                self.any_live().into_iter().for_each(|replica| self.memory.flip(replica));
            }
            24..26 => self.die(),
            26 => self.lose_host(),
            27..30 => self.request(),
            30..33 if self.coordinator.wants_input() => {
                let bytes = self.typed.read(6);
                self.give(Input::StandardInput(bytes));
            }
            30..33 => self.give(Input::Tick),
            33 => {
                let asker = self.asker();
                let ends = self.scenario.random.u8(0..6) == 0;
                self.give(Input::Checkpoint { asker, ends });
            }
            34 => {
                let replica = ReplicaId::new(self.scenario.random.u32(0..self.coordinator.world.rank_count()), 0);
                let asker = self.asker();
                self.give(Input::Kill { asker, replica });
            }
            35 => self.finalize(),
            39 => self.handle_pool(),
            36 => {
                let replica = ReplicaId::new(self.scenario.random.u32(0..5), self.scenario.random.u16(0..2));
                if !self.coordinator.is_cloneable || !self.coordinator.world.contains(replica) {
                    self.give(Input::Daemon { host: 3, message: FromDaemon::Started { replica, pid: 5 } });
                }
            }
            38 if self.scenario.random.bool() => self.ask_for_checkpoint(),
            38 => {
                let is_full = !self.coordinator.is_output_full();
                self.give(Input::OutputFull(is_full));
            }
            37 if self.scenario.random.u8(0..10) == 0 => {
                self.give(Input::Job(replication_manager::Input::Interrupted(2)))
            }
            _ => self.open_checkpoint(),
        }
    }

    fn asker(&mut self) -> Asker {
        self.asker_count += 1;
        Asker(self.asker_count - 1)
    }

    /// Lets all replicas of a rank print the same, each at its own time. Now and then one errs, or is far ahead.
    fn print(&mut self) {
        let Some(replica) = self.any_live() else { return };
        let printed = self.printed.entry(replica).or_default();
        let mut bytes = format!("line {:09}\n", *printed / 15).into_bytes();
        match self.scenario.random.u8(0..60) {
            0 => bytes[6] ^= 1,
            1..30 if self.memory.is_wrong(replica) => bytes[7] ^= 1,
            1..20 if std::mem::take(&mut self.scenario.floods) => bytes = bytes.repeat(9 << 16),
            _ => {}
        }
        *printed += bytes.len() as u64;
        self.says(replica, |replica| FromDaemon::Output { replica, stream: Stream::Output, bytes });
        self.says(replica, |replica| FromDaemon::Output { replica, stream: Stream::Error, bytes: b"!\n".to_vec() });
    }

    fn die(&mut self) {
        if let Some(replica) = self.any_live() {
            self.end(replica, Exit::Signal(11));
        }
    }

    fn request(&mut self) {
        let Some(replica) = self.any_live() else { return };
        let request = match self.scenario.random.u8(0..3) {
            0 => ChangeRequest::Migrate { replica, to: None },
            1 => ChangeRequest::Drain { host: self.scenario.random.u32(0..2) },
            _ => ChangeRequest::Degree { degree: self.scenario.random.u16(1..4), ranks: vec![replica.rank] },
        };
        let asker = self.asker();
        self.give(Input::ChangeRequest { asker, request });
    }

    fn finalize(&mut self) {
        let view = self.coordinator.manager().view().number;
        for replica in self.live() {
            let (statistics, coverage) = (Statistics::default(), Vec::new());
            self.agent(replica, FromAgent::Finalizing { view, statistics, coverage, profile: None });
        }
    }
}
