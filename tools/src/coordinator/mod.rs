//! The coordinator: who is alive, in which view, and how the job ends.
//!
//! Enters ([`Input`]): what daemons and processes report, the user's signals, time. Leaves ([`Output`]): messages for the
//! daemons, reports for the user and the audit log, at the end the exit code. No clock, socket or random source
//! inside: `now` is the time since the start of the job, seeds come with the settings.
//!
//! ```text
//!             all live replicas Ready        all live replicas Finalizing(current view)
//!  launching ───────────────────────▶ running ───────────────────────▶ released ─────▶ finished
//!      │  └────────── a loss with survivors: next View ──────┘            │              ▲
//!      └────────── sphere lost, MPI_Abort, signal, timeout ──▶ ending ───┴── all exited ┘
//! ```
//! A program that never calls `MPI_Init` goes from launching to finished: its processes just exit.
//!
//! What counts as a loss: an exit of any kind between `Hello` and `Release`, because the others count on that process;
//! without `Hello`, an exit that is not with status 0. After `Release` every exit is the process's own affair and
//! only its status counts.

mod determinism;
mod evidence;
mod health;
mod injection;
mod link;
mod output;
mod recovery;
mod refusal;
mod report;
pub mod scrub;
mod stall;

pub use determinism::{Check, Nondeterministic};
pub use evidence::in_words;
pub use injection::{Random, RandomKills, TimedKill};
pub use report::{EndReason, Loss, Report, RetireReason, Severity, drain_command, exit_text, signal_name, time_text};

pub use recovery::{Arbiter, Arbitration, Move, Purpose, Recovered, Recovery, Wish};

use crate::pool::{PlaceNews, PlaceOrder};
use crate::stdio::mismatch::Finding;
use injection::Injector;
use redrt_types::{Incarnation, ReplicaId, View, ViewNumber, VirtualRank, World};
use redrt_wire::clone::{CloneId, CloneStep, Newcomer, Progress};
use redrt_wire::control::{Card, FromAgent, OnSdc, Passive};
use redrt_wire::daemon::{Exit, ToDaemon};
use redrt_wire::event::{Action, Coverage, Event, Statistics};
use scrub::ScrubWatch;
use stall::{Finding as StallFinding, Stall, StallWatch};
use std::collections::VecDeque;
use std::time::Duration;

/// Between the decision to end a job and the killing of its processes: enough for others to fail of the same cause
/// and for their last words.
pub const KILL_GRACE: Duration = Duration::from_millis(100);
/// What processes get between the user's first signal, or the timeout, and SIGKILL.
pub const SIGNAL_GRACE: Duration = Duration::from_secs(5);
/// After the processes were killed, how long their daemons get to say so.
pub const FAREWELL: Duration = Duration::from_secs(2);

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// So many siblings that contradict a replica are believed.
const SIBLINGS_BELIEVED: usize = 2;

