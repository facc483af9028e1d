//! Sources, hosts and pushes: child processes whose output is read line by line.

use super::{redclone, workshop};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Time limit of a wait, longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

/// Directory of control sockets.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| {
            let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
            tempfile::Builder::new().permissions(mode).tempdir_in(workshop()).expect("a directory")
        })
        .path()
}

/// A `redclone` command with the tests' directory of sockets, secret and user.
fn command(user: Option<u32>) -> Command {
    command_for(redclone(), user)
}

fn command_for(program: &Path, user: Option<u32>) -> Command {
    let mut command = Command::new(program);
    command.env("REDCLONE_SECRET", "5a".repeat(32)).env_remove("LD_PRELOAD");
    match user {
        None => command.env("REDCLONE_DIR", directory()),
        Some(user) => command.env("REDCLONE_DIR", format!("/tmp/redclone-tests-{user}")).uid(user).gid(user),
    };
    // SAFETY: - only async-signal-safe system calls run between fork and exec.
    // The test's descriptors are kept from the program.
    unsafe {
        command.pre_exec(|| {
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command
}

/// Makes `command` run in a network namespace of `ip netns`, as another user if one is given.
fn enter(command: &mut Command, namespace: &str, user: Option<u32>) {
    use std::os::fd::AsRawFd;
    if let Some(user) = user {
        command.env("REDCLONE_DIR", format!("/tmp/redclone-tests-{user}"));
    }
    let path = format!("/run/netns/{namespace}");
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // SAFETY: - only async-signal-safe system calls run between fork and exec, on a descriptor that the closure owns.
    unsafe {
        command.pre_exec(move || {
            // Entering needs root, so the user changes afterwards. That clears the signal at the parent's end, which is
            // set again.
            let entered = libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) == 0
                && user.is_none_or(|user| {
                    libc::setgid(user) == 0
                        && libc::setuid(user) == 0
                        && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
                });
            if entered { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

/// A child process whose output is read by threads.
struct Lines {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Receiver<String>,
    messages: Receiver<String>,
}

impl Lines {
    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("redclone starts");
        let out = lines(child.stdout.take().expect("piped"));
        let messages = lines_shown(child.stderr.take().expect("piped"));
        Self { stdin: child.stdin.take(), child, out, messages }
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("it is a child")
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            if line.is_ok_and(|line| send.send(line).is_err()) {
                return;
            }
        }
    });
    receive
}

/// Like `lines`, but also prints them: complaints of a copy appear nowhere else.
fn lines_shown(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    let inner = lines(from);
    thread::spawn(move || {
        for line in inner {
            eprintln!("{line}");
            let _ = send.send(line);
        }
    });
    receive
}

/// Receives lines until one contains `text`. Returns all received lines.
fn until(from: &Receiver<String>, text: &str) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match from.recv_timeout(LIMIT) {
            Ok(line) => {
                let found = line.contains(text);
                all.push(line);
                if found {
                    return all;
                }
            }
            Err(error) => panic!("no line with {text:?}: {error}; there were {all:#?}"),
        }
    }
}

fn pid_in(line: &str) -> u32 {
    line.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no process id in {line:?}"))
}

/// Output and exit code of a process.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Lines of standard output, in order.
    pub lines: Vec<String>,
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
}

/// A program under `redclone run`, or one that embeds the agent.
pub struct Source {
    lines: Lines,
    seen: Vec<String>,
    /// Process id, as seen by the test.
    pub pid: u32,
}

impl Source {
    /// Starts the program, and waits until it prints "running".
    #[must_use]
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::start_as(None, program, arguments)
    }

    /// Like [`Source::start`], as another user.
    #[must_use]
    pub fn start_as(user: Option<u32>, program: &Path, arguments: &[&str]) -> Self {
        let mut command = command(user);
        command.args(["run".as_ref(), "--".as_ref(), program.as_os_str()]).args(arguments);
        Self::from_command(command)
    }

    /// Starts a program that embeds the agent, and refuses this many cuts first.
    #[must_use]
    pub fn start_embedder(program: &Path, refusals: u32) -> Self {
        let mut command = command_for(program, None);
        command.env("EMBEDDER_REFUSALS", refusals.to_string());
        Self::from_command(command)
    }

    /// Starts the copy from an image in a file.
    #[must_use]
    pub fn load(file: &Path) -> Self {
        let mut command = command(None);
        command.args(["load".as_ref(), file.as_os_str()]);
        let lines = Lines::spawn(command);
        let pid = pid_in(until(&lines.messages, "process ").last().expect("found"));
        Self { lines, seen: vec!["running".into()], pid }
    }

    fn from_command(command: Command) -> Self {
        let lines = Lines::spawn(command);
        let pid = pid_in(until(&lines.messages, "process ").last().expect("found"));
        let seen = until(&lines.out, "running");
        Self { lines, seen, pid }
    }

    /// Kills the program and waits for its end.
    pub fn kill(mut self) {
        // SAFETY: - `kill` takes numbers, and the process belongs to this test.
        unsafe { libc::kill(self.pid as i32, libc::SIGKILL) };
        self.lines.end();
    }

    /// Closes the program's input and waits for its end. Returns its output and exit code.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        drop(self.lines.stdin.take());
        let mut lines = self.seen.clone();
        while let Ok(line) = self.lines.out.recv_timeout(LIMIT) {
            lines.push(line);
        }
        let messages: Vec<String> = self.lines.messages.try_iter().collect();
        if !messages.is_empty() {
            eprintln!("{messages:#?}");
        }
        Outcome { lines, code: self.lines.end().code() }
    }
}

