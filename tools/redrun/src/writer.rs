//! A thread that writes to files, pipes or a terminal, and reports trouble.
//!
//! ```text
//!   main thread ── bytes ─▶ queue ─▶ writer thread ─▶ file
//!               ◀─ Trouble: closed, failed, waits, goes on
//! ```
//! Targets that share a file system or terminal share a thread, which keeps the order of writes.
//!
//! Targets of a detachable job lead through an [`Outlet`]: the main thread can redirect them during a write, and output
//! is kept while they lead nowhere.

pub mod outlet;
mod spooled_output;

use super::status_lines::StatusLines;
use super::transit::Transit;
use background_worker::{Bell, Inbox, Worker};
use job_options::OnOutputError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use outlet::{Change, Outlet};
use spooled_output::SpooledOutput;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, IntoRawFd};
use std::thread;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// Waiting bytes above which processes are held.
pub const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// Waiting bytes below which held processes go on.
pub const BACKLOG_BYTES_MIN: usize = 1 << 20;
/// Interval between attempts with `--on-output-error=wait`.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum of one write: even a slow file system shows progress.
const WRITE_BYTES: usize = 256 << 10;

/// A file, pipe or terminal that a writer writes to.
#[derive(Debug)]
pub struct Target {
    /// Name for messages.
    pub name: String,
    /// `None` while the target leads nowhere.
    file: Option<File>,
    /// True if the target can be redirected.
    is_detachable: bool,
    /// Counts shown bytes of the job's output, for a coordinator that may come back.
    transit: Option<Transit>,
    is_terminal: bool,
    is_regular: bool,
    /// True once nothing more can be written.
    is_closed: bool,
    /// True if the last byte written to a terminal ended a line.
    ends_line: bool,
}

impl Target {
    /// A target for this file, which is open for writing.
    pub fn new(name: String, file: File) -> Self {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let is_terminal = file.is_terminal();
        Self { file: Some(file), is_detachable: false, is_terminal, is_regular, ..Self::nowhere(name) }
    }

    /// A target of a detachable job.
    pub fn detachable(name: String, file: File) -> Self {
        Self { is_detachable: true, ..Self::new(name, outlet::without_waiting(file)) }
    }

    /// A target that leads nowhere until it is redirected.
    pub fn nowhere(name: String) -> Self {
        Self {
            name,
            file: None,
            is_detachable: true,
            transit: None,
            is_terminal: false,
            is_regular: false,
            is_closed: false,
            ends_line: true,
        }
    }

    /// Adds a step that counts shown bytes.
    pub fn with_transit(self, transit: Option<Transit>) -> Self {
        Self { transit, ..self }
    }

    fn change(&mut self, change: Change) {
        match change {
            // A file that a script has chosen outlives the terminal.
            Change::To(_) if self.is_regular => {}
            Change::To(file) => {
                let new = Self { ends_line: true, ..Self::detachable(self.name.clone(), file) };
                *self = new.with_transit(self.transit.take());
            }
            Change::Away if self.file.as_ref().is_some_and(outlet::goes_with_console) => self.lose(),
            Change::Away => {}
        }
    }

    fn lose(&mut self) {
        (self.file, self.is_terminal, self.is_regular) = (None, false, false);
    }
}

/// Index of a target within its writer.
pub type TargetIndex = usize;

/// Work for the thread.
#[derive(Debug)]
enum Piece {
    /// The checksum is taken at the hand-over: agreed output exists only once, and may lie here for long.
    Bytes { target: TargetIndex, is_of_job: bool, bytes: Vec<u8>, checksum: u64 },
    /// All bytes for the target were given: finds out whether they have arrived.
    Settle(TargetIndex),
    /// New lines at the foot of the terminal.
    Status(Vec<String>),
    /// The outlet has changes.
    Look,
}

/// Report of the thread.
#[derive(Debug)]
pub enum Trouble {
    /// The target has no reader any more.
    Closed(TargetIndex),
    /// Output to the target is lost. Reported once for each target.
    Failed(TargetIndex, io::Error),
    /// The target cannot be written now, and is tried again.
    Waits(TargetIndex, io::Error),
    /// The target can be written again.
    GoesOn(TargetIndex),
}

/// Main thread's end of the queue: see the module.
#[derive(Debug)]
pub struct Writer {
    worker: Worker<Piece, Trouble>,
    names: Vec<String>,
    is_regular: bool,
    /// `None` if no target is detachable.
    outlet: Option<Outlet>,
}

