//! Groups: ordered sets of processes (MPI-5.0 section 7.3). A process is its rank in `MPI_COMM_WORLD`.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{GroupHandle, HandleTable, SessionHandle};
use redrt_abi::{MPI_ERR_ARG, MPI_ERR_GROUP, MPI_ERR_RANK, MPI_IDENT, MPI_SIMILAR, MPI_UNEQUAL};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, OnceLock};

/// A group. Immutable; communicators share it.
#[derive(Debug)]
pub struct Group {
    members: Members,
    /// The session of the group's process set; `None` in the world model.
    session: Option<SessionHandle>,
}

#[derive(Debug)]
enum Members {
    /// Consecutive world ranks from the first: the world, or one process. No table is needed to look one up.
    Range { first: u32, count: u32 },
    /// Any other processes. Their positions are indexed at the first lookup.
    List { world_ranks: Vec<u32>, positions: OnceLock<FxHashMap<u32, u32>> },
}

process_local! {
    static GROUPS: HandleTable<Group> = HandleTable::new();
    static EMPTY: LazyLock<Arc<Group>> = LazyLock::new(|| Arc::new(Group::range(0, 0)));
}

/// Registers a group and returns its handle; an empty group's handle is `MPI_GROUP_EMPTY`.
pub fn register(group: Arc<Group>) -> GroupHandle {
    if group.size() == 0 { GroupHandle::EMPTY } else { GroupHandle(GROUPS.insert(group)) }
}

/// The group behind a handle.
///
/// # Errors
/// `MPI_ERR_GROUP` when none exists.
pub fn resolve(handle: GroupHandle) -> Result<Arc<Group>> {
    if handle == GroupHandle::EMPTY {
        return Ok(Arc::clone(&EMPTY));
    }
    GROUPS.get(handle.0).ok_or_else(invalid)
}

/// Frees a group. `MPI_GROUP_EMPTY` may be freed too: programs cannot know that an operation returned it.
///
/// # Errors
/// `MPI_ERR_GROUP` when none exists.
pub fn free(handle: GroupHandle) -> Result {
    if handle == GroupHandle::EMPTY {
        return Ok(());
    }
    GROUPS.remove(handle.0).map(drop).ok_or_else(invalid)
}

fn invalid() -> Error {
    Error::new(MPI_ERR_GROUP, "not a valid group")
}

impl Group {
    /// `count` processes with consecutive world ranks from `first` on.
    #[must_use]
    pub fn range(first: u32, count: u32) -> Self {
        Self { members: Members::Range { first, count }, session: None }
    }

    /// The processes with these world ranks, which differ from each other.
    #[must_use]
    pub fn list(world_ranks: Vec<u32>) -> Self {
        match world_ranks.first() {
            None => Self::range(0, 0),
            Some(&first) if world_ranks.iter().zip(first..).all(|(own, expected)| *own == expected) => {
                Self::range(first, world_ranks.len() as u32)
            }
            Some(_) => Self { members: Members::List { world_ranks, positions: OnceLock::new() }, session: None },
        }
    }

    /// The same processes, as a process set of a session.
    #[must_use]
    pub fn of_session(self, session: SessionHandle) -> Self {
        Self { session: Some(session), ..self }
    }

    /// The session of the group's process set.
    #[must_use]
    pub fn session(&self) -> Option<SessionHandle> {
        self.session
    }

    /// Number of processes in the group.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u32 {
        match &self.members {
            Members::Range { count, .. } => *count,
            Members::List { world_ranks, .. } => world_ranks.len() as u32,
        }
    }

    /// World rank of the process with rank `rank` in the group.
    #[must_use]
    #[inline]
    pub fn world_rank(&self, rank: u32) -> Option<u32> {
        match &self.members {
            Members::Range { first, count } => (rank < *count).then(|| first + rank),
            Members::List { world_ranks, .. } => world_ranks.get(rank as usize).copied(),
        }
    }

    /// Rank in the group of the process with world rank `world_rank`.
    #[must_use]
    #[inline]
    pub fn rank_of(&self, world_rank: u32) -> Option<u32> {
        match &self.members {
            Members::Range { first, count } => world_rank.checked_sub(*first).filter(|rank| rank < count),
            Members::List { world_ranks, positions } => {
                let table = || world_ranks.iter().copied().zip(0..).collect();
                positions.get_or_init(table).get(&world_rank).copied()
            }
        }
    }

    /// World ranks in order.
    pub fn world_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.size()).filter_map(|rank| self.world_rank(rank))
    }

    /// The processes of this group, then those of the other that are not in this one.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let more = other.world_ranks().filter(|rank| self.rank_of(*rank).is_none());
        Self::list(self.world_ranks().chain(more).collect())
    }

    /// The processes of this group that are in the other.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::list(self.world_ranks().filter(|rank| other.rank_of(*rank).is_some()).collect())
    }

    /// The processes of this group that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self::list(self.world_ranks().filter(|rank| other.rank_of(*rank).is_none()).collect())
    }

    /// The processes with these ranks, in this order.
    ///
    /// # Errors
    /// `MPI_ERR_RANK` when there is no such rank, or one is named twice.
    pub fn including(&self, ranks: &[c_int]) -> Result<Self> {
        self.check_ranks(ranks)?;
        Ok(Self::list(ranks.iter().filter_map(|rank| self.world_rank(*rank as u32)).collect()))
    }

    /// All processes but those with these ranks.
    ///
    /// # Errors
    /// As [`Group::including`].
    pub fn excluding(&self, ranks: &[c_int]) -> Result<Self> {
        let excluded = self.check_ranks(ranks)?;
        let kept = (0..self.size()).filter(|rank| !excluded.contains(&(*rank as c_int)));
        Ok(Self::list(kept.filter_map(|rank| self.world_rank(rank)).collect()))
    }

    fn check_ranks(&self, ranks: &[c_int]) -> Result<FxHashSet<c_int>> {
        let mut seen = FxHashSet::default();
        for rank in ranks {
            if *rank < 0 || *rank as u32 >= self.size() {
                fail!(MPI_ERR_RANK, "rank {rank} in a group of {}", self.size());
            }
            if !seen.insert(*rank) {
                fail!(MPI_ERR_RANK, "rank {rank} is named twice");
            }
        }
        Ok(seen)
    }

    /// `MPI_IDENT`, `MPI_SIMILAR` (the same processes in another order) or `MPI_UNEQUAL`.
    #[must_use]
    pub fn compare(&self, other: &Self) -> c_int {
        if self.size() != other.size() {
            MPI_UNEQUAL
        } else if self.world_ranks().eq(other.world_ranks()) {
            MPI_IDENT
        } else if self.world_ranks().all(|rank| other.rank_of(rank).is_some()) {
            MPI_SIMILAR
        } else {
            MPI_UNEQUAL
        }
    }
}

