//! The journal's file: created, appended to, reopened by a successor.
//!
//! The writer holds a lock on it for as long as it lives, so there is only one. Only its user can read it.

use super::frame::{self, Unreadable};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Length above which a journal is given up: it may be in memory.
pub const JOURNAL_BYTES_MAX: u64 = 256 << 20;
/// Lower bound for configured lengths: a single record can be this long.
pub const JOURNAL_BYTES_MIN: u64 = 4 << 10;
/// Default length above which a journal is replaced by a snapshot.
pub const JOURNAL_BYTES_USUAL: u64 = 32 << 20;
/// Bytes of records without consequences that may wait in memory.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Reason why a journal cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal's writer is alive.
    #[error("the journal {} is being written by another process", path.display())]
    InUse {
        /// Path of the journal.
        path: PathBuf,
    },
    /// The contents are not a sound journal.
    #[error("the journal {} cannot be read: {why}", path.display())]
    Unreadable {
        /// Path of the journal.
        path: PathBuf,
        /// The defect, which is part of the message.
        why: Unreadable,
    },
    /// The file cannot be opened or read.
    #[error("Failed to open the journal {}", path.display())]
    Io {
        /// Path of the journal.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// True if the journal does not exist.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A journal that is being written. After an error it is useless and its file must be removed, since records are
/// missing.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Number of records, including waiting ones.
    count: u64,
    byte_count: u64,
    /// Encoded records that are not written yet.
    waiting: Vec<u8>,
}

/// Creates the file beside, and renames it once it is complete and locked.
fn make(path: &Path, records: &[&[u8]]) -> io::Result<(File, u64)> {
    let beside = beside(path);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.try_lock()?;
    let mut bytes = frame::header().to_vec();
    for (number, record) in (0..).zip(records) {
        frame::encode(record, number, &mut bytes);
    }
    file.write_all(&bytes)?;
    std::fs::rename(beside, path)?;
    Ok((file, bytes.len() as u64))
}

impl Journal {
    /// Creates a journal with this first record.
    ///
    /// # Errors
    /// When there is no room for it, or another process writes it.
    pub fn create(path: &Path, first: &[u8]) -> io::Result<Self> {
        let (file, byte_count) = make(path, &[first]).inspect_err(|_| drop(std::fs::remove_file(beside(path))))?;
        Ok(Self { file, count: 1, byte_count, waiting: Vec::new() })
    }

    /// Replaces all records by these. If the process is killed meanwhile, either version is left whole.
    ///
    /// # Errors
    /// When there is no room for it. The journal is unchanged then.
    pub fn replace(&mut self, path: &Path, records: &[&[u8]]) -> io::Result<()> {
        let (file, byte_count) = make(path, records).inspect_err(|_| drop(std::fs::remove_file(beside(path))))?;
        *self = Self { file, count: records.len() as u64, byte_count, waiting: Vec::new() };
        Ok(())
    }

    /// Length in bytes, including waiting records.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// True if the path still names this file, and not a later journal.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let numbers = (self.file.metadata(), std::fs::metadata(path));
        matches!(numbers, (Ok(own), Ok(named)) if (own.dev(), own.ino()) == (named.dev(), named.ino()))
    }

    /// Continues a journal whose writer is gone. Returns all its records.
    ///
    /// # Errors
    /// When its writer lives, or it cannot be read. Nothing is changed then.
    pub fn open(path: &Path) -> Result<(Self, Vec<Vec<u8>>), OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        let mut file = locked(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let contents = frame::decode(&bytes).map_err(|why| OpenError::Unreadable { path: path.to_owned(), why })?;
        let records: Vec<_> = contents.records.iter().map(|record| record.to_vec()).collect();
        file.set_len(contents.sound_bytes as u64).map_err(failed)?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(failed)?;
        let byte_count = contents.sound_bytes as u64;
        let journal = Self { file, count: records.len() as u64, byte_count, waiting: Vec::new() };
        Ok((journal, records))
    }

    /// Adds a record, which may wait in memory until [`Journal::flush`].
    ///
    /// # Errors
    /// When the disk takes nothing.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let before = self.waiting.len();
        frame::encode(record, self.count, &mut self.waiting);
        self.byte_count += (self.waiting.len() - before) as u64;
        self.count += 1;
        if self.waiting.len() > BUFFER_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    /// Writes waiting records. Must be called before a consequence of a record leaves the process: its writer may be
    /// killed from then on.
    ///
    /// # Errors
    /// When the disk takes nothing.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.file.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }
}

/// True if there is a journal that no process writes. Takes no lock, which could hinder a successor: if the kernel does
/// not list locks, the journal counts as being written.
#[must_use]
pub fn is_abandoned(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(metadata), Ok(locks)) = (std::fs::metadata(path), std::fs::read_to_string("/proc/locks")) else {
        return false;
    };
    !has_lock(&locks, metadata.ino())
}

