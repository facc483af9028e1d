//! The user's end: starts a job's coordinator or finds the coordinator of a running job, hands it this process's
//! standard streams, and ends with the job's exit code.

use super::closed::standard_output_was_closed;
use super::{Channel, FromCoordinator, Received, ToCoordinator};
use crate::user_signals;
use anyhow::{Context, Result, anyhow, bail};
use coordinator_records::ledger;
use coordinator_records::quorum::REPLACED_CODE;
use coordinator_records::quorum::mirror::{elsewhere, has_peer};
use host_processes::open_pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Pid;
use say::Console;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Exit code of a console that another has displaced: the job goes on.
pub const DISPLACED_CODE: i32 = 76;

const USAGE_CODE: i32 = 2;
/// Flag of a coordinator that is brought back, between `--coordinator` and the job's own words.
const COME_BACK: &str = "--come-back=";
/// Maximum wait while a coordinator begins, or a killed one ends.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Polling interval meanwhile: neither event is announced to other processes.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A console: see the module.
struct Terminal<'a> {
    channel: Channel,
    console: &'a Console,
    signals: SignalFd,
    /// True: leaves as soon as the job runs.
    leaves: bool,
    /// True: the user wants neither summary nor status lines.
    is_quiet: bool,
    job: Option<u64>,
    /// True once a coordinator has accepted this console.
    was_seated: bool,
    /// The coordinator, if it is this process's child.
    coordinator: Option<Child>,
    /// True once this console has asked to leave; the coordinator may not have handled that yet.
    is_leaving: bool,
    /// Exit code of the job, once it has ended. The coordinator has clean-up to do then, and would come back for it.
    ended: Option<i32>,
}

/// Starts the coordinator of a job with this command line, and acts as its console. With `leaves` only until the job
/// runs.
///
/// # Errors
/// When the coordinator cannot be started.
pub fn start(arguments: &[OsString], leaves: bool, console: &Console) -> Result<i32> {
    if standard_output_was_closed() {
        console.error("--detachable: standard output is closed; give it a file, or leave the option out");
        return Ok(USAGE_CODE);
    }
    let (coordinator, channel) = spawn(arguments, |command| {
        command.arg("--coordinator");
    })?;
    // After the start, so that the coordinator does not inherit the mask.
    let signals = user_signals::catch()?;
    let terminal = Terminal::new(channel, console, signals, Some(coordinator));
    Terminal { leaves, ..terminal }.serve()
}

/// Starts a coordinator. Its words follow those that `prepare` adds.
fn spawn(arguments: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<(Child, Channel)> {
    let (channel, of_coordinator) = Channel::pair().context("Failed to make a socket")?;
    let mut command = installation::command("redrun").context("Failed to find redrun's own program")?;
    prepare(&mut command);
    command.args(arguments.iter().skip(1)).stdin(Stdio::from(OwnedFd::from(of_coordinator)));
    let set_up = || -> std::io::Result<()> {
        // The coordinator must survive the end of the terminal's session, and its Ctrl-C.
        nix::unistd::setsid()?;
        // This program may have signals blocked, to read them from a descriptor.
        SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: - `set_up` runs in a forked child: it makes only system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let coordinator = command.spawn().context("Failed to start the coordinator of the job")?;
    Ok((coordinator, channel))
}

/// Brings a killed coordinator back. `None` without a journal.
fn bring_back(directory: &Path) -> Result<Option<(Child, Channel)>> {
    let Some(begun) = ledger::read_begun(directory)? else { return Ok(None) };
    let flag = format!("{COME_BACK}{:016x}", begun.job);
    let prepare = |command: &mut Command| {
        command.arg("--coordinator").arg(flag).env_clear().envs(begun.environment).current_dir(&begun.directory);
    };
    spawn(&begun.arguments, prepare).map(Some)
}

/// True if this process was started to bring back a coordinator, and another console has done so at the same moment.
#[must_use]
pub fn has_another_coordinator(words: &[OsString]) -> bool {
    let [_, coordinator, job, rest @ ..] = words else { return false };
    // With a quorum, the records are with the peer.
    let by_quorum = rest.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"--quorum"));
    let job = job.to_str().and_then(|word| u64::from_str_radix(word.strip_prefix(COME_BACK)?, 16).ok());
    let directory =
        job.filter(|_| coordinator == "--coordinator" && !by_quorum).and_then(running_jobs::find_coordinator);
    directory.is_some_and(|directory| ledger::read_begun(&directory).is_err_and(|why| is_in_use(&why)))
}

