//! Fields of `redctl status --json` that are shown, and the table that shows them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod ask;

pub use ask::ask;

use anyhow::{Result, bail};
use job_report::share_text;
use redrt_types::ReplicaId;
use redrt_wire::tree::Question;
use running_jobs::Found;
use serde::Deserialize;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// State of a job.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Status {
    pub job: String,
    pub program: String,
    pub user: String,
    pub state: String,
    pub elapsed_s: f64,
    pub view: u64,
    pub ranks: Vec<Rank>,
    pub redundancy: Redundancy,
    pub checkpoint: Checkpoint,
    pub moves: Vec<Move>,
    pub clones: Vec<Clone>,
    pub hosts: Vec<Host>,
    #[serde(rename = "root")]
    pub coordinator: CoordinatorPlace,
    pub terminal: String,
}

/// Host of a job's coordinator.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct CoordinatorPlace {
    pub host: String,
    /// Hosts that hold the coordinator's records; empty if only the coordinator does.
    pub hosts: Vec<String>,
}

impl Status {
    /// Asks a job for its state.
    ///
    /// # Errors
    /// When the job has ended, or does not answer.
    pub fn of(found: &Found) -> Result<Self> {
        Ok(serde_json::from_str(&ask(found, Question::Status)?)?)
    }

    /// Host and process id of these replicas, one a line. Replicas that do not run are left out.
    ///
    /// # Errors
    /// When none of them runs.
    pub fn places(&self, who: Who) -> Result<String> {
        let is_meant = |replica: &&Replica| match who {
            Who::Rank(rank) => replica.replica.split_once('.').is_some_and(|(of, _)| of == rank.to_string()),
            Who::Replica(one) => replica.replica == one.to_string(),
        };
        let runs = |replica: &&Replica| !matches!(replica.state.as_str(), "lost" | "exited" | "retired");
        let all = self.ranks.iter().flat_map(|rank| &rank.replicas).filter(is_meant).filter(runs);
        let line = |replica: &Replica| Some(format!("{} {} {}\n", replica.replica, replica.host, replica.pid?));
        let lines: String = all.filter_map(line).collect();
        if lines.is_empty() {
            bail!("{who} of job {} does not run", self.job);
        }
        Ok(lines)
    }

    /// The wanted job and its coordinator's host, if consoles can attach to it. `None` otherwise.
    #[must_use]
    pub fn coordinator_of(wanted: Option<&str>) -> Option<(String, String)> {
        let status = Self::of(&running_jobs::find(wanted).ok()?).ok().filter(Self::is_detachable)?;
        Some((status.job, status.coordinator.host))
    }

    /// True if consoles can attach to the job, on its coordinator's host.
    pub fn is_detachable(&self) -> bool {
        self.terminal != "own"
    }

    /// Health of the job in a few words.
    pub fn health(&self) -> String {
        let short_count = self.ranks.iter().filter(|rank| rank.live < rank.degree).count();
        match (self.state.as_str(), short_count) {
            ("running", 0) => "well".into(),
            ("running", count) => format!("{count} of {} ranks short of replicas", self.ranks.len()),
            (state, _) => state.into(),
        }
    }
}

/// A table for people, of several lines.
impl Display for Status {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { job, program, user, state, elapsed_s, view, coordinator, .. } = self;
        writeln!(out, "job {job}: {state}, {elapsed_s:.1} s, view {view}; {program}, of {user}")?;
        if self.is_detachable() {
            let others: Vec<_> =
                coordinator.hosts.iter().filter(|host| **host != coordinator.host).map(String::as_str).collect();
            let with =
                if others.is_empty() { String::new() } else { format!(", kept on {} as well", others.join(", ")) };
            writeln!(out, "coordinator on {}{with}", coordinator.host)?;
        }
        writeln!(out, "\nrank  replicas")?;
        for rank in &self.ranks {
            let replicas: Vec<_> = rank.replicas.iter().map(Replica::to_string).collect();
            writeln!(out, "{:>4}  {}", rank.rank, replicas.join(", "))?;
        }
        if let Some(share) = self.redundancy.protected_share {
            writeln!(out, "\n{} of rank hours had all replicas", share_text(share))?;
            for Shortage { rank, short_s, single_s, missing } in &self.redundancy.ranks {
                writeln!(
                    out,
                    "{rank:>4}  short for {short_s:.1} s, only one replica for {single_s:.1} s, {missing} missing now"
                )?;
            }
        }
        writeln!(out, "\nhost                 processes  state")?;
        for Host { host, processes, state } in &self.hosts {
            writeln!(out, "{host:<20} {processes:>9}  {state}")?;
        }
        Ok(())
    }
}

impl Display for Replica {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { replica, host, state, retention_bytes: kept, window_messages: open, .. } = self;
        write!(out, "{replica} on {host}{}: {state}", self.pid.map_or_else(String::new, |pid| format!(" ({pid})")))?;
        if kept + open > 0 {
            write!(out, " ({kept} bytes kept, {open} messages open)")?;
        }
        Ok(())
    }
}

/// A replica, or all replicas of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// All replicas of this rank.
    Rank(u32),
    /// This replica.
    Replica(ReplicaId),
}

/// A text is neither a rank nor a replica.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a rank or a replica, for example 3 or 3.1")]
pub struct NotWho;

impl FromStr for Who {
    type Err = NotWho;

    fn from_str(text: &str) -> Result<Self, NotWho> {
        let rank = text.parse().map(Self::Rank);
        rank.or_else(|_| text.parse().map(Self::Replica)).map_err(|_| NotWho)
    }
}

