//! `redrun` carries out the decisions of the job's root (`job_root`). One thread and one `poll` join that machine, the
//! daemons, the user's signals and the three standard streams.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod attribution;
mod clones;
mod comeback;
mod consoles;
mod council;
mod determinism;
mod fleet;
mod folding;
mod injections;
mod joining;
mod launching;
mod lines;
mod metrics;
mod mpir;
mod notices;
mod output;
mod own_network;
mod pools;
mod program;
mod redundancy;
mod signals;
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
mod telling;
mod transit;
mod watching;
mod wishes;
mod writer;

pub use program::main;

use anyhow::{Context, Result, anyhow};
use audit_log::log::{self, Log};
use audit_log::recorder::Recorder;
use background_worker::Bell;
use comeback::{Ground, Past, Unsaid, cannot_come_back};
use coordinator::{OUTPUT_FAILED_CODE, Report};
use fleet::{Fleet, HostLoss, News};
use job_options::Job;
use job_root::{Input, Output, Root};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use notices::Notices;
use output::Outputs;
use redrt_types::ReplicaId;
use redrt_wire::daemon::{FromDaemon, Launch, ToDaemon};
use redrt_wire::secret::Secret;
use root_records::council::REPLACED_CODE;
use root_records::ledger::Ledger;
use root_terminal::seat::Seat;
use say::Console;
use spawned::Upwards;
use spool::Spool;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{debug, trace};
use watching::Watching;

/// Exit code when a checked program is not deterministic.
const NONDETERMINISTIC_CODE: i32 = 1;
/// Exit code when a fault that had to be injected did not happen.
const NOT_INJECTED_CODE: i32 = 1;
/// Exit code when `redrun` itself fails.
const FAILED_CODE: i32 = 1;
/// Interval between looks at signals while the last lines are being written.
const WRITERS_LOOK: Duration = Duration::from_millis(100);

/// Runs a job to its end and returns its exit code. With a seat the job outlives its terminal; with a past it continues
/// where a root was killed.
fn run(job: &Job, console: &Console, upwards: Option<Upwards>, seat: Option<Seat>, past: Option<Past>) -> Result<i32> {
    // Orphans of a killed daemon become children of this process, which ends them.
    host_processes::sweep::become_subreaper()?;
    // Failure only delays news.
    host_processes::prompt::wish();
    if past.is_some() {
        // The replay's lines were shown before.
        console.attach(Arc::new(Unsaid));
    }
    // An error here is new: it is shown.
    let mut shell = Shell::new(job, console, upwards, seat, past).inspect_err(|_| console.detach())?;
    console.attach(shell.outputs.standard());
    let code = shell.run_to_end().unwrap_or_else(|error| {
        console.error(&format!("{error:#}"));
        FAILED_CODE
    });
    let code = shell.let_writers_end(code);
    console.detach();
    Ok(shell.tell_end(code))
}

struct Shell<'a> {
    job: &'a Job,
    console: &'a Console,
    root: Root,
    /// Inputs that came while outputs were being carried out.
    inputs: VecDeque<Input>,
    /// True while outputs of an input are being carried out.
    is_handling: bool,
    fleet: Fleet,
    /// The journal, from which another root can continue.
    ledger: Ledger,
    council: council::Council,
    /// Present during a replay of the journal.
    replay: Option<comeback::Replay>,
    /// The order to launch, for hosts that join later.
    launch: Option<Launch>,
    site: spares::SitePool,
    joining: joining::Joining,
    clones: clones::Clones,
    /// `None` without checkpoints.
    lines: Option<lines::Lines>,
    /// Returns to a checkpoint: the one that is due, and the times of one under way.
    returns: lines::Returns,
    /// Connections of `redctl` whose wishes the root has.
    askers: wishes::Askers,
    spawned: spawned::Spawned,
    /// Present if the job outlives its terminal.
    seat: Option<Seat>,
    job_number: u64,
    entry: Option<running_jobs::Entry>,
    started_at: Instant,
    audit: Option<Recorder>,
    /// Present with `--on-event`.
    notices: Option<Notices>,
    outputs: Outputs,
    input: Option<std::fs::File>,
    /// Keeps standard input that was read and not yet in the journal, should this process be killed.
    spool: Option<Spool>,
    /// If true, input is read on when a console leaves.
    input_is_file: bool,
    /// True once nothing more is read.
    input_has_ended: bool,
    signals: SignalFd,
    /// The state of reporting.
    reported: telling::Reported,
    watching: Watching,
    /// Path of `--profile`.
    profile_path: Option<PathBuf>,
    exit_code: Option<i32>,
    /// The reason for which the root cannot go on.
    failure: Option<String>,
    impatient: bool,
    /// Host of the last loss.
    lost_host: Option<String>,
    /// Exit code of an otherwise successful job whose output could not all be written.
    lost_output: Option<i32>,
    /// Messages for the user that wait for a console.
    untold: Vec<String>,
    /// Rung by the writing threads.
    bell: Bell,
}

