//! Reports of standard output that differs between replicas.

use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::event::Action;
use replica_output::mismatch::{OutputMismatch, Side};
use serde_json::{Value, json};

fn names(rank: VirtualRank, side: &Side) -> impl Iterator<Item = ReplicaId> + '_ {
    side.replicas.iter().map(move |index| ReplicaId { rank, index: *index })
}

fn printed(side: &Side) -> String {
    match (side.text.is_empty(), side.has_ended) {
        (true, true) => "nothing more".into(),
        _ => format!("{:?}", String::from_utf8_lossy(&side.text)),
    }
}

/// The line for the user.
pub fn line(
    rank: VirtualRank,
    mismatch: &OutputMismatch,
    action: Action,
    host: &dyn Fn(ReplicaId) -> String,
) -> String {
    let OutputMismatch { line, column, culprit, sides, given_up } = mismatch;
    let finding = match culprit.map(|index| ReplicaId { rank, index }) {
        Some(culprit) => format!("replica {culprit} on {} is corrupt, outvoted by its siblings", host(culprit)),
        None => "replicas differ and there is no majority".into(),
    };
    let sides = sides.iter().map(|side| {
        let names: Vec<_> = names(rank, side).map(|name| name.to_string()).collect();
        format!("{} from {}", printed(side), names.join(", "))
    });
    let action = match action {
        Action::Aborted => "no process goes on",
        Action::Delivered | Action::Withheld | Action::Disputed => "the first is shown",
        Action::Outvoted | Action::Refetched => "what they agree on is shown",
    };
    let given_up: Vec<_> = given_up.iter().map(|index| ReplicaId { rank, index: *index }.to_string()).collect();
    let given_up = match given_up.is_empty() {
        true => String::new(),
        false => format!("; the output of {} is compared no more", given_up.join(", ")),
    };
    format!(
        "silent data corruption: line {line} of the standard output of rank {rank}, byte {column}: {finding}: {}; {action}{given_up}",
        sides.collect::<Vec<_>>().join("; ")
    )
}

/// The record of the audit log.
pub fn record(
    rank: VirtualRank,
    mismatch: &OutputMismatch,
    action: Action,
    host: &dyn Fn(ReplicaId) -> String,
) -> Value {
    let culprit = mismatch.culprit.map(|index| ReplicaId { rank, index });
    let side = |side: &Side| {
        let replicas: Vec<_> =
            names(rank, side).map(|replica| json!({ "replica": replica.to_string(), "host": host(replica) })).collect();
        json!({ "replicas": replicas, "text": String::from_utf8_lossy(&side.text), "ended": side.has_ended })
    };
    let given_up: Vec<_> =
        mismatch.given_up.iter().map(|index| ReplicaId { rank, index: *index }.to_string()).collect();
    json!({
        "rank": rank.0, "line": mismatch.line, "column": mismatch.column,
        "finding": if culprit.is_some() { "replica-corrupt" } else { "undecidable" },
        "culprit": culprit.map(|culprit| culprit.to_string()), "host": culprit.map(host),
        "sides": mismatch.sides.iter().map(side).collect::<Vec<_>>(), "action": action, "given_up": given_up,
    })
}
