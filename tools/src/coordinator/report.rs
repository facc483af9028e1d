//! What the coordinator has to tell: one line for the user where it matters, one record for the audit log always.

use super::recovery::Recovered;
use super::stall::Stall;
use crate::stdio::sphere_stream::Divergence;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::daemon::Exit;
use redrt_wire::event::{Event, Mismatch};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// The loss of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Which.
    pub replica: ReplicaId,
    /// How it ended.
    pub exit: Exit,
    /// Whether it had called `MPI_Init`.
    pub greeted: bool,
    /// Live replicas left in its sphere.
    pub left: usize,
    /// The view without it.
    pub view: ViewNumber,
}

/// Why a job ends before its processes do.
#[derive(Clone, PartialEq, Debug)]
pub enum EndReason {
    /// A rank has no live replica left.
    SphereLost(Loss),
    /// `MPI_Abort`, or the library gave up.
    Aborted {
        /// Who.
        replica: ReplicaId,
        /// The exit code.
        code: i32,
        /// Why; empty when the application asked.
        message: String,
    },
    /// A process could not be started.
    NotStarted {
        /// Which.
        replica: ReplicaId,
        /// Why.
        message: String,
    },
    /// A rank ended without calling `MPI_Init` while others had called it, and would wait for ever.
    MissedInit {
        /// Which.
        rank: VirtualRank,
    },
    /// A replica, or a program it ran, called `MPI_Init` once more.
    SecondInit {
        /// Which.
        replica: ReplicaId,
    },
    /// A signal to `redrun`.
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// `--timeout`.
    TimedOut {
        /// As given.
        timeout: Duration,
    },
    /// Every process waits in MPI and nothing is under way.
    Stalled {
        /// What each waits for.
        stall: Stall,
        /// Replicas were found to differ before.
        have_differed: bool,
    },
    /// A process sent what no sound process sends, and there is no sibling to go on in its place.
    Refused(Refusal),
    /// A connection between two living processes broke, and neither has a sibling.
    BrokenLink {
        /// Whose end is said to be the broken one.
        suspect: ReplicaId,
        /// Who says so.
        by: ReplicaId,
    },
    /// Replicas differ, and `--on-sdc=abort` was given.
    Corrupted,
    /// The reader of standard output has gone.
    OutputClosed,
}

/// Why a replica is ended while its siblings go on.
#[derive(Clone, PartialEq, Debug)]
pub enum RetireReason {
    /// A message of it was outvoted.
    Outvoted,
    /// It waits for something that its siblings do not, in a job that cannot go on.
    Strayed,
    /// It alone called `MPI_Abort`, or left the path of its leader.
    Abort {
        /// The exit code it asked for.
        code: i32,
        /// What the library says; empty when the program called `MPI_Abort`.
        message: String,
    },
    /// It sent what no sound process sends, or says so of others and is not believed.
    Refused(Refusal),
    /// A connection of it with another living process broke.
    BrokenLink {
        /// Whose end is said to be the broken one.
        suspect: ReplicaId,
        /// Who says so.
        by: ReplicaId,
    },
}

/// `12.3 ms`, `4.56 s`.
#[must_use]
pub fn time_text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Something that a process was told and that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Who refused it; `redrun` when absent.
    pub by: Option<ReplicaId>,
    /// Who said it, when that is known.
    pub peer: Option<ReplicaId>,
    /// What was wrong, in words that follow on the name of who said it.
    pub what: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            Some(by) => write!(f, "replica {by} refused a frame: ")?,
            None => write!(f, "redrun refused a message: ")?,
        }
        match self.peer {
            Some(peer) => write!(f, "replica {peer} {}", self.what),
            None => write!(f, "somebody {}", self.what),
        }
    }
}