impl<'a> Shell<'a> {
    fn new(
        job: &'a Job,
        console: &'a Console,
        upwards: Option<Upwards>,
        seat: Option<Seat>,
        past: Option<Past>,
    ) -> Result<Self> {
        let outlives_terminal = seat.is_some();
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
        let signals = root_terminal::user_signals::catch()?;
        let bell = background_worker::bell().context("Failed to make an event descriptor")?;
        let job_name = format!("{job_number:016x}");
        let start = |(log, path)| Recorder::start(log, path, job_name.clone(), job.audit_heads.clone(), bell.clone());
        let audit = audit.map(start).transpose().context("Failed to start a thread")?;
        let notices = job.on_event.as_deref().map(|command| Notices::start(command, &job_name, bell.clone()));
        let notices = notices.transpose()?;
        let lines = lines::Lines::new(job, job_number, past.is_some(), is_elsewhere, &bell)?;
        let plan = match &job.resume {
            Some(kept) if past.is_none() => placement::homes::resumed(&kept.manifest, &job.hosts)?,
            _ => job.hosts.clone(),
        };
        let has_console = seat.as_ref().is_none_or(Seat::is_attached);
        let ground = match past {
            Some(past) => Ground::of_past(past, plan, has_console)?,
            None => {
                let settings = lines::life::settings(job, job_number, &plan, lines.as_ref())?;
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
        let mut shell = Self {
            root: Root::new(ground.settings),
            inputs: VecDeque::new(),
            is_handling: false,
            site: match &ground.replay {
                None => spares::SitePool::new(job, job_number)?,
                Some(_) => spares::SitePool::of_past(job, job_number)?,
            },
            joining: joining::Joining::new(),
            launch: None,
            clones: clones::Clones::default(),
            spawned: spawned::Spawned::new(upwards)?,
            fleet: ground.fleet,
            ledger: ground.ledger,
            council: council::Council::default(),
            replay: None,
            lines,
            returns: lines::Returns::default(),
            askers: wishes::Askers::default(),
            seat,
            job_number,
            entry: None,
            started_at: Instant::now(),
            audit,
            notices,
            outputs: Outputs::new(
                job,
                outlives_terminal,
                transits,
                ground.replay.as_ref().map(|replay| &replay.output),
                &bell,
            )?,
            spool: spool.flatten(),
            input: match job.origin {
                None if has_console => {
                    Some(streams::open_input(job.resume.as_ref().map_or(0, |kept| kept.manifest.input_bytes))?)
                }
                _ => None,
            },
            input_is_file: !writer::outlet::goes_with_console(&std::io::stdin()),
            input_has_ended: false,
            signals,
            reported: telling::Reported::new(&job.faults),
            watching,
            profile_path,
            exit_code: None,
            failure: None,
            impatient: false,
            lost_host: None,
            lost_output: None,
            untold,
            bell,
            job,
            console,
        };
        match ground.replay {
            Some(replay) => shell.come_back(replay)?,
            None => {
                shell.ledger.files(&shell.outputs.file_bytes());
                shell.carry_out();
            }
        }
        if is_elsewhere {
            shell.look_for_lines();
            let host = shell.fleet.own_name();
            shell.untold.insert(0, format!("the root of this job goes on on host {host}"));
        }
        shell.open_seat();
        Ok(shell)
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    fn run_to_end(&mut self) -> Result<i32> {
        std::mem::take(&mut self.untold).iter().for_each(|line| self.console.warning(line));
        self.announce_metrics();
        self.watching.places().iter().for_each(|line| self.console.plain(line));
        if let Some(ignored) = &self.job.ignored {
            self.console.warning(ignored);
        }
        self.job.chosen.iter().for_each(|line| self.console.plain(line));
        self.console.allow_status(!self.is_quiet());
        let outcome = self.serve();
        if outcome.is_err() && self.exit_code.is_none() {
            // The root does not know of this end.
            let fields = serde_json::json!({ "exit_code": FAILED_CODE });
            self.record(audit_log::JOB_END, &fields);
            self.notify(audit_log::JOB_END, &fields, "");
        }
        if !matches!(outcome, Ok(0)) && self.outputs.is_empty() && self.lost_output.is_none() {
            self.write_down_shown();
        }
        self.let_notices_end();
        self.console.show_status(Vec::new());
        let keeps_sessions = matches!(outcome, Ok(0));
        self.fleet.end(keeps_sessions);
        host_processes::sweep::kill_descendants(keeps_sessions);
        self.remove_forgotten_lines();
        self.entry = None;
        self.site.leave();
        running_jobs::cross_out(self.job_number);
        let code = match outcome? {
            0 => self.root.code_of_spawned(),
            code => code,
        };
        let code = if code == 0 { self.lost_output.unwrap_or(0) } else { code };
        let is_complete = self.tell_of_missing_faults();
        let code = if code == 0 && self.job.needs_faults && !is_complete { NOT_INJECTED_CODE } else { code };
        let verdict = self.judge_determinism(code == 0);
        let is_deterministic = verdict.as_ref().is_none_or(|verdict| verdict.is_deterministic);
        let code = if code == 0 && !is_deterministic { NONDETERMINISTIC_CODE } else { code };
        self.summarize(code, verdict.as_ref().map(|verdict| &verdict.json))?;
        verdict.iter().flat_map(|verdict| &verdict.lines).for_each(|line| self.console.plain(line));
        Ok(code)
    }

    /// Runs until the job has ended and all its output is written.
    fn serve(&mut self) -> Result<i32> {
        loop {
            if let Some(code) = self.exit_code {
                let is_written = self.outputs.is_empty();
                // The last failure of a writer may not have been seen yet.
                self.write_outputs();
                if is_written && self.spawned.is_empty() {
                    return Ok(code);
                }
                if self.impatient {
                    return Ok(if code == 0 && !is_written { OUTPUT_FAILED_CODE } else { code });
                }
            }
            self.wait()?;
            if let Some(why) = self.failure.take() {
                return Err(anyhow!(why));
            }
            // Only now: the old fleet must take in every message of the lost processes and their daemons first.
            if let Some(due) = self.returns.due.take() {
                self.go_back(due)?;
            }
            self.handle(Input::Tick);
            self.shorten_journal();
        }
    }

    fn wait(&mut self) -> Result<()> {
        let timeout = self.poll_timeout();
        let input = self.input.as_ref().filter(|_| self.wants_input()).map(AsFd::as_fd);
        let mut fds =
            vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN), PollFd::new(self.fleet.fd(), PollFlags::POLLIN)];
        fds.extend(input.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let has_input = input.is_some();
        fds.extend(self.site.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(self.watching.fds());
        fds.push(PollFd::new(self.spawned.fd(), PollFlags::POLLIN));
        fds.extend(self.seat.as_ref().map(|seat| PollFd::new(seat.fd(), PollFlags::POLLIN)));
        fds.push(PollFd::new(self.bell.as_fd(), PollFlags::POLLIN));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("Failed to wait for events"),
        }
        let ready = |index: usize| fds[index].any().unwrap_or(false);
        let (signal, input) = (ready(0), has_input && ready(2));
        drop(fds);
        // The work that rang the bell is looked at below.
        let _ = self.bell.read();
        if signal {
            self.read_signals();
        }
        // Input after a console has left is not for the job, and `poll` was about the former terminal.
        let input = !self.hear_of_consoles() && input;
        for news in self.fleet.work() {
            self.take(news)?;
        }
        if input {
            self.read_input();
        }
        self.hear_of_site();
        self.work_on_spawned();
        self.answer_watchers();
        self.hear_of_audit();
        self.hear_of_notices();
        self.hear_of_store()?;
        self.hear_of_ledger();
        self.keep_council();
        self.write_outputs();
        Ok(())
    }

    fn poll_timeout(&self) -> PollTimeout {
        if self.returns.due.is_some() {
            return PollTimeout::ZERO;
        }
        let now = self.now();
        let deadline = [self.root.next_deadline(), self.outputs.next_deadline(now)];
        let deadline = deadline.into_iter().flatten().min().map(|deadline| deadline.saturating_sub(now));
        let fleet = self.fleet.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let audit = self.audit.as_ref().and_then(Recorder::next_wait);
        let Some(wait) = [deadline, fleet, self.site.next_wait(), audit].into_iter().flatten().min() else {
            return PollTimeout::NONE;
        };
        let wait_ms = wait.as_millis() as u64 + 1;
        PollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            News::Complete => self.launch()?,
            News::Message(host, message) => self.handle(Input::Daemon { host, message }),
            News::Dead { host, why } => self.lose_host(host, &why),
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
            News::Refused(refusal) => {
                let (address, others) = (refusal.address.to_string(), refusal.untold_count);
                self.record("connection-refused", &serde_json::json!({ "address": address, "others": others }));
                self.console.warning(&refusal.to_string());
            }
            News::Joined(host) => self.host_joined(host),
            News::NotJoined { host, why } => self.host_not_joined(host, &why),
            News::StoodStill(late) => {
                let seconds = late.as_secs_f64();
                self.record("stood-still", &serde_json::json!({ "seconds": seconds }));
                self.console
                    .warning(&format!("redrun stood still for {seconds:.1} s; its daemons may have given it up"));
            }
            News::Asked(link, question) => {
                if let Some(answer) = self.answer(link, question) {
                    self.fleet.answer(link, answer);
                }
            }
            // The other root has the daemons and processes. This one must not end them.
            News::Replaced(by) => {
                debug!(target: "redrun", term = by.0, "another root has taken this one's place");
                self.ledger.is_replaced();
                std::process::exit(REPLACED_CODE);
            }
            News::NotStarted { host, why } => {
                let name = self.fleet.name(host).to_owned();
                self.handle(Input::HostNotHad { host, name, why: format!("{why:#}") });
            }
            News::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn lose_host(&mut self, host: u32, why: &HostLoss) {
        let name = self.fleet.name(host).to_owned();
        if !self.root.is_launched() {
            let why = format!("host {name}: {why} before the job had started");
            return self.handle(Input::HostNotHad { host, name, why });
        }
        self.returns.lost_for = why.silence(self.fleet.tick_time());
        self.handle(Input::HostLost { host, name, why: why.to_string() });
    }

    /// Name of the host of a replica. Empty if it has none.
    fn host_name(&self, replica: ReplicaId) -> String {
        self.root.host(replica).map_or_else(String::new, |host| self.fleet.name(host).to_owned())
    }

    /// Gives the root an input and carries out its outputs, one input at a time.
    fn handle(&mut self, input: Input) {
        if self.replay.is_some() {
            // The journal has the input, at the place where it was handled.
            return;
        }
        self.inputs.push_back(input);
        if std::mem::replace(&mut self.is_handling, true) {
            return;
        }
        while let Some(input) = self.inputs.pop_front() {
            if !matches!(input, Input::Tick) {
                trace!(target: "redrun", ?input, "in");
            }
            let now = self.now();
            self.ledger.input(now, &input);
            self.happened(&input);
            self.root.handle(now, input);
            self.carry_out();
        }
        self.is_handling = false;
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.root.poll_output() {
            debug!(target: "redrun", ?output, "out");
            match output {
                Output::Send(message) => self.send_all(&message),
                Output::SendTo(host, message) => self.relay(Some(host), &message),
                Output::Expel { .. } if self.replay.is_some() => {}
                Output::Expel { host, why } => self.fleet.expel(host, why),
                Output::Site(order) => self.site.tell(order),
                Output::FindHost(spare) => self.find_or_add(&spare),
                Output::SpareAdded { host, count } => {
                    let host = self.fleet.name(host).to_owned();
                    self.record("spare-added", &serde_json::json!({ "host": host, "places": count }));
                }
                Output::DismissHost(host) => self.dismiss_host(host),
                Output::HostFree(host) => self.host_free(host),
                Output::Show { rank, bytes, is_anew } => self.outputs.show(rank, &bytes, is_anew),
                Output::ShowError { replica, bytes, is_anew } => self.outputs.show_error(replica, bytes, is_anew),
                Output::ErrorEnded(replica) => self.outputs.end_error(replica),
                Output::Report(report) => {
                    if matches!(report, Report::Ending(_)) {
                        self.returns.ending_since = Some(Instant::now());
                    }
                    self.report(&report);
                }
                Output::Started { replica, pid } => {
                    let host = self.host_name(replica);
                    let fields = serde_json::json!({ "replica": replica.to_string(), "host": host, "pid": pid });
                    self.record("started", &fields);
                    self.note_started();
                }
                Output::Bound { replica, processors } => {
                    let host = self.host_name(replica);
                    self.console.plain(&format!("binding: {replica} on {host}: processors {processors}"));
                }
                Output::KilledByUser(replica) => {
                    self.record("killed-by-user", &serde_json::json!({ "replica": replica.to_string() }));
                }
                Output::Note(note) => self.console.warning(&note),
                Output::Progress { newcomer, progress } => self.note_progress(newcomer, progress),
                Output::Checkpoint(note) => self.tell_of_checkpoint(&note),
                Output::OtherJob(order) => self.order_jobs(order),
                Output::SpawnedError(line) => self.console.error(&line),
                Output::Answered { asker, outcome } => self.tell_answer(asker, outcome),
                Output::Store(order) => self.give_to_store(order),
                Output::GoBack(chosen) => self.returns.due = Some(*chosen),
                Output::HostPassedOver { name, why } => {
                    let fields = serde_json::json!({ "host": name, "why": why, "processes": 0 });
                    self.record("daemon-lost", &fields);
                    self.console.warning(&format!("{why}; the job goes back without {name}"));
                }
                Output::WaitsForHosts { generation, why } => {
                    let fields = serde_json::json!({ "generation": generation.0, "why": why });
                    self.record("waits-for-hosts", &fields);
                    self.console.plain(&why);
                }
                Output::LaidOut { report, notes } => self.tell_of_layout(&report, &notes),
                Output::Say(line) => self.console.plain(&line),
                Output::Failed(why) => self.failure = Some(why),
                Output::Finish { code, will_go_on } => {
                    // `finish` hands over the last output, so the journal must be complete before.
                    self.ledger.flush();
                    self.ledger.ending();
                    self.outputs.finish(will_go_on);
                    self.exit_code = Some(code);
                    mpir::tell_of_end(code);
                    self.forget_lines(code == 0 && !will_go_on);
                    self.relay(None, &ToDaemon::Shutdown { keeps_sessions: code == 0 });
                }
            }
        }
        self.note_clones();
    }

    /// This process's own notes of an input. A replay repeats them.
    fn happened(&mut self, input: &Input) {
        match input {
            Input::Daemon { message: FromDaemon::Exited { found_at_ns, .. }, .. } => {
                // Accurate as far as the clocks of the two hosts agree.
                let found_at = UNIX_EPOCH + Duration::from_nanos(*found_at_ns);
                self.returns.lost_for = SystemTime::now().duration_since(found_at).unwrap_or_default();
            }
            Input::HostLost { name, .. } => self.lost_host = Some(name.clone()),
            _ => {}
        }
    }

    fn send_all(&mut self, message: &ToDaemon) {
        self.relay(None, message);
        if matches!(message, ToDaemon::Cards(_)) {
            self.tell_return();
        }
    }
}

/// Opens the audit log for a root that has moved to this host. A root that is cut off may still write the old log: then
/// records go to a file beside it. Without either the job continues unlogged.
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
