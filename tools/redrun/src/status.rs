//! The answer to `redctl status`: ranks, replicas, hosts. Processes report counters when they are asked for a
//! standstill, about once a second; the last report is shown.

use super::clones::progress_json;
use super::{Shell, redundancy};
use nix::unistd::{User, geteuid};
use redrt_types::{ReplicaId, VirtualRank};
use serde_json::{Value, json};

/// Rounded to 0.01 ms.
pub(super) fn milliseconds(ns: u64) -> f64 {
    (ns as f64 / 1e4).round() / 100.0
}

/// Name of the job's user, or the number of a user without one.
pub(super) fn user_name() -> String {
    let user = geteuid();
    User::from_uid(user).ok().flatten().map_or_else(|| user.to_string(), |user| user.name)
}

impl Shell<'_> {
    /// Programs by the names that the user gave.
    pub(super) fn program_names(&self) -> String {
        let names = self.job.applications.iter().filter_map(|application| application.arguments.first());
        names.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" : ")
    }

    pub(super) fn status(&self) -> Value {
        let world = self.root.coordinator().world();
        let states: Vec<_> = self.root.coordinator().states().collect();
        let replica = |replica| {
            let state = states[world.process(replica).0 as usize];
            let latest = self.root.coordinator().latest(replica);
            json!({
                "replica": replica.to_string(), "host": self.host_name(replica), "state": state,
                "pid": self.root.coordinator().pid(replica),
                "retention_bytes": latest.retention_bytes, "retention_messages": latest.retention_messages,
                "window_messages": latest.window_messages, "stall_ms_max": milliseconds(latest.stall_ns_max),
                "memory_bytes": latest.resident_bytes,
                "messages_sent": latest.messages_sent, "bytes_sent": latest.bytes_sent,
                "messages_compared": latest.messages_compared, "bytes_compared": latest.bytes_compared,
                "waits_s": self.root.coordinator().waits(replica, self.now()).as_secs_f64(),
            })
        };
        let rank = |rank: u32| {
            let is_there = |replica: &ReplicaId| states[world.process(*replica).0 as usize] != "free";
            let replicas: Vec<_> = world.sphere(VirtualRank(rank)).filter(is_there).map(replica).collect();
            let live = self.root.coordinator().view().live(VirtualRank(rank)).count();
            let degree = self.root.coordinator().degree(VirtualRank(rank));
            json!({ "rank": rank, "degree": degree, "live": live, "replicas": replicas })
        };
        let host = |host: u32| {
            let state = if self.fleet.is_dead(host) { "dead" } else { "alive" };
            let process_count = self.root.placement().iter().filter(|at| **at == Some(host)).count();
            json!({ "host": self.fleet.name(host), "state": state, "processes": process_count })
        };
        let to = |host: Option<u32>| host.map(|host| self.fleet.name(host).to_owned());
        let moves = self
            .root
            .coordinator()
            .leaving()
            .map(|(replica, host)| json!({ "replica": replica.to_string(), "to": to(host) }));
        let host_count = self.fleet.plan().hosts.len() as u32;
        json!({
            "job": format!("{:016x}", self.job_number), "program": self.program_names(), "user": user_name(),
            "state": self.root.coordinator().phase(),
            "elapsed_s": (self.now().as_secs_f64() * 10.0).round() / 10.0, "view": self.root.coordinator().view().number.0,
            "ranks": (0..world.rank_count()).map(rank).collect::<Vec<_>>(),
            "redundancy": redundancy::json(self.root.coordinator().redundancy(), self.now()),
            "checkpoint": { "newest": self.root.coordinator().newest_line().map(|line| line.0),
                "under_way": self.root.coordinator().line_under_way().map(|line| line.0),
                "progress": self.root.checkpoint_progress().map(|(_, progress)| progress_json(&progress)) },
            "root": { "host": self.fleet.own_name(), "hosts": self.council.hosts },
            "terminal": match &self.seat {
                None => "own",
                Some(seat) if seat.is_attached() => "attached",
                Some(_) => "detached",
            },
            "moves": moves.collect::<Vec<_>>(), "clones": self.clones.status(|replica| self.host_name(replica)),
            "hosts": (0..host_count).map(host).collect::<Vec<_>>(),
        })
    }
}
