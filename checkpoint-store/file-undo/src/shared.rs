//! An undo log that several hosts share, for the file systems that they share.
//!
//! ```text
//!   hosts/root        file systems that the coordinator of the job sees
//!   hosts/3           file systems that host 3 sees; exists if host 3 sees this directory
//!   hosts/3.apart     exists if host 3 has changed files on a network file system outside this log
//!   log, since-4/, …  as in any undo log
//! ```
//! If hosts keep checkpoints on their own disks, each has a log of its own, which is lost together with its host. But
//! changes of its processes on file systems of other hosts remain, and must be undone. So changes to a shared file
//! system are recorded on a shared one: any host that sees the change sees the record, without help from the host that
//! made it. One log for all hosts keeps records of a file in one order, whichever host changes it. The coordinator
//! undoes this log once, before any process is started.
//!
//! A file belongs to this log if its file system is seen by the coordinator, and by another host than the one that
//! changes the file.

use crate::directory::{DIRECTORY_MODE, Directory, FILE_MODE};
use crate::disk::device_of;
use crate::files::Subject;
use crate::mounts::Mounts;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const HOSTS: &str = "hosts";
const COORDINATOR: &str = "root";
const APART: &str = "apart";

/// The directory of the shared log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedLog(PathBuf);

impl SharedLog {
    /// The log at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The undo log within it.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory::at(self.0.clone())
    }

    fn hosts(&self) -> PathBuf {
        self.0.join(HOSTS)
    }

    /// Creates the directory, or updates the coordinator's list of mounts in it. Called by the coordinator: any host
    /// that finds the directory can see it.
    ///
    /// Nothing is created on a local disk if the job has one host only, because nothing would be recorded there.
    ///
    /// # Errors
    /// If the directory cannot be written, or the kernel does not list its mounts.
    pub fn make(&self, has_one_host: bool) -> io::Result<()> {
        let device = device_of(Subject::Named(&self.0))?;
        if has_one_host && !device.is_some_and(|device| Mounts::own().is_ok_and(|own| own.identity(device).is_some())) {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(self.hosts())?;
        self.write(COORDINATOR)
    }

    /// Records the mounts of this host. Returns false if it does not see the log.
    ///
    /// # Errors
    /// As for [`Self::make`].
    pub fn join(&self, host: u32) -> io::Result<bool> {
        if !self.hosts().is_dir() {
            return Ok(false);
        }
        let _ = fs::remove_file(self.apart(host));
        self.write(&host.to_string()).map(|()| true)
    }

    fn write(&self, name: &str) -> io::Result<()> {
        let (path, new) = (self.hosts().join(name), self.hosts().join(format!("{name}.new")));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&new)?;
        file.write_all(Mounts::own()?.to_text().as_bytes())?;
        fs::rename(new, path)
    }

    fn apart(&self, host: u32) -> PathBuf {
        self.hosts().join(format!("{host}.{APART}"))
    }

    /// Returns true if any of the first `host_count` hosts sees the log.
    #[must_use]
    pub fn has_host(&self, host_count: u32) -> bool {
        (0..host_count).any(|host| self.hosts().join(host.to_string()).exists())
    }

    /// Returns true if the log has all changes that this host has made on file systems of other hosts.
    #[must_use]
    pub fn has_all_of(&self, host: u32) -> bool {
        self.hosts().join(host.to_string()).exists() && !self.apart(host).exists()
    }
}

fn read(path: &Path) -> io::Result<Mounts> {
    Mounts::from_text(&fs::read_to_string(path)?)
}

/// Decides which file systems belong to the shared log, for processes of one host.
#[derive(Debug)]
pub struct Sharing {
    log: SharedLog,
    host: u32,
    /// Decisions by local device number.
    known: HashMap<u64, bool>,
}

impl Sharing {
    /// For processes of the host with this number.
    #[must_use]
    pub fn new(log: SharedLog, host: u32) -> Self {
        Self { log, host, known: HashMap::new() }
    }

    /// Returns true if files of this device belong to the shared log.
    pub fn has(&mut self, device: u64) -> bool {
        if let Some(known) = self.known.get(&device) {
            return *known;
        }
        // If the lists are unreadable, changes are recorded in the host's own log.
        let is_shared = self.find(device).unwrap_or_default();
        self.known.insert(device, is_shared);
        is_shared
    }

    fn find(&self, device: u64) -> io::Result<bool> {
        let (own, hosts) = (Mounts::own()?, self.log.hosts());
        let is_of_network = own.identity(device).is_some();
        let is_seen_by_coordinator = own.is_seen_by(&read(&hosts.join(COORDINATOR))?, device);
        let is_shared = is_seen_by_coordinator
            && (is_of_network
                // A local disk of the coordinator is shared only with hosts that have the same kernel.
                || fs::read_dir(&hosts)?.flatten().any(|entry| {
                    let other = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
                    other.is_some_and(|other| other != self.host)
                        && read(&entry.path()).is_ok_and(|other| own.is_seen_by(&other, device))
                }));
        if is_of_network && !is_shared {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(FILE_MODE)
                .open(self.log.apart(self.host))?;
        }
        Ok(is_shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Means;
    use crate::recorder::{Change, Recorder};

    #[test]
    fn a_disk_seen_by_another_host_belongs_to_the_log_of_all() {
        let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = SharedLog::at(place.path().join("log"));
        let device = device_of(Subject::Named(elsewhere.path())).unwrap().unwrap();
        assert!(!log.join(0).unwrap() && !log.has_host(2), "nobody has made it");
        log.make(true).unwrap();
        assert!(!log.join(0).unwrap(), "the only host has a log of its own on that disk");
        log.make(false).unwrap();
        assert!(log.join(0).unwrap() && log.has_all_of(0) && !log.has_all_of(1));
        assert!(!Sharing::new(log.clone(), 0).has(device), "the coordinator's own disk");
        assert!(log.has_host(1));
        log.join(1).unwrap();
        assert!(Sharing::new(log.clone(), 0).has(device) && Sharing::new(log.clone(), 1).has(device));
        // No device has this number.
        assert!(!Sharing::new(log, 0).has(u64::MAX));
    }

    /// Two hosts write to the same block of a file, one after the other, and the second is lost. The content at the
    /// checkpoint must come back.
    #[test]
    fn changes_by_a_lost_host_on_a_shared_disk_are_undone() {
        let (files, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = SharedLog::at(place.path().join("log"));
        log.make(false).unwrap();
        let (path, directory) = (files.path().join("file"), log.directory());
        fs::write(&path, "as it was").unwrap();
        directory.begin(4).unwrap();
        for host in 0..2 {
            log.join(host).unwrap();
            directory.record_cut(4, host, directory.cut().unwrap()).unwrap();
        }
        for (host, text) in [(0, "first"), (1, "second, and longer")] {
            let (mut disk, mut recorder) = (directory.disk(4, &format!("{host}"), Means::PLAIN), Recorder::default());
            let change = Change::Write(Subject::Named(&path), 0, text.len() as u64);
            recorder.before(&mut disk, change).unwrap();
            fs::write(&path, text).unwrap();
        }
        assert!(log.has_all_of(1));
        // Undone twice, because a job may go back to one checkpoint again.
        for count in [4, 0] {
            let undone = directory.go_back(4, directory.cut_at(4, 2).unwrap()).unwrap();
            assert!(undone.failures.is_empty() && !undone.is_incomplete, "{undone:?}");
            assert!(undone.count <= count, "{undone:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "as it was");
        }
        assert_eq!(directory.cut_at(5, 2).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
