//! Treatment of replicas that are known to be wrong, and of the hosts they run on.
//!
//! | `--on-sdc` | what the receivers take | the replica that is wrong |
//! |---|---|---|
//! | report | what arrived | stays |
//! | correct | what the majority sent | stays, until it leaves the path of its siblings |
//! | heal, abort | what the majority sent | is ended; a copy of a sound sibling takes its place if there is a spare |
//!
//! Each replica that is ended like this is a strike against its host (`strikes`). A receiver that computed with a wrong
//! payload is wrong as well, but its host is not to blame. A receiver that could not be given a right payload is ended
//! too.
//!
//! Where a rank took a message that no vote could decide, some of its replicas may have one payload and some the other.
//! A majority proves nothing from then on. A replica that is outvoted there is ended so that the others agree, but it
//! is not called corrupt, and its host gets no strike. A line of standard output counts as a message, except that the
//! user sees the majority's line under every policy.
//!
//! Enters: reports of differences. Leaves: reports for the user, and the replicas that are to be ended. Disputes
//! between two replicas are judged elsewhere (`recovery`).

use super::determinism::{Apart, Check};
use super::effect::{Effect, Effects};
use super::evidence::Excerpts;
use super::facts::Facts;
use super::{Report, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::control::OnSdc;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::{Action, Event, Finding, Mismatch, OutcomeId, PathMismatch, PathStack};
use redrt_wire::trace::{Trace, TracePoint};
use replica_output::mismatch::OutputMismatch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The reports about outcomes at which replicas took different paths. All replicas of the rank send the same report.
type PathsReported = BTreeSet<(OutcomeId, PathReported)>;

/// Maximum number of those. Beyond it the set is cleared, and a report may be repeated.
const PATHS_TOLD_MAX: usize = 1 << 14;

/// More functions than MPI has that a job can lack. The bound keeps a corrupt process from filling memory.
const UNSUPPORTED_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum PathReported {
    /// Copies that stand ready are to judge.
    Disputed,
    /// No vote can decide who is right.
    Open,
    Outvoted,
    /// The stack of this replica at the outcome.
    Stack(ReplicaId),
}

/// The part that copies have in a difference between paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judges {
    /// There are none.
    None,
    /// They have yet to judge.
    Awaited,
    /// This difference is their verdict.
    Done,
}

/// Differences between replicas so far; see the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Differences {
    /// Set at the first difference between replicas, and never cleared. A stall that follows may have this cause.
    have_differed: bool,
    /// Ranks in which a replica computed with a message that no vote could decide.
    in_doubt: BTreeSet<VirtualRank>,
    paths: PathsReported,
    /// Payloads whose comparison was undecidable, until a second receiver of the same message reports.
    excerpts: Excerpts,
    /// Names of the functions that the user was told this job does not support.
    unsupported: BTreeSet<String>,
    /// True once the user was told that threads are not ordered any more.
    has_unordered: bool,
    /// None unless `--check-determinism` was given.
    check: Option<Check>,
}

impl Differences {
    /// Records all differences from now on.
    pub(super) fn begin_check(&mut self) {
        self.check = Some(Check::default());
    }

    /// The findings. None without [`Differences::begin_check`].
    pub(super) fn check(&self) -> Option<&Check> {
        self.check.as_ref()
    }

    /// Returns true if replicas have differed before.
    pub(super) fn have_differed(&self) -> bool {
        self.have_differed
    }

    /// Ends the doubt about a rank: all memory of its replicas was found to be equal.
    pub(super) fn settle(&mut self, rank: VirtualRank) {
        self.in_doubt.remove(&rank);
    }

    /// Records that a replica gave up.
    pub(super) fn gave_up(&mut self, replica: ReplicaId, message: &str) {
        if let Some(check) = &mut self.check {
            check.other(replica, Apart::GaveUp { message: message.to_owned() });
        }
    }

    /// Records a position: of the send of a message that differs, or of a thread that left its leader's path. Siblings
    /// are then asked for theirs.
    pub(super) fn trace(
        &mut self,
        facts: Facts<'_>,
        by: ReplicaId,
        point: TracePoint,
        trace: Option<Trace>,
        out: &mut Effects,
    ) {
        let Some(check) = &mut self.check else { return };
        match point {
            TracePoint::Send(sending) => check.trace(by, sending, trace),
            TracePoint::Thread(thread) => {
                if check.standing(by, thread, trace) {
                    let siblings = facts.members.view().live(by.rank).filter(|sibling| *sibling != by);
                    siblings.for_each(|sibling| out.send(ToDaemon::Trace(sibling, point)));
                }
            }
        }
    }

