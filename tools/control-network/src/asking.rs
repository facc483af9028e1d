//! Questions to hosts on which no daemon runs: a program of redrt is started there, and what it prints is the answer.

use super::launcher::{dies_with_this, shell_on};
use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use redrt_wire::daemon::HostName;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Limit for the hosts that are asked at a time.
const ASKED_COUNT_MAX: usize = 32;
/// Limit for the length of an answer: that of a hundred thousand processes' manifests.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The way to a host.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// By this command, used as ssh is.
    Shell(&'a [OsString]),
    /// By a step of a Slurm job, with this srun.
    Slurm(&'a [OsString]),
}

/// Runs these words on each host. The first one is the name of a program that is installed where this one is. Returns
/// for each host what the program has printed, or why there is no answer. `input` is what each program reads. A host
/// that takes longer than `limit` is given up.
pub fn ask(
    way: Way<'_>,
    hosts: &[(HostName, Vec<OsString>)],
    input: Option<&str>,
    limit: Option<Duration>,
) -> Vec<Result<Vec<u8>>> {
    let mut answers = Vec::new();
    for some in hosts.chunks(ASKED_COUNT_MAX) {
        answers.extend(std::thread::scope(|scope| {
            let ask = |host, words| scope.spawn(move || ask_one(&mut command(way, host, words)?, input, limit));
            let asked: Vec<_> = some.iter().map(|(host, words)| ask(host, words)).collect();
            asked.into_iter().map(|one| one.join().expect("asking does not panic")).collect::<Vec<_>>()
        }));
    }
    answers
}

fn command(way: Way<'_>, host: &HostName, words: &[OsString]) -> Result<Command> {
    let own = std::env::current_exe().context("Failed to find where redrt is installed")?;
    let Some((program, arguments)) = words.split_first() else { bail!("there is nothing to run") };
    let program = own.with_file_name(program).into_os_string();
    match way {
        Way::Shell(launcher) => shell_on(launcher, host, std::iter::once(program).chain(arguments.iter().cloned())),
        Way::Slurm(srun) => {
            let Some((launcher, options)) = srun.split_first() else { bail!("the launcher's command is empty") };
            let mut command = Command::new(launcher);
            command.args(options).args(["--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--cpu-bind=none"]);
            command.args(["--mem=0", "--export=ALL", "--input=all", &format!("--nodelist={}", host.name)]);
            command.arg(program).args(arguments);
            Ok(command)
        }
    }
}

fn ask_one(command: &mut Command, input: Option<&str>, limit: Option<Duration>) -> Result<Vec<u8>> {
    answer_of(command, input, limit, ANSWER_BYTES_MAX).map_err(|why| match why {
        NoAnswer::Failed { .. } => anyhow!("it cannot be asked: {why}"),
        why => why.into(),
    })
}

/// The reason for which a command has given no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It cannot be started.
    #[error("Failed to run {program}: {error}")]
    NotStarted {
        /// Name of the program.
        program: String,
        /// The system's reason.
        error: io::Error,
    },
    /// It has not ended in time, and is ended.
    #[error("it does not answer")]
    Late,
    /// It prints more than this number of bytes, and is ended.
    #[error("its answer has more than {0} bytes")]
    TooLong(u64),
    /// It has failed.
    #[error("{}", said.as_deref().unwrap_or("it has said nothing"))]
    Failed {
        /// Last line of its standard error, if there is one.
        said: Option<String>,
    },
    /// Its output cannot be read.
    #[error("its answer cannot be read: {0}")]
    Unread(#[from] io::Error),
}

/// Runs a command to its end, with this standard input, and returns what it prints. One that takes longer than `limit`,
/// or prints more than `bytes_max` bytes, is ended with all processes that it has started.
pub fn answer_of(
    command: &mut Command,
    input: Option<&str>,
    limit: Option<Duration>,
    bytes_max: u64,
) -> std::result::Result<Vec<u8>, NoAnswer> {
    // A launcher may start others, which hold its output open.
    dies_with_this(command);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let program = || command.get_program().display().to_string();
    let mut child = spawned.map_err(|error| NoAnswer::NotStarted { program: program(), error })?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // A process that has failed already reports its reason.
        let _ = pipe.write_all(input.as_bytes());
    }
    let (mut answer, mut errors) = (Vec::new(), Vec::new());
    let (output, error) = (child.stdout.take(), child.stderr.take());
    let (has_ended, ends) = mpsc::channel::<()>();
    // The child is reaped after that thread has ended, so its number is its own. It may have ended meanwhile.
    let pid = Pid::from_raw(child.id().cast_signed());
    let end = move || {
        let _ = killpg(pid, Signal::SIGKILL);
    };
    let is_late = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let is_late = limit.is_some_and(|limit| ends.recv_timeout(limit) == Err(RecvTimeoutError::Timeout));
            if is_late {
                end();
            }
            is_late
        });
        let read = scope.spawn(|| error.map(|error| error.take(bytes_max).read_to_end(&mut errors)));
        let got = output.map(|output| output.take(bytes_max + 1).read_to_end(&mut answer));
        if answer.len() as u64 > bytes_max {
            end();
        }
        let told = read.join().expect("reading does not panic");
        // Its outputs may have ended before it does. It stays, so that its number is its own.
        let ended = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        drop(has_ended);
        let is_late = watch.join().expect("waiting does not panic");
        let failure = got.into_iter().chain(told).find_map(Result::err).or(ended.err().map(Into::into));
        failure.map_or(Ok(is_late), Err)
    });
    let status = child.wait();
    match (is_late?, status?.success()) {
        (true, _) => Err(NoAnswer::Late),
        _ if answer.len() as u64 > bytes_max => Err(NoAnswer::TooLong(bytes_max)),
        (_, true) => Ok(answer),
        (_, false) => {
            let said = String::from_utf8_lossy(&errors);
            let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
            Err(NoAnswer::Failed { said: last.map(|line| say::shown(line).to_string()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str, input: Option<&str>, limit: Option<Duration>) -> Result<Vec<u8>> {
        ask_one(Command::new("sh").args(["-c", line]), input, limit)
    }

    #[test]
    fn an_answer_comes_whole_or_with_its_reason() {
        let long = asked("cat; seq 100000 >&2; seq 100000", Some("first\n"), None).unwrap();
        assert!(long.starts_with(b"first\n1\n") && long.ends_with(b"100000\n"));
        let why = asked("echo no route >&2; exit 255", None, None).unwrap_err().to_string();
        assert_eq!(why, "it cannot be asked: no route");
    }

    #[test]
    fn a_host_that_does_not_answer_is_given_up() {
        let why = asked("sleep 1000; true", None, Some(Duration::from_millis(100))).unwrap_err().to_string();
        assert_eq!(why, "it does not answer");
        let why = asked("exec >&- 2>&-; sleep 1000", None, Some(Duration::from_millis(100))).unwrap_err().to_string();
        assert_eq!(why, "it does not answer");
        assert!(asked("true", None, Some(Duration::from_secs(1000))).is_ok());
        let why = asked("yes", None, Some(Duration::from_secs(1000))).unwrap_err().to_string();
        assert!(why.contains("more than"), "{why}");
    }
}
