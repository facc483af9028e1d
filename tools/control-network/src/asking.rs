//! Questions to hosts on which no daemon runs: a program of redrt is started there, and what it prints is the answer.

use super::launcher::{dies_with_this, shell_on};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use redrt_wire::daemon::HostName;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Limit for the hosts that are asked at a time.
const ASKED_COUNT_MAX: usize = 32;

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
            let ask = |host, words| scope.spawn(move || run(&mut command(way, host, words)?, input, limit));
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

fn run(command: &mut Command, input: Option<&str>, limit: Option<Duration>) -> Result<Vec<u8>> {
    // A launcher may start others, which hold its output open.
    dies_with_this(command);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("Failed to run {}", command.get_program().display()))?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // A process that has failed already reports its reason.
        let _ = pipe.write_all(input.as_bytes());
    }
    let (mut answer, mut errors) = (Vec::new(), Vec::new());
    let (output, error) = (child.stdout.take(), child.stderr.take());
    let (has_ended, ends) = mpsc::channel::<()>();
    // The child is reaped after that thread has ended, so its number is its own.
    let pid = Pid::from_raw(child.id().cast_signed());
    let is_late = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let is_late = limit.is_some_and(|limit| ends.recv_timeout(limit) == Err(RecvTimeoutError::Timeout));
            if is_late {
                // It may have ended meanwhile.
                let _ = killpg(pid, Signal::SIGKILL);
            }
            is_late
        });
        let read = scope.spawn(|| error.map(|mut error| error.read_to_end(&mut errors)));
        let got = output.map(|mut output| output.read_to_end(&mut answer));
        let told = read.join().expect("reading does not panic");
        drop(has_ended);
        let is_late = watch.join().expect("waiting does not panic");
        got.into_iter().chain(told).find_map(Result::err).map_or(Ok(is_late), Err)
    });
    let is_late = is_late.context("Failed to hear of a host")?;
    let status = child.wait().context("Failed to hear of a host")?;
    if is_late {
        bail!("it does not answer");
    }
    if !status.success() {
        let said = String::from_utf8_lossy(&errors).into_owned();
        bail!("it cannot be asked: {}", say::shown(said.trim().lines().last().unwrap_or("it has said nothing")));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str, input: Option<&str>, limit: Option<Duration>) -> Result<Vec<u8>> {
        run(Command::new("sh").args(["-c", line]), input, limit)
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
        assert!(asked("true", None, Some(Duration::from_secs(1000))).is_ok());
    }
}