/// Jobs of this user on this host that accept consoles, with a connection to each coordinator.
pub fn console_sockets() -> Vec<(String, Channel)> {
    let dialled = running_jobs::find_console_sockets().into_iter().filter_map(|consoles| match dial(&consoles.path) {
        Ok(channel) => Some((consoles.job, channel)),
        Err(nix::Error::ECONNREFUSED) => {
            // The coordinator was killed.
            consoles.cross_out(|| dial(&consoles.path).is_err_and(|error| error == nix::Error::ECONNREFUSED));
            None
        }
        Err(_) => None,
    });
    dialled.collect()
}

/// Connects to a coordinator's socket.
fn dial(path: &Path) -> nix::Result<Channel> {
    let to_coordinator = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    connect(to_coordinator.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(Channel::new(to_coordinator))
}

/// Attaches to a running job, and displaces its present console. A killed coordinator is brought back; with
/// `replaces_coordinator` it is killed first.
///
/// # Errors
/// When there is no such job.
pub fn attach(wanted: Option<&str>, replaces_coordinator: bool, is_quiet: bool, console: &Console) -> Result<i32> {
    let is_wanted = |job: &str| wanted.is_none_or(|wanted| job.starts_with(wanted));
    let fitting = || console_sockets().into_iter().filter(|(job, _)| is_wanted(job)).collect::<Vec<_>>();
    if replaces_coordinator {
        let [(_, channel)] = &fitting()[..] else {
            bail!("--replace-coordinator: name one job that has a coordinator")
        };
        end_coordinator(channel)?;
    }
    let since = Instant::now();
    let (coordinator, job, channel) = loop {
        let mut fitting = fitting();
        match (fitting.pop(), fitting.is_empty()) {
            (Some((job, channel)), true) => break (None, job, channel),
            (Some(_), false) => bail!("several jobs can be attached to: name one (redctl list shows them)"),
            (None, _) => {}
        }
        match find_lost(wanted) {
            // A coordinator that begins, or was killed a moment ago: soon it accepts consoles, or its journal is free.
            Err(error) if is_in_use(&error) && since.elapsed() < CHANGE_TIME_MAX => std::thread::sleep(LOOK_INTERVAL),
            found => break found?,
        }
    };
    let job = u64::from_str_radix(&job, 16).ok();
    let signals = user_signals::catch()?;
    Terminal { is_quiet, job, ..Terminal::new(channel, console, signals, coordinator) }.serve()
}

/// Advice for a user whose job has its coordinator on another host.
#[must_use]
pub fn coordinator_elsewhere(job: &str, host: &str) -> String {
    format!("job {job} has its coordinator on host {host}: redrun --attach {job} there")
}

/// Becomes the console on the coordinator's host, by a step of this Slurm job: the end of a batch script would be that
/// of the job. Returns why it cannot.
fn go_there(job: &str, host: &str) -> anyhow::Error {
    let become_it = || -> Result<std::convert::Infallible> {
        let redrun = std::env::current_exe()?.with_file_name("redrun");
        let mut command = Command::new("srun");
        command.args(["--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--mem=0"]);
        command.arg(format!("--nodelist={host}")).arg(redrun).args(["--attach", job]);
        SigSet::empty().thread_set_mask()?;
        Err(command.exec().into())
    };
    match become_it() {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// No coordinator of the wanted job is on this host.
#[derive(Debug, thiserror::Error)]
#[error("no job {0} that was started with --detachable or --detach is here")]
pub struct NotHere(String);

/// The coordinator is missing, and the quorum's peer on this host brings it back.
#[derive(Debug, thiserror::Error)]
#[error("the coordinator of job {job} is being started, or awaits most of the hosts that hold its records")]
struct ByPeer {
    job: String,
}

/// True if a coordinator has the records of a job, or is about to.
#[must_use]
pub fn is_in_use(error: &anyhow::Error) -> bool {
    ledger::is_in_use(error) || error.is::<ByPeer>()
}

/// Outcome of the search for a lost coordinator.
enum Regained {
    /// This process has brought it back.
    Brought(Child, Channel),
    /// Another process has brought it back, and has the job's console.
    ByAnother,
    /// There is no journal to continue.
    Nothing,
}

/// Brings back a coordinator that is gone.
fn regain(job: &str, directory: &Path) -> Result<Regained> {
    let since = Instant::now();
    loop {
        match bring_back(directory) {
            // A killed coordinator's connections end before its lock is released.
            Err(error) if is_in_use(&error) && since.elapsed() < CHANGE_TIME_MAX => {
                if console_sockets().iter().any(|(other, _)| other == job) {
                    return Ok(Regained::ByAnother);
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
            Err(error) => return Err(error),
            Ok(Some((coordinator, channel))) => return Ok(Regained::Brought(coordinator, channel)),
            Ok(None) => return Ok(Regained::Nothing),
        }
    }
}

/// Brings back the one killed coordinator that fits `wanted`. Returns the coordinator, its job and a connection.
fn find_lost(wanted: Option<&str>) -> Result<(Option<Child>, String, Channel)> {
    let is_wanted = |job: &str| wanted.is_none_or(|wanted| job.starts_with(wanted));
    let (mut lost, mut why) = (Vec::new(), None);
    for (job, directory) in running_jobs::find_coordinators().into_iter().filter(|(job, _)| is_wanted(job)) {
        if has_peer(&directory) {
            why = Some(match elsewhere(&directory) {
                Some(host) => anyhow!(coordinator_elsewhere(&job, &host)),
                None => ByPeer { job }.into(),
            });
            continue;
        }
        match ledger::read_begun(&directory) {
            Ok(Some(_)) => lost.push((job, directory)),
            Ok(None) => {}
            Err(error) => why = Some(error.context(format!("job {job} cannot be gone on with"))),
        }
    }
    match (&lost[..], why, wanted) {
        ([], Some(why), _) => Err(why),
        ([], None, wanted) => Err(NotHere(wanted.map_or_else(|| "of yours".into(), str::to_owned)).into()),
        ([(job, directory)], ..) => {
            if let Some(end) = running_jobs::noted_end(job) {
                running_jobs::remove_coordinator_directory(directory)
                    .with_context(|| format!("Failed to remove {}", directory.display()))?;
                bail!("job {job} has ended: {end}");
            }
            let (coordinator, channel) =
                bring_back(directory)?.with_context(|| format!("job {job} has just come back"))?;
            Ok((Some(coordinator), job.clone(), channel))
        }
        _ => bail!("the coordinators of several jobs were killed: name one to bring back (redctl list shows them)"),
    }
}

/// Kills the coordinator at the other end, and waits for its end.
fn end_coordinator(channel: &Channel) -> Result<()> {
    let (_, pid) = channel.peer()?;
    let pidfd = open_pidfd(Pid::from_raw(pid)).context("Failed to find the coordinator of the job")?;
    // SIGKILL also ends a stopped process.
    kill(Pid::from_raw(pid), Signal::SIGKILL).context("Failed to end the coordinator of the job")?;
    poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
    Ok(())
}

impl<'a> Terminal<'a> {
    fn new(channel: Channel, console: &'a Console, signals: SignalFd, coordinator: Option<Child>) -> Self {
        Self {
            channel,
            console,
            signals,
            leaves: false,
            is_quiet: false,
            job: None,
            was_seated: false,
            coordinator,
            is_leaving: false,
            ended: None,
        }
    }

    fn attach(&self) -> std::io::Result<()> {
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let attach = ToCoordinator::Attach { is_quiet: self.is_quiet };
        self.channel.send(&attach, &[input.as_fd(), output.as_fd(), error.as_fd()])
    }

    fn name(&self) -> String {
        self.job.map_or_else(|| "the job".into(), |job| format!("job {job:016x}"))
    }

    fn serve(mut self) -> Result<i32> {
        // If the coordinator is gone, the loop below notices.
        let _ = self.attach();
        loop {
            let mut fds = [&self.channel.as_fd(), &self.signals.as_fd()].map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error).context("Failed to wait for events"),
            }
            loop {
                match self.channel.receive() {
                    Received::Message(message, _) => {
                        if let Some(code) = self.handle(message)? {
                            return Ok(code);
                        }
                    }
                    Received::Nothing => break,
                    Received::End => match self.coordinator_is_gone()? {
                        Some(code) => return Ok(code),
                        None => break,
                    },
                }
            }
            while let Ok(Some(signal)) = self.signals.read_signal() {
                match Signal::try_from(signal.ssi_signo as i32) {
                    // The terminal is gone; the job goes on.
                    Ok(Signal::SIGHUP) => return Ok(128 + Signal::SIGHUP as i32),
                    Ok(Signal::SIGTSTP) => self.leave(),
                    _ => drop(self.channel.send(&ToCoordinator::Signal(signal.ssi_signo as i32), &[])),
                }
            }
        }
    }

    /// Asks the coordinator to give the terminal back.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            let _ = self.channel.send(&ToCoordinator::Leave, &[]);
        }
    }

    /// Handles a message. Returns the exit code if it was the last one.
    fn handle(&mut self, message: FromCoordinator) -> Result<Option<i32>> {
        self.was_seated = true;
        match message {
            FromCoordinator::Job(job) => self.job = Some(job),
            FromCoordinator::Running(job) => {
                self.job = Some(job);
                if self.leaves {
                    self.leave();
                }
            }
            FromCoordinator::Left if self.leaves => {
                let job = self.job.map_or_else(String::new, |job| format!("{job:016x}"));
                self.console.plain(&format!("job {job} runs on: redrun --attach {job}"));
                return Ok(Some(0));
            }
            FromCoordinator::Left => {
                self.console.plain(&format!("{} goes on while this console is stopped (fg)", self.name()));
                raise(Signal::SIGSTOP)?;
                self.is_leaving = false;
                let _ = self.attach();
            }
            FromCoordinator::Displaced => {
                self.console.plain(&format!("{} has another console now", self.name()));
                return Ok(Some(DISPLACED_CODE));
            }
            FromCoordinator::Ended(code) => self.ended = Some(code),
        }
        Ok(None)
    }

    /// Waits until a peer brings the coordinator back, here or on its own host.
    fn await_peer(&mut self, job: u64, directory: &Path) -> Result<Option<i32>> {
        let name = self.name();
        self.console.warning(&format!("the coordinator of {name} is gone, and comes back"));
        let wanted = format!("{job:016x}");
        while has_peer(directory) {
            if let Some((_, channel)) = console_sockets().into_iter().find(|(job, _)| *job == wanted) {
                self.channel = channel;
                let _ = self.attach();
                return Ok(None);
            }
            if let Some(host) = elsewhere(directory) {
                self.console.plain(&coordinator_elsewhere(&wanted, &host));
                if std::env::var_os("SLURM_JOB_ID").is_some() {
                    self.console.warning(&format!("srun cannot start redrun there: {}", go_there(&wanted, &host)));
                }
                return Ok(Some(DISPLACED_CODE));
            }
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            let interval = PollTimeout::try_from(LOOK_INTERVAL).unwrap_or(PollTimeout::MAX);
            if poll(&mut fds, interval).is_ok_and(|count| count > 0) {
                bail!(
                    "{name} goes on; when it has a coordinator again, redrun --attach {wanted} on the coordinator's host shows it"
                );
            }
        }
        bail!("the coordinator of {name} is on another host now, or the job has ended: redrun --attach there shows it")
    }

    /// Handles the loss of the connection. Returns the exit code unless the coordinator comes back.
    fn coordinator_is_gone(&mut self) -> Result<Option<i32>> {
        match self.ended {
            None => self.coordinator_is_lost(),
            Some(code) if self.job.and_then(running_jobs::find_coordinator).is_none() => Ok(Some(code)),
            // The coordinator was killed after only this process had the exit code: another one begins, and waits for a
            // console.
            Some(code) => Ok(self.coordinator_is_lost().unwrap_or(Some(code)).map(|_| code)),
        }
    }

    /// Handles a coordinator that another console has brought back at the same moment. That console keeps it, unless
    /// the user has only just asked for it here.
    fn other_was_first(&mut self) -> Result<Option<i32>> {
        let wanted = self.job.map_or_else(String::new, |job| format!("{job:016x}"));
        let since = Instant::now();
        while !self.was_seated && since.elapsed() < CHANGE_TIME_MAX {
            if let Some((_, channel)) = console_sockets().into_iter().find(|(job, _)| *job == wanted) {
                self.channel = channel;
                let _ = self.attach();
                return Ok(None);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.handle(FromCoordinator::Displaced)
    }

    /// Handles a coordinator that is gone without an exit code, or left its directory behind.
    fn coordinator_is_lost(&mut self) -> Result<Option<i32>> {
        let name = self.name();
        let status = self.coordinator.take().map(|mut coordinator| coordinator.wait()).transpose();
        let status = status.context("Failed to wait for the coordinator of the job")?;
        match status.and_then(|status| status.code()) {
            Some(REPLACED_CODE)
                if self.job.and_then(running_jobs::find_coordinator).is_some_and(|directory| !has_peer(&directory)) =>
            {
                return self.other_was_first();
            }
            Some(REPLACED_CODE) => {
                self.console.plain(&format!(
                    "{name} has another coordinator now: redrun --attach on the host of that shows it"
                ));
                return Ok(Some(DISPLACED_CODE));
            }
            // The coordinator could not begin, and has reported the reason.
            Some(code) => return Ok(Some(code)),
            None => {}
        }
        let directory = self.job.and_then(running_jobs::find_coordinator);
        let by_peer = directory.as_deref().filter(|directory| has_peer(directory));
        if let (Some(job), Some(directory)) = (self.job, by_peer) {
            return self.await_peer(job, directory);
        }
        // The exit status of a coordinator that another process started is unknown. If it failed it fails again, as
        // this process's child, and is not started a third time.
        let signal = status.and_then(|status| status.signal());
        let how = signal.map_or_else(|| "is gone".into(), |signal| format!("was killed by signal {signal}"));
        let may_go_on = signal.is_none_or(|signal| signal == Signal::SIGKILL as i32);
        let regained = match (self.job, directory.filter(|_| may_go_on)) {
            (Some(job), Some(directory)) => regain(&format!("{job:016x}"), &directory)?,
            _ => Regained::Nothing,
        };
        match regained {
            Regained::Brought(coordinator, channel) => {
                self.console.warning(&format!("the coordinator of {name} {how}, and comes back"));
                (self.coordinator, self.channel) = (Some(coordinator), channel);
                let _ = self.attach();
                Ok(None)
            }
            Regained::ByAnother => self.handle(FromCoordinator::Displaced),
            Regained::Nothing => {
                self.console.error(&format!("the coordinator of {name} {how}: the job has ended"));
                Ok(Some(signal.map_or(1, |signal| 128 + signal)))
            }
        }
    }
}
