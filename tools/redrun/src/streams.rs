//! Standard input.

use super::spool::Spool;
use super::writer;
use anyhow::{Context, Result};
use coordinator_records::ledger::Ledger;
use job_console::consoles::Consoles;
use job_options::Job;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read as _, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

/// Opens standard input for `poll`. A regular file is always readable for `poll`, even while its file system is stuck,
/// so a thread copies it into a pipe. Of a file, a resumed job skips the bytes that it has read.
pub(super) fn open_input(skipped_bytes: u64) -> Result<File> {
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    if !input.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(input);
    }
    if skipped_bytes > 0 {
        input.seek(SeekFrom::Current(skipped_bytes as i64)).context("Failed to go on in standard input")?;
    }
    pumped(input)
}

/// A pipe into which a thread copies a regular file.
pub(super) fn pumped(mut input: File) -> Result<File> {
    let (reader, mut writer) = std::io::pipe().context("Failed to make a pipe")?;
    // The thread ends when the pipe's reader is gone.
    let pump = move || drop(std::io::copy(&mut input, &mut writer));
    std::thread::Builder::new().name("redrun-input".into()).spawn(pump)?;
    Ok(File::from(OwnedFd::from(reader)))
}

/// True if this is a terminal whose other end is gone.
fn has_hung_up(input: &File) -> bool {
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::empty())];
    // After a hang-up isatty() says no. A pipe whose writer is gone has ended, and is no character device.
    let is_device = input.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device());
    is_device && poll(&mut fds, PollTimeout::ZERO).is_ok() && fds[0].any().unwrap_or(false)
}

/// The job's standard input.
pub(super) struct StandardInput {
    /// Where it is read. `None` at its end, or while no console has it.
    source: Option<File>,
    /// Keeps input that was read and not yet in the journal, should this process be killed.
    pub spool: Option<Spool>,
    /// If true, input is read on when a console leaves.
    is_file: bool,
    /// True once nothing more is read.
    has_ended: bool,
}

/// Outcome of a look at standard input.
pub(super) enum Read {
    Bytes(Vec<u8>),
    /// The terminal is gone; another may come.
    HungUp,
    End,
}

impl StandardInput {
    /// Standard input of a job. Only with a console it is that of this process.
    pub fn open(job: &Job, has_console: bool, spool: Option<Spool>) -> Result<Self> {
        let source = match job.origin {
            None if has_console => Some(open_input(job.resume.as_ref().map_or(0, |kept| kept.manifest.input_bytes))?),
            _ => None,
        };
        let is_file = !writer::outlet::goes_with_console(&std::io::stdin());
        Ok(Self { source, spool, is_file, has_ended: false })
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Nothing more is read.
    pub fn end(&mut self) {
        (self.source, self.has_ended) = (None, true);
    }

    /// A console has come, on whose terminal input may be read.
    pub fn attach(&mut self, job: &Job) {
        if self.source.is_none() && !self.has_ended && job.origin.is_none() {
            self.source = open_input(0).ok();
            self.is_file = !writer::outlet::goes_with_console(&std::io::stdin());
        }
    }

    /// The terminal is gone. Another one may come.
    pub fn hang_up(&mut self) {
        self.source = None;
    }

    /// The console has left.
    pub fn detach(&mut self) {
        self.source = self.source.take().filter(|_| self.is_file);
    }

    /// Goes on in a file.
    pub fn go_on(&mut self, file: File) -> Result<()> {
        (self.source, self.is_file) = (Some(pumped(file)?), true);
        Ok(())
    }

    /// Input that the coordinator before had read and not handled.
    pub fn left(&mut self) -> io::Result<Vec<u8>> {
        self.spool.as_mut().map_or(Ok(Vec::new()), Spool::take)
    }

    /// True if it may be read at this terminal: this is the foreground job.
    pub fn is_in_foreground(&self, consoles: Option<&Consoles>) -> bool {
        let Some(source) = &self.source else { return false };
        match consoles {
            Some(consoles) => consoles.is_in_foreground(),
            None => nix::unistd::tcgetpgrp(source).map_or(true, |foreground| foreground == nix::unistd::getpgrp()),
        }
    }

    /// Reads what is there. With `is_seated` another terminal may come when this one is gone.
    pub fn read(&mut self, ledger: &Ledger, is_seated: bool) -> Option<Read> {
        let source = self.source.as_mut()?;
        let read = match &mut self.spool {
            Some(spool) => {
                let read = spool.pull(source).and_then(|_| spool.take());
                if let Some(why) = spool.trouble() {
                    ledger.give_up(&why.to_string());
                }
                read
            }
            None => {
                let mut bytes = vec![0; 64 << 10];
                source.read(&mut bytes).map(|count| bytes[..count].to_vec())
            }
        };
        Some(match read {
            Ok(bytes) if !bytes.is_empty() => Read::Bytes(bytes),
            _ if is_seated && has_hung_up(source) => Read::HungUp,
            _ => Read::End,
        })
    }
}
