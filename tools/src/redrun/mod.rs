//! `redrun`: carries out what the coordinator decides. One thread and one `poll` join its machine, the daemon's
//! connection, the user's signals and the three standard streams.

mod audit;
mod console;
mod daemons;
mod output;
mod summary;

pub use console::Console;

use crate::cli::{Fault, Job};
use crate::coordinator::{Coordinator, Input, Output, Report, Settings};
use crate::link::{Link, Received};
use anyhow::{Context, Result};
use audit::Audit;
use daemons::{Daemons, Joined};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use output::Outputs;
use redrt_types::ReplicaId;
use redrt_wire::control::OnSdc;
use redrt_wire::daemon::{FromDaemon, Launch, ToDaemon};
use std::collections::HashSet;
use std::io::Read;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Standard input read ahead of what rank 0 has taken.
const INPUT_WINDOW_BYTES: u64 = 256 << 10;
/// Corruption that cannot be outvoted spreads; nobody reads thousands of lines about it.
const MISMATCH_LINES_MAX: u64 = 10;
/// How long a daemon may take to connect.
const JOIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Runs a job to its end and returns its exit code.
pub fn run(job: &Job, console: &Console) -> Result<i32> {
    // An orphan of a daemon that was killed comes to this process, which ends it.
    crate::redrtd::become_subreaper()?;
    let mut shell = Shell::new(job, console)?;
    let outcome = shell.serve();
    shell.daemons.end();
    crate::redrtd::kill_descendants();
    let code = outcome?;
    shell.summarize(code)?;
    Ok(code)
}

struct Shell<'a> {
    job: &'a Job,
    console: &'a Console,
    coordinator: Coordinator,
    daemons: Daemons,
    daemon: Option<Link<TcpStream>>,
    host: String,
    started_at: Instant,
    audit: Audit,
    outputs: Outputs,
    input: Option<std::fs::File>,
    input_in_flight_bytes: u64,
    signals: SignalFd,
    held: HashSet<Option<ReplicaId>>,
    reports: summary::Tally,
    exit_code: Option<i32>,
    impatient: bool,
}

impl<'a> Shell<'a> {
    fn new(job: &'a Job, console: &'a Console) -> Result<Self> {
        let audit = Audit::open(job.audit.as_deref())?;
        let signals = catch_signals()?;
        let (mut timed_kills, mut random_kills) = (Vec::new(), None);
        for fault in &job.faults {
            match fault {
                Fault::Timed(kill) => timed_kills.push(*kill),
                Fault::Random(kills) => random_kills = Some(*kills),
                Fault::Process(..) => {}
            }
        }
        let settings = Settings {
            world: job.world.clone(),
            timeout: job.timeout,
            abort_on_mismatch: job.options.on_sdc == OnSdc::Abort,
            timed_kills,
            random_kills,
        };
        Ok(Self {
            coordinator: Coordinator::new(settings),
            daemons: Daemons::start()?,
            daemon: None,
            host: String::new(),
            started_at: Instant::now(),
            audit,
            outputs: Outputs::new(&job.world, job.label),
            input: Some(std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?)),
            input_in_flight_bytes: 0,
            signals,
            held: HashSet::new(),
            reports: summary::Tally::default(),
            exit_code: None,
            impatient: false,
            job,
            console,
        })
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Runs until the job has ended and everything it printed has been written.
    fn serve(&mut self) -> Result<i32> {
        loop {
            if let Some(code) = self.exit_code
                && (self.outputs.is_empty() || self.impatient)
            {
                return Ok(code);
            }
            self.wait()?;
            self.handle(Input::Tick);
        }
    }