/// Something to tell.
#[derive(Clone, PartialEq, Debug)]
pub enum Report {
    /// A replica was lost and its sphere goes on.
    Lost(Loss),
    /// A process ended in the ordinary course of events.
    Exited {
        /// Which.
        replica: ReplicaId,
        /// How.
        exit: Exit,
    },
    /// A replica's connections broke; whether it is dead is for its daemon to say.
    Suspected {
        /// Which.
        replica: ReplicaId,
        /// Who noticed.
        by: ReplicaId,
    },
    /// A frame was refused; what follows from that is reported as well.
    Refused(Refusal),
    /// A replica is being copied, to take a lost one's place.
    CloneBegun {
        /// Whose place.
        replica: ReplicaId,
        /// Who is copied.
        source: ReplicaId,
        /// Name of the host it is copied to.
        host: String,
    },
    /// The copy runs on its host.
    CopyRuns {
        /// Whose place.
        replica: ReplicaId,
        /// Its process id there.
        pid: i32,
    },
    /// Nothing came of it; it is tried again.
    CloneFailed {
        /// Whose place.
        replica: ReplicaId,
        /// Who was to be copied.
        source: ReplicaId,
        /// Where to; empty when the copy had its place already.
        host: String,
        /// Why.
        what: String,
    },
    /// There is no host for a copy; said once for each loss.
    NoSpare {
        /// Whose place stays free.
        replica: ReplicaId,
    },
    /// A copy has taken a lost replica's place and is in step.
    Recovered(Recovered),
    /// A whole daemon was lost.
    DaemonLost {
        /// On which host.
        host: String,
        /// How that is known.
        why: String,
        /// How many processes went with it.
        process_count: usize,
    },
    /// A process reported something.
    Event(Event),
    /// Replicas printed different things.
    OutputDiverged {
        /// Of which rank.
        rank: VirtualRank,
        /// What.
        divergence: Divergence,
    },
    /// A replica that its siblings contradict is being ended.
    Retired {
        /// Which.
        replica: ReplicaId,
        /// What it did.
        reason: RetireReason,
    },
    /// A fault was carried out from here.
    Injected {
        /// On whom.
        replica: ReplicaId,
        /// In the words of `--inject`.
        fault: String,
    },
    /// The job is being ended.
    Ending(EndReason),
    /// A second signal: no more grace.
    Impatient,
    /// All processes have ended.
    Ended {
        /// The exit code of the job.
        code: i32,
    },
}

/// How urgent a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Something went wrong and was dealt with.
    Warning,
    /// The job fails.
    Error,
}

