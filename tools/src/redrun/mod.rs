//! `redrun`: carries out what the coordinator decides. One thread and one `poll` join its machine, the daemons, the
//! user's signals and the three standard streams.

mod attribution;
mod clones;
mod console;
mod determinism;
mod fleet;
mod layout;
mod metrics;
mod output;
mod spares;
mod spawned;
mod start_record;
mod status;
mod status_lines;
mod summary;
mod wishes;

pub use console::Console;
pub use spawned::{Upwards, begin as begin_spawned, relay};

use crate::audit::log::{self, Log};
use crate::cli::{Fault, Job};
use crate::coordinator::{Coordinator, Input, Output, Report, Settings};
use crate::jobs;
use anyhow::{Context, Result, bail};
use fleet::{Fleet, News};
use metrics::{Counts, Metrics};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use output::Outputs;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::auth::Secret;
use redrt_wire::control::{FromAgent, ProcessFault};
use redrt_wire::daemon::{FromDaemon, Launch, ToDaemon};
use redrt_wire::event::Event;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Standard input read ahead of what rank 0 has taken.
const INPUT_WINDOW_BYTES: u64 = 256 << 10;
/// Corruption that cannot be outvoted spreads; nobody reads thousands of lines about it.
const MISMATCH_LINES_MAX: u64 = 10;
/// The exit code when a program that is being checked is not deterministic.
const NONDETERMINISTIC_CODE: i32 = 1;

/// Runs a job to its end and returns its exit code.
pub fn run(job: &Job, console: &Console, upwards: Option<Upwards>) -> Result<i32> {
    // An orphan of a daemon that was killed comes to this process, which ends it.
    crate::redrtd::become_subreaper()?;
    // Where that cannot be had, news take a little longer.
    crate::prompt::wish();
    let mut shell = Shell::new(job, console, upwards)?;
    if let Some(metrics) = &shell.metrics {
        console.plain(&format!("metrics are at http://{}/metrics", metrics.address()));
    }
    if !job.quiet {
        console.allow_status();
    }
    let outcome = shell.serve();
    console.show_status(Vec::new());
    shell.fleet.end();
    crate::redrtd::kill_descendants();
    shell.entry = None;
    shell.spares.leave();
    jobs::cross_out(shell.job_number);
    let code = match outcome? {
        0 => shell.spawned.code(),
        code => code,
    };
    let verdict = shell.judge_determinism();
    let is_deterministic = verdict.as_ref().is_none_or(|verdict| verdict.is_deterministic);
    let code = if code == 0 && !is_deterministic { NONDETERMINISTIC_CODE } else { code };
    shell.summarize(code, verdict.as_ref().map(|verdict| &verdict.json))?;
    verdict.iter().flat_map(|verdict| &verdict.lines).for_each(|line| console.plain(line));
    Ok(code)
}

struct Shell<'a> {
    job: &'a Job,
    console: &'a Console,
    coordinator: Coordinator,
    fleet: Fleet,
    /// The host of every process, once it is decided; none for places that are free.
    placement: Vec<Option<u32>>,
    /// What hosts that come later are told.
    launch: Option<Launch>,
    spares: spares::Spares,
    clones: clones::Clones,
    spawned: spawned::Spawned,
    /// Where replicas were before: up to this view, on this host.
    past_homes: BTreeMap<ReplicaId, Vec<(ViewNumber, u32)>>,
    job_number: u64,
    entry: Option<jobs::Entry>,
    started_at: Instant,
    audit: Log,
    outputs: Outputs,
    input: Option<std::fs::File>,
    input_sent_bytes: u64,
    /// What each host that has replicas of rank 0 has taken of it.
    input_taken_bytes: BTreeMap<u32, u64>,
    signals: SignalFd,
    held: HashSet<Option<ReplicaId>>,
    /// Those that the user knows to have been held because of their siblings.
    told_of_hold: HashSet<ReplicaId>,
    reports: summary::Tally,
    metrics: Option<Metrics>,
    counts: Counts,
    attribution: attribution::Attribution,
    exit_code: Option<i32>,
    impatient: bool,
}

