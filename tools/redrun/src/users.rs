//! Users of the running job: their consoles and signals, what they ask by `redctl` and HTTP, and the standard streams.
//!
//! A console that leaves takes its terminal and pipes along. Output is kept from then on, and input is not read. Files
//! are read and written as before. A new console gets the kept output and all that follows, unless output goes to a
//! regular file. Input comes from it if there is no other source, and input has not ended.

use super::output::OutputTrouble;
use super::requests::Refused;
use super::streams::Read;
use super::watching::About;
use super::{Shell, WRITERS_LOOK, metrics, mpir, status};
use control_network::hub::LinkId;
use job_console::consoles::{Consoles, News, Streams};
use job_console::user_signals::is_for_program;
use job_coordinator::{Asker, Input, OutputLoss};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use redrt_wire::tree::Question;
use replication_manager::{OUTPUT_CLOSED_CODE, OUTPUT_FAILED_CODE};
use serde_json::json;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for which an ended job waits for a console, to hand it the remaining output and the exit code.
const END_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Shell<'_> {
    /// Handles a started process. The last one completes the start: console and debuggers are informed.
    pub(super) fn record_started(&mut self) {
        if self.replay.is_some() || self.run.coordinator.started_count() != self.run.live_count() {
            return;
        }
        if let Some(consoles) = &mut self.reach.consoles {
            consoles.runs(self.run.number);
        }
        mpir::notify_debuggers(&self.run);
    }

    /// Handles events of consoles. True if there were any.
    pub(super) fn handle_consoles(&mut self) -> bool {
        let all = self.reach.consoles.as_mut().map_or_else(Vec::new, Consoles::work);
        let has_happened = !all.is_empty();
        for news in all {
            match news {
                News::Attached(streams) => self.attach(streams),
                News::Detached => self.detach(),
                News::Signal(signal) => self.follow_signal(signal),
            }
        }
        has_happened
    }

    fn attach(&mut self, streams: Streams) {
        self.reporter.record("attached", &json!({}));
        // Failure costs only status lines and prompts.
        let _ = nix::unistd::dup2_stdin(&streams.input);
        let _ = nix::unistd::dup2_stdout(&streams.output);
        let _ = nix::unistd::dup2_stderr(&streams.error);
        self.outputs.standard().lead_to(streams.output, streams.error);
        self.input.attach(self.run.job);
        self.inspect_terminal();
    }

    fn detach(&mut self) {
        self.reporter.record("detached", &json!({}));
        self.outputs.standard().lead_nowhere();
        self.input.detach();
        // Standard streams must not stay open: as a writer of a pipe this process would keep its reader waiting.
        if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
            let _ = nix::unistd::dup2_stdin(&nothing);
            let _ = nix::unistd::dup2_stdout(&nothing);
            let _ = nix::unistd::dup2_stderr(&nothing);
        }
        self.inspect_terminal();
        self.reach.consoles.iter_mut().for_each(Consoles::let_go);
    }

    fn inspect_terminal(&mut self) {
        self.reporter.console.inspect_terminal();
        self.reporter.console.allow_status(!self.reach.is_quiet(self.run.job));
        self.outputs.inspect_terminal();
    }

    /// Waits until the last lines are written, or the user interrupts. Returns the exit code.
    pub(super) fn let_writers_end(&mut self, code: i32) -> i32 {
        let standard = self.outputs.standard();
        standard.close();
        self.ending.is_impatient = false;
        let since = Instant::now();
        while !standard.wait_for_end(WRITERS_LOOK) {
            if let Some(signal) = self.wakers.ending_signal() {
                return 128 + signal;
            }
            self.handle_consoles();
            if self.ending.is_impatient || self.reach.consoles.is_some() && since.elapsed() > END_KEPT {
                return if code == 0 { OUTPUT_FAILED_CODE } else { code };
            }
            if standard.is_stuck() && self.reach.consoles.as_ref().is_some_and(Consoles::is_attached) {
                return if code == 0 { OUTPUT_CLOSED_CODE } else { code };
            }
        }
        code
    }

    /// Hands the exit code to the console, or to one that attaches within [`END_KEPT`]. Returns it.
    pub(super) fn send_end(&mut self, code: i32) -> i32 {
        let since = Instant::now();
        while let Some(consoles) = &mut self.reach.consoles
            && !consoles.end(code)
        {
            let left = END_KEPT.saturating_sub(since.elapsed());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [self.wakers.signals.as_fd(), consoles.fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let is_over = left.is_zero() || poll(&mut fds, timeout).is_err_and(|error| error != nix::Error::EINTR);
            if is_over || self.wakers.ending_signal().is_some() {
                break;
            }
            self.handle_consoles();
        }
        code
    }

    /// Handles a signal to this process or to the job's console.
    pub(super) fn follow_signal(&mut self, signal: i32) {
        match Signal::try_from(signal) {
            Ok(Signal::SIGTSTP) => return self.stand_still(),
            _ if is_for_program(signal) => return self.pass_signal(signal),
            Ok(Signal::SIGTERM) => self.ending.explain(self.run.coordinator.lost_hosts(), self.reporter.console),
            _ => {}
        }
        self.interrupt(signal);
    }

    /// Passes a signal on to the program.
    fn pass_signal(&mut self, signal: i32) {
        // Numbers must grow from one life of the job to the next, which may be on another host.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = (since_epoch.as_micros() as u64).max(self.run.coordinator.signal_number() + 1);
        self.handle(Input::Job(replication_manager::Input::Signalled { number, signal }));
    }

    /// Ends the job.
    pub(super) fn interrupt(&mut self, signal: i32) {
        if self.ending.code.is_some() || !self.run.coordinator.is_launched() {
            self.ending.give_up(128 + signal);
        }
        if self.run.coordinator.is_launched() {
            // Of a job that has ended, other jobs may be left.
            self.handle(Input::Job(replication_manager::Input::Interrupted(signal)));
        }
    }

    /// Ctrl-Z: stops the processes and this program. Daemons stop watching it first. The job's time stands still.
    fn stand_still(&mut self) {
        let since = Instant::now();
        self.handle(Input::Job(replication_manager::Input::Suspended(true)));
        self.run.fleet.unwatch();
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
        self.run.started_at += since.elapsed();
        if self.run.coordinator.is_launched() {
            self.run.fleet.watch();
        }
        self.handle(Input::Job(replication_manager::Input::Suspended(false)));
    }

    /// Answers `redctl` with the status, an error, or an empty text for a request that is done. `None`: the answer
    /// follows later.
    pub(super) fn answer(&mut self, link: LinkId, question: Question) -> Option<String> {
        let outcome: Result<bool, Refused> = match question {
            Question::Status => {
                return Some(
                    status::status(&self.run, self.reach.consoles.as_ref(), &self.quorum.hosts, &self.reporter.clones)
                        .to_string(),
                );
            }
            Question::Stop => {
                self.handle(Input::Job(replication_manager::Input::Interrupted(Signal::SIGINT as i32)));
                Ok(true)
            }
            Question::AddSpare { host, place_count } => {
                self.add_spare(link, &host, place_count).map_err(Refused::Spare)
            }
            question => self.reach.askers.input(&self.run, link, question).map(|input| {
                self.handle(input);
                false
            }),
        };
        match outcome {
            Ok(true) => Some(String::new()),
            Ok(false) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    /// Passes the coordinator's answer on.
    pub(super) fn send_answer(&mut self, asker: Asker, outcome: Result<(), job_coordinator::Refused>) {
        let Some(link) = self.reach.askers.remove(asker) else { return };
        let answer = match outcome {
            Ok(()) => String::new(),
            Err(job_coordinator::Refused::NotTaken { generation, why }) => {
                let why = job_report::line_failure(&why, &|replica| self.run.host_name(replica));
                format!("checkpoint {generation} was not taken: {why}")
            }
            Err(error) => error.to_string(),
        };
        self.run.fleet.answer(link, answer);
    }

    pub(super) fn write_outputs(&mut self) {
        let now = self.run.now();
        if self.outputs.prompt_is_due(now) {
            self.ledger.prompt();
            self.outputs.show_prompt();
        }
        self.ledger.flush();
        self.outputs.write(now);
        // The record goes with the next write of the journal, so no output waits for it.
        if self.run.fleet.plan().coordinators > 1
            && let Some(bytes) = self.outputs.poll_shown_bytes()
        {
            self.ledger.shown(bytes);
        }
        while let Some(trouble) = self.outputs.poll_trouble() {
            self.output_trouble(trouble);
        }
        let (is_full, is_drained) = self.outputs.fill_state();
        if (is_full || is_drained) && is_full != self.run.coordinator.is_output_full() {
            self.handle(Input::OutputFull(is_full));
        }
    }

    /// Lost output ends the job. Output that waits holds the processes, since the queue is bounded.
    fn output_trouble(&mut self, trouble: OutputTrouble) {
        match trouble {
            OutputTrouble::Closed => self.handle(Input::OutputLost(OutputLoss::Closed)),
            OutputTrouble::Failed(failure) => self.handle(Input::OutputLost(OutputLoss::Failed(failure))),
            OutputTrouble::Waits(failure) => {
                self.reporter.record("output-waits", &json!({ "what": failure.to_string() }));
                let line = format!("{failure}; the job is held up until it can be written (--on-output-error=wait)");
                self.reporter.console.warning(&line);
            }
            OutputTrouble::GoesOn(name) => {
                self.reporter.record("output-goes-on", &json!({ "name": name }));
                self.reporter.console.plain(&format!("{name} can be written again"));
            }
            OutputTrouble::Still(name) => {
                self.reporter.record("output-still", &json!({ "name": name }));
                self.reporter.console.warning(&format!(
                    "{name} takes nothing: its file system stands still; processes that print much are held until it answers"
                ));
            }
        }
    }

    /// True if standard input is to be read: the coordinator wants it, and at a terminal this is the foreground job.
    pub(super) fn wants_input(&self) -> bool {
        let is_wanted = self.run.coordinator.wants_input() && self.ending.code.is_none();
        is_wanted && self.input.is_in_foreground(self.reach.consoles.as_ref())
    }

    pub(super) fn read_input(&mut self) {
        match self.input.read(&self.ledger, self.reach.consoles.is_some()) {
            None => {}
            Some(Read::Bytes(bytes)) => self.handle(Input::StandardInput(bytes)),
            Some(Read::HungUp) => self.input.hang_up(),
            Some(Read::End) => {
                self.input.end();
                self.handle(Input::StandardInputEnd);
            }
        }
    }

    /// Answers all waiting clients.
    pub(super) fn answer_watchers(&mut self) {
        while let Some(asked) = self.reach.watching.next_question() {
            let text = match asked.question {
                About::Metrics => metrics::page(&self.run, &mut self.reporter.reported.counts),
                About::Status => {
                    let (consoles, hosts) = (self.reach.consoles.as_ref(), &self.quorum.hosts);
                    status::status(&self.run, consoles, hosts, &self.reporter.clones).to_string()
                }
            };
            asked.answer(text);
        }
    }
}