impl Report {
    /// Whether it is about a message that did not compare equal.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Event(Event::Mismatch(_)))
    }

    /// The line for the user, when this deserves one. `host` names the host of a replica.
    #[must_use]
    pub fn line(&self, host: &dyn Fn(ReplicaId) -> String) -> Option<(Severity, String)> {
        let line = match self {
            Self::Exited { .. }
            | Self::Suspected { .. }
            | Self::Refused(_)
            | Self::Event(Event::Reconnected { .. })
            | Self::CopyRuns { .. }
            | Self::Ended { .. } => return None,
            Self::CloneBegun { replica, source, host } => {
                (Severity::Note, format!("cloning {source} to {host}, to take the place of {replica}"))
            }
            Self::CloneFailed { replica, source, host, what } => {
                let place = if host.is_empty() { String::new() } else { format!(" to {host}") };
                (Severity::Warning, format!("cloning {source}{place} as {replica} failed: {what}"))
            }
            Self::NoSpare { replica } => {
                (Severity::Warning, format!("there is no spare for {replica}: its rank goes on without it"))
            }
            Self::Recovered(recovered) => (Severity::Note, recovered_line(recovered, host)),
            Self::Lost(loss) => {
                let cause = Cause(loss);
                let (replica, left) = (loss.replica, loss.left);
                let others = if left == 1 { "1 replica" } else { &format!("{left} replicas") };
                let place = host(replica);
                (
                    Severity::Warning,
                    format!("lost replica {replica} on {place}: {cause}; rank {} goes on with {others}", replica.rank),
                )
            }
            Self::DaemonLost { host, why, process_count } => {
                (Severity::Warning, format!("lost host {host} with {process_count} processes: {why}"))
            }
            Self::Event(Event::Mismatch(mismatch)) => (Severity::Warning, mismatch_line(mismatch, host)),
            Self::Event(Event::Divergence { replica, what }) => {
                (Severity::Warning, format!("replica {replica} on {} diverged: {what}", host(*replica)))
            }
            Self::Event(Event::Injected { replica, fault }) | Self::Injected { replica, fault } => {
                (Severity::Note, format!("injected {fault} into {replica}"))
            }
            Self::OutputDiverged { rank, divergence } => (Severity::Warning, divergence_line(*rank, divergence)),
            Self::Retired { replica, reason } => {
                let what = match reason {
                    RetireReason::Outvoted => "was outvoted by its siblings".to_owned(),
                    RetireReason::Strayed => "waits for something that its siblings do not".to_owned(),
                    RetireReason::Abort { code, message } if message.is_empty() => {
                        format!("alone among its siblings called MPI_Abort with code {code}")
                    }
                    RetireReason::Abort { message, .. } => format!("gave up: {message}"),
                    RetireReason::Refused(refusal) if refusal.by == Some(*replica) => {
                        format!("is likelier to be wrong than others: {refusal}")
                    }
                    RetireReason::Refused(refusal) => format!("sent what no sound process sends: {refusal}"),
                    RetireReason::BrokenLink { suspect, by } => {
                        let other = if suspect == replica { by } else { suspect };
                        format!("has lost its connection with {other} on {}, and both are alive", host(*other))
                    }
                };
                (Severity::Warning, format!("retiring replica {replica} on {}: it {what}", host(*replica)))
            }
            Self::Ending(reason) => (Severity::Error, reason_line(reason, host)),
            Self::Impatient => (Severity::Error, "killing all processes at once".into()),
        };
        Some(line)
    }

    /// The name and fields of the audit record.
    #[must_use]
    pub fn record(&self, host: &dyn Fn(ReplicaId) -> String) -> (&'static str, Value) {
        match self {
            Self::Lost(loss) => ("replica-lost", loss_record(loss, host)),
            Self::CloneBegun { replica, source, host } => {
                ("clone", json!({ "replica": replica.to_string(), "source": source.to_string(), "host": host }))
            }
            Self::CopyRuns { replica, pid } => {
                ("copy-runs", json!({ "replica": replica.to_string(), "host": host(*replica), "pid": pid }))
            }
            Self::CloneFailed { replica, source, host, what } => (
                "clone-failed",
                json!({ "replica": replica.to_string(), "source": source.to_string(), "host": host, "what": what }),
            ),
            Self::NoSpare { replica } => ("no-spare", json!({ "replica": replica.to_string() })),
            Self::Recovered(recovered) => ("recovered", recovered_record(recovered, host)),
            Self::Exited { replica, exit } => {
                ("exit", json!({ "replica": replica.to_string(), "host": host(*replica), "exit": exit_record(*exit) }))
            }
            Self::Suspected { replica, by } => {
                ("suspect", json!({ "replica": replica.to_string(), "by": by.to_string() }))
            }
            Self::Refused(refusal) => {
                let name = |replica: ReplicaId| replica.to_string();
                ("refused", json!({ "by": refusal.by.map(name), "peer": refusal.peer.map(name), "what": refusal.what }))
            }
            Self::DaemonLost { host, why, process_count } => {
                ("daemon-lost", json!({ "host": host, "why": why, "processes": process_count }))
            }
            Self::Event(Event::Mismatch(mismatch)) => ("mismatch", mismatch_record(mismatch, host)),
            Self::Event(Event::Divergence { replica, what }) => {
                ("divergence", json!({ "replica": replica.to_string(), "host": host(*replica), "what": what }))
            }
            Self::Event(Event::Reconnected { replica, peer }) => {
                ("reconnected", json!({ "replica": replica.to_string(), "peer": peer.to_string() }))
            }
            Self::Event(Event::Injected { replica, fault }) | Self::Injected { replica, fault } => {
                ("injected", json!({ "replica": replica.to_string(), "host": host(*replica), "fault": fault }))
            }
            Self::OutputDiverged { rank, divergence } => {
                let outvoted: Vec<_> = outvoted(*rank, divergence).map(|replica| replica.to_string()).collect();
                ("output-divergence", json!({ "rank": rank.0, "offset": divergence.offset, "outvoted": outvoted }))
            }
            Self::Retired { replica, reason } => {
                let reason = match reason {
                    RetireReason::Outvoted => "outvoted",
                    RetireReason::Strayed => "strayed",
                    RetireReason::Abort { .. } => "abort",
                    RetireReason::Refused(_) => "refused",
                    RetireReason::BrokenLink { .. } => "broken-link",
                };
                ("retired", json!({ "replica": replica.to_string(), "host": host(*replica), "reason": reason }))
            }
            Self::Ending(reason) => reason_record(reason, host),
            Self::Impatient => ("killing", json!({})),
            Self::Ended { code } => ("job-end", json!({ "exit_code": code })),
        }
    }
}

fn recovered_line(recovered: &Recovered, host: &dyn Fn(ReplicaId) -> String) -> String {
    let Recovered { replica, source, window, cost, .. } = recovered;
    let stopped = cost.map_or_else(String::new, |cost| {
        format!(", {source} was stopped for {} of it", time_text(Duration::from_nanos(cost.stopped_ns)))
    });
    format!(
        "replica {replica} is back, on {}: redundancy was missing for {}{stopped}",
        host(*replica),
        time_text(*window)
    )
}

