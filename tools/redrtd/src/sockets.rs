//! The directory with the agents' sockets of cloneable processes.
//!
//! A killed daemon cannot remove its directory. So a daemon holds a lock on a file in it, which the kernel releases at
//! the daemon's end, and the next daemon of the same user on this host removes unlocked directories. A directory
//! without that file, or made before this boot or on another host that shares the disk, is left alone: its owner is
//! unknown.
//!
//! ```text
//! redrt-Xf3a2Q/         made by `tempfile`, for this user only
//!   lock                held; has the name `new` until it is, so that nobody finds it free before
//!   1234.sock …
//! ```

use anyhow::{Context, Result};
use cloner::control::DIRECTORY_BYTES_MAX;
use nix::unistd::Uid;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use tempfile::{Builder, TempDir};

const PREFIX: &str = "redrt-";
const LOCK: &str = "lock";
/// Shared memory has room when the disk of temporary files is full, and its path is short.
const IN_MEMORY: &str = "/dev/shm";

/// The directory of this daemon.
pub struct Sockets {
    directory: TempDir,
    /// Released after the directory is removed: fields drop in order.
    _lock: File,
}

impl Sockets {
    /// Creates a directory, and removes those of killed daemons.
    pub fn new() -> Result<Self> {
        Self::new_below([&std::env::temp_dir(), Path::new(IN_MEMORY)])
    }

    /// Creates it below the first of these directories that has room.
    fn new_below(parents: [&Path; 2]) -> Result<Self> {
        let boot = boot();
        parents.into_iter().for_each(|parent| sweep(parent, &boot));
        let [usual, other] = parents;
        let made = Self::new_in(usual, &boot).or_else(|error| Self::new_in(other, &boot).or(Err(error)));
        made.with_context(|| format!("Failed to make a directory in {}", usual.display()))
    }

    fn new_in(parent: &Path, boot: &str) -> std::io::Result<Self> {
        let directory = Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        if directory.path().as_os_str().len() > DIRECTORY_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidFilename, "its name is too long for the sockets in it"));
        }
        let new = directory.path().join("new");
        let mut lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        lock.lock()?;
        lock.write_all(boot.as_bytes())?;
        fs::rename(new, directory.path().join(LOCK))?;
        Ok(Self { directory, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Identity of this host's boot: a random number of the kernel.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Removes directories without an owner. Failures are left for the next daemon.
fn sweep(parent: &Path, boot: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named_so = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // `metadata` of a directory entry does not follow symbolic links.
        let is_own = || entry.metadata().is_ok_and(|facts| facts.is_dir() && facts.uid() == Uid::effective().as_raw());
        if is_named_so
            && is_own()
            && let Some(_held) = nobodys(&entry.path(), boot)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The lock of a directory of this boot, if it is free.
fn nobodys(directory: &Path, boot: &str) -> Option<File> {
    let lock = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(directory.join(LOCK)).ok()?;
    let mut made_in = String::new();
    (&lock).take(1 << 10).read_to_string(&mut made_in).ok()?;
    (!boot.is_empty() && made_in == boot && lock.try_lock().is_ok()).then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_moves_if_its_sockets_names_would_be_too_long() {
        let parent = tempfile::tempdir().unwrap();
        let directory_bytes = parent.path().as_os_str().len() + 1;
        let long = |bytes: usize| {
            let long = parent.path().join("x".repeat(bytes - directory_bytes));
            fs::create_dir(&long).unwrap();
            long
        };
        let name_bytes = "/redrt-XXXXXX".len();
        let fits = Sockets::new_in(&long(DIRECTORY_BYTES_MAX - name_bytes), "now").unwrap();
        std::os::unix::net::UnixListener::bind(fits.path().join("new-XXXXXX.sock")).unwrap();
        let longer = long(DIRECTORY_BYTES_MAX - name_bytes + 1);
        let sockets = Sockets::new_below([&longer, parent.path()]).unwrap();
        assert_eq!(sockets.path().parent(), Some(parent.path()));
        assert_eq!(fs::read_dir(&longer).unwrap().count(), 0);
    }

    #[test]
    fn what_nobody_holds_is_removed_and_nothing_else_is() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        let new = |boot: &str| Sockets::new_in(parent, boot).unwrap();
        let left = |sockets: Sockets| {
            fs::write(sockets.path().join("7.sock"), "").unwrap();
            // The daemon is killed: its lock is released.
            sockets.directory.keep()
        };
        let held = new("now");
        let killed = left(new("now"));
        let before = left(new("before"));
        let unmarked = parent.join("redrt-unmarked");
        fs::create_dir(&unmarked).unwrap();
        let begun = parent.join("redrt-begun");
        fs::create_dir(&begun).unwrap();
        fs::write(begun.join("new"), "now").unwrap();
        let other = parent.join("other");
        fs::rename(left(new("now")), &other).unwrap();
        let link = parent.join("redrt-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        sweep(parent, "");
        assert!(killed.exists(), "where the host does not say which it is nothing is known");
        sweep(parent, "now");
        assert!(!killed.exists());
        for kept in [held.path(), &before, &unmarked, &begun, &other, &link] {
            assert!(kept.exists(), "{}", kept.display());
        }
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }
}
