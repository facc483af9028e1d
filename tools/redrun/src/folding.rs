//! Folds messages to the user: one message for one corruption, however many processes find it in however many messages.
//! The audit log and the counts have all reports.
//!
//! | report | counts as the same corruption |
//! |---|---|
//! | a replica is outvoted | all further reports about it, until a copy takes its place |
//! | a rank's replicas differ without a majority | all further reports about the rank, until one of its replicas is a
//! copy |
//! | replicas part, or write different bytes, without a majority | all further reports of that kind about the rank,
//! likewise |
//! | a payload changed on its way | reports of other receivers about that message |
//!
//! Repeated failures of checkpoints for one reason are folded likewise, and texts that differ after a return.

use redrt_types::{ContextId, ReplicaId, SeqNum, VirtualRank};
use redrt_wire::event::{Event, Evidence, Finding, Mismatch, PathMismatch};
use replication_manager::{CheckpointFailure, EndReason, Report, RetireReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of lines: corruption that cannot be outvoted spreads from rank to rank.
const LINES_MAX: usize = 10;

/// The part of a report that the user sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    Line,
    /// A hint that lines are left out, once.
    Hint,
    Nothing,
}

/// Identity of a corruption.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Origin {
    Replica(ReplicaId),
    Rank(VirtualRank),
    Message(VirtualRank, ContextId, SeqNum),
    /// Replicas of this rank that parted (`true`), or that write different bytes (`false`).
    Path(VirtualRank, bool),
    /// A replica whose path its siblings have outvoted.
    Strayed(ReplicaId),
}

impl Origin {
    fn of_path(path: &PathMismatch) -> Self {
        let parted = Self::Path(path.outcome.rank, !path.parted.is_empty());
        path.culprits.first().map_or(parted, |culprit| Self::Strayed(*culprit))
    }

    fn of(mismatch: &Mismatch) -> Self {
        match (mismatch.finding, mismatch.culprit) {
            (Finding::TransportCorrupt, _) => Self::Message(mismatch.sender, mismatch.context, mismatch.sequence),
            (_, Some(culprit)) => Self::Replica(culprit),
            (_, None) => Self::Rank(mismatch.sender),
        }
    }
}

/// The messages that the user has seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Folding {
    told: BTreeSet<Origin>,
    with_evidence: BTreeSet<Origin>,
    line_count: usize,
    has_hinted: bool,
    /// Reasons for failed checkpoints, with digits replaced.
    checkpoint_failures: BTreeSet<String>,
    /// True once a text has differed since the last return.
    has_departed: bool,
}

impl Folding {
    /// Decides how this report is shown.
    pub fn show(&mut self, report: &Report) -> Shown {
        match report {
            Report::Event(Event::Mismatch(mismatch)) => self.show_origin(Origin::of(mismatch)),
            Report::Event(Event::Path(path)) => self.show_origin(Origin::of_path(path)),
            Report::Event(Event::Evidence(evidence)) => self.show_evidence(evidence),
            Report::OutputMismatch { .. } => self.limited(),
            Report::CheckpointFailed { why, .. } => {
                let has_room = self.checkpoint_failures.len() < LINES_MAX;
                if has_room && self.checkpoint_failures.insert(kind_of(why)) { Shown::Line } else { Shown::Nothing }
            }
            Report::OutputDeparted { .. } if std::mem::replace(&mut self.has_departed, true) => Shown::Nothing,
            Report::Ending(EndReason::GoesBack { .. } | EndReason::Unloadable { .. }) => {
                self.has_departed = false;
                Shown::Line
            }
            // The user knows that it is corrupt, and its loss is reported.
            Report::Retired { replica, reason: RetireReason::Outvoted } if self.knows(*replica) => Shown::Nothing,
            // The first of several strikes.
            Report::Strike { replica, count: 1, limit } if *limit > 1 && self.knows(*replica) => Shown::Nothing,
            Report::Recovered(recovered) => {
                for told in [&mut self.told, &mut self.with_evidence] {
                    told.remove(&Origin::Replica(recovered.replica));
                    told.remove(&Origin::Strayed(recovered.replica));
                    told.remove(&Origin::Rank(recovered.replica.rank));
                    for parted in [false, true] {
                        told.remove(&Origin::Path(recovered.replica.rank, parted));
                    }
                }
                Shown::Line
            }
            _ => Shown::Line,
        }
    }

