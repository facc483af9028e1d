//! Replicas of one rank that took different paths, as a line and as a record.

use redrt_types::ReplicaId;
use redrt_wire::event::{Action, Finding, OutcomeId, PathMismatch, PathStack, Step};
use redrt_wire::trace::Trace;
use serde_json::{Value, json};

/// The line for the user.
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
        Action::Aborted => "no process goes on",
        Action::Outvoted => "the majority goes on",
        Action::Disputed => "copies that were made before are asked",
        _ if path.parted.is_empty() => "written as the rank's leader has it",
        _ => "the rank's leader goes on",
    };
    format!("silent data corruption: {path}: {finding}; {action}")
}

/// The record of the audit log.
pub(crate) fn record(path: &PathMismatch, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let step = |step: &Step| {
        json!({
            "replica": step.replica.to_string(), "host": host(step.replica), "did": step.what, "calls": step.calls,
        })
    };
    let names = |replicas: &[ReplicaId]| replicas.iter().map(ToString::to_string).collect::<Vec<_>>();
    let OutcomeId { rank, course, index } = path.outcome;
    json!({
        "rank": rank.0, "thread": course.thread(), "of": course.to_string(), "outcome": index,
        "steps": path.steps.iter().map(step).collect::<Vec<_>>(), "finding": path.finding,
        "culprits": names(&path.culprits), "hosts": path.culprits.iter().map(|it| host(*it)).collect::<Vec<_>>(),
        "parted": names(&path.parted), "action": path.action, "view": path.view.0,
    })
}

/// The record of a replica's stack.
pub(crate) fn stack_record(stack: &PathStack, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let OutcomeId { rank, course, index } = stack.outcome;
    json!({
        "rank": rank.0, "thread": course.thread(), "of": course.to_string(), "outcome": index,
        "replica": stack.replica.to_string(), "host": host(stack.replica), "stack": frames(&stack.trace),
    })
}

/// The frames of a stack, innermost first.
pub(crate) fn frames(trace: &Trace) -> Value {
    trace.frames.iter().map(|frame| json!({ "file": frame.file, "offset": frame.offset })).collect()
}
