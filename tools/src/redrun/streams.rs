//! Standard input on its way to rank 0, and what replicas print on its way to the user.

use super::Shell;
use super::output::OutputTrouble;
use anyhow::{Context, Result};
use coordinator::{Input, OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE, OutputFailure, Report};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::{Stream, ToDaemon};
use serde_json::json;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

/// Standard input read ahead of what rank 0 has taken.
const INPUT_WINDOW_BYTES: u64 = 256 << 10;

/// Standard input, to be read when it is readable. A regular file always says it is, also when its file system stands
/// still: a thread reads that, into a pipe. In one the first bytes are left out, which a job that is resumed has read.
pub(super) fn open_input(skipped_bytes: u64) -> Result<File> {
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    if !input.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(input);
    }
    if skipped_bytes > 0 {
        input.seek(SeekFrom::Current(skipped_bytes as i64)).context("Failed to go on in standard input")?;
    }
    let (reader, mut writer) = std::io::pipe().context("Failed to make a pipe")?;
    // When the job has ended nobody reads the pipe any more.
    let pump = move || drop(std::io::copy(&mut input, &mut writer));
    std::thread::Builder::new().name("redrun-input".into()).spawn(pump)?;
    Ok(File::from(OwnedFd::from(reader)))
}

/// Whether this was a terminal, and its other end is gone.
fn has_hung_up(input: &File) -> bool {
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::empty())];
    // After a hang-up isatty() says no. A pipe whose writer is gone has ended, and is no character device.
    let is_device = input.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device());
    is_device && poll(&mut fds, PollTimeout::ZERO).is_ok() && fds[0].any().unwrap_or(false)
}

impl Shell<'_> {
    /// Sends on what comes out, and stops those who print faster than it can be shown or compared.
    pub(super) fn after_output(&mut self, replica: ReplicaId) {
        while let Some((rank, finding)) = self.outputs.poll_finding() {
            self.handle(Input::Output { rank, finding });
        }
        self.write_outputs();
        let ahead = self.outputs.is_far_ahead(replica);
        if ahead && !self.held.contains(&Some(replica)) && self.told_of_hold.insert(replica) {
            self.report(&Report::OutputHeld { replica });
        }
        self.hold(Some(replica), ahead);
    }

    /// A process has printed this.
    pub(super) fn take_output(&mut self, replica: ReplicaId, stream: Stream, bytes: Vec<u8>) {
        if self.coordinator.is_suspending() {
            self.withheld.push((replica, stream, bytes));
            return self.hold(None, true);
        }
        self.release_withheld();
        self.outputs.take(replica, stream, &bytes);
        self.after_output(replica);
    }

    /// The job goes on after all: nothing that it has printed will be printed again.
    fn release_withheld(&mut self) {
        for (replica, stream, bytes) in std::mem::take(&mut self.withheld) {
            self.outputs.take(replica, stream, &bytes);
            self.after_output(replica);
        }
    }

    pub(super) fn write_outputs(&mut self) {
        if !self.withheld.is_empty() && !self.coordinator.is_suspending() {
            self.release_withheld();
        }
        self.outputs.write(self.started_at.elapsed());
        while let Some(trouble) = self.outputs.poll_trouble() {
            self.output_trouble(trouble);
        }
        let (full, drained) = self.outputs.fill_state();
        if full || !self.withheld.is_empty() {
            self.hold(None, true);
        } else if drained {
            self.hold(None, false);
        }
        for replica in self.held.iter().copied().flatten().collect::<Vec<_>>() {
            let ahead = self.outputs.is_far_ahead(replica);
            self.hold(Some(replica), ahead);
        }
    }

    /// Output that is lost ends the job; output that waits holds its processes, since what waits is bounded.
    fn output_trouble(&mut self, trouble: OutputTrouble) {
        match trouble {
            OutputTrouble::Closed => self.lose_output(OUTPUT_CLOSED_CODE, Input::OutputClosed, None),
            OutputTrouble::Failed(failure) => {
                let input = Input::OutputFailed(failure.clone());
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

    fn lose_output(&mut self, code: i32, input: Input, failure: Option<OutputFailure>) {
        self.lost_output = self.lost_output.or(Some(code));
        // Between the end of the last process and that of the job nothing is taken any more.
        if self.exit_code.is_none() && !self.coordinator.is_finished() {
            self.handle(input);
        } else if let Some(failure) = failure {
            self.record("output-failed", &json!({ "what": failure.to_string() }));
            self.console.error(&format!("{failure}; not everything that the job printed is there"));
        }
    }

    pub(super) fn hold(&mut self, replica: Option<ReplicaId>, held: bool) {
        let changed = if held { self.held.insert(replica) } else { self.held.remove(&replica) };
        let host = replica.and_then(|replica| self.host(replica));
        match host.filter(|_| changed) {
            Some(host) => self.fleet.send(host, &ToDaemon::HoldOutput { replica, held }),
            None if changed => self.fleet.send_all(&ToDaemon::HoldOutput { replica, held }),
            None => {}
        }
    }

    /// Standard input is read while the job runs, there is room, and, at a terminal, this is the foreground job.
    pub(super) fn wants_input(&self) -> bool {
        let running = self.is_launched() && self.exit_code.is_none();
        let Some(input) = self.input.as_ref().filter(|_| running) else { return false };
        let is_foreground =
            || nix::unistd::tcgetpgrp(input).map_or(true, |foreground| foreground == nix::unistd::getpgrp());
        // What was sent while a replica of rank 0 is being copied would be missing in its copy.
        let is_copied = self.coordinator.is_cutting(VirtualRank(0)) || self.coordinator.is_stopping_for_line();
        let is_foreground = || match &self.seat {
            Some(seat) => seat.is_in_foreground(),
            None => is_foreground(),
        };
        self.input_in_flight_bytes() < INPUT_WINDOW_BYTES && !is_copied && is_foreground()
    }

    /// Read, and not yet taken by the slowest host that needs it.
    pub(super) fn input_in_flight_bytes(&self) -> u64 {
        let slowest = self.input_taken_bytes.values().copied().min().unwrap_or(self.input_sent_bytes);
        self.input_sent_bytes - slowest
    }

    pub(super) fn send_input(&mut self, message: &ToDaemon) {
        for host in self.input_taken_bytes.keys().copied().collect::<Vec<_>>() {
            self.fleet.send(host, message);
        }
    }

    pub(super) fn read_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut bytes = vec![0; 64 << 10];
        match input.read(&mut bytes) {
            // Its terminal is gone, and another may come.
            Ok(0) | Err(_) if self.seat.is_some() && has_hung_up(input) => self.input = None,
            Ok(0) | Err(_) => {
                self.input = None;
                self.input_has_ended = true;
                self.note_input();
                self.send_input(&ToDaemon::InputEnd);
            }
            Ok(count) => {
                bytes.truncate(count);
                self.input_sent_bytes += count as u64;
                if let Some(lines) = &mut self.lines {
                    lines.note_input(&bytes);
                }
                self.note_input();
                self.send_input(&ToDaemon::Input { bytes });
            }
        }
    }

    pub(super) fn note_input(&mut self) {
        self.coordinator.input_passed(self.now());
        self.carry_out();
    }
}
