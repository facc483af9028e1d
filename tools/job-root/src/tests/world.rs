//! Simulated jobs around a root. Daemons, processes, a store and a pool answer it in any order, while faults happen.
//! All inputs and outputs are recorded.

mod jobs;
mod pool;
mod scenario;
mod storage;
mod typed;

pub use scenario::{Mistake, Scenario};

use crate::*;
use coordinator::Wish;
use jobs::Jobs;
use placement::plan::PlannedHost;
use pool::SitePool;
use redrt_types::View;
use redrt_wire::card::Card;
use redrt_wire::clone::{CloneOrder, CloneStep, Cost, Position};
use redrt_wire::control::FromAgent;
use redrt_wire::daemon::{FromDaemon, Stream};
use redrt_wire::dynamic::{Answer, Request};
use redrt_wire::event::Statistics;
use redrt_wire::exit::Exit;
use redrt_wire::frame::encode_long;
use redrt_wire::line::{Generation, LineOrder, LineStep, PartOrder, PartStep};
use redrt_wire::no_image::NoImage;
use redrt_wire::object::{Facts, Stored};
use spare_pool::{JobId, Lease, News, Spare};
use std::collections::{BTreeMap, BTreeSet};
use storage::Storage;
use typed::Typed;

/// The inputs of a root, and its outputs.
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

/// The surroundings of a root.
struct Job {
    scenario: Scenario,
    settings: Settings,
    root: Root,
    now: Duration,
    pool: SitePool,
    /// True if the site's host is part of the job.
    has_joined: bool,
    /// Inputs that follow from outputs of the root, by host and in order.
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
    from: Option<Box<line_store::Kept>>,
    /// The clones of which the source and the destination are known.
    clones: BTreeMap<u64, (ReplicaId, ReplicaId, u32)>,
    asker_count: u64,
    /// Processes that wait for a checkpoint, with the numbers of their questions.
    line_askers: BTreeSet<(ReplicaId, u64)>,
    /// Sources of the current checkpoint, with their hosts at its begin. Their images are written even if they are
    /// lost.
    copied: BTreeMap<ReplicaId, u32>,
    /// The checkpoint whose images are being written, in any order, and the processes whose images are missing.
    writing: Option<(Generation, BTreeMap<ReplicaId, u32>)>,
    /// The host that is to keep a copy of each part.
    partners: BTreeMap<(Generation, u32), u32>,
    /// The checkpoint that daemons were last ordered to begin.
    begun: Option<Generation>,
    /// Processes whose first image of a checkpoint is close to completion.
    ready: BTreeSet<(Generation, ReplicaId)>,
    storage: Storage,
    typed: Typed,
    /// Time at which processes were last ordered to be loaded.
    loading_at: Option<Duration>,
    /// Exit code of the job that has just ended.
    finish_code: Option<i32>,
    jobs: Jobs,
    /// Number of the question that the root takes in.
    taken_number: u64,
    /// True if daemons hold all processes.
    are_held: bool,
    /// The first violation of an invariant.
    wrong: Option<String>,
    /// True while the daemons of another life are being started.
    is_to_launch: bool,
    root_losses: u32,
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
    let mut job = begin(scenario);
    for _ in 0..400 {
        if job.is_over || job.wrong.is_some() {
            break;
        }
        job.step();
    }
    (job.outputs.iter().filter(|output| output.contains("GoBack")).count(), job.wrong)
}

/// Simulates a job for this number of steps, and on until a checkpoint is under way. From then on nothing is answered.
/// Returns None if the job ends before.
pub fn record_silence(scenario: Scenario, step_count: usize) -> Option<Recording> {
    let mut job = begin(scenario);
    for step in 0..400 {
        if job.is_over {
            return None;
        }
        if step >= step_count && job.root.coordinator().line_under_way().is_some() {
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
                    let step = LineStep::Progress(progress);
                    job.give(Input::Daemon { host, message: FromDaemon::Line { generation, replica, step } });
                }
                job.give(Input::Tick);
            }
            return Some(job.root.coordinator().line_under_way() != Some(generation));
        }
        job.step();
    }
    None
}

