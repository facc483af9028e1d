//! `redctl debug`: a debugger for replicas of a job, in this terminal or in one tmux window for each.

use anyhow::{Context, Result, bail};
use command_line::UsageError;
use job_status::{Status, Who};
use running_jobs::Found;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What is asked for.
#[derive(clap::Args, Debug)]
pub struct DebugArguments {
    /// Replicas (V.I), or ranks (V): of those the first replica that runs
    #[arg(value_name = "RANK[.REPLICA]", required = true)]
    who: Vec<Who>,

    /// The debugger; the process id is put behind it
    #[arg(long, value_name = "COMMAND", default_value = "gdb -p")]
    with: String,

    /// How a command is run on another host, with a terminal
    #[arg(long, value_name = "COMMAND", default_value = "ssh -t")]
    launcher: String,

    /// Print the commands in place of running them
    #[arg(long)]
    print: bool,
}

/// Runs the debugger in place of this program, or in windows of tmux for several processes.
///
/// # Errors
/// When a replica does not run, or the debugger or tmux cannot be started.
pub fn run(arguments: &DebugArguments, found: &Found) -> Result<()> {
    let status = Status::of(found)?;
    let windows = arguments.who.iter().map(|who| arguments.window(&status, *who)).collect::<Result<Vec<_>>>()?;
    if arguments.print {
        return windows.iter().try_for_each(|(_, words)| Ok(say::line(words)?));
    }
    let mut command = match &windows[..] {
        [(_, words)] => shell(words),
        _ => tmux(&windows, &found.job),
    };
    // `exec` returns only on failure.
    let program = command.get_program().to_owned();
    let error = command.exec();
    if windows.len() > 1 && error.kind() == std::io::ErrorKind::NotFound {
        return Err(UsageError("several debuggers need tmux, which is not there: name one replica".into()).into());
    }
    Err(error).with_context(|| format!("Failed to run {}", program.display()))
}

impl DebugArguments {
    /// Name and shell command of the window for this replica.
    fn window(&self, status: &Status, who: Who) -> Result<(String, String)> {
        let places = status.places(who)?;
        let first = places.lines().next().unwrap_or_default();
        let [replica, host, pid] = first.split(' ').collect::<Vec<_>>()[..] else { bail!("{first} is no place") };
        let debugger = format!("{} {pid}", self.with);
        let command = match host_addresses::is_here(host) {
            true => debugger,
            false => format!("{} {host} {}", self.launcher, shlex::try_quote(&debugger)?),
        };
        Ok((replica.to_owned(), command))
    }
}

fn shell(words: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("exec {words}")]);
    command
}

/// A session with one window for each replica. Inside tmux, the windows go into the current session.
fn tmux(windows: &[(String, String)], job: &str) -> Command {
    let mut command = Command::new("tmux");
    let is_within = std::env::var_os("TMUX").is_some();
    let session = format!("redrt-{job}");
    for (number, (name, words)) in windows.iter().enumerate() {
        match (number, is_within) {
            (0, false) => command.args(["new-session", "-A", "-s", &session, "-n", name, words]),
            (0, true) => command.args(["new-window", "-n", name, words]),
            _ => command.args([";", "new-window", "-n", name, words]),
        };
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<&str> {
        command.get_args().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn several_debuggers_have_a_window_each() {
        let window = |name: &str, pid: u32| (name.to_owned(), format!("gdb -p {pid}"));
        let command = tmux(&[window("0.0", 7), window("1.0", 8)], "ab");
        let said = words(&command).join(" ");
        assert!(said.contains("-n 0.0 gdb -p 7 ; new-window -n 1.0 gdb -p 8"), "{said}");
        assert_eq!(words(&shell("gdb -p 7")), ["-c", "exec gdb -p 7"]);
    }
}
