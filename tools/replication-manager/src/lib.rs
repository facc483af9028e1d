//! The replication manager decides which replicas are alive, in which view, and how the job ends.
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

mod acting;
mod checkpoint;
mod comparing;
mod determinism;
mod effect;
mod ending;
mod evidence;
mod facts;
mod failure;
mod going_back;
mod handling;
mod health;
mod injection;
mod link;
mod losses;
mod machines;
mod members;
mod messages;
mod pace;
mod planes;
mod process;
mod proofs;
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
mod status;
mod stragglers;
mod strikes;

pub use checkpoint::{
    CheckpointWatch, CheckpointWatchSettings, NoCheckpoints, RESTARTS_MAX, RESUME_CODE, STOP_TIME_MAX, STORE_TIME_MAX,
    Schedule, StoreNews, StoreWait, TakenCheckpoint, WRITE_TIME_MAX,
};
pub use determinism::{Apart, Check, Nondeterministic};
pub use ending::{Course, FAREWELL, KILL_GRACE, OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE, SIGNAL_GRACE};
pub use failure::{CheckpointFailure, CloneFailure, NotHeld, OutputFailure, StayReason, StoreFailure};
pub use injection::{Random, RandomKills, TimedKill};
pub use members::Members;
pub use messages::{Input, OnStall, Output, Settings, StreamEnd};
pub use pace::{Laggard, STALL_LOOKS_MIN};
pub use proofs::{NoProof, ProofMode, SMALL_BYTES_MAX};
pub use redundancy::{RankTime, Redundancy};
pub use refusal::Implausible;
pub use report::{Back, EndReason, Loss, NoReturn, Refusal, Report, RetireReason};
pub use slowness::SlowHost;
pub use stall::{INTERVAL_USUAL as LOOK_INTERVAL_USUAL, Stall, missing_bytes};

pub use recovery::{Arbiter, Arbitration, ChangeRequest, ChangeRequestError, Purpose, Recovered, Recovery, Unproven};

use effect::End;
use ending::{Due, Restart};
use facts::Facts;
use machines::Machines;
use process::{Phase, Process};
use recovery::Part;
use redrt_types::ReplicaId;
use redrt_wire::clone::Pins;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use replica_output::mismatch::Finding;
use scrub::ScrubWatch;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A replica that its siblings contradict is ended only if at least this many of them agree, relatives counted once.
const SIBLINGS_BELIEVED: usize = 2;

/// Decides which replicas are alive, and how the job ends; see the crate.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReplicationManager {
    settings: Settings,
    members: Members,
    course: Course,
    machines: Machines,
    redundancy: Redundancy,
    /// `now` of the latest input.
    latest: Duration,
    /// Always drained before the state is saved.
    #[serde(skip)]
    outputs: VecDeque<Output>,
}