impl<'a> Shell<'a> {
    fn new(job: &'a Job, console: &'a Console, upwards: Option<Upwards>) -> Result<Self> {
        let job_number = random_number();
        let audit = job.audit.as_deref().map(|path| Log::open(&log::path_in(path, job_number)));
        let audit = audit.transpose()?.unwrap_or_default();
        let signals = catch_signals()?;
        // Before anything is started, and after signals are caught: its thread is not to get any.
        let metrics = job.metrics.map(Metrics::listen).transpose()?;
        let (mut timed_kills, mut send_kills, mut random_kills) = (Vec::new(), Vec::new(), None);
        for fault in &job.faults {
            match fault {
                Fault::Timed(kill) => timed_kills.push(*kill),
                Fault::Random(kills) => random_kills = Some(*kills),
                Fault::Process(replica, ProcessFault::Kill { .. } | ProcessFault::KillAfterChange { .. }) => {
                    send_kills.push(*replica)
                }
                Fault::Process(..) | Fault::Sick { .. } => {}
            }
        }
        let settings = Settings {
            world: job.world.clone(),
            view: job.view.clone(),
            timeout: job.timeout,
            death_time_max: 2 * job.hosts.detect_timeout,
            on_sdc: job.options.on_sdc,
            strikes_max: job.strikes_max,
            scrub_interval: job.scrub_interval,
            timed_kills,
            send_kills,
            random_kills,
        };
        let secret = Secret::generate().context("Failed to make the job's secret")?.sealing(job.hosts.secure);
        let mut coordinator = Coordinator::new(settings);
        if job.options.traces {
            coordinator.check_determinism();
        }
        Ok(Self {
            coordinator,
            spares: spares::Spares::new(job, job_number)?,
            launch: None,
            clones: clones::Clones::default(),
            spawned: spawned::Spawned::new(upwards)?,
            fleet: Fleet::start(job.hosts.clone(), secret)?,
            placement: Vec::new(),
            past_homes: BTreeMap::new(),
            job_number,
            entry: None,
            started_at: Instant::now(),
            audit,
            outputs: Outputs::new(job)?,
            input: match job.origin {
                None => Some(std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?)),
                Some(_) => None,
            },
            input_sent_bytes: 0,
            input_taken_bytes: BTreeMap::new(),
            signals,
            held: HashSet::new(),
            told_of_hold: HashSet::new(),
            reports: summary::Tally::default(),
            metrics,
            counts: Counts::default(),
            attribution: attribution::Attribution::default(),
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
                && (self.outputs.is_empty() && self.spawned.is_empty() || self.impatient)
            {
                return Ok(code);
            }
            self.wait()?;
            self.handle(Input::Tick);
        }
    }

