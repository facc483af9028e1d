//! The last step of what a job prints, by which a root that comes back knows what was shown: nothing is shown twice or
//! lost, at whichever instruction the one before was killed.
//!
//! The trap: who writes to a terminal or pipe and then notes how much can be killed in between. So bytes go through a
//! pipe with a name, from which the kernel moves them on in one step (`splice`), and what is left in that pipe is what
//! was not shown. A keeper has it open, so that it stays ([`root_records::keeper`]).
//!
//! ```text
//!   account:  Filling(shown, count) ── write ──▶ pipe        all of it, as the pipe is empty
//!   account:  Draining(shown, count) ─ splice ─▶ target      shown = account's + count − what is left
//! ```
//! Killed while `Filling`, none of it was shown; while `Draining`, all that is not in the pipe. The account is a file
//! of 16 bytes that one call writes. Where nobody has kept the pipe, what was in it is not known: it is shown again.
//!
//! Where the kernel cannot move bytes to a target (a file that is open for appending, above all) they are written, and
//! counted after that: what was being written when the root was killed may be there twice.

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Moved at once; any pipe holds this much.
const STAGED_BYTES_MAX: usize = 4096;
const ACCOUNT_BYTES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Filling = 0,
    Draining = 1,
}

/// See the module.
#[derive(Debug)]
pub struct Transit {
    pipe: File,
    account: File,
    /// Bytes that the target has taken, since the job began.
    shown_bytes: u64,
    /// The same, for another thread to see.
    meter: Arc<AtomicU64>,
    /// In the pipe: the first of what comes next.
    staged_bytes: usize,
    /// Whether a keeper had the pipe open when this was made.
    is_kept: bool,
}

fn open_pipe(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}

/// Whether a process has the pipe open. As only who had it from the root has, that is so since the root was killed.
fn has_keeper(path: &Path) -> io::Result<bool> {
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
    /// A new one, in this directory. So much was shown before.
    ///
    /// # Errors
    /// When there is no room for it, or it is there.
    pub fn create(directory: &Path, name: &str, shown_bytes: u64) -> io::Result<Self> {
        let path = directory.join(format!("{name}.pipe"));
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let account = open_account(&directory.join(format!("{name}.shown")))?;
        let transit = Self::of(open_pipe(&path)?, account, shown_bytes, false);
        transit.note(Phase::Filling, 0)?;
        Ok(transit)
    }

    /// That of a root that was killed.
    ///
    /// # Errors
    /// When it is not there.
    pub fn come_back(directory: &Path, name: &str) -> io::Result<Self> {
        let path = directory.join(format!("{name}.pipe"));
        let is_kept = has_keeper(&path)?;
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
        // Before the pipe is emptied: this process may be killed too.
        transit.note(Phase::Filling, 0)?;
        let mut rest = vec![0; left as usize];
        pipe.read_exact(&mut rest)?;
        Ok(transit)
    }

    fn of(pipe: File, account: File, shown_bytes: u64, is_kept: bool) -> Self {
        let meter = Arc::new(AtomicU64::new(shown_bytes));
        Self { pipe, account, shown_bytes, meter, staged_bytes: 0, is_kept }
    }

    /// Where another thread sees what the target has taken since the job began.
    pub fn meter(&self) -> Arc<AtomicU64> {
        self.meter.clone()
    }

    fn count(&mut self, byte_count: usize) {
        self.shown_bytes += byte_count as u64;
        self.meter.store(self.shown_bytes, Ordering::Relaxed);
    }

    /// What the target has taken since the job began.
    pub fn shown_bytes(&self) -> u64 {
        self.shown_bytes
    }

    /// Whether a process had the pipe open while there was no root.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn note(&self, phase: Phase, count: usize) -> io::Result<()> {
        let mut bytes = [0; ACCOUNT_BYTES];
        bytes[..8].copy_from_slice(&self.shown_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[12] = phase as u8;
        self.account.write_all_at(&bytes, 0)
    }

    /// Passes some bytes on to the target; how many. What was passed in vain before must be the first of them.
    ///
    /// # Errors
    /// Those of a write to the target.
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
                    // For where nobody keeps the pipe. Without it the account says the same where somebody does.
                    let _ = self.note(Phase::Filling, 0);
                }
                Ok(count)
            }
            Err(Errno::EINVAL) => self.write(target, bytes),
            Err(error) => Err(error),
        }
    }

    fn stage(&mut self, bytes: &[u8]) -> nix::Result<()> {
        let failed = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        self.note(Phase::Filling, bytes.len()).map_err(failed)?;
        let count = nix::unistd::write(&self.pipe, bytes)?;
        assert_eq!(count, bytes.len(), "the pipe was empty");
        self.staged_bytes = count;
        self.note(Phase::Draining, count).map_err(failed)
    }

    /// To a target that nothing can be moved to.
    fn write(&mut self, target: &File, bytes: &[u8]) -> nix::Result<usize> {
        let failed = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        self.note(Phase::Filling, 0).map_err(failed)?;
        let mut rest = vec![0; std::mem::take(&mut self.staged_bytes)];
        (&self.pipe).read_exact(&mut rest).map_err(failed)?;
        let count = nix::unistd::write(target, bytes)?;
        self.count(count);
        self.note(Phase::Filling, 0).map_err(failed)?;
        Ok(count)
    }
}

fn bytes_in(pipe: &File) -> io::Result<u64> {
    let mut count: libc::c_int = 0;
    // SAFETY: - FIONREAD writes one int to where it is told, which is count.
    //         - the descriptor is open.
    let result = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(pipe), libc::FIONREAD, &raw mut count) };
    Errno::result(result)?;
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What a reader of the target and of the account of a root that was killed know.
    struct Seen {
        directory: tempfile::TempDir,
        target: io::PipeReader,
        to_target: File,
        keeper: File,
    }

    fn begin() -> (Seen, Transit) {
        let directory = tempfile::tempdir().unwrap();
        let transit = Transit::create(directory.path(), "out", 0).unwrap();
        let (target, to_target) = io::pipe().unwrap();
        let to_target = File::from(std::os::fd::OwnedFd::from(to_target));
        let keeper = transit.pipe.try_clone().unwrap();
        (Seen { directory, target, to_target, keeper }, transit)
    }

    impl Seen {
        fn come_back(&self) -> Transit {
            Transit::come_back(self.directory.path(), "out").unwrap()
        }
    }

    #[test]
    fn one_that_comes_back_knows_what_was_shown_at_each_step_at_which_the_other_may_have_been_killed() {
        let (mut seen, mut transit) = begin();
        assert_eq!(transit.pass(&seen.to_target, b"shown").unwrap(), 5);
        assert_eq!(seen.come_back().shown_bytes(), 5);
        // Between any two calls of the next one.
        transit.note(Phase::Filling, 4).unwrap();
        assert_eq!(seen.come_back().shown_bytes(), 5);
        transit.note(Phase::Filling, 4).unwrap();
        (&transit.pipe).write_all(b"next").unwrap();
        assert_eq!(seen.come_back().shown_bytes(), 5);
        assert_eq!(bytes_in(&seen.keeper).unwrap(), 0, "it is given again");
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
    fn where_nobody_has_kept_the_pipe_what_was_on_its_way_is_shown_again_rather_than_lost() {
        let (seen, mut transit) = begin();
        assert_eq!(transit.pass(&seen.to_target, b"shown").unwrap(), 5);
        transit.stage(b"next").unwrap();
        drop((transit, seen.keeper));
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
