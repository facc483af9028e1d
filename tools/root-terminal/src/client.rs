//! The user's end: starts a job's root, or finds that of a running job, gives it this process's standard streams, and
//! ends with the job's exit code.

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

/// The exit code of a console whose place another has taken: the job goes on.
pub const DISPLACED_CODE: i32 = 76;

const USAGE_CODE: i32 = 2;
/// What a console puts before the words of a root that it brings back, behind `--root`.
const COME_BACK: &str = "--come-back=";
/// A root begins within this time, or ends when it was killed.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// How often it is looked for meanwhile: neither says so to a stranger.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// See the module.
struct Terminal<'a> {
    channel: Channel,
    console: &'a Console,
    signals: SignalFd,
    /// Leave as soon as the job runs.
    leaves: bool,
    /// The user wants no summary and no moving lines.
    is_quiet: bool,
    job: Option<u64>,
    /// A root has had this console.
    was_seated: bool,
    /// The root, if this process has started it.
    root: Option<Child>,
    /// The job goes on without this process, which may not have been heard by it yet.
    is_leaving: bool,
    /// The exit code, when the job has ended. Its root has things to put away, and would come back for that.
    ended: Option<i32>,
}

/// Starts the root of a job with this command line and is its console. With `leaves` only until the job runs.
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
    // After the root was started: it does not inherit the mask.
    let signals = user_signals::catch()?;
    let terminal = Terminal::new(channel, console, signals, Some(root));
    Terminal { leaves, ..terminal }.serve()
}

/// Starts a root with these words behind those that `prepare` puts first.
fn spawn(arguments: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<(Child, Channel)> {
    let (channel, of_root) = Channel::pair().context("Failed to make a socket")?;
    let mut command = installation::command("redrun").context("Failed to find redrun's own program")?;
    prepare(&mut command);
    command.args(arguments.iter().skip(1)).stdin(Stdio::from(OwnedFd::from(of_root)));
    let set_up = || -> std::io::Result<()> {
        // Neither the end of the terminal's session nor its Ctrl-C is for the root.
        nix::unistd::setsid()?;
        // This program may wait for signals by descriptor and have them blocked.
        SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: set_up runs in a forked child: it only makes system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let root = command.spawn().context("Failed to start the root of the job")?;
    Ok((root, channel))
}

/// Brings the root of a job back that was killed, if there is what it needs.
fn bring_back(directory: &Path) -> Result<Option<(Child, Channel)>> {
    let Some(begun) = ledger::look(directory)? else { return Ok(None) };
    let flag = format!("{COME_BACK}{:016x}", begun.job);
    let prepare = |command: &mut Command| {
        command.arg("--root").arg(flag).env_clear().envs(begun.environment).current_dir(&begun.directory);
    };
    spawn(&begun.arguments, prepare).map(Some)
}

/// Whether this process, with this command line, was to be the root of a job that was killed, and another console has
/// brought back another one at the same moment.
#[must_use]
pub fn has_another_root(words: &[OsString]) -> bool {
    let [_, root, job, rest @ ..] = words else { return false };
    // Where a council has it the records are elsewhere.
    let by_council = rest.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"--council"));
    let job = job.to_str().and_then(|word| u64::from_str_radix(word.strip_prefix(COME_BACK)?, 16).ok());
    let directory = job.filter(|_| root == "--root" && !by_council).and_then(running_jobs::find_root);
    directory.is_some_and(|directory| ledger::look(&directory).is_err_and(|why| is_in_use(&why)))
}

/// The jobs of this user on this host that can be attached to, with a connection to the root of each.
pub fn seats() -> Vec<(String, Channel)> {
    let dialled = running_jobs::find_seats().into_iter().filter_map(|seat| {
        let to_root = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).ok()?;
        match connect(to_root.as_raw_fd(), &UnixAddr::new(&seat.path).ok()?) {
            Ok(()) => Some((seat.job, Channel::new(to_root))),
            Err(nix::Error::ECONNREFUSED) => {
                // It was killed.
                seat.cross_out();
                None
            }
            Err(_) => None,
        }
    });
    dialled.collect()
}

