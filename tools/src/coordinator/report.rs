//! What the coordinator has to tell: one line for the user where it matters, one record for the audit log always.

use super::recovery::{Arbiter, Arbitration, Purpose, Recovered};
use super::scrub::{self, Difference};
use super::stall::Stall;
use super::{evidence, output};
use crate::attribution::{self, Conclusion};
use crate::stdio::mismatch::OutputMismatch;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::daemon::Exit;
use redrt_wire::event::{Action, Event, Evidence, Mismatch, Vote};
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
    /// A job that was spawned has failed.
    SpawnedFailed {
        /// Its exit code.
        code: i32,
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
    /// It has computed with a payload that was outvoted later.
    Tainted,
    /// It waits for something that its siblings do not, in a job that cannot go on.
    Strayed,
    /// A message for it is corrupt wherever it is kept.
    Withheld,
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
        /// What for.
        purpose: Purpose,
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
        /// What the copy is for.
        purpose: Purpose,
        /// Why each host cannot be given, as far as that is known.
        why: Vec<String>,
    },
    /// A replica is to leave when another has its part.
    Leaving {
        /// Which.
        replica: ReplicaId,
        /// Name of the host that it is to be moved to, if that was said.
        to: Option<String>,
    },
    /// It has left, and its rank has as many replicas as it is to have.
    Left {
        /// Which.
        replica: ReplicaId,
    },
    /// It does not leave after all.
    Stays {
        /// Which.
        replica: ReplicaId,
        /// Why.
        why: String,
    },
    /// Ranks are to have so many replicas.
    Degree {
        /// So many.
        degree: u16,
        /// How many ranks.
        rank_count: usize,
    },
    /// A host that was to become free is.
    HostFree {
        /// Its name.
        host: String,
    },
    /// The place that a replica is in is the job's no more.
    PlaceLost {
        /// Which.
        replica: ReplicaId,
        /// Why.
        why: String,
    },
    /// A copy has taken a lost replica's place and is in step.
    Recovered(Recovered),
    /// A copy stands ready, to judge if its rank's replicas differ.
    CopyHeld {
        /// The place that it would have.
        replica: ReplicaId,
        /// Who was copied.
        source: ReplicaId,
    },
    /// No copy of a rank stands ready; said once.
    NotHeld {
        /// Of which.
        rank: VirtualRank,
        /// Why.
        why: String,
    },
    /// Two replicas differ, and those that stand ready are asked.
    Disputed(Box<Mismatch>),
    /// They have judged.
    Arbitrated(Arbitration),
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
    OutputMismatch {
        /// Of which rank.
        rank: VirtualRank,
        /// What.
        mismatch: OutputMismatch,
        /// What was done.
        action: Action,
    },
    /// A replica is so far behind that what it prints next is not compared.
    OutputUncompared {
        /// Which.
        replica: ReplicaId,
    },
    /// A replica must stop printing until others have printed as much.
    OutputHeld {
        /// Which.
        replica: ReplicaId,
    },
    /// Memory of a rank's replicas was equal and is not any more.
    MemoryDiffers(Difference),
    /// The memory of a rank cannot be compared.
    ScrubUnfit {
        /// Who says so.
        replica: ReplicaId,
        /// Why, in words that follow on its name.
        why: String,
    },
    /// A round of comparing memory is over.
    Scrubbed(scrub::Coverage),
    /// There will be no more.
    ScrubEnded(scrub::Coverage),
    /// A replica that its siblings contradict is being ended.
    Retired {
        /// Which.
        replica: ReplicaId,
        /// What it did.
        reason: RetireReason,
    },
    /// A replica that was wrong counts against its host.
    Strike {
        /// Which replica.
        replica: ReplicaId,
        /// So many its host has now.
        count: u32,
        /// With so many it is drained.
        limit: u32,
    },
    /// A host has too many strikes.
    HostBad {
        /// The replica whose strike was the last one.
        last: ReplicaId,
        /// How many there are.
        strikes: u32,
        /// Whether its replicas move away: there may be no other host.
        is_drained: bool,
    },
    /// What the verdicts until now have in common: software or hardware.
    Attribution(Box<Conclusion>),
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
    /// Whether it is about something that did not compare equal.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Event(Event::Mismatch(_) | Event::Evidence(_)) | Self::OutputMismatch { .. })
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
            | Self::CopyHeld { .. }
            | Self::CloneBegun { purpose: Purpose::Arbitration, .. }
            | Self::Ended { .. } => return None,
            Self::CloneBegun { replica, source, purpose: Purpose::Loss, host } => {
                (Severity::Note, format!("cloning {source} to {host}, to take the place of {replica}"))
            }
            Self::CloneBegun { replica, source, host, .. } => {
                (Severity::Note, format!("cloning {source} to {host} as {replica}"))
            }
            Self::CloneFailed { replica, source, host, what } => {
                let place = if host.is_empty() { String::new() } else { format!(" to {host}") };
                (Severity::Warning, format!("cloning {source}{place} as {replica} failed: {what}"))
            }
            Self::NoSpare { replica, purpose, why } => (Severity::Warning, no_spare_line(*replica, *purpose, why)),
            Self::Recovered(recovered) => (Severity::Note, recovered_line(recovered, host)),
            Self::NotHeld { rank, why } => {
                let what = "no copies of it stand ready to tell which of two replicas is wrong";
                (Severity::Note, format!("rank {rank}: {what}, for now: {why}"))
            }
            Self::Disputed(mismatch) => (Severity::Warning, mismatch_line(mismatch, host)),
            Self::Arbitrated(arbitration) => (Severity::Warning, arbitration_line(arbitration, host)),
            Self::Leaving { replica, to } => {
                let to = to.as_ref().map_or_else(String::new, |to| format!(" to {to}"));
                (Severity::Note, format!("moving replica {replica} away from {}{to}", host(*replica)))
            }
            Self::Left { replica } => (Severity::Note, format!("replica {replica} has left {}", host(*replica))),
            Self::Stays { replica, why } => {
                (Severity::Warning, format!("replica {replica} stays on {}: {why}", host(*replica)))
            }
            Self::Degree { degree, rank_count } => {
                let ranks = if *rank_count == 1 { "1 rank is" } else { &format!("{rank_count} ranks are") };
                (Severity::Note, format!("{ranks} to have degree {degree}"))
            }
            Self::HostFree { host } => (Severity::Note, format!("host {host} is free")),
            Self::PlaceLost { replica, why } => (
                Severity::Warning,
                format!("the place of replica {replica} on {} is not this job's any more: {why}", host(*replica)),
            ),
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
            Self::Event(Event::Evidence(evidence)) => (Severity::Warning, evidence_line(evidence)),
            Self::Event(Event::Divergence { replica, what }) => {
                (Severity::Warning, format!("replica {replica} on {} diverged: {what}", host(*replica)))
            }
            Self::Event(Event::Injected { replica, fault }) | Self::Injected { replica, fault } => {
                (Severity::Note, format!("injected {fault} into {replica}"))
            }
            Self::OutputMismatch { rank, mismatch, action } => {
                (Severity::Warning, output::line(*rank, mismatch, *action, host))
            }
            Self::OutputUncompared { replica } => (
                Severity::Warning,
                format!(
                    "replica {replica} on {} is far behind in its output: a part of it is not compared",
                    host(*replica)
                ),
            ),
            Self::OutputHeld { replica } => (
                Severity::Note,
                format!("replica {replica} has printed much that its siblings have not: it waits for them"),
            ),
            Self::MemoryDiffers(difference) => (Severity::Warning, memory_line(difference, host)),
            Self::ScrubUnfit { replica, why } => {
                (Severity::Note, format!("the memory of rank {} is not compared: {replica} {why}", replica.rank))
            }
            Self::Scrubbed(_) => return None,
            Self::ScrubEnded(coverage) => (Severity::Note, scrub_line(coverage)),
            Self::Retired { replica, reason } => {
                let what = match reason {
                    RetireReason::Outvoted => "was outvoted by its siblings".to_owned(),
                    RetireReason::Tainted => "has computed with a payload that was outvoted later".to_owned(),
                    RetireReason::Strayed => "waits for something that its siblings do not".to_owned(),
                    RetireReason::Withheld => "cannot have a message as it was sent".to_owned(),
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
            Self::Strike { replica, count, limit } => {
                (Severity::Warning, format!("host {} has {count} of {limit} strikes", host(*replica)))
            }
            Self::HostBad { last, strikes, is_drained } => {
                let name = host(*last);
                let what = match is_drained {
                    true => "its replicas move away, and nothing more is put there",
                    false => "there is no other host for its replicas, so they stay",
                };
                let command = drain_command(&name, &format!("{strikes} corrupt replicas"));
                (Severity::Warning, format!("host {name} corrupts data: {what}; for the batch system: {command}"))
            }
            Self::Attribution(conclusion) => {
                let severity =
                    if conclusion.cause == attribution::Cause::Open { Severity::Note } else { Severity::Warning };
                (severity, conclusion.words.clone())
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
            Self::CloneBegun { replica, source, purpose, host } => (
                "clone",
                json!({
                    "replica": replica.to_string(), "source": source.to_string(), "host": host,
                    "purpose": purpose_name(*purpose),
                }),
            ),
            Self::CopyHeld { replica, source } => (
                "held",
                json!({ "replica": replica.to_string(), "source": source.to_string(), "host": host(*replica) }),
            ),
            Self::NotHeld { rank, why } => ("not-held", json!({ "rank": rank.0, "why": why })),
            Self::Disputed(mismatch) => ("dispute", mismatch_record(mismatch, host)),
            Self::Arbitrated(arbitration) => ("arbitration", arbitration_record(arbitration, host)),
            Self::CopyRuns { replica, pid } => {
                ("copy-runs", json!({ "replica": replica.to_string(), "host": host(*replica), "pid": pid }))
            }
            Self::CloneFailed { replica, source, host, what } => (
                "clone-failed",
                json!({ "replica": replica.to_string(), "source": source.to_string(), "host": host, "what": what }),
            ),
            Self::NoSpare { replica, why, .. } => ("no-spare", json!({ "replica": replica.to_string(), "why": why })),
            Self::Leaving { replica, to } => {
                ("leaving", json!({ "replica": replica.to_string(), "host": host(*replica), "to": to }))
            }
            Self::Left { replica } => ("left", json!({ "replica": replica.to_string(), "host": host(*replica) })),
            Self::Stays { replica, why } => {
                ("stays", json!({ "replica": replica.to_string(), "host": host(*replica), "why": why }))
            }
            Self::Degree { degree, rank_count } => ("degree", json!({ "degree": degree, "ranks": rank_count })),
            Self::HostFree { host } => ("host-free", json!({ "host": host })),
            Self::PlaceLost { replica, why } => {
                ("place-lost", json!({ "replica": replica.to_string(), "host": host(*replica), "why": why }))
            }
            Self::Recovered(recovered) => {
                let name = if recovered.purpose == Purpose::Loss { "recovered" } else { "joined" };
                (name, recovered_record(recovered, host))
            }
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
            Self::Event(Event::Evidence(evidence)) => ("evidence", evidence_record(evidence, host)),
            Self::Event(Event::Divergence { replica, what }) => {
                ("divergence", json!({ "replica": replica.to_string(), "host": host(*replica), "what": what }))
            }
            Self::Event(Event::Reconnected { replica, peer }) => {
                ("reconnected", json!({ "replica": replica.to_string(), "peer": peer.to_string() }))
            }
            Self::Event(Event::Injected { replica, fault }) | Self::Injected { replica, fault } => {
                ("injected", json!({ "replica": replica.to_string(), "host": host(*replica), "fault": fault }))
            }
            Self::OutputMismatch { rank, mismatch, action } => {
                ("output-mismatch", output::record(*rank, mismatch, *action, host))
            }
            Self::OutputUncompared { replica } => {
                ("output-uncompared", json!({ "replica": replica.to_string(), "host": host(*replica) }))
            }
            Self::OutputHeld { replica } => {
                ("output-held", json!({ "replica": replica.to_string(), "host": host(*replica) }))
            }
            Self::MemoryDiffers(difference) => {
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
            Self::ScrubUnfit { replica, why } => {
                ("scrub-unfit", json!({ "rank": replica.rank.0, "replica": replica.to_string(), "why": why }))
            }
            Self::Scrubbed(coverage) => ("scrub", scrub_record(coverage)),
            Self::ScrubEnded(coverage) => ("scrub-end", scrub_record(coverage)),
            Self::Retired { replica, reason } => {
                let reason = match reason {
                    RetireReason::Outvoted => "outvoted",
                    RetireReason::Tainted => "tainted",
                    RetireReason::Strayed => "strayed",
                    RetireReason::Withheld => "withheld",
                    RetireReason::Abort { .. } => "abort",
                    RetireReason::Refused(_) => "refused",
                    RetireReason::BrokenLink { .. } => "broken-link",
                };
                ("retired", json!({ "replica": replica.to_string(), "host": host(*replica), "reason": reason }))
            }
            Self::Strike { replica, count, limit } => (
                "strike",
                json!({ "replica": replica.to_string(), "host": host(*replica), "strikes": count, "limit": limit }),
            ),
            Self::HostBad { last, strikes, is_drained } => {
                let (host, command) =
                    (host(*last), drain_command(&host(*last), &format!("{strikes} corrupt replicas")));
                ("host-bad", json!({ "host": host, "strikes": strikes, "drained": is_drained, "command": command }))
            }
            Self::Attribution(conclusion) => ("attribution", json!(conclusion)),
            Self::Ending(reason) => reason_record(reason, host),
            Self::Impatient => ("killing", json!({})),
            Self::Ended { code } => ("job-end", json!({ "exit_code": code })),
        }
    }
}

fn memory_line(difference: &Difference, host: &dyn Fn(ReplicaId) -> String) -> String {
    const PAGES_MAX: usize = 4;
    let Difference { rank, collective, pages, outvoted } = difference;
    let named: Vec<_> = pages.iter().take(PAGES_MAX).map(|page| format!("{page:#x}")).collect();
    let more = if pages.len() > PAGES_MAX { ", …" } else { "" };
    let who: Vec<_> = outvoted.iter().map(|replica| format!("{replica} on {}", host(*replica))).collect();
    let who = if who.is_empty() { "there is no majority".into() } else { format!("outvoted: {}", who.join(", ")) };
    let pages = format!(
        "{} ({}{more})",
        if pages.len() == 1 { "1 page".into() } else { format!("{} pages", pages.len()) },
        named.join(", ")
    );
    format!(
        "memory of rank {rank} differs between its replicas at rest, {pages}, at collective {collective}; {who}; it is corrupt, or what is there is not \
         the same in sound replicas either"
    )
}

fn scrub_line(coverage: &scrub::Coverage) -> String {
    let bytes = |pages: u64| format!("{:.1} MiB", pages as f64 * redrt_wire::scrub::PAGE_BYTES as f64 / 1_048_576.0);
    format!(
        "memory was compared {} times, {} in all; {} are watched, {} left out because they differ anyway, {} because they are elsewhere in some replicas",
        coverage.comparisons,
        bytes(coverage.pages_compared),
        bytes(coverage.pages_watched),
        bytes(coverage.pages_excluded),
        bytes(coverage.pages_unmatched)
    )
}

fn scrub_record(coverage: &scrub::Coverage) -> Value {
    let scrub::Coverage { comparisons, pages_compared, pages_watched, pages_excluded, pages_unmatched } = *coverage;
    json!({
        "comparisons": comparisons, "pages_compared": pages_compared, "pages_watched": pages_watched,
        "pages_excluded": pages_excluded, "pages_unmatched": pages_unmatched,
    })
}

fn no_spare_line(replica: ReplicaId, purpose: Purpose, why: &[String]) -> String {
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
    match purpose {
        Purpose::Loss => format!("there is no spare for {replica}{why}: its rank goes on without it"),
        Purpose::Move => format!("there is no place to move a replica of rank {} to{why}", replica.rank),
        Purpose::Growth => format!("there is no place for one more replica of rank {}{why}", replica.rank),
        Purpose::Arbitration => format!("there is no place for a copy of rank {} that is to judge{why}", replica.rank),
    }
}

fn recovered_line(recovered: &Recovered, host: &dyn Fn(ReplicaId) -> String) -> String {
    let Recovered { replica, source, purpose, window, cost, .. } = recovered;
    let stopped = cost.map_or_else(String::new, |cost| {
        format!(", {source} was stopped for {} of it", time_text(Duration::from_nanos(cost.stopped_ns)))
    });
    let (place, time) = (host(*replica), time_text(*window));
    match purpose {
        Purpose::Loss => format!("replica {replica} is back, on {place}: redundancy was missing for {time}{stopped}"),
        Purpose::Move | Purpose::Growth | Purpose::Arbitration => {
            format!("replica {replica} runs on {place} after {time}{stopped}")
        }
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

fn arbitration_line(arbitration: &Arbitration, host: &dyn Fn(ReplicaId) -> String) -> String {
    let Arbitration { rank, arbiters, culprit, took } = arbitration;
    let who = |arbiter: &Arbiter| {
        let Arbiter { replica, source, age } = arbiter;
        format!("{replica} on {}, a copy of {source} from {} before", host(*replica), time_text(*age))
    };
    let who: Vec<_> = arbiters.iter().map(who).collect();
    let verdict = match culprit {
        Some(culprit) => format!("{culprit} on {} is wrong", host(*culprit)),
        None => "it stays open which one is wrong".into(),
    };
    format!("replicas of rank {rank} differed: {verdict}; asked: {} ({})", who.join("; "), time_text(*took))
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
        Action::Withheld => "nobody has another, and it was not delivered",
        Action::Disputed => "it waits for copies that were made before",
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
        EndReason::SpawnedFailed { code } => {
            format!("a job that this one has spawned ended with exit code {code}; ending the job")
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

/// The command that takes a host out of Slurm's hands. Names are quoted for a shell.
#[must_use]
pub fn drain_command(host: &str, reason: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = host.chars().map(plain).collect();
    format!("scontrol update nodename={name} state=drain reason=\"redrt: {reason}\"")
}

fn evidence_line(evidence: &Evidence) -> String {
    let Evidence { sender, receiver, sequence, suppliers: [one, other], .. } = evidence;
    let what = evidence::in_words(&evidence.difference);
    let of = format!("message {} from rank {sender} to rank {}", sequence.0, receiver.rank);
    match (one == other, evidence.is_decided) {
        (true, _) => format!("  {of}: as it came from {one} and when it was fetched again, {what}"),
        (false, true) => format!("  {of}: from {one} and from {other}, which is right, {what}"),
        (false, false) => format!("  {of}: from {one} and from {other}, {what}"),
    }
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
        EndReason::SphereLost(loss) => ("rank-lost", loss_record(loss, host)),
        EndReason::Aborted { replica, code, message } => {
            ("abort", json!({ "replica": replica.to_string(), "code": code, "message": message }))
        }
        EndReason::NotStarted { replica, message } => {
            ("not-started", json!({ "replica": replica.to_string(), "message": message }))
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
        EndReason::Refused(refusal) => ("end-refused", json!({ "what": refusal.to_string() })),
        EndReason::BrokenLink { suspect, by } => {
            ("broken-link", json!({ "replica": suspect.to_string(), "by": by.to_string() }))
        }
        EndReason::Corrupted => ("corrupted", json!({})),
        EndReason::OutputClosed => ("output-closed", json!({})),
    }
}
