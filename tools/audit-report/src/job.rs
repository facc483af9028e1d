//! Report of a job. Times are seconds since its first record.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One job of a log.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedJob {
    /// The job's number, in hexadecimal.
    pub job: String,
    /// Name of its log.
    pub log: String,
    /// Time of its first record.
    pub start: String,
    /// Seconds from the first record to the last.
    pub elapsed_s: f64,
    /// `None` if its end is not recorded.
    pub exit_code: Option<i64>,
    /// Names of the job's programs.
    pub programs: Vec<String>,
    /// Number of virtual ranks.
    pub ranks: u64,
    /// Degree of each rank.
    pub degrees: Vec<u64>,
    /// Names of its hosts.
    pub hosts: Vec<String>,
    /// Number of faults injected on purpose, which findings may come from.
    pub injected: u64,
    /// Messages and lines that did not compare equal.
    pub verdicts: Vec<Verdict>,
    /// Vulnerability windows.
    pub windows: Vec<Window>,
    /// Other failures, and measures against them.
    pub incidents: Vec<Incident>,
    /// Hosts of each replica, with times.
    pub lives: Vec<Life>,
    /// Copies that were begun.
    pub copies: Vec<Copy>,
    /// Comparisons of each process, as reported at its end.
    pub coverage: Vec<Coverage>,
    /// Time without full redundancy. `None` if its end is not recorded, or was recorded by a version without this
    /// record.
    pub redundancy: Option<Redundancy>,
}

/// Redundancy of ranks over time, as measured by `redrun`: sums over all ranks that were to have two replicas or more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Redundancy {
    /// Seconds for which these ranks ran.
    pub required_s: f64,
    /// Seconds of these with at least one replica missing.
    pub short_s: f64,
    /// Seconds of these with a single replica left.
    pub single_s: f64,
    /// Number of replicas that were never replaced.
    pub missing: u64,
    /// Ranks that lacked replicas.
    pub ranks: Vec<RankRedundancy>,
}

impl Redundancy {
    /// Protected part of the time, from 0 to 1. `None` if no rank was to be protected.
    #[must_use]
    pub fn protected_share(&self) -> Option<f64> {
        (self.required_s > 0.0).then(|| 1.0 - self.short_s / self.required_s)
    }
}

/// Redundancy of one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankRedundancy {
    /// Number of the rank.
    pub rank: u64,
    /// Seconds with at least one replica missing.
    pub short_s: f64,
    /// Seconds with a single replica left.
    pub single_s: f64,
    /// Number of replicas that were never replaced.
    pub missing: u64,
}

/// A message or line of standard output on which the sender's replicas differed, or a message that changed on its way.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Time of the first receiver's report.
    pub at_s: f64,
    /// `replica-corrupt`, `transport-corrupt` or `undecidable`.
    pub finding: String,
    /// The virtual rank that sent.
    pub sender: u64,
    /// The virtual rank that received.
    pub receiver: u64,
    /// The wrong replica, or the sender of a message that changed on its way. `None` if unknown.
    pub culprit: Option<String>,
    /// Replicas that may be the culprit.
    pub suspects: Vec<Suspect>,
    /// Name and context of the communicator.
    pub communicator: String,
    /// Context of the communicator.
    pub context: String,
    /// Tag of the message.
    pub tag: i64,
    /// Sequence number on the channel.
    pub sequence: u64,
    /// Length of the payload.
    pub length_bytes: u64,
    /// Type of the elements, by the receiver.
    pub element: String,
    /// Actions of the receivers that reported.
    pub actions: Vec<String>,
    /// Receivers that went on with the arrived payload.
    pub taken_by: Vec<Placed>,
    /// Digest by replica of the sender.
    pub digests: BTreeMap<String, String>,
    /// Difference of the payloads, where two were at hand.
    pub evidence: Option<Evidence>,
    /// For a line of standard output: the printed texts. Fields of messages are empty then.
    pub output: Option<Printed>,
}

