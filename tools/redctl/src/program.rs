//! The command line of `redctl`.

use super::{checkpoints, debug, list, pool, top};
use anyhow::{Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use command_line::{Generate, UsageError, generate_for};
use coordinator_records::quorum::mirror::find_elsewhere;
use job_options::parse_host;
use job_status::{Replica, Status, Who, ask};
use redrt_types::ReplicaId;
use redrt_wire::tree::Question;
use running_jobs::Found;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Look at a running job and change it: end or move replicas, free hosts, raise or lower redundancy. Works on every
/// host of the job, for its user.
#[derive(Parser)]
#[command(name = "redctl", version)]
struct ControlArguments {
    /// The job, if there are several: its identity or the beginning of it
    #[arg(long, value_name = "ID", global = true)]
    job: Option<String>,

    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the jobs on this host, and those that have ended and whose output nobody has seen.
    #[command(visible_alias = "jobs")]
    List(list::ListArguments),
    /// Show ranks, replicas, hosts and the view.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// Show it again and again until the job ends, every SECONDS; 2 if not given.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", require_equals = true,
            value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with = "json")]
        watch: Option<u64>,
    },
    /// Print host and process id of a replica, or of all replicas of a rank, one a line.
    Where {
        /// Rank V, or replica I of it, written V.I.
        #[arg(value_name = "RANK[.REPLICA]")]
        who: Who,
    },
    /// Run a debugger at a replica, here or on its host; at several in windows of tmux.
    Debug(debug::DebugArguments),
    /// Watch a job on the whole terminal, and kill, move, free, save with a key.
    Top,
    /// Kill one replica, as if its process had died.
    Kill {
        /// Replica I of rank V, written V.I.
        replica: ReplicaId,
    },
    /// Move one replica to another host while the job runs. Its rank keeps its redundancy.
    Migrate {
        /// Replica I of rank V, written V.I.
        replica: ReplicaId,
        /// The host; without this, the spare that suits best.
        #[arg(long, value_name = "HOST")]
        to: Option<String>,
        /// Return when it is done.
        #[arg(long)]
        wait: bool,
    },
    /// Move all replicas away from a host, which is free then and not used any more.
    Drain {
        /// The host, as redctl status names it.
        host: String,
        /// Return when it is free.
        #[arg(long)]
        wait: bool,
    },
    /// Raise or lower the number of replicas of each rank.
    Degree {
        /// Number of replicas.
        degree: u16,
        /// Of these ranks only: 0-3,7
        #[arg(long, value_name = "LIST", value_parser = ranges)]
        ranks: Option<Ranges>,
    },
    /// Save the whole job now (redrun --checkpoint), or look after what was saved.
    #[command(args_conflicts_with_subcommands = true)]
    Checkpoint {
        /// The job, if there are several
        #[arg(value_name = "JOB")]
        of_job: Option<String>,
        /// End the job then, with exit code 75; redrun --resume goes on with it.
        #[arg(long)]
        stop: bool,
        #[command(subcommand)]
        work: Option<checkpoints::Work>,
    },
    /// List what was saved of jobs that run, have ended, or were lost.
    Checkpoints(checkpoints::List),
    /// Change where copies can be put.
    #[command(subcommand)]
    Spare(SpareChange),
    /// End the job, as Ctrl-C would.
    Stop,
    /// Print the manual page or completions for a shell.
    #[command(hide = true)]
    Generate {
        /// What to print
        what: Generate,
    },
    /// Look at a pool of spare hosts that jobs share, and change it.
    Pool(pool::PoolArguments),
}

#[derive(Subcommand)]
enum SpareChange {
    /// Let copies be put on a host: a new one, one of the job, or one that was drained.
    Add {
        /// HOST, USER@HOST, or HOST:N for N copies.
        host: String,
    },
}

/// First and last rank of each range.
#[derive(Clone, Debug)]
struct Ranges(Vec<(u32, u32)>);

#[derive(Debug, thiserror::Error)]
#[error("expected ranks, for example 0-3,7")]
struct NotRanks;

fn ranges(text: &str) -> Result<Ranges, NotRanks> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last)| first <= last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    ranges.map(Ranges).ok_or(NotRanks)
}

/// Runs the command line, which includes the program's own name, and returns the exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    let arguments = match command_line::parse_from::<ControlArguments>(arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match run(&arguments) {
        Ok(()) => 0,
        Err(error) => {
            say::error(format_args!("redctl: {error:#}"));
            if error.is::<UsageError>() { command_line::USAGE_EXIT_CODE } else { 1 }
        }
    }
}

