//! The fate of a fault: an ended job → a record.

use super::{FlipSite, Trial};
use crate::Ended;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Fate of a fault that was injected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// The moment did not come before the end, or there was no bit to flip.
    NotInjected,
    /// The fault was reported, and against the right replica as far as it can be known.
    Detected,
    /// A replica, or the job, ended with an error before a wrong message was sent.
    Ended,
    /// Nothing wrong was sent or printed.
    Masked,
    /// Something wrong was sent or printed, without a report.
    Missed,
    /// Another replica was accused, or a report came without an injected fault.
    False,
    /// Two sound replicas of three did not save the job or its output, or one of them was lost.
    Lost,
    /// The job did not end, or left something behind.
    Hung,
}

impl Fate {
    /// All fates, in the order of the table's columns.
    pub const ALL: [Self; 8] = [
        Self::NotInjected,
        Self::Detected,
        Self::Ended,
        Self::Masked,
        Self::Missed,
        Self::False,
        Self::Lost,
        Self::Hung,
    ];

    /// The fate's name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotInjected => "not injected",
            Self::Detected => "detected",
            Self::Ended => "ended",
            Self::Masked => "masked",
            Self::Missed => "missed",
            Self::False => "false",
            Self::Lost => "lost",
            Self::Hung => "hung",
        }
    }
}

/// The record of one fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Program, degree, fault, options and seed of the job.
    pub id: String,
    /// The place of the flip.
    pub place: FlipSite,
    /// The degree.
    pub degree: u16,
    /// The fault's fate.
    pub fate: Fate,
    /// True when something wrong was sent or printed.
    pub reached: bool,
    /// True when something wrong went out and the output was right all the same.
    pub corrected: bool,
    /// A copy of a sound replica took the place of the wrong one before the job ended.
    pub healed: bool,
}

impl Record {
    /// The reason when the fate is not as it should be.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        matches!(self.fate, Fate::Missed | Fate::False | Fate::Lost | Fate::Hung)
            .then(|| format!("{}: {}", self.fate.name(), self.id))
    }

    /// The record as a line of the file.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id, "place": self.place.name(), "degree": self.degree, "fate": self.fate.name(),
            "reached": self.reached, "corrected": self.corrected, "healed": self.healed,
        })
    }

    /// The record in a line of the file; `None` when the line is of another kind.
    #[must_use]
    pub fn from_json(line: &Value) -> Option<Self> {
        let fate = line["fate"].as_str()?;
        Some(Self {
            id: line["id"].as_str()?.to_owned(),
            place: FlipSite::named(line["place"].as_str()?)?,
            degree: u16::try_from(line["degree"].as_u64()?).ok()?,
            fate: Fate::ALL.into_iter().find(|one| one.name() == fate)?,
            reached: line["reached"].as_bool()?,
            corrected: line["corrected"].as_bool()?,
            healed: line["healed"].as_bool()?,
        })
    }
}

/// A job's evidence about its fault.
struct Facts<'a> {
    trial: &'a Trial,
    ended: &'a Ended,
    culprit: String,
}

pub(super) fn judge(trial: &Trial, seed: u64, ended: &Ended, out: &str) -> Record {
    let facts = Facts { trial, ended, culprit: format!("{}.{}", trial.target.0, trial.target.1) };
    let is_right_output = ended.code == Some(0) && ended.out == out;
    let detected = facts.is_detected();
    let is_wrong = facts.sums_differ("sent_sum") || facts.sums_differ("received_sum");
    let is_printed = trial.place == FlipSite::Output && facts.is_injected();
    let reached = detected || is_wrong || is_printed || (ended.code == Some(0) && ended.out != out);
    let fate = if ended.hung() || !ended.left.is_empty() {
        Fate::Hung
    } else if !facts.is_injected() {
        if facts.has_verdict() { Fate::False } else { Fate::NotInjected }
    } else if facts.accuses_another() {
        Fate::False
    } else if facts.is_saved_by_majority() && (!is_right_output || facts.has_lost_another()) {
        Fate::Lost
    } else if detected {
        Fate::Detected
    } else if reached {
        Fate::Missed
    } else if facts.has_verdict() {
        Fate::False
    } else if facts.has_ended() {
        Fate::Ended
    } else {
        Fate::Masked
    };
    let is_injected = fate != Fate::NotInjected;
    Record {
        id: trial.id(seed),
        place: trial.place,
        degree: trial.degree,
        fate,
        reached: is_injected && reached,
        corrected: is_injected && reached && is_right_output,
        healed: detected && (ended.number("recovered") > 0 || ended.number("arbitrations_named") > 0),
    }
}