/// Removes a journal that no process writes.
///
/// # Errors
/// When a process on any host writes it, or it does not exist.
pub fn remove_abandoned(path: &Path) -> Result<(), OpenError> {
    let _locked = locked(path)?;
    std::fs::remove_file(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })
}

/// True if a file with this inode number is locked (proc_locks(5)). Devices are not compared: file systems may list
/// others there.
fn has_lock(locks: &str, inode: u64) -> bool {
    let end = format!(":{inode}");
    locks.lines().any(|line| line.contains(" FLOCK ") && line.split(' ').any(|word| word.ends_with(&end)))
}

/// Name of a new journal until it is complete and locked.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Opens and locks the file.
fn locked(path: &Path) -> Result<File, OpenError> {
    use std::os::unix::fs::MetadataExt;
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    match file.try_lock() {
        // The writer may have replaced the file meanwhile.
        Ok(()) => match (file.metadata().map_err(failed)?.ino(), std::fs::metadata(path).map_err(failed)?.ino()) {
            (own, named) if own == named => Ok(file),
            _ => Err(OpenError::InUse { path: path.to_owned() }),
        },
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        (directory, path)
    }

    #[test]
    fn a_journal_that_somebody_writes_is_not_removed() {
        let (_directory, path) = place();
        assert!(remove_abandoned(&path).unwrap_err().is_absence());
        let journal = Journal::create(&path, b"first").unwrap();
        assert!(matches!(remove_abandoned(&path), Err(OpenError::InUse { .. })));
        assert!(path.exists());
        drop(journal);
        remove_abandoned(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn who_comes_next_has_all_that_was_flushed_and_goes_on() {
        let (_directory, path) = place();
        let mut journal = Journal::create(&path, b"first").unwrap();
        journal.append(b"one").unwrap();
        journal.flush().unwrap();
        journal.append(b"nothing has followed from this").unwrap();
        assert!(matches!(Journal::open(&path), Err(OpenError::InUse { .. })));
        assert!(!is_abandoned(&path));
        drop(journal);
        assert!(is_abandoned(&path) && !is_abandoned(&path.with_extension("none")));
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records, [b"first".to_vec(), b"one".to_vec()]);
        journal.append(b"two").unwrap();
        journal.flush().unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1.len(), 3);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    /// No other writer gets the old ones.
    #[test]
    fn a_snapshot_replaces_all_records_for_the_next_coordinator() {
        let (_directory, path) = place();
        let mut journal = Journal::create(&path, b"first").unwrap();
        journal.append(&[1; 5000]).unwrap();
        assert!(journal.byte_count() > 5000);
        let old = File::open(&path).unwrap();
        journal.replace(&path, &[b"first", b"all"]).unwrap();
        assert_eq!(journal.byte_count(), std::fs::metadata(&path).unwrap().len());
        old.try_lock().unwrap();
        assert!(matches!(Journal::open(&path), Err(OpenError::InUse { .. })));
        journal.append(b"more").unwrap();
        journal.flush().unwrap();
        let byte_count = journal.byte_count();
        // No room for another file.
        std::fs::create_dir(beside(&path)).unwrap();
        journal.replace(&path, &[b"first"]).unwrap_err();
        drop(journal);
        let (journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records, [b"first".to_vec(), b"all".to_vec(), b"more".to_vec()]);
        assert_eq!(journal.byte_count(), byte_count);
    }

    #[test]
    fn a_torn_end_is_cut_off_and_damage_is_left_alone() {
        let (_directory, path) = place();
        drop(Journal::create(&path, b"first").unwrap());
        let sound = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&sound[..], &[1, 2, 3]].concat()).unwrap();
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records.len(), 1);
        journal.append(b"one").unwrap();
        journal.flush().unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1, [b"first".to_vec(), b"one".to_vec()]);
        let damaged = [&sound[..], &[9; 40]].concat();
        std::fs::write(&path, &damaged).unwrap();
        let why = Journal::open(&path).unwrap_err();
        assert!(why.to_string().contains("record 1 is damaged"), "{why}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged);
    }

    #[test]
    fn one_that_is_not_there_is_told_from_one_that_cannot_be_read() {
        let (_directory, path) = place();
        assert!(Journal::open(&path).unwrap_err().is_absence());
        std::fs::write(&path, b"rubbish").unwrap();
        assert!(!Journal::open(&path).unwrap_err().is_absence());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut journal = Journal {
            file: OpenOptions::new().write(true).open("/dev/full").unwrap(),
            count: 1,
            byte_count: 0,
            waiting: Vec::new(),
        };
        journal.append(b"one").unwrap();
        assert_eq!(journal.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
