//! Signals of the user, and the bell of threads.

use background_worker::Bell;
use job_console::user_signals::is_for_program;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signalfd::SignalFd;
use std::os::fd::AsFd;

/// Sources that wake the loop, besides the job's hosts and streams.
pub(super) struct Wakers {
    pub signals: SignalFd,
    /// Rung by the writing threads.
    pub bell: Bell,
}

impl Wakers {
    pub fn fds(&self) -> [PollFd<'_>; 2] {
        [self.signals.as_fd(), self.bell.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN))
    }

    /// Silences the bell. The work that rang it is looked at next.
    pub fn silence(&self) {
        let _ = self.bell.read();
    }

    /// The next signal, if one is pending.
    pub fn next_signal(&self) -> Option<i32> {
        Some(self.signals.read_signal().ok()??.ssi_signo as i32)
    }
    /// The next signal that asks this program to end, if one is pending.
    pub fn ending_signal(&self) -> Option<i32> {
        std::iter::from_fn(|| self.next_signal()).find(|signal| !is_for_program(*signal))
    }
}
