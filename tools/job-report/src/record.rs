//! Records of the audit log.

use crate::words::{drain_command, line_failure, refusal_text};
use crate::{output, path};
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::Proof;
use redrt_wire::event::{Event, Evidence, Mismatch, ReadingAlone, Vote};
use redrt_wire::exit::Exit;
use replication_manager::scrub::{self, Difference};
use replication_manager::{Arbiter, Arbitration, Purpose, Recovered, Unproven};
use replication_manager::{Back, EndReason, Loss, NoReturn, RESTARTS_MAX, Report, RetireReason};
use replication_manager::{Laggard, SlowHost};
use serde_json::{Value, json};

/// Name and fields of a report's record.
#[must_use]
pub fn record(report: &Report, host: &dyn Fn(ReplicaId) -> String) -> (&'static str, Value) {
    match report {
        Report::Lost(loss) => ("replica-lost", loss_record(loss, host)),
        Report::CloneBegun { replica, source, purpose, host } => (
            "clone",
            json!({
                "replica": replica.to_string(), "source": source.to_string(), "host": host,
                "purpose": purpose_name(*purpose),
            }),
        ),
        Report::CopyHeld { replica, source } => {
            ("held", json!({ "replica": replica.to_string(), "source": source.to_string(), "host": host(*replica) }))
        }
        Report::NotHeld { rank, why } => ("not-held", json!({ "rank": rank.0, "why": why.to_string() })),
        Report::Disputed(mismatch) => ("dispute", mismatch_record(mismatch, host)),
        Report::DisputedPath(path) => ("dispute", path::record(path, host)),
        Report::Arbitrated(arbitration) => ("arbitration", arbitration_record(arbitration, host)),
        Report::CopyRuns { replica, pid } => {
            ("copy-runs", json!({ "replica": replica.to_string(), "host": host(*replica), "pid": pid }))
        }
        Report::CloneFailed { replica, source, host, why } => (
            "clone-failed",
            json!({
                "replica": replica.to_string(), "source": source.to_string(), "host": host, "what": why.to_string(),
            }),
        ),
        Report::CheckpointTaken { generation, stopped, longest, steps, held, elapsed, bytes, kept_bytes } => (
            "checkpoint",
            json!({
                "generation": generation.0, "stopped_ms": stopped.as_secs_f64() * 1e3, "replica": longest.to_string(),
                "steps_ms": steps.iter().map(|step| (step.name.as_str(), step.ns as f64 / 1e6)).collect::<Vec<_>>(),
                "held_ms": held.as_secs_f64() * 1e3, "seconds": elapsed.as_secs_f64(),
                "bytes": bytes, "kept_bytes": kept_bytes,
            }),
        ),
        Report::CheckpointFailed { generation, why } => {
            ("checkpoint-failed", json!({ "generation": generation.0, "why": line_failure(why, host) }))
        }
        Report::CheckpointKept { generation } => ("checkpoint-kept", json!({ "generation": generation.0 })),
        Report::CheckpointAwaitsStart { missing } => {
            let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
            ("checkpoint-awaits-start", json!({ "missing": missing }))
        }
        Report::StoreAwaited { generation } => ("store-awaited", json!({ "generation": generation.0 })),
        Report::PlaneLost { replica, others } => {
            let others: Vec<_> = others.iter().map(ToString::to_string).collect();
            ("plane-lost", json!({ "replica": replica.to_string(), "others": others }))
        }
        Report::NoSpare { replica, why, .. } => ("no-spare", json!({ "replica": replica.to_string(), "why": why })),
        Report::Leaving { replica, to } => {
            ("leaving", json!({ "replica": replica.to_string(), "host": host(*replica), "to": to }))
        }
        Report::Left { replica } => ("left", json!({ "replica": replica.to_string(), "host": host(*replica) })),
        Report::Stays { replica, why } => {
            ("stays", json!({ "replica": replica.to_string(), "host": host(*replica), "why": why.to_string() }))
        }
        Report::Degree { degree, rank_count } => ("degree", json!({ "degree": degree, "ranks": rank_count })),
        Report::HostFree { host } => ("host-free", json!({ "host": host })),
        Report::PlaceLost { replica, why } => {
            ("place-lost", json!({ "replica": replica.to_string(), "host": host(*replica), "why": why }))
        }
        Report::Recovered(recovered) => {
            let name = if recovered.purpose == Purpose::Loss { "recovered" } else { "joined" };
            (name, recovered_record(recovered, host))
        }
        Report::Exited { replica, exit } => {
            ("exit", json!({ "replica": replica.to_string(), "host": host(*replica), "exit": exit_record(*exit) }))
        }
        Report::Suspected { replica, by } => {
            ("suspect", json!({ "replica": replica.to_string(), "by": by.to_string() }))
        }
        Report::Refused(refusal) => {
            let name = |replica: ReplicaId| replica.to_string();
            ("refused", json!({ "by": refusal.by.map(name), "peer": refusal.peer.map(name), "what": refusal.what }))
        }
        Report::DaemonLost { host, why, process_count } => {
            ("daemon-lost", json!({ "host": host, "why": why, "processes": process_count }))
        }
        Report::Event(Event::Mismatch(mismatch)) => ("mismatch", mismatch_record(mismatch, host)),
        Report::Event(Event::Evidence(evidence)) => ("evidence", evidence_record(evidence, host)),
        Report::Event(Event::Path(path)) => ("path", path::record(path, host)),
        Report::Event(Event::PathStack(stack)) => ("path-stack", path::stack_record(stack, host)),
        Report::Event(Event::Divergence { replica, parting }) => {
            let what = parting.to_string();
            ("divergence", json!({ "replica": replica.to_string(), "host": host(*replica), "what": what }))
        }
        Report::Event(Event::ReadingAlone(alone)) => {
            let ReadingAlone { replica, thread, clock, trace } = &**alone;
            let what = alone.to_string();
            (
                "reading-alone",
                json!({
                    "replica": replica.to_string(), "host": host(*replica), "what": what, "clock": clock,
                    "thread": thread, "stack": path::frames(trace),
                }),
            )
        }
        Report::Event(Event::Unsupported { replica, function, why }) => (
            "unsupported",
            json!({ "replica": replica.to_string(), "host": host(*replica), "function": function, "why": why }),
        ),
        Report::Event(Event::Unordered { replica }) => {
            ("threads-unordered", json!({ "replica": replica.to_string(), "host": host(*replica) }))
        }
        Report::Event(Event::Reconnected { replica, peer }) => {
            ("reconnected", json!({ "replica": replica.to_string(), "peer": peer.to_string() }))
        }
        Report::Event(Event::Injected { replica, fault, .. }) | Report::Injected { replica, fault } => {
            ("injected", json!({ "replica": replica.to_string(), "host": host(*replica), "fault": fault }))
        }
        Report::OutputMismatch { rank, mismatch, action } => {
            ("output-mismatch", output::record(*rank, mismatch, *action, host))
        }
        Report::OutputUncompared { replica } => {
            ("output-uncompared", json!({ "replica": replica.to_string(), "host": host(*replica) }))
        }
        Report::OutputDeparted { rank, error_of, line } => {
            let (stream, replica) = match error_of {
                Some(replica) => ("error", Some(replica.to_string())),
                None => ("output", None),
            };
            ("output-departed", json!({ "rank": rank.0, "stream": stream, "replica": replica, "line": line }))
        }
        Report::OutputHeld { replica } => {
            ("output-held", json!({ "replica": replica.to_string(), "host": host(*replica) }))
        }
        Report::MemoryDiffers(difference) => {
            let Difference { rank, collective, pages, outvoted } = difference;
            let outvoted: Vec<_> = outvoted
                .iter()
                .map(|replica| json!({ "replica": replica.to_string(), "host": host(*replica) }))
                .collect();
            let pages: Vec<_> = pages.iter().map(|page| format!("{page:#x}")).collect();
            (
                "memory-differs",
                json!({ "rank": rank.0, "collective": collective, "pages": pages, "outvoted": outvoted }),
            )
        }
        Report::ScrubUnfit { replica, why } => {
            ("scrub-unfit", json!({ "rank": replica.rank.0, "replica": replica.to_string(), "why": why }))
        }
        Report::CheckpointProven { generation, proof } => {
            let by = match proof {
                Proof::Independent => "independent replicas",
                Proof::Kin => "replicas of one image",
            };
            ("checkpoint-proven", json!({ "generation": generation.0, "by": by }))
        }
        Report::CheckpointUnproven { generation, why, .. } => {
            ("checkpoint-unproven", json!({ "generation": generation.0, "why": why.to_string() }))
        }
        Report::Scrubbed(coverage) => ("scrub", scrub_record(coverage)),
        Report::ScrubEnded(coverage) => ("scrub-end", scrub_record(coverage)),
        Report::Retired { replica, reason } => {
            let why = match reason {
                RetireReason::Unable(lack) => Some(lack.to_string()),
                _ => None,
            };
            let reason = match reason {
                RetireReason::Outvoted => "outvoted",
                RetireReason::LeftPath => "left-path",
                RetireReason::Lagging => "lagging",
                RetireReason::Parted => "parted",
                RetireReason::Tainted => "tainted",
                RetireReason::Strayed => "strayed",
                RetireReason::Withheld => "withheld",
                RetireReason::Abort { .. } => "abort",
                RetireReason::Refused(_) => "refused",
                RetireReason::Unable(_) => "unable",
                RetireReason::BrokenLink { .. } => "broken-link",
            };
            let mut fields = json!({ "replica": replica.to_string(), "host": host(*replica), "reason": reason });
            if let Some(why) = why {
                fields["why"] = json!(why);
            }
            ("retired", fields)
        }
        Report::Strike { replica, count, limit } => (
            "strike",
            json!({ "replica": replica.to_string(), "host": host(*replica), "strikes": count, "limit": limit }),
        ),
        Report::Lags { laggard, is_retired } | Report::Lingers { laggard, is_retired } => {
            let Laggard { replica, stood, is_silent, .. } = laggard;
            let (stood_s, silent, retired) = (stood.as_secs_f64(), is_silent, is_retired);
            (
                "laggard",
                json!({ "replica": replica.to_string(), "host": host(*replica), "ahead": laggard.ahead_names(), "stood_s": stood_s,
                        "silent": silent, "retired": retired }),
            )
        }
        Report::SlowHost(SlowHost { replica, factor, at_work, peers_at_work }) => (
            "slow-host",
            json!({ "host": host(*replica), "factor": factor, "at_work": at_work, "peers_at_work": peers_at_work }),
        ),
        Report::Quiet { silence } => ("quiet", json!({ "silence_s": silence.as_secs_f64() })),
        Report::CopyUnproven { replica, source, why } => {
            let why = match why {
                Unproven::Late(_) => "not compared in time",
                Unproven::Contradicted => "contradicted",
            };
            ("copy-unproven", json!({ "replica": replica.to_string(), "source": source.to_string(), "why": why }))
        }
        Report::OneLineage(rank) => ("one-lineage", json!({ "rank": rank.0 })),
        Report::HostBad { last, strikes, is_drained } => {
            let (host, command) = (host(*last), drain_command(&host(*last), &format!("{strikes} corrupt replicas")));
            ("host-bad", json!({ "host": host, "strikes": strikes, "drained": is_drained, "command": command }))
        }
        Report::Attribution(conclusion) => ("attribution", json!(conclusion)),
        Report::Ending(reason) => reason_record(reason, host),
        Report::Impatient => ("killing", json!({})),
        Report::Ended { code } => ("job-end", json!({ "exit_code": code })),
    }
}

