//! The summary at the end of a job: programs, losses, comparisons.

pub mod profile;

use super::redundancy;
use super::status::milliseconds;
use anyhow::Result;
use audit_log::chain::Head;
use job_report::{bytes_text, counted, exit_record, time_text};
use planner::profile::Profile;
use redrt_types::ReplicaId;
use redrt_wire::clone::Cost;
use redrt_wire::event::{Event, Statistics};
use redrt_wire::exit::Exit;
use replication_manager::{EndReason, Purpose, ReplicationManager, Report};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Maximum number of named losses; the audit log has all.
const LOST_NAMES_MAX: usize = 12;

/// Counters over the reports.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    mismatches: u64,
    undecided: u64,
    mismatches_by_replica: BTreeMap<ReplicaId, u64>,
    /// Number of differing lines of standard output.
    output_mismatches: u64,
    output_by_replica: BTreeMap<ReplicaId, u64>,
    divergences: u64,
    readings_alone: u64,
    pub(super) injected: u64,
    /// In order of time. A place may be lost several times.
    pub(super) losses: Vec<(ReplicaId, Exit)>,
    /// Vulnerability windows that copies have closed.
    pub(super) windows: Vec<Duration>,
    /// Number of all copies.
    pub(super) copies: u64,
    /// Costs of copies, as far as reported.
    pub(super) costs: Vec<Cost>,
    /// Copies that joined on request.
    joined: u64,
    /// Replicas that left on request.
    left: u64,
    /// Disputes that were put to arbiters, and those in which a culprit was named.
    arbitrations: u64,
    named: u64,
    /// Checkpoints that were taken.
    pub(super) checkpoints: Vec<CheckpointCost>,
    /// Number of checkpoints that are in the archive too.
    pub(super) archived: u64,
    /// Checkpoints that others have vouched for.
    proven: u64,
    /// Number of checkpoints that failed.
    failed_checkpoints: u64,
    /// Number of returns to a checkpoint.
    returns: u64,
    /// Number of texts that differed after a return.
    departures: u64,
    /// Time of each return until processes ran again.
    pub(super) restarts: Vec<Duration>,
    /// Arbiters that are in the view.
    arbiters: BTreeSet<ReplicaId>,
    /// By reporting process and its peer: both ends report.
    reconnections: BTreeMap<(ReplicaId, ReplicaId), u64>,
}

/// Cost of one checkpoint.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CheckpointCost {
    /// Time for which the program stood still.
    pub stopped: Duration,
    /// Time from beginning to commit.
    pub elapsed: Duration,
    /// Bytes of all images.
    pub bytes: u64,
}

impl Tally {
    /// The longest stop for a checkpoint.
    fn stopped_max(&self) -> Duration {
        self.checkpoints.iter().map(|checkpoint| checkpoint.stopped).max().unwrap_or_default()
    }

    /// Number of mismatches of messages and output.
    pub fn mismatches(&self) -> u64 {
        self.mismatches + self.output_mismatches
    }

    /// Number of connections that were lost and reopened.
    fn reconnections(&self) -> u64 {
        let told = |pair: &(ReplicaId, ReplicaId)| self.reconnections.get(pair).copied().unwrap_or(0);
        // Both ends report a reconnection, but either may be lost before.
        let pairs = self.reconnections.keys().filter(|(one, other)| one < other || told(&(*other, *one)) == 0);
        pairs.map(|(one, other)| told(&(*one, *other)).max(told(&(*other, *one)))).sum()
    }

