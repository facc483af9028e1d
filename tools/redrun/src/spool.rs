//! Standard input of a coordinator that may be killed between reading and journalling: the kernel moves bytes
//! (`splice`) through a named pipe to a file, from which they are read.
//!
//! ```text
//!   standard input ── splice ─▶ pipe ── splice ─▶ file ── read ─▶ journal ─▶ processes
//! ```
//! At each moment a byte is in one of the first three. A pipe holder holds the pipe open, so its contents stay
//! ([`coordinator_records::pipe_holder`]). The next coordinator begins with the file's bytes beyond those in the
//! journal.
//!
//! Input that the kernel cannot splice (`/dev/null`) is read, and lost if the coordinator is killed before it is
//! journalled.

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes moved in one step: the capacity of a new pipe.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Spool of standard input: see the module.
#[derive(Debug)]
pub struct Spool {
    pipe: File,
    file: File,
    byte_count: u64,
    /// Number of bytes that were taken out.
    taken_bytes: u64,
    /// Bytes that were read, and that the file did not take.
    rest: Vec<u8>,
    /// Reason why the file takes no more.
    trouble: Option<io::Error>,
}

impl Spool {
    /// Creates the spool in this directory. `taken_bytes`: standard input journalled before.
    ///
    /// # Errors
    /// When it exists already, or there is no room for it.
    pub fn create(directory: &Path, taken_bytes: u64) -> io::Result<Self> {
        nix::unistd::mkfifo(&directory.join("input.pipe"), Mode::S_IRUSR | Mode::S_IWUSR)?;
        let mut options = OpenOptions::new();
        // Positions count all input, so the file begins with a hole for bytes that were read elsewhere.
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(directory.join("input"))?
            .set_len(taken_bytes)?;
        Self::come_back(directory, taken_bytes)
    }

    /// Opens the spool of a killed coordinator, which had journalled `taken_bytes`.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn come_back(directory: &Path, taken_bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let pipe =
            options.clone().custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(directory.join("input.pipe"))?;
        let file = options.create(true).truncate(false).open(directory.join("input"))?;
        let byte_count = file.metadata()?.len();
        let mut spool = Self { pipe, file, byte_count, taken_bytes, rest: Vec::new(), trouble: None };
        spool.settle()?;
        Ok(spool)
    }

    /// Reason why the file takes no more. Bytes that were pulled can still be taken out.
    pub fn trouble(&self) -> Option<&io::Error> {
        self.trouble.as_ref()
    }

    /// Moves available bytes of standard input, which must be readable. False at its end.
    ///
    /// # Errors
    /// When standard input cannot be read.
    pub fn pull(&mut self, input: &File) -> io::Result<bool> {
        match splice(input, None, &self.pipe, None, PIECE_BYTES_MAX, SpliceFFlags::empty()) {
            Ok(0) => Ok(false),
            Ok(_) => {
                self.trouble = self.settle().err();
                Ok(true)
            }
            Err(Errno::EINVAL) => {
                let mut bytes = vec![0; PIECE_BYTES_MAX];
                let count = { input }.read(&mut bytes)?;
                match self.file.write_all_at(&bytes[..count], self.byte_count) {
                    Ok(()) => self.byte_count += count as u64,
                    Err(error) => {
                        self.rest.extend_from_slice(&bytes[..count]);
                        self.trouble = Some(error);
                    }
                }
                Ok(count > 0)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Moves the pipe's contents to the file.
    fn settle(&mut self) -> io::Result<()> {
        loop {
            let mut at = self.byte_count as i64;
            let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
            match splice(&self.pipe, None, &self.file, Some(&mut at), PIECE_BYTES_MAX, flags) {
                Ok(count) => self.byte_count += count as u64,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes out the bytes not taken yet.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn take(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (self.byte_count - self.taken_bytes) as usize];
        self.file.read_exact_at(&mut bytes, self.taken_bytes)?;
        self.taken_bytes = self.byte_count;
        if self.trouble.is_some() {
            let mut piece = vec![0; PIECE_BYTES_MAX];
            while let Ok(count) = (&self.pipe).read(&mut piece) {
                bytes.extend_from_slice(&piece[..count]);
            }
        }
        bytes.append(&mut self.rest);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    #[test]
    fn unrecorded_input_is_there_for_the_next_coordinator() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(directory.path(), 0).unwrap();
        let pipe_holder = spool.pipe.try_clone().unwrap();
        let (reader, mut typed) = io::pipe().unwrap();
        let input = File::from(OwnedFd::from(reader));
        typed.write_all(b"one\n").unwrap();
        assert!(spool.pull(&input).unwrap());
        assert_eq!(spool.take().unwrap(), b"one\n");
        typed.write_all(b"two\n").unwrap();
        assert!(spool.pull(&input).unwrap());
        // Killed before journalling, and while more bytes were in the pipe.
        typed.write_all(b"three\n").unwrap();
        splice(&input, None, &spool.pipe, None, 100, SpliceFFlags::empty()).unwrap();
        drop(spool);
        let mut spool = Spool::come_back(directory.path(), 4).unwrap();
        assert_eq!(spool.take().unwrap(), b"two\nthree\n");
        drop(typed);
        assert!(!spool.pull(&input).unwrap());
        drop(pipe_holder);
    }

    #[test]
    fn on_another_host_it_begins_where_the_journal_ends() {
        let directory = tempfile::tempdir().unwrap();
        let (reader, mut typed) = io::pipe().unwrap();
        let input = File::from(OwnedFd::from(reader));
        let mut spool = Spool::create(directory.path(), 1000).unwrap();
        assert!(spool.take().unwrap().is_empty());
        typed.write_all(b"one\ntwo\n").unwrap();
        assert!(spool.pull(&input).unwrap());
        drop(spool);
        assert_eq!(Spool::come_back(directory.path(), 1004).unwrap().take().unwrap(), b"two\n");
    }

    #[test]
    fn a_full_disk_loses_nothing_of_what_was_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(directory.path(), 0).unwrap();
        let (reader, mut typed) = io::pipe().unwrap();
        let input = File::from(OwnedFd::from(reader));
        typed.write_all(b"kept\n").unwrap();
        assert!(spool.pull(&input).unwrap());
        // A file that is open only for reading takes nothing.
        spool.file = File::open(directory.path().join("input")).unwrap();
        typed.write_all(b"read\n").unwrap();
        assert!(spool.pull(&input).unwrap());
        assert!(spool.trouble().is_some());
        assert_eq!(spool.take().unwrap(), b"kept\nread\n");
    }

    #[test]
    fn input_that_nothing_can_be_moved_from_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(directory.path(), 0).unwrap();
        assert!(!spool.pull(&File::open("/dev/null").unwrap()).unwrap());
        assert!(spool.take().unwrap().is_empty());
    }
}