impl ReplicationManager {
    /// Starts a job whose processes are about to be launched.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            members: Members::new(settings.world.clone(), settings.view.clone()),
            course: Course::default(),
            machines: Machines::new(&settings),
            redundancy: Redundancy::default(),
            latest: Duration::ZERO,
            outputs: VecDeque::new(),
            settings,
        }
    }

    /// Takes one input. `now` never goes back. Inputs after the end of the job are ignored.
    pub fn handle(&mut self, now: Duration, input: Input) {
        if self.course.is_finished() {
            return;
        }
        self.latest = now;
        let before = self.facts(now).membership();
        match input {
            Input::Started { replica, pid } => self.members.process(replica).pid = Some(pid),
            Input::Tick => {}
            Input::OtherMpi { replica, found } => {
                self.end(End::new(EndReason::OtherMpi { replica, found }, ending::OTHER_MPI_CODE));
            }
            Input::NotStarted { replica, message } => self.could_not_start(now, replica, message),
            Input::Agent(replica, message) => self.handle_agent(now, replica, message),
            Input::Exited(replica, exit) => self.exited(now, replica, exit),
            Input::Drained(replica) => self.drained(now, replica),
            Input::Clone { host, id, step } => self.decide(now, |machines, facts, out| {
                if let Some(copies) = &mut machines.recovery {
                    copies.step(facts, machines.scrub.as_ref(), (host, id, step), out);
                }
            }),
            Input::Checkpoint { generation, replica, step } => self.decide(now, |machines, facts, out| {
                if let Some(checkpoint) = &mut machines.checkpoint {
                    checkpoint.step(facts, generation, replica, step, out);
                }
            }),
            Input::Store { generation, news } => self.decide(now, |machines, facts, out| {
                if let Some(checkpoint) = &mut machines.checkpoint {
                    checkpoint.store_says(facts, generation, news, out);
                }
            }),
            Input::Place { news, host } => {
                self.recover(now, |copies, facts, out| copies.handle_place(facts, news, host, out));
            }
            Input::Output { rank, finding: Finding::Mismatch(mismatch) } => self.decide(now, |machines, facts, out| {
                machines.differences.output_differs(facts, rank, mismatch, out);
            }),
            Input::Output { rank, finding: Finding::Uncompared { replica: index } } => {
                self.report(Report::OutputUncompared { replica: ReplicaId { rank, index } });
            }
            Input::DaemonLost { host, why, replicas } => self.daemon_lost(now, host, why, &replicas),
            Input::Interrupted(signal) if self.course.interrupt() => {
                let reason = EndReason::Interrupted { signal };
                self.end(End { grace: SIGNAL_GRACE, ..End::new(reason, 128 + signal) });
                self.send(ToDaemon::Signal(SIGTERM));
            }
            Input::Interrupted(_) => {
                self.report(Report::Impatient);
                self.kill_all(now);
            }
            Input::Signalled { number, signal } => self.decide(now, |machines, facts, out| {
                let is_loaded = machines.checkpoint_being_loaded(facts.course).is_some();
                machines.signals.pass(facts, (number, signal), is_loaded, out);
            }),
            Input::Suspended(stands_still) => self.send(ToDaemon::Suspend(stands_still)),
            Input::SpawnedFailed { code } => self.end(End::new(EndReason::SpawnedFailed { code }, code)),
            Input::OutputClosed => self.end(End::new(EndReason::OutputClosed, OUTPUT_CLOSED_CODE)),
            Input::OutputFailed(failure) => {
                self.end(End::new(EndReason::OutputFailed(failure), OUTPUT_FAILED_CODE));
            }
        }
        self.pass_time(now);
        if self.facts(now).membership() != before {
            self.observe_redundancy(now);
        }
        self.finish_when_all_are_gone();
    }

    /// Returns true when all processes are gone: the exit code stands, and inputs are ignored.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.course.is_finished()
    }

    /// The next thing to do, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The latest time at which [`Input::Tick`] is due. None when nothing depends on time.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.course.is_finished() {
            return None;
        }
        if self.course.is_ending() {
            return self.course.next_deadline();
        }
        let (machines, facts) = (&self.machines, self.facts(self.latest));
        let is_under_way = self.course.is_under_way();
        let deadlines = [
            self.settings.timeout,
            machines.injector.next_deadline(),
            machines.links.next_deadline(),
            machines.stragglers.next_deadline(facts),
            machines.checkpoint.as_ref().and_then(|checkpoint| checkpoint.next_deadline(facts)),
            machines.scrub.as_ref().filter(|_| is_under_way).and_then(ScrubWatch::next_deadline),
            is_under_way.then(|| machines.stall.next_deadline()),
            machines.recovery.as_ref().and_then(|copies| copies.next_deadline(self.latest)),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn facts(&self, now: Duration) -> Facts<'_> {
        Facts { now, settings: &self.settings, members: &self.members, course: &self.course }
    }

    fn observe_redundancy(&mut self, now: Duration) {
        if !self.course.have_met() {
            return;
        }
        let of = |rank| (self.members.in_step_count(rank), self.members.degree(rank));
        self.redundancy.observe(now, self.members.ranks().map(of));
        if !self.course.is_under_way() {
            self.redundancy.stop();
        }
    }

    /// Lets the processes go on once all of them have come to `MPI_Init`, or to `MPI_Finalize`.
    fn check_barriers(&mut self, now: Duration) {
        if self.course.is_ending() {
            return;
        }
        if !self.course.have_met() && self.members.all_have_cards() {
            let goes_on = self.machines.checkpoint_being_loaded(&self.course).is_some();
            self.course.meet();
            self.machines.stall.reset(now);
            self.machines.checkpoint.iter_mut().for_each(|checkpoint| checkpoint.job_runs(now));
            self.send(ToDaemon::Cards(self.members.cards()));
            if goes_on && self.world().is_replicated() {
                // All processes were loaded as copies, and wait for a view that contains them. Pins of the previous
                // life are cleared.
                self.send(ToDaemon::View(self.view().clone()));
                self.send(ToDaemon::Pins(Pins::default()));
            }
            self.decide(now, |machines, _, out| machines.signals.pass_kept(out));
        }
        if self.course.have_met() && !self.course.is_released() && self.members.all_finalize() {
            self.members.end_joining();
            self.decide(now, |machines, facts, out| machines.end(facts, out));
            self.course.release();
            self.machines.stragglers.begin(now);
            self.send(ToDaemon::Release);
        }
    }

    fn pass_time(&mut self, now: Duration) {
        if let Some(end) = self.course.timed_out(now, self.settings.timeout) {
            self.end(end);
            self.send(ToDaemon::Signal(SIGTERM));
        }
        match self.course.due(now) {
            Some(Due::Kill) => self.kill_all(now),
            Some(Due::Farewell) => self.members.all_lost(Exit::Signal(SIGKILL)),
            None => {}
        }
        if !self.course.is_ending() {
            self.decide(now, |machines, facts, out| machines.injector.pass_time(facts, out));
            for link in self.machines.links.due(now) {
                self.decide(now, |machines, facts, out| {
                    let has_checkpoint =
                        machines.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.usable().is_some());
                    machines.links.judge(facts, link, has_checkpoint, out);
                });
            }
            self.pass_recovery_time(now);
        }
        if self.course.is_under_way()
            && let Some(wave) = self.machines.stall.pass_time(now)
        {
            self.ask(now, wave);
        }
        self.decide(now, |machines, facts, out| machines.pass_checkpoint_time(facts, out));
        if self.course.is_under_way() {
            self.decide(now, |machines, facts, out| {
                machines.pace.judge_all(facts, machines.stall.next_deadline(), out);
            });
        }
        self.decide(now, |machines, facts, out| machines.stragglers.judge(facts, out));
        if self.course.is_under_way() {
            self.decide(now, |machines, facts, out| machines.pass_scrub_time(facts, out));
        }
    }

    /// Does all that is due for the replacement of replicas. Each part decides by what the one before has changed.
    fn pass_recovery_time(&mut self, now: Duration) {
        if self.course.is_under_way() {
            for part in Part::ALL {
                self.decide(now, |machines, facts, out| machines.pass_recovery_time(facts, part, out));
            }
        }
    }

    /// Begins the end of the job. Only the first reason is reported, so later calls do nothing.
    fn end(&mut self, end: End) {
        if self.course.is_ending() {
            return;
        }
        let now = self.latest;
        self.members.end_joining();
        self.decide(now, |machines, facts, out| machines.end(facts, out));
        self.report(Report::Ending(end.reason.clone()));
        self.course.end(now, &end);
    }

    fn kill_all(&mut self, now: Duration) {
        if self.course.is_ending() {
            self.course.kill(now);
            self.send(ToDaemon::KillAll);
        }
    }

    fn finish_when_all_are_gone(&mut self) {
        if self.course.is_finished() || !self.members.all_are_gone() {
            return;
        }
        if let Some(Restart { generation, count, passes_newer }) = self.course.restart() {
            let checkpoint = self.machines.checkpoint.as_ref();
            if let Some(generation) = checkpoint.and_then(CheckpointWatch::unsettled) {
                if self.course.await_store(self.latest) {
                    self.report(Report::StoreAwaited { generation });
                }
                return;
            }
            let (generation, count) =
                checkpoint.filter(|_| !passes_newer).map_or((generation, count), |it| it.kept_since(generation, count));
            self.course.finish();
            return self.outputs.push_back(Output::Restart { generation, count });
        }
        self.course.finish();
        let code = self.course.exit_code(&self.members);
        self.report(Report::Ended { code });
        self.outputs.push_back(Output::Finish(code));
    }
}

#[cfg(test)]
mod tests;
