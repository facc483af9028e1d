//! Consoles of a job that outlives its terminal: its standard streams when a console attaches or leaves.
//!
//! A console that leaves takes its terminal and pipes along. Output is kept from then on, and input is not read. Files
//! are read and written as before. A new console gets the kept output and all that follows, unless output goes to a
//! regular file. Input comes from it if there is no other source, and input has not ended.

use super::{Shell, WRITERS_LOOK, mpir};
use coordinator::{OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use root_terminal::seat::{News, Seat, Streams};
use serde_json::json;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time for which an ended job waits for a console, to hand it the remaining output and the exit code.
const END_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Shell<'_> {
    /// Makes the job reachable for consoles.
    pub(super) fn open_seat(&mut self) {
        let Some(seat) = &mut self.reach.seat else { return };
        if let Err(error) = seat.listen(self.run.number) {
            self.teller.console.warning(&format!("nobody can attach to this job: {error:#}"));
        }
    }

    /// Handles a started process. The last one completes the start: console and debuggers are informed.
    pub(super) fn note_started(&mut self) {
        if self.replay.is_some() || self.run.root.started_count() != self.run.live_count() {
            return;
        }
        if let Some(seat) = &mut self.reach.seat {
            seat.runs(self.run.number);
        }
        mpir::tell_debuggers(&self.run);
    }

    /// Handles events of consoles. True if there were any.
    pub(super) fn hear_of_consoles(&mut self) -> bool {
        let all = self.reach.seat.as_mut().map_or_else(Vec::new, Seat::work);
        let has_happened = !all.is_empty();
        for news in all {
            match news {
                News::Attached(streams) => self.attach(streams),
                News::Detached => self.detach(),
                News::Signal(signal) => self.heed_signal(signal),
            }
        }
        has_happened
    }

    fn attach(&mut self, streams: Streams) {
        self.teller.record("attached", &json!({}));
        // Failure costs only status lines and prompts.
        let _ = nix::unistd::dup2_stdin(&streams.input);
        let _ = nix::unistd::dup2_stdout(&streams.output);
        let _ = nix::unistd::dup2_stderr(&streams.error);
        self.outputs.standard().lead_to(streams.output, streams.error);
        self.input.attach(self.run.job);
        self.look_at_terminal();
    }

    fn detach(&mut self) {
        self.teller.record("detached", &json!({}));
        self.outputs.standard().lead_nowhere();
        self.input.detach();
        // Standard streams must not stay open: as a writer of a pipe this process would keep its reader waiting.
        if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
            let _ = nix::unistd::dup2_stdin(&nothing);
            let _ = nix::unistd::dup2_stdout(&nothing);
            let _ = nix::unistd::dup2_stderr(&nothing);
        }
        self.look_at_terminal();
        self.reach.seat.iter_mut().for_each(Seat::let_go);
    }

    /// True if the user who started the job, or who is attached now, wants neither summary nor status lines.
    pub(super) fn is_quiet(&self) -> bool {
        self.run.job.quiet || self.reach.seat.as_ref().is_some_and(Seat::is_quiet)
    }

    fn look_at_terminal(&mut self) {
        self.teller.console.look_at_terminal();
        self.teller.console.allow_status(!self.is_quiet());
        self.outputs.look_at_terminal();
    }

    /// Waits until the last lines are written, or the user interrupts. Returns the exit code.
    pub(super) fn let_writers_end(&mut self, code: i32) -> i32 {
        let standard = self.outputs.standard();
        standard.close();
        self.ending.is_impatient = false;
        let since = Instant::now();
        while !standard.wait_for_end(WRITERS_LOOK) {
            if let Some(signal) = self.read_ending_signal() {
                return 128 + signal;
            }
            self.hear_of_consoles();
            if self.ending.is_impatient || self.reach.seat.is_some() && since.elapsed() > END_KEPT {
                return if code == 0 { OUTPUT_FAILED_CODE } else { code };
            }
            if standard.is_stuck() && self.reach.seat.as_ref().is_some_and(Seat::is_attached) {
                return if code == 0 { OUTPUT_CLOSED_CODE } else { code };
            }
        }
        code
    }

    /// Hands the exit code to the console, or to one that attaches within [`END_KEPT`]. Returns it.
    pub(super) fn tell_end(&mut self, code: i32) -> i32 {
        let since = Instant::now();
        while let Some(seat) = &mut self.reach.seat
            && !seat.end(code)
        {
            let left = END_KEPT.saturating_sub(since.elapsed());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [self.wakers.signals.as_fd(), seat.fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let is_over = left.is_zero() || poll(&mut fds, timeout).is_err_and(|error| error != nix::Error::EINTR);
            if is_over || self.read_ending_signal().is_some() {
                break;
            }
            self.hear_of_consoles();
        }
        code
    }
}
