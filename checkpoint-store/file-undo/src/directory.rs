//! The directory of an undo log: its files, and their life cycle.
//!
//! ```text
//!   log               records of all processes
//!   present           locked by each process that changes files, until it ends
//!   cut-4-2           length of the log at checkpoint 4, recorded by host 2; only in a log that hosts share
//!   since-4/          for changes since checkpoint 4:
//!     begun             length of the log when this directory was made
//!     complete          deleted if some change was not recorded
//!     f-0-1a2b          link to a file, named by device and inode
//!     d-0.1-3           bytes saved by one process
//! ```

use crate::disk::{self, Disk, Means, forget_begin, invalid};
use crate::frame;
use crate::record::Record;
use crate::undo::{Failure, put_all_back, saved_by, subject_of};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_128;

pub(crate) const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
const PREFIX: &str = "since-";
const COMPLETE: &str = "complete";
const BEGUN: &str = "begun";
const CUT_PREFIX: &str = "cut-";
const PRESENT: &str = "present";
/// Time to wait for killed processes to end. Those of an unreachable host may hold their locks for ever.
const WAIT_MAX: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_millis(5);
const NAME: &str = "undo";

/// Length of the log, in bytes, at a moment without any change under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cut(pub u64);

impl Cut {
    /// Writes the cut to a file.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
        file.write_all_at(self.to_text().as_bytes(), 0)?;
        file.sync_all()
    }

    fn to_text(self) -> String {
        format!("{} {:032x}", self.0, XxHash3_128::oneshot(&self.0.to_le_bytes()))
    }

    /// Reads a cut that was written to a file.
    ///
    /// # Errors
    /// If the file does not exist, or its content is damaged.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let cut = text.split(' ').next().and_then(|number| number.parse().ok()).map(Self);
        cut.filter(|cut| cut.to_text() == text).ok_or_else(|| invalid("it has no length of a log, or a damaged one"))
    }
}

/// Result of putting files back.
#[derive(Debug, Default)]
pub struct Undone {
    /// Number of records that were processed, including failed ones.
    pub count: usize,
    /// Records that could not be put back, each with the reason.
    pub failures: Vec<Failure>,
    /// True if some changes were not recorded, so files may differ from the checkpoint.
    pub is_incomplete: bool,
    /// True if a process may still be changing files.
    pub is_disturbed: bool,
}

