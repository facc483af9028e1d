//! The coordinator decides which replicas are alive, in which view, and how the job ends.
//!
//! Enters ([`Input`]): reports of daemons and processes, the user's signals, time. Leaves ([`Output`]): messages for
//! the daemons, reports for the user and the audit log, and at the end the exit code. There is no clock, socket or
//! random source inside: `now` is the time since the start of the job, and seeds come with the settings.
//!
//! ```text
//!             all live replicas Ready        all live replicas Finalizing(current view)
//!  launching ───────────────────────▶ running ───────────────────────▶ released ─────▶ finished
//!      │  └────────── a loss with survivors: next View ──────┘            │              ▲
//!      └────────── sphere lost, MPI_Abort, signal, timeout ──▶ ending ───┴── all exited ┘
//! ```
//! A program that never calls `MPI_Init` goes from launching to finished: its processes just exit.
//!
//! An exit of any kind between `Hello` and `Release` is a loss, because the other processes count on that one. Without
//! `Hello`, an exit is a loss unless its status is 0. After `Release` only the status of an exit counts, except when
//! the last replica of a rank is killed and there is a checkpoint to go back to.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod determinism;
mod ending;
mod evidence;
mod failure;
mod health;
mod hearing;
mod injection;
mod line;
mod link;
mod look;
mod losses;
mod messages;
mod pace;
mod planes;
mod process;
mod recovery;
mod redundancy;
mod refusal;
mod report;
pub mod scrub;
mod signals;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod slowness;
mod stall;
mod stragglers;

pub use determinism::{Apart, Check, Nondeterministic};
pub use ending::{FAREWELL, KILL_GRACE, OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE, SIGNAL_GRACE};
pub use failure::{CloneFailure, LineFailure, NotHeld, OutputFailure, StayReason, StoreFailure};
pub use injection::{Random, RandomKills, TimedKill};
pub use line::{
    LineSettings, LineWatch, NoLines, RESTARTS_MAX, RESUME_CODE, STOP_TIME_MAX, STORE_TIME_MAX, Schedule, StoreNews,
    StoreWait, TakenLine, WRITE_TIME_MAX,
};
pub use messages::{Input, OnStall, Output, Settings, StreamEnd};
pub use pace::{Laggard, STALL_LOOKS_MIN};
pub use redundancy::{RankTime, Redundancy};
pub use refusal::Implausible;
pub use report::{EndReason, Loss, Refusal, Report, RetireReason};
pub use slowness::SlowHost;
pub use stall::{INTERVAL_USUAL as LOOK_INTERVAL_USUAL, Stall, missing_bytes};

pub use recovery::{Arbiter, Arbitration, Move, Purpose, Recovered, Recovery, Unproven, Wish, WishError};

use ending::Ending;
use injection::Injector;
use pace::PaceWatch;
use process::{Phase, Process};
use redrt_types::{Incarnation, ReplicaId, View, ViewNumber, VirtualRank};
use redrt_wire::clone::Pins;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use replica_output::mismatch::Finding;
use scrub::ScrubWatch;
use serde::{Deserialize, Serialize};
use slowness::SlownessWatch;
use stall::StallWatch;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A replica that its siblings contradict is ended only if at least this many of them agree, relatives counted once.
const SIBLINGS_BELIEVED: usize = 2;

/// Decides which replicas are alive, and how the job ends; see the crate.
#[derive(Debug, Serialize, Deserialize)]
pub struct Coordinator {
    settings: Settings,
    view: View,
    processes: Vec<Process>,
    cards_sent: bool,
    released: bool,
    ending: Option<Ending>,
    finished: bool,
    /// `now` of the latest input.
    latest: Duration,
    injector: Injector,
    broken_links: Vec<link::BrokenLink>,
    stall: StallWatch,
    pace: PaceWatch,
    stragglers: stragglers::Stragglers,
    slowness: SlownessWatch,
    redundancy: Redundancy,
    /// Host numbers, by process. Empty until [`Coordinator::launched_on`].
    placement: Vec<u32>,
    /// None where lost replicas are not replaced.
    recovery: Option<Recovery>,
    /// Set at the first difference between replicas, and never cleared. A stall that follows may have this cause.
    have_differed: bool,
    /// Payloads whose comparison was undecidable, until a second receiver of the same message reports.
    excerpts: evidence::Excerpts,
    /// Names of the functions that the user was told this job does not support.
    unsupported: BTreeSet<String>,
    strikes: health::Strikes,
    doubts: health::Doubts,
    /// None where memory is not compared.
    scrub: Option<ScrubWatch>,
    /// None where no checkpoints are taken.
    line: Option<LineWatch>,
    /// None unless `--check-determinism` was given.
    check: Option<Check>,
    /// Numbers of signals for the program that wait until all processes know each other.
    kept_signals: Vec<(u64, i32)>,
    /// Always drained before the state is saved.
    #[serde(skip)]
    outputs: VecDeque<Output>,
}