impl Facts<'_> {
    /// True for the fault itself: the fault that triggers a resend from the log does not count.
    fn is_injected(&self) -> bool {
        self.ended.events("injected").any(|record| {
            let is_flip = record["fault"].as_str().is_some_and(|fault| match self.trial.place {
                FlipSite::Payload => fault.contains("flipped in memory"),
                FlipSite::Heap => fault.contains("flipped before"),
                FlipSite::Thread => fault.contains("instructions after send"),
                FlipSite::Flight => fault.contains("flipped in flight"),
                FlipSite::Received => fault.contains("flipped in its buffer"),
                FlipSite::Log => fault.contains("retention log"),
                FlipSite::Output => fault.contains("standard output"),
                FlipSite::Path => fault.contains("outcome falsified"),
            });
            is_flip && record["replica"] == self.culprit.as_str()
        })
    }

    /// True when replicas of one rank that came to the end have sent, or received, different messages.
    fn sums_differ(&self, which: &str) -> bool {
        let mut sums = BTreeMap::<&str, &Value>::new();
        let exits = self.ended.summary["exits"].as_array().into_iter().flatten();
        let told = exits.filter(|exit| !exit[which].is_null());
        told.filter_map(|exit| Some((exit["replica"].as_str()?.split('.').next()?, &exit[which])))
            .any(|(rank, sum)| *sums.entry(rank).or_insert(sum) != sum)
    }

    fn verdicts(&self) -> impl Iterator<Item = &Value> {
        // The trigger of a resend has verdicts of its own.
        self.ended.events("mismatch").filter(|record| !self.is_of_trigger(record))
    }

    fn is_of_trigger(&self, record: &Value) -> bool {
        let is_other_transport =
            record["finding"] == "transport-corrupt" && record["supplier"] != self.culprit.as_str();
        self.trial.place == FlipSite::Log && is_other_transport && record["sender"] == self.trial.target.0
    }

    fn has_verdict(&self) -> bool {
        let told = |event| self.ended.events(event).next().is_some();
        self.verdicts().next().is_some() || told("output-mismatch") || told("divergence") || told("path")
    }

    /// True when a verdict is about this fault.
    fn is_detected(&self) -> bool {
        let culprit = self.culprit.as_str();
        let votes = |record: &Value| {
            let votes = record["votes"].as_array().into_iter().flatten();
            votes.into_iter().any(|vote| vote["replica"] == culprit)
        };
        let is_of_fault = |record: &Value| match self.trial.place {
            FlipSite::Flight | FlipSite::Log => {
                record["finding"] == "transport-corrupt" && record["supplier"] == culprit
            }
            _ if record["culprit"] == culprit => true,
            // A flip in a register or on a stack may damage a payload behind its digest, or a received one.
            FlipSite::Thread if record["finding"] == "transport-corrupt" => {
                record["supplier"] == culprit || record["receiver"] == culprit
            }
            _ if self.trial.degree == 2 => record["finding"] == "undecidable" && votes(record),
            _ => false,
        };
        let is_behind_digest = matches!(self.trial.place, FlipSite::Flight | FlipSite::Log);
        self.verdicts().any(is_of_fault) || (!is_behind_digest && (self.has_output_verdict() || self.has_strayed()))
    }

    /// True when the output of the replica, or at r = 2 of its rank, was found to differ.
    fn has_output_verdict(&self) -> bool {
        self.ended.events("output-mismatch").any(|record| {
            let is_open = self.trial.degree == 2 && record["rank"] == self.trial.target.0;
            record["culprit"] == self.culprit.as_str() || is_open
        })
    }

    /// True when a replica of the rank left its siblings' path: it asked for something else.
    fn has_strayed(&self) -> bool {
        let rank = format!("{}.", self.trial.target.0);
        let is_of_rank = |record: &Value| record["replica"].as_str().is_some_and(|it| it.starts_with(&rank));
        let is_of_path = |record: &Value| match self.trial.can_name() {
            true => names(&record["culprits"]).any(|name| name == self.culprit),
            false => record["rank"] == self.trial.target.0,
        };
        self.ended.events("divergence").any(is_of_rank) || self.ended.events("path").any(is_of_path)
    }

    /// True when a majority accuses another replica. In deferred mode a replica that used a wrong message before its
    /// verdict is wrong too.
    fn accuses_another(&self) -> bool {
        let is_certain = self.trial.can_name() && !self.trial.is_deferred();
        let is_other = |value: &Value| value.as_str().is_some_and(|name| name != self.culprit);
        // Unless the trial kills a replica too, only the flipped one has a reason to be lost.
        let is_alone = !self.trial.fault.contains("kill:");
        let is_wrongly_retired =
            |record: &Value| (is_alone || record["reason"] == "outvoted") && is_other(&record["replica"]);
        is_certain
            && (self.verdicts().chain(self.ended.events("output-mismatch")).any(|record| is_other(&record["culprit"]))
                || self.ended.events("path").any(|record| names(&record["culprits"]).any(|name| name != self.culprit))
                || self.ended.events("retired").any(is_wrongly_retired))
    }

    /// True when one replica of three was wrong and no other was touched: the majority must save the job.
    fn is_saved_by_majority(&self) -> bool {
        self.trial.degree > 2 && !self.trial.is_deferred() && !self.trial.fault.contains(',')
    }

    /// True when a replica was lost that nothing was injected into.
    fn has_lost_another(&self) -> bool {
        names(&self.ended.summary["lost"]).any(|name| name != self.culprit)
    }

    /// True when a replica ended that the trial does not kill, or when the job did not end well.
    fn has_ended(&self) -> bool {
        let killed = self.trial.fault.contains("kill:");
        let lost = self.ended.summary["lost"].as_array().map_or(0, Vec::len);
        lost > usize::from(killed) || self.ended.code != Some(0)
    }
}

/// The strings in a JSON list.
fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