/// Is the console of a job that runs without one, or takes the place of the one it has. The root of a job that was
/// killed is brought back; with `replaces_root` it is killed first.
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
            // A root that is beginning, or was killed a moment ago: soon it has a seat, or its journal is free.
            Err(error) if is_in_use(&error) && since.elapsed() < CHANGE_TIME_MAX => std::thread::sleep(LOOK_INTERVAL),
            found => break found?,
        }
    };
    let job = u64::from_str_radix(&job, 16).ok();
    let signals = user_signals::catch()?;
    Terminal { is_quiet, job, ..Terminal::new(channel, console, signals, root) }.serve()
}

/// What a user is told whose job has its root on another host.
#[must_use]
pub fn root_elsewhere(job: &str, host: &str) -> String {
    format!("job {job} has its root on host {host}: redrun --attach {job} there")
}

/// What is to be attached to has no root on this host.
#[derive(Debug, thiserror::Error)]
#[error("no job {0} that was started with --detachable or --detach is here")]
pub struct NotHere(String);

/// The member of the council on this host brings it back.
#[derive(Debug, thiserror::Error)]
#[error("the root of job {job} is being started, or awaits most of the hosts that hold its records")]
struct ByMember {
    job: String,
}

/// Whether a root has the records of a job, or is about to have them.
#[must_use]
pub fn is_in_use(error: &anyhow::Error) -> bool {
    ledger::is_in_use(error) || error.is::<ByMember>()
}

/// What has become of a root that was gone.
enum Regained {
    /// This process has brought it back.
    Brought(Child, Channel),
    /// Another process has, whose console the job has now.
    ByAnother,
    /// There is nothing to go on with.
    Nothing,
}

/// Brings the root of a job back that is gone.
fn regain(job: &str, directory: &Path) -> Result<Regained> {
    let since = Instant::now();
    loop {
        match bring_back(directory) {
            // Its connections end before its lock does.
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

/// Brings back the one root that is meant of those that were killed: it, its job, a connection to it.
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

/// Kills the root at the other end, and waits until it is gone.
fn end_root(channel: &Channel) -> Result<()> {
    let (_, pid) = channel.peer()?;
    let pidfd = open_pidfd(Pid::from_raw(pid)).context("Failed to find the root of the job")?;
    // A stopped process does not go on for this.
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
        // A root that is gone is seen below.
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
                    // The terminal is gone, and the job goes on.
                    Ok(Signal::SIGHUP) => return Ok(128 + Signal::SIGHUP as i32),
                    Ok(Signal::SIGTSTP) => self.leave(),
                    _ => drop(self.channel.send(&ToRoot::Signal(signal.ssi_signo as i32), &[])),
                }
            }
        }
    }

    /// Asks for the terminal back.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            let _ = self.channel.send(&ToRoot::Leave, &[]);
        }
    }

    /// The exit code, if this was the last message.
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

    /// A member of the council on this host brings the root back here, or another does on its host.
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

    /// The exit code, unless it comes back.
    fn root_is_gone(&mut self) -> Result<Option<i32>> {
        match self.ended {
            None => self.root_is_lost(),
            Some(code) if self.job.and_then(running_jobs::find_root).is_none() => Ok(Some(code)),
            // It was killed when only this process knew: another one begins, and waits for somebody to tell.
            Some(code) => Ok(self.root_is_lost().unwrap_or(Some(code)).map(|_| code)),
        }
    }

    /// Another console has brought the root back at the same moment. It keeps it, unless the user has only just asked
    /// for it here.
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

    /// It has said nothing of its end, or has left something behind.
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
            // It could not begin, and has said why.
            Some(code) => return Ok(Some(code)),
            None => {}
        }
        let directory = self.job.and_then(running_jobs::find_root);
        let by_member = directory.as_deref().filter(|directory| has_member(directory));
        if let (Some(job), Some(directory)) = (self.job, by_member) {
            return self.await_member(job, directory);
        }
        // How a root has ended that another process has started is not known. If it has failed it fails again, as a
        // child of this one: that is not tried a second time.
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
