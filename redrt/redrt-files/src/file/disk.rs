//! Operations on the file system: by every rank, and in a replicated world by one replica of each rank.
//!
//! Each operation is idempotent, since a leader may die before its siblings know that it was done. Two operations
//! cannot be: making a file that must not exist, and deleting one that must. They have two steps, of which the first
//! agrees on the file's existence.

use crate::file::witness;
use file_undo::{Change, Subject};
use redrt_abi::error::{Error, Result};
use redrt_abi::{
    MPI_ERR_ACCESS, MPI_ERR_BAD_FILE, MPI_ERR_FILE_EXISTS, MPI_ERR_FILE_IN_USE, MPI_ERR_IO, MPI_ERR_NO_SPACE,
    MPI_ERR_NO_SUCH_FILE, MPI_ERR_QUOTA, MPI_ERR_READ_ONLY,
};
use redrt_engine as engine;
use redrt_process::lock;
use redrt_runtime::decide;
use redrt_runtime::undo;
use redrt_transport::descriptors;
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::hash::Hash;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Number of bytes that are moved at a time. Limited, since in a replicated world the engine is locked meanwhile.
pub const PIECE_BYTES: usize = 1 << 20;

/// A stretch of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stretch {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A file of the file system, opened when it is first needed in this process, which may be never in a follower.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    reads: bool,
    writes: bool,
    open: Mutex<Option<Open>>,
}

/// An open file, and the epoch of the process that opened it: a copy has to open the file itself.
#[derive(Debug)]
struct Open {
    file: Arc<fs::File>,
    epoch: u32,
}

process_local! {
    /// Files that are not needed any more and are still open: closing them would release the program's record locks.
    static UNNEEDED: Mutex<Vec<Open>> = const { Mutex::new(Vec::new()) };
}

/// Returns true if this process has record locks (`fcntl`, `lockf`) on a file. It loses them when any descriptor of the
/// file is closed.
fn has_record_locks(file: &fs::File) -> bool {
    let (Ok(status), Ok(descriptors)) = (file.metadata(), fs::read_dir("/proc/self/fdinfo")) else { return false };
    let inode = format!(":{}", status.ino());
    // lock:  1: POSIX  ADVISORY  WRITE 4711 08:01:1234 0 EOF
    let is_of_it = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        words.next() == Some("lock:") && words.nth(1) == Some("POSIX") && words.any(|word| word.ends_with(&inode))
    };
    let about = descriptors.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    about.into_iter().any(|text| text.lines().any(is_of_it))
}

/// Treatment of a missing or existing file at opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// The file must exist.
    No,
    /// The file is made if it does not exist.
    Yes,
    /// The file must not exist, and is made. Not idempotent, so only for worlds that are not replicated.
    New,
}

impl Disk {
    /// A file that is not open yet. `reads` and `writes` are the uses for which it will be opened.
    pub fn new(path: PathBuf, reads: bool, writes: bool) -> Self {
        Self { path, reads, writes, open: Mutex::default() }
    }

    /// Path of the file, for messages.
    pub fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    fn here(&self, creation: Creation) -> io::Result<Arc<fs::File>> {
        let mut open = lock(&self.open);
        match open.take() {
            Some(known) if known.epoch == descriptors::epoch() => {
                return Ok(Arc::clone(&open.insert(known).file));
            }
            // In a copy the number belongs to another file or to none: it must not be closed.
            Some(foreign) => std::mem::forget(foreign),
            None => {}
        }
        let mut options = OpenOptions::new();
        options.read(self.reads).write(self.writes).truncate(false);
        let options = match creation {
            Creation::No => &mut options,
            Creation::Yes => options.create(true),
            Creation::New => options.create_new(true),
        };
        let passage = (creation != Creation::No).then(|| undo::before(Change::Name(&self.path)));
        let file = Arc::new(options.open(&self.path)?);
        drop(passage);
        descriptors::record(file.as_raw_fd());
        let made = Open { file: Arc::clone(&file), epoch: descriptors::epoch() };
        *open = Some(made);
        Ok(file)
    }

