//! What became of a job. Times are seconds since its first record.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One job.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedJob {
    /// Its identity.
    pub job: String,
    /// The file it is recorded in.
    pub log: String,
    /// When it began.
    pub start: String,
    /// How long it ran, or has been recorded.
    pub elapsed_s: f64,
    /// Absent when its end is not recorded.
    pub exit_code: Option<i64>,
    /// What it ran.
    pub programs: Vec<String>,
    /// Virtual ranks.
    pub ranks: u64,
    /// Replicas of each.
    pub degrees: Vec<u64>,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Faults that were injected on purpose: what is found may come from them.
    pub injected: u64,
    /// Messages that did not compare equal.
    pub verdicts: Vec<Verdict>,
    /// Times in which a replica was missing.
    pub windows: Vec<Window>,
    /// All else that went wrong or was done about it.
    pub incidents: Vec<Incident>,
    /// Which replica ran where, from when to when.
    pub lives: Vec<Life>,
    /// Which replica was copied to where.
    pub copies: Vec<Copy>,
    /// What was compared, by process, as far as they told at their end.
    pub coverage: Vec<Coverage>,
    /// How long redundancy was missing; absent when its end is not recorded, or was by a version that did not tell.
    pub redundancy: Option<Redundancy>,
}

/// How long ranks had all their replicas, as redrun measured it. Sums over all ranks that were to have two or more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Redundancy {
    /// Seconds for which they were to have them.
    pub required_s: f64,
    /// Of them, seconds with at least one missing.
    pub short_s: f64,
    /// Of them, seconds with only one there.
    pub single_s: f64,
    /// Replicas that nobody replaced.
    pub missing: u64,
    /// The ranks that were short.
    pub ranks: Vec<RankRedundancy>,
}

impl Redundancy {
    /// The protected part of the time, from 0 to 1; absent where none was to be protected.
    #[must_use]
    pub fn protected_share(&self) -> Option<f64> {
        (self.required_s > 0.0).then(|| 1.0 - self.short_s / self.required_s)
    }
}

/// The same of one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankRedundancy {
    /// Its number.
    pub rank: u64,
    /// Seconds with at least one missing.
    pub short_s: f64,
    /// Seconds with only one there.
    pub single_s: f64,
    /// Replicas that nobody replaced.
    pub missing: u64,
}

/// A message on which the replicas of its sender did not agree, or that changed on its way; or a line of standard
/// output on which they did not agree.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// When the first receiver told of it.
    pub at_s: f64,
    /// replica-corrupt, transport-corrupt or undecidable.
    pub finding: String,
    /// The virtual rank that sent.
    pub sender: u64,
    /// The virtual rank that received.
    pub receiver: u64,
    /// The replica that is wrong, or on whose way the message changed, if that is known.
    pub culprit: Option<String>,
    /// All that may be it.
    pub suspects: Vec<Suspect>,
    /// Name and context.
    pub communicator: String,
    /// The context alone.
    pub context: String,
    /// Message tag.
    pub tag: i64,
    /// Position on the channel.
    pub sequence: u64,
    /// Payload bytes.
    pub length_bytes: u64,
    /// What the receiver takes it for.
    pub element: String,
    /// What was done, by the receivers that told.
    pub actions: Vec<String>,
    /// Receivers that went on with what had come.
    pub taken_by: Vec<Placed>,
    /// Digests, by replica of the sender.
    pub digests: BTreeMap<String, String>,
    /// How the payloads differ, when two were at hand.
    pub evidence: Option<Evidence>,
    /// Of a line of standard output: what was printed. Then there is no receiver but the user, and none of what
    /// messages have.
    pub output: Option<Printed>,
}

/// What replicas of one rank have printed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Printed {
    /// The line in which the first difference is, from 1.
    pub line: u64,
    /// The first byte that differs, from 1.
    pub column: u64,
    /// First the one that was shown.
    pub sides: Vec<Side>,
}

/// What some of them have printed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Which, and where they ran.
    pub replicas: Vec<Placed>,
    /// The line, as far as it was there.
    pub text: String,
    /// Nothing followed.
    pub ended: bool,
}

/// A replica and where it ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placed {
    /// The replica.
    pub replica: String,
    /// Where.
    pub host: String,
}

/// A replica that may be wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Suspect {
    /// The replica.
    pub replica: String,
    /// Where it runs.
    pub host: String,
    /// The processor that it sent its digest from, if that was told.
    pub core: Option<u64>,
}

/// How two payloads differ.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// Whose payload is the one.
    pub one: String,
    /// Whose is the other.
    pub other: String,
    /// The other is the one that all agree on.
    pub other_is_right: bool,
    /// The first byte that differs.
    pub first_byte: u64,
    /// Which bits, from there on.
    pub xor: String,
    /// Type of the elements.
    pub element: String,
    /// Number of the first element that differs.
    pub index: u64,
    /// It in the one.
    pub one_value: Option<String>,
    /// It in the other.
    pub other_value: Option<String>,
    /// How far apart they are.
    pub ulps: Option<u64>,
    /// Bits that differ.
    pub bits: u64,
}

/// From the loss of a replica to its replacement.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// Which replica was missing.
    pub replica: String,
    /// From when.
    pub from_s: f64,
    /// Until when; absent when it stayed so.
    pub to_s: Option<f64>,
}

/// Something else that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Incident {
    /// When.
    pub at_s: f64,
    /// The record's event.
    pub event: String,
    /// The replica it is about, if any.
    pub replica: Option<String>,
    /// The host, if any.
    pub host: Option<String>,
    /// The rest, in words.
    pub what: String,
}

/// A replica on a host.
#[derive(Clone, Debug, Serialize)]
pub struct Life {
    /// The replica.
    pub replica: String,
    /// Where.
    pub host: String,
    /// From when.
    pub from_s: f64,
    /// To when.
    pub to_s: f64,
    /// It was lost.
    pub lost: bool,
}

/// A copy of a replica that was begun.
#[derive(Clone, Debug, Serialize)]
pub struct Copy {
    /// The copy.
    pub copy: Placed,
    /// Who was copied.
    pub source: Placed,
}

/// What one process sent and compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Coverage {
    /// The replica.
    pub replica: String,
    /// Where it ended.
    pub host: String,
    /// Messages it sent.
    pub messages_sent: u64,
    /// Messages it compared.
    pub messages_compared: u64,
    /// Bytes of them.
    pub bytes_compared: u64,
    /// The same by communicator.
    pub communicators: Vec<Communicator>,
}

/// What was compared in one communicator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Communicator {
    /// Its name.
    pub communicator: String,
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The virtual rank of `V.I`.
pub fn rank_of(replica: &str) -> u64 {
    replica.split('.').next().and_then(|rank| rank.parse().ok()).unwrap_or(u64::MAX)
}

impl Verdict {
    /// The replica that is known to be at fault, and where it ran.
    #[must_use]
    pub fn blamed(&self) -> Option<&Suspect> {
        let culprit = self.culprit.as_ref()?;
        self.suspects.iter().find(|suspect| suspect.replica == *culprit)
    }
}
