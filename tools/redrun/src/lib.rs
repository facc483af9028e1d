//! `redrun` carries out the decisions of the job's coordinator (`job_coordinator`). One thread and one `poll` join that
//! machine, the daemons, the user's signals and the three standard streams.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod allocation;
mod attribution;
mod checkpoints;
mod clones;
mod determinism;
mod ending;
mod failover;
mod fleet;
mod folding;
mod injections;
mod joining;
mod launching;
mod lives;
mod metrics;
mod mpir;
mod notices;
mod output;
mod own_network;
mod pools;
mod program;
mod quorum;
mod reach;
mod redundancy;
mod repeatable;
mod reporter;
mod requests;
mod run;
mod spares;
mod spawned;
mod spool;
mod standard;
mod start_record;
mod status;
mod status_lines;
mod streams;
mod summary;
mod symbols;
mod targets;
mod transit;
mod users;
mod wakers;
mod watching;
mod writer;

pub use program::main;

use anyhow::{Context, Result, anyhow};
use audit_log::log::{self, Log};
use audit_log::recorder::Recorder;
use coordinator_records::ledger::Ledger;
use coordinator_records::quorum::REPLACED_CODE;
use ending::Ending;
use failover::{Ground, Past, Unsaid, cannot_come_back};
use fleet::{Fleet, HostLoss, News};
use job_console::consoles::Consoles;
use job_coordinator::{Coordinator, Input, Output, Return};
use job_options::Job;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use notices::Notices;
use output::Outputs;
use reach::Reach;
use redrt_wire::daemon::{FromDaemon, ToDaemon};
use redrt_wire::secret::Secret;
use replication_manager::OUTPUT_FAILED_CODE;
use reporter::JobReporter;
use run::Run;
use say::Console;
use spawned::Upwards;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use streams::StandardInput;
use tracing::{debug, trace};
use wakers::Wakers;
use watching::Watching;

/// Exit code when a checked program is not deterministic.
const NONDETERMINISTIC_CODE: i32 = 1;
/// Exit code when a fault that had to be injected did not happen.
const NOT_INJECTED_CODE: i32 = 1;
/// Exit code when `redrun` itself fails.
const FAILED_CODE: i32 = 1;
/// Interval between looks at signals while the last lines are being written.
const WRITERS_LOOK: Duration = Duration::from_millis(100);

/// Runs a job to its end and returns its exit code. With consoles the job outlives its terminal; with a past it
/// continues where a coordinator was killed.
fn run(
    job: &Job,
    console: &Console,
    upwards: Option<Upwards>,
    consoles: Option<Consoles>,
    past: Option<Past>,
) -> Result<i32> {
    // Orphans of a killed daemon become children of this process, which ends them.
    host_processes::sweep::become_subreaper()?;
    // Failure only delays news.
    host_processes::prompt::request();
    if past.is_some() {
        // The replay's lines were shown before.
        console.attach(Arc::new(Unsaid));
    }
    // An error here is new: it is shown.
    let mut shell = Shell::new(job, console, upwards, consoles, past).inspect_err(|_| console.detach())?;
    console.attach(shell.outputs.standard());
    let code = shell.run_to_end().unwrap_or_else(|error| {
        console.error(&format!("{error:#}"));
        FAILED_CODE
    });
    let abandoned = shell.abandoned().filter(|abandoned| abandoned.announce(code, console));
    let code = shell.let_writers_end(code);
    console.detach();
    match abandoned.map(|abandoned| abandoned.end(code)) {
        // No console can come any more.
        Some(Ok(())) => return Ok(code),
        Some(Err(why)) => console.warning(&why.to_string()),
        None => {}
    }
    Ok(shell.send_end(code))
}

/// Inputs of the coordinator.
#[derive(Default)]
struct Inbox {
    /// Inputs that came while outputs were being carried out.
    inputs: VecDeque<Input>,
    /// True while outputs of an input are being carried out.
    is_handling: bool,
}

impl Inbox {
    /// Takes an input in. False if the outputs of an earlier one are being carried out: it is handled after them.
    fn begin(&mut self, input: Input) -> bool {
        self.inputs.push_back(input);
        !std::mem::replace(&mut self.is_handling, true)
    }

