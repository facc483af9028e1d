//! Paths: the comparison of what the replicas of a rank ask for, at the same places of their programs.
//!
//! An outcome that the leader decided is of use only to a replica that asks for the same thing. The question of a
//! replica at one position of a stream is its *claim*. The claims of all live replicas are a vote, weighed by lineage
//! like votes on messages (`sdc_detect`).
//!
//! ```text
//!   place (MPI calls begun)      8         9        10          vote on place 8, the earliest that is claimed
//!   0.0 (leader), outcome 3    Iprobe      ·        stat         here: Iprobe
//!   0.1           outcome 3      ·         ·        stat         elsewhere
//!   0.2           outcome 3      ·      Barrier                  elsewhere: it has begun call 9 without asking
//! ```
//! The trap is to compare what replicas ask for at the same *position*. A replica that made a call too much is a
//! position ahead of its siblings from then on, and its next question may look right. So a claim includes the thread's
//! place in the program, and the vote is on the earliest place that any replica claims.
//!
//! This file judges claims. They are made and collected in `replica::paths`.

use crate::outcome::{DecisionKey, Place, Question, StreamId};
use redrt_types::{Kinship, ReplicaIndex, ReplicaSet, ViewNumber};
use sdc_detect::agreed;
use serde::{Deserialize, Serialize};

/// From this degree on a majority can outvote one replica.
pub const MAJORITY_DEGREE: u16 = 3;

/// The statement of a replica about one position of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Claim {
    /// It asks this question.
    Asks(Question),
    /// Its thread is at this place and has not asked yet.
    At(Place),
    /// It has taken the outcome as it was decided.
    Taken,
}

impl Claim {
    /// Returns true if it is about another wildcard receive than this one.
    pub(crate) fn is_other_receive(&self, receive: &Question) -> bool {
        matches!(self, Self::Asks(question) if !question.is_same_receive(receive))
    }
}

/// The result of comparing paths.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PathFinding {
    /// A majority agrees. These replicas have left its path, or would write other data.
    Outvoted(ReplicaSet),
    /// There is no majority.
    Undecidable,
    /// There is no majority, and copies that stand ready are to judge.
    Disputed,
}

/// A report that replicas of this process's rank differ in their paths.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PathReport {
    /// The outcome at which they differ.
    pub key: DecisionKey,
    /// The claims of live replicas, as far as they are known.
    pub claims: Vec<(ReplicaIndex, Claim)>,
    /// The result of the comparison.
    pub finding: PathFinding,
    /// Replicas that cannot go on with the outcome as it was, or will be, decided. Empty in a dispute, and where only
    /// the data that they write differs.
    pub parted: ReplicaSet,
    /// The view of the reporter.
    pub view: ViewNumber,
}

/// A claim as it is counted in a vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    /// The replica asks this at the earliest place.
    Here(Question),
    /// The replica does not ask at the earliest place.
    Elsewhere,
}

/// The result of a vote on claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// Missing claims may decide, or no claim contradicts another.
    Open,
    /// All claims so far agree, and more than half of the replicas have made them.
    Agreed,
    /// Some claims contradict others.
    Differ {
        /// The replicas that are wrong, if a majority says so.
        finding: PathFinding,
        /// Replicas whose claims differ from the majority's, or without one from `side`'s. Includes those that differ
        /// only in the data they write.
        others: ReplicaSet,
        /// Members of `others` that ask for something else, or for nothing.
        parted: ReplicaSet,
    },
}

/// Judges one position of a stream.
///
/// `claims` has the claim of each replica that counts, or none. Claims [`Claim::Taken`] have been replaced by the
/// question for which the outcome was decided. Without a majority, `side` is the replica whose claim is followed.
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

/// The latest statement of a replica about one stream, or about one message of a channel. A statement about a later
/// outcome implies that the earlier ones were taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Statement {
    pub(crate) by: ReplicaIndex,
    pub(crate) key: DecisionKey,
    pub(crate) claim: Claim,
}

impl Statement {
    /// The claim that this statement makes about an outcome. The statement must be about that outcome itself for
    /// sources of receives, which are not taken in order, and for messages, whose contents matter.
    pub(crate) fn of(&self, key: DecisionKey) -> Option<Claim> {
        let is_in_order = !matches!(key.stream, StreamId::Match(_) | StreamId::Channel(..));
        let is_later = self.key.index > key.index && is_in_order;
        if self.key.stream != key.stream || self.key.index != key.index && !is_later {
            return None;
        }
        Some(if self.key.index == key.index { self.claim } else { Claim::Taken })
    }

    /// Returns true if a later statement about `key` replaces this one. Several messages of a channel may be asked
    /// about at a time.
    pub(crate) fn is_replaced_by(&self, key: DecisionKey) -> bool {
        self.key.stream == key.stream && (self.key.index == key.index || !matches!(key.stream, StreamId::Channel(..)))
    }

    /// The place about which siblings are asked if they were there.
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

    /// Its siblings are past that place.
    #[test]
    fn a_leader_with_one_outcome_more_is_outvoted() {
        let extra = asks(Call::Test, 8);
        assert_eq!(judged(&[extra, asks(Call::Observe, 10), Some(Claim::At(at(9)))]), outvoted(&[0]));
        assert_eq!(judged(&[extra, Some(Claim::At(at(9))), Some(Claim::At(at(30)))]), outvoted(&[0]));
    }

    /// Its next request looks the same as its siblings'.
    #[test]
    fn a_leader_with_one_outcome_less_is_outvoted() {
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
        // It may be about to ask, since it has not passed the place.
        assert_eq!(judged(&[one, other, Some(Claim::At(at(8)))]), Judged::Open);
        assert_eq!(judged(&[one, None, None]), Judged::Open);
        assert_eq!(judged(&[one, one, None]), Judged::Agreed);
        assert_eq!(judged(&[None, Some(Claim::At(at(9))), None]), Judged::Open);
    }

    #[test]
    fn without_a_majority_all_others_than_the_leader_have_parted() {
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
