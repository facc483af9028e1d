//! Lock of a log's writer, in the kernel: it ends with its holder. A reader can query it without taking it, so it
//! disturbs nobody.

use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes the lock. False if another process has it. True where the file system has no locks.
pub(super) fn take(file: &File) -> bool {
    let wanted = whole_file(libc::F_WRLCK);
    !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&wanted)), Err(nix::Error::EAGAIN | nix::Error::EACCES))
}

/// Releases the lock. A child between fork and exec may hold the file, and so the lock, for a moment longer.
pub(super) fn release(file: &File) {
    // Where the file system has no locks there is nothing to release.
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
}

/// True if a process has the lock.
pub(super) fn is_taken(file: &File) -> bool {
    let mut asked = whole_file(libc::F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).is_ok() && asked.l_type != libc::F_UNLCK as libc::c_short
}
