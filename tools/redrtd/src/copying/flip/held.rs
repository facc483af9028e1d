//! A thread held by ptrace, which executes single instructions.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A held thread. It goes on when this is dropped, or when this process ends.
pub struct Held {
    thread: Pid,
    /// Signal that arrived meanwhile; delivered when the thread goes on.
    signal: Option<Signal>,
    has_ended: bool,
}

impl Held {
    pub fn seize(thread: Pid) -> Result<Self> {
        ptrace::seize(thread, ptrace::Options::empty()).with_context(|| format!("Failed to hold thread {thread}"))?;
        let mut held = Self { thread, signal: None, has_ended: false };
        ptrace::interrupt(thread).context("Failed to stop it")?;
        held.wait()?;
        Ok(held)
    }

    pub fn thread(&self) -> Pid {
        self.thread
    }

    /// Executes one instruction; a system call counts as one.
    pub fn step(&mut self) -> Result<()> {
        loop {
            ptrace::step(self.thread, self.signal.take()).context("Failed to step")?;
            // Another stop may come first.
            if self.wait()? {
                return Ok(());
            }
        }
    }

    /// Waits until the thread stops. True if the stop ends its step.
    fn wait(&mut self) -> Result<bool> {
        loop {
            match waitpid(self.thread, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => return Ok(true),
                Ok(WaitStatus::Stopped(_, signal)) => {
                    self.signal = Some(signal);
                    return Ok(false);
                }
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD | Errno::ESRCH) => {
                    self.has_ended = true;
                    bail!("the thread has ended");
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(false),
                Err(error) => return Err(error).context("Failed to wait for it"),
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.has_ended {
            // On failure the thread has ended, or goes on when this process ends.
            let _ = ptrace::detach(self.thread, self.signal.take());
        }
    }
}