    /// Opens the file if necessary, and runs `act`. No image is taken meanwhile: in a process that goes on from it, the
    /// descriptor's number would belong to another file.
    fn act<T>(&self, creation: Creation, act: impl Fn(&fs::File) -> io::Result<T>) -> io::Result<T> {
        let _passage = undo::inside();
        self.here(creation).and_then(|file| act(&file))
    }

    /// Makes an observation of the file in one replica; its siblings get the answer.
    fn agreed(
        &self,
        what: &str,
        arguments: impl Hash,
        act: impl Fn(&fs::File) -> io::Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let answer = decide::outside(self.ask(what, arguments), || encode(self.act(Creation::No, &act)));
        decode(answer).map_err(|error| self.error(what, &error))
    }

    /// Makes a change of the file in one replica. `data` is a digest of the written bytes.
    fn changed(
        &self,
        what: &str,
        arguments: impl Hash,
        data: u64,
        act: impl Fn(&fs::File) -> io::Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let answer = decide::effect(self.ask(what, arguments), data, || encode(self.act(Creation::No, &act)));
        decode(answer).map_err(|error| self.error(what, &error))
    }

    /// Digest of an operation, its arguments and its file.
    fn ask(&self, what: &str, arguments: impl Hash) -> u64 {
        decide::digest((what, &self.path, decide::digest(arguments)))
    }

    fn error(&self, what: &str, error: &io::Error) -> Error {
        Error::new(class_of(error), format!("cannot {what} {}: {error}", self.path.display()))
    }

    /// Opens the file. The caller has checked that it may be made.
    pub fn open(&self, creation: Creation) -> Result {
        let answer =
            decide::effect(self.ask("open", creation as u8), 0, || encode(self.act(creation, |_| Ok(Vec::new()))));
        decode(answer).map(drop).map_err(|error| self.error("open", &error))
    }

    /// Returns true if the file exists.
    pub fn exists(&self) -> Result<bool> {
        let answer = decide::outside(self.ask("look for", ()), || {
            encode(self.path.try_exists().map(|exists| vec![u8::from(exists)]))
        });
        let answer = decode(answer).map_err(|error| self.error("look for", &error))?;
        Ok(answer.first().is_some_and(|exists| *exists != 0))
    }

    /// Removes the file. A missing file is no error.
    pub fn delete(&self) -> Result {
        let delete = || {
            let _passage = undo::before(Change::Name(&self.path));
            match fs::remove_file(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                done => done.map(|()| Vec::new()),
            }
        };
        decode(decide::effect(self.ask("delete", ()), 0, || encode(delete())))
            .map(drop)
            .map_err(|error| self.error("delete", &error))
    }