/// What the coordinator is told when it is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shape of the job: the places that its ranks have.
    pub world: World,
    /// Who is started; the other places are free at first.
    pub view: View,
    /// When the job is to be ended.
    pub timeout: Option<Duration>,
    /// How long the death of a process may take to be known here.
    pub death_time_max: Duration,
    /// What is done about replicas that differ.
    pub on_sdc: OnSdc,
    /// With so many strikes a host is drained.
    pub strikes_max: u32,
    /// How often the memory of replicas is compared.
    pub scrub_interval: Option<Duration>,
    /// Kills at given times.
    pub timed_kills: Vec<TimedKill>,
    /// Replicas that will end themselves before one of their sends.
    pub send_kills: Vec<ReplicaId>,
    /// Kills at random times.
    pub random_kills: Option<RandomKills>,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Input {
    /// A process was started.
    Started {
        /// Which.
        replica: ReplicaId,
        /// Its process id.
        pid: i32,
    },
    /// A process could not be started.
    NotStarted {
        /// Which.
        replica: ReplicaId,
        /// Why.
        message: String,
    },
    /// A process said something.
    Agent(ReplicaId, FromAgent),
    /// A process ended.
    Exited(ReplicaId, Exit),
    /// All that a process printed has arrived.
    Drained(ReplicaId),
    /// What replicas of a rank printed was compared, and this was found.
    Output {
        /// The virtual rank.
        rank: VirtualRank,
        /// What.
        finding: Finding,
    },
    /// A daemon, and with it these replicas, is gone.
    DaemonLost {
        /// Where it ran.
        host: String,
        /// How that is known.
        why: String,
        /// What ran there.
        replicas: Vec<ReplicaId>,
    },
    /// A daemon says how far a clone has come.
    Clone {
        /// Number of its host.
        host: u32,
        /// Which clone.
        id: CloneId,
        /// How far.
        step: CloneStep,
    },
    /// A pool of spares has something to say.
    Place {
        /// What.
        news: PlaceNews,
        /// Number of the host that a place was granted on.
        host: Option<u32>,
    },
    /// The user sent `redrun` this signal.
    Interrupted(i32),
    /// A job that a process has spawned, and met, has failed.
    SpawnedFailed {
        /// Its exit code.
        code: i32,
    },
    /// Nobody reads the standard output of the job any more.
    OutputClosed,
    /// Nothing but time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to every daemon.
    Send(ToDaemon),
    /// Send this to the daemon of one host.
    SendTo(u32, ToDaemon),
    /// Tell this to the pools of spares.
    Place(PlaceOrder),
    /// There is no process in this place any more, and none is awaited.
    Vacated(ReplicaId),
    /// A host that was to become free is.
    HostFree(u32),
    /// The process in this place runs on this host from now on.
    Moved {
        /// Which place.
        replica: ReplicaId,
        /// Number of the host.
        host: u32,
    },
    /// Memory of a clone is going over.
    Progress {
        /// What is being made.
        newcomer: Newcomer,
        /// How far it is.
        progress: Progress,
    },
    /// A copy prints from now on what its source has printed since.
    StreamJoined {
        /// The copy.
        replica: ReplicaId,
        /// Its source.
        source: ReplicaId,
        /// Bytes that the source had printed when it was copied.
        offset: u64,
    },
    /// This replica's output is waited for no more; its siblings will print what it owed.
    StreamLost(ReplicaId),
    /// This replica will print no more.
    StreamEnded {
        /// Which.
        replica: ReplicaId,
        /// Whether it printed all it would have. Not so when the job was ended: that one replica had come further than
        /// another is then no difference between them.
        complete: bool,
    },
    /// Tell the user and the audit log.
    Report(Report),
    /// The job is over: tell the daemons to leave and exit with this code.
    Finish(i32),
}

/// How far a process has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Started,
    Greeted,
    Ready,
    /// In `MPI_Finalize`, complete as of this view.
    Finalizing(ViewNumber),
}

#[derive(Clone, Debug)]
struct Process {
    phase: Phase,
    card: Option<Card>,
    statistics: Option<Statistics>,
    /// What it has compared, by communicator.
    coverage: Vec<Coverage>,
    /// What it has last told of its counters while it runs.
    latest: Statistics,
    exit: Option<Exit>,
    drained: bool,
    lost: bool,
    /// It is being killed, because it was found to be wrong or is not needed any more.
    retired: bool,
    /// It is not needed any more: its end is no loss.
    leaves: bool,
    /// There is no process in this place.
    is_vacant: bool,
    /// Whose frame it refused first.
    refuses: Option<ReplicaId>,
    /// The coordinator's order to kill it went out before it exited, so its exit says nothing.
    killed_at_end: bool,
    /// A fault has been ordered that kills it.
    is_doomed: bool,
    /// Which life of its place this is; grows with each attempt to make a copy.
    incarnation: Incarnation,
}

impl Process {
    fn new() -> Self {
        Self {
            phase: Phase::Started,
            card: None,
            statistics: None,
            coverage: Vec::new(),
            latest: Statistics::default(),
            exit: None,
            drained: false,
            lost: false,
            retired: false,
            leaves: false,
            is_vacant: false,
            refuses: None,
            killed_at_end: false,
            is_doomed: false,
            incarnation: Incarnation(0),
        }
    }

    /// A place without a process; `incarnation` is that of the last one.
    fn vacant(incarnation: Incarnation) -> Self {
        Self { is_vacant: true, incarnation, ..Self::new() }
    }