fn scrub_record(coverage: &scrub::Coverage) -> Value {
    let scrub::Coverage { comparisons, pages_compared, pages_watched, pages_excluded, pages_unmatched } = *coverage;
    json!({
        "comparisons": comparisons, "pages_compared": pages_compared, "pages_watched": pages_watched,
        "pages_excluded": pages_excluded, "pages_unmatched": pages_unmatched,
    })
}

fn arbitration_record(arbitration: &Arbitration, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let Arbitration { rank, arbiters, culprit, took } = arbitration;
    let arbiters: Vec<_> = arbiters
        .iter()
        .map(|Arbiter { replica, source, age }| {
            json!({
                "replica": replica.to_string(), "host": host(*replica), "source": source.to_string(),
                "source_host": host(*source), "age_s": age.as_secs_f64(),
            })
        })
        .collect();
    json!({
        "rank": rank.0, "verdict": if culprit.is_some() { "named" } else { "open" }, "arbiters": arbiters,
        "culprit": culprit.map(|culprit| culprit.to_string()), "host": culprit.map(host),
        "took_ms": took.as_secs_f64() * 1e3,
    })
}

fn recovered_record(recovered: &Recovered, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let Recovered { replica, source, purpose, window, waited, copied, cost } = recovered;
    let cost = cost.map(|cost| {
        json!({
            "rounds": cost.round_count, "sent_bytes": cost.sent_bytes, "cut_bytes": cost.cut_bytes,
            "stopped_ms": cost.stopped_ns as f64 / 1e6, "total_ms": cost.total_ns as f64 / 1e6,
        })
    });
    json!({
        "replica": replica.to_string(), "source": source.to_string(), "host": host(*replica),
        "purpose": purpose_name(*purpose),
        "window_ms": window.as_secs_f64() * 1e3, "waited_ms": waited.as_secs_f64() * 1e3,
        "copied_ms": copied.as_secs_f64() * 1e3, "clone": cost,
    })
}

