//! Reopening of files that the program has open, by their name or by a descriptor.

use super::agree::errno;
use super::paths;
use super::table::OPENING;
use std::ffi::c_int;
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Opens an existing file again, without `O_APPEND`: appended bytes are written by position.
pub fn open_as_allowed(path: &Path, flags: c_int) -> Result<File, c_int> {
    let flags = flags & !(OPENING | libc::O_APPEND) | libc::O_CLOEXEC;
    // SAFETY: - zero-terminated: a CString, which lives through the call.
    let file = unsafe { libc::open(paths::as_c(path).as_ptr(), flags) };
    // SAFETY: - open, and owned by this value alone: open has just made it.
    if file < 0 { Err(errno()) } else { Ok(File::from(unsafe { OwnedFd::from_raw_fd(file) })) }
}

/// Opens an existing file again, also if its owner may not open it any more, or never could: a file that was made
/// read-only is written by the descriptor that made it. The owner gets the permission for a moment.
pub fn open_by_name(path: &Path, flags: c_int) -> Result<File, c_int> {
    let opened = open_as_allowed(path, flags);
    let Ok(status) = std::fs::metadata(path) else { return opened };
    // SAFETY: - touches no memory: geteuid takes no arguments.
    let is_own = status.is_file() && status.uid() == unsafe { libc::geteuid() };
    if !matches!(opened, Err(libc::EACCES)) || !is_own {
        return opened;
    }
    let allow = |mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    if allow(status.mode() | libc::S_IRUSR | libc::S_IWUSR).is_err() {
        return opened;
    }
    let opened = open_as_allowed(path, flags);
    let _ = allow(status.mode());
    opened
}

/// Opens the file of a descriptor again: for reading and writing if that is allowed, else with `flags`.
pub fn open_apart(fd: RawFd, flags: c_int) -> Option<File> {
    let path = format!("/proc/self/fd/{fd}");
    let open = |writes: bool, reads: bool| OpenOptions::new().read(reads).write(writes).open(&path).ok();
    let access = flags & libc::O_ACCMODE;
    open(true, true).or_else(|| open(access != libc::O_RDONLY, access != libc::O_WRONLY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_opens_a_file_again_that_was_made_for_reading_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "bytes").unwrap();
        for mode in [0o444, 0o400, 0] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            if open_as_allowed(&path, libc::O_RDWR).is_ok() {
                return println!("skipped: this user may open any file");
            }
            let file = open_by_name(&path, libc::O_RDWR | libc::O_TRUNC | libc::O_APPEND).unwrap();
            assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().mode() & 0o777), (5, mode));
        }
        assert_eq!(open_by_name(&directory.path().join("none"), libc::O_RDONLY).unwrap_err(), libc::ENOENT);
    }
}
