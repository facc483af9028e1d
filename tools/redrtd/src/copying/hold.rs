//! The parent of a process in namespaces of its own.

use super::super::descriptors::{CLONER_FD, CONTROL_FD, WINDOWS_FD};
use super::{Daemon, Reply};
use anyhow::{Context, Result};
use cloner::launch::{self, Inside, KilledBefore, Running};
use nix::sys::signal::{SigHandler, Signal, raise, signal};
use redrt_wire::daemon::Application;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the program and ends as it ends.
pub fn hold(application: &Application, daemon: &mut Daemon) -> Result<Infallible> {
    if let Some(reason) = launch::check_program(&application.program)
        .with_context(|| format!("Failed to read {}", application.program.display()))?
    {
        anyhow::bail!("{reason}, so it cannot be cloned: run it without --spares and spare hosts");
    }
    let mut command = Command::new(&application.program);
    command
        .arg0(&application.arguments[0])
        .args(&application.arguments[1..])
        .current_dir(&application.directory)
        .env_clear()
        .envs(application.environment.iter().map(|(name, value)| (name, value)));
    let running = launch::start(None, |inside: Inside| match leave_open(&inside) {
        Ok(()) => {
            let error = command.exec();
            io::Error::new(error.kind(), format!("Failed to run {}: {error}", application.program.display()))
        }
        Err(error) => error,
    });
    let running = unless_killed(running)?;
    daemon.say(&Reply::Running { pid: running.pid as i32 })?;
    stay(running)
}

/// Gives the agent's socket the number by which the program knows it, and has all descriptors closed that are not the
/// program's. What the user's shell has left open to redrun could not be carried by a copy.
fn leave_open(inside: &Inside) -> io::Result<()> {
    // SAFETY: dup2 takes any numbers; nothing in this process, which is about to become another program, uses that one.
    if unsafe { libc::dup2(inside.listener.as_fd().as_raw_fd(), CLONER_FD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    for (first, last) in [(3, CONTROL_FD - 1), (WINDOWS_FD + 1, RawFd::MAX)] {
        // SAFETY: sets flags of descriptors.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A process that was killed before it ran is lost as one that was killed later: this one ends in the same way.
pub fn unless_killed(running: io::Result<Running>) -> io::Result<Running> {
    if let Err(error) = &running
        && error.get_ref().is_some_and(|inner| inner.is::<KilledBefore>())
    {
        end_by(Signal::SIGKILL);
    }
    running
}

/// Waits for the end of the process and ends in the same way.
pub fn stay(running: Running) -> Result<Infallible> {
    // Whatever this process keeps open would seem to be kept open by the program.
    // SAFETY: nothing here uses a descriptor any more.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    let code = running.wait()?;
    if let Some(killer) = (code > 128).then(|| Signal::try_from(code - 128).ok()).flatten() {
        end_by(killer);
    }
    // Without returning to those who think that they have descriptors.
    std::process::exit(code)
}

/// Ends this process by a signal. Returns if it is one that ends no process.
fn end_by(killer: Signal) {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: the default action installs no handler.
    let _ = unsafe { signal(killer, SigHandler::SigDfl) };
    let _ = raise(killer);
}