/// The end of a process as fields of a record.
#[must_use]
pub fn exit_record(exit: Exit) -> Value {
    match exit {
        Exit::Status(status) => json!({ "status": status }),
        Exit::Signal(signal) => json!({ "signal": signal }),
        Exit::OutOfMemory => json!({ "signal": exit.code() - 128, "out_of_memory": true }),
    }
}

fn loss_record(loss: &Loss, host: &dyn Fn(ReplicaId) -> String) -> Value {
    json!({
        "replica": loss.replica.to_string(), "host": host(loss.replica), "exit": exit_record(loss.exit),
        "left": loss.left, "view": loss.view.0,
    })
}

fn mismatch_record(mismatch: &Mismatch, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let votes: Vec<_> = mismatch
        .votes
        .iter()
        .map(|vote| {
            json!({
                "replica": vote.replica.to_string(), "host": host(vote.replica), "core": vote.core,
                "digest": vote.digest.to_string(),
            })
        })
        .collect();
    let its = |vote: &&Vote| Some(vote.replica) == mismatch.culprit;
    let core = mismatch.votes.iter().find(its).and_then(|vote| vote.core);
    json!({
        "receiver": mismatch.receiver.to_string(), "receiver_host": host(mismatch.receiver), "sender": mismatch.sender.0,
        "supplier": mismatch.supplier.to_string(), "supplier_host": host(mismatch.supplier), "core": core,
        "element": mismatch.element, "communicator": mismatch.communicator,
        "context": format!("{:016x}", mismatch.context.0), "tag": mismatch.tag, "sequence": mismatch.sequence.0,
        "length_bytes": mismatch.length_bytes, "payload": mismatch.payload.to_string(), "votes": votes,
        "finding": mismatch.finding, "culprit": mismatch.culprit.map(|culprit| culprit.to_string()),
        "host": mismatch.culprit.map(host), "action": mismatch.action, "view": mismatch.view.0,
    })
}