fn recovered_record(recovered: &Recovered, host: &dyn Fn(ReplicaId) -> String) -> Value {
    let Recovered { replica, source, window, waited, copied, cost } = recovered;
    let cost = cost.map(|cost| {
        json!({
            "rounds": cost.round_count, "sent_bytes": cost.sent_bytes, "cut_bytes": cost.cut_bytes,
            "stopped_ms": cost.stopped_ns as f64 / 1e6, "total_ms": cost.total_ns as f64 / 1e6,
        })
    });
    json!({
        "replica": replica.to_string(), "source": source.to_string(), "host": host(*replica),
        "window_ms": window.as_secs_f64() * 1e3, "waited_ms": waited.as_secs_f64() * 1e3,
        "copied_ms": copied.as_secs_f64() * 1e3, "clone": cost,
    })
}

/// How a process ended, in words.
#[must_use]
pub fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Signal(signal) => signal_name(signal),
        Exit::Status(status) => format!("status {status}"),
    }
}

struct Cause<'a>(&'a Loss);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.exit, self.0.greeted) {
            (Exit::Signal(signal), _) => write!(f, "killed by {}", signal_name(signal)),
            (Exit::Status(status), true) => write!(f, "exited with status {status} before MPI_Finalize"),
            (Exit::Status(status), false) => write!(f, "exited with status {status}"),
        }
    }
}

/// `signal 11 (SIGSEGV)`.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(name) => format!("signal {signal} ({})", name.as_str()),
        Err(_) => format!("signal {signal}"),
    }
}

pub(super) fn outvoted(rank: VirtualRank, divergence: &Divergence) -> impl Iterator<Item = ReplicaId> + '_ {
    divergence.outvoted.iter().map(move |index| ReplicaId { rank, index: *index })
}

fn divergence_line(rank: VirtualRank, divergence: &Divergence) -> String {
    let at = format!("standard output of rank {rank} differs between its replicas from byte {} on", divergence.offset);
    let names: Vec<_> = outvoted(rank, divergence).map(|replica| replica.to_string()).collect();
    if names.is_empty() {
        format!("{at}; no majority, so the longest-serving replica's is shown")
    } else {
        format!("{at}; outvoted: {}", names.join(", "))
    }
}

fn mismatch_line(mismatch: &Mismatch, host: &dyn Fn(ReplicaId) -> String) -> String {
    use redrt_wire::event::{Action, Finding};
    let Mismatch { sender, receiver, communicator, tag, sequence, length_bytes, .. } = mismatch;
    let what = format!(
        "message {} from rank {sender} to {receiver} ({communicator}, tag {tag}, {length_bytes} bytes)",
        sequence.0
    );
    let finding = match (mismatch.finding, mismatch.culprit) {
        (Finding::ReplicaCorrupt, Some(culprit)) => {
            format!("replica {culprit} on {} is corrupt, outvoted by its siblings", host(culprit))
        }
        (Finding::ReplicaCorrupt, None) => "a replica is corrupt".into(),
        (Finding::TransportCorrupt, _) => {
            format!("changed on its way from {} on {}", mismatch.supplier, host(mismatch.supplier))
        }
        (Finding::Undecidable, _) => {
            let votes: Vec<_> =
                mismatch.votes.iter().map(|vote| format!("{}: {}", vote.replica, vote.digest)).collect();
            format!("replicas differ and there is no majority ({})", votes.join(", "))
        }
    };
    let action = match mismatch.action {
        Action::Delivered => "delivered as it came",
        Action::Refetched => "fetched again",
        Action::Outvoted => "the agreed payload was delivered",
        Action::Aborted => "ending the job",
    };
    format!("silent data corruption: {what}: {finding}; {action}")
}

fn reason_line(reason: &EndReason, host: &dyn Fn(ReplicaId) -> String) -> String {
    match reason {
        EndReason::SphereLost(loss) => {
            let (rank, place) = (loss.replica.rank, host(loss.replica));
            let cause = Cause(loss);
            format!("rank {rank} is lost: its last replica {} on {place} {cause}; ending the job", loss.replica)
                .replace("killed", "was killed")
        }
        EndReason::Aborted { replica, code, message } if message.is_empty() => {
            format!("rank {} (replica {replica} on {}) called MPI_Abort with code {code}", replica.rank, host(*replica))
        }
        EndReason::Aborted { replica, message, .. } => {
            format!("replica {replica} on {} ended the job: {message}", host(*replica))
        }
        EndReason::NotStarted { replica, message } => {
            format!("could not start replica {replica} on {}: {message}", host(*replica))
        }
        EndReason::MissedInit { rank } => {
            format!("rank {rank} ended without calling MPI_Init while other ranks had called it; ending the job")
        }
        EndReason::SecondInit { replica } => {
            format!("replica {replica} started a second MPI program; a job runs one: use redrun for each")
        }
        EndReason::Interrupted { signal } => {
            format!("{}: asking all processes to end (once more to kill them)", signal_name(*signal))
        }
        EndReason::TimedOut { timeout } => format!("the job exceeded its {} s; ending it", timeout.as_secs_f64()),
        EndReason::Stalled { stall, have_differed } => stall_line(stall, *have_differed),
        EndReason::Refused(refusal) => {
            format!("{refusal}; the memory of one of the two is corrupt, and neither has a sibling: ending the job")
        }
        EndReason::BrokenLink { suspect, by } => format!(
            "the connection between {suspect} on {} and {by} on {} broke; neither has a sibling: ending the job",
            host(*suspect),
            host(*by)
        ),
        EndReason::Corrupted => "replicas differ; ending the job, as --on-sdc=abort asks".into(),
        EndReason::OutputClosed => "standard output was closed; ending the job".into(),
    }
}

