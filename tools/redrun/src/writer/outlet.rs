//! Destinations of the standard streams of a detachable job.
//!
//! The main thread changes them at any time, even while the writer waits for a terminal or pipe that takes no bytes.

use super::TargetIndex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::stat::SFlag;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Change of a target.
#[derive(Debug)]
pub enum Change {
    /// The target leads to this stream of a console. A target that is a regular file stays as it is.
    To(File),
    /// The console leaves with its streams: a target that is no file or device leads nowhere.
    Away,
}

/// Changes on their way from the main thread to a writer.
#[derive(Clone, Debug)]
pub struct Outlet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Rung by each change.
    bell: EventFd,
}

#[derive(Debug, Default)]
struct State {
    changes: Vec<(TargetIndex, Change)>,
    /// True while the writer keeps output.
    keeps: bool,
    /// True once the target of the last change has no reader any more.
    has_no_reader: bool,
}

impl Outlet {
    pub fn new() -> io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self(Arc::new(Shared { state: Mutex::default(), bell })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues changes, which the writer applies together.
    pub fn change(&self, changes: impl IntoIterator<Item = (TargetIndex, Change)>) {
        self.lock().changes.extend(changes);
        // Fails only if the bell rings already.
        let _ = self.0.bell.write(1);
    }

    /// Takes the queued changes.
    pub fn take(&self) -> Vec<(TargetIndex, Change)> {
        let mut state = self.lock();
        let _ = self.0.bell.read();
        if !state.changes.is_empty() {
            state.has_no_reader = false;
        }
        std::mem::take(&mut state.changes)
    }

    /// Readable when changes are queued.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    /// Waits for a change, at most for `time_max`; `None`: without limit.
    pub fn wait(&self, time_max: Option<Duration>) {
        let timeout = time_max.and_then(|time| PollTimeout::try_from(time).ok()).unwrap_or(PollTimeout::NONE);
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, timeout);
    }

    /// True if output is kept because the console's reader is gone.
    pub fn is_stuck(&self) -> bool {
        let state = self.lock();
        state.keeps && state.has_no_reader && state.changes.is_empty()
    }

    /// Called by the writer: true if it keeps output.
    pub fn record_kept(&self, keeps: bool) {
        self.lock().keeps = keeps;
    }

    /// Called by the writer when its target has no reader any more.
    pub fn record_no_reader(&self) {
        self.lock().has_no_reader = true;
    }
}

/// True for a terminal, pipe or socket: a leaving console takes these along.
pub fn goes_with_console(file: &impl AsFd) -> bool {
    let is_queue = |kind: SFlag| matches!(kind, SFlag::S_IFIFO | SFlag::S_IFSOCK);
    let kind = nix::sys::stat::fstat(file).map(|facts| SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits()));
    nix::unistd::isatty(file).unwrap_or(false) || kind.is_ok_and(is_queue)
}

/// Opens the same terminal or pipe anew, non-blocking for this process only. If that fails, as for another user's
/// terminal or a socket, returns the file itself.
pub fn without_waiting(file: File) -> File {
    if !goes_with_console(&file) {
        return file;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    File::options().write(true).custom_flags(flags).open(path).unwrap_or(file)
}
