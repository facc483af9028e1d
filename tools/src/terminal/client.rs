//! The user's end: starts a job's root, or finds that of a running job, gives it this process's standard streams, and
//! ends with the job's exit code.

use super::closed::standard_output_was_closed;
use super::{Channel, FromRoot, Received, ToRoot};
use crate::jobs;
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use say::Console;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

/// The exit code of a console whose place another has taken: the job goes on.
pub const DISPLACED_CODE: i32 = 76;

const USAGE_CODE: i32 = 2;

/// See the module.
struct Terminal<'a> {
    channel: Channel,
    console: &'a Console,
    signals: SignalFd,
    /// Leave as soon as the job runs.
    leaves: bool,
    job: Option<u64>,
    /// The root, if this process has started it.
    root: Option<Child>,
    /// The job goes on without this process, which may not have been heard by it yet.
    is_leaving: bool,
}

fn catch_signals() -> Result<SignalFd> {
    let mut mask = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP].into_iter().for_each(|signal| mask.add(signal));
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
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
    let (channel, of_root) = Channel::pair().context("Failed to make a socket")?;
    let mut command = Command::new(std::env::current_exe().context("Failed to find redrun's own program")?);
    command.args(["--root"]).args(arguments.iter().skip(1)).stdin(Stdio::from(OwnedFd::from(of_root)));
    command.arg0(arguments.first().map_or("redrun".as_ref(), OsString::as_os_str));
    let set_up = || -> std::io::Result<()> {
        // Neither the end of the terminal's session nor its Ctrl-C is for the root.
        nix::unistd::setsid()?;
        Ok(())
    };
    // SAFETY: set_up runs in a forked child: it only makes a system call, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
    let root = command.spawn().context("Failed to start the root of the job")?;
    // It holds the root's end of the socket.
    drop(command);
    // After the root was started: it does not inherit the mask.
    let signals = catch_signals()?;
    Terminal { channel, console, signals, leaves, job: None, root: Some(root), is_leaving: false }.serve()
}

/// The jobs of this user on this host that can be attached to, with a connection to the root of each.
pub fn seats() -> Vec<(String, Channel)> {
    let dialled = jobs::find_seats().into_iter().filter_map(|seat| {
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

/// Is the console of a job that runs without one, or takes the place of the one it has.
///
/// # Errors
/// When there is no such job.
pub fn attach(wanted: Option<&str>, console: &Console) -> Result<i32> {
    let mut fitting = seats();
    fitting.retain(|(job, _)| wanted.is_none_or(|wanted| job.starts_with(wanted)));
    let (job, channel) = match (fitting.pop(), fitting.is_empty(), wanted) {
        (Some(one), true, _) => one,
        (Some(_), false, _) => bail!("several jobs can be attached to: name one (redctl list shows them)"),
        (None, _, Some(wanted)) => bail!("no job {wanted} that was started with --detachable or --detach is here"),
        (None, _, None) => bail!("no job of yours that was started with --detachable or --detach is here"),
    };
    let job = u64::from_str_radix(&job, 16).ok();
    let signals = catch_signals()?;
    Terminal { channel, console, signals, leaves: false, job, root: None, is_leaving: false }.serve()
}

impl Terminal<'_> {
    fn attach(&self) -> std::io::Result<()> {
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        self.channel.send(&ToRoot::Attach, &[input.as_fd(), output.as_fd(), error.as_fd()])
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
                    Received::End => return self.root_is_gone(),
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
        match message {
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
            FromRoot::Ended(code) => return Ok(Some(code)),
        }
        Ok(None)
    }

    /// It has said nothing of its end.
    fn root_is_gone(self) -> Result<i32> {
        let name = self.name();
        // It could not begin, and has said why.
        if let Some(mut root) = self.root {
            let status = root.wait().context("Failed to wait for the root of the job")?;
            if let Some(code) = status.code() {
                return Ok(code);
            }
            let signal = status.signal().unwrap_or(0);
            self.console.error(&format!("the root of {name} was killed by signal {signal}: the job has ended"));
            return Ok(128 + signal);
        }
        bail!("the root of {name} is gone: the job has ended")
    }
}
