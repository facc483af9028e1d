//! Standard input, and the writers of replicas' output.

use super::Shell;
use super::output::OutputTrouble;
use anyhow::{Context, Result};
use coordinator::{OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE, OutputFailure};
use job_root::Input;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
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

impl Shell<'_> {
    pub(super) fn write_outputs(&mut self) {
        let now = self.now();
        if self.outputs.prompt_is_due(now) {
            self.ledger.prompt();
            self.outputs.show_prompt();
        }
        self.ledger.flush();
        self.outputs.write(now);
        // The record goes with the next write of the journal, so no output waits for it.
        if self.fleet.plan().roots > 1
            && let Some(bytes) = self.outputs.poll_shown_bytes()
        {
            self.ledger.shown(bytes);
        }
        while let Some(trouble) = self.outputs.poll_trouble() {
            self.output_trouble(trouble);
        }
        let (is_full, is_drained) = self.outputs.fill_state();
        if (is_full || is_drained) && is_full != self.root.is_output_full() {
            self.handle(Input::OutputFull(is_full));
        }
    }

    /// Lost output ends the job. Output that waits holds the processes, since the queue is bounded.
    fn output_trouble(&mut self, trouble: OutputTrouble) {
        match trouble {
            OutputTrouble::Closed => self.lose_output(OUTPUT_CLOSED_CODE, coordinator::Input::OutputClosed, None),
            OutputTrouble::Failed(failure) => {
                let input = coordinator::Input::OutputFailed(failure.clone());
                self.lose_output(OUTPUT_FAILED_CODE, input, Some(failure));
            }
            OutputTrouble::Waits(failure) => {
                self.record("output-waits", &json!({ "what": failure.to_string() }));
                let line = format!("{failure}; the job is held up until it can be written (--on-output-error=wait)");
                self.console.warning(&line);
            }
            OutputTrouble::GoesOn(name) => {
                self.record("output-goes-on", &json!({ "name": name }));
                self.console.plain(&format!("{name} can be written again"));
            }
            OutputTrouble::Still(name) => {
                self.record("output-still", &json!({ "name": name }));
                self.console.warning(&format!(
                    "{name} takes nothing: its file system stands still; processes that print much are held until it answers"
                ));
            }
        }
    }

    fn lose_output(&mut self, code: i32, input: coordinator::Input, failure: Option<OutputFailure>) {
        self.lost_output = self.lost_output.or(Some(code));
        // Between the last process's end and the job's, the coordinator takes no inputs.
        if self.exit_code.is_none() && !self.root.coordinator().is_finished() {
            self.handle(Input::Job(input));
        } else if let Some(failure) = failure {
            self.record("output-failed", &json!({ "what": failure.to_string() }));
            self.console.error(&format!("{failure}; not everything that the job printed is there"));
        }
    }

    /// True if standard input is to be read: the root wants it, and at a terminal this is the foreground job.
    pub(super) fn wants_input(&self) -> bool {
        let is_wanted = self.root.wants_input() && self.exit_code.is_none();
        let Some(input) = self.input.as_ref().filter(|_| is_wanted) else { return false };
        match &self.seat {
            Some(seat) => seat.is_in_foreground(),
            None => nix::unistd::tcgetpgrp(input).map_or(true, |foreground| foreground == nix::unistd::getpgrp()),
        }
    }

    pub(super) fn read_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let read = match &mut self.spool {
            Some(spool) => {
                let read = spool.pull(input).and_then(|_| spool.take());
                if let Some(why) = spool.trouble() {
                    self.ledger.give_up(&why.to_string());
                }
                read
            }
            None => {
                let mut bytes = vec![0; 64 << 10];
                input.read(&mut bytes).map(|count| bytes[..count].to_vec())
            }
        };
        match read {
            Ok(bytes) if !bytes.is_empty() => self.handle(Input::StandardInput(bytes)),
            // The terminal is gone; another may come.
            _ if self.seat.is_some() && has_hung_up(input) => self.input = None,
            _ => {
                self.input = None;
                self.input_has_ended = true;
                self.handle(Input::StandardInputEnd);
            }
        }
    }
}