    /// Acts on an event that the process `by` reports. `judges` matters for differences between paths.
    pub(super) fn event(&mut self, facts: Facts<'_>, by: ReplicaId, event: Event, judges: Judges, out: &mut Effects) {
        match event {
            Event::Mismatch(mismatch) if mismatch.action == Action::Disputed => {
                self.have_differed = true;
                out.push(Effect::Dispute { rank: mismatch.sender, asker: mismatch.receiver });
                out.report(Report::Disputed(mismatch));
            }
            Event::Mismatch(mismatch) => self.message_differs(facts, *mismatch, out),
            Event::Path(path) => self.paths_parted(facts, by, *path, judges, out),
            Event::PathStack(stack) => self.path_located(stack, out),
            // Each unsupported function is reported once, though all ranks call it.
            Event::Unsupported { ref function, .. } => {
                if self.unsupported.len() < UNSUPPORTED_MAX && self.unsupported.insert(function.clone()) {
                    out.report(Report::Event(event));
                }
            }
            Event::Divergence { replica, ref parting } => {
                self.have_differed = true;
                if let Some(check) = &mut self.check {
                    check.other(replica, Apart::Diverged(parting.clone()));
                }
                out.report(Report::Event(event));
            }
            Event::ReadingAlone(ref alone) => {
                if let Some(check) = &mut self.check {
                    check.reading_alone(alone);
                }
                out.report(Report::Event(event));
            }
            // All replicas, and most ranks, come to the same point.
            Event::Unordered { .. } => {
                if !std::mem::replace(&mut self.has_unordered, true) {
                    out.report(Report::Event(event));
                }
            }
            Event::Evidence(_) | Event::Injected { .. } | Event::Reconnected { .. } => out.report(Report::Event(event)),
        }
    }

    /// Acts on a comparison of messages that was not unanimous.
    fn message_differs(&mut self, facts: Facts<'_>, mut mismatch: Mismatch, out: &mut Effects) {
        let evidence = self.excerpts.compare(&mut mismatch);
        let doubted = self.doubt(&mut mismatch);
        self.have_differed = true;
        out.report(Report::Event(Event::Mismatch(Box::new(mismatch.clone()))));
        if let Some(check) = &mut self.check {
            check.message(&mismatch, out);
        }
        if let Some(evidence) = evidence {
            if let Some(check) = &mut self.check {
                check.evidence(&evidence);
            }
            out.report(Report::Event(Event::Evidence(Box::new(evidence))));
        }
        heal(facts, &mismatch, out);
        part(facts, doubted, out);
        let aborts = mismatch.action == Action::Aborted;
        out.push(Effect::Judged(Box::new(mismatch)));
        if aborts {
            out.push(Effect::Corrupted);
        }
    }

    /// Records a message that no vote could decide. If the culprit of this mismatch belongs to a rank in doubt, the
    /// report is changed so that it accuses no replica. Returns the former culprit.
    fn doubt(&mut self, mismatch: &mut Mismatch) -> Option<ReplicaId> {
        let is_taken = matches!(mismatch.action, Action::Delivered | Action::Refetched);
        if mismatch.finding == Finding::Undecidable && is_taken {
            self.in_doubt.insert(mismatch.receiver.rank);
        }
        if mismatch.finding != Finding::ReplicaCorrupt || !self.in_doubt.contains(&mismatch.sender) {
            return None;
        }
        mismatch.finding = Finding::Undecidable;
        if mismatch.action == Action::Refetched {
            mismatch.action = Action::Outvoted;
        }
        mismatch.culprit.take()
    }

    /// Acts on a difference in printed output, like on a message that differs.
    pub(super) fn output_differs(
        &mut self,
        facts: Facts<'_>,
        rank: VirtualRank,
        mut mismatch: OutputMismatch,
        out: &mut Effects,
    ) {
        let doubted = mismatch.culprit.take_if(|_| self.in_doubt.contains(&rank));
        let is_doubted = doubted.is_some();
        part(facts, doubted.map(|index| ReplicaId { rank, index }), out);
        let culprit = mismatch.culprit.map(|index| ReplicaId { rank, index });
        let aborts = culprit.is_none() && !is_doubted && facts.settings.on_sdc.stops_undecided();
        let action = match culprit {
            Some(_) => Action::Outvoted,
            None if is_doubted => Action::Outvoted,
            None if aborts => Action::Aborted,
            None => Action::Delivered,
        };
        self.have_differed = true;
        if let Some(check) = &mut self.check {
            check.line(rank, &mismatch);
        }
        out.report(Report::OutputMismatch { rank, mismatch, action });
        if let Some(replica) = culprit {
            out.push(Effect::Outvoted { replica, has_parted: false });
        }
        if aborts {
            out.push(Effect::Corrupted);
        }
    }