    /// Whether its word counts.
    fn counts(&self) -> bool {
        !self.is_vacant && !self.lost && !self.retired && self.exit.is_none()
    }

    fn is_gone(&self) -> bool {
        self.is_vacant || self.exit.is_some() && self.drained
    }
}

#[derive(Clone, Debug)]
struct Ending {
    /// The exit code, unless it follows from the processes' own.
    code: Option<i32>,
    kill_at: Duration,
    killed: bool,
    interrupt_count: u32,
}

/// The state machine; see the module.
#[derive(Debug)]
pub struct Coordinator {
    settings: Settings,
    view: View,
    processes: Vec<Process>,
    cards_sent: bool,
    released: bool,
    ending: Option<Ending>,
    finished: bool,
    /// The latest time that it was told.
    latest: Duration,
    injector: Injector,
    broken_links: Vec<link::BrokenLink>,
    stall: StallWatch,
    /// Absent where lost replicas are not replaced.
    recovery: Option<Recovery>,
    /// Replicas have been found to differ.
    have_differed: bool,
    /// Payloads that nobody can judge.
    excerpts: evidence::Excerpts,
    strikes: health::Strikes,
    /// Absent where memory is not compared.
    scrub: Option<ScrubWatch>,
    /// Present where the program is being checked.
    check: Option<Check>,
    outputs: VecDeque<Output>,
}

