//! The coordinator of a job: the machine from whose inputs all orders to its processes and daemons follow.
//!
//! Enters ([`Input`], with the time): messages of daemons and processes, the user's requests, news of hosts, places,
//! checkpoints and files. Leaves ([`Output`]): messages for daemons, text to show, reports. There is no clock, socket
//! or random source inside, and no collection whose order differs from run to run. So
//!
//! * the same [`Settings`] and inputs make the same outputs, and
//! * a coordinator that is saved between two inputs (it is plain data) goes on as if it had not been.
//!
//! ```text
//!                       ┌─────────────────── Coordinator ───────────────────┐
//!   daemons ── says ──▶ │ is it where it says?  ─▶ ReplicationManager ─▶ homes│ ──▶ messages, reports, orders
//!   user ──── wants ──▶ │ (homes)                    ▲    │                  │
//!   time ─────────────▶ │                    finding │    ▼ who prints       │
//!   processes print ──▶ │ standard input, output ─▶ streams of the ranks     │ ──▶ what is shown
//!                       └───────────────────────────────────────────────────┘
//! ```
//! *One input at a time.* All outputs of an input are taken before the next input is given. An effect that an output
//! has outside comes back as an input of its own. Otherwise a journal of inputs would not show what the coordinator
//! knew when.
//!
//! *State follows the outputs.* Outputs are worked out as they are taken. The hosts and streams are as of the output
//! that was taken last. For example, a replica's departure is reported before its place is empty.
#![forbid(unsafe_code)]

mod asker;
mod checkpoints;
mod cutting;
mod ending;
mod following;
mod gathering;
mod handling;
mod history;
mod holding;
mod homes;
mod hosts;
mod input;
mod launching;
mod layout;
mod messages;
mod mutation;
mod places;
mod printing;
mod reading;
mod returning;
mod spawned;
mod times;
mod waiting_for_hosts;

pub use asker::Asker;
pub use checkpoints::{
    CheckpointEvent, CheckpointSettings, Contents, Cut, Opened, OrderNumber, StoreAnswer, StoreOrder, StoreWork,
};
pub use ending::OutputLoss;
pub use launching::LaunchSettings;
pub use layout::HostFacts;
pub use messages::{Input, Life, Misplaced, Output, Refused, Settings, Unfit};
pub use printing::ShownTexts;
pub use returning::Return;
pub use spawned::{JobNews, JobNumber, JobOrder};
pub use times::ReturnTimes;
pub use waiting_for_hosts::HostWait;

use checkpoint_store::StoredCheckpoint;
use checkpoints::Checkpoints;
use ending::Ending;
use gathering::Gathering;
use history::History;
use holding::Holding;
use homes::Homes;
use hosts::Hosts;
use input::StandardInput;
use launching::Launching;
use placement::homes::RestorePlace;
use places::Spares;
use printing::Printing;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank, World};
use redrt_wire::checkpoint::Generation;
use redrt_wire::clone::Progress;
use redrt_wire::daemon::ToDaemon;
use replication_manager::{ReplicationManager, Report};
use returning::Returns;
use serde::{Deserialize, Serialize};
use spawned::OtherJobs;
use std::collections::VecDeque;
use std::time::Duration;
use times::Times;

/// The machine that turns inputs of a job into orders; see the crate for its guarantees.
#[derive(Debug, Serialize, Deserialize)]
pub struct Coordinator {
    /// Number of the job.
    job: u64,
    world: World,
    is_cloneable: bool,
    manager: ReplicationManager,
    hosts: Hosts,
    homes: Homes,
    spares: Spares,
    launching: Launching,
    returns: Returns,
    printing: Printing,
    holding: Holding,
    input: StandardInput,
    checkpoints: Checkpoints,
    /// Pieces that hosts fetch before processes are loaded.
    gathering: Option<Gathering>,
    other_jobs: OtherJobs,
    times: Times,
    ending: Ending,
    history: History,
    /// Time of the latest input.
    now: Duration,
    /// True until all outputs of the latest input are taken.
    is_working: bool,
    /// Always drained before the state is saved.
    #[serde(skip)]
    outputs: VecDeque<Output>,
}

