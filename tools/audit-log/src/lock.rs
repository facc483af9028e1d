//! Who writes to a log, as the kernel knows it: a lock that goes when its holder ends, and that can be asked for
//! without being taken, so that a reader is in nobody's way.

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

/// Takes the lock; `false` when another has it. Where there are no locks, nobody has it.
pub(super) fn take(file: &File) -> bool {
    let wanted = whole_file(libc::F_WRLCK);
    !matches!(fcntl(file, FcntlArg::F_OFD_SETLK(&wanted)), Err(nix::Error::EAGAIN | nix::Error::EACCES))
}

/// Gives it back. A process that is just being started may hold the file for a moment longer, and the lock with it.
pub(super) fn release(file: &File) {
    // Where there are no locks there is nothing to give back.
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
}

/// Whether somebody has it.
pub(super) fn is_taken(file: &File) -> bool {
    let mut asked = whole_file(libc::F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).is_ok() && asked.l_type != libc::F_UNLCK as libc::c_short
}
