//! Looks at hosts: runs `redrtd --probe` there, through the launcher that starts daemons.
//!
//! Each look has a thread of its own, and a few run at a time. The result arrives through a descriptor that can be
//! polled.

use anyhow::{Result, anyhow, bail};
use control_network::asking::{NoAnswer, answer_of};
use control_network::launcher::shell_on;
use control_network::launchers;
use host_addresses::is_own_name;
use redrt_wire::daemon::HostName;
use spare_pool::{Facts, Spare, Unseen};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const AT_ONCE_MAX: usize = 32;
/// The answer has the processor's flags and a few numbers, far below this.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Result of a look.
pub struct ProbeResult {
    pub host: String,
    /// Facts about the host, or the reason why none are known.
    pub found: Result<Facts, Unseen>,
}

/// The looks that run or wait; see the module.
pub struct HostProbes {
    launcher: Vec<OsString>,
    daemon: PathBuf,
    time_max: Duration,
    waiting: VecDeque<Spare>,
    under_way: usize,
    sender: Sender<ProbeResult>,
    receiver: Receiver<ProbeResult>,
    wake: UnixStream,
    waker: Arc<UnixStream>,
}

impl HostProbes {
    /// Looks that start the daemon's program through the command `launcher`. A look that takes longer than `time_max`
    /// has failed.
    pub fn new(daemon: PathBuf, launcher: Vec<OsString>, time_max: Duration) -> Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        let (waker, waiting) = (Arc::new(waker), VecDeque::new());
        Ok(Self { launcher, daemon, time_max, waiting, under_way: 0, sender, receiver, wake, waker })
    }

    /// Readable when [`HostProbes::found`] has results.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Inspects a host as soon as a thread may start.
    pub fn inspect(&mut self, spare: Spare) {
        self.waiting.push_back(spare);
        self.begin();
    }

    /// The results since the last call.
    pub fn found(&mut self) -> Vec<ProbeResult> {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|count| count > 0) {}
        let found: Vec<_> = self.receiver.try_iter().collect();
        self.under_way -= found.len();
        self.begin();
        found
    }

    fn begin(&mut self) {
        while self.under_way < AT_ONCE_MAX
            && let Some(spare) = self.waiting.pop_front()
        {
            self.under_way += 1;
            let (time_max, host, command) = (self.time_max, spare.name.clone(), self.command(&spare));
            let (found_by, waker) = (self.sender.clone(), self.waker.clone());
            let look = move || {
                let found = command.and_then(|command| ask(command, time_max));
                let found = found.map_err(|error| Unseen::Said(format!("{error:#}")));
                report(&found_by, &waker, ProbeResult { host, found });
            };
            if let Err(error) = std::thread::Builder::new().spawn(look) {
                let found = Err(Unseen::NoThread(error.raw_os_error().unwrap_or_default()));
                report(&self.sender, &self.waker, ProbeResult { host: spare.name, found });
            }
        }
    }

    fn command(&self, spare: &Spare) -> Result<Command> {
        let words = [self.daemon.clone().into(), OsString::from("--probe")];
        if spare.launcher.is_none() && spare.user.is_none() && is_own_name(&spare.name) {
            let mut command = Command::new(&words[0]);
            command.arg(&words[1]);
            return Ok(command);
        }
        let named = spare.launcher.as_deref().map(launchers::command).transpose()?;
        let launcher = named.as_ref().unwrap_or(&self.launcher);
        shell_on(launcher, &HostName { user: spare.user.clone(), name: spare.name.clone() }, words)
    }
}

/// Sends the result and wakes the server's poll.
fn report(sender: &Sender<ProbeResult>, mut waker: &UnixStream, look: ProbeResult) {
    if sender.send(look).is_ok() {
        let _ = waker.write(&[0]);
    }
}

/// Runs the command and parses its output.
fn ask(mut command: Command, time_max: Duration) -> Result<Facts> {
    let nonsense = || "redrtd --probe printed nothing that makes sense";
    match answer_of(&mut command, None, Some(time_max), ANSWER_BYTES_MAX) {
        Ok(printed) => serde_json::from_slice(&printed).map_err(|_| anyhow!(nonsense())),
        Err(NoAnswer::Late) => bail!("no answer in {} s", time_max.as_secs_f32()),
        Err(NoAnswer::Failed { said: Some(said) }) => bail!("{}", said.trim_start_matches("redrtd: ")),
        Err(NoAnswer::Failed { said: None }) => bail!(nonsense()),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_look_finds_facts_or_says_why_not() {
        let time_max = Duration::from_secs(10);
        let json = serde_json::to_string(&Facts { version: "9".into(), ..Facts::default() }).unwrap();
        assert_eq!(ask(shell(&format!("echo '{json}'")), time_max).unwrap().version, "9");
        let why = |script: &str, time_max| ask(shell(script), time_max).unwrap_err().to_string();
        assert_eq!(why("echo no route >&2; exit 255", time_max), "no route");
        assert!(why("echo rubbish", time_max).contains("makes sense"));
        assert!(why("exec sleep 60", Duration::from_millis(20)).contains("no answer in"));
        assert!(why("yes", time_max).contains("more than"));
    }
}
