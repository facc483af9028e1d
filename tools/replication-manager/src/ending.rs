//! The course of the job: it is launched, runs, is released and ends. At the end, its exit code.

use super::effect::End;
use super::members::Members;
use super::{Back, EndReason, StoreWait};
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::Generation;
use redrt_wire::exit::Exit;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time between the decision to end a job and SIGKILL. It lets other processes that fail of the same cause do so, and
/// lets all of them print their last messages.
pub const KILL_GRACE: Duration = Duration::from_millis(100);
/// Time between SIGTERM, at the user's first signal or the timeout, and SIGKILL.
pub const SIGNAL_GRACE: Duration = Duration::from_secs(5);
/// Time between SIGTERM at the timeout and SIGKILL.
const TIMEOUT_GRACE: Duration = Duration::from_secs(1);
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
struct Ending {
    /// Exit code of the job. None if it follows from the exits of the processes.
    code: Option<i32>,
    /// Time at which the processes are to be killed, or were.
    kill_at: Duration,
    /// True once SIGKILL was ordered.
    killed: bool,
    restart: Option<Restart>,
    /// The wait for the store before a restart. None until all processes are gone.
    store: Option<StoreWait>,
}

/// A start from a checkpoint, when all processes are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Restart {
    pub generation: Generation,
    /// Number of starts from it because processes ended, this one included. None if it cannot be loaded.
    pub count: Option<u32>,
    /// True if newer ones do not take its place.
    pub passes_newer: bool,
}

/// An action that is due in a job that is ending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Kill all processes.
    Kill,
    /// Nothing more will be heard of the killed processes.
    Farewell,
}

/// The state of the job as a whole, which the crate's diagram shows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Course {
    have_met: bool,
    is_released: bool,
    ending: Option<Ending>,
    is_finished: bool,
    /// Number of the user's signals so far. The second one ends the grace.
    interrupt_count: u32,
}

impl Course {
    /// Returns true from the exchange of cards until the release or the begin of the end.
    pub(super) fn is_under_way(&self) -> bool {
        self.have_met && !self.is_released && self.ending.is_none()
    }

    /// Returns true once the processes know each other.
    pub(super) fn have_met(&self) -> bool {
        self.have_met
    }

    /// Returns true once all live processes have finalized and were told so.
    pub(super) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Returns true from the decision to end the job before its processes do.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns true if no process needs another any more: the job was released, or is ending.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_released || self.is_ending()
    }

    /// Returns true once all processes were killed.
    pub(super) fn are_killed(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.killed)
    }

    /// Returns true when all processes are gone.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The exit code that was decided. None before the end, and if it follows from the exits of the processes.
    pub(super) fn code(&self) -> Option<i32> {
        self.ending.as_ref().and_then(|ending| ending.code)
    }

    /// The state of the job in one word.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match (&self.ending, self.is_released, self.have_met) {
            (Some(_), _, _) => "ending",
            (None, true, _) => "finalized",
            (None, false, true) => "running",
            (None, false, false) => "launching",
        }
    }

    /// All processes know each other.
    pub(super) fn meet(&mut self) {
        self.have_met = true;
    }

    /// All live processes have finalized.
    pub(super) fn release(&mut self) {
        self.is_released = true;
    }

    /// All processes are gone, and the exit code stands.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Begins the end of the job, unless it has begun.
    pub(super) fn end(&mut self, now: Duration, end: &End) {
        let restart = match end.reason {
            EndReason::GoesBack { back: Back { generation, count, passes_newer }, .. } => {
                Some(Restart { generation, count: Some(count), passes_newer })
            }
            EndReason::Unloadable { generation, .. } => Some(Restart { generation, count: None, passes_newer: false }),
            _ => None,
        };
        let ending = Ending { code: end.code, kill_at: now + end.grace, killed: false, restart, store: None };
        self.ending.get_or_insert(ending);
    }

    /// The end of the job at its time limit, if that has passed.
    pub(super) fn timed_out(&self, now: Duration, timeout: Option<Duration>) -> Option<End> {
        let timeout = timeout.filter(|timeout| self.ending.is_none() && now >= *timeout)?;
        Some(End { reason: EndReason::TimedOut { timeout }, code: Some(124), grace: TIMEOUT_GRACE })
    }

    /// Counts a signal of the user. Returns true for the first one, which replaces another reason to end.
    pub(super) fn interrupt(&mut self) -> bool {
        self.interrupt_count += 1;
        let is_first = self.interrupt_count == 1;
        if is_first {
            self.ending = None;
        }
        is_first
    }

    /// The action that is due.
    pub(super) fn due(&self, now: Duration) -> Option<Due> {
        let ending = self.ending.as_ref()?;
        match ending.killed {
            false => (now >= ending.kill_at).then_some(Due::Kill),
            true => (now >= ending.kill_at + FAREWELL).then_some(Due::Farewell),
        }
    }

    /// Time of the next action in a job that is ending. None if it waits for something else.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.ending.as_ref()? {
            Ending { store: Some(store), .. } => store.deadline(),
            Ending { killed, kill_at, .. } => Some(if *killed { *kill_at + FAREWELL } else { *kill_at }),
        }
    }

    /// All processes are being killed.
    pub(super) fn kill(&mut self, now: Duration) {
        if let Some(ending) = &mut self.ending {
            (ending.killed, ending.kill_at) = (true, now);
        }
    }

    /// The checkpoint from which the job starts again.
    pub(super) fn restart(&self) -> Option<Restart> {
        self.ending.as_ref()?.restart
    }

    /// Waits for the store. Returns true once, when the user is to be told of it.
    pub(super) fn await_store(&mut self, now: Duration) -> bool {
        let Some(ending) = &mut self.ending else { return false };
        let wait = ending.store.get_or_insert(StoreWait::Since(now));
        let is_told = wait.deadline().is_some_and(|deadline| now >= deadline);
        if is_told {
            *wait = StoreWait::Told;
        }
        is_told
    }

    /// The exit code of the job: that of `MPI_Abort`, of the signal or of the timeout if there was one; else the first
    /// code other than 0, by virtual rank. Exits of lost replicas do not count, because their siblings did the work,
    /// unless the whole sphere was lost.
    pub(super) fn exit_code(&self, members: &Members) -> i32 {
        // The system passes on only the low eight bits of a status. A failure whose low bits are zero must not look
        // like success.
        match self.whole_exit_code(members) {
            code if code != 0 && code & 0xff == 0 => 1,
            code => code,
        }
    }

    fn whole_exit_code(&self, members: &Members) -> i32 {
        if let Some(code) = self.code() {
            return code;
        }
        let code_of = |rank| {
            let is_whole = |replica: &ReplicaId| !members.ends_before_script(*replica);
            let all = || members.world().sphere(rank).filter(is_whole).map(|replica| members.of(replica));
            let sphere = || all().filter(|process| !process.is_vacant);
            let all_lost = sphere().all(|process| process.lost);
            let counted = sphere().filter(|process| (!process.lost || all_lost) && !process.killed_at_end);
            let code = counted.filter_map(|process| process.exit).map(Exit::code).find(|code| *code != 0);
            // A process that exits with status 0 in the middle of the job did not succeed.
            if all_lost { Some(code.unwrap_or(1)) } else { code }
        };
        let code = members.ranks().find_map(code_of).unwrap_or(0);
        if self.is_ending() && code == 0 { 1 } else { code }
    }
}