/// A destination: a `redclone serve` process.
pub struct Host {
    lines: Lines,
    /// Address and port on which it listens.
    pub address: String,
}

impl Host {
    /// Starts a destination on a free port of the loopback interface.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(None)
    }

    /// Like [`Host::start`], as another user.
    #[must_use]
    pub fn start_as(user: Option<u32>) -> Self {
        let mut command = command(user);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        Self::from_command(command)
    }

    /// Starts a destination with a limit on its address space, in bytes: a host that is short of memory.
    #[must_use]
    pub fn start_with_limit(bytes: u64) -> Self {
        let mut command = command(None);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: - only an async-signal-safe system call runs between fork and exec; it reads `limit`, which the
        //           closure owns.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        Self::from_command(command)
    }

    /// Starts a destination in another network namespace, at an address of that namespace.
    #[must_use]
    pub fn start_in(namespace: &str, address: &str, user: Option<u32>) -> Self {
        let mut command = command(None);
        command.args(["serve", "--listen", address]);
        enter(&mut command, namespace, user);
        Self::from_command(command)
    }

    fn from_command(command: Command) -> Self {
        let lines = Lines::spawn(command);
        let line = until(&lines.messages, "listening at ").pop().expect("found");
        Self { lines, address: line.rsplit(' ').next().expect("a word").to_owned() }
    }

    /// Output of a copy up to its last line, "done". "running" was printed before the copy existed, and is prepended.
    #[must_use]
    pub fn output_of_copy(&self) -> Vec<String> {
        let mut lines = vec!["running".to_owned()];
        lines.extend(until(&self.lines.out, "done"));
        lines
    }

    /// Waits for a message with this text. Returns all messages up to it.
    #[must_use]
    pub fn message(&self, text: &str) -> Vec<String> {
        until(&self.lines.messages, text)
    }

    /// Waits until the destination has no child process.
    pub fn wait_until_empty(&self) {
        let pid = self.lines.child.id();
        for _ in 0..LIMIT.as_millis() / 10 {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
            let children: String = tasks
                .filter_map(Result::ok)
                .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
                .collect();
            if children.trim().is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("processes are left over on the destination");
    }

    /// Kills the destination and waits for its end.
    pub fn kill(mut self) {
        let _ = self.lines.child.kill();
        self.lines.end();
    }
}

/// A finished `redclone` command, such as `push` or `save`.
pub struct Push {
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    /// Everything that it wrote to standard error.
    pub message: String,
    /// The event "done", if the command came that far.
    pub report: Option<serde_json::Value>,
}

impl Push {
    /// Runs `redclone push PID DESTINATION OPTIONS`.
    #[must_use]
    pub fn run(pid: u32, destination: &str, options: &[&str]) -> Self {
        Self::run_as(None, pid, destination, options)
    }

    /// Like [`Push::run`], as another user.
    #[must_use]
    pub fn run_as(user: Option<u32>, pid: u32, destination: &str, options: &[&str]) -> Self {
        let mut command = command(user);
        command.args(["push", &pid.to_string(), destination, "--json"]).args(options);
        Self::ended(command)
    }

    /// Like [`Push::run_as`], in another network namespace.
    #[must_use]
    pub fn run_in(namespace: &str, user: Option<u32>, pid: u32, destination: &str, options: &[&str]) -> Self {
        let mut command = command(None);
        command.args(["push", &pid.to_string(), destination, "--json"]).args(options);
        enter(&mut command, namespace, user);
        Self::ended(command)
    }

    /// Like [`Push::run`], with another secret.
    #[must_use]
    pub fn run_with_secret(pid: u32, destination: &str, secret: &str) -> Self {
        let mut command = command(None);
        command.args(["push", &pid.to_string(), destination, "--json"]).env("REDCLONE_SECRET", secret);
        Self::ended(command)
    }

    /// Runs `redclone save PID FILE OPTIONS`.
    #[must_use]
    pub fn save(pid: u32, file: &Path, options: &[&str]) -> Self {
        let mut command = command(None);
        command
            .args(["save".as_ref(), OsStr::new(&pid.to_string()), file.as_os_str(), "--json".as_ref()])
            .args(options);
        Self::ended(command)
    }

    /// Runs `redclone` with arbitrary arguments.
    #[must_use]
    pub fn redclone(words: &[&OsStr]) -> Self {
        let mut command = command(None);
        command.args(words);
        Self::ended(command)
    }

    fn ended(mut command: Command) -> Self {
        let ended = command.stdin(Stdio::null()).output().expect("redclone starts");
        let report = String::from_utf8_lossy(&ended.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .find(|value| value["event"] == "done");
        Self {
            code: ended.status.code().unwrap_or(-1),
            message: String::from_utf8_lossy(&ended.stderr).into_owned(),
            report,
        }
    }

    /// Process id of the copy. Panics if the command failed.
    #[must_use]
    pub fn copy_pid(&self) -> u32 {
        assert_eq!(self.code, 0, "{}", self.message);
        let pid = self.report.as_ref().and_then(|report| report["pid"].as_u64()).expect("a report");
        u32::try_from(pid).expect("a process id")
    }
}