    /// Closes the file, and earlier ones that were kept open. A file on which the program has record locks is kept open
    /// for now.
    pub fn close(&self) {
        let _passage = undo::inside();
        let mut unneeded = lock(&UNNEEDED);
        unneeded.extend(lock(&self.open).take());
        for known in std::mem::take(&mut *unneeded) {
            if known.epoch != descriptors::epoch() {
                std::mem::forget(known);
            } else if has_record_locks(&known.file) {
                unneeded.push(known);
            } else {
                descriptors::forget(known.file.as_raw_fd());
            }
        }
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> Result<u64> {
        let answer =
            self.agreed("ask for the size of", (), |file| Ok(file.metadata()?.len().to_ne_bytes().to_vec()))?;
        Ok(answer.try_into().map_or(0, u64::from_ne_bytes))
    }

    /// Cuts or extends the file to this size in bytes.
    pub fn set_size(&self, size: u64) -> Result {
        self.changed("set the size of", size, 0, |file| {
            let _passage = undo::before(Change::Resize(subject(file), size));
            file.set_len(size).map(|()| Vec::new())
        })
        .map(drop)
    }

    /// Allocates room for the first `size` bytes of the file.
    pub fn preallocate(&self, size: u64) -> Result {
        let length = libc::off_t::try_from(size).unwrap_or(libc::off_t::MAX);
        let allocate = |file: &fs::File| {
            let _passage = undo::before(Change::Describe(subject(file)));
            // SAFETY: - touches no memory: posix_fallocate takes numbers.
            match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
                0 => Ok(Vec::new()),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        };
        if size == 0 { Ok(()) } else { self.changed("allocate room for", size, 0, allocate).map(drop) }
    }

    /// Waits until written bytes are on the device.
    pub fn sync(&self) -> Result {
        self.agreed("synchronize", (), |file| file.sync_all().map(|()| Vec::new())).map(drop)
    }

    /// Reads these stretches, up to the end of the file. In `atomic` mode they are locked meanwhile against writers.
    pub fn read(&self, stretches: &[Stretch], atomic: bool) -> Result<Vec<u8>> {
        let total = stretches.iter().map(|stretch| stretch.length).sum::<u64>() as usize;
        let look = |file: &fs::File| {
            let _lock = atomic.then(|| RangeLock::new(file, stretches, libc::F_RDLCK)).transpose()?;
            let mut bytes = vec![0; total];
            let mut done = 0;
            for stretch in stretches {
                let length = stretch.length as usize;
                let found = read_at(file, stretch.offset, &mut bytes[done..done + length])?;
                done += found;
                if found < length {
                    break;
                }
            }
            bytes.truncate(done);
            Ok(bytes)
        };
        let was_here = Cell::new(false);
        let bytes = self.agreed("read", stretches, |file| {
            was_here.set(true);
            witness::read(file, || look(file))
        })?;
        Ok(witness::confirmed(bytes, !was_here.get(), self.name(), || self.here(Creation::No), look))
    }

    /// Writes `bytes` to these stretches. In `atomic` mode they are locked meanwhile. In a replicated world the digest
    /// of the bytes is part of the question, so a replica that would write other bytes is found; with a majority vote,
    /// before anything is written.
    pub fn write(&self, stretches: &[Stretch], bytes: &[u8], atomic: bool) -> Result {
        let is_replicated = engine::cell().lock().is_replicated();
        let digest = if is_replicated { twox_hash::XxHash3_64::oneshot(bytes) } else { 0 };
        let write = |file: &fs::File| {
            let _lock = atomic.then(|| RangeLock::new(file, stretches, libc::F_WRLCK)).transpose()?;
            let mut rest = bytes;
            for stretch in stretches {
                let (now, later) = rest.split_at(stretch.length as usize);
                let _passage = undo::before(Change::Write(subject(file), stretch.offset, stretch.length));
                file.write_all_at(now, stretch.offset)?;
                rest = later;
            }
            Ok(Vec::new())
        };
        self.changed("write", stretches, digest, write).map(drop)
    }
}

fn subject(file: &fs::File) -> Subject<'_> {
    Subject::Open(file.as_raw_fd())
}

