//! Reports that replicas of this rank take different paths: they ask for different outcomes, or send different
//! messages.

use super::sphere::{Act, Sphere};
use crate::traces;
use quiesce::{Claim, DecisionKey, PathFinding, PathReport, Place, StreamId};
use redrt_types::{ReplicaId, ReplicaSet, SeqNum, VirtualRank};
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Action, Course, Event, Finding, OutcomeId, PathMismatch, PathStack, Step};
use redrt_wire::trace::{Sending, Trace};
use tracing::warn;

impl Sphere<'_> {
    /// Reports that replicas of this rank ask for different things, and ends the job if nobody knows which replica is
    /// wrong and the policy asks for that.
    pub(crate) fn report_path(&mut self, report: &PathReport) {
        let rank = self.me().rank;
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
        let abort = finding == Finding::Undecidable && !is_disputed && self.outcomes.aborts_on_sdc;
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
        self.report_stack(report);
        self.ask_for(Act::Send(FromAgent::Event(Event::Path(Box::new(mismatch)))));
        if abort {
            self.ask_for(Act::Abort(text));
        }
    }

    /// Reports the stack of the calling thread if it asks for something else than a sibling. The order matters: the
    /// report goes out before the sibling can learn of it, since a replica that has parted from its leader is ended
    /// once either has reported.
    pub(super) fn report_parting(&mut self) {
        if let Some(report) = self.replica.parting().cloned() {
            self.report_stack(&report);
        }
    }

    fn report_stack(&mut self, report: &PathReport) {
        if let Some(trace) = self.stack_of(report) {
            let stack = PathStack { replica: self.me(), outcome: outcome_of(self.me().rank, report), trace };
            self.ask_for(Act::Send(FromAgent::Event(Event::PathStack(Box::new(stack)))));
        }
    }

    /// The stack of this process's question or send in which replicas differ. It is known while the calling thread is
    /// in that call, and for recent ones while the program is being checked.
    fn stack_of(&self, report: &PathReport) -> Option<Trace> {
        let DecisionKey { stream, index } = report.key;
        let own = report.claims.iter().find(|(by, _)| *by == self.me().index);
        let Some((_, Claim::Asks(question))) = own else { return None };
        let here = self.program_place();
        let is_here = here == question.place && here != Place::NOWHERE;
        if is_here && self.passed(stream) <= index {
            return Some(traces::here(here.thread, &traces::maps()));
        }
        let traces = self.outcomes.traces.as_ref()?;
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