    /// Counts a report.
    pub fn count(&mut self, report: &Report) {
        if let Report::Recovered(recovered) = report {
            self.copies += 1;
            self.costs.extend(recovered.cost);
        }
        match report {
            Report::Event(Event::Mismatch(mismatch)) => {
                self.mismatches += 1;
                match mismatch.culprit {
                    Some(culprit) => *self.mismatches_by_replica.entry(culprit).or_default() += 1,
                    None => self.undecided += 1,
                }
            }
            Report::Event(Event::Divergence { .. } | Event::Path(_)) => self.divergences += 1,
            Report::Event(Event::ReadingAlone(_)) => self.readings_alone += 1,
            Report::OutputMismatch { rank, mismatch, .. } => {
                self.output_mismatches += 1;
                if let Some(index) = mismatch.culprit {
                    *self.output_by_replica.entry(ReplicaId { rank: *rank, index }).or_default() += 1;
                }
            }
            Report::Event(Event::Reconnected { replica, peer }) => {
                *self.reconnections.entry((*replica, *peer)).or_default() += 1;
            }
            Report::Event(Event::Injected { .. }) | Report::Injected { .. } => self.injected += 1,
            Report::CheckpointTaken { stopped, elapsed, bytes, .. } => {
                self.checkpoints.push(CheckpointCost { stopped: *stopped, elapsed: *elapsed, bytes: *bytes });
            }
            Report::Ending(EndReason::GoesBack { .. } | EndReason::Unloadable { .. }) => self.returns += 1,
            Report::CheckpointProven { .. } => self.proven += 1,
            Report::OutputDeparted { .. } => self.departures += 1,
            Report::CheckpointFailed { .. } => self.failed_checkpoints += 1,
            Report::Lost(loss) => self.losses.push((loss.replica, loss.exit)),
            Report::Recovered(recovered) if recovered.purpose == Purpose::Loss => self.windows.push(recovered.window),
            Report::Recovered(recovered) if recovered.purpose == Purpose::Arbitration => {}
            Report::Recovered(_) => self.joined += 1,
            Report::Arbitrated(arbitration) => {
                self.arbitrations += 1;
                self.named += u64::from(arbitration.culprit.is_some());
                self.arbiters.extend(arbitration.arbiters.iter().map(|arbiter| arbiter.replica));
            }
            Report::Left { replica } if self.arbiters.remove(replica) => {}
            Report::Left { .. } => self.left += 1,
            _ => {}
        }
    }
}

fn degrees_text(degrees: &[u16]) -> String {
    let (low, high) = degrees.iter().fold((u16::MAX, 0), |(low, high), one| (low.min(*one), high.max(*one)));
    if low == high { low.to_string() } else { format!("{low} to {high}") }
}

/// Data of the summary.
pub struct Summary<'a> {
    manager: &'a ReplicationManager,
    tally: &'a Tally,
    elapsed: Duration,
    code: i32,
    total: Statistics,
    lost: Vec<(ReplicaId, Exit)>,
    /// Path and head of the audit log.
    audit: Option<(&'a Path, Head)>,
    /// Requested faults that have not happened.
    not_injected: Vec<String>,
    /// Path and contents of the profile.
    profile: Option<(&'a Path, &'a Profile)>,
}

