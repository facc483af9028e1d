//! Start of daemons: here by fork, on other hosts by ssh or a similar command, in a Slurm allocation by one srun for
//! all.
//!
//! The job's secret goes by standard input. The command line is readable by every user of a host, and the environment
//! is inherited by all descendants. What srun carries is not encrypted: for srun the secret is sealed by MUNGE, which
//! Slurm itself uses, so that only processes of the same user can open it. [`super::handing`] has the format.

use super::handing;
use super::identity::ProcessIdentity;
use super::job_steps::JobStep;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use redrt_wire::daemon::{HostName, Remote};
use redrt_wire::secret::Secret;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Prefix in place of a host's number when Slurm is to supply it. The number of the first host of that srun follows.
pub const HOST_BY_SLURM: &str = "slurm:";
/// Variable of a coordinator that its quorum has started on another host: the Slurm step of the job's daemons.
pub const STEP_VARIABLE: &str = "REDRT_SLURM_STEP";
/// Bytes of a launcher's standard error that are examined, from its end.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// A shell's exit codes for a program that is missing, or cannot be executed.
const NOT_FOUND: [i32; 2] = [127, 126];

/// Arguments common to all daemons.
#[derive(Clone, Debug)]
pub struct DaemonArguments {
    /// Number of the host. `None` if Slurm supplies it.
    pub host: Option<u32>,
    /// Address of the parent in the tree.
    pub parent: SocketAddr,
    /// Address of `redrun`.
    pub coordinator: SocketAddr,
    /// Maximum number of daemons below one.
    pub fan_out: u32,
    /// Interface or network to use. `None`: the one of the connection to the parent.
    pub interface: Option<String>,
    /// Time for which processes outlive a killed coordinator; zero if they end with it.
    pub coordinator_lease: Duration,
    /// True if processes also outlive the coordinator's host for that time: the next coordinator may be on another.
    pub has_several_coordinators: bool,
}

impl DaemonArguments {
    fn arguments(&self) -> Vec<String> {
        let host = self.host.expect("only Slurm starts several daemons by one command");
        self.arguments_with(host.to_string())
    }

    fn arguments_with(&self, host: String) -> Vec<String> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut words = vec!["--version-wanted".into(), version, "--host".into(), host];
        words.extend([
            "--fan-out".into(),
            self.fan_out.to_string(),
            "--coordinator".into(),
            self.coordinator.to_string(),
        ]);
        words.extend(self.interface.iter().flat_map(|interface| ["--interface".into(), interface.clone()]));
        if !self.coordinator_lease.is_zero() {
            words.extend(["--coordinator-lease-ms".into(), self.coordinator_lease.as_millis().to_string()]);
        }
        words.extend(self.has_several_coordinators.then(|| "--has-several-coordinators".to_owned()));
        words.extend(["--connect".into(), self.parent.to_string()]);
        words
    }
}

/// A process that starts a daemon, or is one.
pub struct Starting {
    /// Number of the host. `None` if it starts several daemons.
    pub host: Option<u32>,
    child: Child,
    /// Standard error of the process.
    said: Option<Said>,
}

impl Starting {
    /// Identity for other processes, such as a later coordinator.
    #[must_use]
    pub fn identity(&self) -> Option<ProcessIdentity> {
        ProcessIdentity::of(self.child.id() as i32)
    }