    /// The next input to handle. `None` ends the work that [`Inbox::begin`] began.
    fn next(&mut self) -> Option<Input> {
        let next = self.inputs.pop_front();
        self.is_handling = next.is_some();
        next
    }
}

struct Shell<'a> {
    run: Run<'a>,
    inbox: Inbox,
    /// The journal, from which another coordinator can continue.
    ledger: Ledger,
    quorum: quorum::Quorum,
    /// Present during a replay of the journal.
    replay: Option<failover::Replay>,
    coming: joining::Coming,
    /// `None` without checkpoints.
    checkpoints: Option<checkpoints::CheckpointWork>,
    /// The return to a checkpoint that the coordinator has chosen.
    due: Option<Return>,
    spawned: spawned::Spawned,
    reach: Reach,
    reporter: JobReporter<'a>,
    outputs: Outputs,
    input: StandardInput,
    wakers: Wakers,
    ending: Ending,
}

impl<'a> Shell<'a> {
    fn new(
        job: &'a Job,
        console: &'a Console,
        upwards: Option<Upwards>,
        consoles: Option<Consoles>,
        past: Option<Past>,
    ) -> Result<Self> {
        let outlives_terminal = consoles.is_some();
        let job_number = match (&past, &job.resume) {
            (Some(past), _) => past.job(),
            (None, Some(kept)) => kept.manifest.job,
            (None, None) => random_number(),
        };
        let audit = job.audit.as_deref().map(|path| log::path_in(path, job_number));
        // Errors with the log must show before anything is started.
        let is_elsewhere = past.as_ref().is_some_and(Past::is_elsewhere);
        let mut untold = Vec::new();
        let audit = match audit {
            Some(path) if is_elsewhere => open_log_elsewhere(path, &mut untold),
            Some(path) => Some((Log::open(&path)?, path)),
            None => None,
        };
        let profile_path = job.profile.as_deref().map(|path| summary::profile::path_in(path, job_number));
        let signals = job_console::user_signals::catch()?;
        let bell = background_worker::bell().context("Failed to make an event descriptor")?;
        let job_name = format!("{job_number:016x}");
        let start = |(log, path)| Recorder::start(log, path, job_name.clone(), job.audit_heads.clone(), bell.clone());
        let audit = audit.map(start).transpose().context("Failed to start a thread")?;
        let notices = job.on_event.as_deref().map(|command| Notices::start(command, &job_name, bell.clone()));
        let notices = notices.transpose()?;
        let checkpoints = checkpoints::CheckpointWork::new(job, job_number, past.is_some(), is_elsewhere, &bell)?;
        let plan = match &job.resume {
            Some(kept) if past.is_none() => placement::homes::resumed(&kept.manifest, &job.hosts)?,
            _ => job.hosts.clone(),
        };
        let has_console = consoles.as_ref().is_none_or(Consoles::is_attached);
        let ground = match past {
            Some(past) => Ground::of_past(past, plan, has_console)?,
            None => {
                let settings = checkpoints::life::settings(job, job_number, &plan, checkpoints.as_ref())?;
                Ground::of_new_job(job, job_number, plan, settings, outlives_terminal)?
            }
        };
        // Before any start, and after signals are blocked: its threads must not receive them.
        let watching = Watching::listen(job.metrics, job.web, ground.fleet.secret())?;
        if let Some(why) = ground.ledger.poll_trouble() {
            console.warning(&cannot_come_back(&why));
        }
        untold.extend(ground.untold);
        let (transits, spool) = ground.keepsakes.map(|keepsakes| (keepsakes.transits, keepsakes.spool)).unzip();
        let replay = ground.replay.as_ref().map(|replay| &replay.output);
        let mut shell = Self {
            inbox: Inbox::default(),
            coming: joining::Coming {
                joining: joining::Joining::new(),
                site: match &ground.replay {
                    None => spares::SitePool::new(job, job_number)?,
                    Some(_) => spares::SitePool::of_past(job, job_number)?,
                },
                launch: None,
            },
            spawned: spawned::Spawned::new(upwards)?,
            ledger: ground.ledger,
            quorum: quorum::Quorum::default(),
            replay: None,
            checkpoints,
            due: None,
            outputs: Outputs::new(job, outlives_terminal, transits, replay, &bell)?,
            input: StandardInput::open(job, has_console, spool.flatten())?,
            reach: Reach { consoles, entry: None, askers: requests::Askers::default(), watching },
            reporter: JobReporter {
                console,
                audit,
                notices,
                reported: reporter::Reported::new(&job.faults),
                clones: clones::Clones::default(),
                profile_path,
                untold,
            },
            wakers: Wakers { signals, bell },
            ending: Ending::default(),
            run: Run {
                job,
                number: job_number,
                coordinator: Coordinator::new(ground.settings),
                fleet: ground.fleet,
                started_at: Instant::now(),
            },
        };
        match ground.replay {
            Some(replay) => shell.come_back(replay)?,
            None => {
                shell.ledger.files(&shell.outputs.file_bytes());
                shell.carry_out();
            }
        }
        if is_elsewhere {
            shell.reporter.untold.extend(checkpoints::missing_here(&shell.run));
            let host = shell.run.fleet.own_name();
            shell.reporter.untold.insert(0, format!("the coordinator of this job goes on on host {host}"));
        }
        shell.reach.open_consoles(job_number, console);
        Ok(shell)
    }