impl Coordinator {
    /// The coordinator of a job that has no hosts yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { life, release, shown, is_cloneable, checks_determinism, job, is_spawned, .. } = settings;
        let Settings { site, checkpoints, launch, host_wait, .. } = settings;
        let mut coordinator = Self {
            job,
            world: life.manager.world.clone(),
            is_cloneable,
            printing: Printing::new(release, &life.manager.view, ShownTexts::at_begin(&life, shown)),
            holding: Holding::default(),
            input: StandardInput::new(life.input_bytes, life.manager.checkpoint.is_some()),
            checkpoints: Checkpoints::new(checkpoints, life.from),
            gathering: None,
            other_jobs: OtherJobs::new(is_spawned),
            times: Times::default(),
            ending: Ending::default(),
            history: History::default(),
            launching: Launching::new(launch, life.manager.view.clone()),
            returns: Returns::new(host_wait),
            manager: ReplicationManager::new(life.manager),
            hosts: Hosts::default(),
            homes: Homes::default(),
            spares: Spares::new(job, site),
            now: Duration::ZERO,
            is_working: true,
            outputs: VecDeque::new(),
        };
        if checks_determinism {
            coordinator.manager.check_determinism();
        }
        coordinator.rewind(life.restored);
        coordinator
    }

    /// The state of processes, views, copies and checkpoints.
    #[must_use]
    pub fn manager(&self) -> &ReplicationManager {
        &self.manager
    }

    /// Returns true if processes have been launched in this life of the job.
    #[must_use]
    pub fn is_launched(&self) -> bool {
        self.homes.is_known()
    }

    /// Returns true if this host is part of the job. Before the launch none is.
    #[must_use]
    pub fn has_host(&self, host: u32) -> bool {
        self.hosts.has(host)
    }

    /// Number of returns to a checkpoint.
    #[must_use]
    pub fn return_count(&self) -> u32 {
        self.history.return_count()
    }

    /// Number of processes that were started, in all lives.
    #[must_use]
    pub fn started_count(&self) -> u64 {
        self.history.started_count()
    }

    /// Number of the last signal for the program. 0 before the first.
    #[must_use]
    pub fn signal_number(&self) -> u64 {
        self.history.signal_number()
    }

    /// The exit code of this job, which has ended with `code`.
    #[must_use]
    pub fn exit_code(&self, code: i32) -> i32 {
        self.ending.exit_code(code, self.other_jobs.code())
    }

    /// True if output could not all be written.
    #[must_use]
    pub fn has_lost_output(&self) -> bool {
        self.ending.has_lost_output()
    }

    /// Names of the hosts that were lost, in this order.
    #[must_use]
    pub fn lost_hosts(&self) -> &[String] {
        self.history.lost_hosts()
    }

    /// The hosts that are part of the job, by number. None before the launch.
    pub fn hosts(&self) -> impl Iterator<Item = u32> + '_ {
        self.hosts.members()
    }

    /// The host number of every process, by process. None for free places.
    #[must_use]
    pub fn placement(&self) -> &[Option<u32>] {
        self.homes.placement()
    }

    /// The host number of a replica. None before the launch, and for a free place.
    #[must_use]
    pub fn host(&self, replica: ReplicaId) -> Option<u32> {
        self.homes.host(self.world.process(replica))
    }

    /// The host number of a replica in a view, which may be an old one.
    #[must_use]
    pub fn host_in(&self, replica: ReplicaId, view: ViewNumber) -> Option<u32> {
        self.homes.past_host(replica, view).or_else(|| self.host(replica))
    }

    /// The newest checkpoint that is kept: of this life, or the one that this life began from.
    #[must_use]
    pub fn newest_checkpoint(&self) -> Option<&StoredCheckpoint> {
        self.checkpoints.newest()
    }

    /// The checkpoint from which the job is to be resumed: the newest that is proven, if its replicas have differed and
    /// newer ones are not. None if it is the newest.
    #[must_use]
    pub fn resumable_checkpoint(&self) -> Option<Generation> {
        self.checkpoints.resumable()
    }

    /// The checkpoint that this life goes on from, with the place at which each process does. None without one.
    #[must_use]
    pub fn restore_places(&self) -> Option<(&StoredCheckpoint, Vec<Option<RestorePlace>>)> {
        let kept = self.newest_checkpoint()?;
        Some((kept, self.launching.restore_places(kept, self.manager.view())))
    }

    /// The checkpoint that is being taken, with the progress of its images. None until one has grown.
    #[must_use]
    pub fn checkpoint_progress(&self) -> Option<(Generation, Progress)> {
        let generation = self.manager.checkpoint_under_way()?;
        Some((generation, self.checkpoints.images().total(generation)?))
    }

    /// Orders to the outside that have not been answered. A coordinator that comes back repeats them, since the work on
    /// them ended with the process of the one before.
    pub fn unanswered(&self) -> impl Iterator<Item = Output> + '_ {
        let orders = self.checkpoints.unanswered().map(Output::Store);
        orders.chain(self.returns.chosen().map(|chosen| Output::GoBack(Box::new(chosen.clone()))))
    }

    /// The texts that were shown so far, less the bytes that `unwritten_bytes` gives for a replica's standard output
    /// and standard error. None if a text is not known.
    #[must_use]
    pub fn shown_texts(&self, unwritten_bytes: &dyn Fn(ReplicaId) -> [u64; 2]) -> Option<ShownTexts> {
        self.printing.shown_texts(&self.world, unwritten_bytes)
    }

    /// True if too much output waits to be written, by the latest [`Input::OutputFull`].
    #[must_use]
    pub fn is_output_full(&self) -> bool {
        self.holding.is_full()
    }

    /// Returns true if standard input may be read: there are processes to get it, and none of them is stopped.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.is_launched() && self.input.is_wanted() && !self.readers_are_stopped()
    }

    /// Returns true if processes that have had `bytes` of standard input can be given all that was read since.
    #[must_use]
    pub fn has_input_since(&self, bytes: u64) -> bool {
        self.input.has_since(bytes)
    }

    /// Takes one input. `now` is the time since the first launch of this life, and never goes back within a life.
    ///
    /// # Panics
    /// If outputs of the previous input were not taken.
    pub fn handle(&mut self, now: Duration, input: Input) {
        assert!(!self.is_working, "the outputs of one input are taken before the next comes");
        (self.now, self.is_working) = (now, true);
        self.history.record(&input);
        self.let_spawned_follow(&input);
        match input {
            Input::Launched { hosts } => self.launch(hosts),
            Input::HostNotHad { host, name, why } => self.lack_host(host, name, why),
            Input::CoordinatorIsOn(own) => self.launching.coordinator_is_on(&own),
            Input::WentBack(life) => self.go_back(*life),
            Input::Store { number, answer } => self.handle_store(number, answer),
            Input::Daemon { host, message } => self.handle_daemon(host, message),
            Input::HostLost { host, name, why } => self.lose_host(host, name, why),
            Input::FoundLate(by) => self.times.found_late(by),
            Input::Loading => self.times.loading(now),
            Input::OutputLost(loss) => self.lose_output(loss),
            Input::Site(_) | Input::HostFound { .. } | Input::HostNotFound { .. } | Input::SpareAdded { .. } => {
                self.handle_places(input);
            }
            Input::ChangeRequest { asker, request } => {
                let room = self.spares.room(&request, &self.hosts, now);
                let outcome = self.manager.request(now, request, room);
                self.answer(asker, outcome.map_err(Refused::ChangeRequest));
            }
            Input::Checkpoint { asker, ends } => self.want_checkpoint_of_user(asker, ends),
            Input::Kill { asker, replica } => self.kill(asker, replica),
            Input::StandardInput(bytes) => self.handle_input(&bytes),
            Input::StandardInputEnd => self.handle_end_of_input(),
            Input::OtherJob(news) => self.with_other_jobs(|jobs| jobs.handle(news)),
            Input::OutputFull(is_full) => self.holding.set_full(is_full),
            Input::Tick if !self.is_launched() => {}
            Input::Tick => {
                self.spares.work(now);
                self.manager.handle(now, replication_manager::Input::Tick);
            }
            Input::Job(input) => self.manager.handle(now, input),
        }
    }

    /// The next action. All of them must be taken before the next input.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if let Some(output) = self.manager.poll_output() {
                self.pass_on(output);
            } else if !self.poll_places() && !self.poll_input() && !self.poll_printing() && !self.poll_holding() {
                self.is_working = false;
                return None;
            }
        }
    }

    /// The latest time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        [self.manager.next_deadline(), self.spares.next_event(self.now)].into_iter().flatten().min()
    }

    /// Launches processes on the hosts, all of which have attached.
    fn launch(&mut self, facts: Vec<HostFacts>) {
        // A host that was late has come after all: the life for which it comes is given up.
        if self.returns.is_searching() {
            return;
        }
        let view = self.manager.view();
        let placement = match self.restore_places() {
            Some((_, restore_places)) => restore_places
                .into_iter()
                .map(|restore_place| restore_place.map(|restore_place| restore_place.host))
                .collect(),
            None => match self.launching.lay_out(&self.world, view, &facts) {
                Ok(layout) => {
                    let plan = self.launching.plan();
                    let report = layout.report(&self.world, plan, &facts);
                    let notes = layout.notes(&self.world, plan, &facts);
                    self.outputs.push_back(Output::LaidOut { report, notes });
                    layout.placement
                }
                Err(why) => return self.outputs.push_back(Output::Failed(why.to_string())),
            },
        };
        (0..).zip(&facts).for_each(|(host, facts)| self.hosts.join(host, facts.name.clone()));
        self.launching.attached(facts);
        self.spares.launched(self.launching.host_places(&self.world, &placement), self.now);
        self.manager.launched_on(placement.iter().map(|host| host.unwrap_or_default()).collect());
        if self.is_cloneable {
            self.manager.recover_with(self.launching.recovery(&placement));
        }
        let readers = self.world.replicas().zip(&placement).filter(|(replica, _)| replica.rank == VirtualRank(0));
        self.input.launched(readers.filter_map(|(_, host)| *host));
        self.homes.settle(placement);
        self.returns.launched();
        self.gather();
    }

    /// Begins another life. All processes of the previous one are gone.
    fn go_back(&mut self, life: Life) {
        self.manager = ReplicationManager::new(life.manager);
        (self.hosts, self.homes) = (Hosts::default(), Homes::default());
        if let Some(hosts) = self.returns.begin_life() {
            self.launching.begin_life(hosts);
        }
        self.spares.begin_anew();
        self.input.go_back(life.input_bytes);
        self.checkpoints.begin_life(life.from);
        self.gathering = None;
        self.other_jobs.begin_life();
        self.printing.forget_holds();
        self.holding.begin_life();
        self.rewind(life.restored);
    }

    fn lose_host(&mut self, host: u32, name: String, why: String) {
        // Hosts leave a job that is over.
        if !self.manager.course().is_over() {
            self.history.record_lost(&name);
        }
        self.hosts.leave(host);
        self.input.lose(host);
        self.spares.lose(host, &name, self.now);
        let replicas = self.world.replicas().filter(|replica| self.host(*replica) == Some(host)).collect();
        self.manager.handle(self.now, replication_manager::Input::DaemonLost { host: name, why, replicas });
        self.lose_parts(host);
    }

    fn kill(&mut self, asker: Asker, replica: ReplicaId) {
        if !self.manager.view().is_live(replica) {
            return self.answer(asker, Err(Refused::NotLive(replica)));
        }
        self.outputs.push_back(Output::KilledByUser(replica));
        if let Some(host) = self.host(replica) {
            self.outputs.push_back(Output::SendTo(host, ToDaemon::Kill(replica)));
        }
        self.answer(asker, Ok(()));
    }

    fn answer(&mut self, asker: Asker, outcome: Result<(), Refused>) {
        self.pass_all_on();
        self.outputs.push_back(Output::Answered { asker, outcome });
    }

    fn pass_all_on(&mut self) {
        while let Some(output) = self.manager.poll_output() {
            self.pass_on(output);
        }
    }

    fn report(&mut self, report: Report) {
        self.outputs.push_back(Output::Report(report));
    }

    /// Handles an output of the replication manager here, or passes it on.
    fn pass_on(&mut self, output: replication_manager::Output) {
        use replication_manager::Output as Job;
        let output = match output {
            Job::Vacated(replica) => return self.homes.vacate(self.world.process(replica)),
            Job::Moved { replica, host } => {
                let view = self.manager.view().number;
                self.homes.moved(self.world.process(replica), replica, host, view);
                return self.printing.let_go(replica);
            }
            Job::Kinship(rank, kinship) => return self.set_kinship(rank, &kinship),
            Job::StreamJoined { replica, source, offset, kinship } => {
                if let Some(host) = self.host(replica).filter(|_| replica.rank == VirtualRank(0)) {
                    self.input.join(host);
                }
                self.set_kinship(replica.rank, &kinship);
                return self.stream_joined(replica, source, offset);
            }
            Job::StreamLost(replica) => return self.stream_lost(replica),
            Job::StreamEnded { replica, end } => return self.stream_ended(replica, end),
            Job::Send(message) => {
                if let ToDaemon::Checkpoint { order, .. } = &message {
                    self.record_checkpoint_order(order);
                }
                let are_loaded = matches!(message, ToDaemon::Cards(_));
                self.outputs.push_back(Output::Send(message));
                if are_loaded {
                    self.history.record_met();
                    self.report_return();
                    self.give_missed_input();
                }
                return;
            }
            Job::SendTo(host, message) => Output::SendTo(host, message),
            Job::Place(order) => return self.spares.obey(order, self.now),
            Job::HostFree(host) => return self.free_host(host),
            Job::Expel { host, by } => Output::Expel { host, why: Unfit::Unheard { by } },
            Job::Progress { newcomer, progress } => Output::Progress { newcomer, progress },
            Job::Report(report) => {
                if matches!(report, Report::Ending(_)) {
                    self.times.ending(self.now);
                }
                self.record_checkpoint_report(&report);
                Output::Report(report)
            }
            Job::OpenCheckpoint(generation) => return self.open_checkpoint(generation),
            Job::CommitCheckpoint(taken) => return self.images_written(*taken),
            Job::DropCheckpoint(generation) => {
                self.checkpoints.drop(generation);
                return self.follow_checkpoints();
            }
            Job::ProveCheckpoint { generation, proof } => {
                self.checkpoints.prove(generation, proof);
                return self.follow_checkpoints();
            }
            Job::Restart { generation, count } => return self.begin_return(generation, count),
            Job::Finish(code) => {
                let will_go_on = self.manager.is_suspended();
                if !will_go_on {
                    self.finish_printing();
                }
                if code != 0 {
                    self.with_other_jobs(OtherJobs::end);
                }
                Output::Finish { code, will_go_on }
            }
        };
        self.outputs.push_back(output);
    }
}

#[cfg(test)]
mod tests;