    /// Explanation of its end. `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(self.explain(status))
    }

    /// Last line of its standard error, if any.
    pub fn last_words(&mut self) -> Option<String> {
        let line = self.said.as_ref()?.last_line()?;
        Some(line.trim_start_matches("redrtd: ").to_owned())
    }

    fn explain(&mut self, status: ExitStatus) -> String {
        let words = self.last_words();
        match (status.code(), words) {
            (Some(code), Some(words)) if NOT_FOUND.contains(&code) => {
                format!("redrtd cannot be run there ({words}): is redrt installed at the same place?")
            }
            (_, Some(words)) => words,
            (_, None) => format!("its launcher ended ({status}) before the daemon had connected"),
        }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

/// Waits up to `time_max` for all these to end, then sends SIGTERM to the rest: a guard ends everything below it, even
/// if this process is killed. The caller kills all its descendants afterwards. `work` is called repeatedly meanwhile,
/// since the daemons may wait for messages.
pub fn end(all: &mut [Starting], time_max: Duration, mut work: impl FnMut()) {
    let deadline = Instant::now() + time_max;
    while !all.iter_mut().all(Starting::has_ended) && Instant::now() < deadline {
        work();
        std::thread::sleep(Duration::from_millis(1));
    }
    for starting in all.iter_mut().filter_map(|starting| (!starting.has_ended()).then_some(starting)) {
        // Not reaped yet, so the process number is still its own.
        let _ = kill(Pid::from_raw(starting.child.id() as i32), Signal::SIGTERM);
    }
}

/// The daemon's executable, which is beside this program's.
pub fn daemon_executable() -> Result<PathBuf> {
    let own = std::env::current_exe().context("Failed to find this program's own file")?;
    let daemon = own.with_file_name("redrtd");
    anyhow::ensure!(daemon.is_file(), "redrtd is not beside {}: the installation is incomplete", own.display());
    Ok(daemon)
}

/// Starts the daemon of this host. With `outlives_terminal` it does not get the terminal; with a lease it also outlives
/// this process.
pub fn fork(place: &DaemonArguments, secret: &Secret, outlives_terminal: bool) -> Result<Starting> {
    let executable = daemon_executable()?;
    let mut command = Command::new(&executable);
    command.arg("--guard").args(place.arguments()).stdin(Stdio::piped());
    let said = match outlives_terminal {
        true => Some(quiet(&mut command)?),
        false => {
            command.stdout(Stdio::null());
            None
        }
    };
    tie(&mut command, place);
    let child = command.spawn().with_context(|| format!("Failed to start {}", executable.display()))?;
    Starting { host: place.host, child, said }.told(&handing::line(secret))
}

/// Starts the daemon of another host.
pub fn remote(remote: &Remote, host: &HostName, place: &DaemonArguments, secret: &Secret) -> Result<Starting> {
    let words = [remote.daemon.clone().into(), "--guard".into()];
    let words = words.into_iter().chain(place.arguments().into_iter().map(OsString::from));
    let mut command = shell_on(&remote.command, host, words)?;
    let said = quiet(&mut command)?;
    tie(&mut command, place);
    command.stdin(Stdio::piped());
    let line = handing::line_for(&remote.command[0], secret)?;
    let child = command.spawn().with_context(|| format!("Failed to run {}", remote.command[0].display()))?;
    Starting { host: place.host, child, said: Some(said) }.told(&line)
}

/// A command that runs these words on a host. The launcher is used like `ssh`.
pub fn shell_on(launcher: &[OsString], host: &HostName, words: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let Some((program, options)) = launcher.split_first() else { bail!("the launcher's command is empty") };
    // The name may come from a command line, a pool, `redctl` or `redrun`.
    ensure!(host.is_sound(), "'{}' is not the name of a host", say::shown(&host.name));
    let mut command = Command::new(program);
    command.args(options);
    if Path::new(program).file_name().is_some_and(|name| name == "ssh") {
        command.args(["-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "--"]);
    }
    let address = match &host.user {
        Some(user) => format!("{user}@{}", host.name),
        None => host.name.clone(),
    };
    let mut line = OsString::from("exec");
    for word in words {
        line.push(" ");
        line.push(quoted(&word));
    }
    command.arg(address).arg(line);
    Ok(command)
}

/// Starts a daemon on every node of a step.
pub fn slurm(srun: &[OsString], step: &JobStep<'_>, place: &DaemonArguments, secret: &Secret) -> Result<Starting> {
    let Some((program, options)) = srun.split_first() else { bail!("the launcher's command is empty") };
    let mut command = Command::new(program);
    let JobStep { group, first, nodes } = step;
    let count = nodes.len();
    command.args(options);
    command.args(group.map(|group| format!("--het-group={group}")));
    command.args([&format!("--nodes={count}"), &format!("--ntasks={count}"), "--ntasks-per-node=1"]);
    command.arg(format!("--nodelist={}", nodes.join(",")));
    // The end of one task, or the failure of a node, must not end the others.
    command.args(["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mpi=none", "--overlap", "--input=all"]);
    command.args(["--cpu-bind=none", "--mem=0", "--export=ALL", "--unbuffered"]);
    let arguments = place.arguments_with(format!("{HOST_BY_SLURM}{first}"));
    command.arg(daemon_executable()?).arg("--guard").args(arguments);
    // Counts of the surrounding job would apply to this step.
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION"]
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped());
    let said = quiet(&mut command)?;
    tie(&mut command, place);
    // Before the start: without a sealed secret nothing must be started.
    let line = handing::sealed_line(secret)?;
    let child = command.spawn().with_context(|| format!("Failed to run {}", program.display()))?;
    Starting { host: None, child, said: Some(said) }.told(&line)
}

impl Starting {
    /// Writes this line to its standard input, and closes that.
    fn told(mut self, line: &str) -> Result<Self> {
        let mut input = self.child.stdin.take().context("the launcher has no standard input")?;
        // A launcher that has failed explains itself in [`Starting::ended`].
        let _ = input.write_all(line.as_bytes());
        Ok(self)
    }
}

/// Captures a launcher's standard error, and drops its output.
fn quiet(command: &mut Command) -> Result<Said> {
    command.stdout(Stdio::null());
    Said::of(command)
}

/// Standard error of a program, kept in memory.
pub struct Said(File);

impl Said {
    /// Captures the standard error of a program that is about to be started.
    ///
    /// # Errors
    /// When the kernel has no memory or descriptor for it.
    pub fn of(command: &mut Command) -> Result<Self> {
        let said = File::from(memfd_create("said", MFdFlags::MFD_CLOEXEC).context("Failed to make a file in memory")?);
        command.stderr(Stdio::from(said.try_clone()?));
        Ok(Self(said))
    }

    /// The last line that is not empty.
    #[must_use]
    pub fn last_line(&self) -> Option<String> {
        let mut said = &self.0;
        let length = said.metadata().ok()?.len();
        said.seek(SeekFrom::Start(length.saturating_sub(SAID_BYTES_MAX))).ok()?;
        let mut text = Vec::new();
        said.take(SAID_BYTES_MAX).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Ties a launcher, or a daemon's guard, to this process's life, unless the daemon has a lease.
fn tie(command: &mut Command, place: &DaemonArguments) {
    match place.coordinator_lease.is_zero() {
        true => dies_with_this(command),
        false => runs_apart(command),
    }
}

/// Puts the child in a process group of its own: Ctrl-C is for `redrun`, which informs the daemons.
pub fn runs_apart(command: &mut Command) {
    command.process_group(0);
    // This program has signals blocked, to read them from a descriptor; the child must not.
    let set_up = || Ok(SigSet::empty().thread_set_mask()?);
    // SAFETY: - `set_up` runs in a forked child: it makes only a system call, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
}

/// Ends the child when the thread that starts it ends.
pub fn dies_with_this(command: &mut Command) {
    runs_apart(command);
    let parent = std::process::id() as libc::pid_t;
    let set_up = move || {
        // SIGTERM, not SIGKILL: the daemon ends its processes' descendants too.
        nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
        if nix::unistd::getppid().as_raw() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: - `set_up` runs in a forked child: it makes only system calls, and neither allocates nor takes locks.
    unsafe { command.pre_exec(set_up) };
}

/// A word, quoted for a remote shell.
fn quoted(word: &OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(byte);
    let bytes = word.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return word.to_owned();
    }
    let parts: Vec<_> = bytes.split(|byte| *byte == b'\'').collect();
    OsString::from_vec([&b"'"[..], &parts.join(&br"'\''"[..]), b"'"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in [&b"plain"[..], b"", b"two words", b"it's", b"$HOME;ls", b"[fe80::1]:80", b"/d\xfcr/'a"] {
            let mut line = OsString::from("printf %s ");
            line.push(quoted(OsStr::from_bytes(word)));
            let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
            assert_eq!(output.stdout, word);
        }
    }

    #[test]
    fn the_name_of_a_host_is_never_an_option_of_the_launcher() {
        let run = |name: &str, user: Option<&str>| {
            let host = HostName { user: user.map(str::to_owned), name: name.into() };
            shell_on(&["ssh".into()], &host, ["true".into()])
        };
        for (name, user) in
            [("-oProxyCommand=evil", None), ("h1", Some("-l")), ("", None), ("h 1", None), ("h\x1b", None)]
        {
            assert!(run(name, user).is_err(), "{name:?}");
        }
        let command = run("h1", Some("me")).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert!(words.ends_with(&["--", "me@h1", "exec true"]), "{words:?}");
    }

    #[test]
    fn a_launcher_that_fails_is_quoted() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let address: SocketAddr = ([127, 0, 0, 1], 9).into();
        let place = DaemonArguments {
            host: Some(1),
            parent: address,
            coordinator: address,
            fan_out: 2,
            interface: None,
            coordinator_lease: Duration::ZERO,
            has_several_coordinators: false,
        };
        let host = HostName { user: None, name: "far".into() };
        for (command, says) in [
            (words(&["sh", "-c", "echo no route to $0 >&2; exit 255"]), "no route to far"),
            (words(&["sh", "-c", "exit 3"]), "exit status: 3"),
            (words(&["sh", "-c", "echo sh: not found >&2; exit 127"]), "installed at the same place"),
        ] {
            let launcher = Remote {
                command,
                daemon: "/no/redrtd".into(),
                interface: None,
                coordinator: address,
                coordinator_lease_ms: 0,
                has_several_coordinators: false,
            };
            let mut starting = remote(&launcher, &host, &place, &Secret::new([7; 32])).unwrap();
            let begin = Instant::now();
            let why = loop {
                assert!(begin.elapsed() < Duration::from_secs(10));
                if let Some(why) = starting.ended() {
                    break why;
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            assert!(why.contains(says), "{why}");
        }
    }
}
