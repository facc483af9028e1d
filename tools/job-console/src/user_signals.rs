//! Signals that `redrun` handles, as the coordinator of a job or as its console.

use nix::Result;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals for the program.
const FOR_PROGRAM: [Signal; 3] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];

/// True for signals that are passed on to the program.
pub fn is_for_program(signal: i32) -> bool {
    Signal::try_from(signal).is_ok_and(|signal| FOR_PROGRAM.contains(&signal))
}

/// Blocks the signals, and delivers them through this descriptor instead.
///
/// # Errors
/// When no descriptor is available.
pub fn catch() -> Result<SignalFd> {
    let ours = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP];
    let mask: SigSet = ours.into_iter().chain(FOR_PROGRAM).collect();
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}
