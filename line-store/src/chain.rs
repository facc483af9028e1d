//! Lines that are built on older ones: which may be, and what stays for those that are.
//!
//! ```text
//!  1 ◀─ 2 ◀─ 3 … 8     9 ◀─ 10       what was as in the line before is left out, up to a bound on the chain
//! ```
//! A line of a chain is whole only with all that it is built on. So two things follow for what is kept: all links of a
//! line that is kept stay, and one line stays that has no link in common with the newest, since one damaged file makes
//! all lines useless that are built on it. Nothing here looks at a disk.

use redrt_wire::line::Generation;
use std::collections::BTreeSet;

/// How many whole lines are kept at least: the newest, and the one before, in case a piece of the newest cannot be
/// read.
pub const KEPT: usize = 2;
/// How many lines are built on each other at most, unless the user says otherwise.
pub const LENGTH_USUAL: u32 = 8;

/// A line of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its number.
    pub generation: Generation,
    /// Bytes of its images.
    pub bytes: u64,
}

/// Whether a new line may be built on a chain, whose newest link comes first: there is room for another one, and those
/// behind the first do not have more bytes than that: who loads the chain reads all of it.
#[must_use]
pub fn takes_another(chain: &[Link], length_max: u32) -> bool {
    let Some((first, behind)) = chain.split_last() else { return false };
    chain.len() < length_max as usize && behind.iter().map(|link| link.bytes).sum::<u64>() <= first.bytes
}

/// Which of these whole lines stay. `chain_of` says what a line is built on; `None` where that cannot be read: then
/// everything older stays.
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

    /// Lines as they come to be: each on the one before, or anew. Some were deleted since, of some nothing can be read.
    fn lines() -> impl Strategy<Value = Vec<(Generation, Option<Vec<Generation>>)>> {
        prop::collection::vec((any::<bool>(), 0..10_u8), 0..20).prop_map(|lines| {
            let mut chain: Vec<Generation> = Vec::new();
            let mut all = Vec::new();
            for (number, (is_anew, fate)) in (1..).zip(lines) {
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
        fn what_is_kept_has_all_that_it_is_built_on(lines in lines()) {
            let whole: Vec<_> = lines.iter().map(|(generation, _)| *generation).collect();
            let chain_of = |meant: Generation| {
                lines.iter().find(|(generation, _)| *generation == meant).and_then(|(_, chain)| chain.clone())
            };
            let kept = kept(&whole, &chain_of);
            let stays = |generation: &Generation| kept.contains(generation) || !whole.contains(generation);
            // The newest are there, with all links; and what is not there cannot be needed by what is.
            prop_assert!(whole.iter().rev().take(KEPT).all(|newest| kept.contains(newest)));
            for (generation, chain) in lines.iter().filter(|(generation, _)| kept.contains(generation)) {
                match chain {
                    Some(chain) => prop_assert!(chain.iter().all(stays)),
                    None if whole.iter().rev().take(KEPT).any(|newest| newest == generation) => {
                        prop_assert!(whole.iter().filter(|older| *older < generation).all(stays));
                    }
                    None => {}
                }
            }
            // One damaged file does not take all lines along, if any line is apart from the newest.
            let of = |generation: Generation| {
                let mut links = chain_of(generation).unwrap_or_default();
                links.push(generation);
                links
            };
            if let Some(newest) = whole.last().filter(|_| lines.iter().all(|(_, chain)| chain.is_some())) {
                let is_apart = |other: &&Generation| of(**other).iter().all(|link| !of(*newest).contains(link));
                prop_assert!(!whole.iter().any(|other| is_apart(&other)) || kept.iter().any(|other| is_apart(&other)));
                // And no more than that: two chains, and a line.
                prop_assert!(kept.len() <= 2 * 4 + 4, "{kept:?}");
            }
            // What goes does not come to be needed later: nothing that stays changes when it has gone.
            let left: Vec<_> = whole.iter().copied().filter(|generation| kept.contains(generation)).collect();
            prop_assert_eq!(super::kept(&left, &chain_of), kept);
        }
    }
}
