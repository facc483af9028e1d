//! Keeps a job's named pipes open while it has no coordinator: a pipe that no process has open loses its contents.
//!
//! ```text
//!   coordinator ── starts ─▶ pipe holder   opens the pipes for reading, reports it, and waits
//!   coordinator is killed                  the pipes have no writer: the coordinator's lease begins
//!   another coordinator opens them         the lease has ended: it waits for the end of that coordinator
//!   the last coordinator removes them      it ends, as it does when a lease has run out, or a killed coordinator has
//!                                          left no journal
//! ```
//! The pipe holder is a process of its own: daemons may end before all output is shown, and need not be on this host.

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

/// First argument of `redrtd` as a pipe holder. A directory and milliseconds follow.
pub const PIPE_HOLDER_FLAG: &str = "--keep";
/// Suffix of the pipes' names.
pub const PIPE: &str = ".pipe";

/// Starts a pipe holder for the pipes in this directory, which this process has open. Blocks until the pipe holder has
/// them too.
///
/// # Errors
/// When the pipe holder cannot be started, or ends.
pub fn start(directory: &Path, lease: Duration) -> Result<Child> {
    let executable = launcher::daemon_executable()?;
    let mut command = Command::new(&executable);
    command.arg(PIPE_HOLDER_FLAG).arg(directory).arg(lease.as_millis().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    launcher::runs_apart(&mut command);
    let mut pipe_holder = command.spawn().with_context(|| format!("Failed to start {}", executable.display()))?;
    let mut word = Vec::new();
    let said = pipe_holder.stdout.take().map_or(Ok(0), |mut said| said.read_to_end(&mut word));
    said.context("Failed to hear of the process that keeps its pipes")?;
    ensure!(!word.is_empty(), "the process that keeps its pipes has ended");
    Ok(pipe_holder)
}

/// Acts as a pipe holder: `redrtd --keep DIRECTORY MILLISECONDS`.
///
/// # Errors
/// When the pipes cannot be opened or watched, or the coordinator has ended before.
pub fn keep(directory: &Path, lease: Duration) -> Result<()> {
    let coordinator = nix::unistd::getppid();
    // Signals of a terminal or a batch system to all processes are for the coordinator.
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: - SIG_IGN installs no handler, so nothing can run in signal context.
        unsafe { signal(ignored, SigHandler::SigIgn) }.context("Failed to ignore a signal")?;
    }
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).context("Failed to watch a directory")?;
    let opened_or_gone = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_DELETE;
    watch.add_watch(directory, opened_or_gone).with_context(|| format!("Failed to watch {}", directory.display()))?;
    let pipes = open(directory).with_context(|| format!("Failed to open the pipes in {}", directory.display()))?;
    let first = pipes.first().context("there are no pipes")?;
    // A pipe opened without a writer would never report a hang-up, so the coordinator must be alive.
    ensure!(nix::unistd::getppid() == coordinator, "the coordinator has ended");
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
            Err(error) => return Err(error).context("Failed to wait for a coordinator"),
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
