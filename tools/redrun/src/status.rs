//! The answer to `redctl status`: ranks, replicas, hosts. Processes report counters when they are asked for a
//! standstill, about once a second; the last report is shown.

use super::clones::{Clones, progress_json};
use super::redundancy;
use super::run::Run;
use job_console::consoles::Consoles;
use nix::unistd::{User, geteuid};
use redrt_types::{ReplicaId, VirtualRank};
use replication_manager::CheckpointWatch;
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

/// The answer, as JSON.
pub(super) fn status(
    run: &Run<'_>,
    consoles: Option<&Consoles>,
    coordinator_hosts: &[String],
    clones: &Clones,
) -> Value {
    let world = run.coordinator.manager().world();
    let states: Vec<_> = run.coordinator.manager().members().states().collect();
    let replica = |replica| {
        let state = states[world.process(replica).0 as usize];
        let latest = run.coordinator.manager().members().latest(replica);
        json!({
            "replica": replica.to_string(), "host": run.host_name(replica), "state": state,
            "pid": run.coordinator.manager().members().pid(replica),
            "retention_bytes": latest.retention_bytes, "retention_messages": latest.retention_messages,
            "window_messages": latest.window_messages, "stall_ms_max": milliseconds(latest.stall_ns_max),
            "memory_bytes": latest.resident_bytes,
            "messages_sent": latest.messages_sent, "bytes_sent": latest.bytes_sent,
            "messages_compared": latest.messages_compared, "bytes_compared": latest.bytes_compared,
            "waits_s": run.coordinator.manager().waits(replica, run.now()).as_secs_f64(),
        })
    };
    let rank = |rank: u32| {
        let is_there = |replica: &ReplicaId| states[world.process(*replica).0 as usize] != "free";
        let replicas: Vec<_> = world.sphere(VirtualRank(rank)).filter(is_there).map(replica).collect();
        let live = run.coordinator.manager().view().live(VirtualRank(rank)).count();
        let degree = run.coordinator.manager().members().degree(VirtualRank(rank));
        json!({ "rank": rank, "degree": degree, "live": live, "replicas": replicas })
    };
    let host = |host: u32| {
        let state = if run.fleet.is_dead(host) { "dead" } else { "alive" };
        let process_count = run.coordinator.placement().iter().filter(|at| **at == Some(host)).count();
        json!({ "host": run.fleet.name(host), "state": state, "processes": process_count })
    };
    let to = |host: Option<u32>| host.map(|host| run.fleet.name(host).to_owned());
    let moves = run
        .coordinator
        .manager()
        .leaving()
        .map(|(replica, host)| json!({ "replica": replica.to_string(), "to": to(host) }));
    let host_count = run.fleet.plan().hosts.len() as u32;
    let newest = run.coordinator.manager().checkpoint().and_then(CheckpointWatch::newest);
    json!({
        "job": format!("{:016x}", run.number), "program": run.program_names(), "user": user_name(),
        "state": run.coordinator.manager().course().phase(),
        "elapsed_s": (run.now().as_secs_f64() * 10.0).round() / 10.0, "view": run.coordinator.manager().view().number.0,
        "ranks": (0..world.rank_count()).map(rank).collect::<Vec<_>>(),
        "redundancy": redundancy::json(run.coordinator.manager().redundancy(), run.now()),
        "checkpoint": { "newest": newest.map(|newest| newest.0),
            "under_way": run.coordinator.manager().checkpoint_under_way().map(|checkpoint| checkpoint.0),
            "progress": run.coordinator.checkpoint_progress().map(|(_, progress)| progress_json(&progress)) },
        "root": { "host": run.fleet.own_name(), "hosts": coordinator_hosts },
        "terminal": match consoles {
            None => "own",
            Some(consoles) if consoles.is_attached() => "attached",
            Some(_) => "detached",
        },
        "moves": moves.collect::<Vec<_>>(), "clones": clones.status(|replica| run.host_name(replica)),
        "hosts": (0..host_count).map(host).collect::<Vec<_>>(),
    })
}
