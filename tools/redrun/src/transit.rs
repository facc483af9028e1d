//! Last step of the job's output. A coordinator that comes back knows exactly which bytes were shown, so none is shown
//! twice or lost, at whichever instruction the previous coordinator was killed.
//!
//! The trap: a writer that counts after its write can be killed in between. So bytes go through a named pipe, from
//! which the kernel moves them on in one step (`splice`); bytes left in that pipe were not shown. A pipe holder holds
//! the pipe open, so its contents stay ([`coordinator_records::pipe_holder`]).
//!
//! ```text
//!   account:  Filling(shown, count) ── write ──▶ pipe        all of it, as the pipe is empty
//!   account:  Draining(shown, count) ─ splice ─▶ target      shown = account's + count − what is left
//! ```
//! Killed while `Filling`: nothing of it was shown. While `Draining`: all that is not in the pipe. The account is a
//! file of 16 bytes that one call writes. Without a pipe holder the pipe's contents are unknown, and are shown again.
//!
//! If the kernel cannot splice to a target (above all a file opened for appending), bytes are written and then counted:
//! bytes written as the coordinator was killed may appear twice.

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes moved in one step, which any pipe holds.
const STAGED_BYTES_MAX: usize = 4096;
const ACCOUNT_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Filling = 0,
    Draining = 1,
}

/// The step for one stream: see the module.
#[derive(Debug)]
pub struct Transit {
    pipe: File,
    account: File,
    /// Bytes that the target has taken since the job began.
    shown_bytes: u64,
    /// Copy of `shown_bytes` for other threads.
    meter: Arc<AtomicU64>,
    /// Bytes in the pipe, which the next output begins with.
    staged_bytes: usize,
    /// True if a pipe holder had the pipe open when this was made.
    is_kept: bool,
}

fn open_pipe(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}

/// True if a process has the pipe open. Only processes that got it from the coordinator can, so it was open all the
/// time since the coordinator was killed.
fn has_pipe_holder(path: &Path) -> io::Result<bool> {
    match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
        Err(error) => Err(error),
    }
}

fn open_account(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Transit {
    /// Creates the step in this directory. `shown_bytes`: bytes shown before.
    ///
    /// # Errors
    /// When it exists already, or there is no room for it.
    pub fn create(directory: &Path, name: &str, shown_bytes: u64) -> io::Result<Self> {
        let path = directory.join(format!("{name}.pipe"));
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let account = open_account(&directory.join(format!("{name}.shown")))?;
        let transit = Self::of(open_pipe(&path)?, account, shown_bytes, false);
        transit.record(Phase::Filling, 0)?;
        Ok(transit)
    }

    /// Takes over the step of a killed coordinator.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn come_back(directory: &Path, name: &str) -> io::Result<Self> {
        let path = directory.join(format!("{name}.pipe"));
        let is_kept = has_pipe_holder(&path)?;
        let mut pipe = open_pipe(&path)?;
        let account = open_account(&directory.join(format!("{name}.shown")))?;
        let mut bytes = [0; ACCOUNT_BYTES];
        account.read_exact_at(&mut bytes, 0)?;
        let [s0, s1, s2, s3, s4, s5, s6, s7, c0, c1, c2, c3, phase, ..] = bytes;
        let noted = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let count = u64::from(u32::from_le_bytes([c0, c1, c2, c3]));
        let left = bytes_in(&pipe)?;
        let shown_bytes = if phase == Phase::Draining as u8 && is_kept { noted + count - left } else { noted };
        let transit = Self::of(pipe.try_clone()?, account, shown_bytes, is_kept);
        // Before the pipe is emptied: this process may be killed as well.
        transit.record(Phase::Filling, 0)?;
        let mut rest = vec![0; left as usize];
        pipe.read_exact(&mut rest)?;
        Ok(transit)
    }

    fn of(pipe: File, account: File, shown_bytes: u64, is_kept: bool) -> Self {
        let meter = Arc::new(AtomicU64::new(shown_bytes));
        Self { pipe, account, shown_bytes, meter, staged_bytes: 0, is_kept }
    }

    /// Counter of bytes that the target has taken since the job began, for other threads.
    pub fn meter(&self) -> Arc<AtomicU64> {
        self.meter.clone()
    }

    fn count(&mut self, byte_count: usize) {
        self.shown_bytes += byte_count as u64;
        self.meter.store(self.shown_bytes, Ordering::Relaxed);
    }

    /// Bytes that the target has taken since the job began.
    pub fn shown_bytes(&self) -> u64 {
        self.shown_bytes
    }

    /// True if a pipe holder had the pipe open while there was no coordinator.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn record(&self, phase: Phase, count: usize) -> io::Result<()> {
        let mut bytes = [0; ACCOUNT_BYTES];
        bytes[..8].copy_from_slice(&self.shown_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[12] = phase as u8;
        self.account.write_all_at(&bytes, 0)
    }

    /// Passes bytes on to the target. Returns their number. Bytes of an earlier call that were not passed must come
    /// first.
    ///
    /// # Errors
    /// Errors of writing to the target.
    pub fn pass(&mut self, target: &File, bytes: &[u8]) -> nix::Result<usize> {
        if self.staged_bytes == 0 {
            self.stage(&bytes[..bytes.len().min(STAGED_BYTES_MAX)])?;
        }
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
        match splice(&self.pipe, None, target, None, self.staged_bytes, flags) {
            Ok(count) => {
                self.staged_bytes -= count;
                self.count(count);
                if self.staged_bytes == 0 {
                    // Serves a failover without a pipe holder; with one, the account before says the same. So failure
                    // is harmless.
                    let _ = self.record(Phase::Filling, 0);
                }
                Ok(count)
            }
            Err(Errno::EINVAL) => self.write(target, bytes),
            Err(error) => Err(error),
        }
    }

    fn stage(&mut self, bytes: &[u8]) -> nix::Result<()> {
        let failed = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        self.record(Phase::Filling, bytes.len()).map_err(failed)?;
        let count = nix::unistd::write(&self.pipe, bytes)?;
        assert_eq!(count, bytes.len(), "the pipe was empty");
        self.staged_bytes = count;
        self.record(Phase::Draining, count).map_err(failed)
    }

    /// Writes to a target that splice does not support.
    fn write(&mut self, target: &File, bytes: &[u8]) -> nix::Result<usize> {
        let failed = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        self.record(Phase::Filling, 0).map_err(failed)?;
        let mut rest = vec![0; std::mem::take(&mut self.staged_bytes)];
        (&self.pipe).read_exact(&mut rest).map_err(failed)?;
        let count = nix::unistd::write(target, bytes)?;
        self.count(count);
        self.record(Phase::Filling, 0).map_err(failed)?;
        Ok(count)
    }
}