fn evidence_record(evidence: &Evidence, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let [one, other] = evidence.suppliers;
    let difference = &evidence.difference;
    let xor: String = difference.xor.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "receiver": evidence.receiver.to_string(), "sender": evidence.sender.0,
        "context": format!("{:016x}", evidence.context.0), "tag": evidence.tag, "sequence": evidence.sequence.0,
        "one": one.to_string(), "one_host": host(one), "other": other.to_string(), "other_host": host(other),
        "other_is_right": evidence.is_decided, "first_byte": difference.offset, "xor": xor,
        "element": difference.element, "index": difference.index,
        "one_value": difference.values.as_ref().map(|[one, _]| one), "ulps": difference.ulps,
        "other_value": difference.values.as_ref().map(|[_, other]| other), "bytes": difference.byte_count,
        "bits": difference.bit_count, "lengths": difference.lengths,
    })
}

fn reason_record(reason: &EndReason, host: &dyn Fn(ReplicaId) -> String) -> (&'static str, Value) {
    match reason {
        EndReason::SphereLost { loss, spent } => {
            let mut fields = loss_record(loss, host);
            if let Some(generation) = spent {
                fields["generation"] = json!(generation.0);
            }
            ("rank-lost", fields)
        }
        EndReason::Aborted { replica, code, message } => {
            ("abort", json!({ "replica": replica.to_string(), "code": code, "message": message }))
        }
        EndReason::NotStarted { replica, message } => {
            ("not-started", json!({ "replica": replica.to_string(), "message": message }))
        }
        EndReason::OtherMpi { replica, found } => {
            ("other-mpi", json!({ "replica": replica.to_string(), "what": found.to_string() }))
        }
        EndReason::MissedInit { rank } => ("missed-init", json!({ "rank": rank.0 })),
        EndReason::SecondInit { replica } => ("second-init", json!({ "replica": replica.to_string() })),
        EndReason::SpawnedFailed { code } => ("spawned-failed", json!({ "code": code })),
        EndReason::Interrupted { signal } => ("interrupted", json!({ "signal": signal })),
        EndReason::TimedOut { timeout } => ("timed-out", json!({ "timeout_s": timeout.as_secs_f64() })),
        EndReason::Stalled { stall, have_differed } => {
            let waits: serde_json::Map<_, _> =
                stall.iter().map(|(replica, passive)| (replica.to_string(), json!(passive.waits_for))).collect();
            ("stalled", json!({ "waits_for": waits, "replicas_differed": have_differed }))
        }
        EndReason::Unable { replica, lack } => {
            ("end-unable", json!({ "replica": replica.to_string(), "host": host(*replica), "why": lack.to_string() }))
        }
        EndReason::Refused(refusal) => ("end-refused", json!({ "what": refusal_text(refusal) })),
        EndReason::BrokenLink { suspect, by } => {
            ("broken-link", json!({ "replica": suspect.to_string(), "by": by.to_string() }))
        }
        EndReason::Suspended { generation } => ("suspended", json!({ "generation": generation.0 })),
        EndReason::Unloadable { generation, replica, message } => {
            ("unloadable", json!({ "generation": generation.0, "replica": replica.to_string(), "message": message }))
        }
        EndReason::GoesBack { loss, back: Back { generation, count, passes_newer } } => {
            let mut fields = loss.map_or_else(|| json!({}), |loss| loss_record(&loss, host));
            fields["generation"] = json!(generation.0);
            fields["count"] = json!(count);
            fields["passes_newer"] = json!(passes_newer);
            ("goes-back", fields)
        }
        EndReason::Corrupted { why } => {
            let why = match why {
                NoReturn::Unwanted => "--on-sdc".to_owned(),
                NoReturn::NoneProven => "no checkpoint is proven".to_owned(),
                NoReturn::Spent(generation) => format!("checkpoint {generation} was used {RESTARTS_MAX} times"),
            };
            ("corrupted", json!({ "why": why }))
        }
        EndReason::OutputClosed => ("output-closed", json!({})),
        EndReason::OutputFailed(failure) => ("output-failed", json!({ "what": failure.to_string() })),
    }
}

fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Loss => "loss",
        Purpose::Move => "move",
        Purpose::Growth => "growth",
        Purpose::Arbitration => "arbitration",
    }
}