impl Writer {
    pub fn start(name: &str, targets: Vec<Target>, on_error: OnOutputError, bell: Bell) -> io::Result<Self> {
        let names = targets.iter().map(|target| target.name.clone()).collect();
        let is_regular = targets.iter().any(|target| target.is_regular);
        let outlet = match targets.iter().any(|target| target.is_detachable) {
            true => Some(Outlet::new()?),
            false => None,
        };
        let (of_thread, kept) = (outlet.clone(), SpooledOutput::new(targets.len()));
        let serve = move |inbox: &Inbox<Piece, Trouble>| {
            // A file size limit (`ulimit -f`) must fail writes, not kill the process.
            let _ = xfsz().thread_block();
            let status = StatusLines::default();
            let mut thread = Thread { targets, on_error, inbox, status, outlet: of_thread, kept };
            while let Some(piece) = inbox.next() {
                thread.take(piece);
            }
            thread.show_the_rest();
            thread.status.set(Vec::new());
        };
        Ok(Self { worker: Worker::start(name, bell, BACKLOG_BYTES_MIN, serve)?, names, is_regular, outlet })
    }

    /// Redirects targets of a detachable job. Changes given together are applied together: output written before one of
    /// them stays in order with output written after another.
    pub fn change(&self, changes: impl IntoIterator<Item = (TargetIndex, Change)>) {
        if let Some(outlet) = &self.outlet {
            outlet.change(changes);
            self.worker.give(Piece::Look, 0);
        }
    }

    /// True if output is kept because the console's reader is gone.
    pub fn is_stuck(&self) -> bool {
        self.outlet.as_ref().is_some_and(Outlet::is_stuck)
    }

    /// Queues output of the job.
    pub fn write(&self, target: TargetIndex, bytes: Vec<u8>) {
        self.give(target, true, bytes);
    }

    /// Queues output of this program.
    pub fn say(&self, target: TargetIndex, bytes: Vec<u8>) {
        self.give(target, false, bytes);
    }

    fn give(&self, target: TargetIndex, is_of_job: bool, bytes: Vec<u8>) {
        let byte_count = bytes.len();
        if byte_count > 0 {
            let checksum = checksum(&bytes);
            self.worker.give(Piece::Bytes { target, is_of_job, bytes, checksum }, byte_count);
        }
    }

    /// Ends the output to a target. Some file systems, such as NFS, report failed writes only when a file is closed;
    /// this finds them.
    pub fn settle(&self, target: TargetIndex) {
        self.worker.give(Piece::Settle(target), 0);
    }

    /// Shows these lines at the foot of the terminal.
    pub fn show_status(&self, lines: Vec<String>) {
        self.worker.give(Piece::Status(lines), 0);
    }

    pub fn name(&self, target: TargetIndex) -> &str {
        &self.names[target]
    }

    /// Blocks until at most this many bytes wait.
    pub fn wait_for_room(&self, byte_count_max: usize) {
        self.worker.wait_for_room(byte_count_max);
    }

    /// Bytes that wait to be written.
    pub fn waiting_bytes(&self) -> usize {
        self.worker.waiting_bytes()
    }

    /// True if everything is written.
    pub fn is_idle(&self) -> bool {
        self.worker.is_idle()
    }

    /// Next report of the thread.
    pub fn poll_trouble(&self) -> Option<Trouble> {
        self.worker.poll_event()
    }

    /// Closes the queue.
    pub fn close(&self) {
        self.worker.close();
    }

    /// Waits until everything is written. False after `time_max`.
    pub fn wait_for_end(&self, time_max: Duration) -> bool {
        self.worker.wait_for_end(time_max)
    }

    /// Time since which a regular file has taken no bytes although some wait. Slow readers of pipes are no trouble.
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
    outlet: Option<Outlet>,
    kept: SpooledOutput,
}