fn bytes_in(pipe: &File) -> io::Result<u64> {
    let mut count: libc::c_int = 0;
    // SAFETY: - FIONREAD writes one int to `count`, which outlives the call.
    //         - the descriptor is open: `pipe` borrows it.
    let result = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(pipe), libc::FIONREAD, &raw mut count) };
    Errno::result(result)?;
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The state that outlives a killed coordinator: target and account.
    struct Seen {
        directory: tempfile::TempDir,
        target: io::PipeReader,
        to_target: File,
        pipe_holder: File,
    }

    fn begin() -> (Seen, Transit) {
        let directory = tempfile::tempdir().unwrap();
        let transit = Transit::create(directory.path(), "out", 0).unwrap();
        let (target, to_target) = io::pipe().unwrap();
        let to_target = File::from(std::os::fd::OwnedFd::from(to_target));
        let pipe_holder = transit.pipe.try_clone().unwrap();
        (Seen { directory, target, to_target, pipe_holder }, transit)
    }

    impl Seen {
        fn come_back(&self) -> Transit {
            Transit::come_back(self.directory.path(), "out").unwrap()
        }
    }

    /// Its predecessor may have been killed at each step.
    #[test]
    fn a_coordinator_that_comes_back_knows_the_shown_bytes() {
        let (mut seen, mut transit) = begin();
        assert_eq!(transit.pass(&seen.to_target, b"shown").unwrap(), 5);
        assert_eq!(seen.come_back().shown_bytes(), 5);
        // Killed between any two calls of the next one.
        transit.record(Phase::Filling, 4).unwrap();
        assert_eq!(seen.come_back().shown_bytes(), 5);
        transit.record(Phase::Filling, 4).unwrap();
        (&transit.pipe).write_all(b"next").unwrap();
        assert_eq!(seen.come_back().shown_bytes(), 5);
        assert_eq!(bytes_in(&seen.pipe_holder).unwrap(), 0, "it is given again");
        transit.stage(b"next").unwrap();
        assert_eq!(seen.come_back().shown_bytes(), 5);
        transit.staged_bytes = 0;
        transit.stage(b"next").unwrap();
        splice(&transit.pipe, None, &seen.to_target, None, 3, SpliceFFlags::empty()).unwrap();
        assert_eq!(seen.come_back().shown_bytes(), 8, "though nobody has counted");
        let mut shown = [0; 8];
        seen.target.read_exact(&mut shown).unwrap();
        assert_eq!(&shown, b"shownnex");
    }

    #[test]
    fn what_a_target_did_not_take_is_the_first_of_what_comes_next() {
        let (mut seen, mut transit) = begin();
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&seen.to_target, flags).unwrap();
        let all: Vec<u8> = (0..1_000_000u32).map(|at| at as u8).collect();
        let (mut rest, mut shown) = (&all[..], Vec::new());
        while !rest.is_empty() {
            match transit.pass(&seen.to_target, rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => {
                    assert_eq!(error, Errno::EAGAIN);
                    let mut some = [0; 1000];
                    let count = seen.target.read(&mut some).unwrap();
                    shown.extend_from_slice(&some[..count]);
                }
            }
        }
        drop((seen.to_target, transit.pipe));
        seen.target.read_to_end(&mut shown).unwrap();
        assert!(shown == all);
    }

    #[test]
    fn a_file_that_is_open_for_appending_is_written_to() {
        let (seen, mut transit) = begin();
        let path = seen.directory.path().join("file");
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        for _ in 0..3 {
            assert_eq!(transit.pass(&file, b"line\n").unwrap(), 5);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"line\nline\nline\n");
        assert_eq!(seen.come_back().shown_bytes(), 15);
        let other = File::create(seen.directory.path().join("other")).unwrap();
        assert_eq!(transit.pass(&other, b"moved").unwrap(), 5);
    }

    #[test]
    fn without_a_keeper_bytes_in_the_pipe_are_shown_again() {
        let (seen, mut transit) = begin();
        assert_eq!(transit.pass(&seen.to_target, b"shown").unwrap(), 5);
        transit.stage(b"next").unwrap();
        drop((transit, seen.pipe_holder));
        let back = Transit::come_back(seen.directory.path(), "out").unwrap();
        assert_eq!(back.shown_bytes(), 5);
    }

    #[test]
    fn a_terminal_takes_what_is_moved_to_it() {
        let pair = nix::pty::openpty(None, None).unwrap();
        let (mut master, slave) = (File::from(pair.master), File::from(pair.slave));
        let (_seen, mut transit) = begin();
        assert_eq!(transit.pass(&slave, b"line\n").unwrap(), 5);
        let mut shown = [0; 6];
        master.read_exact(&mut shown).unwrap();
        assert_eq!(&shown, b"line\r\n");
    }
}
