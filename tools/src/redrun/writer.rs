//! A thread that writes to files, pipes or a terminal, and says what went wrong.
//!
//! ```text
//!   main thread ── bytes ─▶ queue ─▶ writer thread ─▶ file
//!               ◀─ Trouble: closed, failed, waits, goes on
//! ```
//! Targets that share a file system or a terminal share a thread: what is written to them keeps its order.

use super::status_lines::StatusLines;
use crate::cli::OnOutputError;
use background_worker::{Bell, Inbox, Worker};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, IntoRawFd};
use std::thread;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// With more than this waiting to be written, the processes are held.
pub const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// With less than this they go on.
pub const BACKLOG_BYTES_MIN: usize = 1 << 20;
/// Between tries to write what could not be written, with `--on-output-error=wait`.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Written at once: a file system that is slow shows some movement.
const WRITE_BYTES: usize = 256 << 10;

/// What is written to.
#[derive(Debug)]
pub struct Target {
    /// For the user.
    pub name: String,
    file: File,
    is_terminal: bool,
    is_regular: bool,
    /// Nothing can be written to it any more.
    is_closed: bool,
    /// The last byte that a terminal was given ended a line.
    ends_line: bool,
}

impl Target {
    /// This file, open for writing.
    pub fn new(name: String, file: File) -> Self {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let is_terminal = file.is_terminal();
        Self { name, file, is_terminal, is_regular, is_closed: false, ends_line: true }
    }
}

/// Which of a writer's targets.
pub type TargetIndex = usize;

/// What the thread does.
#[derive(Debug)]
enum Piece {
    /// With a checksum that is taken when they are handed over: what replicas have agreed on may lie here for long, and
    /// exists once.
    Bytes(TargetIndex, Vec<u8>, u64),
    /// All bytes for it have been given: have they arrived?
    Settle(TargetIndex),
    /// These lines stand at the foot of the terminal from now on.
    Status(Vec<String>),
}

/// What the thread says.
#[derive(Debug)]
pub enum Trouble {
    /// Nobody reads it any more.
    Closed(TargetIndex),
    /// What was to be written there is lost. Told once for each target.
    Failed(TargetIndex, io::Error),
    /// It cannot be written now, and is tried again.
    Waits(TargetIndex, io::Error),
    /// It can be written again.
    GoesOn(TargetIndex),
}

/// See the module.
#[derive(Debug)]
pub struct Writer {
    worker: Worker<Piece, Trouble>,
    names: Vec<String>,
    is_regular: bool,
}

impl Writer {
    /// Starts the thread.
    pub fn start(name: &str, targets: Vec<Target>, on_error: OnOutputError, bell: Bell) -> io::Result<Self> {
        let names = targets.iter().map(|target| target.name.clone()).collect();
        let is_regular = targets.iter().any(|target| target.is_regular);
        let serve = move |inbox: &Inbox<Piece, Trouble>| {
            // A limit of file sizes (`ulimit -f`) is an error as others are.
            let _ = xfsz().thread_block();
            let mut thread = Thread { targets, on_error, inbox, status: StatusLines::default() };
            while let Some(piece) = inbox.next() {
                thread.take(piece);
            }
            thread.status.set(Vec::new());
        };
        Ok(Self { worker: Worker::start(name, bell, BACKLOG_BYTES_MIN, serve)?, names, is_regular })
    }

    /// Writes this, after what was given before.
    pub fn write(&self, target: TargetIndex, bytes: Vec<u8>) {
        let byte_count = bytes.len();
        if byte_count > 0 {
            let checksum = checksum(&bytes);
            self.worker.give(Piece::Bytes(target, bytes, checksum), byte_count);
        }
    }

    /// Nothing more will be written there: if what was written is refused only when a file is closed, as by NFS, that
    /// is found out.
    pub fn settle(&self, target: TargetIndex) {
        self.worker.give(Piece::Settle(target), 0);
    }

    /// Shows these lines at the foot of the terminal.
    pub fn show_status(&self, lines: Vec<String>) {
        self.worker.give(Piece::Status(lines), 0);
    }

