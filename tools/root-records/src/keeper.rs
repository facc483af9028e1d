//! Keeps a job's named pipes open while it has no root: a pipe that no process has open loses its contents.
//!
//! ```text
//!   root ── starts ─▶ keeper       opens the pipes for reading, reports it, and waits
//!   root is killed                 the pipes have no writer: the lease of the root begins
//!   another root opens them        the lease has ended: the keeper waits for the end of that root
//!   the last root removes them     the keeper ends, as it does when a lease has run out, or a killed root has left no
//!                                  journal
//! ```
//! The keeper is a process of its own: daemons may end before all output is shown, and need not be on this host.

use crate::ledger;
use anyhow::{Context, Result, ensure};
use control_network::launcher;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// First argument of `redrtd` as a keeper. A directory and milliseconds follow.
pub const KEEPER_FLAG: &str = "--keep";
/// Suffix of the pipes' names.
pub const PIPE: &str = ".pipe";

/// Starts a keeper for the pipes in this directory, which this process has open. Blocks until the keeper has them too.
///
/// # Errors
/// When the keeper cannot be started, or ends.
pub fn start(directory: &Path, lease: Duration) -> Result<Child> {
    let executable = launcher::daemon_executable()?;
    let mut command = Command::new(&executable);
    command.arg(KEEPER_FLAG).arg(directory).arg(lease.as_millis().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    launcher::runs_apart(&mut command);
    let mut keeper = command.spawn().with_context(|| format!("Failed to start {}", executable.display()))?;
    let mut word = Vec::new();
    let said = keeper.stdout.take().map_or(Ok(0), |mut said| said.read_to_end(&mut word));
    said.context("Failed to hear of the process that keeps its pipes")?;
    ensure!(!word.is_empty(), "the process that keeps its pipes has ended");
    Ok(keeper)
}

/// Acts as a keeper: `redrtd --keep DIRECTORY MILLISECONDS`.
///
/// # Errors
/// When the pipes cannot be opened or watched, or the root has ended before.
pub fn keep(directory: &Path, lease: Duration) -> Result<()> {
    let root = nix::unistd::getppid();
    // Signals of a terminal or a batch system to all processes are for the root.
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: - SIG_IGN installs no handler, so nothing can run in signal context.
        unsafe { signal(ignored, SigHandler::SigIgn) }.context("Failed to ignore a signal")?;
    }
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).context("Failed to watch a directory")?;
    let opened_or_gone = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_DELETE;
    watch.add_watch(directory, opened_or_gone).with_context(|| format!("Failed to watch {}", directory.display()))?;
    let pipes = open(directory).with_context(|| format!("Failed to open the pipes in {}", directory.display()))?;
    let first = pipes.first().context("there are no pipes")?;
    // A pipe opened without a writer would never report a hang-up, so the root must be alive.
    ensure!(nix::unistd::getppid() == root, "the root has ended");
    say::line("kept")?;
    nix::unistd::dup2_stdout(File::open("/dev/null")?)?;
    let mut lease_end = None;
    let journal = ledger::journal_path(directory);
    while first.metadata()?.nlink() > 0 {
        let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN), PollFd::new(first.as_fd(), PollFlags::empty())];
        poll(&mut fds[1..], PollTimeout::ZERO)?;
        let has_writer = !fds[1].any().unwrap_or(false);
        let timeout = match has_writer {
            true => {
                lease_end = None;
                PollTimeout::NONE
            }
            false => {
                let left = lease_end.get_or_insert(Instant::now() + lease).saturating_duration_since(Instant::now());
                if left.is_zero() || !journal.exists() {
                    break;
                }
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            }
        };
        let watched = if has_writer { &mut fds[..] } else { &mut fds[..1] };
        match poll(watched, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("Failed to wait for a root"),
        }
        while watch.read_events().is_ok() {}
    }
    Ok(())
}

fn open(directory: &Path) -> std::io::Result<Vec<File>> {
    let entries = std::fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    let pipes = entries.iter().filter(|entry| entry.file_name().as_encoded_bytes().ends_with(PIPE.as_bytes()));
    // Opens without waiting for a writer.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    pipes.map(|entry| options.open(entry.path())).collect()
}