/// Simulates a job whose roots are killed for this number of steps, and on until no work on a checkpoint is left.
/// Returns the number of killed roots, and all unanswered requests and violations.
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
    (job.root_losses, wrong)
}

/// The root that follows from these inputs.
fn replayed(settings: &Settings, inputs: &[(Duration, Input)]) -> Root {
    let mut root = Root::new(settings.clone());
    super::outputs(&mut root);
    for (now, input) in inputs {
        root.handle(*now, input.clone());
        super::outputs(&mut root);
    }
    root
}

fn begin(scenario: Scenario) -> Job {
    let settings = scenario.settings();
    let mut root = Root::new(settings.clone());
    assert!(root.poll_output().is_none());
    let mut job = Job {
        scenario,
        settings,
        root,
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
        line_askers: BTreeSet::new(),
        copied: BTreeMap::new(),
        writing: None,
        partners: BTreeMap::new(),
        begun: None,
        ready: BTreeSet::new(),
        storage: Storage::default(),
        typed: Typed::default(),
        loading_at: None,
        finish_code: None,
        jobs: Jobs::default(),
        taken_number: 0,
        are_held: false,
        wrong: None,
        is_to_launch: false,
        root_losses: 0,
        is_over: false,
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    job.storage.world = Some(job.root.world.clone());
    job.launch();
    job
}

impl Job {
    fn recording(self) -> Recording {
        Recording { settings: self.settings, inputs: self.inputs, outputs: self.outputs }
    }

    fn give(&mut self, input: Input) {
        self.note_jobs(&input);
        self.inputs.push((self.now, input.clone()));
        self.root.handle(self.now, input);
        let mut said = String::new();
        while let Some(output) = self.root.poll_output() {
            said += &super::words(&output);
            self.heed(output);
        }
        self.outputs.push(said);
        if let Some(code) = self.finish_code.take().filter(|_| self.scenario.loses_output) {
            // The last lines are written now.
            self.give(Input::OutputLost(OutputLoss::Closed));
            let wrong = self.root.exit_code(code) == 0;
            self.note_wrong(wrong.then(|| "output was lost, and the job has succeeded".to_owned()));
        }
    }

    /// Takes note of what the root is about to hear of other jobs.
    fn note_jobs(&mut self, input: &Input) {
        match input {
            Input::OtherJob(JobNews::Name { .. }) => self.jobs.published_far(),
            Input::OtherJob(JobNews::Ended { job, code }) => self.jobs.ended(*job, *code),
            Input::Daemon {
                host,
                message: FromDaemon::Agent { replica, message: FromAgent::Dynamic(number, request) },
            } if self.root.host(*replica) == Some(*host) && *request != Request::Checkpoint => {
                self.taken_number = *number;
                self.jobs.taken((*replica, *number), request);
            }
            _ => {}
        }
    }

    /// Checks that this job ends with one that it has met.
    fn check_jobs(&mut self) {
        let wrong = self.jobs.check(self.root.coordinator().phase() == "ending");
        self.note_wrong(wrong);
    }

    /// A process asks about other jobs, or something happens to a job that was spawned.
    fn other_job(&mut self) {
        if self.scenario.random.bool() {
            let Some(replica) = self.any_live() else { return };
            let (number, request) = self.jobs.request(&mut self.scenario.random, replica);
            return self.agent(replica, FromAgent::Dynamic(number, request));
        }
        let (news, met) = self.jobs.step(&mut self.scenario.random);
        if let Some((replica, number)) = met {
            self.agent(replica, FromAgent::Dynamic(number, Request::Met));
        }
        news.into_iter().for_each(|news| self.later(Input::OtherJob(news)));
    }

    /// Simulates that neither daemons nor the store answer any more. A checkpoint under way must come to an end.
    fn fall_silent(&mut self) {
        let under_way = self.root.coordinator().line_under_way();
        for _ in 0..1000 {
            if self.is_over || under_way.is_none() || self.root.coordinator().line_under_way() != under_way {
                return;
            }
            let Some(deadline) = self.root.next_deadline() else { break };
            self.now = self.now.max(deadline);
            self.give(Input::Tick);
        }
        panic!("line {under_way:?} is held for ever at {:?}", self.now);
    }

    /// Kills the root's process, and with it the current work of the store. Another root goes on, from the state that
    /// was written down or from the journal of all inputs: both are the same root.
    fn lose_root(&mut self) {
        self.root_losses += 1;
        let written = super::written_down(&self.root);
        if self.root_losses.is_multiple_of(8) {
            let replayed = replayed(&self.settings, &self.inputs);
            assert!(encode_long(&replayed) == encode_long(&written), "a replay makes another root");
            self.root = replayed;
        } else {
            self.root = written;
        }
        let ends_with_it = |input: &Input| matches!(input, Input::Store { .. } | Input::WentBack(_));
        self.answers.entry(u32::MAX).or_default().retain(|input| !ends_with_it(input));
        self.storage.lose_process();
        self.is_to_launch = false;
        if self.scenario.mistake == Some(Mistake::InputRepeated) {
            self.give(Input::StandardInput(self.typed.again()));
        }
        // Input that the root before had read, and not handled.
        if self.root.is_launched() && self.scenario.random.u8(0..4) == 0 {
            let bytes = self.typed.read(6);
            self.give(Input::StandardInput(bytes));
        }
        if self.scenario.mistake != Some(Mistake::OrdersForgotten) {
            let orders: Vec<_> = self.root.unanswered().collect();
            orders.into_iter().for_each(|order| self.heed(order));
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
            } else if self.root.unanswered().next().is_none() {
                return Vec::new();
            } else if let Some(deadline) = self.root.next_deadline() {
                self.now = self.now.max(deadline);
                self.give(Input::Tick);
            } else {
                break;
            }
        }
        self.root.unanswered().map(|question| format!("{question:?}")).collect()
    }

    /// Lets the site's pool grant a place, or lose its host.
    fn hear_of_pool(&mut self) {
        if let Some(news) = self.pool.grant() {
            return self.give(Input::Site(news));
        }
        let lost = self.scenario.random.choice(self.pool.leases.clone()).filter(|_| self.has_joined);
        if let Some(id) = lost.filter(|_| self.scenario.random.bool()) {
            let lease = Lease { id, job: JobId(JOB), user: None, spare: Spare::new("site", 2), memory_bytes: 0 };
            self.give(Input::Site(News::Leave(lease)));
        }
    }

    /// Answers a request for a host: its daemon joins, or cannot be reached.
    fn find_host(&mut self, name: String) {
        if let Some(host) = self.living(&name) {
            return self.later(Input::HostFound { host, name, is_new: false });
        }
        if self.scenario.random.u8(0..4) == 0 {
            return self.later(Input::HostNotFound { name, why: "no daemon has connected".into() });
        }
        let host = self.hosts.len() as u32;
        self.hosts.push(name.clone());
        self.has_joined = true;
        self.later(Input::HostFound { host, name, is_new: true });
    }

    /// Number of the living host with this name.
    fn living(&self, name: &str) -> Option<u32> {
        let lives = |host: &u32| !self.dead_hosts.contains(host) && !self.dismissed.contains(host);
        (0..self.hosts.len() as u32).find(|host| lives(host) && self.hosts[*host as usize] == name)
    }

    /// Launches processes on the hosts of this life. Now and then a host cannot be had after a return.
    fn launch(&mut self) {
        self.is_to_launch = false;
        if self.from.is_some() && self.scenario.random.u8(0..4) == 0 {
            for _ in 0..self.scenario.random.u8(1..3) {
                let host = self.scenario.random.u32(0..self.hosts.len() as u32);
                if !self.is_over && self.dead_hosts.insert(host) {
                    let (name, why) = (self.hosts[host as usize].clone(), "it does not answer".into());
                    self.give(Input::HostNotHad { host, name, why });
                }
            }
            return;
        }
        self.are_held = false;
        let hosts = self.hosts.iter().map(|name| HostFacts { name: name.clone(), cpu_count: 2 }).collect();
        self.give(Input::Launched { hosts });
        self.check_placement();
        self.now += Duration::from_millis(40);
        self.loading_at = self.from.is_some().then_some(self.now);
        self.give(Input::Loading);
        self.gone.clear();
        let from = self.root.newest_checkpoint().map(|kept| kept.manifest.generation);
        from.into_iter().for_each(|from| self.storage.abandon_newer(from));
        for replica in self.live().into_iter().filter(|replica| replica.rank == VirtualRank(0)) {
            self.typed.load(replica, from);
        }
        for replica in self.live() {
            self.says(replica, |replica| FromDaemon::Started { replica, pid: 1 });
            self.agent(replica, FromAgent::Hello);
            let card = self.card(replica);
            self.agent(replica, FromAgent::Ready(card));
        }
    }

    fn card(&self, replica: ReplicaId) -> Card {
        let process = self.root.world.process(replica);
        Card { process, host_number: 0, host: "h".into(), pid: 1, endpoints: Vec::new(), early_threads: Vec::new() }
    }

    fn live(&self) -> Vec<ReplicaId> {
        let view = self.root.coordinator().view();
        let is_there = |replica: &ReplicaId| view.is_live(*replica) && !self.gone.contains(replica);
        self.root.world.replicas().filter(is_there).collect()
    }

    fn any_live(&mut self) -> Option<ReplicaId> {
        let live = self.live();
        self.scenario.random.choice(live)
    }

    /// Queues a message of the replica's daemon.
    fn says(&mut self, replica: ReplicaId, message: impl FnOnce(ReplicaId) -> FromDaemon) {
        if let Some(host) = self.root.host(replica) {
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

    /// Carries out an output of the root.
    fn heed(&mut self, output: Output) {
        match output {
            Output::Send(message) => self.all_heed(message),
            Output::SendTo(host, ToDaemon::Clone { id, order }) => self.clone_step(host, id, order),
            Output::SendTo(_, ToDaemon::Dynamic(replica, number, Answer::Checkpoint(_))) => {
                assert!(
                    self.line_askers.remove(&(replica, number)),
                    "{replica} is told of a line that it did not ask for"
                );
            }
            Output::SendTo(_, ToDaemon::Dynamic(replica, number, answer)) => {
                let wrong = self.jobs.told((replica, number), &answer);
                self.note_wrong(wrong);
            }
            Output::OtherJob(order) => {
                let fails = self.scenario.random.u8(0..5) == 0;
                let news = self.jobs.obey(order, self.taken_number, fails);
                news.into_iter().for_each(|news| self.later(Input::OtherJob(news)));
            }
            Output::SendTo(_, ToDaemon::Line { generation, order: LineOrder::Begin { .. } }) => {
                self.begun = Some(generation);
                let has_place = self.storage.has_place(generation);
                self.note_wrong((!has_place).then(|| format!("images of {generation} have no place")));
            }
            Output::SendTo(_, ToDaemon::Kill(replica)) => self.end(replica, Exit::Signal(9)),
            Output::Site(order) => self.pool.obey(order),
            Output::FindHost(spare) => self.find_host(spare.name),
            Output::DismissHost(host) => {
                let is_used = self.live().into_iter().any(|replica| self.root.host(replica) == Some(host));
                self.note_wrong(is_used.then(|| format!("host {host} is dismissed, and has processes")));
                self.dismissed.insert(host);
                self.has_joined &= self.hosts[host as usize] != SITE_HOST;
            }
            Output::SendTo(host, ToDaemon::Part { generation, source, order }) => {
                let is_lost = self.dead_hosts.contains(&host);
                self.note_wrong(is_lost.then(|| format!("host {host} is lost, and gets {order:?} for {generation}")));
                self.part(host, generation, source, order);
            }
            Output::SendTo(host, ToDaemon::Input { bytes }) => {
                let is_there = |replica: &ReplicaId| self.root.host(*replica) == Some(host);
                let readers = self.live().into_iter().filter(|replica| replica.rank == VirtualRank(0));
                for replica in readers.filter(is_there).collect::<Vec<_>>() {
                    let wrong = self.typed.give(replica, &bytes);
                    self.note_wrong(wrong);
                }
                let message = FromDaemon::InputTaken { byte_count: bytes.len() as u64 };
                self.host_says(host, message);
            }
            Output::Store(order) => {
                if let StoreWork::Commit(contents) = &order.work {
                    let generation = order.work.generation();
                    assert!(self.writing.is_none(), "{generation} is to be committed, and images are being written");
                    let wrong = self.typed.check(generation, contents.cut.input_bytes);
                    self.note_wrong(wrong);
                }
                self.storage.is_stuck |= self.scenario.random.u8(0..6) == 0;
                match order.work {
                    StoreWork::Drop(_) if self.scenario.mistake == Some(Mistake::DroppedAtOnce) => {
                        self.later(Input::Store { number: order.number, answer: StoreAnswer::Dropped(None) });
                    }
                    _ => {
                        let wrong = self.storage.take(order, &self.dead_hosts);
                        self.note_wrong(wrong);
                    }
                }
            }
            Output::GoBack(chosen) => self.go_back(*chosen),
            Output::Failed(_) => self.is_over = true,
            Output::Returned(times) => {
                let wrong = self.loading_at.is_none_or(|at| at + times.loaded != self.now);
                self.note_wrong(wrong.then(|| format!("processes were loaded in {:?}", times.loaded)));
            }
            Output::Finish { code, .. } => {
                self.is_over = true;
                self.finish_code = Some(code);
            }
            _ => {}
        }
    }

    /// Begins a return: the daemons of the life that ends say nothing more.
    fn go_back(&mut self, chosen: Return) {
        self.check_return(&chosen);
        self.answers.clear();
        (self.pool, self.has_joined) = (SitePool::default(), false);
        self.clones.clear();
        self.line_askers.clear();
        self.writing = None;
        self.ready.clear();
        let Return { kept, hosts, count } = chosen;
        let name = |host: PlannedHost| host.name.map(|name| name.name).expect("all have names");
        self.next_hosts = hosts.into_iter().map(name).collect();
        let world = self.root.world.clone();
        let view = View::with_degrees(&world, &self.scenario.degrees);
        let coordinator = self.scenario.coordinator(world, view, count.max(1), Some(kept.manifest.generation));
        let input_bytes = kept.manifest.input_bytes;
        self.from = Some(kept.clone());
        let life = Life { coordinator, restored: Vec::new(), input_bytes, from: Some(kept) };
        self.later(Input::WentBack(Box::new(life)));
    }

    /// Checks that the job goes on from the newest checkpoint that it can load, that no newer one will be kept, and
    /// that it does so on hosts that live.
    fn check_return(&mut self, chosen: &Return) {
        let newest = self.storage.newest().map(|kept| kept.manifest.generation);
        let known = self.root.coordinator().newest_line();
        let here = self.root.newest_checkpoint().map(|kept| kept.manifest.generation);
        let unheard = self.answers.values().flatten().find(|input| matches!(input, Input::Store { .. }));
        let is_settled = !self.storage.has_work() && unheard.is_none();
        let is_newest = newest == known && newest == here && newest == Some(chosen.kept.manifest.generation);
        let wrong = (chosen.count > 0 && !(is_newest && is_settled)).then(|| {
            let left = self.storage.work();
            format!("back to {known:?} and {here:?} of {newest:?}, with {left:?} and {unheard:?} to come")
        });
        self.note_wrong(wrong);
        let name = |host: &PlannedHost| host.name.as_ref().map(|name| name.name.clone()).unwrap_or_default();
        let lost = chosen.hosts.iter().map(name).find(|name| self.living(name).is_none());
        self.note_wrong(lost.map(|name| format!("back to host {name}, which is lost")));
    }

    /// Checks that siblings are apart, and processes which go on from images are launched where these are.
    fn check_placement(&mut self) {
        if self.from.is_none() && self.scenario.degrees.iter().all(|degree| *degree <= 2) {
            let ranks = 0..self.scenario.degrees.len() as u32;
            let host_of = |index| ranks.clone().map(move |rank| ReplicaId::new(rank, index));
            let pairs =
                host_of(0).zip(host_of(1)).map(|(one, other)| (one, self.root.host(one), self.root.host(other)));
            let together = pairs.filter(|(_, one, _)| one.is_some()).find(|(_, one, other)| one == other);
            let wrong = together.map(|(one, ..)| format!("{one} and its sibling are on one host"));
            self.note_wrong(wrong);
        }
        let Some(kept) = self.from.clone().filter(|_| self.root.is_launched()) else { return };
        let manifest = &kept.manifest;
        if !manifest.level.is_of_hosts() || manifest.level.is_fetched() {
            return;
        }
        for replica in self.live() {
            let host = self.root.host(replica).map(|host| self.hosts[host as usize].clone());
            let of = manifest.image(replica.rank).host;
            let is_there = |name: &String| manifest.holders(of).any(|at| manifest.hosts[at as usize] == *name);
            let wrong = !host.as_ref().is_some_and(is_there);
            self.note_wrong(wrong.then(|| format!("{replica} is on {host:?}, where its image is not")));
        }
    }

    fn note_wrong(&mut self, wrong: Option<String>) {
        self.wrong = self.wrong.take().or(wrong);
    }

    /// Carries out the oldest order to the store.
    fn work_on_store(&mut self) {
        let fails = self.scenario.random.u8(0..15) == 0;
        if let Some((number, answer)) = self.storage.work_on(fails, self.scenario.mistake) {
            self.later(Input::Store { number, answer });
        }
    }

    /// Lets daemons copy or upload a host's part of a checkpoint. Each step may fail.
    fn part(&mut self, host: u32, generation: Generation, source: u32, order: PartOrder) {
        let fails = self.scenario.random.u8(0..10) == 0;
        let step = match order {
            _ if fails => PartStep::Failed(NoImage::NoJob),
            PartOrder::Keep { .. } => {
                self.partners.insert((generation, source), host);
                PartStep::Listening(([127, 0, 0, 1], 9).into())
            }
            PartOrder::Give { .. } => {
                let Some(partner) = self.partners.get(&(generation, source)).copied() else { return };
                if !self.dead_hosts.contains(&host) && !self.dead_hosts.contains(&partner) {
                    self.storage.copied(generation, source, partner);
                    self.host_says(partner, FromDaemon::Part { generation, source, step: PartStep::Kept(10) });
                }
                return;
            }
            PartOrder::Store { prefix, .. } => {
                self.host_says(host, FromDaemon::Part { generation, source, step: PartStep::Moved(5) });
                if !self.dead_hosts.contains(&host) {
                    self.storage.uploaded(generation, source);
                }
                let facts = Facts { bytes: 10, digest: String::new() };
                PartStep::Stored(vec![Stored { key: format!("{prefix}/{source}"), facts }])
            }
        };
        self.host_says(host, FromDaemon::Part { generation, source, step });
    }

    fn all_heed(&mut self, message: ToDaemon) {
        match message {
            ToDaemon::HoldOutput { replica: None, held } => self.are_held = held,
            ToDaemon::Kill(replica) => self.end(replica, Exit::Signal(9)),
            ToDaemon::KillAll => self.root.world.clone().replicas().for_each(|one| self.end(one, Exit::Signal(9))),
            ToDaemon::Release => self.live().into_iter().for_each(|one| self.end(one, Exit::Status(0))),
            ToDaemon::Pins(pins) => {
                for replica in self.live() {
                    self.agent(replica, FromAgent::Pinned(pins.awaited.clone()));
                }
            }
            ToDaemon::Ask { wave } => {
                for replica in self.live() {
                    let answer =
                        FromAgent::Answer { wave, passive: None, waits: false, statistics: Statistics::default() };
                    self.agent(replica, answer);
                }
            }
            ToDaemon::Line { generation, order } => {
                let sources = self.sources();
                let step = match order {
                    LineOrder::Begin { .. } => return,
                    LineOrder::Round => Some(LineStep::Ready),
                    LineOrder::Stop => {
                        return sources.into_iter().for_each(|one| self.agent(one, FromAgent::Quiet));
                    }
                    LineOrder::Rest => None,
                    LineOrder::Copy => Some(LineStep::Copied),
                    LineOrder::GoOn => return self.writing = Some((generation, std::mem::take(&mut self.copied))),
                    LineOrder::Abandon => return self.writing = None,
                };
                if let Some(source) = sources.first().filter(|source| source.rank == VirtualRank(0))
                    && order == LineOrder::Rest
                {
                    self.typed.stop(generation, *source);
                }
                if order == LineOrder::Copy {
                    let home = |replica| (replica, self.root.host(replica).expect("who lives has a home"));
                    self.copied = sources.iter().copied().map(home).collect();
                }
                for replica in sources {
                    let step = step.clone().unwrap_or_else(|| LineStep::Stopped(self.position(replica)));
                    self.says(replica, |replica| FromDaemon::Line { generation, replica, step });
                }
            }
            _ => {}
        }
    }

    /// Lets the helper of some process report that its image is on disk.
    fn write_image(&mut self) {
        let Some((generation, missing)) = &self.writing else { return };
        let (generation, missing) = (*generation, missing.clone());
        let Some((replica, host)) = self.scenario.random.choice(missing) else { return };
        let at_cut = self.root.homes.host_at_line(self.root.world.process(replica));
        assert_eq!(at_cut, Some(host), "the image of {replica} is elsewhere");
        if let Some((_, missing)) = self.writing.as_mut().filter(|_| !self.dead_hosts.contains(&host)) {
            missing.remove(&replica);
            let is_written = missing.is_empty();
            self.writing.take_if(|_| is_written);
            let step = LineStep::Saved(Cost { sent_bytes: 10, ..Cost::default() }, Vec::new());
            self.give(Input::Daemon { host, message: FromDaemon::Line { generation, replica, step } });
            let follows = ["Commit(", "Part {", "LineFailed"];
            let goes_on = self.outputs.last().is_some_and(|said| follows.iter().any(|what| said.contains(what)));
            assert!(
                self.is_over || !is_written || goes_on,
                "all images of {generation} are written, and it does not count"
            );
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
        if begins && self.scenario.loses_roots {
            self.is_to_launch = true;
        } else if begins {
            self.launch();
        }
    }

    /// Checks that no input is on its way when all daemons have said what they took.
    fn check_input_under_way(&mut self) {
        let is_taken = self.answers.values().all(VecDeque::is_empty) && self.dead_hosts.is_empty();
        let bytes = self.root.input.in_flight_bytes();
        let wrong = is_taken && self.root.is_launched() && bytes > 0;
        self.note_wrong(wrong.then(|| format!("{bytes} bytes of input are on their way to nobody")));
    }

    /// Checks that processes are held while output cannot be written, or will be printed again, and not longer.
    fn check_hold(&mut self) {
        let are_to_be_held = self.root.is_output_full() || self.root.printing.withholds();
        let wrong = self.root.is_launched() && self.are_held != are_to_be_held;
        self.note_wrong(wrong.then(|| format!("processes are held: {}", self.are_held)));
    }

    /// Takes one step: mostly a queued answer, sometimes a fault.
    fn step(&mut self) {
        self.check_hold();
        self.check_input_under_way();
        self.check_jobs();
        self.now += Duration::from_millis(self.scenario.random.u64(0..300));
        if self.scenario.loses_roots && self.scenario.random.u8(0..10) == 0 {
            return self.lose_root();
        }
        if self.is_to_launch {
            return self.launch();
        }
        if self.scenario.has_jobs && self.root.is_launched() && self.scenario.random.u8(0..6) == 0 {
            return self.other_job();
        }
        if self.scenario.loses_output && self.root.is_launched() && self.scenario.random.u8(0..200) == 0 {
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
        let is_saving = self.scenario.is_calm && self.root.coordinator().line_under_way().is_some();
        if is_saving && self.scenario.random.u8(0..100) == 0 {
            return self.lose_host();
        }
        let fault = self.scenario.random.u8(0..40);
        if self.scenario.is_calm && matches!(fault, 10..30 | 33..40) && self.scenario.random.u8(0..10) > 0 {
            self.give(Input::Tick);
            return self.open_line();
        }
        match fault {
            0..8 => self.give(Input::Tick),
            8..10 => {
                self.now += Duration::from_secs(4);
                self.give(Input::Tick);
                self.open_line();
            }
            10..24 => self.print(),
            24..26 => self.die(),
            26 => self.lose_host(),
            27..30 => self.wish(),
            30..33 if self.root.wants_input() => {
                let bytes = self.typed.read(6);
                self.give(Input::StandardInput(bytes));
            }
            30..33 => self.give(Input::Tick),
            33 => {
                let asker = self.asker();
                let ends = self.scenario.random.u8(0..6) == 0;
                self.give(Input::Line { asker, ends });
            }
            34 => {
                let replica = ReplicaId::new(self.scenario.random.u32(0..self.root.world.rank_count()), 0);
                let asker = self.asker();
                self.give(Input::Kill { asker, replica });
            }
            35 => self.finalize(),
            39 => self.hear_of_pool(),
            36 => {
                let replica = ReplicaId::new(self.scenario.random.u32(0..5), self.scenario.random.u16(0..2));
                if !self.root.is_cloneable || !self.root.world.contains(replica) {
                    self.give(Input::Daemon { host: 3, message: FromDaemon::Started { replica, pid: 5 } });
                }
            }
            38 if self.scenario.random.bool() => self.ask_for_line(),
            38 => {
                let is_full = !self.root.is_output_full();
                self.give(Input::OutputFull(is_full));
            }
            37 if self.scenario.random.u8(0..10) == 0 => self.give(Input::Job(coordinator::Input::Interrupted(2))),
            _ => self.open_line(),
        }
    }

    fn asker(&mut self) -> Asker {
        self.asker_count += 1;
        Asker(self.asker_count - 1)
    }

    fn ask_for_line(&mut self) {
        let Some(replica) = self.any_live() else { return };
        self.asker_count += 1;
        let number = self.asker_count;
        self.line_askers.insert((replica, number));
        self.agent(replica, FromAgent::Dynamic(number, redrt_wire::dynamic::Request::Checkpoint));
    }

    /// Brings the images of a checkpoint that was opened close to completion.
    fn open_line(&mut self) {
        let under_way = self.root.coordinator().line_under_way().filter(|under_way| self.begun == Some(*under_way));
        let Some(generation) = under_way else { return };
        for replica in self.sources() {
            // Once each. A process that answers out of turn is a fault.
            if self.ready.insert((generation, replica)) || !self.scenario.is_calm {
                self.says(replica, |replica| FromDaemon::Line { generation, replica, step: LineStep::Ready });
            }
        }
    }

    /// The sources of the current checkpoint that live.
    fn sources(&self) -> Vec<ReplicaId> {
        let live = self.live();
        self.root.coordinator().line_sources().iter().copied().filter(|source| live.contains(source)).collect()
    }

    /// Lets all replicas of a rank print the same, each at its own time. Now and then one errs, or is far ahead.
    fn print(&mut self) {
        let Some(replica) = self.any_live() else { return };
        let printed = self.printed.entry(replica).or_default();
        let mut bytes = format!("line {:09}\n", *printed / 15).into_bytes();
        match self.scenario.random.u8(0..60) {
            0 => bytes[6] ^= 1,
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

    fn lose_host(&mut self) {
        let host = self.scenario.random.u32(0..self.hosts.len() as u32);
        if self.dead_hosts.len() < 2 && self.dead_hosts.insert(host) {
            self.answers.remove(&host);
            let there = |replica: &ReplicaId| self.root.host(*replica) == Some(host);
            let lost: Vec<_> = self.root.world.replicas().filter(there).collect();
            self.gone.extend(lost);
            let name = self.hosts[host as usize].clone();
            self.give(Input::HostLost { host, name, why: "its power".into() });
        }
    }

    fn wish(&mut self) {
        let Some(replica) = self.any_live() else { return };
        let wish = match self.scenario.random.u8(0..3) {
            0 => Wish::Migrate { replica, to: None },
            1 => Wish::Drain { host: self.scenario.random.u32(0..2) },
            _ => Wish::Degree { degree: self.scenario.random.u16(1..4), ranks: vec![replica.rank] },
        };
        let asker = self.asker();
        self.give(Input::Wish { asker, wish });
    }

    fn finalize(&mut self) {
        let view = self.root.coordinator().view().number;
        for replica in self.live() {
            let (statistics, coverage) = (Statistics::default(), Vec::new());
            self.agent(replica, FromAgent::Finalizing { view, statistics, coverage, profile: None });
        }
    }
}