    fn run_to_end(&mut self) -> Result<i32> {
        std::mem::take(&mut self.reporter.untold).iter().for_each(|line| self.reporter.console.warning(line));
        self.reach.watching.announce(&self.run, self.reporter.console);
        self.reach.watching.places().iter().for_each(|line| self.reporter.console.plain(line));
        if let Some(ignored) = &self.run.job.ignored {
            self.reporter.console.warning(ignored);
        }
        self.run.job.chosen.iter().for_each(|line| self.reporter.console.plain(line));
        self.reporter.console.allow_status(!self.reach.is_quiet(self.run.job));
        let outcome = self.serve();
        if outcome.is_err() && self.ending.code.is_none() {
            // The coordinator does not know of this end.
            let fields = serde_json::json!({ "exit_code": FAILED_CODE });
            self.reporter.record(audit_log::JOB_END, &fields);
            self.reporter.notify(audit_log::JOB_END, &fields, "");
        }
        if !matches!(outcome, Ok(0))
            && self.outputs.is_empty()
            && !self.run.coordinator.has_lost_output()
            && let Some(checkpoints) = &self.checkpoints
        {
            let unwritten_bytes = |replica| self.outputs.unwritten_bytes(replica);
            checkpoints.write_down_shown(&self.run, &unwritten_bytes, self.reporter.console);
        }
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.pass_over_unproven(&self.run, self.reporter.console);
        }
        self.reporter.let_notices_end(&self.wakers.signals);
        self.reporter.console.show_status(Vec::new());
        let keeps_sessions = matches!(outcome, Ok(0));
        self.run.fleet.end(keeps_sessions);
        host_processes::sweep::kill_descendants(keeps_sessions);
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.remove_forgotten(&self.run, self.reporter.console);
        }
        self.reach.entry = None;
        self.coming.site.leave();
        running_jobs::cross_out(self.run.number);
        let code = self.run.coordinator.exit_code(outcome?);
        let is_complete = self.reporter.report_missing_faults(&self.run);
        let code = if code == 0 && self.run.job.needs_faults && !is_complete { NOT_INJECTED_CODE } else { code };
        let verdict = determinism::judge(&self.run.coordinator, code == 0);
        let is_deterministic = verdict.as_ref().is_none_or(|verdict| verdict.is_deterministic);
        let code = if code == 0 && !is_deterministic { NONDETERMINISTIC_CODE } else { code };
        self.reporter.summarize(
            &self.run,
            &self.wakers.signals,
            self.reach.is_quiet(self.run.job),
            code,
            verdict.as_ref().map(|verdict| &verdict.json),
        )?;
        verdict.iter().flat_map(|verdict| &verdict.lines).for_each(|line| self.reporter.console.plain(line));
        Ok(code)
    }

    /// The allocation in which the job runs, if its batch script is lost.
    fn abandoned(&self) -> Option<allocation::Abandoned> {
        let lost = self.run.coordinator.lost_hosts();
        let is_lost = |node: &str| node != self.run.fleet.own_name() && lost.iter().any(|name| name == node);
        allocation::Abandoned::find(|name| std::env::var(name).ok(), is_lost)
    }

    /// Runs until the job has ended and all its output is written.
    fn serve(&mut self) -> Result<i32> {
        loop {
            if let Some(code) = self.ending.code {
                let is_written = self.outputs.is_empty();
                // The last failure of a writer may not have been seen yet.
                self.write_outputs();
                if is_written && self.spawned.is_empty() {
                    return Ok(code);
                }
                if self.ending.is_impatient {
                    return Ok(if code == 0 && !is_written { OUTPUT_FAILED_CODE } else { code });
                }
            }
            self.wait()?;
            if let Some(why) = self.ending.failure.take() {
                return Err(anyhow!(why));
            }
            // Only now: the old fleet must take in every message of the lost processes and their daemons first.
            if let Some(due) = self.due.take() {
                self.go_back(due)?;
            }
            self.handle(Input::Tick);
            self.shorten_journal();
        }
    }

    fn wait(&mut self) -> Result<()> {
        let timeout = self.poll_timeout();
        let input = self.input.fd().filter(|_| self.wants_input());
        let mut fds: Vec<_> = self.wakers.fds().into();
        fds.push(PollFd::new(self.run.fleet.fd(), PollFlags::POLLIN));
        fds.extend(input.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let has_input = input.is_some();
        fds.extend(self.coming.site.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.reach.fds());
        fds.push(PollFd::new(self.spawned.fd(), PollFlags::POLLIN));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("Failed to wait for events"),
        }
        let ready = |index: usize| fds[index].any().unwrap_or(false);
        let (signal, input) = (ready(0), has_input && ready(3));
        drop(fds);
        self.wakers.silence();
        if signal {
            while let Some(signal) = self.wakers.next_signal() {
                self.follow_signal(signal);
            }
        }
        // Input after a console has left is not for the job, and `poll` was about the former terminal.
        let input = !self.handle_consoles() && input;
        for news in self.run.fleet.work() {
            self.take(news)?;
        }
        if input {
            self.read_input();
        }
        for news in self.coming.site.work() {
            self.handle(Input::Site(news));
        }
        self.work_on_spawned();
        self.answer_watchers();
        self.reporter.handle_audit();
        self.reporter.handle_notices();
        while let Some(checkpoints) = &self.checkpoints
            && let Some(answer) = checkpoints.next_answer(&self.run)?
        {
            self.handle(answer);
        }
        self.handle_ledger();
        if self.replay.is_none()
            && let Some(voters) = self.quorum.keep(&mut self.run, &self.ledger, self.ending.code.is_some())
        {
            self.reporter.record("roots", &voters);
        }
        self.write_outputs();
        Ok(())
    }

    fn poll_timeout(&self) -> PollTimeout {
        if self.due.is_some() {
            return PollTimeout::ZERO;
        }
        let now = self.run.now();
        let deadline = [self.run.coordinator.next_deadline(), self.outputs.next_deadline(now)];
        let deadline = deadline.into_iter().flatten().min().map(|deadline| deadline.saturating_sub(now));
        let fleet = self.run.fleet.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let audit = self.reporter.audit.as_ref().and_then(Recorder::next_wait);
        let Some(wait) = [deadline, fleet, self.coming.site.next_wait(), audit].into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let wait_ms = wait.as_millis() as u64 + 1;
        PollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            News::Complete => self.launch()?,
            News::Message(host, message) => {
                if let FromDaemon::Exited { found_at_ns, .. } = &message {
                    // Accurate as far as the clocks of the two hosts agree.
                    let found_at = UNIX_EPOCH + Duration::from_nanos(*found_at_ns);
                    let by = SystemTime::now().duration_since(found_at).unwrap_or_default();
                    self.handle(Input::FoundLate(by));
                }
                self.handle(Input::Daemon { host, message });
            }
            News::Dead { host, why } => self.lose_host(host, &why),
            News::Reattached(host) => {
                let host = self.run.fleet.name(host).to_owned();
                self.reporter.record("reattached", &serde_json::json!({ "host": host }));
            }
            News::Fenced(host) => {
                let host = self.run.fleet.name(host).to_owned();
                self.reporter.record("fenced", &serde_json::json!({ "host": host }));
                self.reporter
                    .console
                    .warning(&format!("host {host} came back after it was taken for dead, and was told to leave"));
            }
            News::Refused(refusal) => {
                let (address, others) = (refusal.address.to_string(), refusal.untold_count);
                self.reporter
                    .record("connection-refused", &serde_json::json!({ "address": address, "others": others }));
                self.reporter.console.warning(&refusal.to_string());
            }
            News::Joined(host) => self.host_joined(host),
            News::NotJoined { host, why } => self.host_not_joined(host, &why),
            News::StoodStill(late) => {
                let seconds = late.as_secs_f64();
                self.reporter.record("stood-still", &serde_json::json!({ "seconds": seconds }));
                self.reporter
                    .console
                    .warning(&format!("redrun stood still for {seconds:.1} s; its daemons may have given it up"));
            }
            News::Asked(link, question) => {
                if let Some(answer) = self.answer(link, question) {
                    self.run.fleet.answer(link, answer);
                }
            }
            // The other coordinator has the daemons and processes. This one must not end them.
            News::Replaced(by) => {
                debug!(target: "redrun", term = by.0, "another coordinator has taken this one's place");
                self.ledger.is_replaced();
                std::process::exit(REPLACED_CODE);
            }
            News::NotStarted { host, why } => {
                let name = self.run.fleet.name(host).to_owned();
                self.handle(Input::HostNotHad { host, name, why: format!("{why:#}") });
            }
            News::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn lose_host(&mut self, host: u32, why: &HostLoss) {
        let name = self.run.fleet.name(host).to_owned();
        if !self.run.coordinator.is_launched() {
            let why = format!("host {name}: {why} before the job had started");
            return self.handle(Input::HostNotHad { host, name, why });
        }
        self.handle(Input::FoundLate(why.silence(self.run.fleet.tick_time())));
        self.handle(Input::HostLost { host, name, why: why.to_string() });
    }

    /// Gives the coordinator an input and carries out its outputs, one input at a time.
    fn handle(&mut self, input: Input) {
        if self.replay.is_some() {
            // The journal has the input, at the place where it was handled.
            return;
        }
        if !self.inbox.begin(input) {
            return;
        }
        while let Some(input) = self.inbox.next() {
            if !matches!(input, Input::Tick) {
                trace!(target: "redrun", ?input, "in");
            }
            let now = self.run.now();
            self.ledger.input(now, &input);
            self.run.coordinator.handle(now, input);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.run.coordinator.poll_output() {
            debug!(target: "redrun", ?output, "out");
            match output {
                Output::Send(message) => self.relay(None, &message),
                Output::SendTo(host, message) => self.relay(Some(host), &message),
                Output::Expel { .. } if self.replay.is_some() => {}
                Output::Expel { host, why } => self.run.fleet.expel(host, why),
                Output::Site(order) => self.coming.site.send(order),
                Output::FindHost(spare) => self.find_or_add(&spare),
                Output::SpareAdded { host, count } => {
                    let host = self.run.fleet.name(host).to_owned();
                    self.reporter.record("spare-added", &serde_json::json!({ "host": host, "places": count }));
                }
                Output::DismissHost(host) => self.dismiss_host(host),
                Output::Show { rank, bytes, is_anew } => self.outputs.show(rank, &bytes, is_anew),
                Output::ShowError { replica, bytes, is_anew } => self.outputs.show_error(replica, bytes, is_anew),
                Output::ErrorEnded(replica) => self.outputs.end_error(replica),
                Output::Report(report) => self.reporter.report(&self.run, &report),
                Output::Started { replica, pid } => {
                    let host = self.run.host_name(replica);
                    let fields = serde_json::json!({ "replica": replica.to_string(), "host": host, "pid": pid });
                    self.reporter.record("started", &fields);
                    self.record_started();
                }
                Output::Bound { replica, processors } => {
                    let host = self.run.host_name(replica);
                    self.reporter.console.plain(&format!("binding: {replica} on {host}: processors {processors}"));
                }
                Output::KilledByUser(replica) => {
                    self.reporter.record("killed-by-user", &serde_json::json!({ "replica": replica.to_string() }));
                }
                Output::Note(note) => self.reporter.console.warning(&note),
                Output::Progress { newcomer, progress } => {
                    self.reporter.clones.record_progress(&self.run, self.reporter.console, newcomer, progress)
                }
                Output::Checkpoint(note) => checkpoints::report_checkpoint(&self.run, &mut self.reporter, &note),
                Output::OtherJob(order) => self.order_jobs(order),
                Output::SpawnedError(line) => self.reporter.console.error(&line),
                Output::Answered { asker, outcome } => self.send_answer(asker, outcome),
                // During a replay it was carried out already, or is given again afterwards.
                Output::Store(order) => {
                    if let Some(checkpoints) = self.checkpoints.as_ref().filter(|_| self.replay.is_none()) {
                        checkpoints.give(&self.run, self.coming.host_name(), order);
                    }
                }
                Output::GoBack(chosen) => self.due = Some(*chosen),
                Output::Returned(times) => checkpoints::report_return(&self.run, &mut self.reporter, &times),
                Output::OutputLost(failure) => {
                    self.reporter.record("output-failed", &serde_json::json!({ "what": failure.to_string() }));
                    self.reporter.console.error(&format!("{failure}; not everything that the job printed is there"));
                }
                Output::HostPassedOver { name, why } => {
                    let fields = serde_json::json!({ "host": name, "why": why, "processes": 0 });
                    self.reporter.record("daemon-lost", &fields);
                    self.reporter.console.warning(&format!("{why}; the job goes back without {name}"));
                }
                Output::WaitsForHosts { generation, why } => {
                    let fields = serde_json::json!({ "generation": generation.0, "why": why });
                    self.reporter.record("waits-for-hosts", &fields);
                    self.reporter.console.plain(&why);
                }
                Output::LaidOut { report, notes } => {
                    launching::report_layout(&self.run, self.reporter.console, &report, &notes)
                }
                Output::Say(line) => self.reporter.console.plain(&line),
                Output::Failed(why) => self.ending.failure = Some(why),
                Output::Finish { code, will_go_on } => {
                    // `finish` hands over the last output, so the journal must be complete before.
                    self.ledger.flush();
                    self.ledger.ending();
                    self.outputs.finish(will_go_on);
                    self.ending.code = Some(code);
                    mpir::notify_of_end(code);
                    let is_over = code == 0 && !will_go_on;
                    if let Some(directory) =
                        self.checkpoints.as_mut().filter(|_| is_over).and_then(checkpoints::CheckpointWork::forget)
                    {
                        self.relay(None, &ToDaemon::Forget(directory));
                    }
                    self.relay(None, &ToDaemon::Shutdown { keeps_sessions: code == 0 });
                }
            }
        }
        self.reporter.clones.show(&self.run, self.reporter.console);
    }
}

/// Opens the audit log for a coordinator that has moved to this host. A coordinator that is cut off may still write the
/// old log: then records go to a file beside it. Without either the job continues unlogged.
fn open_log_elsewhere(path: PathBuf, untold: &mut Vec<String>) -> Option<(Log, PathBuf)> {
    let why = match Log::open(&path) {
        Ok(log) => return Some((log, path)),
        Err(why) => why,
    };
    let mut own = path.into_os_string();
    own.push(".");
    own.push(nix::unistd::gethostname().unwrap_or_else(|_| "elsewhere".into()));
    let own = PathBuf::from(own);
    match Log::open(&own) {
        Ok(log) => {
            untold.push(format!("the audit log goes on in {}: {why:#}", own.display()));
            Some((log, own))
        }
        Err(_) => {
            untold.push(format!("there is no audit log from now on: {why:#}"));
            None
        }
    }
}

/// A number that no other job has.
fn random_number() -> u64 {
    // Not derived from the secret: the number is public.
    Secret::generate().map_or(0, |random| u64::from_le_bytes(random.key()[..8].try_into().expect("eight bytes")))
}