impl<'a> Summary<'a> {
    /// Adds up the counters.
    pub fn new(
        manager: &'a ReplicationManager,
        tally: &'a Tally,
        elapsed: Duration,
        code: i32,
        audit: Option<(&'a Path, Head)>,
        not_injected: Vec<String>,
        profile: Option<(&'a Path, &'a Profile)>,
    ) -> Self {
        let mut total = Statistics::default();
        for (_, statistics) in manager.members().statistics() {
            let one = statistics.unwrap_or_default();
            total.messages_sent += one.messages_sent;
            total.bytes_sent += one.bytes_sent;
            total.messages_compared += one.messages_compared;
            total.bytes_compared += one.bytes_compared;
            total.decisions += one.decisions;
            total.retention_bytes_max = total.retention_bytes_max.max(one.retention_bytes_max);
            total.messages_resent += one.messages_resent;
            total.stall_ns_max = total.stall_ns_max.max(one.stall_ns_max);
            total.changes_waited += one.changes_waited;
            total.change_wait_ns += one.change_wait_ns;
            total.change_wait_ns_max = total.change_wait_ns_max.max(one.change_wait_ns_max);
            total.resident_bytes = total.resident_bytes.max(one.resident_bytes);
        }
        let mut lost = tally.losses.clone();
        // The last replica of a rank is lost without a report.
        let untold = manager
            .members()
            .exits()
            .filter(|(replica, _, lost)| *lost && !tally.losses.iter().any(|(told, _)| told == replica));
        lost.extend(untold.filter_map(|(replica, exit, _)| Some((replica, exit?))));
        Self { manager, tally, elapsed, code, total, lost, audit, not_injected, profile }
    }

    /// Lines for the user. `None` for an unreplicated job without events, which stays as quiet as under any `mpiexec`.
    pub fn lines(&self) -> Option<Vec<String>> {
        let tally = self.tally;
        let happened = [
            tally.mismatches(),
            tally.divergences,
            tally.injected,
            tally.joined,
            tally.checkpoints.len() as u64,
            tally.returns,
            tally.departures,
            tally.failed_checkpoints,
        ];
        let nothing_happened = happened.iter().sum::<u64>() == 0;
        let world = self.manager.world();
        let degrees = self.manager.members().first_degrees();
        if degrees.iter().all(|degree| *degree == 1) && nothing_happened && self.profile.is_none() {
            return None;
        }
        let mut lines = vec![format!(
            "{} x {} replicas, {} processes, {:.2} s, exit code {}",
            counted(world.rank_count().into(), "rank"),
            degrees_text(degrees),
            degrees.iter().copied().map(u32::from).sum::<u32>(),
            self.elapsed.as_secs_f64(),
            self.code
        )];
        let lost: Vec<_> = self.lost.iter().map(|(replica, exit)| format!("{replica} ({exit})")).collect();
        if !lost.is_empty() {
            let more = lost.len().saturating_sub(LOST_NAMES_MAX);
            let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
            lines.push(format!("  lost: {}{rest}", lost[..lost.len() - more].join(", ")));
        }
        if let Some(longest) = tally.windows.iter().max() {
            let (count, text) = (tally.windows.len() as u64, time_text(*longest));
            lines.push(format!("  {} made good by copies, each within {text}", counted(count, "loss")));
        }
        if let Some(last) = tally.checkpoints.last() {
            lines.push(format!(
                "  {}, {} each, for which the program was stopped for at most {}",
                counted(tally.checkpoints.len() as u64, "checkpoint"),
                bytes_text(last.bytes),
                time_text(tally.stopped_max())
            ));
        }
        if tally.proven > 0 {
            lines.push(format!(
                "  {} proven by replicas that have the same memory",
                counted(tally.proven, "checkpoint")
            ));
        }
        if tally.archived > 0 {
            lines.push(format!("  {} copied to the archive", counted(tally.archived, "checkpoint")));
        }
        if tally.failed_checkpoints > 0 {
            lines.push(format!("  {} not taken", counted(tally.failed_checkpoints, "checkpoint")));
        }
        if tally.returns > 0 {
            let times = if tally.returns == 1 { "once".into() } else { format!("{} times", tally.returns) };
            lines.push(format!("  went back to a checkpoint {times}"));
        }
        if tally.departures > 0 {
            let texts = counted(tally.departures, "text");
            lines.push(format!(
                "  {texts} of standard output and error shown anew, from the first line that differed on"
            ));
        }
        lines.extend(redundancy::lines(self.manager.redundancy(), self.elapsed));
        if tally.arbitrations > 0 {
            let named = if tally.named == 0 { "none".into() } else { tally.named.to_string() };
            let disputes = counted(tally.arbitrations, "dispute");
            lines.push(format!(
                "  {disputes} of two replicas put before copies of them, which told who was wrong in {named}"
            ));
        }
        if tally.joined + tally.left > 0 {
            lines.push(format!(
                "  {} made by request, {} ended",
                counted(tally.joined, "clone"),
                counted(tally.left, "replica")
            ));
        }
        if self.total.messages_sent > 0 {
            lines.push(self.messages());
            lines.push(format!(
                "  {}, {} sent again, at most {} retained by a process",
                counted(self.total.decisions, "decision"),
                counted(self.total.messages_resent, "message"),
                bytes_text(self.total.retention_bytes_max)
            ));
        } else if let Some(line) = self.without_messages() {
            lines.push(line);
        }
        if self.total.changes_waited > 0 {
            lines.push(format!(
                "  {} of files waited for a majority, for {} ms in all, at most {} ms",
                counted(self.total.changes_waited, "change"),
                milliseconds(self.total.change_wait_ns),
                milliseconds(self.total.change_wait_ns_max)
            ));
        }
        if self.total.stall_ns_max > 0 {
            let stall_ms = milliseconds(self.total.stall_ns_max);
            lines.push(format!("  calls that waited when a view came went on after at most {stall_ms} ms"));
        }
        let reconnections = tally.reconnections();
        if reconnections > 0 {
            lines.push(format!("  {} resumed after being lost", counted(reconnections, "connection")));
        }
        if tally.output_mismatches > 0 {
            let differed = format!("  {} of standard output differed", counted(tally.output_mismatches, "line"));
            lines.push(with_names(differed, &by_replica(&tally.output_by_replica)));
        }
        if tally.divergences > 0 {
            lines.push(format!("  {} between replicas outside messages", counted(tally.divergences, "divergence")));
        }
        if tally.readings_alone > 0 {
            let places = counted(tally.readings_alone, "place");
            lines.push(format!("  at {places} a replica reads a clock alone; --check-determinism shows where"));
        }
        if tally.injected > 0 {
            lines.push(format!("  {} injected", counted(tally.injected, "fault")));
        }
        if !self.not_injected.is_empty() {
            lines.push(format!("  not injected: {}", self.not_injected.join(", ")));
        }
        if let Some((path, profile)) = self.profile {
            lines.extend(profile::text_lines(profile, path));
        }
        if let Some((path, head)) = self.audit {
            lines.push(format!("  audit log {}, head {head}", path.display()));
        }
        Some(lines)
    }

    /// Warning, even for quiet jobs, that no messages were compared although there are replicas.
    pub fn unprotected(&self) -> Option<&'static str> {
        let is_replicated = self.manager.members().first_degrees().iter().any(|degree| *degree > 1);
        (is_replicated && self.code == 0 && !self.used_mpi()).then_some(
            "no message was compared: no process of this program called MPI_Init. Replicas found nothing but differences in \
             standard output (--stdout). Is it built for another MPI?",
        )
    }

