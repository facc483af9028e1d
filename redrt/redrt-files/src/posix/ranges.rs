//! Ranges of a file that an owner has locked, by the rules of `fcntl`: a new lock replaces overlapping parts of old
//! ones.

/// End of a range that reaches to the end of the file, however large the file becomes.
pub const END: i64 = i64::MAX;

/// Locked ranges, in order; they do not overlap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges(Vec<Range>);

/// A range of bytes under one lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Position of the first byte.
    pub start: i64,
    /// One past the position of the last byte, or [`END`].
    pub end: i64,
    /// True if no other owner may have a lock there.
    pub is_exclusive: bool,
}

impl Range {
    /// Number of bytes, as in `struct flock`: 0 for all bytes up to the end.
    pub fn length(self) -> i64 {
        if self.end == END { 0 } else { self.end - self.start }
    }
}

impl Ranges {
    /// Adds a locked range.
    pub fn lock(&mut self, range: Range) {
        self.unlock(range.start, range.end);
        let at = self.0.partition_point(|other| other.start < range.start);
        self.0.insert(at, range);
    }

    /// Removes all locks from `start` up to `end`.
    pub fn unlock(&mut self, start: i64, end: i64) {
        let rest = |range: Range| {
            let (before, behind) =
                (Range { end: range.end.min(start), ..range }, Range { start: range.start.max(end), ..range });
            [before, behind].into_iter().filter(|part| part.start < part.end)
        };
        self.0 = self.0.iter().copied().flat_map(rest).collect();
    }

    /// Returns true if nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The locked ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }
}

/// Start and end of the range of a `struct flock`. `base` is the position to which its start is relative.
pub fn resolve(base: i64, start: i64, length: i64) -> Result<(i64, i64), i32> {
    let start = base.checked_add(start).ok_or(libc::EOVERFLOW)?;
    let (start, end) = match length {
        0 => (start, END),
        1.. => (start, start.checked_add(length).ok_or(libc::EOVERFLOW)?),
        _ => (start.checked_add(length).ok_or(libc::EINVAL)?, start),
    };
    if start < 0 { Err(libc::EINVAL) } else { Ok((start, end)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_locked_is_what_was_locked_last(
            changes in proptest::collection::vec((0_i64..40, 1_i64..15, 0..3), 0..15),
        ) {
            let (mut ranges, mut naive) = (Ranges::default(), [None; 60]);
            for (start, length, kind) in changes {
                let is_exclusive = kind == 2;
                match kind {
                    0 => ranges.unlock(start, start + length),
                    _ => ranges.lock(Range { start, end: start + length, is_exclusive }),
                }
                let now = (kind != 0).then_some(is_exclusive);
                naive[start as usize..(start + length) as usize].fill(now);
            }
            let mut found = [None; 60];
            for range in ranges.iter() {
                for place in &mut found[range.start as usize..range.end as usize] {
                    prop_assert!(place.replace(range.is_exclusive).is_none(), "{ranges:?} overlap");
                }
            }
            prop_assert_eq!(found, naive);
            let starts: Vec<_> = ranges.iter().map(|range| range.start).collect();
            prop_assert!(starts.is_sorted());
        }
    }

    #[test]
    fn a_range_counts_from_where_it_is_said_and_may_go_backwards() {
        assert_eq!(resolve(0, 5, 3), Ok((5, 8)));
        assert_eq!(resolve(10, 5, 0), Ok((15, END)));
        assert_eq!(resolve(10, 5, -3), Ok((12, 15)));
        assert_eq!(resolve(0, 2, -3), Err(libc::EINVAL));
        assert_eq!(resolve(0, -1, 0), Err(libc::EINVAL));
        assert_eq!(resolve(i64::MAX, 1, 1), Err(libc::EOVERFLOW));
        assert_eq!(Range { start: 3, end: END, is_exclusive: true }.length(), 0);
        assert_eq!(Range { start: 3, end: 9, is_exclusive: false }.length(), 6);
    }
}