impl Thread<'_> {
    fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes { target: at, bytes, checksum: sum, .. } if sum != checksum(&bytes) => {
                let target = &mut self.targets[at];
                if !std::mem::replace(&mut target.is_closed, true) {
                    let error = io::Error::other("it has changed in redrun's memory since it was agreed on");
                    self.inbox.report(Trouble::Failed(at, error));
                }
            }
            Piece::Bytes { target, is_of_job, bytes, .. } => {
                self.show_kept();
                self.with_cursor(target, |thread| thread.write(target, is_of_job, &bytes));
            }
            Piece::Look => self.show_kept(),
            Piece::Settle(target) => self.settle(target),
            Piece::Status(lines) => {
                if !self.status.is_shown() && !lines.is_empty() {
                    self.status = StatusLines::new();
                }
                self.status.set(lines);
            }
        }
    }

    /// Runs `write`, which may move a terminal's cursor, with the status lines cleared.
    fn with_cursor(&mut self, target: TargetIndex, write: impl FnOnce(&mut Self)) {
        let is_terminal = self.targets[target].is_terminal;
        if is_terminal {
            self.status.clear();
        }
        write(self);
        if is_terminal {
            self.status.resume(self.targets.iter().all(|target| target.ends_line));
        }
    }

    fn write(&mut self, at: TargetIndex, is_of_job: bool, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.targets[at].is_closed {
            // Kept output goes first.
            let is_direct = self.targets[at].file.is_some() && !self.kept.has(at);
            let count = match is_direct {
                true => self.write_some(at, is_of_job, rest),
                false => self.keep_some(at, is_of_job, rest),
            };
            rest = &rest[count..];
            if !rest.is_empty() {
                self.show_kept();
            }
        }
    }

    /// Writes some bytes, and returns their number; 0 if the target leads nowhere any more, or may have been
    /// redirected.
    fn write_some(&mut self, at: TargetIndex, is_of_job: bool, bytes: &[u8]) -> usize {
        let target = &mut self.targets[at];
        let Some(file) = &target.file else { return 0 };
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
        let mut waits = false;
        loop {
            let written = match target.transit.as_mut().filter(|_| is_of_job) {
                Some(transit) => transit.pass(file, bytes),
                None => nix::unistd::write(file, bytes),
            };
            match written {
                Ok(count) => {
                    self.inbox.moved();
                    if waits {
                        self.inbox.report(Trouble::GoesOn(at));
                    }
                    target.ends_line = !target.is_terminal || bytes[..count].ends_with(b"\n");
                    return count;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    wait_for_room(file, self.outlet.as_ref());
                    if self.outlet.is_some() {
                        return 0;
                    }
                }
                Err(error) if matches!(error, Errno::EPIPE | Errno::EBADF) || target.is_terminal => {
                    if let Some(outlet) = self.outlet.as_ref().filter(|_| target.is_detachable) {
                        target.lose();
                        outlet.record_no_reader();
                    } else {
                        target.is_closed = true;
                        self.inbox.report(Trouble::Closed(at));
                    }
                    return 0;
                }
                Err(error) if self.on_error == OnOutputError::Wait => {
                    if !std::mem::replace(&mut waits, true) {
                        self.inbox.report(Trouble::Waits(at, error.into()));
                    }
                    thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => {
                    target.is_closed = true;
                    self.inbox.report(Trouble::Failed(at, error.into()));
                    return 0;
                }
            }
        }
    }

    /// Keeps some bytes until there is a console, and returns their number; 0 if there may be one now.
    fn keep_some(&mut self, at: TargetIndex, is_of_job: bool, bytes: &[u8]) -> usize {
        let Some(outlet) = &self.outlet else { return bytes.len() };
        if self.kept.has_room() {
            match self.kept.push(at, is_of_job, bytes) {
                Ok(count) => {
                    self.inbox.moved();
                    outlet.record_kept(true);
                    return count;
                }
                // The disk is full. Waiting for room or for a console loses nothing.
                Err(_) => outlet.wait(Some(RETRY_INTERVAL)),
            }
        } else {
            outlet.wait(None);
        }
        0
    }

    /// Applies changes of the outlet.
    fn follow(&mut self) {
        for (target, change) in self.outlet.as_ref().map_or_else(Vec::new, Outlet::take) {
            self.targets[target].change(change);
            self.status = StatusLines::default();
        }
    }

    /// Applies changes of the outlet, then shows kept output up to a piece whose target leads nowhere.
    fn show_kept(&mut self) {
        if self.outlet.is_none() {
            return;
        }
        loop {
            self.follow();
            let (at, is_of_job, bytes) = match self.kept.front() {
                Ok(Some(piece)) => (piece.target, piece.is_of_job, piece.bytes.clone()),
                Ok(None) => break,
                Err(error) => {
                    self.inbox.report(Trouble::Failed(0, error));
                    self.kept = SpooledOutput::new(self.targets.len());
                    break;
                }
            };
            let target = &self.targets[at];
            if target.is_closed {
                // The loss of the target was reported.
                self.kept.shown(bytes.len());
            } else if target.file.is_none() {
                break;
            } else {
                self.with_cursor(at, |thread| {
                    let count = thread.write_some(at, is_of_job, &bytes);
                    thread.kept.shown(count);
                });
            }
        }
        if let Some(outlet) = &self.outlet {
            outlet.record_kept(!self.kept.is_empty());
        }
    }

    /// Shows all kept output after the job's end. Blocks until a console takes it.
    fn show_the_rest(&mut self) {
        self.show_kept();
        while !self.kept.is_empty() {
            match &self.outlet {
                Some(outlet) => outlet.wait(None),
                None => return,
            }
            self.show_kept();
        }
    }

    /// Finds failures of late writes, which a file system reports when a file is closed.
    fn settle(&mut self, at: TargetIndex) {
        let target = &mut self.targets[at];
        let Some(file) = target.file.as_ref().filter(|_| target.is_regular && !target.is_closed) else { return };
        let closed = file.as_fd().try_clone_to_owned().map(|copy| nix::unistd::close(copy.into_raw_fd()));
        if let Ok(Err(error)) = closed {
            target.is_closed = true;
            self.inbox.report(Trouble::Failed(at, error.into()));
        }
    }
}

