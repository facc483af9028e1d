//! Paths: do the replicas of a rank ask for the same outcomes at the same places of their programs?
//!
//! An outcome that the leader decided is of use only to a replica that asks for the same thing. What each replica asks
//! for at one position of a stream is its *claim*; claims of all live replicas are a vote, weighed by lineage as votes
//! on messages are (`sdc_detect`).
//!
//! ```text
//!   place (MPI calls begun)      8         9        10          vote on place 8, the earliest that is claimed
//!   0.0 (leader), outcome 3    Iprobe      ·        stat         here: Iprobe
//!   0.1           outcome 3      ·         ·        stat         elsewhere
//!   0.2           outcome 3      ·      Barrier                  elsewhere: it has begun call 9 without asking
//! ```
//! The trap is to compare what replicas ask for at the same *position*: one that made a call too much is a position
//! ahead of its siblings from then on, and its next question may look right. So a claim says where in its program the
//! thread was, and the vote is on the earliest place that any replica claims.
//!
//! This file judges. Claims are made and collected in `replica::paths`.

use crate::outcome::{DecisionKey, Place, Question, StreamId};
use redrt_types::{Kinship, ReplicaIndex, ReplicaSet, ViewNumber};
use sdc_detect::agreed;
use serde::{Deserialize, Serialize};

/// From this degree on a majority can outvote one.
pub const MAJORITY_DEGREE: u16 = 3;

/// What a replica says of one position of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Claim {
    /// It asks for this.
    Asks(Question),
    /// Its thread is here and has not asked yet.
    At(Place),
    /// It has taken the outcome as it was decided.
    Taken,
}

impl Claim {
    /// Whether it is of another wildcard receive than this one.
    pub(crate) fn is_other_receive(&self, receive: &Question) -> bool {
        matches!(self, Self::Asks(question) if !question.is_same_receive(receive))
    }
}

/// Whether claims differ, and who is wrong.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PathFinding {
    /// A majority agrees; these replicas have left its path, or would write something else.
    Outvoted(ReplicaSet),
    /// There is no majority.
    Undecidable,
    /// There is no majority, and copies that stand ready are to judge.
    Disputed,
}

/// Replicas of this process's rank have parted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PathReport {
    /// The outcome.
    pub key: DecisionKey,
    /// What each said.
    pub claims: Vec<(ReplicaIndex, Claim)>,
    /// The conclusion.
    pub finding: PathFinding,
    /// Replicas that cannot go on with the outcome as it was, or will be, decided. Empty where only what they write
    /// differs, and in a dispute.
    pub parted: ReplicaSet,
    /// The view it happened in.
    pub view: ViewNumber,
}

/// A claim as it is voted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    /// This is asked for at the earliest place.
    Here(Question),
    /// Nothing is.
    Elsewhere,
}

/// The result of a vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// Claims that are missing may decide, or nothing contradicts.
    Open,
    /// All who have spoken agree, and more than half have.
    Agreed,
    /// They differ.
    Differ {
        /// Who is wrong.
        finding: PathFinding,
        /// All whose claims differ from that of the majority, or without one, of `side`; also those that differ in what
        /// they write only.
        others: ReplicaSet,
        /// Those among them that ask for something else, or nothing.
        parted: ReplicaSet,
    },
}

