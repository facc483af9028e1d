//! Processes of this host: notice of their end, the end of all their descendants, prompt scheduling.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod prompt;
pub mod sweep;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A descriptor that becomes readable when the process has ended.
pub fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: - pidfd_open takes two integers, and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: - pidfd_open has just made this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(fd)
}
