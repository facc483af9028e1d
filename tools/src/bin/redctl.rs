//! `redctl`: looks at a running job and changes it, from any of its hosts.

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use job_report::share_text;
use redrt_tools::cli::{Generate, UsageError, generate_for, parse_host};
use redrt_tools::jobs::{self, Found};
use redrt_tools::redctl::ask::ask;
use redrt_tools::redctl::{checkpoints, pool, top};
use redrt_tools::terminal::client;
use redrt_types::ReplicaId;
use redrt_wire::tree::Question;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Look at a running job and change it: end or move replicas, free hosts, raise or lower redundancy. Works on every
/// host of the job, for its user.
#[derive(Parser)]
#[command(name = "redctl", version)]
struct Arguments {
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
    List,
    /// Show ranks, replicas, hosts and the view.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
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
    Pool(pool::Arguments),
}

#[derive(Subcommand)]
enum SpareChange {
    /// Let copies be put on a host: a new one, one of the job, or one that was drained.
    Add {
        /// HOST, USER@HOST, or HOST:N for N copies.
        host: String,
    },
}

/// First and last ranks.
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

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(format_args!("redctl: {error:#}"));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let question = match &arguments.what {
        What::List => {
            return list();
        }
        What::Status { .. } => Question::Status,
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
        What::Top => return top::run(arguments.job.as_deref()),
        What::Generate { what } => {
            say::text(&generate_for(Arguments::command(), "redctl", *what))?;
            return Ok(());
        }
    };
    let of_job = match &arguments.what {
        What::Checkpoint { of_job: Some(of_job), .. } => Some(of_job.as_str()),
        _ => arguments.job.as_deref(),
    };
    let found = jobs::find(of_job)?;
    let answer = ask(&found, question)?;
    match &arguments.what {
        What::Status { json: false } => say::text(say::shown(&table(&serde_json::from_str(&answer)?)?).as_bytes())?,
        What::Status { json: true } => say::line(answer)?,
        _ if !answer.is_empty() => bail!("{answer}"),
        What::Migrate { replica, wait: true, .. } => wait_for(&found, &|at| at.replica == replica.to_string())?,
        What::Drain { host, wait: true } => wait_for(&found, &|at| at.host == *host)?,
        _ => {}
    }
    Ok(())
}

/// What runs here, and what waits to be attached to.
fn list() -> Result<()> {
    let running = jobs::find_all()?;
    let seats: Vec<_> = client::seats().into_iter().map(|(job, _)| job).collect();
    for found in &running {
        let is_detachable = seats.contains(&found.job);
        let note = if is_detachable { " detachable" } else { "" };
        say::line(format_args!("{} {}{note}", found.job, found.address))?;
    }
    for job in seats.iter().filter(|job| running.iter().all(|found| found.job != **job)) {
        say::line(format_args!("{job} ended: redrun --attach {job} shows the rest of its output"))?;
    }
    Ok(())
}

/// A replica and where it is.
struct At {
    replica: String,
    host: String,
}

/// Waits until no replica is there that is meant.
fn wait_for(found: &Found, is_meant: &dyn Fn(&At) -> bool) -> Result<()> {
    loop {
        let status: Value = serde_json::from_str(&ask(found, Question::Status)?)?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let moves: Vec<_> = list(&status["moves"]).iter().map(|one| text(&one["replica"])).collect();
        let replicas = list(&status["ranks"]).into_iter().flat_map(|rank| list(&rank["replicas"]));
        let there = replicas.filter(|replica| text(&replica["state"]) != "lost");
        let there = there.map(|replica| At { replica: text(&replica["replica"]), host: text(&replica["host"]) });
        let left: Vec<_> = there.filter(is_meant).map(|at| at.replica).collect();
        match left.iter().find(|replica| !moves.contains(replica)) {
            _ if left.is_empty() => return Ok(()),
            Some(replica) => bail!("replica {replica} stays where it is; redrun says why"),
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The status for people.
fn table(status: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = format!(
        "job {}: {}, {} s, view {}\n\nrank  replicas\n",
        text(&status["job"]),
        text(&status["state"]),
        text(&status["elapsed_s"]),
        status["view"]
    );
    for rank in list(&status["ranks"]) {
        let replicas: Vec<_> = list(&rank["replicas"])
            .iter()
            .map(|replica| {
                let (name, host) = (text(&replica["replica"]), text(&replica["host"]));
                let kept = replica["retention_bytes"].as_u64().unwrap_or(0);
                let open = replica["window_messages"].as_u64().unwrap_or(0);
                let kept =
                    if kept + open > 0 { format!(" ({kept} bytes kept, {open} messages open)") } else { String::new() };
                format!("{name} on {host}: {}{kept}", text(&replica["state"]))
            })
            .collect();
        out += &format!("{:>4}  {}\n", text(&rank["rank"]), replicas.join(", "));
    }
    if let Some(share) = status["redundancy"]["protected_share"].as_f64() {
        out += &format!("\n{} of rank hours had all replicas\n", share_text(share));
        for rank in list(&status["redundancy"]["ranks"]) {
            let seconds = |name: &str| rank[name].as_f64().unwrap_or(0.0);
            out += &format!(
                "{:>4}  short for {:.1} s, only one replica for {:.1} s, {} missing now\n",
                text(&rank["rank"]),
                seconds("short_s"),
                seconds("single_s"),
                rank["missing"]
            );
        }
    }
    out += "\nhost                 processes  state\n";
    for host in list(&status["hosts"]) {
        out += &format!("{:<20} {:>9}  {}\n", text(&host["host"]), text(&host["processes"]), text(&host["state"]));
    }
    Ok(out)
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

    #[test]
    fn the_table_names_ranks_replicas_and_hosts() {
        let status = serde_json::json!({
            "job": "00ab", "state": "running", "elapsed_s": 1.5, "view": 3,
            "ranks": [{ "rank": 0, "replicas": [{ "replica": "0.1", "host": "h2", "state": "lost", "retention_bytes": 96, "window_messages": 3 }] }],
            "hosts": [{ "host": "h2", "processes": 4, "state": "dead" }],
            "redundancy": {
                "protected_share": 0.825, "ranks": [{ "rank": 0, "short_s": 14.0, "single_s": 13.5, "missing": 1 }],
            },
        });
        let table = table(&status).unwrap();
        for part in [
            "job 00ab: running, 1.5 s, view 3",
            "0.1 on h2: lost (96 bytes kept, 3 messages open)",
            "h2                           4  dead",
            "   0  0.1 on h2",
            "82.5 % of rank hours had all replicas",
            "   0  short for 14.0 s, only one replica for 13.5 s, 1 missing now",
        ] {
            assert!(table.contains(part), "{table}");
        }
    }
}