impl Coordinator {
    /// Starts a job whose processes are about to be launched.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let view = settings.view.clone();
        // In a job that goes on from a checkpoint, a free place may have had a process before. Its number must not be
        // reused.
        let lives = settings.world.replicas().filter_map(|replica| view.member(replica));
        let latest = lives.map(|member| member.incarnation).max().unwrap_or_default();
        let process = |replica| match view.member(replica) {
            Some(member) => Process { incarnation: member.incarnation, ..Process::new() },
            None => Process::vacant(latest),
        };
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
            stall: StallWatch::new(
                settings.world.process_count(),
                settings.look_interval,
                settings.world.is_replicated(),
            ),
            pace: PaceWatch::new(settings.stall_time),
            stragglers: stragglers::Stragglers::default(),
            slowness: SlownessWatch::default(),
            redundancy: Redundancy::default(),
            placement: Vec::new(),
            recovery: None,
            have_differed: false,
            excerpts: evidence::Excerpts::default(),
            unsupported: BTreeSet::new(),
            strikes: health::Strikes::default(),
            doubts: health::Doubts::default(),
            scrub: settings.scrub_interval.map(|interval| ScrubWatch::new(interval, settings.world.rank_count())),
            line: settings.line.as_ref().map(LineWatch::new),
            check: None,
            kept_signals: Vec::new(),
            outputs: VecDeque::new(),
            settings,
        }
    }

    /// Records the host of each process, before the processes are launched there.
    pub fn launched_on(&mut self, placement: Vec<u32>) {
        self.placement = placement;
    }

    /// Takes one input. `now` never goes back. Inputs after the end of the job are ignored.
    pub fn handle(&mut self, now: Duration, input: Input) {
        if self.finished {
            return;
        }
        self.latest = now;
        let before = self.membership();
        match input {
            Input::Started { replica, pid } => self.process(replica).pid = Some(pid),
            Input::Tick => {}
            Input::OtherMpi { replica, found } => {
                self.end(EndReason::OtherMpi { replica, found }, Some(ending::OTHER_MPI_CODE), now + KILL_GRACE);
            }
            Input::NotStarted { replica, message } => self.could_not_start(now, replica, message),
            Input::Agent(replica, message) => self.hear(now, replica, message),
            Input::Exited(replica, exit) => self.exited(now, replica, exit),
            Input::Drained(replica) => self.drained(replica),
            Input::Clone { host, id, step } => self.clone_step(now, host, id, step),
            Input::Line { generation, replica, step } => self.line_step(now, generation, replica, step),
            Input::Store { generation, news } => self.store_says(now, generation, news),
            Input::Place { news, host } => self.hear_of_place(now, news, host),
            Input::Output { rank, finding: Finding::Mismatch(mismatch) } => self.output_differs(now, rank, mismatch),
            Input::Output { rank, finding: Finding::Uncompared { replica: index } } => {
                self.report(Report::OutputUncompared { replica: ReplicaId { rank, index } });
            }
            Input::DaemonLost { host, why, replicas } => self.daemon_lost(now, host, why, &replicas),
            Input::Interrupted(signal) => self.interrupted(now, signal),
            Input::Signalled { number, signal } => self.pass_signal(number, signal),
            Input::Suspended(stands_still) => self.suspend(stands_still),
            Input::SpawnedFailed { code } => self.end(EndReason::SpawnedFailed { code }, Some(code), now + KILL_GRACE),
            Input::OutputClosed => self.end(EndReason::OutputClosed, Some(OUTPUT_CLOSED_CODE), now + KILL_GRACE),
            Input::OutputFailed(failure) => {
                self.end(EndReason::OutputFailed(failure), Some(OUTPUT_FAILED_CODE), now + KILL_GRACE);
            }
        }
        self.pass_time(now);
        if self.membership() != before {
            self.observe_redundancy(now);
        }
        self.finish_when_all_are_gone();
    }

    /// Returns true when all processes are gone: the exit code stands, and inputs are ignored.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The latest time at which [`Input::Tick`] is due. None when nothing depends on time.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.ending {
            _ if self.finished => None,
            Some(ending) if ending.store.is_some() => ending.store.and_then(StoreWait::deadline),
            Some(ending) if ending.killed => Some(ending.kill_at + FAREWELL),
            Some(ending) => Some(ending.kill_at),
            None => {
                let stall = self.is_under_way().then(|| self.stall.next_deadline());
                let recovery = self.recovery.as_ref().and_then(|recovery| recovery.next_deadline(self.latest));
                let scrub = self.scrub.as_ref().filter(|_| self.is_under_way()).map(ScrubWatch::next_deadline);
                let (injection, link) = (self.injector.next_deadline(), self.next_link_deadline());
                let line = self.next_line_deadline();
                let straggler = self.next_straggler_deadline();
                let deadlines = [self.settings.timeout, injection, stall, link, recovery, scrub, line, straggler];
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

    /// Returns true from the exchange of cards until the release or the begin of the end.
    fn is_under_way(&self) -> bool {
        self.cards_sent && !self.released && self.ending.is_none()
    }

    /// A value that changes whenever a rank may have got or lost a replica in step, and when the job begins or ceases
    /// to run.
    fn membership(&self) -> (ViewNumber, usize, bool) {
        let joining_count = self.recovery.as_ref().map_or(0, Recovery::joining_count);
        (self.view.number, joining_count, self.is_under_way())
    }

    fn observe_redundancy(&mut self, now: Duration) {
        if !self.cards_sent {
            return;
        }
        let ranks = (0..self.settings.world.rank_count()).map(VirtualRank);
        let counts: Vec<_> = ranks.map(|rank| (self.in_step_count(rank), self.degree(rank))).collect();
        self.redundancy.observe(now, counts);
        if !self.is_under_way() {
            self.redundancy.stop();
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
            let goes_on = self.line_being_loaded().is_some();
            self.cards_sent = true;
            self.stall.reset(now);
            self.line_job_runs(now);
            self.send(ToDaemon::Cards(cards));
            if goes_on && self.settings.world.is_replicated() {
                // All processes were loaded as copies, and wait for a view that contains them. Pins of the previous
                // life are cleared.
                self.send(ToDaemon::View(self.view.clone()));
                self.send(ToDaemon::Pins(Pins::default()));
            }
            self.pass_kept_signals();
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
            self.end_line(now);
            self.released = true;
            self.stragglers.begin(now);
            self.send(ToDaemon::Release);
        }
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
            self.ask(now, wave);
        }
        self.pass_line_time(now);
        self.judge_pace(now);
        self.judge_stragglers(now);
        self.pass_scrub_time(now);
    }

    fn inject(&mut self, now: Duration) {
        let (view, world, processes) = (&self.view, &self.settings.world, &self.processes);
        let is_running = |replica: ReplicaId| {
            let process = &processes[world.process(replica).0 as usize];
            view.is_live(replica) && process.counts() && !process.is_doomed && self.is_in_step(replica)
        };
        // A replica that is to end itself may do so at any moment, so it does not count as the sibling that survives.
        let stays = |replica: ReplicaId| {
            let is_first = view.member(replica).is_some_and(|member| member.incarnation == Incarnation(0));
            is_running(replica) && !(is_first && self.settings.send_kills.contains(&replica))
        };
        let spare = |rank| world.sphere(rank).filter(|replica| stays(*replica)).count() > 1;
        let may_die: Vec<_> = world.replicas().filter(|r| is_running(*r) && spare(r.rank)).collect();
        for (replica, fault) in self.injector.due(now, &may_die) {
            // A victim that has exited or is being ended cannot be killed again.
            if self.process(replica).counts() {
                self.process(replica).is_doomed = true;
                self.send(ToDaemon::Kill(replica));
                self.report(Report::Injected { replica, fault });
            }
        }
    }
}

#[cfg(test)]
mod tests;