/// Judges one position of a stream.
///
/// `claims`: of each replica that counts what it says, or nothing; a claim [`Claim::Taken`] has been replaced by what
/// the outcome was decided for. `side`: whose side is taken where there is no majority.
pub(crate) fn judge(claims: &[(ReplicaIndex, Option<Claim>)], kinship: &Kinship, side: ReplicaIndex) -> Judged {
    let asked = claims.iter().filter_map(|(_, claim)| match claim {
        Some(Claim::Asks(question)) => Some(question.place),
        _ => None,
    });
    let Some(earliest) = asked.min() else { return Judged::Open };
    let votes: Vec<_> = claims.iter().map(|(by, claim)| (*by, said(claim.as_ref(), earliest).ok_or(*by))).collect();
    let first = votes.iter().find_map(|(_, vote)| vote.ok());
    let is_contradicted = votes.iter().any(|(_, vote)| vote.is_ok() && vote.ok() != first);
    let most = agreed(&votes, kinship).and_then(|most| most.ok());
    if !is_contradicted {
        return if most.is_some() { Judged::Agreed } else { Judged::Open };
    }
    let of_side = || votes.iter().find(|(by, _)| *by == side).and_then(|(_, vote)| vote.ok());
    let is_open = most.is_none() && votes.iter().any(|(_, vote)| vote.is_err());
    if is_open {
        return Judged::Open;
    }
    let right = most.or_else(of_side);
    let others = |differs: &dyn Fn(Said) -> bool| -> ReplicaSet {
        votes.iter().filter(|(_, vote)| vote.ok().is_some_and(differs)).map(|(by, _)| *by).collect()
    };
    let differ = others(&|said| Some(said) != right);
    let parted = others(&|said| right.is_none_or(|right| !is_same_path(said, right)));
    let finding = if most.is_some() { PathFinding::Outvoted(differ) } else { PathFinding::Undecidable };
    Judged::Differ { finding, others: differ, parted }
}

fn said(claim: Option<&Claim>, earliest: Place) -> Option<Said> {
    match claim? {
        Claim::Asks(question) if question.place == earliest => Some(Said::Here(*question)),
        Claim::Asks(_) => Some(Said::Elsewhere),
        Claim::At(place) => place.is_past(&earliest).then_some(Said::Elsewhere),
        Claim::Taken => None,
    }
}

fn is_same_path(one: Said, other: Said) -> bool {
    match (one, other) {
        (Said::Here(one), Said::Here(other)) => one.is_same_call(&other),
        (one, other) => one == other,
    }
}

/// What one replica has said last of one stream, or of one message of a channel. One that speaks of a later outcome has
/// taken those before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Statement {
    pub(crate) by: ReplicaIndex,
    pub(crate) key: DecisionKey,
    pub(crate) claim: Claim,
}

impl Statement {
    /// What it says of an outcome. Sources of receives are not taken in the order of their indices, and of a message it
    /// matters what it is.
    pub(crate) fn of(&self, key: DecisionKey) -> Option<Claim> {
        let is_in_order = !matches!(key.stream, StreamId::Match(_) | StreamId::Channel(..));
        let is_later = self.key.index > key.index && is_in_order;
        if self.key.stream != key.stream || self.key.index != key.index && !is_later {
            return None;
        }
        Some(if self.key.index == key.index { self.claim } else { Claim::Taken })
    }

    /// Whether a later one of the same replica, about this, is said instead of it. Several messages of a channel may be
    /// asked about at one time.
    pub(crate) fn is_replaced_by(&self, key: DecisionKey) -> bool {
        self.key.stream == key.stream && (self.key.index == key.index || !matches!(key.stream, StreamId::Channel(..)))
    }

