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

mod injection;
mod link;
mod recovery;
mod refusal;
mod report;
mod stall;

pub use injection::{Random, RandomKills, TimedKill};
pub use report::{EndReason, Loss, Report, RetireReason, Severity, exit_text, signal_name};

pub use recovery::{HostRoom, Recovered, Recovery};

use injection::Injector;
use redrt_types::{Incarnation, ReplicaId, View, ViewNumber, VirtualRank, World};
use redrt_wire::clone::{CloneId, CloneStep, Newcomer, Progress};
use redrt_wire::control::{Card, FromAgent, Passive};
use redrt_wire::daemon::{Exit, ToDaemon};
use redrt_wire::event::{Action, Event, Finding, Statistics};
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
    /// Shape of the job.
    pub world: World,
    /// When the job is to be ended.
    pub timeout: Option<Duration>,
    /// How long the death of a process may take to be known here.
    pub death_time_max: Duration,
    /// Whether replicas' outputs that differ without a majority end the job.
    pub abort_on_mismatch: bool,
    /// Kills at given times.
    pub timed_kills: Vec<TimedKill>,
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
    /// Replicas of one rank printed different things.
    OutputDiverged {
        /// The virtual rank.
        rank: VirtualRank,
        /// What differed, and who was outvoted.
        divergence: crate::stdio::sphere_stream::Divergence,
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
    /// The user sent `redrun` this signal.
    Interrupted(i32),
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
    /// A copy prints from now on what its source has printed since this offset.
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
    exit: Option<Exit>,
    drained: bool,
    lost: bool,
    /// It was found to be wrong, and is being killed for that.
    retired: bool,
    /// Whose frame it refused first.
    refuses: Option<ReplicaId>,
    /// The coordinator's order to kill it went out before it exited, so its exit says nothing.
    killed_at_end: bool,
    /// Which life of its place this is; grows with each attempt to make a copy.
    incarnation: Incarnation,
}

impl Process {
    fn new() -> Self {
        Self {
            phase: Phase::Started,
            card: None,
            statistics: None,
            exit: None,
            drained: false,
            lost: false,
            retired: false,
            refuses: None,
            killed_at_end: false,
            incarnation: Incarnation(0),
        }
    }

    /// Whether its word counts.
    fn counts(&self) -> bool {
        !self.lost && !self.retired && self.exit.is_none()
    }

    fn is_gone(&self) -> bool {
        self.exit.is_some() && self.drained
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
    outputs: VecDeque<Output>,
}

impl Coordinator {
    /// A job whose processes are about to be launched.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let view = View::initial(&settings.world);
        let processes = vec![Process::new(); settings.world.process_count() as usize];
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

