//! Checkpoints built on older ones: when that is allowed, and which must be kept for it.
//!
//! ```text
//!  1 ◀─ 2 ◀─ 3 … 8     9 ◀─ 10       unchanged pages are left out; the length of a chain is bounded
//! ```
//! A checkpoint can only be restored with its whole chain, so all links of a kept one are kept too. One damaged file
//! makes every checkpoint built on it useless, so one is also kept that shares no link with the newest. This module
//! does no I/O.

use redrt_wire::checkpoint::Generation;
use std::collections::BTreeSet;

/// Fewest checkpoints that are kept: the newest, and the one before in case the newest turns out to be unreadable.
pub const KEPT: usize = 2;
/// Longest chain of checkpoints built on each other, unless the user chooses another length.
pub const LENGTH_USUAL: u32 = 8;

/// A checkpoint of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Number of the checkpoint.
    pub generation: Generation,
    /// Bytes of its images.
    pub bytes: u64,
}

/// Returns true if a new checkpoint may be built on `chain`, given newest first.
///
/// The chain must have room, and its incremental links must not exceed the bytes of its first, full one: a restore
/// reads all of them.
#[must_use]
pub fn takes_another(chain: &[Link], length_max: u32) -> bool {
    let Some((first, behind)) = chain.split_last() else { return false };
    chain.len() < length_max as usize && behind.iter().map(|link| link.bytes).sum::<u64>() <= first.bytes
}

/// Selects the complete checkpoints that are kept. `chain_of` returns the links of a checkpoint's chain. If it returns
/// `None`, because the manifest is unreadable, all older checkpoints are kept.
#[must_use]
pub fn kept(whole: &[Generation], chain_of: &dyn Fn(Generation) -> Option<Vec<Generation>>) -> BTreeSet<Generation> {
    let mut newest_first = whole.to_vec();
    newest_first.sort_unstable_by(|one, other| other.cmp(one));
    let links = |generation: Generation| -> BTreeSet<Generation> {
        let older = || newest_first.iter().copied().filter(move |other| *other < generation);
        let chain = chain_of(generation).unwrap_or_else(|| older().collect());
        std::iter::once(generation).chain(chain).collect()
    };
    let Some(newest) = newest_first.first() else { return BTreeSet::new() };
    let of_newest = links(*newest);
    let apart = newest_first.iter().copied().find(|other| links(*other).is_disjoint(&of_newest));
    newest_first.iter().copied().take(KEPT).chain(apart).flat_map(links).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn links(bytes: &[u64]) -> Vec<Link> {
        (0..).zip(bytes).map(|(back, bytes)| Link { generation: Generation(100 - back), bytes: *bytes }).collect()
    }

    #[test]
    fn a_chain_ends_when_it_is_long_or_has_twice_the_bytes() {
        assert!(!takes_another(&[], 8));
        assert!(takes_another(&links(&[100]), 8) && !takes_another(&links(&[100]), 1));
        assert!(takes_another(&links(&[5, 5, 100]), 4) && !takes_another(&links(&[5, 5, 100]), 3));
        assert!(takes_another(&links(&[50, 50, 100]), 8) && !takes_another(&links(&[51, 50, 100]), 8));
    }

    /// Checkpoints in order of creation, each built on the one before or full. Some were deleted since, some are
    /// unreadable.
    fn checkpoints() -> impl Strategy<Value = Vec<(Generation, Option<Vec<Generation>>)>> {
        prop::collection::vec((any::<bool>(), 0..10_u8), 0..20).prop_map(|checkpoints| {
            let mut chain: Vec<Generation> = Vec::new();
            let mut all = Vec::new();
            for (number, (is_anew, fate)) in (1..).zip(checkpoints) {
                if is_anew || chain.len() >= 4 {
                    chain.clear();
                }
                if fate > 0 {
                    all.push((Generation(number), (fate > 1).then(|| chain.clone())));
                }
                chain.insert(0, Generation(number));
            }
            all
        })
    }

    proptest! {
        #[test]
        fn what_is_kept_has_all_that_it_is_built_on(checkpoints in checkpoints()) {
            let whole: Vec<_> = checkpoints.iter().map(|(generation, _)| *generation).collect();
            let chain_of = |meant: Generation| {
                checkpoints.iter().find(|(generation, _)| *generation == meant).and_then(|(_, chain)| chain.clone())
            };
            let kept = kept(&whole, &chain_of);
            let stays = |generation: &Generation| kept.contains(generation) || !whole.contains(generation);
            // The newest are kept with all their links. A missing checkpoint cannot be required by a kept one.
            prop_assert!(whole.iter().rev().take(KEPT).all(|newest| kept.contains(newest)));
            for (generation, chain) in checkpoints.iter().filter(|(generation, _)| kept.contains(generation)) {
                match chain {
                    Some(chain) => prop_assert!(chain.iter().all(stays)),
                    None if whole.iter().rev().take(KEPT).any(|newest| newest == generation) => {
                        prop_assert!(whole.iter().filter(|older| *older < generation).all(stays));
                    }
                    None => {}
                }
            }
            // A checkpoint is kept that shares no link with the newest, if there is one.
            let of = |generation: Generation| {
                let mut links = chain_of(generation).unwrap_or_default();
                links.push(generation);
                links
            };
            if let Some(newest) = whole.last().filter(|_| checkpoints.iter().all(|(_, chain)| chain.is_some())) {
                let is_apart = |other: &&Generation| of(**other).iter().all(|link| !of(*newest).contains(link));
                prop_assert!(!whole.iter().any(|other| is_apart(&other)) || kept.iter().any(|other| is_apart(&other)));
                // At most two chains and one checkpoint are kept.
                prop_assert!(kept.len() <= 2 * 4 + 4, "{kept:?}");
            }
            // Deleting the others does not change the selection.
            let left: Vec<_> = whole.iter().copied().filter(|generation| kept.contains(generation)).collect();
            prop_assert_eq!(super::kept(&left, &chain_of), kept);
        }
    }
}