/// Differing texts of one rank's replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Printed {
    /// Line of the first difference, from 1.
    pub line: u64,
    /// First differing byte of the line, from 1.
    pub column: u64,
    /// The texts; the first is the shown one.
    pub sides: Vec<Side>,
}

/// Text of some replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Replicas that printed it.
    pub replicas: Vec<Placed>,
    /// The line, as far as it had arrived.
    pub text: String,
    /// True if the output ended there.
    pub ended: bool,
}

/// A replica and its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    /// The replica, as `V.I`.
    pub replica: String,
    /// Name of its host.
    pub host: String,
}

/// A replica that may be wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Suspect {
    /// The replica, as `V.I`.
    pub replica: String,
    /// Name of its host.
    pub host: String,
    /// Core from which it sent its digest, if reported.
    pub core: Option<u64>,
}

/// Difference of two payloads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// Replica with the one payload.
    pub one: String,
    /// Replica with the other payload.
    pub other: String,
    /// True if the other payload is the one with a majority.
    pub other_is_right: bool,
    /// Offset of the first differing byte.
    pub first_byte: u64,
    /// XOR of both from there on, in hexadecimal.
    pub xor: String,
    /// Type of the elements.
    pub element: String,
    /// Index of the first differing element.
    pub index: u64,
    /// Value of that element in the one payload.
    pub one_value: Option<String>,
    /// Value of that element in the other.
    pub other_value: Option<String>,
    /// Distance of the values in units in the last place.
    pub ulps: Option<u64>,
    /// Number of differing bits.
    pub bits: u64,
}

/// Time from the loss of a replica to its replacement.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// The replica that was missing, as `V.I`.
    pub replica: String,
    /// Begin, in seconds since the job's first record.
    pub from_s: f64,
    /// End, in seconds. `None` if it was never replaced.
    pub to_s: Option<f64>,
}

/// Another event of a job.
#[derive(Clone, Debug, Serialize)]
pub struct Incident {
    /// Time, in seconds since the job's first record.
    pub at_s: f64,
    /// Name of the record's event.
    pub event: String,
    /// Replica concerned, if any.
    pub replica: Option<String>,
    /// Host concerned, if any.
    pub host: Option<String>,
    /// Other fields, in words.
    pub what: String,
}

/// Time of a replica on a host.
#[derive(Clone, Debug, Serialize)]
pub struct Life {
    /// The replica, as `V.I`.
    pub replica: String,
    /// Name of the host.
    pub host: String,
    /// Begin, in seconds since the job's first record.
    pub from_s: f64,
    /// End, in seconds since the job's first record.
    pub to_s: f64,
    /// True if it ended by a loss.
    pub lost: bool,
}

/// A copy that was begun.
#[derive(Clone, Debug, Serialize)]
pub struct Copy {
    /// The copy, with its new host.
    pub copy: Placed,
    /// The replica that was copied.
    pub source: Placed,
}

/// Messages and comparisons of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Coverage {
    /// The replica, as `V.I`.
    pub replica: String,
    /// Host at its end.
    pub host: String,
    /// Number of messages sent.
    pub messages_sent: u64,
    /// Number of messages compared.
    pub messages_compared: u64,
    /// Number of bytes compared.
    pub bytes_compared: u64,
    /// Comparisons by communicator.
    pub communicators: Vec<Communicator>,
}

/// Comparisons in one communicator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Communicator {
    /// Name of the communicator.
    pub communicator: String,
    /// Number of messages compared.
    pub messages: u64,
    /// Number of bytes compared.
    pub bytes: u64,
}

/// Rank of a replica `V.I`. The highest number if the text has another form.
pub fn rank_of(replica: &str) -> u64 {
    replica.split('.').next().and_then(|rank| rank.parse().ok()).unwrap_or(u64::MAX)
}

impl Verdict {
    /// The replica at fault. `None` if it is unknown.
    #[must_use]
    pub fn blamed(&self) -> Option<&Suspect> {
        let culprit = self.culprit.as_ref()?;
        self.suspects.iter().find(|suspect| suspect.replica == *culprit)
    }
}
