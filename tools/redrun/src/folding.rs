//! One corruption is one message to the user, however many processes find it in however many messages. The audit log
//! and the counts have all of them.
//!
//! | found | is the same corruption as |
//! |---|---|
//! | a replica is outvoted | all else of that replica, until a copy takes its place |
//! | nobody can tell who is right | all else of that rank, until one of its replicas is a copy: then they differ |
//! | two have parted, or write different bytes, and nobody can tell | all else of that kind of that rank, likewise |
//! | a payload changed on its way | what other receivers say of that message |
//!
//! The same goes for checkpoints that are not taken for one reason, and for texts that are others after a return.

use coordinator::{EndReason, LineFailure, Report, RetireReason};
use redrt_types::{ContextId, ReplicaId, SeqNum, VirtualRank};
use redrt_wire::event::{Event, Evidence, Finding, Mismatch, PathMismatch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Corruption that cannot be outvoted spreads from rank to rank; nobody reads thousands of lines about it.
const LINES_MAX: usize = 10;

/// What is said of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Its line.
    Line,
    /// For the first time, that something is left out.
    Hint,
    /// Nothing.
    Nothing,
}

/// What a corruption is known by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Origin {
    Replica(ReplicaId),
    Rank(VirtualRank),
    Message(VirtualRank, ContextId, SeqNum),
    /// Of replicas that cannot go on together, if so, or write different bytes.
    Path(VirtualRank, bool),
    /// Of one that its siblings have outvoted by their path.
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

/// What the user has been told.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Folding {
    told: BTreeSet<Origin>,
    with_evidence: BTreeSet<Origin>,
    line_count: usize,
    has_hinted: bool,
    /// Why checkpoints were not taken, without numbers.
    line_failures: BTreeSet<String>,
    /// A text is another one since the last return.
    has_departed: bool,
}

impl Folding {
    /// What is said of this report.
    pub fn show(&mut self, report: &Report) -> Shown {
        match report {
            Report::Event(Event::Mismatch(mismatch)) => self.show_origin(Origin::of(mismatch)),
            Report::Event(Event::Path(path)) => self.show_origin(Origin::of_path(path)),
            Report::Event(Event::Evidence(evidence)) => self.show_evidence(evidence),
            Report::OutputMismatch { .. } => self.limited(),
            Report::LineFailed { why, .. } => {
                let has_room = self.line_failures.len() < LINES_MAX;
                if has_room && self.line_failures.insert(kind_of(why)) { Shown::Line } else { Shown::Nothing }
            }
            Report::OutputDeparted { .. } if std::mem::replace(&mut self.has_departed, true) => Shown::Nothing,
            Report::Ending(EndReason::GoesBack { .. } | EndReason::Unloadable { .. }) => {
                self.has_departed = false;
                Shown::Line
            }
            // That it is corrupt was said, and that it is gone will be.
            Report::Retired { replica, reason: RetireReason::Outvoted } if self.knows(*replica) => Shown::Nothing,
            // The first of several.
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

    /// Of each corruption that was told, what is known first.
    fn show_evidence(&mut self, evidence: &Evidence) -> Shown {
        let Evidence { sender, context, sequence, suppliers, .. } = evidence;
        let may_be = suppliers.iter().map(|supplier| Origin::Replica(*supplier));
        let mut may_be = may_be.chain([Origin::Message(*sender, *context, *sequence), Origin::Rank(*sender)]);
        let is_first =
            may_be.find(|origin| self.told.contains(origin)).is_some_and(|origin| self.with_evidence.insert(origin));
        if is_first { Shown::Line } else { Shown::Nothing }
    }
}

/// What failures for the same reason have in common. The replica, the checkpoint, a descriptor, a port and the id of a
/// child differ from one to the next: numbers do not count.
fn kind_of(why: &LineFailure) -> String {
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
    use coordinator::StoreFailure;
    use redrt_types::{Digest, ViewNumber};
    use redrt_wire::event::{Action, Course, OutcomeId};
    use redrt_wire::line::Generation;

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
    fn what_changed_on_its_way_is_told_of_for_each_message_and_ranks_that_differ_once() {
        let mut folding = Folding::default();
        let changed = |sequence| mismatch(Finding::TransportCorrupt, None, sequence);
        let shown = [changed(1), changed(1), changed(2)].map(|report| folding.show(&report));
        assert_eq!(shown, [Shown::Line, Shown::Hint, Shown::Line]);
        let differs = |sequence| mismatch(Finding::Undecidable, None, sequence);
        assert_eq!([differs(3), differs(4)].map(|report| folding.show(&report)), [Shown::Line, Shown::Nothing]);
    }

    #[test]
    fn a_checkpoint_that_is_not_taken_is_told_of_once_for_each_reason() {
        let mut folding = Folding::default();
        let failed = |generation, why: &str| Report::LineFailed {
            generation: Generation(generation),
            why: LineFailure::Store(StoreFailure::NoPlace(why.into())),
        };
        let reports = [failed(1, "full"), failed(2, "full"), failed(3, "gone"), failed(4, "full"), failed(5, "gone")];
        let shown = reports.map(|report| folding.show(&report));
        assert_eq!(shown, [Shown::Line, Shown::Nothing, Shown::Line, Shown::Nothing, Shown::Nothing]);
        // Each time another rank, file, and child.
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
