//! A log that several hosts have in common, for the file systems that they have in common.
//!
//! ```text
//!   hosts/root        the file systems that the root of the job sees
//!   hosts/3           those that the host with number 3 sees, which sees this directory
//!   hosts/3.apart     that host has changed files of a network that the root does not see
//!   log, since-4/, …  as of each log
//! ```
//! Where hosts keep checkpoints on disks of their own, each has a log of its own, and a host that is lost takes its log
//! along. What its processes have changed on a file system of other hosts is still there, and has to be taken back. So
//! records of such a file system are kept on one: a host that sees the change sees the record, and none has to be there
//! to hand it on. There is one log for all hosts, so records of one file are in one order whichever host it is changed
//! by. The root puts back what is in it, once, before any process is started.
//!
//! A file belongs to this log if the root sees its file system, and another host does beside the one that changes it.

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
const ROOT: &str = "root";
const APART: &str = "apart";

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedLog(PathBuf);

impl SharedLog {
    /// That in this directory.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The log in it.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory::at(self.0.clone())
    }

    fn hosts(&self) -> PathBuf {
        self.0.join(HOSTS)
    }

    /// Makes it, by the root: a host that finds it sees it. What is there stays, but that the root may see other file
    /// systems by now. Nothing would be written to it on a disk of the only host of a job.
    ///
    /// # Errors
    /// When the directory cannot be written, or the kernel does not say what is mounted.
    pub fn make(&self, has_one_host: bool) -> io::Result<()> {
        let device = device_of(Subject::Named(&self.0))?;
        if has_one_host && !device.is_some_and(|device| Mounts::own().is_ok_and(|own| own.identity(device).is_some())) {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(self.hosts())?;
        self.write(ROOT)
    }

    /// Writes down what this host sees. `false` where it does not see the log.
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

    /// Whether any of the first `host_count` hosts sees it.
    #[must_use]
    pub fn has_host(&self, host_count: u32) -> bool {
        (0..host_count).any(|host| self.hosts().join(host.to_string()).exists())
    }

    /// Whether all that the host with this number has changed on file systems of other hosts is in this log.
    #[must_use]
    pub fn has_all_of(&self, host: u32) -> bool {
        self.hosts().join(host.to_string()).exists() && !self.apart(host).exists()
    }
}

fn read(path: &Path) -> io::Result<Mounts> {
    Mounts::from_text(&fs::read_to_string(path)?)
}

/// Which file systems belong to the log, for the processes of one host.
#[derive(Debug)]
pub struct Sharing {
    log: SharedLog,
    host: u32,
    /// By device number here.
    known: HashMap<u64, bool>,
}

impl Sharing {
    /// For those of the host with this number.
    #[must_use]
    pub fn new(log: SharedLog, host: u32) -> Self {
        Self { log, host, known: HashMap::new() }
    }

    /// Whether a file of this device belongs to the log that hosts share.
    pub fn has(&mut self, device: u64) -> bool {
        if let Some(known) = self.known.get(&device) {
            return *known;
        }
        // A list that cannot be read says nothing: what is changed is written down in the host's own log.
        let is_shared = self.find(device).unwrap_or_default();
        self.known.insert(device, is_shared);
        is_shared
    }

    fn find(&self, device: u64) -> io::Result<bool> {
        let (own, hosts) = (Mounts::own()?, self.log.hosts());
        let is_of_network = own.identity(device).is_some();
        let is_seen_by_root = own.is_seen_by(&read(&hosts.join(ROOT))?, device);
        let is_shared = is_seen_by_root
            && (is_of_network
                // The root's own disk has one host on it, unless others have the same kernel.
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
    fn a_disk_belongs_to_the_log_of_all_when_another_host_sees_it_too() {
        let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = SharedLog::at(place.path().join("log"));
        let device = device_of(Subject::Named(elsewhere.path())).unwrap().unwrap();
        assert!(!log.join(0).unwrap() && !log.has_host(2), "nobody has made it");
        log.make(true).unwrap();
        assert!(!log.join(0).unwrap(), "the only host has a log of its own on that disk");
        log.make(false).unwrap();
        assert!(log.join(0).unwrap() && log.has_all_of(0) && !log.has_all_of(1));
        assert!(!Sharing::new(log.clone(), 0).has(device), "the root's own disk");
        assert!(log.has_host(1));
        log.join(1).unwrap();
        assert!(Sharing::new(log.clone(), 0).has(device) && Sharing::new(log.clone(), 1).has(device));
        // No device has this number.
        assert!(!Sharing::new(log, 0).has(u64::MAX));
    }

    /// Two hosts write to one file, one after the other, in the same block; the second is lost. The log says what was
    /// there at the checkpoint, and that comes back.
    #[test]
    fn what_a_lost_host_has_changed_is_taken_back_where_others_see_it() {
        let (files, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = SharedLog::at(place.path().join("log"));
        log.make(false).unwrap();
        let (path, directory) = (files.path().join("file"), log.directory());
        fs::write(&path, "as it was").unwrap();
        directory.begin(4).unwrap();
        for host in 0..2 {
            log.join(host).unwrap();
            directory.note_cut(4, host, directory.cut().unwrap()).unwrap();
        }
        for (host, text) in [(0, "first"), (1, "second, and longer")] {
            let (mut disk, mut recorder) = (directory.disk(4, &format!("{host}"), Means::PLAIN), Recorder::default());
            let change = Change::Write(Subject::Named(&path), 0, text.len() as u64);
            recorder.before(&mut disk, change).unwrap();
            fs::write(&path, text).unwrap();
        }
        assert!(log.has_all_of(1));
        // Twice: a job may go back to one checkpoint again.
        for count in [4, 0] {
            let undone = directory.go_back(4, directory.cut_at(4, 2).unwrap()).unwrap();
            assert!(undone.failures.is_empty() && !undone.is_incomplete, "{undone:?}");
            assert!(undone.count <= count, "{undone:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "as it was");
        }
        assert_eq!(directory.cut_at(5, 2).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
