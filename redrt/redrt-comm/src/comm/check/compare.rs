//! Comparison of the calls by which all members of a communicator make one collective (MPI-5.0 §6.2.1): calls in, the
//! first two that do not fit each other out. Pure: every member has the same calls and finds the same.

use super::call::{Call, Root};
use redrt_abi::{
    MPI_ERR_COUNT, MPI_ERR_OP, MPI_ERR_OTHER, MPI_ERR_ROOT, MPI_ERR_TOPOLOGY, MPI_ERR_TRUNCATE, MPI_ERR_TYPE,
};
use std::ffi::c_int;

/// A member: its group, of which there are one or two, and its rank there.
pub type Member = (usize, usize);

/// Two calls that do not fit each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The member that makes the first call.
    pub one: Member,
    /// The member that makes the second call.
    pub other: Member,
    /// Kind of the difference.
    pub about: About,
}

/// Difference between two calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// The functions differ.
    Function,
    /// The roots differ.
    Root,
    /// The reductions differ.
    Reduction,
    /// Counts differ that must be the same at all members.
    Shares,
    /// Lengths differ that must be the same at both members, in bytes.
    Lengths(u64, u64),
    /// The lengths are the same, the elements are not.
    Types,
    /// One member sends this many bytes to the other, which expects that many.
    PieceLength(u64, u64),
    /// The first member sends other elements than the second expects.
    PieceTypes,
    /// One member sends this many messages to the other, which expects that many.
    PieceCount(usize, usize),
}

impl About {
    /// Error class of the difference. For lengths it is that of a message that is too long, as without the check.
    pub fn class(self) -> c_int {
        match self {
            Self::Function => MPI_ERR_OTHER,
            Self::Root => MPI_ERR_ROOT,
            Self::Reduction => MPI_ERR_OP,
            Self::Shares => MPI_ERR_COUNT,
            Self::Lengths(..) | Self::PieceLength(..) => MPI_ERR_TRUNCATE,
            Self::Types | Self::PieceTypes => MPI_ERR_TYPE,
            Self::PieceCount(..) => MPI_ERR_TOPOLOGY,
        }
    }
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Function => write!(f, "different collectives"),
            Self::Root => write!(f, "different roots"),
            Self::Reduction => write!(f, "different reductions"),
            Self::Shares => write!(f, "different counts"),
            Self::Lengths(one, other) => write!(f, "{one} bytes and {other} bytes"),
            Self::Types => write!(f, "different type signatures"),
            Self::PieceLength(one, other) => {
                write!(f, "the first sends {one} bytes, of which the second expects {other}")
            }
            Self::PieceTypes => write!(f, "the first sends other elements than the second expects"),
            Self::PieceCount(one, other) => {
                write!(f, "the first sends {one} messages, of which the second expects {other}")
            }
        }
    }
}

/// The first two calls that do not fit each other; `None` if all fit. `groups` are the calls of the members by rank, of
/// one group or two.
pub fn compare(groups: &[Vec<Call>]) -> Option<Mismatch> {
    let members: Vec<(Member, &Call)> = groups
        .iter()
        .enumerate()
        .flat_map(|(group, calls)| calls.iter().enumerate().map(move |(rank, call)| ((group, rank), call)))
        .collect();
    unlike(&members, |call| Some(&call.function), |_, _| About::Function)
        .or_else(|| roots(groups, &members))
        .or_else(|| unlike(&members, |call| call.reduction.as_ref(), |_, _| About::Reduction))
        .or_else(|| shares(groups))
        .or_else(|| alike(&members))
        .or_else(|| pieces(groups))
}

/// The first two members with values that differ. Members for which `what` returns `None` do not count.
fn unlike<'a, T: PartialEq + 'a>(
    members: &[(Member, &'a Call)],
    what: impl Fn(&'a Call) -> Option<&'a T>,
    about: impl Fn(&T, &T) -> About,
) -> Option<Mismatch> {
    let mut said = members.iter().filter_map(|(member, call)| Some((*member, what(call)?)));
    let (one, first) = said.next()?;
    let (other, second) = said.find(|(_, second)| *second != first)?;
    Some(Mismatch { one, other, about: about(first, second) })
}

fn roots(groups: &[Vec<Call>], members: &[(Member, &Call)]) -> Option<Mismatch> {
    if groups.len() == 1 {
        return unlike(members, |call| call.root.as_ref(), |_, _| About::Root);
    }
    // One member of one of the two groups is the root (MPI-5.0 §6.2.3).
    members.first().filter(|(_, call)| call.root.is_some())?;
    let mismatch = |one, other| Some(Mismatch { one, other, about: About::Root });
    let heres: Vec<Member> =
        members.iter().filter(|(_, call)| call.root == Some(Root::Here)).map(|(member, _)| *member).collect();
    let Some(&root) = heres.first() else { return mismatch((0, 0), (1, 0)) };
    let wrong = members.iter().find(|(member, call)| match call.root {
        Some(Root::Here) => *member != root,
        Some(Root::Beside) => member.0 != root.0,
        Some(Root::Rank(rank)) => member.0 == root.0 || rank as usize != root.1,
        None => true,
    });
    wrong.and_then(|(other, _)| mismatch(root, *other))
}

fn shares(groups: &[Vec<Call>]) -> Option<Mismatch> {
    groups.iter().enumerate().find_map(|(group, calls)| {
        let members: Vec<_> = calls.iter().enumerate().map(|(rank, call)| ((group, rank), call)).collect();
        unlike(&members, |call| call.shares.as_ref(), |_, _| About::Shares)
    })
}

fn alike(members: &[(Member, &Call)]) -> Option<Mismatch> {
    let mut said = members.iter().filter_map(|(member, call)| Some((*member, call.alike?)));
    let (one, first) = said.next()?;
    said.find_map(|(other, second)| {
        let about = if first.bytes != second.bytes {
            About::Lengths(first.bytes, second.bytes)
        } else if !first.has_types_of(&second) {
            About::Types
        } else {
            return None;
        };
        Some(Mismatch { one, other, about })
    })
}

fn pieces(groups: &[Vec<Call>]) -> Option<Mismatch> {
    for (group, givers) in groups.iter().enumerate() {
        // In two groups, messages go to the other group.
        let across = groups.len() - 1 - group;
        let takers = &groups[across];
        let takes: Vec<_> = takers.iter().map(|call| call.takes.by_rank(givers.len())).collect();
        for (rank, giver) in givers.iter().enumerate() {
            let gives = giver.gives.by_rank(takers.len());
            for (to, (given, taken)) in gives.iter().zip(takes.iter().map(|takes| &takes[rank])).enumerate() {
                let about = if given.len() != taken.len() {
                    Some(About::PieceCount(given.len(), taken.len()))
                } else {
                    given.iter().zip(taken).find_map(|(given, taken)| match given {
                        _ if given.bytes != taken.bytes => Some(About::PieceLength(given.bytes, taken.bytes)),
                        _ if !given.has_types_of(taken) => Some(About::PieceTypes),
                        _ => None,
                    })
                };
                if let Some(about) = about {
                    return Some(Mismatch { one: (group, rank), other: (across, to), about });
                }
            }
        }
    }
    None
}