    /// The place that a sibling is to say whether it was there.
    pub(crate) fn asks_about(&self, stream: StreamId) -> Option<Place> {
        match self.claim {
            Claim::Asks(question) if self.key.stream == stream => Some(question.place),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Call;
    use redrt_types::CutNumber;

    fn at(calls: u64) -> Place {
        Place { thread: 0, calls, kind: 3 }
    }

    fn asks(call: Call, calls: u64) -> Option<Claim> {
        Some(Claim::Asks(Question { call, place: at(calls), ..Question::default() }))
    }

    fn writes(data: u64) -> Option<Claim> {
        let place = at(8);
        Some(Claim::Asks(Question { call: Call::Change, place, data, ..Question::default() }))
    }

    fn judged(claims: &[Option<Claim>]) -> Judged {
        judged_among(claims, &Kinship::default())
    }

    fn judged_among(claims: &[Option<Claim>], kinship: &Kinship) -> Judged {
        let claims: Vec<_> = (0..).map(ReplicaIndex).zip(claims.iter().copied()).collect();
        judge(&claims, kinship, ReplicaIndex(0))
    }

    fn set(indices: &[u16]) -> ReplicaSet {
        indices.iter().map(|index| ReplicaIndex(*index)).collect()
    }

    fn outvoted(indices: &[u16]) -> Judged {
        let outvoted = set(indices);
        Judged::Differ { finding: PathFinding::Outvoted(outvoted), others: outvoted, parted: outvoted }
    }

    #[test]
    fn a_leader_that_asks_for_one_outcome_more_is_outvoted_by_siblings_that_are_past_it() {
        let extra = asks(Call::Test, 8);
        assert_eq!(judged(&[extra, asks(Call::Observe, 10), Some(Claim::At(at(9)))]), outvoted(&[0]));
        assert_eq!(judged(&[extra, Some(Claim::At(at(9))), Some(Claim::At(at(30)))]), outvoted(&[0]));
    }

    #[test]
    fn a_leader_that_leaves_one_out_is_outvoted_though_its_next_request_looks_the_same() {
        let (right, later) = (asks(Call::Change, 8), asks(Call::Change, 10));
        assert_eq!(judged(&[later, right, right]), outvoted(&[0]));
        assert_eq!(judged(&[Some(Claim::At(at(9))), right, right]), outvoted(&[0]));
    }

    #[test]
    fn a_follower_that_asks_for_something_else_or_more_is_outvoted() {
        let (right, other) = (asks(Call::Observe, 8), asks(Call::Clock, 8));
        assert_eq!(judged(&[right, other, right]), outvoted(&[1]));
        assert_eq!(judged(&[asks(Call::Observe, 12), other, asks(Call::Observe, 12)]), outvoted(&[1]));
        assert_eq!(judged(&[Some(Claim::At(at(9))), Some(Claim::At(at(9))), other]), outvoted(&[2]));
    }

    #[test]
    fn one_that_is_in_another_call_at_that_place_is_elsewhere() {
        let right = asks(Call::Send, 8);
        let in_another = Some(Claim::At(Place { kind: 4, ..at(8) }));
        assert_eq!(judged(&[right, in_another, right]), outvoted(&[1]));
    }

    #[test]
    fn nobody_is_outvoted_while_one_may_still_decide() {
        let (one, other) = (asks(Call::Observe, 8), asks(Call::Clock, 8));
        assert_eq!(judged(&[one, other, None]), Judged::Open);
        // It may be about to ask: it has not passed the place.
        assert_eq!(judged(&[one, other, Some(Claim::At(at(8)))]), Judged::Open);
        assert_eq!(judged(&[one, None, None]), Judged::Open);
        assert_eq!(judged(&[one, one, None]), Judged::Agreed);
        assert_eq!(judged(&[None, Some(Claim::At(at(9))), None]), Judged::Open);
    }

    #[test]
    fn without_a_majority_all_that_differ_from_the_leader_have_parted() {
        let differ = |indices: &[u16]| {
            let others = set(indices);
            Judged::Differ { finding: PathFinding::Undecidable, others, parted: others }
        };
        assert_eq!(judged(&[asks(Call::Test, 8), asks(Call::Observe, 8)]), differ(&[1]));
        assert_eq!(judged(&[Some(Claim::At(at(9))), asks(Call::Observe, 8)]), differ(&[1]));
        let three = [asks(Call::Test, 8), asks(Call::Observe, 8), asks(Call::Clock, 8)];
        assert_eq!(judged(&three), differ(&[1, 2]));
    }

    #[test]
    fn replicas_that_write_different_bytes_have_not_parted() {
        let outvoted = set(&[0]);
        let Judged::Differ { finding, others, parted } = judged(&[writes(1), writes(2), writes(2)]) else {
            panic!("they differ")
        };
        assert_eq!((finding, others, parted), (PathFinding::Outvoted(outvoted), outvoted, ReplicaSet::EMPTY));
    }

    #[test]
    fn a_copy_and_its_source_count_once() {
        let mut kinship = Kinship::default();
        kinship.join(ReplicaIndex(1), ReplicaIndex(2), CutNumber(1));
        let (one, other) = (asks(Call::Observe, 8), asks(Call::Clock, 8));
        let Judged::Differ { finding, .. } = judged_among(&[one, other, other], &kinship) else {
            panic!("they differ")
        };
        assert_eq!(finding, PathFinding::Undecidable);
        assert_eq!(judged_among(&[one, one, other], &kinship), outvoted(&[2]));
    }
}
