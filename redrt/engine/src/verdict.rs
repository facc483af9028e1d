//! Reports of comparisons that were not unanimous.

use super::Engine;
use quiesce::MismatchReport;
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Action, Event, Excerpt, Finding, Mismatch, Vote};
use sdc_detect::Element;
use tracing::warn;

impl Engine {
    /// Tells the audit log, and ends the job when the policy asks for that.
    pub(super) fn report(&mut self, report: &MismatchReport, element: Element, excerpt: Option<Excerpt>) {
        let is_taken = matches!(report.action, quiesce::Action::Delivered | quiesce::Action::Refetched);
        let is_open = report.finding == quiesce::Finding::Undecidable && is_taken;
        let abort = is_open && self.replication().aborts_on_sdc();
        let mismatch = Mismatch {
            receiver: self.me,
            sender: report.message.sender,
            supplier: report.supplier,
            communicator: self.runtime.label_of_context(report.message.context.0),
            context: report.message.context,
            tag: report.envelope.tag.0,
            sequence: report.message.sequence,
            length_bytes: report.envelope.length_bytes,
            payload: report.payload,
            votes: report.votes.iter().map(|vote| vote_of(report, vote)).collect(),
            element,
            excerpt,
            finding: match report.finding {
                quiesce::Finding::ReplicaCorrupt => Finding::ReplicaCorrupt,
                quiesce::Finding::TransportCorrupt => Finding::TransportCorrupt,
                quiesce::Finding::Undecidable => Finding::Undecidable,
            },
            culprit: report.culprit,
            action: match report.action {
                _ if abort => Action::Aborted,
                quiesce::Action::Delivered => Action::Delivered,
                quiesce::Action::Refetched => Action::Refetched,
                quiesce::Action::Outvoted => Action::Outvoted,
                quiesce::Action::Withheld => Action::Withheld,
                quiesce::Action::Disputed => Action::Disputed,
            },
            view: report.view,
        };
        let text = format!(
            "replicas of rank {} disagree on a message to rank {} (tag {}, number {})",
            mismatch.sender, mismatch.receiver.rank, mismatch.tag, mismatch.sequence.0
        );
        warn!(target: "engine", %text, finding = ?mismatch.finding, action = ?mismatch.action, "a mismatch");
        self.runtime.tell(FromAgent::Event(Event::Mismatch(Box::new(mismatch))));
        if abort {
            self.runtime.abort(1, text);
        }
    }
}

fn vote_of(report: &MismatchReport, vote: &sdc_detect::Vote) -> Vote {
    let replica = redrt_types::ReplicaId { rank: report.message.sender, index: vote.replica };
    Vote { replica, digest: vote.digest, core: vote.core }
}