    /// A target's name.
    pub fn name(&self, target: TargetIndex) -> &str {
        &self.names[target]
    }

    /// Bytes that are not written.
    pub fn waiting_bytes(&self) -> usize {
        self.worker.waiting_bytes()
    }

    /// Whether everything is written.
    pub fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    /// What has gone wrong, and was not told yet.
    pub fn poll_trouble(&self) -> Option<Trouble> {
        self.worker.poll_event()
    }

    /// Nothing more will be given.
    pub fn close(&self) {
        self.worker.close();
    }

    /// Waits until everything is written, no longer than this. Whether it is.
    pub fn wait_for_end(&self, time_max: Duration) -> bool {
        self.worker.wait_for_end(time_max)
    }

    /// Since when a regular file has taken nothing of what is to be written to it. That a reader of a pipe takes its
    /// time is nothing special.
    pub fn still_since(&self) -> Option<Instant> {
        self.worker.still_since().filter(|_| self.is_regular)
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

fn xfsz() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGXFSZ);
    set
}

struct Thread<'a> {
    targets: Vec<Target>,
    on_error: OnOutputError,
    inbox: &'a Inbox<Piece, Trouble>,
    status: StatusLines,
}

impl Thread<'_> {
    fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes(at, bytes, sum) if sum != checksum(&bytes) => {
                let target = &mut self.targets[at];
                if !std::mem::replace(&mut target.is_closed, true) {
                    let error = io::Error::other("it has changed in redrun's memory since it was agreed on");
                    self.inbox.tell(Trouble::Failed(at, error));
                }
            }
            Piece::Bytes(target, bytes, _) => {
                let is_terminal = self.targets[target].is_terminal;
                if is_terminal {
                    self.status.clear();
                }
                self.write(target, &bytes);
                if is_terminal {
                    self.status.resume(self.targets.iter().all(|target| target.ends_line));
                }
            }
            Piece::Settle(target) => self.settle(target),
            Piece::Status(lines) => {
                if !self.status.is_shown() && !lines.is_empty() {
                    self.status = StatusLines::new();
                }
                self.status.set(lines);
            }
        }
    }

    fn write(&mut self, at: TargetIndex, bytes: &[u8]) {
        let target = &mut self.targets[at];
        let (mut rest, mut waits) = (bytes, false);
        while !rest.is_empty() && !target.is_closed {
            match nix::unistd::write(&target.file, &rest[..rest.len().min(WRITE_BYTES)]) {
                Ok(count) => {
                    rest = &rest[count..];
                    self.inbox.moved();
                    if std::mem::take(&mut waits) {
                        self.inbox.tell(Trouble::GoesOn(at));
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => wait_for_room(&target.file),
                Err(error) if matches!(error, Errno::EPIPE | Errno::EBADF) || target.is_terminal => {
                    target.is_closed = true;
                    self.inbox.tell(Trouble::Closed(at));
                }
                Err(error) if self.on_error == OnOutputError::Wait => {
                    if !std::mem::replace(&mut waits, true) {
                        self.inbox.tell(Trouble::Waits(at, error.into()));
                    }
                    thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => {
                    target.is_closed = true;
                    self.inbox.tell(Trouble::Failed(at, error.into()));
                }
            }
        }
        target.ends_line = !target.is_terminal || bytes.ends_with(b"\n");
    }

    /// What a file system that writes late could not write, it says when a file is closed.
    fn settle(&mut self, at: TargetIndex) {
        let target = &mut self.targets[at];
        if !target.is_regular || target.is_closed {
            return;
        }
        let closed = target.file.as_fd().try_clone_to_owned().map(|copy| nix::unistd::close(copy.into_raw_fd()));
        if let Ok(Err(error)) = closed {
            target.is_closed = true;
            self.inbox.tell(Trouble::Failed(at, error.into()));
        }
    }
}

/// Somebody else made it non-blocking.
fn wait_for_room(file: &File) {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    // If it cannot be waited for, writing fails too.
    let _ = poll(&mut fds, PollTimeout::from(1000u16));
}

#[cfg(test)]
mod tests {
    use super::*;
    use background_worker::bell;
    use std::io::Read;

    const LONG: Duration = Duration::from_secs(60);

    fn full() -> Target {
        Target::new("full".into(), File::options().write(true).open("/dev/full").unwrap())
    }

    fn ended(writer: &Writer) -> Vec<Trouble> {
        writer.close();
        assert!(writer.wait_for_end(LONG));
        std::iter::from_fn(|| writer.poll_trouble()).collect()
    }

    #[test]
    fn a_full_disk_is_an_error_and_told_once() {
        let writer = Writer::start("test", vec![full()], OnOutputError::Abort, bell().unwrap()).unwrap();
        writer.write(0, b"one".to_vec());
        writer.write(0, b"two".to_vec());
        let troubles = ended(&writer);
        let [Trouble::Failed(0, error)] = &troubles[..] else { panic!("{troubles:?}") };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn what_has_changed_in_memory_is_not_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let target = Target::new("file".into(), file.reopen().unwrap());
        let writer = Writer::start("test", vec![target], OnOutputError::Wait, bell().unwrap()).unwrap();
        writer.write(0, b"sound\n".to_vec());
        let sum = checksum(b"agreed\n");
        writer.worker.give(Piece::Bytes(0, b"aggeed\n".to_vec(), sum), 7);
        writer.write(0, b"later\n".to_vec());
        let troubles = ended(&writer);
        let [Trouble::Failed(0, error)] = &troubles[..] else { panic!("{troubles:?}") };
        assert!(error.to_string().contains("has changed in redrun's memory"), "{error}");
        assert_eq!(std::fs::read(file.path()).unwrap(), b"sound\n");
    }

    #[test]
    fn a_reader_that_is_gone_is_not_called_a_full_disk() {
        let (read, write) = nix::unistd::pipe().unwrap();
        drop(read);
        let target = Target::new("pipe".into(), write.into());
        let writer = Writer::start("test", vec![target], OnOutputError::Wait, bell().unwrap()).unwrap();
        writer.write(0, b"one".to_vec());
        let troubles = ended(&writer);
        assert!(matches!(troubles[..], [Trouble::Closed(0)]), "{troubles:?}");
    }

    #[test]
    fn what_is_not_open_for_writing_is_closed() {
        let target = Target::new("null".into(), File::open("/dev/null").unwrap());
        let writer = Writer::start("test", vec![target], OnOutputError::Wait, bell().unwrap()).unwrap();
        writer.write(0, b"one".to_vec());
        let troubles = ended(&writer);
        assert!(matches!(troubles[..], [Trouble::Closed(0)]), "{troubles:?}");
    }

    #[test]
    fn with_wait_what_does_not_fit_is_kept_and_tried_again() {
        let writer = Writer::start("test", vec![full()], OnOutputError::Wait, bell().unwrap()).unwrap();
        writer.write(0, b"one".to_vec());
        let begin = Instant::now();
        let told = loop {
            match writer.poll_trouble() {
                Some(told) => break told,
                None => assert!(begin.elapsed() < LONG),
            }
            thread::yield_now();
        };
        assert!(matches!(told, Trouble::Waits(0, _)), "{told:?}");
        assert!(!writer.is_idle() && writer.waiting_bytes() == 3);
    }

    #[test]
    fn a_target_that_takes_nothing_keeps_nobody_waiting() {
        let (mut read, write) = std::io::pipe().unwrap();
        let target = Target::new("pipe".into(), File::from(std::os::fd::OwnedFd::from(write)));
        let writer = Writer::start("test", vec![target], OnOutputError::Abort, bell().unwrap()).unwrap();
        let sent: Vec<u8> = (0..1_000_000u32).map(|at| at as u8).collect();
        writer.write(0, sent.clone());
        assert!(writer.waiting_bytes() > 0, "a pipe does not hold that much");
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            read.read_to_end(&mut got).unwrap();
            got
        });
        assert!(ended(&writer).is_empty());
        drop(writer);
        assert!(reader.join().unwrap() == sent);
    }
}
