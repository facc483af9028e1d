//! Sets of addresses as sorted, disjoint ranges.

/// A set of addresses. Ranges are half open, sorted, and do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(Vec<(u64, u64)>);

impl RangeSet {
    /// Creates the empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds `start..end`, which must not begin before the last range does; an empty range is ignored.
    ///
    /// # Panics
    /// If `start` is below the start of the last range, and touches or overlaps it.
    pub fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.0.last_mut() {
            Some(last) if start <= last.1 => {
                assert!(start >= last.0, "ranges come in order: {start:#x} after {last:x?}");
                last.1 = last.1.max(end);
            }
            _ => self.0.push((start, end)),
        }
    }

    /// Iterates over the ranges in ascending order, as `(start, end)`.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Returns true if `address` is in the set.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        let index = self.0.partition_point(|(_, end)| *end <= address);
        self.0.get(index).is_some_and(|(start, _)| *start <= address)
    }

    /// Number of addresses in the set, that is, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns true if the set has no addresses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Addresses that are in at least one of the two sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = Self(Vec::with_capacity(self.0.len() + other.0.len()));
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) if l.0 <= r.0 => left.next(),
                (Some(_), None) => left.next(),
                (_, Some(_)) => right.next(),
                (None, None) => return all,
            };
            let (start, end) = next.expect("peeked");
            all.push(*start, *end);
        }
    }

    /// Addresses that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::new();
        let (mut i, mut j) = (0, 0);
        while let (Some(l), Some(r)) = (self.0.get(i), other.0.get(j)) {
            both.push(l.0.max(r.0), l.1.min(r.1));
            if l.1 <= r.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        both
    }

    /// Addresses that are in this set and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        let mut j = 0;
        for (mut start, end) in self.iter() {
            while other.0.get(j).is_some_and(|r| r.1 <= start) {
                j += 1;
            }
            let mut k = j;
            while let Some(r) = other.0.get(k).filter(|r| r.0 < end) {
                rest.push(start, r.0);
                start = start.max(r.1);
                k += 1;
            }
            rest.push(start, end);
        }
        rest
    }

    /// Cuts the set into pieces of at most `len` bytes, at each multiple of `len`.
    pub fn pieces(&self, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.iter().flat_map(move |(start, end)| {
            (start / len..end.div_ceil(len)).map(move |index| (start.max(index * len), end.min((index + 1) * len)))
        })
    }
}

impl FromIterator<(u64, u64)> for RangeSet {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(ranges: T) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut set = Self::new();
        for (start, end) in ranges {
            set.push(start, end);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn small() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..60, 0_u64..8), 0..12)
            .prop_map(|ranges| ranges.into_iter().map(|(start, len)| (start, start + len)).collect())
    }

    fn members(set: &RangeSet) -> BTreeSet<u64> {
        set.iter().flat_map(|(start, end)| start..end).collect()
    }

    proptest! {
        #[test]
        fn sets_do_what_sets_of_numbers_do(a in small(), b in small(), len in 1_u64..9) {
            let (a, b): (RangeSet, RangeSet) = (a.into_iter().collect(), b.into_iter().collect());
            let (x, y) = (members(&a), members(&b));
            prop_assert_eq!(members(&a.union(&b)), &x | &y);
            prop_assert_eq!(members(&a.intersection(&b)), &x & &y);
            prop_assert_eq!(members(&a.difference(&b)), &x - &y);
            prop_assert_eq!(a.bytes(), x.len() as u64);
            prop_assert!((0..80).all(|number| a.contains(number) == x.contains(&number)));
            prop_assert_eq!(a.pieces(len).flat_map(|(start, end)| start..end).collect::<BTreeSet<_>>(), x);
            prop_assert!(a.pieces(len).all(|(start, end)| start < end && start / len == (end - 1) / len));
            prop_assert!(a.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
