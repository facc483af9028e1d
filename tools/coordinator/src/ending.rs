//! The end of the job, and its exit code.

use super::{Coordinator, EndReason, Output, Process, Report, SIGTERM};
use crate::line::StoreWait;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::line::Generation;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time between the decision to end a job and SIGKILL. It lets other processes that fail of the same cause do so, and
/// lets all of them print their last messages.
pub const KILL_GRACE: Duration = Duration::from_millis(100);
/// Time between SIGTERM, at the user's first signal or the timeout, and SIGKILL.
pub const SIGNAL_GRACE: Duration = Duration::from_secs(5);
/// Time after SIGKILL in which the daemons report the exits. After it, processes count as killed.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// Exit code when the reader of standard output has gone: that of a program that was ended by SIGPIPE.
pub const OUTPUT_CLOSED_CODE: i32 = 128 + 13;
/// Exit code when a process uses another MPI: that of wrong usage.
pub const OTHER_MPI_CODE: i32 = 2;
/// Exit code when output could not be written: `EX_IOERR` of sysexits.h.
pub const OUTPUT_FAILED_CODE: i32 = 74;

/// The end of a job, from the decision on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ending {
    /// Exit code of the job. None if it follows from the exits of the processes.
    pub code: Option<i32>,
    /// Time at which the processes are to be killed, or were.
    pub kill_at: Duration,
    /// True once SIGKILL was ordered.
    pub killed: bool,
    /// Number of the user's signals so far. The second one ends the grace.
    pub interrupt_count: u32,
    /// The checkpoint from which the job starts again, and how often it was started from it, this time included. The
    /// number is 0 if that checkpoint cannot be loaded.
    pub restart: Option<(Generation, u32)>,
    /// The wait for the store before a restart. None until all processes are gone.
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

    /// Begins the end of the job. Only the first reason is reported, so later calls do nothing.
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

    /// The code of `MPI_Abort`, of the signal or of the timeout if there was one; else the first code other than 0, by
    /// virtual rank. Exits of lost replicas do not count, because their siblings did the work, unless the whole sphere
    /// was lost.
    pub(super) fn exit_code(&self) -> i32 {
        // The system passes on only the low eight bits of a status. A failure whose low bits are zero must not look
        // like success.
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
            // A process that exits with status 0 in the middle of the job did not succeed.
            if all_lost { Some(code.unwrap_or(1)) } else { code }
        };
        let code = (0..world.rank_count()).find_map(|rank| code_of(VirtualRank(rank))).unwrap_or(0);
        if self.ending.is_some() && code == 0 { 1 } else { code }
    }
}