    fn wait(&mut self) -> Result<()> {
        let timeout = self.poll_timeout();
        let wants_input = self.wants_input();
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.daemons.listener(), PollFlags::POLLIN),
            PollFd::new(self.daemons.wake(), PollFlags::POLLIN),
        ];
        let watch = |fds: &mut Vec<PollFd<'_>>, fd: Option<BorrowedFd<'_>>, flags| {
            fd.map(|fd| {
                // SAFETY: the descriptor belongs to self, which outlives this call of poll.
                let fd = unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&fd)) };
                fds.push(PollFd::new(fd, flags));
                fds.len() - 1
            })
        };
        let daemon_flags = match &self.daemon {
            Some(link) if link.backlog_bytes() > 0 => PollFlags::POLLIN | PollFlags::POLLOUT,
            _ => PollFlags::POLLIN,
        };
        let daemon = watch(&mut fds, self.daemon.as_ref().map(Link::fd), daemon_flags);
        let input = self.input.as_ref().filter(|_| wants_input).map(AsFd::as_fd);
        let input = watch(&mut fds, input, PollFlags::POLLIN);
        for fd in self.outputs.waiting() {
            fds.push(PollFd::new(fd, PollFlags::POLLOUT));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("Failed to wait for events"),
        }
        let ready = |index: usize| fds[index].any().unwrap_or(false);
        let ready_at = |index: Option<usize>| index.is_some_and(ready);
        let (signal, knock, joined) = (ready(0), ready(1), ready(2));
        let (daemon, input) = (ready_at(daemon), ready_at(input));
        drop(fds);
        if signal {
            self.read_signals();
        }
        if knock {
            self.daemons.answer_door();
        }
        if joined {
            self.meet_daemons()?;
        }
        if daemon {
            self.daemon_ready();
        }
        if input {
            self.read_input();
        }
        self.write_outputs();
        if self.daemon.is_none() && self.exit_code.is_none() && self.host.is_empty() {
            self.daemons.check(self.now(), JOIN_TIME_MAX)?;
        }
        Ok(())
    }

    fn poll_timeout(&self) -> PollTimeout {
        let mut deadline = self.coordinator.next_deadline();
        if self.daemon.is_none() {
            // Somebody must notice that the daemon could not even start.
            let soon = self.now() + Duration::from_millis(100);
            deadline = Some(deadline.map_or(soon, |deadline| deadline.min(soon)));
        }
        let deadline = [deadline, self.outputs.next_deadline(self.now())].into_iter().flatten().min();
        let Some(deadline) = deadline else { return PollTimeout::NONE };
        let wait_ms = deadline.saturating_sub(self.now()).as_millis() as u64 + 1;
        PollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if self.exit_code.is_some() || self.daemon.is_none() {
                self.exit_code.get_or_insert(128 + signal.ssi_signo as i32);
                self.impatient = true;
                return;
            }
            self.handle(Input::Interrupted(signal.ssi_signo as i32));
        }
    }

    fn meet_daemons(&mut self) -> Result<()> {
        for joined in self.daemons.joined() {
            match joined {
                Joined::Daemon(stream) if self.daemon.is_none() && self.host.is_empty() => {
                    self.daemon = Some(Link::new(stream));
                }
                Joined::Daemon(_) => self.console.warning("a second daemon tried to join and was refused"),
                Joined::Refused { address, error } => {
                    let line = format!("refused a connection from {address}: {error}");
                    self.audit.record("connection-refused", &serde_json::json!({ "address": address.to_string() }));
                    self.console.warning(&line);
                }
            }
        }
        Ok(())
    }

    fn daemon_ready(&mut self) {
        let Some(link) = &mut self.daemon else { return };
        let received = link.flush().and_then(|()| link.receive());
        let mut gone = matches!(received, Ok(Received::End) | Err(_));
        loop {
            let Some(link) = &mut self.daemon else { return };
            match link.next_message::<FromDaemon>() {
                Ok(Some(message)) if message.replica().is_none_or(|replica| self.job.world.contains(replica)) => {
                    self.hear(message);
                }
                Ok(Some(message)) => {
                    let stranger = message.replica().expect("the arm above takes the others");
                    self.console.error(&format!("the daemon on {} speaks of a replica {stranger}", self.host));
                    gone = true;
                    break;
                }
                Ok(None) => break,
                Err(error) => {
                    self.console.error(&format!("{error:#}"));
                    gone = true;
                    break;
                }
            }
        }
        if gone {
            self.daemon = None;
            let replicas = self.job.world.replicas().collect();
            self.handle(Input::DaemonLost { host: self.host.clone(), replicas });
        }
    }

    fn hear(&mut self, message: FromDaemon) {
        match message {
            FromDaemon::Host { name, .. } => {
                self.host = name;
                self.launch();
            }
            FromDaemon::Started { replica, pid } => {
                let fields = serde_json::json!({ "replica": replica.to_string(), "host": self.host, "pid": pid });
                self.audit.record("started", &fields);
                self.handle(Input::Started { replica, pid });
            }
            FromDaemon::NotStarted { replica, message } => self.handle(Input::NotStarted { replica, message }),
            FromDaemon::Note(note) => self.console.warning(&note),
            FromDaemon::Agent { replica, message } => self.handle(Input::Agent(replica, message)),
            FromDaemon::Output { replica, stream, bytes } => {
                self.outputs.take(replica, stream, &bytes);
                self.after_output(replica);
            }
            FromDaemon::InputTaken { byte_count } => {
                self.input_in_flight_bytes = self.input_in_flight_bytes.saturating_sub(byte_count);
            }
            FromDaemon::Exited { replica, exit } => self.handle(Input::Exited(replica, exit)),
            FromDaemon::Drained(replica) => {
                self.outputs.end_error(replica);
                self.handle(Input::Drained(replica));
            }
        }
    }

    fn launch(&mut self) {
        let job = self.job;
        self.started_at = Instant::now();
        let start_time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let process_faults = job.faults.iter().filter_map(|fault| match fault {
            Fault::Process(replica, fault) => Some((*replica, *fault)),
            _ => None,
        });
        let launch = Launch {
            job: self.daemons.job_number(),
            secret: self.daemons.secret().clone(),
            world: job.world.clone(),
            view: self.coordinator.view().clone(),
            options: job.options.clone(),
            host_number: 0,
            applications: job.applications.clone(),
            application_of_rank: job.application_of_rank.clone(),
            replicas: job.world.replicas().collect(),
            faults: process_faults.collect(),
            start_time_ns,
            start_monotonic_ns: monotonic_ns(),
            host_name: self.host.clone(),
            standard_input: true,
        };
        self.audit.job_start(job, &launch, &self.host);
        self.send(&ToDaemon::Launch(Box::new(launch)));
    }

    fn send(&mut self, message: &ToDaemon) {
        // A broken connection shows when it is read.
        if let Some(link) = &mut self.daemon {
            let _ = link.send(message);
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        if self.host.is_empty() && matches!(input, Input::Tick) {
            return;
        }
        self.coordinator.handle(now, input);
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Send(message) => self.send(&message),
                Output::StreamLost(replica) | Output::StreamEnded { replica, complete: false } => {
                    self.outputs.lose(replica);
                    self.after_output(replica);
                }
                Output::StreamEnded { replica, complete: true } => {
                    self.outputs.end(replica);
                    self.after_output(replica);
                }
                Output::Report(report) => self.report(&report),
                Output::Finish(code) => {
                    self.outputs.flush();
                    self.exit_code = Some(code);
                    self.send(&ToDaemon::Shutdown);
                }
            }
        }
    }

    fn report(&mut self, report: &Report) {
        let host = |_: ReplicaId| self.host.clone();
        self.reports.count(report);
        let (name, fields) = report.record(&host);
        self.audit.record(name, &fields);
        if let Some((severity, line)) = report.line(&host) {
            match self.reports.mismatches() {
                count if report.is_mismatch() && count > MISMATCH_LINES_MAX => {
                    if count == MISMATCH_LINES_MAX + 1 {
                        self.console.warning("more mismatches follow; all are counted, and listed by --audit");
                    }
                }
                _ => self.console.say(severity, &line),
            }
        }
    }

    /// Sends on what comes out, and stops those who print faster than it can be shown or compared.
    fn after_output(&mut self, replica: ReplicaId) {
        while let Some((rank, divergence)) = self.outputs.poll_divergence() {
            self.handle(Input::OutputDiverged { rank, divergence });
        }
        self.write_outputs();
        let ahead = self.outputs.is_far_ahead(replica);
        self.hold(Some(replica), ahead);
    }

    fn write_outputs(&mut self) {
        if self.outputs.write(self.started_at.elapsed()).is_err() && self.exit_code.is_none() {
            self.handle(Input::OutputClosed);
        }
        let (full, drained) = self.outputs.fill_state();
        if full {
            self.hold(None, true);
        } else if drained {
            self.hold(None, false);
        }
        for replica in self.held.iter().copied().flatten().collect::<Vec<_>>() {
            let ahead = self.outputs.is_far_ahead(replica);
            self.hold(Some(replica), ahead);
        }
    }

    fn hold(&mut self, replica: Option<ReplicaId>, held: bool) {
        let changed = if held { self.held.insert(replica) } else { self.held.remove(&replica) };
        if changed {
            self.send(&ToDaemon::HoldOutput { replica, held });
        }
    }

    /// Standard input is read while the job runs, there is room, and, at a terminal, this is the foreground job.
    fn wants_input(&self) -> bool {
        let running = self.daemon.is_some() && !self.host.is_empty() && self.exit_code.is_none();
        let Some(input) = self.input.as_ref().filter(|_| running) else { return false };
        let is_foreground =
            || nix::unistd::tcgetpgrp(input).map_or(true, |foreground| foreground == nix::unistd::getpgrp());
        self.input_in_flight_bytes < INPUT_WINDOW_BYTES && is_foreground()
    }

    fn read_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut bytes = vec![0; 64 << 10];
        match input.read(&mut bytes) {
            Ok(0) | Err(_) => {
                self.input = None;
                self.send(&ToDaemon::InputEnd);
            }
            Ok(count) => {
                bytes.truncate(count);
                self.input_in_flight_bytes += count as u64;
                self.send(&ToDaemon::Input { bytes });
            }
        }
    }

    fn summarize(&mut self, code: i32) -> Result<()> {
        let summary = summary::Summary::new(&self.coordinator, &self.reports, self.now(), code);
        if !self.job.quiet
            && let Some(lines) = summary.lines()
        {
            lines.iter().for_each(|line| self.console.plain(line));
        }
        if let Some(path) = &self.job.json_summary {
            summary.write_json(path)?;
        }
        Ok(())
    }
}

fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| now.as_nanos() as u64)
}

fn catch_signals() -> Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}