    /// What each process counted, as far as it came to tell.
    pub fn statistics(&self) -> impl Iterator<Item = (ReplicaId, Option<Statistics>)> + '_ {
        self.world().replicas().zip(self.processes.iter().map(|process| process.statistics))
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
            _ if process.lost => "lost",
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
        self.world().replicas().zip(&self.processes).map(|(replica, process)| (replica, process.exit, process.lost))
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
            Input::Drained(replica) => self.drained(now, replica),
            Input::Clone { host, id, step } => self.clone_step(now, host, id, step),
            Input::OutputDiverged { rank, divergence } => {
                let undecided = divergence.outvoted.is_empty();
                let outvoted: Vec<_> = report::outvoted(rank, &divergence).collect();
                self.have_differed = true;
                self.report(Report::OutputDiverged { rank, divergence });
                for replica in outvoted {
                    self.retire(replica, RetireReason::Outvoted, SIBLINGS_BELIEVED);
                }
                if undecided && self.settings.abort_on_mismatch {
                    self.end(EndReason::Corrupted, Some(1), now + KILL_GRACE);
                }
            }
            Input::DaemonLost { host, why, replicas } => self.daemon_lost(now, host, why, &replicas),
            Input::Interrupted(signal) => self.interrupted(now, signal),
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
                let deadlines =
                    [self.settings.timeout, self.injector.next_deadline(), stall, self.next_link_deadline(), recovery];
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
            FromAgent::Pinned(newcomer) => self.pinned(now, replica, newcomer),
            FromAgent::InStep => self.in_step(now, replica),
            FromAgent::Ready(card) => {
                let process = self.process(replica);
                process.card = Some(card);
                process.phase = Phase::Ready;
                self.check_barriers(now);
            }
            FromAgent::Finalizing { view, statistics } => {
                let process = self.process(replica);
                process.statistics = Some(statistics);
                process.phase = Phase::Finalizing(view);
                self.check_barriers(now);
            }
            FromAgent::Abort { code, message } => {
                let reason = RetireReason::Abort { code, message: message.clone() };
                if self.retire(replica, reason, SIBLINGS_BELIEVED) {
                    return;
                }
                self.end(EndReason::Aborted { replica, code, message }, Some(code), now + KILL_GRACE);
            }
            FromAgent::Event(event) => {
                let aborts = matches!(&event, Event::Mismatch(mismatch) if mismatch.action == Action::Aborted);
                let culprit = match &event {
                    Event::Mismatch(mismatch) if mismatch.finding == Finding::ReplicaCorrupt => mismatch.culprit,
                    _ => None,
                };
                self.have_differed |= matches!(event, Event::Mismatch(_) | Event::Divergence { .. });
                self.report(Report::Event(event));
                if let Some(culprit) = culprit {
                    self.retire(culprit, RetireReason::Outvoted, SIBLINGS_BELIEVED);
                }
                if aborts {
                    self.end(EndReason::Corrupted, Some(1), now + KILL_GRACE);
                }
            }
            FromAgent::Answer { wave, passive } => self.answered(now, replica, wave, passive),
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
        if !self.broken_links.is_empty() {
            // Whoever waits may wait for what was lost; that is judged in its time.
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
        if !retired {
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
        let others = self.view.live(replica.rank).filter(|other| *other != replica && counts(other)).count();
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
        let left = sphere.filter(|other| *other != replica && !self.process(*other).lost).count();
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
        self.stall.reset(now);
        let mut lost_sphere = None;
        for replica in replicas {
            let exit = self.process(*replica).exit.expect("an exit was recorded before the loss");
            let left = self.view.live(replica.rank).count();
            let greeted = self.process(*replica).phase != Phase::Started;
            let loss = report::Loss { replica: *replica, exit, greeted, left, view: self.view.number };
            self.outputs.push_back(Output::StreamLost(*replica));
            if left == 0 {
                lost_sphere.get_or_insert(loss);
            } else {
                self.report(Report::Lost(loss));
            }
        }
        match lost_sphere {
            Some(loss) => self.end(EndReason::SphereLost(loss), None, now + KILL_GRACE),
            None => {
                self.send(ToDaemon::View(self.view.clone()));
                self.replace(now, replicas);
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

    fn drained(&mut self, now: Duration, replica: ReplicaId) {
        let process = self.process(replica);
        process.drained = true;
        let lost = process.lost;
        if !lost || self.view.live(replica.rank).next().is_none() {
            let complete = self.ending.is_none();
            self.outputs.push_back(Output::StreamEnded { replica, complete });
        }
        self.place_freed(now, replica);
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
                for process in &mut self.processes {
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
    }

    fn inject(&mut self, now: Duration) {
        let (view, world, processes) = (&self.view, &self.settings.world, &self.processes);
        let is_running =
            |replica: ReplicaId| view.is_live(replica) && processes[world.process(replica).0 as usize].exit.is_none();
        let spare = |rank| world.sphere(rank).filter(|replica| is_running(*replica)).count() > 1;
        let may_die: Vec<_> = world.replicas().filter(|r| is_running(*r) && spare(r.rank)).collect();
        for (replica, fault) in self.injector.due(now, &may_die) {
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
        if let Some(code) = self.ending.as_ref().and_then(|ending| ending.code) {
            return code;
        }
        let world = &self.settings.world;
        let code_of = |rank| {
            let sphere = || world.sphere(rank).map(|replica| &self.processes[world.process(replica).0 as usize]);
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