/// Waits until a non-blocking target takes bytes, or is redirected. A target is non-blocking if it is detachable, or if
/// another process made it so.
fn wait_for_room(file: &File, outlet: Option<&Outlet>) {
    let mut fds = vec![PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    fds.extend(outlet.map(|outlet| PollFd::new(outlet.fd(), PollFlags::POLLIN)));
    // If waiting fails, the next write fails too.
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
        let changed = Piece::Bytes { target: 0, is_of_job: true, bytes: b"aggeed\n".to_vec(), checksum: sum };
        writer.worker.give(changed, 7);
        writer.write(0, b"later\n".to_vec());
        let troubles = ended(&writer);
        let [Trouble::Failed(0, error)] = &troubles[..] else { panic!("{troubles:?}") };
        assert!(error.to_string().contains("has changed in redrun's memory"), "{error}");
        assert_eq!(std::fs::read(file.path()).unwrap(), b"sound\n");
    }

    #[test]
    fn a_reader_that_is_gone_is_not_called_a_full_disk() {
        let (reader, file) = pipe();
        drop(reader);
        wait_until_nobody_reads(&file);
        let target = Target::new("pipe".into(), file);
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

    fn pipe() -> (io::PipeReader, File) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, File::from(std::os::fd::OwnedFd::from(writer)))
    }

    /// A child that another test spawns holds all of this process's descriptors until its exec.
    fn wait_until_nobody_reads(file: &File) {
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::empty())];
        while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
        assert_eq!(fds[0].revents(), Some(PollFlags::POLLERR));
    }

    /// Reads in the background until the pipe ends.
    fn read(mut reader: io::PipeReader) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            got
        })
    }

    /// A writer of both streams to one pipe, in a detachable job.
    fn detachable(file: File) -> Writer {
        let targets = vec![
            Target::detachable("output".into(), file.try_clone().unwrap()),
            Target::detachable("error".into(), file),
        ];
        Writer::start("test", targets, OnOutputError::Abort, bell().unwrap()).unwrap()
    }

    #[test]
    fn output_without_a_terminal_is_shown_on_the_next_in_order() {
        let pair = nix::pty::openpty(None, None).unwrap();
        let (mut master, slave) = (File::from(pair.master), File::from(pair.slave));
        let writer = detachable(slave);
        writer.write(0, b"seen\n".to_vec());
        let mut seen = [0; 6];
        master.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"seen\r\n");
        writer.change([0, 1].map(|target| (target, Change::Away)));
        for number in 0..100_000 {
            writer.write(number % 2, format!("{number}\n").into_bytes());
        }
        while !writer.is_idle() {
            thread::yield_now();
        }
        // A console that leaves before it has taken all, and whose pipe is full meanwhile.
        let (mut first, file) = pipe();
        writer.change([0, 1].map(|target| (target, Change::To(file.try_clone().unwrap()))));
        drop(file);
        let mut shown = vec![0; 100_000];
        first.read_exact(&mut shown).unwrap();
        let (second, file) = pipe();
        writer.change([0, 1].map(|target| (target, Change::To(file.try_clone().unwrap()))));
        drop(file);
        let (first, second) = (read(first), read(second));
        writer.write(0, b"last\n".to_vec());
        assert!(ended(&writer).is_empty());
        shown.extend(first.join().unwrap());
        shown.extend(second.join().unwrap());
        let all: String = (0..100_000).map(|number| format!("{number}\n")).chain(["last\n".into()]).collect();
        assert!(shown == all.as_bytes());
    }

    #[test]
    fn the_loss_of_its_reader_ends_no_detachable_job() {
        let (reader, file) = pipe();
        drop(reader);
        wait_until_nobody_reads(&file);
        let writer = detachable(file);
        writer.write(0, b"kept\n".to_vec());
        while !writer.is_stuck() {
            thread::yield_now();
        }
        let (reader, file) = pipe();
        writer.change([0, 1].map(|target| (target, Change::To(file.try_clone().unwrap()))));
        drop(file);
        assert!(ended(&writer).is_empty());
        drop(writer);
        assert_eq!(read(reader).join().unwrap(), b"kept\n");
    }

    #[test]
    fn a_regular_file_stays_the_target_whatever_terminal_comes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = detachable(file.reopen().unwrap());
        let (reader, other) = pipe();
        writer.change([(0, Change::Away)]);
        writer.change([(0, Change::To(other))]);
        writer.write(0, b"line\n".to_vec());
        assert!(ended(&writer).is_empty());
        drop(writer);
        assert_eq!(std::fs::read(file.path()).unwrap(), b"line\n");
        assert!(read(reader).join().unwrap().is_empty());
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