    fn knows(&self, replica: ReplicaId) -> bool {
        self.told.contains(&Origin::Replica(replica))
    }

    fn show_origin(&mut self, origin: Origin) -> Shown {
        if self.told.insert(origin) { self.limited() } else { self.hint() }
    }

    fn limited(&mut self) -> Shown {
        self.line_count += 1;
        if self.line_count <= LINES_MAX { Shown::Line } else { self.hint() }
    }

    fn hint(&mut self) -> Shown {
        if std::mem::replace(&mut self.has_hinted, true) { Shown::Nothing } else { Shown::Hint }
    }

    /// Shows the first evidence of each corruption that was shown.
    fn show_evidence(&mut self, evidence: &Evidence) -> Shown {
        let Evidence { sender, context, sequence, suppliers, .. } = evidence;
        let may_be = suppliers.iter().map(|supplier| Origin::Replica(*supplier));
        let mut may_be = may_be.chain([Origin::Message(*sender, *context, *sequence), Origin::Rank(*sender)]);
        let is_first =
            may_be.find(|origin| self.told.contains(origin)).is_some_and(|origin| self.with_evidence.insert(origin));
        if is_first { Shown::Line } else { Shown::Nothing }
    }
}

/// The text of a failure without numbers: replica, checkpoint, descriptor, port and child's id differ from one failure
/// to the next.
fn kind_of(why: &CheckpointFailure) -> String {
    let mut kind = String::new();
    for letter in format!("{why:?}").chars() {
        match letter {
            '0'..='9' if kind.ends_with('#') => {}
            '0'..='9' => kind.push('#'),
            letter => kind.push(letter),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{Digest, ViewNumber};
    use redrt_wire::checkpoint::Generation;
    use redrt_wire::event::{Action, Course, OutcomeId};
    use replication_manager::StoreFailure;

    fn path(rank: u32, culprit: Option<&str>, index: u64) -> Report {
        let outcome = OutcomeId { rank: VirtualRank(rank), course: Course::Thread(0), index };
        Report::Event(Event::Path(Box::new(PathMismatch {
            outcome,
            steps: Vec::new(),
            finding: if culprit.is_some() { Finding::ReplicaCorrupt } else { Finding::Undecidable },
            culprits: culprit.iter().map(|name| name.parse().expect("a replica")).collect(),
            parted: Vec::new(),
            action: Action::Delivered,
            view: ViewNumber(0),
        })))
    }

    #[test]
    fn who_writes_something_else_again_and_again_is_told_once() {
        let mut folding = Folding::default();
        let shown: Vec<_> = (0..4).map(|index| folding.show(&path(0, None, index))).collect();
        assert_eq!(shown, [Shown::Line, Shown::Hint, Shown::Nothing, Shown::Nothing]);
        assert_eq!(folding.show(&path(1, None, 9)), Shown::Line, "another rank");
        assert_eq!(folding.show(&path(0, Some("0.1"), 10)), Shown::Line, "somebody can tell by now");
    }

    fn mismatch(finding: Finding, culprit: Option<&str>, sequence: u64) -> Report {
        let replica = |name: &str| name.parse::<ReplicaId>().expect("a replica");
        Report::Event(Event::Mismatch(Box::new(Mismatch {
            receiver: replica("1.0"),
            sender: VirtualRank(0),
            supplier: replica("0.1"),
            communicator: "MPI_COMM_WORLD".into(),
            context: ContextId(7),
            tag: 1,
            sequence: SeqNum(sequence),
            length_bytes: 8,
            payload: Digest(1),
            votes: Vec::new(),
            finding,
            culprit: culprit.map(replica),
            element: Default::default(),
            excerpt: None,
            action: Action::Refetched,
            view: ViewNumber(0),
        })))
    }

    #[test]
    fn a_corrupt_replica_is_told_of_once_until_it_is_replaced() {
        let mut folding = Folding::default();
        let found = |sequence| mismatch(Finding::ReplicaCorrupt, Some("0.1"), sequence);
        let retired = Report::Retired { replica: ReplicaId::new(0, 1), reason: RetireReason::Outvoted };
        assert_eq!(folding.show(&retired), Shown::Line, "for another reason than a message");
        let shown = [found(1), found(1), found(2), retired].map(|report| folding.show(&report));
        assert_eq!(shown, [Shown::Line, Shown::Hint, Shown::Nothing, Shown::Nothing]);
        let other = mismatch(Finding::ReplicaCorrupt, Some("0.2"), 1);
        assert_eq!(folding.show(&other), Shown::Line);
        let strike = |count| Report::Strike { replica: ReplicaId::new(0, 1), count, limit: 3 };
        assert_eq!([strike(1), strike(2)].map(|report| folding.show(&report)), [Shown::Nothing, Shown::Line]);
    }

    #[test]
    fn flips_in_flight_are_reported_each_and_parted_ranks_once() {
        let mut folding = Folding::default();
        let changed = |sequence| mismatch(Finding::TransportCorrupt, None, sequence);
        let shown = [changed(1), changed(1), changed(2)].map(|report| folding.show(&report));
        assert_eq!(shown, [Shown::Line, Shown::Hint, Shown::Line]);
        let differs = |sequence| mismatch(Finding::Undecidable, None, sequence);
        assert_eq!([differs(3), differs(4)].map(|report| folding.show(&report)), [Shown::Line, Shown::Nothing]);
    }

    #[test]
    fn a_checkpoint_not_taken_is_reported_once_for_each_reason() {
        let mut folding = Folding::default();
        let failed = |generation, why: &str| Report::CheckpointFailed {
            generation: Generation(generation),
            why: CheckpointFailure::Store(StoreFailure::NoPlace(why.into())),
        };
        let reports = [failed(1, "full"), failed(2, "full"), failed(3, "gone"), failed(4, "full"), failed(5, "gone")];
        let shown = reports.map(|report| folding.show(&report));
        assert_eq!(shown, [Shown::Line, Shown::Nothing, Shown::Line, Shown::Nothing, Shown::Nothing]);
        // Rank, file and child differ each time.
        let child = |rank: u64| {
            failed(rank, &format!("line-{rank}.partial/{rank}.image: a child process, {} sleep", 99 * rank))
        };
        let shown = [6, 7, 48].map(|rank| folding.show(&child(rank)));
        assert_eq!(shown, [Shown::Line, Shown::Nothing, Shown::Nothing]);
        let lines = (0..100).filter(|number| folding.show(&failed(9, &"x".repeat(*number))) == Shown::Line).count();
        assert_eq!(lines, LINES_MAX - 3);
    }

    #[test]
    fn a_text_that_is_another_one_is_told_of_once_after_each_return() {
        let mut folding = Folding::default();
        let departed = |rank| Report::OutputDeparted { rank: VirtualRank(rank), error_of: None, line: 1 };
        let returns = Report::Ending(EndReason::Unloadable {
            generation: Generation(1),
            replica: ReplicaId::new(0, 0),
            message: String::new(),
        });
        let reports = [departed(0), departed(1), returns, departed(0)];
        let shown = reports.map(|report| folding.show(&report));
        assert_eq!(shown, [Shown::Line, Shown::Nothing, Shown::Line, Shown::Line]);
    }

    #[test]
    fn there_are_few_lines_however_many_corruptions_there_are() {
        let mut folding = Folding::default();
        let lines = (0..1000).map(|sequence| folding.show(&mismatch(Finding::TransportCorrupt, None, sequence)));
        assert_eq!(lines.filter(|shown| *shown == Shown::Line).count(), LINES_MAX);
    }
}