/// Reads until `bytes` is full or the file ends. Returns the number of bytes read.
pub fn read_at(file: &fs::File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Encodes an answer for siblings: an error number, 0 for success, and the bytes.
fn encode(answer: io::Result<Vec<u8>>) -> Vec<u8> {
    match answer {
        Ok(found) => {
            let mut bytes = 0i32.to_ne_bytes().to_vec();
            bytes.extend(found);
            bytes
        }
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes().to_vec(),
    }
}

fn decode(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    let found = answer.split_off(answer.len().min(size_of::<i32>()));
    match answer.try_into().map_or(libc::EIO, i32::from_ne_bytes) {
        0 => Ok(found),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Error class of MPI (MPI-5.0 section 14.8).
fn class_of(error: &io::Error) -> i32 {
    match error.raw_os_error() {
        Some(libc::ENOENT) => MPI_ERR_NO_SUCH_FILE,
        Some(libc::EEXIST) => MPI_ERR_FILE_EXISTS,
        Some(libc::EACCES | libc::EPERM) => MPI_ERR_ACCESS,
        Some(libc::EROFS) => MPI_ERR_READ_ONLY,
        Some(libc::ENOSPC) => MPI_ERR_NO_SPACE,
        Some(libc::EDQUOT) => MPI_ERR_QUOTA,
        Some(libc::EBUSY | libc::ETXTBSY) => MPI_ERR_FILE_IN_USE,
        Some(libc::EISDIR | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => MPI_ERR_BAD_FILE,
        _ => MPI_ERR_IO,
    }
}

/// Guard: no other process that locks the file accesses the range, in atomic mode.
struct RangeLock<'a> {
    file: &'a fs::File,
    start: i64,
    length: i64,
}

/// Locks a range of the file (`F_RDLCK`, `F_WRLCK`), after waiting for conflicting locks of others, or unlocks it
/// (`F_UNLCK`).
pub fn lock_range(file: &fs::File, kind: i32, start: i64, length: i64) -> io::Result<()> {
    let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
    let range = libc::flock { l_type, l_whence, l_start: start, l_len: length, l_pid: 0 };
    loop {
        // SAFETY: - range is valid for reads: a local variable.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &range) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl<'a> RangeLock<'a> {
    fn new(file: &'a fs::File, stretches: &[Stretch], kind: i32) -> io::Result<Self> {
        let start = stretches.iter().map(|stretch| stretch.offset).min().unwrap_or(0);
        let end = stretches.iter().map(|stretch| stretch.offset + stretch.length).max().unwrap_or(start);
        let lock = Self { file, start: start as i64, length: (end - start).max(1) as i64 };
        lock.set(kind)?;
        Ok(lock)
    }

    fn set(&self, kind: i32) -> io::Result<()> {
        lock_range(self.file, kind, self.start, self.length)
    }
}

impl Drop for RangeLock<'_> {
    fn drop(&mut self) {
        // If this fails, closing the file unlocks it.
        let _ = self.set(libc::F_UNLCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn record_locks_of_the_program_outlast_a_file_that_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let disk = Disk::new(path.clone(), true, true);
        let touch = |_: &fs::File| Ok(());
        disk.act(Creation::Yes, touch).unwrap();
        let own = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let set = |kind: i32| {
            let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
            let range = libc::flock { l_type, l_whence, l_start: 3, l_len: 4, l_pid: 0 };
            // SAFETY: - range is valid for reads: a local variable.
            assert_eq!(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETLK, &raw const range) }, 0);
        };
        set(libc::F_WRLCK);
        disk.close();
        assert!(has_record_locks(&own));
        let is_unneeded = || {
            lock(&UNNEEDED).iter().any(|known| known.file.metadata().unwrap().ino() == own.metadata().unwrap().ino())
        };
        assert!(is_unneeded());
        set(libc::F_UNLCK);
        disk.act(Creation::No, touch).unwrap();
        disk.close();
        assert!(!is_unneeded());
    }

    #[test]
    fn no_image_is_taken_in_the_midst_of_what_is_done_to_a_file() {
        const LENGTH: u64 = 64;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let disk = Disk::new(path.clone(), true, true);
        let (is_over, written, mut torn) = (AtomicBool::new(false), AtomicU64::new(0), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in (0..=u8::MAX).cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let write = |file: &fs::File| {
                        for at in 0..LENGTH {
                            file.write_all_at(&[round], at)?;
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    };
                    disk.act(Creation::Yes, write).unwrap();
                }
            });
            for _ in 0..200 {
                // Waits until the other thread writes.
                let before = written.load(Ordering::Relaxed);
                while written.load(Ordering::Relaxed) < before + LENGTH {
                    std::thread::yield_now();
                }
                let still = undo::still().expect("nobody is inside for long");
                let bytes = fs::read(&path).unwrap();
                drop(still);
                if bytes.iter().any(|byte| *byte != bytes[0]) {
                    torn = bytes;
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(torn.is_empty(), "{torn:?}");
    }
}
