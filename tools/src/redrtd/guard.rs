//! The parent of a daemon on another host. When the daemon is killed, what it leaves behind comes to this process, which
//! ends it: on the host of `redrun`, that does the same.

use super::sweep;
use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

/// Runs this program with these arguments as a child, waits for its end, ends all that is left, returns its exit code.
pub fn guard(arguments: impl Iterator<Item = String>) -> Result<i32> {
    sweep::become_subreaper().context("Failed to become the reaper of orphaned processes")?;
    // The login may end, and its terminal with it; the job goes on.
    // SAFETY: ignoring a signal installs no handler.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }.context("Failed to ignore SIGHUP")?;
    let mut command = Command::new(std::env::current_exe().context("Failed to find this program's own file")?);
    command.args(arguments);
    let parent = std::process::id() as libc::pid_t;
    let set_up = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
        if nix::unistd::getppid().as_raw() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: set_up runs in a forked child: it only makes system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let status = command.spawn().and_then(|mut child| child.wait()).context("Failed to run the daemon")?;
    sweep::kill_descendants();
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
}
