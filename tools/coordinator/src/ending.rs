//! How the job ends, and with which exit code.

use super::{Coordinator, EndReason, Output, Process, Report, SIGTERM};
use crate::line::StoreWait;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::line::Generation;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Between the decision to end a job and the killing of its processes: enough for others to fail of the same cause
/// and for their last words.
pub const KILL_GRACE: Duration = Duration::from_millis(100);
/// What processes get between the user's first signal, or the timeout, and SIGKILL.
pub const SIGNAL_GRACE: Duration = Duration::from_secs(5);
/// After the processes were killed, how long their daemons get to say so.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// The exit code when nobody reads standard output any more: that of a program that SIGPIPE has ended.
pub const OUTPUT_CLOSED_CODE: i32 = 128 + 13;
/// The exit code when a process uses another MPI: that of wrong usage.
pub const OTHER_MPI_CODE: i32 = 2;
/// The exit code when output could not be written (`EX_IOERR` of sysexits.h).
pub const OUTPUT_FAILED_CODE: i32 = 74;

/// The end that has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ending {
    /// The exit code, unless it follows from the processes' own.
    pub code: Option<i32>,
    /// When the processes are killed, or were.
    pub kill_at: Duration,
    /// Whether they were.
    pub killed: bool,
    /// How often the user has asked.
    pub interrupt_count: u32,
    /// The line from which the job is started again, and how often it is, with this time; 0 if that line cannot be
    /// loaded.
    pub restart: Option<(Generation, u32)>,
    /// What it waits for then.
    pub store: Option<StoreWait>,
}

impl Coordinator {
    pub(super) fn interrupted(&mut self, now: Duration, signal: i32) {
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
    pub(super) fn end(&mut self, reason: EndReason, code: Option<i32>, kill_at: Duration) {
        if self.ending.is_some() {
            return;
        }
        self.end_recovery(self.latest);
        self.end_line(self.latest);
        let restart = match reason {
            EndReason::GoesBack { generation, count, .. } => Some((generation, count)),
            EndReason::Unloadable { generation, .. } => Some((generation, 0)),
            _ => None,
        };
        self.report(Report::Ending(reason));
        self.ending = Some(Ending { code, kill_at, killed: false, interrupt_count: 0, restart, store: None });
    }

    pub(super) fn kill_all(&mut self, now: Duration) {
        let Some(ending) = &mut self.ending else { return };
        ending.killed = true;
        ending.kill_at = now;
        self.send(ToDaemon::KillAll);
    }

    pub(super) fn finish_when_all_are_gone(&mut self) {
        if self.finished || !self.processes.iter().all(Process::is_gone) {
            return;
        }
        if let Some((generation, count)) = self.ending.as_ref().and_then(|ending| ending.restart) {
            self.finished = !self.awaits_store();
            if self.finished {
                let (generation, count) = self.line_kept_since(generation, count);
                self.outputs.push_back(Output::Restart { generation, count });
            }
            return;
        }
        self.finished = true;
        let code = self.exit_code();
        self.report(Report::Ended { code });
        self.outputs.push_back(Output::Finish(code));
    }

    /// MPI_Abort's code, the signal's, the timeout's; else the lowest virtual rank's that is not 0. Replicas that were
    /// lost have been made good by their siblings, unless the whole sphere was lost.
    pub(super) fn exit_code(&self) -> i32 {
        // A status has eight bits: what failed must not look like success because they are zeros.
        match self.whole_exit_code() {
            code if code != 0 && code & 0xff == 0 => 1,
            code => code,
        }
    }

    pub(super) fn whole_exit_code(&self) -> i32 {
        if let Some(code) = self.ending.as_ref().and_then(|ending| ending.code) {
            return code;
        }
        let world = &self.settings.world;
        let code_of = |rank| {
            let is_whole = |replica: &ReplicaId| !self.ends_before_script(*replica);
            let all = || {
                let whole = world.sphere(rank).filter(is_whole);
                whole.map(|replica| &self.processes[world.process(replica).0 as usize])
            };
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