    /// Acts on the report of one replica that its siblings asked for another thing at one place of the program. An
    /// outvoted replica is ended, as after a message. A replica that cannot go on beside its leader is ended under
    /// every policy.
    fn paths_parted(
        &mut self,
        facts: Facts<'_>,
        by: ReplicaId,
        mut path: PathMismatch,
        judges: Judges,
        out: &mut Effects,
    ) {
        self.have_differed = true;
        let rank = path.outcome.rank;
        if judges == Judges::Awaited {
            return self.path_disputed(by, path, out);
        }
        if self.in_doubt.contains(&rank) && path.finding == Finding::ReplicaCorrupt {
            (path.finding, path.parted) = (Finding::Undecidable, std::mem::take(&mut path.culprits));
        }
        let is_outvoted = path.finding == Finding::ReplicaCorrupt;
        if !self.is_news(path.outcome, if is_outvoted { PathReported::Outvoted } else { PathReported::Open }) {
            return;
        }
        if let Some(check) = &mut self.check {
            check.path(by, &path);
        }
        out.report(Report::Event(Event::Path(Box::new(path.clone()))));
        // Reports may be late: the place may have another process by now.
        let member = |replica: ReplicaId| facts.members.view().member(replica);
        let is_its = |replica: &ReplicaId| member(*replica).is_none_or(|member| path.view >= member.joined);
        let culprits: Vec<_> = path.culprits.iter().copied().filter(is_its).collect();
        let parted: Vec<_> = path.parted.iter().copied().filter(is_its).collect();
        let is_original = |replica: &&ReplicaId| member(**replica).is_some_and(|it| it.origin.is_none());
        let first = culprits.iter().find(is_original).or(culprits.first()).copied();
        let judged = first.filter(|_| judges == Judges::Done);
        if judges == Judges::Done {
            // The culprit of the verdict is ended when a copy can take its part.
            let has_parted = judged.is_some_and(|culprit| parted.contains(&culprit));
            out.push(Effect::PathJudged { rank, culprit: judged, has_parted });
        }
        for replica in culprits.into_iter().filter(|culprit| Some(*culprit) != judged) {
            out.push(Effect::Outvoted { replica, has_parted: parted.contains(&replica) });
        }
        for replica in parted.into_iter().filter(|_| !is_outvoted) {
            out.retire(replica, RetireReason::LeftPath, 1);
        }
        if path.action == Action::Aborted {
            out.push(Effect::Corrupted);
        }
    }

    /// Lets the copies that stand ready judge which path is right.
    fn path_disputed(&mut self, by: ReplicaId, mut path: PathMismatch, out: &mut Effects) {
        out.push(Effect::Dispute { rank: path.outcome.rank, asker: by });
        if self.is_news(path.outcome, PathReported::Disputed) {
            (path.action, path.parted) = (Action::Disputed, Vec::new());
            out.report(Report::DisputedPath(Box::new(path)));
        }
    }

    /// Reports the stack at which a replica asked for a disputed outcome.
    fn path_located(&mut self, stack: Box<PathStack>, out: &mut Effects) {
        if self.is_news(stack.outcome, PathReported::Stack(stack.replica)) {
            if let Some(check) = &mut self.check {
                check.locate(&stack);
            }
            out.report(Report::Event(Event::PathStack(stack)));
        }
    }

    /// Returns true if this was not reported yet for the outcome.
    fn is_news(&mut self, outcome: OutcomeId, told: PathReported) -> bool {
        if self.paths.len() >= PATHS_TOLD_MAX {
            self.paths.clear();
        }
        self.paths.insert((outcome, told))
    }
}

/// Returns true if a replica that is wrong is ended.
pub(super) fn ends_corrupt(on_sdc: OnSdc) -> bool {
    matches!(on_sdc, OnSdc::Heal | OnSdc::Abort | OnSdc::Return)
}

/// Ends a replica that its siblings contradict, in a rank in doubt.
fn part(facts: Facts<'_>, replica: Option<ReplicaId>, out: &mut Effects) {
    if let Some(replica) = replica.filter(|_| ends_corrupt(facts.settings.on_sdc)) {
        out.retire(replica, RetireReason::Parted, SIBLINGS_BELIEVED);
    }
}

/// Ends a replica that a comparison of messages shows to be wrong.
fn heal(facts: Facts<'_>, mismatch: &Mismatch, out: &mut Effects) {
    if mismatch.action == Action::Withheld {
        // A sibling may have got the message. If there is none any more, the receiver learns that from the view, and
        // goes on with the payload it has.
        out.retire(mismatch.receiver, RetireReason::Withheld, 1);
    }
    if mismatch.finding != Finding::ReplicaCorrupt {
        return;
    }
    // Reports may be late: the place may have another process by now.
    let member = |culprit: ReplicaId| facts.members.view().member(culprit);
    let is_its = |culprit: &ReplicaId| member(*culprit).is_none_or(|member| mismatch.view >= member.joined);
    if let Some(replica) = mismatch.culprit.filter(is_its) {
        out.push(Effect::Outvoted { replica, has_parted: false });
    }
    if mismatch.action == Action::Delivered && ends_corrupt(facts.settings.on_sdc) {
        // The vote has a clear outcome, so one sound sibling is enough.
        out.retire(mismatch.receiver, RetireReason::Tainted, 1);
    }
}
