//! The signals that `redrun` takes, as the root of a job or as its console.

use nix::Result;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Those that are for the program.
const FOR_PROGRAM: [Signal; 3] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];

/// Whether it is for the program.
pub fn is_for_program(signal: i32) -> bool {
    Signal::try_from(signal).is_ok_and(|signal| FOR_PROGRAM.contains(&signal))
}

/// Takes them by this descriptor, and no longer as the system does.
///
/// # Errors
/// When no descriptor can be had.
pub fn catch() -> Result<SignalFd> {
    let ours = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP];
    let mask: SigSet = ours.into_iter().chain(FOR_PROGRAM).collect();
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}