/// The directory of an undo log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// The log of the job whose checkpoints are in `directory`.
    #[must_use]
    pub fn of_job(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    /// The log at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn period(&self, number: u64) -> PathBuf {
        self.0.join(format!("{PREFIX}{number}"))
    }

    /// Handle with which process `author` records changes since checkpoint `number`.
    #[must_use]
    pub fn disk(&self, number: u64, author: &str, means: Means) -> Disk {
        Disk::new(self.0.clone(), format!("{PREFIX}{number}"), author.to_owned(), means)
    }

    /// Creates the directory and its subdirectory for changes since checkpoint `number`, unless they exist.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn begin(&self, number: u64) -> io::Result<()> {
        let period = self.period(number);
        if period.exists() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.0)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(FILE_MODE);
        options.open(Disk::log_path(&self.0))?;
        // Several processes may do this at once. The rename makes the subdirectory appear complete, before any record
        // is added.
        let own = self.new_directory()?;
        options.open(own.join(COMPLETE))?;
        self.cut()?.write(&own.join(BEGUN))?;
        if let Err(error) = fs::rename(&own, &period) {
            let _ = fs::remove_dir_all(&own);
            if !period.exists() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Creates a subdirectory that no other process uses.
    fn new_directory(&self) -> io::Result<PathBuf> {
        let mut number = 0_u64;
        loop {
            let path = self.0.join(format!("new-{number}"));
            match DirBuilder::new().mode(DIRECTORY_MODE).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => return made.map(|()| path),
            }
        }
    }

    /// Returns true if the log exists.
    #[must_use]
    pub fn has_log(&self) -> bool {
        Disk::log_path(&self.0).exists()
    }

    /// Length of the log when recording since checkpoint `number` began. `None` if it has not begun here.
    ///
    /// # Errors
    /// If the record of the length cannot be read.
    pub fn begun(&self, number: u64) -> io::Result<Option<Cut>> {
        match Cut::read(&self.period(number).join(BEGUN)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Records the length of the log at a checkpoint, for a host that has saved processes. All hosts record the same
    /// length, because no change is under way then.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn record_cut(&self, number: u64, host: u32, cut: Cut) -> io::Result<()> {
        cut.write(&self.noted_cut(number, host))
    }

    fn noted_cut(&self, number: u64, host: u32) -> PathBuf {
        self.0.join(format!("{CUT_PREFIX}{number}-{host}"))
    }

    /// Length of the log at a checkpoint, recorded by any of the first `host_count` hosts. Files are opened by name,
    /// because directory listings of a network file system may be out of date.
    ///
    /// # Errors
    /// If no host has recorded it, or a record is damaged.
    pub fn cut_at(&self, number: u64, host_count: u32) -> io::Result<Cut> {
        let mut least = Err(io::Error::new(io::ErrorKind::NotFound, "it is not noted how long the log of changes was"));
        for host in 0..host_count {
            match Cut::read(&self.noted_cut(number, host)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // All records are equal. If they were not, the least would undo the most.
                found => {
                    let found = found?;
                    least = Ok(least.map_or(found, |least: Cut| least.min(found)));
                }
            }
        }
        least
    }

    /// All recorded cuts: number of the checkpoint, and path.
    fn noted(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let noted = |entry: fs::DirEntry| {
            let name = entry.file_name();
            let (number, _) = name.to_str()?.strip_prefix(CUT_PREFIX)?.split_once('-')?;
            Some((number.parse().ok()?, entry.path()))
        };
        Ok(fs::read_dir(&self.0)?.flatten().filter_map(noted).collect())
    }

    fn forget_cuts(&self, is_old: impl Fn(u64) -> bool) -> io::Result<()> {
        self.noted()?.into_iter().filter(|(number, _)| is_old(*number)).try_for_each(|(_, path)| fs::remove_file(path))
    }

    /// Registers a process until it ends or closes all descriptors of the returned file. Without file locks nobody
    /// waits for it.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn attend(&self) -> io::Result<File> {
        let file = self.presence()?;
        disk::lock(&file, nix::libc::F_RDLCK, false);
        Ok(file)
    }

    fn presence(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(self.0.join(PRESENT))
    }

    /// Waits until no process changes files any more. Returns false if that took too long.
    fn is_alone(&self) -> io::Result<bool> {
        let (file, begun) = (self.presence()?, Instant::now());
        while !disk::lock(&file, nix::libc::F_WRLCK, false) {
            if begun.elapsed() > WAIT_MAX {
                return Ok(false);
            }
            std::thread::sleep(WAIT_STEP);
        }
        Ok(true)
    }

    /// Records that some change since checkpoint `number` was not recorded.
    pub fn record_incomplete(&self, number: u64) {
        // Removing a file needs no space. If even that fails, the directory is gone, and nothing can be put back.
        let _ = fs::remove_file(self.period(number).join(COMPLETE));
    }

    /// Current length of the log.
    ///
    /// # Errors
    /// If there is no log.
    pub fn cut(&self) -> io::Result<Cut> {
        // Opened rather than looked up, so that a network file system asks the server for the current length.
        File::open(Disk::log_path(&self.0))?.metadata().map(|status| Cut(status.len()))
    }

    /// Numbers of the checkpoints that have a subdirectory.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok();
        Ok(fs::read_dir(&self.0)?.flatten().filter_map(number).collect())
    }

    /// Verifies all records since a cut, and the bytes saved with them.
    ///
    /// # Errors
    /// As for [`Self::go_back`].
    pub fn check(&self, cut: Cut) -> io::Result<()> {
        self.records(&File::open(Disk::log_path(&self.0))?, cut).map(drop)
    }

    /// Records since a cut, with their offsets in the log. Errors if any is damaged.
    fn records(&self, log: &File, cut: Cut) -> io::Result<(Vec<u64>, Vec<Record>)> {
        let length = log.metadata()?.len();
        let length = length.checked_sub(cut.0);
        let length = length.ok_or_else(|| invalid("the log of changes in files ends before the checkpoint"))?;
        let mut bytes = vec![0; length as usize];
        log.read_exact_at(&mut bytes, cut.0)?;
        let found = frame::decode_all(&bytes);
        if let Some(place) = found.damaged.first() {
            return Err(invalid(&format!(
                "a record of changes in files is damaged: {} at byte {}",
                Disk::log_path(&self.0).display(),
                cut.0 + place.start as u64
            )));
        }
        // Names in records include the subdirectory, so any number works here.
        let disk = self.disk(0, "", Means::PLAIN);
        for (_, record) in &found.records {
            if let Some(data) = saved_by(record) {
                let place = || format!("{}, of {}", self.0.join(&data.name).display(), subject_of(record));
                let told = |error: io::Error| {
                    let what = format!("what was saved to put files back is damaged: {}: {error}", place());
                    io::Error::new(io::ErrorKind::InvalidData, what)
                };
                disk.check(data).map_err(told)?;
            }
        }
        Ok(found.records.into_iter().map(|(place, record)| (cut.0 + place.start as u64, record)).unzip())
    }

    /// Puts files back as they were at checkpoint `number`, whose cut this is, and begins recording anew.
    ///
    /// Waits for killed processes that may still change files. An interrupted run is completed by the next one.
    ///
    /// # Errors
    /// If there is no log, or it cannot be read. [`io::ErrorKind::InvalidData`] if a record or its saved bytes are
    /// damaged: then nothing is put back.
    pub fn go_back(&self, number: u64, cut: Cut) -> io::Result<Undone> {
        let log = OpenOptions::new().read(true).write(true).open(Disk::log_path(&self.0))?;
        let is_disturbed = !self.is_alone()?;
        let (places, records) = self.records(&log, cut)?;
        let mut later: Vec<_> = self.numbers()?.into_iter().filter(|period| *period >= number).collect();
        later.sort_unstable_by(|one, other| other.cmp(one));
        let is_complete = |period: &u64| self.period(*period).join(COMPLETE).exists();
        let is_missing = !records.is_empty() && !later.contains(&number);
        let is_incomplete = is_missing || !later.iter().all(is_complete);
        let mut disk = self.disk(number, "undo", Means::PLAIN);
        let failures = put_all_back(&mut disk, &records, |_, done| log.set_len(places[done]))?;
        log.set_len(cut.0)?;
        for period in later {
            fs::remove_dir_all(self.period(period))?;
        }
        self.forget_cuts(|noted| noted > number)?;
        self.begin(number)?;
        Ok(Undone { count: records.len(), failures, is_incomplete, is_disturbed })
    }

    /// Frees everything that is only needed to go back beyond checkpoint `number`, whose cut this is.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn forget_before(&self, number: u64, cut: Cut) -> io::Result<()> {
        forget_begin(&OpenOptions::new().write(true).open(Disk::log_path(&self.0))?, cut.0);
        for period in self.numbers()?.into_iter().filter(|period| *period < number) {
            fs::remove_dir_all(self.period(period))?;
        }
        self.forget_cuts(|noted| noted < number)
    }

    /// Deletes the directory, if it exists.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Files, Subject};
    use crate::recorder::{Change, Recorder};
    use nix::sys::stat::UtimensatFlags;
    use nix::sys::time::TimeSpec;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    /// Files, and the log of a process that changes them.
    struct Place {
        files: tempfile::TempDir,
        directory: Directory,
        _log: tempfile::TempDir,
        disk: Disk,
        recorder: Recorder,
    }

    impl Place {
        fn new(log: tempfile::TempDir) -> Self {
            let (files, directory) = (tempfile::tempdir().unwrap(), Directory::of_job(log.path()));
            directory.begin(4).unwrap();
            let disk = directory.disk(4, "0.0-0", Means::PLAIN);
            Self { files, directory, _log: log, disk, recorder: Recorder::default() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.files.path().join(name)
        }

        fn put(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        fn before(&mut self, change: Change<'_>) {
            self.recorder.before(&mut self.disk, change).unwrap();
        }

        fn text(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.path(name)).ok()
        }
    }

    fn change_and_go_back(mut place: Place) {
        for (name, text) in [("written", "before"), ("cut", "long before"), ("removed", "gone"), ("moved", "moved")] {
            place.put(name, text);
        }
        fs::create_dir(place.path("directory")).unwrap();
        std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
        let inode = |place: &Place, name: &str| fs::symlink_metadata(place.path(name)).unwrap().ino();
        std::os::unix::fs::symlink("nowhere", place.path("stamped")).unwrap();
        let modified = |place: &Place| fs::symlink_metadata(place.path("stamped")).unwrap().mtime();
        let stamp = |place: &Place, seconds| {
            let (time, here) = (TimeSpec::new(seconds, 0), nix::fcntl::AT_FDCWD);
            let flags = UtimensatFlags::NoFollowSymlink;
            nix::sys::stat::utimensat(here, &place.path("stamped"), &time, &time, flags).unwrap();
        };
        stamp(&place, 1000);
        let (written, cut) = (inode(&place, "written"), place.directory.cut().unwrap());
        place.before(Change::Describe(Subject::Named(&place.path("stamped"))));
        stamp(&place, 2000);

        let file = OpenOptions::new().write(true).open(place.path("written")).unwrap();
        place.before(Change::Write(Subject::Open(file.as_raw_fd()), 2, 100));
        file.write_all_at(&[b'x'; 100], 2).unwrap();
        let path = place.path("cut");
        place.before(Change::Resize(Subject::Named(&path), 0));
        fs::write(&path, "now").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        for name in ["removed", "link"] {
            place.before(Change::Name(&place.path(name)));
            fs::remove_file(place.path(name)).unwrap();
        }
        let (moved, over) = (place.path("moved"), place.path("removed"));
        place.before(Change::Rename(&moved, &over));
        fs::rename(&moved, &over).unwrap();
        let (from, to) = (place.path("directory"), place.path("elsewhere"));
        place.before(Change::Rename(&from, &to));
        fs::rename(&from, &to).unwrap();
        let made = place.path("elsewhere/made");
        place.before(Change::Name(&made));
        fs::write(&made, "new").unwrap();
        place.before(Change::Name(&from));
        fs::create_dir(&from).unwrap();

        let undone = place.directory.go_back(4, cut).unwrap();
        assert!(undone.failures.is_empty() && !undone.is_incomplete && undone.count > 8, "{undone:?}");
        assert_eq!(place.text("written").as_deref(), Some("before"));
        assert_eq!(place.text("cut").as_deref(), Some("long before"));
        assert_eq!(place.text("removed").as_deref(), Some("gone"));
        assert_eq!(place.text("moved").as_deref(), Some("moved"));
        assert_eq!(fs::read_link(place.path("link")).unwrap(), Path::new("nowhere"));
        assert_eq!(inode(&place, "written"), written, "it is another file");
        let names = fs::read_dir(place.files.path()).unwrap().count();
        assert_eq!((names, fs::read_dir(place.path("directory")).unwrap().count()), (7, 0));
        assert_eq!(modified(&place), 1000);
        assert_eq!(place.directory.cut().unwrap(), cut);
        assert_eq!(place.directory.go_back(4, cut).unwrap().count, 0);
    }

    #[test]
    fn files_are_as_they_were() {
        change_and_go_back(Place::new(tempfile::tempdir().unwrap()));
    }

    #[test]
    fn undo_works_with_the_log_in_another_file_system() {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(log) => change_and_go_back(Place::new(log)),
            Err(error) => println!("skipped: no directory in /dev/shm: {error}"),
        }
    }

    #[test]
    fn unrecorded_changes_are_reported_and_older_ones_forgotten() {
        let mut place = Place::new(tempfile::tempdir().unwrap());
        place.put("file", "1");
        let path = place.path("file");
        place.before(Change::Resize(Subject::Named(&path), 0));
        place.put("file", "2");
        let cut = place.directory.cut().unwrap();
        place.directory.begin(5).unwrap();
        (place.disk, place.recorder) = (place.directory.disk(5, "0.0-0", Means::PLAIN), Recorder::default());
        place.before(Change::Resize(Subject::Named(&path), 0));
        place.put("file", "3");
        place.directory.forget_before(5, cut).unwrap();
        assert_eq!(place.directory.numbers().unwrap(), [5]);
        place.directory.record_incomplete(5);
        place.directory.begin(5).unwrap();
        let undone = place.directory.go_back(5, cut).unwrap();
        assert!(undone.is_incomplete && undone.failures.is_empty(), "{undone:?}");
        assert_eq!(place.text("file").as_deref(), Some("2"));
        assert!(place.directory.go_back(5, Cut(cut.0 + 1)).is_err());
        place.directory.remove().unwrap();
        assert!(place.disk.inspect(Subject::Named(place.directory.path())).unwrap().is_none());
    }

    /// The log of a job that has rewritten one file and replaced another, and the cut before.
    fn recorded() -> (Place, Cut) {
        // The log is on another file system than the files, so links are impossible and contents are saved.
        let elsewhere = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let mut place = Place::new(elsewhere.unwrap());
        place.put("written", "before");
        place.put("removed", "gone");
        let cut = place.directory.cut().unwrap();
        let (written, removed) = (place.path("written"), place.path("removed"));
        place.before(Change::Write(Subject::Named(&written), 0, 100));
        place.put("written", "after");
        place.before(Change::Name(&removed));
        fs::remove_file(&removed).unwrap();
        (place, cut)
    }

    #[test]
    fn records_and_bytes_with_a_flipped_bit_undo_nothing() {
        let (place, cut) = recorded();
        place.directory.check(cut).unwrap();
        let (log, saved) = (Disk::log_path(place.directory.path()), place.directory.period(4).join("d-0.0-0"));
        for path in [&log, &saved] {
            let whole = fs::read(path).unwrap();
            // Padding between saved pieces has no meaning.
            for at in (0..whole.len()).filter(|at| *path == log || whole[*at] != 0) {
                let mut flipped = whole.clone();
                flipped[at] ^= 4;
                fs::write(path, &flipped).unwrap();
                for refused in [place.directory.check(cut).unwrap_err(), place.directory.go_back(4, cut).unwrap_err()] {
                    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "byte {at}: {refused}");
                    assert!(refused.to_string().contains("damaged"), "{refused}");
                }
                assert_eq!((place.text("written").as_deref(), place.text("removed")), (Some("after"), None));
            }
            fs::write(path, whole).unwrap();
        }
        let undone = place.directory.go_back(4, cut).unwrap();
        assert!(undone.failures.is_empty(), "{undone:?}");
        assert_eq!(["written", "removed"].map(|name| place.text(name).unwrap()), ["before", "gone"]);
    }

    #[test]
    fn a_cut_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host-0.undo");
        assert!(Cut::read(&path).is_err());
        Cut(1 << 40).write(&path).unwrap();
        assert_eq!(Cut::read(&path).unwrap(), Cut(1 << 40));
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).unwrap();
            assert!(Cut::read(&path).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn processes_that_are_there_are_waited_for() {
        let place = Place::new(tempfile::tempdir().unwrap());
        let cut = place.directory.cut().unwrap();
        let processes = [place.directory.attend().unwrap(), place.directory.attend().unwrap()];
        assert!(place.directory.go_back(4, cut).unwrap().is_disturbed);
        drop(processes);
        assert!(!place.directory.go_back(4, cut).unwrap().is_disturbed);
    }
}
