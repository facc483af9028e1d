//! Parent of a process in namespaces of its own.

use super::super::descriptors::{CLONER_FD, CONTROL_FD, WINDOWS_FD};
use super::{HelperConnection, Reply};
use anyhow::{Context, Result};
use cloner::launch::{self, Inside, KilledBefore, Running};
use nix::sys::signal::{SigHandler, Signal, raise, signal};
use redrt_wire::daemon::Application;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the program, and ends as it ends.
pub fn hold(application: &Application, daemon: &mut HelperConnection) -> Result<Infallible> {
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

/// Moves the agent's socket to the descriptor number that the program expects. All descriptors that are not the
/// program's get close-on-exec: a copy could not carry descriptors that the user's shell left open.
fn leave_open(inside: &Inside) -> io::Result<()> {
    // SAFETY: - no owned descriptor has the number `CLONER_FD` in this process, which is about to exec.
    //         - the listener is open: `inside` owns it.
    if unsafe { libc::dup2(inside.listener.as_fd().as_raw_fd(), CLONER_FD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    for (first, last) in [(3, CONTROL_FD - 1), (WINDOWS_FD + 1, RawFd::MAX)] {
        // SAFETY: - sets close-on-exec flags only: all descriptors stay valid until exec.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A process killed before it ran counts like one killed later: this process ends by the same signal.
pub fn unless_killed(running: io::Result<Running>) -> io::Result<Running> {
    if let Err(error) = &running
        && error.get_ref().is_some_and(|inner| inner.is::<KilledBefore>())
    {
        end_by(Signal::SIGKILL);
    }
    running
}

/// Waits for the end of the process, and ends likewise.
pub fn stay(running: Running) -> Result<Infallible> {
    // Descriptors kept here would keep the program's pipes open after its end.
    // SAFETY: - nothing here uses a descriptor any more: `wait` knows the process by its number.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    let code = running.wait()?;
    if let Some(killer) = (code > 128).then(|| Signal::try_from(code - 128).ok()).flatten() {
        end_by(killer);
    }
    // Does not return: callers still own descriptors that are closed now.
    std::process::exit(code)
}

/// Ends this process by a signal. Returns if the signal ends no process.
fn end_by(killer: Signal) {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: - SIG_DFL installs no handler, so nothing can run in signal context.
    let _ = unsafe { signal(killer, SigHandler::SigDfl) };
    let _ = raise(killer);
}
