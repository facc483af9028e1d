//! Sets of replica indices of one sphere.

use crate::ReplicaIndex;
use serde::{Deserialize, Serialize};

/// A set of replica indices of one sphere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaSet(u64);

impl ReplicaSet {
    /// The largest degree that fits.
    pub const CAPACITY: u16 = 64;
    /// The set without members.
    pub const EMPTY: Self = Self(0);
    /// The set of all possible indices.
    pub const ALL: Self = Self(u64::MAX);

    /// The set of this replica alone.
    #[must_use]
    #[inline]
    pub fn only(replica: ReplicaIndex) -> Self {
        debug_assert!(replica.0 < Self::CAPACITY);
        Self(1 << replica.0)
    }

    /// Returns true if the replica is in the set.
    #[must_use]
    #[inline]
    pub fn contains(self, replica: ReplicaIndex) -> bool {
        replica.0 < Self::CAPACITY && self.0 & (1 << replica.0) != 0
    }

    /// Returns true if the set has no members.
    #[must_use]
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of replicas.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns true if every member is in `other` too.
    #[must_use]
    pub fn is_subset(self, other: Self) -> bool {
        self.without(other).is_empty()
    }

    /// Adds a replica.
    #[inline]
    pub fn insert(&mut self, replica: ReplicaIndex) {
        self.0 |= Self::only(replica).0;
    }

    /// Removes a replica.
    #[inline]
    pub fn remove(&mut self, replica: ReplicaIndex) {
        self.0 &= !Self::only(replica).0;
    }

    /// Members of both sets.
    #[must_use]
    #[inline]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of either set.
    #[must_use]
    #[inline]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of this set that are not in `other`.
    #[must_use]
    #[inline]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The members, by index.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = ReplicaIndex> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some(ReplicaIndex(index as u16))
        })
    }
}

impl FromIterator<ReplicaIndex> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaIndex>>(replicas: I) -> Self {
        replicas.into_iter().fold(Self::EMPTY, |mut set, replica| {
            set.insert(replica);
            set
        })
    }
}