impl Display for Who {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rank(rank) => write!(out, "rank {rank}"),
            Self::Replica(replica) => write!(out, "replica {replica}"),
        }
    }
}

/// State of a virtual rank and its replicas.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Rank {
    pub rank: u32,
    /// Number of replicas that the rank is to have.
    pub degree: usize,
    pub live: usize,
    pub replicas: Vec<Replica>,
}

/// Seconds of waiting after which a rank counts as held up: messages take their time.
const WAIT_S: f64 = 5.0;

impl Status {
    /// Ranks that hold others up, as far as it can be seen from outside: while some ranks have waited for long, these
    /// do not wait.
    pub fn holding_up(&self) -> Vec<u32> {
        let waits = |rank: &Rank, time_min: f64| rank.replicas.iter().any(|replica| replica.waits_s > time_min);
        let runs = |rank: &Rank| rank.replicas.iter().any(|replica| replica.state == "running");
        if self.state != "running" || !self.ranks.iter().any(|rank| waits(rank, WAIT_S)) {
            return Vec::new();
        }
        self.ranks.iter().filter(|rank| runs(rank) && !waits(rank, 0.0)).map(|rank| rank.rank).collect()
    }
}

/// State of a replica.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Replica {
    pub replica: String,
    pub host: String,
    /// Process id on its host. `None` while it does not run.
    pub pid: Option<i32>,
    pub state: String,
    pub retention_bytes: u64,
    pub window_messages: u64,
    pub memory_bytes: u64,
    /// Longest time that it has waited for its siblings.
    pub stall_ms_max: f64,
    /// Seconds that it has been waiting in MPI; 0 if it computes.
    pub waits_s: f64,
}

/// Redundancy of the job over time.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Redundancy {
    /// Part of all rank hours with all replicas. `None` if no rank was to be protected.
    pub protected_share: Option<f64>,
    pub ranks: Vec<Shortage>,
}

/// Time for which a rank lacked replicas.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Shortage {
    pub rank: u32,
    pub short_s: f64,
    pub single_s: f64,
    pub missing: u64,
}

/// Numbers of checkpoints.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Checkpoint {
    pub newest: Option<u64>,
    pub under_way: Option<u64>,
    pub progress: Option<Progress>,
}

/// A request to move a replica.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Move {
    pub replica: String,
    pub to: Option<String>,
}

/// A copy under way.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Clone {
    pub replica: String,
    pub source: String,
    pub host: String,
    pub progress: Option<Progress>,
}

/// Progress of a copy or a checkpoint.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Progress {
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub bytes_per_second: f64,
}

/// State of a host.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Host {
    pub host: String,
    pub state: String,
    pub processes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: &str) -> Status {
        let status = serde_json::json!({
            "job": "00ab", "program": "./app", "user": "me", "state": state, "elapsed_s": 1.5, "view": 3,
            "ranks": [{ "rank": 0, "degree": 2, "live": 1, "replicas": [{ "replica": "0.1", "host": "h2", "pid": 7,
                "state": "lost", "retention_bytes": 96, "window_messages": 3, "memory_bytes": 1, "stall_ms_max": 0.5,
                "waits_s": 0.0 }] }],
            "hosts": [{ "host": "h2", "processes": 4, "state": "dead" }], "moves": [], "clones": [],
            "root": { "host": "h1", "hosts": ["h1", "h2", "h3"] }, "terminal": "detached",
            "checkpoint": { "newest": null, "under_way": null, "progress": null },
            "redundancy": {
                "protected_share": 0.825, "ranks": [{ "rank": 0, "short_s": 14.0, "single_s": 13.5, "missing": 1 }],
            },
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn the_table_names_ranks_replicas_and_hosts() {
        let table = status("running").to_string();
        for part in [
            "job 00ab: running, 1.5 s, view 3; ./app, of me",
            "coordinator on h1, kept on h2, h3 as well\n",
            "0.1 on h2 (7): lost (96 bytes kept, 3 messages open)",
            "h2                           4  dead",
            "   0  0.1 on h2 (7)",
            "82.5 % of rank hours had all replicas",
            "   0  short for 14.0 s, only one replica for 13.5 s, 1 missing now",
        ] {
            assert!(table.contains(part), "{table}");
        }
    }

    #[test]
    fn a_place_is_that_of_a_process_which_runs() {
        let mut status = status("running");
        let places =
            |status: &Status, who: &str| status.places(who.parse().unwrap()).map_err(|error| error.to_string());
        assert_eq!(places(&status, "0.1"), Err("replica 0.1 of job 00ab does not run".into()));
        status.ranks[0].replicas[0].state = "running".into();
        assert_eq!(places(&status, "0.1").as_deref(), Ok("0.1 h2 7\n"));
        assert_eq!(places(&status, "0").as_deref(), Ok("0.1 h2 7\n"));
        assert_eq!(places(&status, "1"), Err("rank 1 of job 00ab does not run".into()));
        for text in ["", ".", "x", "1.", "-1", "1.1.1"] {
            assert_eq!(text.parse::<Who>(), Err(NotWho), "{text}");
        }
    }

    #[test]
    fn health_is_what_is_missing_or_what_the_job_does() {
        assert_eq!(status("running").health(), "1 of 1 ranks short of replicas");
        assert_eq!(status("starting").health(), "starting");
        let mut whole = status("running");
        whole.ranks[0].live = 2;
        assert_eq!(whole.health(), "well");
    }
}