/// The ranks that triplets (first, last, stride) name.
///
/// # Errors
/// `MPI_ERR_ARG` when a stride is 0 or does not lead from first to last; `MPI_ERR_RANK` when there are more than a
/// group of `size` has.
pub fn expand_ranges(ranges: &[[c_int; 3]], size: u32) -> Result<Vec<c_int>> {
    let mut ranks = Vec::new();
    for [first, last, stride] in ranges {
        let (first, last, stride) = (i64::from(*first), i64::from(*last), i64::from(*stride));
        if stride == 0 || (last - first) / stride < 0 || (last < first) == (stride > 0) && last != first {
            fail!(MPI_ERR_ARG, "the range ({first}, {last}, {stride}) leads nowhere");
        }
        let count = (last - first) / stride + 1;
        if count + ranks.len() as i64 > i64::from(size) {
            fail!(MPI_ERR_RANK, "the ranges name more than the {size} ranks of the group");
        }
        ranks.extend((0..count).map(|index| (first + index * stride) as c_int));
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(group: &Group) -> Vec<u32> {
        group.world_ranks().collect()
    }

    fn subset() -> impl Strategy<Value = Vec<u32>> {
        Just((0..24).collect::<Vec<u32>>())
            .prop_shuffle()
            .prop_flat_map(|all| (0..24usize).prop_map(move |count| all[..count].to_vec()))
    }

    proptest! {
        #[test]
        fn algebra_agrees_with_lists(a in subset(), b in subset()) {
            let (x, y) = (Group::list(a.clone()), Group::list(b.clone()));
            let both: Vec<_> = a.iter().copied().filter(|rank| b.contains(rank)).collect();
            let only: Vec<_> = a.iter().copied().filter(|rank| !b.contains(rank)).collect();
            let more = b.iter().copied().filter(|rank| !a.contains(rank));
            prop_assert_eq!(members(&x.intersection(&y)), both);
            prop_assert_eq!(members(&x.difference(&y)), only);
            prop_assert_eq!(members(&x.union(&y)), a.iter().copied().chain(more).collect::<Vec<_>>());
            for world_rank in 0..24 {
                let position = a.iter().position(|rank| *rank == world_rank).map(|rank| rank as u32);
                prop_assert_eq!(x.rank_of(world_rank), position);
            }
            let mut sorted = (a.clone(), b.clone());
            sorted.0.sort_unstable();
            sorted.1.sort_unstable();
            let expected = if a == b { MPI_IDENT } else if sorted.0 == sorted.1 { MPI_SIMILAR } else { MPI_UNEQUAL };
            prop_assert_eq!(x.compare(&y), expected);
            prop_assert_eq!(x.compare(&Group::list(sorted.0)), if a.is_sorted() { MPI_IDENT } else { MPI_SIMILAR });
        }
    }

    #[test]
    fn ranks_are_checked() {
        let world = Group::range(0, 8);
        assert_eq!(members(&world.including(&[5, 2]).unwrap()), [5, 2]);
        assert_eq!(members(&world.excluding(&[0, 1, 2, 3, 7]).unwrap()), [4, 5, 6]);
        for bad in [&[8][..], &[-1], &[1, 1]] {
            assert_eq!(world.including(bad).unwrap_err().code(), MPI_ERR_RANK);
        }
    }

    #[test]
    fn ranges_expand_in_either_direction() {
        assert_eq!(expand_ranges(&[[0, 6, 3], [5, 1, -2]], 8).unwrap(), [0, 3, 6, 5, 3, 1]);
        assert_eq!(expand_ranges(&[[2, 2, 1], [4, 4, -1]], 8).unwrap(), [2, 4]);
        assert_eq!(expand_ranges(&[[0, 7, 2]], 8).unwrap(), [0, 2, 4, 6]);
        for bad in [[0, 4, 0], [4, 0, 1], [0, 4, -1]] {
            assert_eq!(expand_ranges(&[bad], 8).unwrap_err().code(), MPI_ERR_ARG);
        }
        assert_eq!(expand_ranges(&[[0, c_int::MAX, 1]], 8).unwrap_err().code(), MPI_ERR_RANK);
    }

    #[test]
    fn empty_results_are_the_empty_group() {
        let world = Arc::new(Group::range(0, 4));
        let handle = register(Arc::clone(&world));
        assert_eq!(resolve(handle).unwrap().size(), 4);
        assert_eq!(register(Arc::new(world.difference(&world))), GroupHandle::EMPTY);
        free(GroupHandle::EMPTY).unwrap();
        free(handle).unwrap();
        assert!(resolve(handle).is_err() && resolve(GroupHandle::NULL).is_err());
    }
}
