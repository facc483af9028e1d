//! Reports of comparisons that were not unanimous.

use super::{Engine, traces};
use quiesce::{Claim, DecisionKey, MismatchReport, PathFinding, PathReport, Place, StreamId};
use redrt_types::{ReplicaId, ReplicaSet, SeqNum, VirtualRank};
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Action, Course, Event, Excerpt, Finding, Mismatch, OutcomeId};
use redrt_wire::event::{PathMismatch, PathStack, Step, Vote};
use redrt_wire::trace::{Sending, Trace};
use sdc_detect::Element;
use tracing::warn;

impl Engine {
    /// Reports a mismatch, and ends the job if the policy asks for that.
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

impl Engine {
    /// Reports that replicas of this rank ask for different things, and ends the job if nobody knows which replica is
    /// wrong and the policy asks for that.
    pub(super) fn report_path(&mut self, report: &PathReport) {
        let rank = self.me.rank;
        let aborts_on_sdc = self.replication().aborts_on_sdc();
        let all = |set: ReplicaSet| set.iter().map(|index| ReplicaId { rank, index }).collect::<Vec<_>>();
        let step = |(index, claim): &(_, Claim)| {
            let replica = ReplicaId { rank, index: *index };
            let (what, place) = match claim {
                Claim::Asks(question) => (question.call.to_string(), question.place),
                Claim::At(place) => ("does not".to_owned(), *place),
                Claim::Taken => ("has gone on".to_owned(), Place::NOWHERE),
            };
            let calls = if place.calls == Place::NOWHERE.calls { 0 } else { place.calls };
            Step { replica, what, calls }
        };
        let (finding, culprits) = match &report.finding {
            PathFinding::Outvoted(culprits) => (Finding::ReplicaCorrupt, all(*culprits)),
            PathFinding::Undecidable | PathFinding::Disputed => (Finding::Undecidable, Vec::new()),
        };
        let is_disputed = report.finding == PathFinding::Disputed;
        let abort = finding == Finding::Undecidable && !is_disputed && aborts_on_sdc;
        let mismatch = PathMismatch {
            outcome: outcome_of(rank, report),
            steps: report.claims.iter().map(step).collect(),
            finding,
            culprits,
            parted: all(report.parted),
            action: match finding {
                _ if abort => Action::Aborted,
                _ if is_disputed => Action::Disputed,
                Finding::ReplicaCorrupt => Action::Outvoted,
                Finding::TransportCorrupt | Finding::Undecidable => Action::Delivered,
            },
            view: report.view,
        };
        warn!(target: "engine", %mismatch, "paths have parted");
        let text = mismatch.to_string();
        self.tell_stack(report);
        self.runtime.tell(FromAgent::Event(Event::Path(Box::new(mismatch))));
        if abort {
            self.runtime.abort(1, text);
        }
    }

    /// Reports the stack of the calling thread if it asks for something else than a sibling. The order matters: the
    /// report goes out before the sibling can learn of it, since a replica that has parted from its leader is ended
    /// once either has reported.
    pub(super) fn tell_stack_of_parting(&mut self) {
        if let Some(report) = self.replication().parting().cloned() {
            self.tell_stack(&report);
        }
    }

    fn tell_stack(&mut self, report: &PathReport) {
        if let Some(trace) = self.stack_of(report) {
            let stack = PathStack { replica: self.me, outcome: outcome_of(self.me.rank, report), trace };
            self.runtime.tell(FromAgent::Event(Event::PathStack(Box::new(stack))));
        }
    }

    /// The stack of this process's question or send in which replicas differ. It is known while the calling thread is
    /// in that call, and for recent ones while the program is being checked.
    fn stack_of(&mut self, report: &PathReport) -> Option<Trace> {
        let DecisionKey { stream, index } = report.key;
        let own = report.claims.iter().find(|(by, _)| *by == self.me.index);
        let Some((_, Claim::Asks(question))) = own else { return None };
        let here = self.program_place();
        let is_here = here == question.place && here != Place::NOWHERE;
        if is_here && self.replication().passed(stream) <= index {
            return Some(traces::here(&traces::maps()));
        }
        let traces = self.traces.as_ref()?;
        match stream {
            StreamId::Channel(to, context) => {
                traces.find(&Sending { to, context, sequence: SeqNum(index) }, &traces::maps())
            }
            StreamId::Thread(_) | StreamId::Match(_) | StreamId::Signals | StreamId::Readings(_) => {
                traces.find_outcome(&report.key, &traces::maps())
            }
        }
    }
}

fn outcome_of(rank: VirtualRank, report: &PathReport) -> OutcomeId {
    OutcomeId { rank, course: course(report.key.stream), index: report.key.index }
}

fn course(stream: StreamId) -> Course {
    match stream {
        StreamId::Thread(thread) | StreamId::Readings(thread) => Course::Thread(thread),
        StreamId::Match(context) => Course::Sources(context),
        StreamId::Signals => Course::Signals,
        StreamId::Channel(to, context) => Course::Messages { to, context },
    }
}

fn vote_of(report: &MismatchReport, vote: &sdc_detect::Vote) -> Vote {
    let replica = redrt_types::ReplicaId { rank: report.message.sender, index: vote.replica };
    Vote { replica, digest: vote.digest, core: vote.core }
}
