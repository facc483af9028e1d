//! A thread that is held by ptrace, and goes on by single instructions.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// When it is dropped the thread goes on, as it does when this process ends.
pub struct Held {
    thread: Pid,
    /// Has come for the thread, and is given to it when it goes on.
    signal: Option<Signal>,
    has_ended: bool,
}

impl Held {
    /// Stops the thread of this id.
    pub fn seize(thread: Pid) -> Result<Self> {
        ptrace::seize(thread, ptrace::Options::empty()).with_context(|| format!("Failed to hold thread {thread}"))?;
        let mut held = Self { thread, signal: None, has_ended: false };
        ptrace::interrupt(thread).context("Failed to stop it")?;
        held.wait()?;
        Ok(held)
    }

    /// The thread.
    pub fn thread(&self) -> Pid {
        self.thread
    }

    /// It makes one instruction; a system call is one.
    pub fn step(&mut self) -> Result<()> {
        loop {
            ptrace::step(self.thread, self.signal.take()).context("Failed to step")?;
            // Something else that stops it comes between.
            if self.wait()? {
                return Ok(());
            }
        }
    }

    /// Waits until it stands; whether that is because it has made its instruction.
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
            // It has ended, or it goes on when this process does.
            let _ = ptrace::detach(self.thread, self.signal.take());
        }
    }
}