    /// Warning, even for quiet jobs, that no checkpoint was taken because the program does not use MPI.
    pub fn unsaved(&self) -> Option<&'static str> {
        (self.code == 0 && self.tally.checkpoints.is_empty() && !self.used_mpi())
            .then_some("nothing was saved: no process of this program called MPI_Init. Is it built for another MPI?")
    }

    fn used_mpi(&self) -> bool {
        self.manager.members().statistics().any(|(_, statistics)| statistics.is_some())
    }

    /// Line for a job whose processes reported no messages. They report at their end, and may have been killed before.
    fn without_messages(&self) -> Option<String> {
        let is_replicated = self.manager.members().first_degrees().iter().any(|degree| *degree > 1);
        let statistics = || self.manager.members().statistics();
        let has_begun = statistics().any(|(replica, _)| self.manager.members().has_begun(replica));
        let is_untold = has_begun && statistics().all(|(_, told)| told.is_none());
        match self.tally.mismatches {
            0 if !is_replicated => None,
            0 if is_untold => {
                Some("  no process lived to tell how many messages it had compared; none was seen to differ".into())
            }
            0 => Some("  no message was sent from rank to rank, so none was compared".into()),
            count => Some(format!(
                "  {} of messages; no process lived to tell how many it had compared",
                counted(count, "mismatch")
            )),
        }
    }

    fn messages(&self) -> String {
        let total = &self.total;
        let compared = format!(
            "  {} compared ({}), {}",
            counted(total.messages_compared, "message"),
            bytes_text(total.bytes_compared),
            counted(self.tally.mismatches, "mismatch")
        );
        let mut named = by_replica(&self.tally.mismatches_by_replica);
        if self.tally.undecided > 0 {
            named.push(format!("culprit unknown: {}", self.tally.undecided));
        }
        with_names(compared, &named)
    }

    /// The summary as JSON, with the result of a determinism check.
    pub fn json_text(&self, determinism: Option<&Value>) -> Result<String> {
        let mut json = self.json();
        if let Some(determinism) = determinism {
            json["determinism"] = determinism.clone();
        }
        let mut text = serde_json::to_string_pretty(&json)?;
        text.push('\n');
        Ok(text)
    }

    fn json(&self) -> Value {
        let world = self.manager.world();
        let degrees = self.manager.members().first_degrees();
        let sent =
            self.manager.members().statistics().map(|(replica, one)| (replica, one.map(|one| one.messages_sent)));
        let sent: BTreeMap<_, _> = sent.collect();
        let stalls =
            self.manager.members().statistics().map(|(replica, one)| (replica, one.map(|one| one.stall_ns_max)));
        let stalls: BTreeMap<_, _> = stalls.collect();
        let sums = |sum: fn(&Statistics) -> u64| -> BTreeMap<_, _> {
            let sums = self.manager.members().statistics().map(|(replica, one)| (replica, one.as_ref().map(sum)));
            sums.filter(|(_, sum)| *sum != Some(0)).collect()
        };
        let (sent_sums, received_sums) = (sums(|one| one.sent_sum), sums(|one| one.received_sum));
        let exits = self.manager.members().exits().map(|(replica, exit, lost)| {
            let exit = exit.map(exit_record);
            let sent = sent.get(&replica).copied().flatten();
            let stall_ms = stalls.get(&replica).copied().flatten().map(milliseconds);
            json!({
                "replica": replica.to_string(), "exit": exit, "lost": lost, "messages_sent": sent,
                "stall_ms_max": stall_ms, "sent_sum": sent_sums.get(&replica).copied().flatten(),
                "received_sum": received_sums.get(&replica).copied().flatten(),
            })
        });
        let by_replica = |counts: &BTreeMap<ReplicaId, u64>| -> BTreeMap<_, _> {
            counts.iter().map(|(replica, count)| (replica.to_string(), *count)).collect()
        };
        let lost: Vec<_> = self.lost.iter().map(|(replica, _)| replica.to_string()).collect();
        json!({
            "ranks": world.rank_count(), "degrees": degrees, "processes": degrees.iter().copied().map(u32::from).sum::<u32>(),
            "elapsed_s": self.elapsed.as_secs_f64(), "exit_code": self.code,
            "exits": exits.collect::<Vec<_>>(), "lost": lost, "view": self.manager.view().number.0,
            "statistics": self.total, "mismatches": self.tally.mismatches,
            "mismatches_by_replica": by_replica(&self.tally.mismatches_by_replica),
            "mismatches_undecided": self.tally.undecided,
            "arbitrations": self.tally.arbitrations, "arbitrations_named": self.tally.named,
            "checkpoints": self.tally.checkpoints.len(), "checkpoints_archived": self.tally.archived,
            "checkpoints_proven": self.tally.proven,
            "checkpoint_bytes": self.tally.checkpoints.last().map_or(0, |last| last.bytes),
            "checkpoint_stop_ms_max": milliseconds(self.tally.stopped_max().as_nanos() as u64), "returns": self.tally.returns,
            "output_departures": self.tally.departures, "checkpoints_failed": self.tally.failed_checkpoints,
            "recovered": self.tally.windows.len(), "joined": self.tally.joined, "left": self.tally.left,
            "redundancy": redundancy::json(self.manager.redundancy(), self.elapsed),
            "windows_ms": self.tally.windows.iter().map(|window| milliseconds(window.as_nanos() as u64)).collect::<Vec<_>>(),
            "divergences": self.tally.divergences, "readings_alone": self.tally.readings_alone, "output_mismatches": self.tally.output_mismatches,
            "output_mismatches_by_replica": by_replica(&self.tally.output_by_replica),
            "reconnections": self.tally.reconnections(), "injected": self.tally.injected,
            "not_injected": self.not_injected,
            "profile": self.profile.map(|(path, profile)| json!({ "file": path.display().to_string(), "calls": profile.calls })),
            "audit": self.audit.map(|(path, head)| json!({ "file": path.display().to_string(), "head": head.to_string() })),
        })
    }
}

/// An entry such as `0.1: 3` for each replica that was named corrupt.
fn by_replica(counts: &BTreeMap<ReplicaId, u64>) -> Vec<String> {
    counts.iter().map(|(replica, count)| format!("{replica}: {count}")).collect()
}

/// The line, followed by names in parentheses if there are any.
fn with_names(line: String, names: &[String]) -> String {
    if names.is_empty() { line } else { format!("{line} ({})", names.join(", ")) }
}
