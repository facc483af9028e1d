//! Replicas of one rank that took different paths, as a line and as a record.

use redrt_types::ReplicaId;
use redrt_wire::event::{Action, Finding, PathMismatch};
use serde_json::{Value, json};

/// One line for the user.
pub(crate) fn line(path: &PathMismatch, host: &dyn Fn(ReplicaId) -> String) -> String {
    let names = |replicas: &[ReplicaId]| {
        let named: Vec<_> = replicas.iter().map(|replica| format!("{replica} on {}", host(*replica))).collect();
        named.join(" and ")
    };
    let finding = match path.finding {
        Finding::ReplicaCorrupt => {
            format!("replica {} is corrupt, outvoted by its siblings", names(&path.culprits))
        }
        _ if path.action == Action::Disputed => "there is no majority".to_owned(),
        Finding::TransportCorrupt | Finding::Undecidable => {
            "there is no majority, and nobody can say who is right".to_owned()
        }
    };
    let action = match path.action {
        Action::Aborted => "ending the job",
        Action::Outvoted => "the majority goes on",
        Action::Disputed => "copies that were made before are asked",
        _ if path.parted.is_empty() => "written as the rank's leader has it",
        _ => "the rank's leader goes on",
    };
    format!("silent data corruption: {path}: {finding}; {action}")
}

/// The record of the audit log.
pub(crate) fn record(path: &PathMismatch, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let step = |step: &redrt_wire::event::Step| {
        json!({
            "replica": step.replica.to_string(), "host": host(step.replica), "did": step.what, "calls": step.calls,
            "stack": step.stack.iter().map(|frame| json!({ "file": frame.file, "offset": frame.offset }))
                .collect::<Vec<_>>(),
        })
    };
    let names = |replicas: &[ReplicaId]| replicas.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "rank": path.rank.0, "thread": path.thread, "outcome": path.outcome,
        "steps": path.steps.iter().map(step).collect::<Vec<_>>(), "finding": path.finding,
        "culprits": names(&path.culprits), "hosts": path.culprits.iter().map(|it| host(*it)).collect::<Vec<_>>(),
        "parted": names(&path.parted), "action": path.action, "view": path.view.0,
    })
}