/// Ranks of which the line tells what they wait for; the audit log tells it of all.
const STALL_LINES_MAX: usize = 4;

fn stall_line(stall: &Stall, have_differed: bool) -> String {
    let mut waits: Vec<String> = Vec::new();
    for (replica, passive) in stall {
        let siblings_agree =
            stall.iter().all(|(other, entry)| other.rank != replica.rank || entry.waits_for == passive.waits_for);
        let who = if siblings_agree { format!("rank {}", replica.rank) } else { format!("replica {replica}") };
        waits.push(format!("{who} waits for {}", passive.waits_for.join(" and ")));
    }
    // Replicas that agree follow one another.
    waits.dedup();
    let rest = waits.len().saturating_sub(STALL_LINES_MAX);
    waits.truncate(STALL_LINES_MAX);
    if rest > 0 {
        waits.push(format!("{rest} more wait"));
    }
    let cause = if have_differed {
        "replicas that differ, as told above, have taken different paths"
    } else {
        "the program is in a deadlock"
    };
    format!("no process can go on and no message is under way: {cause}; {}; ending the job", waits.join("; "))
}

fn exit_record(exit: Exit) -> Value {
    match exit {
        Exit::Status(status) => json!({ "status": status }),
        Exit::Signal(signal) => json!({ "signal": signal }),
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
        .map(|vote| json!({ "replica": vote.replica.to_string(), "digest": vote.digest.to_string() }))
        .collect();
    json!({
        "receiver": mismatch.receiver.to_string(), "sender": mismatch.sender.0,
        "supplier": mismatch.supplier.to_string(), "communicator": mismatch.communicator,
        "context": format!("{:016x}", mismatch.context.0), "tag": mismatch.tag, "sequence": mismatch.sequence.0,
        "length_bytes": mismatch.length_bytes, "payload": mismatch.payload.to_string(), "votes": votes,
        "finding": mismatch.finding, "culprit": mismatch.culprit.map(|culprit| culprit.to_string()),
        "host": mismatch.culprit.map(host), "action": mismatch.action, "view": mismatch.view.0,
    })
}

fn reason_record(reason: &EndReason, host: &dyn Fn(ReplicaId) -> String) -> (&'static str, Value) {
    match reason {
        EndReason::SphereLost(loss) => ("rank-lost", loss_record(loss, host)),
        EndReason::Aborted { replica, code, message } => {
            ("abort", json!({ "replica": replica.to_string(), "code": code, "message": message }))
        }
        EndReason::NotStarted { replica, message } => {
            ("not-started", json!({ "replica": replica.to_string(), "message": message }))
        }
        EndReason::MissedInit { rank } => ("missed-init", json!({ "rank": rank.0 })),
        EndReason::SecondInit { replica } => ("second-init", json!({ "replica": replica.to_string() })),
        EndReason::Interrupted { signal } => ("interrupted", json!({ "signal": signal })),
        EndReason::TimedOut { timeout } => ("timed-out", json!({ "timeout_s": timeout.as_secs_f64() })),
        EndReason::Stalled { stall, have_differed } => {
            let waits: serde_json::Map<_, _> =
                stall.iter().map(|(replica, passive)| (replica.to_string(), json!(passive.waits_for))).collect();
            ("stalled", json!({ "waits_for": waits, "replicas_differed": have_differed }))
        }
        EndReason::Refused(refusal) => ("end-refused", json!({ "what": refusal.to_string() })),
        EndReason::BrokenLink { suspect, by } => {
            ("broken-link", json!({ "replica": suspect.to_string(), "by": by.to_string() }))
        }
        EndReason::Corrupted => ("corrupted", json!({})),
        EndReason::OutputClosed => ("output-closed", json!({})),
    }
}