fn run(arguments: &ControlArguments) -> Result<()> {
    let question = match &arguments.what {
        What::List(arguments) => return list::run(arguments),
        What::Status { .. } | What::Where { .. } => Question::Status,
        What::Kill { replica } => Question::Kill(*replica),
        What::Migrate { replica, to, .. } => Question::Migrate { replica: *replica, to: to.clone() },
        What::Drain { host, .. } => Question::Drain(host.clone()),
        What::Degree { degree, ranks } => {
            Question::Degree { degree: *degree, ranks: ranks.clone().map_or_else(Vec::new, |ranks| ranks.0) }
        }
        What::Spare(SpareChange::Add { host }) => {
            let (host, place_count) = parse_host(host)?;
            Question::AddSpare { host, place_count }
        }
        What::Stop => Question::Stop,
        What::Checkpoint { work: Some(work), .. } => return checkpoints::work(work),
        What::Checkpoint { stop, .. } => Question::Checkpoint { stop: *stop },
        What::Checkpoints(list) => return checkpoints::list(list),
        What::Pool(arguments) => return pool::run(arguments),
        What::Debug(wanted) => return debug::run(wanted, &running_jobs::find(arguments.job.as_deref())?),
        What::Top => return top::run(arguments.job.as_deref()),
        What::Generate { what } => {
            say::text(&generate_for(ControlArguments::command(), "redctl", *what))?;
            return Ok(());
        }
    };
    let of_job = match &arguments.what {
        What::Checkpoint { of_job: Some(of_job), .. } => Some(of_job.as_str()),
        _ => arguments.job.as_deref(),
    };
    let found = running_jobs::find(of_job).map_err(|error| match find_elsewhere(of_job) {
        Some((job, host)) => anyhow::anyhow!("job {job} has its coordinator on host {host}: redctl there knows it"),
        None => error,
    })?;
    if let What::Status { watch: Some(seconds), .. } = arguments.what {
        return watch(&found, Duration::from_secs(seconds));
    }
    let answer = ask(&found, question)?;
    match &arguments.what {
        What::Status { json: true, .. } => say::line(answer)?,
        What::Status { .. } => {
            let status: Status = serde_json::from_str(&answer)?;
            say::text(say::shown(&status.to_string()).as_bytes())?;
        }
        What::Where { who } => say::text(serde_json::from_str::<Status>(&answer)?.places(*who)?.as_bytes())?,
        _ if !answer.is_empty() => bail!("{answer}"),
        What::Migrate { replica, wait: true, .. } => wait_for(&found, &|at| at.replica == replica.to_string())?,
        What::Drain { host, wait: true } => wait_for(&found, &|at| at.host == *host)?,
        _ => {}
    }
    Ok(())
}

/// Waits until no live replica satisfies `is_meant`. Fails if one will not move.
fn wait_for(found: &Found, is_meant: &dyn Fn(&Replica) -> bool) -> Result<()> {
    loop {
        let status = Status::of(found)?;
        let there = status.ranks.iter().flat_map(|rank| &rank.replicas).filter(|replica| replica.state != "lost");
        let left: Vec<_> = there.filter(|replica| is_meant(replica)).map(|replica| &replica.replica).collect();
        let stays = |replica: &&String| status.moves.iter().all(|one| one.replica != **replica);
        match left.iter().copied().find(stays) {
            _ if left.is_empty() => return Ok(()),
            Some(replica) => bail!("replica {replica} stays where it is; redrun says why"),
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Shows the status repeatedly, until the job ends.
fn watch(found: &Found, interval: Duration) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut is_first = true;
    loop {
        let status = match Status::of(found) {
            Ok(status) => status,
            // The job answered before, so it has ended.
            Err(_) if !is_first => return Ok(say::line(format_args!("job {} has ended", found.job))?),
            Err(error) => return Err(error),
        };
        let table = say::shown(&status.to_string()).into_owned();
        let clear = if is_terminal {
            "\x1b[H\x1b[2J"
        } else if is_first {
            ""
        } else {
            "\n"
        };
        std::io::stdout().write_all(format!("{clear}{table}").as_bytes())?;
        std::io::stdout().flush()?;
        is_first = false;
        std::thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ranges() {
        assert_eq!(ranges("0-3,7").unwrap().0, [(0, 3), (7, 7)]);
        for wrong in ["", "x", "3-1", "1,", "1-2-3"] {
            assert!(ranges(wrong).is_err(), "{wrong}");
        }
    }
}
