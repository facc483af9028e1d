//! Parent of a daemon. It ends orphans of a killed daemon, which become its children.
//!
//! ```text
//!   redrun ── guard ── daemon ── processes of the job ── what they have started
//! ```
//! Each of the three ends everything below it when it ends. The guard learns of the end above by SIGTERM, the daemon by
//! SIGTERM and by its connection. So nothing is left when any two of them are killed, or when one is killed while
//! another is stopped. After a successful job, processes that moved to sessions of their own live on.

use anyhow::{Context, Result};
use host_processes::sweep;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getppid};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time for a daemon to leave once the guard was told to. The daemon itself gives those below it up to three seconds.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(4);
/// Exit code if the daemon had to be killed.
const KILLED_CODE: i32 = 128 + libc::SIGKILL;

/// Runs this program with these arguments as a child. After its end all descendants are ended. Returns its exit code.
pub fn guard(arguments: impl Iterator<Item = OsString>) -> Result<i32> {
    sweep::become_subreaper().context("Failed to become the reaper of orphaned processes")?;
    // The job outlives the login and its terminal.
    // SAFETY: - SIG_IGN installs no handler, so nothing can run in signal context.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }.context("Failed to ignore SIGHUP")?;
    let awaited = SigSet::from_iter([Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGCONT]);
    // A batch system may send signals for the program to all processes of a job.
    SigSet::from_iter([Signal::SIGUSR1, Signal::SIGUSR2]).thread_block()?;
    awaited.thread_block()?;
    let above = Above::watched()?;
    let signals = SignalFd::with_flags(&awaited, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut command = installation::command("redrtd").context("Failed to find this program's own file")?;
    command.args(arguments);
    let parent = std::process::id() as libc::pid_t;
    let set_up = move || {
        SigSet::empty().thread_set_mask()?;
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
        if getppid().as_raw() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: - `set_up` runs in a forked child: it makes only system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let mut daemon = command.spawn().context("Failed to run the daemon")?;
    let ended = wait(&mut daemon, &signals, above).context("Failed to wait for the daemon");
    // A daemon that ended successfully has left only what may live on.
    sweep::kill_descendants(matches!(&ended, Ok(Some(status)) if status.success()));
    Ok(ended?.map_or(KILLED_CODE, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())))
}

/// Waits for the daemon's end. `None` if it does not end although it was told to.
fn wait(daemon: &mut Child, signals: &SignalFd, above: Above) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(daemon.id() as i32);
    let mut leave_by: Option<Instant> = None;
    loop {
        if let Some(status) = daemon.try_wait()? {
            return Ok(Some(status));
        }
        let left = leave_by.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let timeout = left.map_or(PollTimeout::NONE, |left| PollTimeout::from(left.as_millis() as u16 + 1));
        match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            let is_to_leave = signal.ssi_signo == Signal::SIGTERM as u32 || above.has_ended();
            if is_to_leave && leave_by.is_none() {
                leave_by = Some(Instant::now() + LEAVE_TIME_MAX);
                // Not reaped yet, so the process number is still the daemon's.
                let _ = kill(pid, Signal::SIGTERM);
                let _ = kill(pid, Signal::SIGCONT);
            }
        }
    }
}

/// The process that started the guard: `redrun`, or the launcher of another host.
///
/// The trap: a stopped guard does not get the SIGTERM of its parent's end. If the daemon is stopped too, no process is
/// left to end anything. SIGCONT is the one signal that resumes a stopped process.
#[derive(Clone, Copy)]
struct Above(Option<Pid>);

impl Above {
    /// Arranges for SIGCONT at the parent's end. A guard whose launcher asked for no signal ignores the launcher's end:
    /// the daemon's connection shows the coordinator's.
    fn watched() -> Result<Self> {
        if nix::sys::prctl::get_pdeathsig().context("Failed to ask for the signal of the parent's end")?.is_none() {
            return Ok(Self(None));
        }
        let parent = getppid();
        nix::sys::prctl::set_pdeathsig(Signal::SIGCONT).context("Failed to ask for the parent's end")?;
        // The parent may have ended before; then its own death signal applied.
        Ok(Self(Some(parent)))
    }

    fn has_ended(self) -> bool {
        self.0.is_some_and(|parent| getppid() != parent)
    }
}

/// The guard of this daemon, to be woken at the daemon's end: it may be stopped.
#[derive(Debug)]
pub struct Guard(Pid);

impl Guard {
    pub fn of_this_process() -> Self {
        Self(getppid())
    }

    /// Resumes the guard, if it still exists.
    pub fn wake(&self) {
        if getppid() == self.0 {
            let _ = kill(self.0, Signal::SIGCONT);
        }
    }
}
