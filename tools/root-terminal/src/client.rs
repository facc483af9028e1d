//! The user's end: starts a job's root or finds the root of a running job, hands it this process's standard streams,
//! and ends with the job's exit code.

use super::closed::standard_output_was_closed;
use super::{Channel, FromRoot, Received, ToRoot};
use crate::user_signals;
use anyhow::{Context, Result, anyhow, bail};
use host_processes::open_pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::Pid;
use root_records::council::REPLACED_CODE;
use root_records::council::mirror::{elsewhere, has_member};
use root_records::ledger;
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
/// Flag of a root that is brought back, between `--root` and the job's own words.
const COME_BACK: &str = "--come-back=";
/// Maximum wait while a root begins, or a killed one ends.
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
    /// True once a root has accepted this console.
    was_seated: bool,
    /// The root, if it is this process's child.
    root: Option<Child>,
    /// True once this console has asked to leave; the root may not have handled that yet.
    is_leaving: bool,
    /// Exit code of the job, once it has ended. The root has clean-up to do then, and would come back for it.
    ended: Option<i32>,
}

/// Starts the root of a job with this command line, and acts as its console. With `leaves` only until the job runs.
///
/// # Errors
/// When the root cannot be started.
pub fn start(arguments: &[OsString], leaves: bool, console: &Console) -> Result<i32> {
    if standard_output_was_closed() {
        console.error("--detachable: standard output is closed; give it a file, or leave the option out");
        return Ok(USAGE_CODE);
    }
    let (root, channel) = spawn(arguments, |command| {
        command.arg("--root");
    })?;
    // After the start, so that the root does not inherit the mask.
    let signals = user_signals::catch()?;
    let terminal = Terminal::new(channel, console, signals, Some(root));
    Terminal { leaves, ..terminal }.serve()
}

/// Starts a root. Its words follow those that `prepare` adds.
fn spawn(arguments: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<(Child, Channel)> {
    let (channel, of_root) = Channel::pair().context("Failed to make a socket")?;
    let mut command = installation::command("redrun").context("Failed to find redrun's own program")?;
    prepare(&mut command);
    command.args(arguments.iter().skip(1)).stdin(Stdio::from(OwnedFd::from(of_root)));
    let set_up = || -> std::io::Result<()> {
        // The root must survive the end of the terminal's session, and its Ctrl-C.
        nix::unistd::setsid()?;
        // This program may have signals blocked, to read them from a descriptor.
        SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: - `set_up` runs in a forked child: it makes only system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let root = command.spawn().context("Failed to start the root of the job")?;
    Ok((root, channel))
}

/// Brings a killed root back. `None` without a journal.
fn bring_back(directory: &Path) -> Result<Option<(Child, Channel)>> {
    let Some(begun) = ledger::look(directory)? else { return Ok(None) };
    let flag = format!("{COME_BACK}{:016x}", begun.job);
    let prepare = |command: &mut Command| {
        command.arg("--root").arg(flag).env_clear().envs(begun.environment).current_dir(&begun.directory);
    };
    spawn(&begun.arguments, prepare).map(Some)
}

/// True if this process was started to bring back a root, and another console has done so at the same moment.
#[must_use]
pub fn has_another_root(words: &[OsString]) -> bool {
    let [_, root, job, rest @ ..] = words else { return false };
    // With a council, the records are with the member.
    let by_council = rest.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"--council"));
    let job = job.to_str().and_then(|word| u64::from_str_radix(word.strip_prefix(COME_BACK)?, 16).ok());
    let directory = job.filter(|_| root == "--root" && !by_council).and_then(running_jobs::find_root);
    directory.is_some_and(|directory| ledger::look(&directory).is_err_and(|why| is_in_use(&why)))
}

/// Jobs of this user on this host that accept consoles, with a connection to each root.
pub fn seats() -> Vec<(String, Channel)> {
    let dialled = running_jobs::find_seats().into_iter().filter_map(|seat| match dial(&seat.path) {
        Ok(channel) => Some((seat.job, channel)),
        Err(nix::Error::ECONNREFUSED) => {
            // The root was killed.
            seat.cross_out(|| dial(&seat.path).is_err_and(|error| error == nix::Error::ECONNREFUSED));
            None
        }
        Err(_) => None,
    });
    dialled.collect()
}