impl Coordinator {
    /// A job whose processes are about to be launched.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let view = settings.view.clone();
        let process = |replica| if view.is_live(replica) { Process::new() } else { Process::vacant(Incarnation(0)) };
        let processes = settings.world.replicas().map(process).collect();
        let injector = Injector::new(settings.timed_kills.clone(), settings.random_kills);
        Self {
            view,
            processes,
            cards_sent: false,
            released: false,
            ending: None,
            finished: false,
            latest: Duration::ZERO,
            injector,
            broken_links: Vec::new(),
            stall: StallWatch::new(settings.world.process_count()),
            recovery: None,
            have_differed: false,
            excerpts: evidence::Excerpts::default(),
            strikes: health::Strikes::default(),
            scrub: settings.scrub_interval.map(|interval| ScrubWatch::new(interval, settings.world.rank_count())),
            check: None,
            outputs: VecDeque::new(),
            settings,
        }
    }

    /// The membership now.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Shape of the job.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.settings.world
    }

    /// By rank: how many replicas it started with.
    #[must_use]
    pub fn first_degrees(&self) -> Vec<u16> {
        self.settings.view.degrees()
    }

    /// Replicas of a rank that live, and can go on alone.
    #[must_use]
    pub fn in_step_count(&self, rank: VirtualRank) -> usize {
        self.view.live(rank).filter(|replica| self.is_in_step(*replica)).count()
    }

    /// Which life of its place a process is.
    #[must_use]
    pub fn incarnation(&self, replica: ReplicaId) -> Incarnation {
        self.processes[self.world().process(replica).0 as usize].incarnation
    }

    /// What each process counted, as far as it came to tell.
    pub fn latest(&self, replica: ReplicaId) -> Statistics {
        self.processes[self.world().process(replica).0 as usize].latest
    }

    /// The counters of all processes that have told them at the end.
    pub fn statistics(&self) -> impl Iterator<Item = (ReplicaId, Option<Statistics>)> + '_ {
        let present = self.world().replicas().zip(&self.processes).filter(|(_, process)| !process.is_vacant);
        present.map(|(replica, process)| (replica, process.statistics))
    }

    /// What each process has compared, by communicator, as it told at the end.
    pub fn coverage(&self, replica: ReplicaId) -> &[Coverage] {
        &self.processes[self.world().process(replica).0 as usize].coverage
    }

    /// How far the job has come, in a word.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match (&self.ending, self.released, self.cards_sent) {
            (Some(_), _, _) => "ending",
            (None, true, _) => "finalized",
            (None, false, true) => "running",
            (None, false, false) => "launching",
        }
    }

    /// How far each process has come, in a word.
    pub fn states(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.processes.iter().map(|process| match (process.phase, process.exit) {
            _ if process.is_vacant => "free",
            _ if process.lost => "lost",
            _ if process.leaves => "leaving",
            _ if process.retired => "retired",
            (_, Some(_)) => "exited",
            (Phase::Started, None) => "started",
            (Phase::Greeted, None) => "in MPI_Init",
            (Phase::Ready, None) => "running",
            (Phase::Finalizing(_), None) => "finalizing",
        })
    }

    /// How each process ended, with whether it was counted as lost.
    pub fn exits(&self) -> impl Iterator<Item = (ReplicaId, Option<Exit>, bool)> + '_ {
        let present = self.world().replicas().zip(&self.processes).filter(|(_, process)| !process.is_vacant);
        present.map(|(replica, process)| (replica, process.exit, process.lost))
    }

    /// Takes one input. `now` never goes back.
    pub fn handle(&mut self, now: Duration, input: Input) {
        if self.finished {
            return;
        }
        self.latest = now;
        match input {
            Input::Started { .. } | Input::Tick => {}
            Input::NotStarted { replica, message } => self.could_not_start(now, replica, message),
            Input::Agent(replica, message) => self.hear(now, replica, message),
            Input::Exited(replica, exit) => self.exited(now, replica, exit),
            Input::Drained(replica) => self.drained(replica),
            Input::Clone { host, id, step } => self.clone_step(now, host, id, step),
            Input::Place { news, host } => self.hear_of_place(now, news, host),
            Input::Output { rank, finding: Finding::Mismatch(mismatch) } => self.output_differs(now, rank, mismatch),
            Input::Output { rank, finding: Finding::Uncompared { replica: index } } => {
                self.report(Report::OutputUncompared { replica: ReplicaId { rank, index } });
            }
            Input::DaemonLost { host, why, replicas } => self.daemon_lost(now, host, why, &replicas),
            Input::Interrupted(signal) => self.interrupted(now, signal),
            Input::SpawnedFailed { code } => self.end(EndReason::SpawnedFailed { code }, Some(code), now + KILL_GRACE),
            Input::OutputClosed => self.end(EndReason::OutputClosed, Some(141), now + KILL_GRACE),
        }
        self.pass_time(now);
        self.finish_when_all_are_gone();
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.ending {
            _ if self.finished => None,
            Some(ending) if ending.killed => Some(ending.kill_at + FAREWELL),
            Some(ending) => Some(ending.kill_at),
            None => {
                let stall = self.is_under_way().then(|| self.stall.next_deadline()).flatten();
                let recovery = self.recovery.as_ref().and_then(|recovery| recovery.next_deadline(self.latest));
                let scrub = self.scrub.as_ref().filter(|_| self.is_under_way()).map(ScrubWatch::next_deadline);
                let (injection, link) = (self.injector.next_deadline(), self.next_link_deadline());
                let deadlines = [self.settings.timeout, injection, stall, link, recovery, scrub];
                deadlines.into_iter().flatten().min()
            }
        }
    }

    fn process(&mut self, replica: ReplicaId) -> &mut Process {
        let process = self.settings.world.process(replica);
        &mut self.processes[process.0 as usize]
    }

    fn send(&mut self, message: ToDaemon) {
        self.outputs.push_back(Output::Send(message));
    }

    fn report(&mut self, report: Report) {
        self.outputs.push_back(Output::Report(report));
    }

    fn could_not_start(&mut self, now: Duration, replica: ReplicaId, message: String) {
        let process = self.process(replica);
        process.exit = Some(Exit::Status(127));
        process.drained = true;
        process.lost = true;
        self.end(EndReason::NotStarted { replica, message }, Some(127), now + KILL_GRACE);
    }

    fn hear(&mut self, now: Duration, replica: ReplicaId, message: FromAgent) {
        if let Err(what) = self.check(replica, &message) {
            return self.refuse(now, replica, what);
        }
        match message {
            FromAgent::Hello => self.greeted(now, replica),
            FromAgent::Ready(card) if self.copy_ready(now, replica, &card) => {}
            FromAgent::Pinned(newcomers) => self.pinned(now, replica, &newcomers),
            FromAgent::InStep => self.in_step(now, replica),
            FromAgent::Hindered => self.hindered(now, replica),
            FromAgent::Ready(card) => {
                let process = self.process(replica);
                process.card = Some(card);
                process.phase = Phase::Ready;
                self.check_barriers(now);
            }
            FromAgent::Finalizing { view, statistics, coverage } => {
                let process = self.process(replica);
                process.coverage = coverage;
                process.statistics = Some(statistics);
                process.phase = Phase::Finalizing(view);
                // There will be no more collectives.
                self.end_scrub();
                self.check_barriers(now);
            }
            FromAgent::Abort { code, message } => {
                if let Some(check) = self.check.as_mut().filter(|_| !message.is_empty()) {
                    check.other(replica, message.clone());
                }
                let reason = RetireReason::Abort { code, message: message.clone() };
                if self.retire(replica, reason, SIBLINGS_BELIEVED) {
                    return;
                }
                self.end(EndReason::Aborted { replica, code, message }, Some(code), now + KILL_GRACE);
            }
            FromAgent::Event(Event::Mismatch(mismatch)) if mismatch.action == Action::Disputed => {
                self.have_differed = true;
                self.dispute(now, &mismatch);
                self.report(Report::Disputed(mismatch));
            }
            FromAgent::Event(mut event) => {
                let evidence = match &mut event {
                    Event::Mismatch(mismatch) => self.excerpts.compare(mismatch),
                    _ => None,
                };
                let aborts = matches!(&event, Event::Mismatch(mismatch) if mismatch.action == Action::Aborted);
                self.have_differed |= matches!(event, Event::Mismatch(_) | Event::Divergence { .. });
                self.report(Report::Event(event.clone()));
                if let (Event::Divergence { replica, what }, Some(check)) = (&event, &mut self.check) {
                    check.other(*replica, what.clone());
                }
                if let Event::Mismatch(mismatch) = &event {
                    self.check_message(mismatch);
                }
                if let Some(evidence) = evidence {
                    self.check_evidence(&evidence);
                    self.report(Report::Event(Event::Evidence(Box::new(evidence))));
                }
                if let Event::Mismatch(mismatch) = &event {
                    self.heal(now, mismatch);
                    self.judged(now, mismatch);
                }
                if aborts {
                    self.end(EndReason::Corrupted, Some(1), now + KILL_GRACE);
                }
            }
            FromAgent::Answer { wave, passive, statistics } => {
                self.process(replica).latest = statistics;
                self.answered(now, replica, wave, passive);
            }
            FromAgent::Scrubbed { round, answer } => self.scrubbed(replica, round, answer),
            FromAgent::Trace(sending, trace) => self.check_trace(replica, sending, trace),
            // Whoever carries this out sees to it: no decision of the job's depends on it.
            FromAgent::Dynamic(..) => {}
            FromAgent::Suspect(suspect) => self.suspected(now, suspect, replica),
            FromAgent::Refused { peer, what } => self.refused(now, replica, peer, what),
        }
    }

    /// Whether the processes have met and not left yet.
    fn is_under_way(&self) -> bool {
        self.cards_sent && !self.released && self.ending.is_none()
    }

    fn answered(&mut self, now: Duration, replica: ReplicaId, wave: u64, passive: Option<Passive>) {
        if !self.is_under_way() {
            return;
        }
        if !self.broken_links.is_empty() || self.recovery.as_ref().is_some_and(Recovery::is_cutting) {
            // Whoever waits may wait for what was lost; that is judged in its time. Or for a copy that is about to run.
            return self.stall.reset(now);
        }
        let (view, world, processes) = (&self.view, &self.settings.world, &self.processes);
        let live = world
            .replicas()
            .filter(|other| view.is_live(*other) && processes[world.process(*other).0 as usize].exit.is_none());
        match self.stall.answered(now, replica, (wave, passive), view, live) {
            StallFinding::Open => {}
            StallFinding::Ask(wave) => self.send(ToDaemon::Ask { wave }),
            StallFinding::Stalled(stall) => self.stalled(now, stall),
        }
    }

    /// Nobody can go on. A replica that has left the path of two or more siblings may be why.
    fn stalled(&mut self, now: Duration, stall: Stall) {
        let mut retired = false;
        for stray in stall::strays(&stall) {
            retired |= self.retire(stray, RetireReason::Strayed, SIBLINGS_BELIEVED);
        }
        if !retired && !self.give_up_cases(now, |_| true) {
            let reason = EndReason::Stalled { stall, have_differed: self.have_differed };
            self.end(reason, Some(1), now + KILL_GRACE);
        }
    }

    /// Ends one replica that was found to be wrong, when its rank can go on without it: with so many others at least.
    /// `false` when there are not, and nothing is done.
    ///
    /// Its memory is known to be wrong. Left alone it could leave the path of its siblings, and then the job would wait for
    /// ever for what it does not send, acknowledge or finish.
    fn retire(&mut self, replica: ReplicaId, reason: RetireReason, others_min: usize) -> bool {
        let counts = |other: &ReplicaId| self.processes[self.world().process(*other).0 as usize].counts();
        let is_fit = |other: &ReplicaId| *other != replica && counts(other) && self.is_in_step(*other);
        let others = self.view.live(replica.rank).filter(is_fit).count();
        let process = self.process(replica);
        if !process.counts() {
            return process.retired;
        }
        if others < others_min || self.ending.is_some() {
            return false;
        }
        self.process(replica).retired = true;
        self.report(Report::Retired { replica, reason });
        self.send(ToDaemon::Kill(replica));
        true
    }

    fn greeted(&mut self, now: Duration, replica: ReplicaId) {
        if std::mem::replace(&mut self.process(replica).phase, Phase::Greeted) != Phase::Started {
            // A script that runs two MPI programs. The second would wait for ever, as the job has met already.
            return self.end(EndReason::SecondInit { replica }, Some(1), now + KILL_GRACE);
        }
        let absent = self.world().replicas().find(|other| {
            let process = &self.processes[self.world().process(*other).0 as usize];
            process.exit.is_some() && !process.lost
        });
        if let Some(absent) = absent {
            self.end(EndReason::MissedInit { rank: absent.rank }, Some(1), now + KILL_GRACE);
        }
    }

    fn exited(&mut self, now: Duration, replica: ReplicaId, exit: Exit) {
        let (released, ending) = (self.released, self.ending.as_ref().is_some_and(|ending| ending.killed));
        let process = self.process(replica);
        if process.exit.is_some() {
            return;
        }
        process.exit = Some(exit);
        process.killed_at_end = ending && exit == Exit::Signal(9);
        let greeted = process.phase != Phase::Started;
        let is_loss = if greeted { !released } else { exit != Exit::Status(0) };
        if self.ending.is_some() {
            return;
        }
        if released {
            self.left(replica, exit);
        } else if is_loss {
            self.lose(now, &[replica]);
        } else {
            self.report(Report::Exited { replica, exit });
            let any_greeted = self.processes.iter().any(|process| process.phase != Phase::Started && !process.lost);
            if any_greeted {
                self.end(EndReason::MissedInit { rank: replica.rank }, Some(1), now + KILL_GRACE);
            }
        }
    }

    /// A process ended after `Release`. Killed while a sibling does the same without harm, it is lost as before, and
    /// neither its exit nor what it had not yet printed counts; but nobody needs another view.
    fn left(&mut self, replica: ReplicaId, exit: Exit) {
        let sphere = self.world().sphere(replica.rank);
        let is_there = |process: &Process| !process.lost && !process.is_vacant;
        let left = sphere.filter(|other| *other != replica && is_there(self.process(*other))).count();
        if left == 0 || matches!(exit, Exit::Status(_)) {
            return self.report(Report::Exited { replica, exit });
        }
        self.process(replica).lost = true;
        self.outputs.push_back(Output::StreamLost(replica));
        let view = self.view.number;
        self.report(Report::Lost(report::Loss { replica, exit, greeted: true, left, view }));
    }

    /// Takes replicas, whose exits are known, out of the view; or ends the job when a sphere has no other.
    fn lose(&mut self, now: Duration, replicas: &[ReplicaId]) {
        for replica in replicas {
            self.process(*replica).lost = true;
        }
        self.view = self.view.without(replicas);
        self.interrupt_scrub();
        self.stall.reset(now);
        let mut lost_sphere = None;
        for replica in replicas {
            let exit = self.process(*replica).exit.expect("an exit was recorded before the loss");
            let left = self.view.live(replica.rank).filter(|other| self.is_in_step(*other)).count();
            let greeted = self.process(*replica).phase != Phase::Started;
            let loss = report::Loss { replica: *replica, exit, greeted, left, view: self.view.number };
            self.outputs.push_back(Output::StreamLost(*replica));
            if left == 0 {
                lost_sphere.get_or_insert(loss);
            } else if self.process(*replica).leaves {
                self.report(Report::Left { replica: *replica });
            } else {
                self.report(Report::Lost(loss));
            }
        }
        match lost_sphere {
            Some(loss) => self.end(EndReason::SphereLost(loss), None, now + KILL_GRACE),
            None => {
                self.send(ToDaemon::View(self.view.clone()));
                self.replace(now, replicas);
                replicas.iter().for_each(|replica| self.vacate(*replica));
                self.check_barriers(now);
            }
        }
    }

    fn daemon_lost(&mut self, now: Duration, host: String, why: String, replicas: &[ReplicaId]) {
        let mut alive = Vec::new();
        for replica in replicas {
            let process = self.process(*replica);
            process.drained = true;
            if process.exit.is_none() {
                process.exit = Some(Exit::Signal(SIGKILL));
                alive.push(*replica);
            }
        }
        if self.ending.is_some() {
            return;
        }
        self.host_lost(now, &host);
        self.report(Report::DaemonLost { host, why, process_count: alive.len() });
        if self.released {
            alive.into_iter().for_each(|replica| self.left(replica, Exit::Signal(SIGKILL)));
        } else if !alive.is_empty() {
            self.lose(now, &alive);
        }
    }

    fn drained(&mut self, replica: ReplicaId) {
        let process = self.process(replica);
        process.drained = true;
        let lost = process.lost;
        if !lost || self.view.live(replica.rank).next().is_none() {
            let complete = self.ending.is_none();
            self.outputs.push_back(Output::StreamEnded { replica, complete });
        }
        self.place_freed(replica);
        self.vacate(replica);
    }

    /// Whoever was not needed any more has gone: its place is free.
    fn vacate(&mut self, replica: ReplicaId) {
        let process = self.process(replica);
        if process.leaves && process.lost && process.is_gone() {
            *process = Process::vacant(process.incarnation);
            self.outputs.push_back(Output::Vacated(replica));
        }
    }

    fn check_barriers(&mut self, now: Duration) {
        if self.ending.is_some() {
            return;
        }
        let live = || {
            let world = &self.settings.world;
            world.replicas().zip(&self.processes).filter(|(replica, _)| self.view.is_live(*replica))
        };
        if !self.cards_sent && live().all(|(_, process)| process.card.is_some()) {
            let cards = live().filter_map(|(_, process)| process.card.clone()).collect();
            self.cards_sent = true;
            self.stall.reset(now);
            self.send(ToDaemon::Cards(cards));
        }
        let current = Phase::Finalizing(self.view.number);
        let complete = self.cards_sent
            && self
                .settings
                .world
                .replicas()
                .zip(&self.processes)
                .all(|(replica, process)| !self.view.is_live(replica) || process.phase == current);
        if complete && !self.released {
            self.end_recovery(now);
            self.released = true;
            self.send(ToDaemon::Release);
        }
    }

    fn interrupted(&mut self, now: Duration, signal: i32) {
        let count = self.ending.as_ref().map_or(0, |ending| ending.interrupt_count);
        if count > 0 {
            self.report(Report::Impatient);
            self.kill_all(now);
        } else {
            self.ending = None;
            self.end(EndReason::Interrupted { signal }, Some(128 + signal), now + SIGNAL_GRACE);
            self.send(ToDaemon::Signal(SIGTERM));
        }
        if let Some(ending) = &mut self.ending {
            ending.interrupt_count = count + 1;
        }
    }

    /// Starts the end of the job, once: the first reason is the one that is told.
    fn end(&mut self, reason: EndReason, code: Option<i32>, kill_at: Duration) {
        if self.ending.is_some() {
            return;
        }
        self.end_recovery(self.latest);
        self.report(Report::Ending(reason));
        self.ending = Some(Ending { code, kill_at, killed: false, interrupt_count: 0 });
    }

    fn kill_all(&mut self, now: Duration) {
        let Some(ending) = &mut self.ending else { return };
        ending.killed = true;
        ending.kill_at = now;
        self.send(ToDaemon::KillAll);
    }

    fn pass_time(&mut self, now: Duration) {
        if self.ending.is_none() && self.settings.timeout.is_some_and(|timeout| now >= timeout) {
            let timeout = self.settings.timeout.expect("just checked");
            self.end(EndReason::TimedOut { timeout }, Some(124), now + Duration::from_secs(1));
            self.send(ToDaemon::Signal(SIGTERM));
        }
        match &self.ending {
            Some(ending) if !ending.killed && now >= ending.kill_at => self.kill_all(now),
            Some(ending) if ending.killed && now >= ending.kill_at + FAREWELL => {
                for process in self.processes.iter_mut().filter(|process| !process.is_vacant) {
                    process.exit.get_or_insert(Exit::Signal(9));
                    process.drained = true;
                }
            }
            Some(_) => {}
            None => {
                self.inject(now);
                self.judge_links(now);
                self.pass_recovery_time(now);
            }
        }
        if self.is_under_way()
            && let Some(wave) = self.stall.pass_time(now)
        {
            self.send(ToDaemon::Ask { wave });
        }
        self.pass_scrub_time(now);
    }

    fn inject(&mut self, now: Duration) {
        let (view, world, processes) = (&self.view, &self.settings.world, &self.processes);
        let is_running = |replica: ReplicaId| {
            let process = &processes[world.process(replica).0 as usize];
            view.is_live(replica) && process.counts() && !process.is_doomed && self.is_in_step(replica)
        };
        // Whoever will end itself may do so at any moment, and is nobody's last resort.
        let stays = |replica: ReplicaId| {
            let is_first = view.member(replica).is_some_and(|member| member.incarnation == Incarnation(0));
            is_running(replica) && !(is_first && self.settings.send_kills.contains(&replica))
        };
        let spare = |rank| world.sphere(rank).filter(|replica| stays(*replica)).count() > 1;
        let may_die: Vec<_> = world.replicas().filter(|r| is_running(*r) && spare(r.rank)).collect();
        for (replica, fault) in self.injector.due(now, &may_die) {
            self.process(replica).is_doomed = true;
            self.send(ToDaemon::Kill(replica));
            self.report(Report::Injected { replica, fault });
        }
    }

    fn finish_when_all_are_gone(&mut self) {
        if self.finished || !self.processes.iter().all(Process::is_gone) {
            return;
        }
        self.finished = true;
        let code = self.exit_code();
        self.report(Report::Ended { code });
        self.outputs.push_back(Output::Finish(code));
    }

    /// MPI_Abort's code, the signal's, the timeout's; else the lowest virtual rank's that is not 0. Replicas that were
    /// lost have been made good by their siblings, unless the whole sphere was lost.
    fn exit_code(&self) -> i32 {
        // A status has eight bits: what failed must not look like success because they are zeros.
        match self.whole_exit_code() {
            code if code != 0 && code & 0xff == 0 => 1,
            code => code,
        }
    }

    fn whole_exit_code(&self) -> i32 {
        if let Some(code) = self.ending.as_ref().and_then(|ending| ending.code) {
            return code;
        }
        let world = &self.settings.world;
        let code_of = |rank| {
            let all = || world.sphere(rank).map(|replica| &self.processes[world.process(replica).0 as usize]);
            let sphere = || all().filter(|process| !process.is_vacant);
            let all_lost = sphere().all(|process| process.lost);
            let counted = sphere().filter(|process| (!process.lost || all_lost) && !process.killed_at_end);
            let code = counted.filter_map(|process| process.exit).map(Exit::code).find(|code| *code != 0);
            // A process that left with status 0 in the middle of the job did not succeed.
            if all_lost { Some(code.unwrap_or(1)) } else { code }
        };
        let code = (0..world.rank_count()).find_map(|rank| code_of(VirtualRank(rank))).unwrap_or(0);
        if self.ending.is_some() && code == 0 { 1 } else { code }
    }
}

#[cfg(test)]
mod tests;
