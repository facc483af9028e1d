//! Memory of what a process has recorded since a cut, so that it records everything once.

use crate::record::{FileKey, Held};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// Bytes are saved in blocks of this size where all processes use one log. So a program with many small writes adds few
/// records.
pub const BLOCK_BYTES: u64 = 4096;

/// Ranges of a file that were saved. They neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Saved(BTreeMap<u64, u64>);

impl Saved {
    /// Parts of a range that were not saved yet.
    pub fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let (mut missing, mut at) = (Vec::new(), range.start);
        let before = self.0.range(..=range.start).next_back();
        for (start, end) in before.into_iter().chain(self.0.range(range.start + 1..range.end.max(range.start + 1))) {
            if *start > at {
                missing.push(at..(*start).min(range.end));
            }
            at = at.max(*end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Adds a range that was saved.
    pub fn add(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        while let Some((known, until)) = self.0.range(..=end).next_back().map(|(known, until)| (*known, *until)) {
            if until < start {
                break;
            }
            self.0.remove(&known);
            (start, end) = (start.min(known), end.max(until));
        }
        self.0.insert(start, end);
    }
}

/// A file that existed at the cut, as far as this process knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownFile {
    /// Identity by which undo finds it.
    pub held: Held,
    /// Size before its first change. Bytes from there on need not be saved.
    pub size: u64,
    pub saved: Saved,
    /// Names of the extended attributes that were saved.
    pub attributes: HashSet<Vec<u8>>,
}

impl KnownFile {
    /// Ranges that must be saved before `range` changes, in whole blocks. Empty for appended bytes.
    pub fn needs(&self, range: Range<u64>, block_bytes: u64) -> Vec<Range<u64>> {
        if range.is_empty() || range.start >= self.size {
            return Vec::new();
        }
        let start = range.start - range.start % block_bytes;
        let end = range.end.checked_next_multiple_of(block_bytes).unwrap_or(u64::MAX).min(self.size);
        self.saved.missing(&(start..end))
    }
}

/// A name in a directory, identified independently of the directory's path.
pub type NameKey = (FileKey, Vec<u8>);

/// All that a process has recorded since a cut.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordedChanges {
    pub files: HashMap<FileKey, KnownFile>,
    /// Files created since the cut: undo does not put anything of them back.
    pub made: HashSet<FileKey>,
    /// Names whose first record exists. Cleared when a directory is removed or renamed: afterwards the same path may be
    /// in another directory.
    pub names: HashSet<NameKey>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_missing_is_what_was_not_added(
            added in proptest::collection::vec((0_u64..60, 0_u64..20), 0..12),
            asked in (0_u64..70, 0_u64..30),
        ) {
            let (mut saved, mut naive) = (Saved::default(), [false; 100]);
            for (start, length) in added {
                saved.add(start..start + length);
                naive[start as usize..(start + length) as usize].fill(true);
            }
            let mut missing = [false; 100];
            for range in saved.missing(&(asked.0..asked.0 + asked.1)) {
                prop_assert!(range.start < range.end);
                missing[range.start as usize..range.end as usize].fill(true);
            }
            for at in 0..100 {
                let is_asked = (asked.0..asked.0 + asked.1).contains(&at);
                prop_assert_eq!(missing[at as usize], is_asked && !naive[at as usize], "at {}", at);
            }
            let ends: Vec<_> = saved.0.iter().map(|(start, end)| (*start, *end)).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
        }
    }

    #[test]
    fn what_is_behind_the_end_needs_nothing() {
        let held = Held { key: None, link: None, path: Vec::new() };
        let mut file = KnownFile { held, size: 5000, saved: Saved::default(), attributes: HashSet::new() };
        let needs = |file: &KnownFile, range: Range<u64>, block_bytes| {
            let needed = file.needs(range, block_bytes);
            assert!(needed.len() < 2, "{needed:?}");
            needed.first().map(|range| (range.start, range.end))
        };
        assert_eq!(needs(&file, 5000..9000, BLOCK_BYTES), None);
        assert_eq!(needs(&file, 7..7, BLOCK_BYTES), None);
        assert_eq!(needs(&file, 8192..9000, BLOCK_BYTES), None);
        assert_eq!(needs(&file, 4999..9000, BLOCK_BYTES), Some((4096, 5000)));
        assert_eq!(needs(&file, 10..11, BLOCK_BYTES), Some((0, 4096)));
        assert_eq!(needs(&file, 0..u64::MAX, BLOCK_BYTES), Some((0, 5000)));
        assert_eq!(needs(&file, 4090..9000, 1), Some((4090, 5000)));
        file.saved.add(0..4096);
        assert_eq!(needs(&file, 0..u64::MAX, BLOCK_BYTES), Some((4096, 5000)));
    }
}