/// Connects to a root's socket.
fn dial(path: &Path) -> nix::Result<Channel> {
    let to_root = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    connect(to_root.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(Channel::new(to_root))
}

/// Attaches to a running job, and displaces its present console. A killed root is brought back; with `replaces_root` it
/// is killed first.
///
/// # Errors
/// When there is no such job.
pub fn attach(wanted: Option<&str>, replaces_root: bool, is_quiet: bool, console: &Console) -> Result<i32> {
    let is_wanted = |job: &str| wanted.is_none_or(|wanted| job.starts_with(wanted));
    let fitting = || seats().into_iter().filter(|(job, _)| is_wanted(job)).collect::<Vec<_>>();
    if replaces_root {
        let [(_, channel)] = &fitting()[..] else { bail!("--replace-root: name one job that has a root") };
        end_root(channel)?;
    }
    let since = Instant::now();
    let (root, job, channel) = loop {
        let mut fitting = fitting();
        match (fitting.pop(), fitting.is_empty()) {
            (Some((job, channel)), true) => break (None, job, channel),
            (Some(_), false) => bail!("several jobs can be attached to: name one (redctl list shows them)"),
            (None, _) => {}
        }
        match find_lost(wanted) {
            // A root that begins, or was killed a moment ago: soon it accepts consoles, or its journal is free.
            Err(error) if is_in_use(&error) && since.elapsed() < CHANGE_TIME_MAX => std::thread::sleep(LOOK_INTERVAL),
            found => break found?,
        }
    };
    let job = u64::from_str_radix(&job, 16).ok();
    let signals = user_signals::catch()?;
    Terminal { is_quiet, job, ..Terminal::new(channel, console, signals, root) }.serve()
}

/// Advice for a user whose job has its root on another host.
#[must_use]
pub fn root_elsewhere(job: &str, host: &str) -> String {
    format!("job {job} has its root on host {host}: redrun --attach {job} there")
}

/// No root of the wanted job is on this host.
#[derive(Debug, thiserror::Error)]
#[error("no job {0} that was started with --detachable or --detach is here")]
pub struct NotHere(String);

/// The root is missing, and the council's member on this host brings it back.
#[derive(Debug, thiserror::Error)]
#[error("the root of job {job} is being started, or awaits most of the hosts that hold its records")]
struct ByMember {
    job: String,
}

/// True if a root has the records of a job, or is about to.
#[must_use]
pub fn is_in_use(error: &anyhow::Error) -> bool {
    ledger::is_in_use(error) || error.is::<ByMember>()
}

/// Outcome of the search for a lost root.
enum Regained {
    /// This process has brought it back.
    Brought(Child, Channel),
    /// Another process has brought it back, and has the job's console.
    ByAnother,
    /// There is no journal to continue.
    Nothing,
}

/// Brings back a root that is gone.
fn regain(job: &str, directory: &Path) -> Result<Regained> {
    let since = Instant::now();
    loop {
        match bring_back(directory) {
            // A killed root's connections end before its lock is released.
            Err(error) if is_in_use(&error) && since.elapsed() < CHANGE_TIME_MAX => {
                if seats().iter().any(|(other, _)| other == job) {
                    return Ok(Regained::ByAnother);
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
            Err(error) => return Err(error),
            Ok(Some((root, channel))) => return Ok(Regained::Brought(root, channel)),
            Ok(None) => return Ok(Regained::Nothing),
        }
    }
}

/// Brings back the one killed root that fits `wanted`. Returns the root, its job and a connection.
fn find_lost(wanted: Option<&str>) -> Result<(Option<Child>, String, Channel)> {
    let is_wanted = |job: &str| wanted.is_none_or(|wanted| job.starts_with(wanted));
    let (mut lost, mut why) = (Vec::new(), None);
    for (job, directory) in running_jobs::find_roots().into_iter().filter(|(job, _)| is_wanted(job)) {
        if has_member(&directory) {
            why = Some(match elsewhere(&directory) {
                Some(host) => anyhow!(root_elsewhere(&job, &host)),
                None => ByMember { job }.into(),
            });
            continue;
        }
        match ledger::look(&directory) {
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
                running_jobs::remove_root_directory(directory)
                    .with_context(|| format!("Failed to remove {}", directory.display()))?;
                bail!("job {job} has ended: {end}");
            }
            let (root, channel) = bring_back(directory)?.with_context(|| format!("job {job} has just come back"))?;
            Ok((Some(root), job.clone(), channel))
        }
        _ => bail!("the roots of several jobs were killed: name one to bring back (redctl list shows them)"),
    }
}

/// Kills the root at the other end, and waits for its end.
fn end_root(channel: &Channel) -> Result<()> {
    let (_, pid) = channel.peer()?;
    let pidfd = open_pidfd(Pid::from_raw(pid)).context("Failed to find the root of the job")?;
    // SIGKILL also ends a stopped process.
    kill(Pid::from_raw(pid), Signal::SIGKILL).context("Failed to end the root of the job")?;
    poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
    Ok(())
}

impl<'a> Terminal<'a> {
    fn new(channel: Channel, console: &'a Console, signals: SignalFd, root: Option<Child>) -> Self {
        Self {
            channel,
            console,
            signals,
            leaves: false,
            is_quiet: false,
            job: None,
            was_seated: false,
            root,
            is_leaving: false,
            ended: None,
        }
    }

    fn attach(&self) -> std::io::Result<()> {
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let attach = ToRoot::Attach { is_quiet: self.is_quiet };
        self.channel.send(&attach, &[input.as_fd(), output.as_fd(), error.as_fd()])
    }

    fn name(&self) -> String {
        self.job.map_or_else(|| "the job".into(), |job| format!("job {job:016x}"))
    }

    fn serve(mut self) -> Result<i32> {
        // If the root is gone, the loop below notices.
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
                        if let Some(code) = self.hear(message)? {
                            return Ok(code);
                        }
                    }
                    Received::Nothing => break,
                    Received::End => match self.root_is_gone()? {
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
                    _ => drop(self.channel.send(&ToRoot::Signal(signal.ssi_signo as i32), &[])),
                }
            }
        }
    }

    /// Asks the root to give the terminal back.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            let _ = self.channel.send(&ToRoot::Leave, &[]);
        }
    }

    /// Handles a message. Returns the exit code if it was the last one.
    fn hear(&mut self, message: FromRoot) -> Result<Option<i32>> {
        self.was_seated = true;
        match message {
            FromRoot::Job(job) => self.job = Some(job),
            FromRoot::Running(job) => {
                self.job = Some(job);
                if self.leaves {
                    self.leave();
                }
            }
            FromRoot::Left if self.leaves => {
                let job = self.job.map_or_else(String::new, |job| format!("{job:016x}"));
                self.console.plain(&format!("job {job} runs on: redrun --attach {job}"));
                return Ok(Some(0));
            }
            FromRoot::Left => {
                self.console.plain(&format!("{} goes on while this console is stopped (fg)", self.name()));
                raise(Signal::SIGSTOP)?;
                self.is_leaving = false;
                let _ = self.attach();
            }
            FromRoot::Displaced => {
                self.console.plain(&format!("{} has another console now", self.name()));
                return Ok(Some(DISPLACED_CODE));
            }
            FromRoot::Ended(code) => self.ended = Some(code),
        }
        Ok(None)
    }

    /// Waits until a member brings the root back, here or on its own host.
    fn await_member(&mut self, job: u64, directory: &Path) -> Result<Option<i32>> {
        let name = self.name();
        self.console.warning(&format!("the root of {name} is gone, and comes back"));
        let wanted = format!("{job:016x}");
        while has_member(directory) {
            if let Some((_, channel)) = seats().into_iter().find(|(job, _)| *job == wanted) {
                self.channel = channel;
                let _ = self.attach();
                return Ok(None);
            }
            if let Some(host) = elsewhere(directory) {
                self.console.plain(&root_elsewhere(&wanted, &host));
                return Ok(Some(DISPLACED_CODE));
            }
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            let interval = PollTimeout::try_from(LOOK_INTERVAL).unwrap_or(PollTimeout::MAX);
            if poll(&mut fds, interval).is_ok_and(|count| count > 0) {
                bail!("{name} goes on; when it has a root again, redrun --attach {wanted} on the root's host shows it");
            }
        }
        bail!("the root of {name} is on another host now, or the job has ended: redrun --attach there shows it")
    }

    /// Handles the loss of the connection. Returns the exit code unless the root comes back.
    fn root_is_gone(&mut self) -> Result<Option<i32>> {
        match self.ended {
            None => self.root_is_lost(),
            Some(code) if self.job.and_then(running_jobs::find_root).is_none() => Ok(Some(code)),
            // The root was killed after only this process had the exit code: another one begins, and waits for a
            // console.
            Some(code) => Ok(self.root_is_lost().unwrap_or(Some(code)).map(|_| code)),
        }
    }

    /// Handles a root that another console has brought back at the same moment. That console keeps it, unless the user
    /// has only just asked for it here.
    fn other_was_first(&mut self) -> Result<Option<i32>> {
        let wanted = self.job.map_or_else(String::new, |job| format!("{job:016x}"));
        let since = Instant::now();
        while !self.was_seated && since.elapsed() < CHANGE_TIME_MAX {
            if let Some((_, channel)) = seats().into_iter().find(|(job, _)| *job == wanted) {
                self.channel = channel;
                let _ = self.attach();
                return Ok(None);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.hear(FromRoot::Displaced)
    }

    /// Handles a root that is gone without an exit code, or left its directory behind.
    fn root_is_lost(&mut self) -> Result<Option<i32>> {
        let name = self.name();
        let status = self.root.take().map(|mut root| root.wait()).transpose();
        let status = status.context("Failed to wait for the root of the job")?;
        match status.and_then(|status| status.code()) {
            Some(REPLACED_CODE)
                if self.job.and_then(running_jobs::find_root).is_some_and(|directory| !has_member(&directory)) =>
            {
                return self.other_was_first();
            }
            Some(REPLACED_CODE) => {
                self.console
                    .plain(&format!("{name} has another root now: redrun --attach on the host of that shows it"));
                return Ok(Some(DISPLACED_CODE));
            }
            // The root could not begin, and has reported the reason.
            Some(code) => return Ok(Some(code)),
            None => {}
        }
        let directory = self.job.and_then(running_jobs::find_root);
        let by_member = directory.as_deref().filter(|directory| has_member(directory));
        if let (Some(job), Some(directory)) = (self.job, by_member) {
            return self.await_member(job, directory);
        }
        // The exit status of a root that another process started is unknown. If it failed it fails again, as this
        // process's child, and is not started a third time.
        let signal = status.and_then(|status| status.signal());
        let how = signal.map_or_else(|| "is gone".into(), |signal| format!("was killed by signal {signal}"));
        let may_go_on = signal.is_none_or(|signal| signal == Signal::SIGKILL as i32);
        let regained = match (self.job, directory.filter(|_| may_go_on)) {
            (Some(job), Some(directory)) => regain(&format!("{job:016x}"), &directory)?,
            _ => Regained::Nothing,
        };
        match regained {
            Regained::Brought(root, channel) => {
                self.console.warning(&format!("the root of {name} {how}, and comes back"));
                (self.root, self.channel) = (Some(root), channel);
                let _ = self.attach();
                Ok(None)
            }
            Regained::ByAnother => self.hear(FromRoot::Displaced),
            Regained::Nothing => {
                self.console.error(&format!("the root of {name} {how}: the job has ended"));
                Ok(Some(signal.map_or(1, |signal| 128 + signal)))
            }
        }
    }
}