    fn wait(&mut self) -> Result<()> {
        let timeout = self.poll_timeout();
        let input = self.input.as_ref().filter(|_| self.wants_input()).map(AsFd::as_fd);
        let mut fds =
            vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN), PollFd::new(self.fleet.fd(), PollFlags::POLLIN)];
        fds.extend(input.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let has_input = input.is_some();
        fds.extend(self.spares.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.metrics.as_ref().map(|metrics| PollFd::new(metrics.fd(), PollFlags::POLLIN)));
        fds.push(PollFd::new(self.spawned.fd(), PollFlags::POLLIN));
        for fd in self.outputs.waiting() {
            fds.push(PollFd::new(fd, PollFlags::POLLOUT));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("Failed to wait for events"),
        }
        let ready = |index: usize| fds[index].any().unwrap_or(false);
        let (signal, input) = (ready(0), has_input && ready(2));
        drop(fds);
        if signal {
            self.read_signals();
        }
        for news in self.fleet.work() {
            self.take(news)?;
        }
        if input {
            self.read_input();
        }
        self.work_on_spares();
        self.work_on_spawned();
        self.answer_metrics();
        self.write_outputs();
        Ok(())
    }

    fn poll_timeout(&self) -> PollTimeout {
        let now = self.now();
        let deadline = [self.coordinator.next_deadline(), self.outputs.next_deadline(now)];
        let deadline = deadline.into_iter().flatten().min().map(|deadline| deadline.saturating_sub(now));
        let fleet = self.fleet.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let Some(wait) = [deadline, fleet, self.spares.next_wait()].into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let wait_ms = wait.as_millis() as u64 + 1;
        PollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGTSTP as u32 {
                self.stand_still();
                continue;
            }
            self.interrupt(signal.ssi_signo as i32);
        }
    }

    /// The job is to end.
    fn interrupt(&mut self, signal: i32) {
        self.spawned.terminate();
        if self.exit_code.is_some() || !self.is_launched() {
            self.exit_code.get_or_insert(128 + signal);
            self.impatient = true;
            return;
        }
        self.handle(Input::Interrupted(signal));
    }

    /// Ctrl-Z stops this program alone. The daemons would take it for dead.
    fn stand_still(&mut self) {
        self.fleet.unwatch();
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
        if self.is_launched() {
            self.fleet.watch();
        }
    }

    fn is_launched(&self) -> bool {
        !self.placement.is_empty()
    }

    /// The host that a replica runs on.
    fn host(&self, replica: ReplicaId) -> Option<u32> {
        self.placement.get(self.job.world.process(replica).0 as usize).copied().flatten()
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            News::Complete => self.launch()?,
            News::Message(host, message) => match message.replica() {
                Some(replica) if !self.job.world.contains(replica) => {
                    self.fleet.bury(host, format!("its daemon speaks of a replica {replica}"));
                }
                // What it says of one that has found another home, or is given up, comes too late to matter.
                Some(replica) if self.host(replica) != Some(host) && self.job.is_cloneable => {}
                Some(replica) if self.host(replica) != Some(host) => {
                    self.fleet.bury(host, format!("its daemon speaks of replica {replica}, which is not there"));
                }
                _ => self.hear(host, message),
            },
            News::Dead { host, why } => self.lose_host(host, why)?,
            News::Reattached(host) => {
                let host = self.fleet.name(host).to_owned();
                self.record("reattached", &serde_json::json!({ "host": host }));
            }
            News::Fenced(host) => {
                let host = self.fleet.name(host).to_owned();
                self.record("fenced", &serde_json::json!({ "host": host }));
                self.console
                    .warning(&format!("host {host} came back after it was taken for dead, and was told to leave"));
            }
            News::Refused { address, error } => {
                let line = format!("refused a connection from {address}: {error}");
                self.record("connection-refused", &serde_json::json!({ "address": address.to_string() }));
                self.console.warning(&line);
            }
            News::Joined(host) => self.host_joined(host),
            News::NotJoined { host, why } => self.host_not_joined(host, &why),
            News::Asked(link, question) => {
                if let Some(answer) = self.answer(link, question) {
                    self.fleet.answer(link, answer);
                }
            }
            News::Failed(message) => bail!("{message}"),
        }
        Ok(())
    }

    fn lose_host(&mut self, host: u32, why: String) -> Result<()> {
        let name = self.fleet.name(host).to_owned();
        if !self.is_launched() {
            bail!("host {name}: {why} before the job had started");
        }
        self.input_taken_bytes.remove(&host);
        let replicas = self.job.world.replicas().filter(|replica| self.host(*replica) == Some(host)).collect();
        self.spares.host_lost(host, &name);
        self.handle(Input::DaemonLost { host: name, why, replicas });
        Ok(())
    }

    fn hear(&mut self, host: u32, message: FromDaemon) {
        match message {
            FromDaemon::Started { replica, pid } => {
                let host = self.host_name(replica);
                let fields = serde_json::json!({ "replica": replica.to_string(), "host": host, "pid": pid });
                self.record("started", &fields);
                self.handle(Input::Started { replica, pid });
            }
            FromDaemon::NotStarted { replica, message } => self.handle(Input::NotStarted { replica, message }),
            FromDaemon::Note(note) => self.console.warning(&note),
            FromDaemon::Agent { replica, message: FromAgent::Dynamic(number, request) } => {
                self.serve_dynamic((replica, number), request);
            }
            FromDaemon::Agent { replica, message } => self.handle(Input::Agent(replica, message)),
            FromDaemon::Output { replica, stream, bytes } => {
                self.outputs.take(replica, stream, &bytes);
                self.after_output(replica);
            }
            FromDaemon::InputTaken { byte_count } => {
                *self.input_taken_bytes.entry(host).or_default() += byte_count;
            }
            FromDaemon::Clone { id, step } => self.handle(Input::Clone { host, id, step }),
            FromDaemon::Exited { replica, exit } => self.handle(Input::Exited(replica, exit)),
            FromDaemon::Drained(replica) => {
                self.outputs.end_error(replica);
                self.handle(Input::Drained(replica));
            }
            // The fleet has seen to these.
            FromDaemon::HostFailed { .. } | FromDaemon::Observed { .. } => {}
        }
    }

    /// The name of the host that a replica runs on.
    fn host_name(&self, replica: ReplicaId) -> String {
        self.host(replica).map_or_else(String::new, |host| self.fleet.name(host).to_owned())
    }

    fn launch(&mut self) -> Result<()> {
        let job = self.job;
        let layout = layout::lay_out(&job.world, &job.view, &self.fleet)?;
        if job.hosts.report {
            layout.report(&job.world, &self.fleet).iter().for_each(|line| self.console.plain(line));
        }
        if !job.quiet {
            layout.notes(&job.world, &self.fleet).iter().for_each(|line| self.console.plain(line));
        }
        self.placement = layout.placement;
        if job.is_cloneable {
            self.recover();
        }
        let first_rank = job.world.sphere(VirtualRank(0)).filter_map(|replica| self.host(replica));
        self.input_taken_bytes = first_rank.map(|host| (host, 0)).collect();
        self.started_at = Instant::now();
        let start_time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let launch = Launch {
            job: self.job_number,
            secret: self.fleet.secret().clone(),
            world: job.world.clone(),
            view: self.coordinator.view().clone(),
            options: job.options.clone(),
            placement: self.placement_for_daemons(),
            applications: job.applications.clone(),
            application_of_rank: job.application_of_rank.clone(),
            faults: self.process_faults()?,
            start_time_ns,
            start_monotonic_ns: monotonic_ns(),
            host_name: self.fleet.name(0).to_owned(),
            cloneable: job.is_cloneable,
            origin: self.origin(),
            // That of a spawned job is something else.
            standard_input: job.origin.is_none(),
        };
        let hosts: Vec<_> = (0..job.hosts.hosts.len() as u32).map(|host| self.fleet.name(host).to_owned()).collect();
        self.record(crate::audit::JOB_START, &start_record::start_record(job, &launch, &hosts));
        // A job that redctl does not find runs as well.
        self.entry = jobs::write_down(self.job_number, &hosts[0], self.fleet.address(), self.fleet.secret()).ok();
        self.fleet.watch();
        self.launch = Some(launch.clone());
        self.fleet.send_all(&ToDaemon::Launch(Box::new(launch)));
        Ok(())
    }

    /// The name of the host that a replica was on in a view, which may be an older one; now, if none is given.
    fn host_name_in(&self, replica: ReplicaId, view: Option<ViewNumber>) -> String {
        let homes = self.past_homes.get(&replica).into_iter().flatten();
        let mut past = homes.filter(|(until, _)| view.is_some_and(|view| view <= *until));
        past.next().map_or_else(|| self.host_name(replica), |(_, host)| self.fleet.name(*host).to_owned())
    }

    /// The faults that processes carry out themselves.
    fn process_faults(&self) -> Result<Vec<(ReplicaId, ProcessFault)>> {
        let mut faults = Vec::new();
        for fault in &self.job.faults {
            match fault {
                Fault::Process(replica, fault) => faults.push((*replica, *fault)),
                Fault::Sick { host, period } => {
                    let mut numbers = 0..self.fleet.plan().hosts.len() as u32;
                    let found = numbers.find(|number| self.fleet.name(*number) == host);
                    let host = found.with_context(|| format!("--inject sick:{host}: the job has no host {host}"))?;
                    let all = self.job.world.replicas().filter(|replica| self.host(*replica).is_some());
                    faults.extend(all.map(|replica| (replica, ProcessFault::Sick { host, period: *period })));
                }
                Fault::Timed(_) | Fault::Random(_) => {}
            }
        }
        Ok(faults)
    }

    /// Writes to the audit log.
    fn record(&mut self, event: &str, fields: &serde_json::Value) {
        self.audit.record(event, fields);
        if let Some(error) = self.audit.poll_error() {
            self.console.warning(&format!("the audit log has gaps from here on: {error}"));
        }
    }

    fn placement_for_daemons(&self) -> Vec<u32> {
        self.placement.iter().map(|host| host.unwrap_or_default()).collect()
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        if !self.is_launched() && matches!(input, Input::Tick) {
            return;
        }
        self.coordinator.handle(now, input);
        self.carry_out();
        self.hear_of_places();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                Output::Place(order) => self.obey_about_place(order),
                Output::Vacated(replica) => self.placement[self.job.world.process(replica).0 as usize] = None,
                Output::HostFree(host) => self.host_free(host),
                Output::Send(message) => self.fleet.send_all(&message),
                Output::SendTo(host, message) => self.fleet.send(host, &message),
                Output::Moved { replica, host } => {
                    let place = &mut self.placement[self.job.world.process(replica).0 as usize];
                    if let Some(before) = place.replace(host) {
                        let until = self.coordinator.view().number;
                        self.past_homes.entry(replica).or_default().push((until, before));
                    }
                    self.held.remove(&Some(replica));
                }
                Output::Progress { newcomer, progress } => self.note_progress(newcomer, progress),
                Output::StreamJoined { replica, source, offset } => {
                    if let Some(host) = self.host(replica).filter(|_| replica.rank == VirtualRank(0)) {
                        // It has been given what was sent before, which nobody has read meanwhile.
                        self.input_taken_bytes.entry(host).or_insert(self.input_sent_bytes);
                    }
                    self.outputs.join(replica, source, offset);
                    self.after_output(replica);
                }
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
                    if code != 0 {
                        self.spawned.terminate();
                    }
                    self.fleet.send_all(&ToDaemon::Shutdown);
                }
            }
        }
        self.note_clones();
    }

    fn report(&mut self, report: &Report) {
        self.reports.count(report);
        let view = match report {
            Report::Event(Event::Mismatch(mismatch)) => Some(mismatch.view),
            Report::Event(Event::Evidence(evidence)) => Some(evidence.view),
            _ => None,
        };
        let mut counts = std::mem::take(&mut self.counts);
        let host = |replica: ReplicaId| self.host_name_in(replica, view);
        let ((name, fields), line) = (report.record(&host), report.line(&host));
        counts.count(report, &host);
        self.counts = counts;
        let is_end = matches!(report, Report::Ended { .. });
        if is_end {
            self.record_coverage();
            self.attribute(report, view);
        }
        self.record(name, &fields);
        if let Some((severity, line)) = line {
            match self.reports.mismatches() {
                count if report.is_mismatch() && count > MISMATCH_LINES_MAX => {
                    if count == MISMATCH_LINES_MAX + 1 {
                        self.console.warning("more mismatches follow; all are counted, and listed by --audit");
                    }
                }
                _ => self.console.say(severity, &line),
            }
        }
        if !is_end {
            self.attribute(report, view);
        }
    }

    /// Says what follows from all verdicts until now, where the program is not being checked anyway.
    fn attribute(&mut self, report: &Report, view: Option<ViewNumber>) {
        if self.job.options.traces {
            return;
        }
        let mut attribution = std::mem::take(&mut self.attribution);
        let conclusions = attribution.note(report, &|replica| self.host_name_in(replica, view));
        self.attribution = attribution;
        for conclusion in conclusions {
            self.report(&Report::Attribution(Box::new(conclusion)));
        }
    }

    /// What each process has sent and compared.
    fn record_coverage(&mut self) {
        let told: Vec<_> = self.coordinator.statistics().filter_map(|(replica, one)| Some((replica, one?))).collect();
        for (replica, one) in told {
            let fields = serde_json::json!({
                "replica": replica.to_string(), "host": self.host_name(replica), "messages_sent": one.messages_sent,
                "bytes_sent": one.bytes_sent, "messages_compared": one.messages_compared,
                "bytes_compared": one.bytes_compared, "communicators": self.coordinator.coverage(replica),
            });
            self.record("coverage", &fields);
        }
    }

    /// Sends on what comes out, and stops those who print faster than it can be shown or compared.
    fn after_output(&mut self, replica: ReplicaId) {
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

    fn write_outputs(&mut self) {
        let elapsed = self.started_at.elapsed();
        let written = match self.outputs.is_idle(elapsed) {
            true => Ok(()),
            false => self.console.around(|| (self.outputs.write(elapsed), self.outputs.ends_line())),
        };
        if written.is_err() && self.exit_code.is_none() {
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
        let host = replica.and_then(|replica| self.host(replica));
        match host.filter(|_| changed) {
            Some(host) => self.fleet.send(host, &ToDaemon::HoldOutput { replica, held }),
            None if changed => self.fleet.send_all(&ToDaemon::HoldOutput { replica, held }),
            None => {}
        }
    }

    /// Standard input is read while the job runs, there is room, and, at a terminal, this is the foreground job.
    fn wants_input(&self) -> bool {
        let running = self.is_launched() && self.exit_code.is_none();
        let Some(input) = self.input.as_ref().filter(|_| running) else { return false };
        let is_foreground =
            || nix::unistd::tcgetpgrp(input).map_or(true, |foreground| foreground == nix::unistd::getpgrp());
        // What was sent while a replica of rank 0 is being copied would be missing in its copy.
        let is_copied = self.coordinator.is_cutting(VirtualRank(0));
        self.input_in_flight_bytes() < INPUT_WINDOW_BYTES && !is_copied && is_foreground()
    }

    /// Read, and not yet taken by the slowest host that needs it.
    fn input_in_flight_bytes(&self) -> u64 {
        let slowest = self.input_taken_bytes.values().copied().min().unwrap_or(self.input_sent_bytes);
        self.input_sent_bytes - slowest
    }

    fn send_input(&mut self, message: &ToDaemon) {
        for host in self.input_taken_bytes.keys().copied().collect::<Vec<_>>() {
            self.fleet.send(host, message);
        }
    }

    fn read_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut bytes = vec![0; 64 << 10];
        match input.read(&mut bytes) {
            Ok(0) | Err(_) => {
                self.input = None;
                self.note_input();
                self.send_input(&ToDaemon::InputEnd);
            }
            Ok(count) => {
                bytes.truncate(count);
                self.input_sent_bytes += count as u64;
                self.note_input();
                self.send_input(&ToDaemon::Input { bytes });
            }
        }
    }

    fn note_input(&mut self) {
        self.coordinator.input_passed(self.now());
        self.carry_out();
    }

    fn summarize(&mut self, code: i32, determinism: Option<&serde_json::Value>) -> Result<()> {
        self.audit.close();
        let summary = summary::Summary::new(&self.coordinator, &self.reports, self.now(), code, self.audit.head());
        if !self.job.quiet
            && let Some(lines) = summary.lines()
        {
            lines.iter().for_each(|line| self.console.plain(line));
        }
        if let Some(path) = &self.job.json_summary {
            summary.write_json(path, determinism)?;
        }
        Ok(())
    }
}

/// A number for the job that is nobody else's.
fn random_number() -> u64 {
    // Not from the secret, which must not be seen in it.
    Secret::generate().map_or(0, |random| u64::from_le_bytes(random.key()[..8].try_into().expect("eight bytes")))
}

fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| now.as_nanos() as u64)
}

fn catch_signals() -> Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}
