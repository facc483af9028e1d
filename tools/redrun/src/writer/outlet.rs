//! Where the standard streams of a job lead that can be detached from its terminal.
//!
//! The main thread says so at any time, also while the thread that writes waits for a terminal or pipe that takes
//! nothing.

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

/// What becomes of a target.
#[derive(Debug)]
pub enum Change {
    /// It leads to this stream of a console. A regular file stays what it is.
    To(File),
    /// The console takes its streams along: unless it is a file or device, it leads nowhere.
    Away,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Outlet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Rung by a change.
    bell: EventFd,
}

#[derive(Debug, Default)]
struct State {
    changes: Vec<(TargetIndex, Change)>,
    /// Something is kept that nobody has seen.
    keeps: bool,
    /// What the last change led to takes nothing any more.
    has_no_reader: bool,
}

impl Outlet {
    /// Without changes.
    pub fn new() -> io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self(Arc::new(Shared { state: Mutex::default(), bell })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A target leads elsewhere.
    pub fn change(&self, target: TargetIndex, change: Change) {
        self.lock().changes.push((target, change));
        // Full only when it rings already.
        let _ = self.0.bell.write(1);
    }

    /// The changes since.
    pub fn take(&self) -> Vec<(TargetIndex, Change)> {
        let mut state = self.lock();
        let _ = self.0.bell.read();
        if !state.changes.is_empty() {
            state.has_no_reader = false;
        }
        std::mem::take(&mut state.changes)
    }

    /// Readable when there are changes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    /// Waits for one, no longer than this.
    pub fn wait(&self, time_max: Option<Duration>) {
        let timeout = time_max.and_then(|time| PollTimeout::try_from(time).ok()).unwrap_or(PollTimeout::NONE);
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, timeout);
    }

    /// Whether something is kept that the console does not take, since its reader is gone.
    pub fn is_stuck(&self) -> bool {
        let state = self.lock();
        state.keeps && state.has_no_reader && state.changes.is_empty()
    }

    /// The thread says whether it keeps something.
    pub fn note_kept(&self, keeps: bool) {
        self.lock().keeps = keeps;
    }

    /// The thread could not write any more.
    pub fn note_no_reader(&self) {
        self.lock().has_no_reader = true;
    }
}

/// Whether this is a terminal, pipe or socket, which a console takes along when it goes.
pub fn goes_with_console(file: &impl AsFd) -> bool {
    let is_queue = |kind: SFlag| matches!(kind, SFlag::S_IFIFO | SFlag::S_IFSOCK);
    let kind = nix::sys::stat::fstat(file).map(|facts| SFlag::from_bits_truncate(facts.st_mode & SFlag::S_IFMT.bits()));
    nix::unistd::isatty(file).unwrap_or(false) || kind.is_ok_and(is_queue)
}

/// The same terminal or pipe, opened anew: writing to it returns at once if it takes nothing, for this process only.
/// Where that cannot be had, as of somebody else's terminal or of a socket, the file itself.
pub fn without_waiting(file: File) -> File {
    if !goes_with_console(&file) {
        return file;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    File::options().write(true).custom_flags(flags).open(path).unwrap_or(file)
}
