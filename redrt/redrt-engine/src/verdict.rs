//! The mismatch that a comparison found, as it is told.

use quiesce::MismatchReport;
use redrt_types::ReplicaId;
use redrt_wire::event::{Action, Excerpt, Finding, Mismatch, Vote};
use sdc_detect::Element;

/// A mismatch, with what is known of the payload.
pub(super) struct Verdict<'a> {
    /// The finding of the protocol.
    pub report: &'a MismatchReport,
    /// The replica that received the message.
    pub receiver: ReplicaId,
    /// Name of the message's communicator.
    pub communicator: String,
    /// Type of the payload's elements, as its sender stated it.
    pub element: Element,
    /// Part of the payload, for `redrun`.
    pub excerpt: Option<Excerpt>,
    /// True if the job ends when nobody knows which replica is wrong.
    pub aborts_on_sdc: bool,
}

impl Verdict<'_> {
    /// Returns true if the job ends.
    pub fn aborts(&self) -> bool {
        let is_taken = matches!(self.report.action, quiesce::Action::Delivered | quiesce::Action::Refetched);
        self.report.finding == quiesce::Finding::Undecidable && is_taken && self.aborts_on_sdc
    }

    /// The mismatch in the form that is told.
    pub fn into_mismatch(self) -> Mismatch {
        let (report, aborts) = (self.report, self.aborts());
        Mismatch {
            receiver: self.receiver,
            sender: report.message.sender,
            supplier: report.supplier,
            communicator: self.communicator,
            context: report.message.context,
            tag: report.envelope.tag.0,
            sequence: report.message.sequence,
            length_bytes: report.envelope.length_bytes,
            payload: report.payload,
            votes: report.votes.iter().map(|vote| vote_of(report, vote)).collect(),
            element: self.element,
            excerpt: self.excerpt,
            finding: match report.finding {
                quiesce::Finding::ReplicaCorrupt => Finding::ReplicaCorrupt,
                quiesce::Finding::TransportCorrupt => Finding::TransportCorrupt,
                quiesce::Finding::Undecidable => Finding::Undecidable,
            },
            culprit: report.culprit,
            action: match report.action {
                _ if aborts => Action::Aborted,
                quiesce::Action::Delivered => Action::Delivered,
                quiesce::Action::Refetched => Action::Refetched,
                quiesce::Action::Outvoted => Action::Outvoted,
                quiesce::Action::Withheld => Action::Withheld,
                quiesce::Action::Disputed => Action::Disputed,
            },
            view: report.view,
        }
    }
}

fn vote_of(report: &MismatchReport, vote: &sdc_detect::Vote) -> Vote {
    let replica = redrt_types::ReplicaId { rank: report.message.sender, index: vote.replica };
    Vote { replica, digest: vote.digest, core: vote.core }
}
