//! Pages that an image can leave out because the image below it has the same content at the same address.
//!
//! An image may be built on an older one of the same process, its *image below*. A page is left out, and named by its
//! digest, if its content equals that of the image below. So this depends neither on the method of dirty tracking nor
//! on the history of the process.
//!
//! Only anonymous memory takes part. Private mappings of files have few pages of their own, and shared memory is
//! identified by objects, not addresses: both are sent whole.
//!
//! The trap: a destination keeps the pages of the image below only *while the same areas exist*. An area that was
//! unmapped and mapped again is zeros in the process, but would hold old pages at a destination that loaded the image
//! below. So digests are restricted at each layout, just as the destination restricts its memory
//! ([`Layout::kept`](super::state::Layout::kept)).

use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use twox_hash::XxHash3_128;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
const BLOCK_PAGES: usize = 512;
const BLOCK_BYTES: u64 = PAGE * BLOCK_PAGES as u64;
/// Stands for a page without a known digest. [`page_digest`] never returns it.
const NONE: u128 = 0;

/// Digest that identifies the content of a page; never 0.
#[must_use]
pub fn page_digest(page: &[u8]) -> u128 {
    XxHash3_128::oneshot(page).max(NONE + 1)
}

/// Digests of pages, by address. Stored in blocks of 512 pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageDigests {
    /// Digests of the pages of a block, by number of the block.
    blocks: BTreeMap<u64, Box<[u128; BLOCK_PAGES]>>,
}

fn place(address: u64) -> (u64, usize) {
    (address / BLOCK_BYTES, (address % BLOCK_BYTES / PAGE) as usize)
}

impl PageDigests {
    /// Digest of the page at `address`, if known.
    #[must_use]
    pub fn get(&self, address: u64) -> Option<u128> {
        let (block, index) = place(address);
        self.blocks.get(&block).map(|pages| pages[index]).filter(|digest| *digest != NONE)
    }

    /// Records the digest of a page.
    pub fn set(&mut self, address: u64, digest: u128) {
        let (block, index) = place(address);
        self.blocks.entry(block).or_insert_with(|| Box::new([NONE; BLOCK_PAGES]))[index] = digest;
    }

    /// Forgets the pages from `start` to `end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        for (block, pages) in self.blocks.range_mut(start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)) {
            let first = block * BLOCK_BYTES;
            let index = |address: u64| (address.clamp(first, first + BLOCK_BYTES) - first) as usize / PAGE as usize;
            pages[index(start)..index(end)].fill(NONE);
        }
    }

    /// Forgets all pages outside `ranges`.
    pub fn retain(&mut self, ranges: &RangeSet) {
        let gone = self.ranges().difference(ranges);
        gone.iter().for_each(|(start, end)| self.remove(start, end));
        self.blocks.retain(|_, pages| pages.iter().any(|digest| *digest != NONE));
    }

    /// Ranges of pages whose digests are known.
    #[must_use]
    pub fn ranges(&self) -> RangeSet {
        let mut ranges = RangeSet::new();
        for (block, pages) in &self.blocks {
            for (index, _) in pages.iter().enumerate().filter(|(_, digest)| **digest != NONE) {
                let address = block * BLOCK_BYTES + index as u64 * PAGE;
                ranges.push(address, address + PAGE);
            }
        }
        ranges
    }

    /// Digests of the pages of a range, in order. `None` if one is unknown.
    #[must_use]
    pub fn of_range(&self, start: u64, end: u64) -> Option<Vec<u128>> {
        (start..end).step_by(PAGE as usize).map(|address| self.get(address)).collect()
    }
}

/// Digest of several pages, computed from their digests.
#[must_use]
pub fn range_digest(pages: impl IntoIterator<Item = u128>) -> u128 {
    let mut digest = XxHash3_128::new();
    pages.into_iter().for_each(|page| digest.write(&page.to_le_bytes()));
    digest.finish_128()
}

/// Decision about a page of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Left out: the image below has it, with this digest.
    Kept(u128),
    /// Included in the image.
    Sent,
}

/// Compares pages with the image below, and records what this image consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparing {
    below: PageDigests,
    kept: PageDigests,
    own: PageDigests,
}

impl Comparing {
    /// For an image built on one with these pages. Empty for an image that stands alone.
    #[must_use]
    pub fn on(below: PageDigests) -> Self {
        Self { below, ..Self::default() }
    }

    /// Applies a new layout, under which the destination keeps only the pages in `kept`.
    pub fn retain(&mut self, kept: &RangeSet) {
        for pages in [&mut self.below, &mut self.kept, &mut self.own] {
            pages.retain(kept);
        }
    }

    /// Ends the first round: later frames replace pages, so nothing is compared with the image below any more.
    pub fn all_seen(&mut self) {
        self.below = PageDigests::default();
    }

    /// Decides about a page of anonymous memory that is not all zeros, and records the decision.
    pub fn decide(&mut self, address: u64, page: &[u8]) -> Decision {
        let digest = page_digest(page);
        if self.below.get(address) == Some(digest) {
            self.kept.set(address, digest);
            return Decision::Kept(digest);
        }
        self.sent(address, digest);
        Decision::Sent
    }

    /// Records a page that is in the image itself.
    pub fn sent(&mut self, address: u64, digest: u128) {
        self.kept.remove(address, address + PAGE);
        self.own.set(address, digest);
    }

    /// Records a range kept from the image below. Returns its digest, or `None` if the image below lacks a page.
    pub fn keep(&mut self, start: u64, end: u64) -> Option<u128> {
        let pages = self.below.of_range(start, end)?;
        for (address, page) in (start..end).step_by(PAGE as usize).zip(&pages) {
            self.kept.set(address, *page);
        }
        Some(range_digest(pages))
    }

    /// Records a range that is as freshly mapped.
    pub fn fresh(&mut self, start: u64, end: u64) {
        for pages in [&mut self.below, &mut self.kept, &mut self.own] {
            pages.remove(start, end);
        }
    }

    /// Returns the digests of own pages, and those of kept pages.
    #[must_use]
    pub fn into_parts(self) -> (PageDigests, PageDigests) {
        (self.own, self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page filled with this byte. Zeros stand for an untouched page.
    fn page(content: u8) -> Vec<u8> {
        vec![content; PAGE as usize]
    }

    type Contents = BTreeMap<u64, u8>;

    /// Memory of a destination that loads images one after the other.
    fn load(memory: &mut Contents, frames: &[Frame]) {
        for frame in frames {
            match frame {
                Frame::Keep(ranges) => memory.retain(|address, _| ranges.contains(*address)),
                Frame::Page(address, content) => memory.extend([(*address, *content)]),
                Frame::Fresh(fresh) => memory.retain(|address, _| address != fresh),
                Frame::Kept(address, digest) => {
                    let there = memory.get(address).map(|content| page_digest(&page(*content)));
                    assert_eq!(there, Some(*digest), "{address:#x}");
                }
            }
        }
    }

    enum Frame {
        Keep(RangeSet),
        Page(u64, u8),
        Fresh(u64),
        Kept(u64, u128),
    }

    /// Writes an image of a process whose memory goes through these states, one for each round.
    fn image(rounds: &[(RangeSet, Contents)], below: PageDigests) -> (Vec<Frame>, Comparing) {
        let mut frames = Vec::new();
        let mut there: Vec<u64> = below.ranges().pieces(PAGE).map(|(start, _)| start).collect();
        let mut comparing = Comparing::on(below);
        for (areas, memory) in rounds {
            frames.push(Frame::Keep(areas.clone()));
            comparing.retain(areas);
            for address in there.iter().filter(|address| !memory.contains_key(address)) {
                frames.push(Frame::Fresh(*address));
                comparing.fresh(*address, address + PAGE);
            }
            for (address, content) in memory {
                frames.push(match comparing.decide(*address, &page(*content)) {
                    Decision::Kept(digest) => Frame::Kept(*address, digest),
                    Decision::Sent => Frame::Page(*address, *content),
                });
            }
            comparing.all_seen();
            there = memory.keys().copied().collect();
        }
        (frames, comparing)
    }

    fn memories() -> impl Strategy<Value = (RangeSet, Contents)> {
        let areas = prop::collection::vec((0..12_u64, 1..6_u64), 1..4);
        let pages = prop::collection::btree_map(0..16_u64, 1..4_u8, 0..16);
        (areas, pages).prop_map(|(areas, pages)| {
            // Addresses around the end of a block, so that ranges span two.
            let address = |page: u64| BLOCK_BYTES - 8 * PAGE + page * PAGE;
            let areas: RangeSet = areas.into_iter().map(|(from, len)| (address(from), address(from + len))).collect();
            let pages = pages.into_iter().map(|(page, content)| (address(page), content));
            let inside = pages.filter(|(address, _)| areas.contains(*address)).collect();
            (areas, inside)
        })
    }

    proptest! {
        #[test]
        fn a_chain_of_images_has_what_the_process_had(
            images in prop::collection::vec(prop::collection::vec(memories(), 1..4), 1..5)
        ) {
            let (mut memory, mut known) = (Contents::new(), PageDigests::default());
            for rounds in images {
                let (frames, comparing) = image(&rounds, known);
                load(&mut memory, &frames);
                prop_assert_eq!(&memory, &rounds.last().unwrap().1);
                let (own, kept) = comparing.into_parts();
                prop_assert!(own.ranges().intersection(&kept.ranges()).is_empty());
                known = own;
                for (start, _) in kept.ranges().pieces(PAGE) {
                    known.set(start, kept.get(start).unwrap());
                }
                let all: RangeSet = memory.keys().map(|address| (*address, address + PAGE)).collect();
                prop_assert_eq!(known.ranges(), all);
            }
        }

        #[test]
        fn only_what_has_changed_is_sent(before in memories(), changed in prop::collection::btree_map(0..16_u64, 1..4_u8, 0..4)) {
            let (_, first) = image(std::slice::from_ref(&before), PageDigests::default());
            let (areas, mut memory) = before;
            let known = first.into_parts().0;
            let address = |page: u64| BLOCK_BYTES - 8 * PAGE + page * PAGE;
            let differs = |(page, content): &(u64, u8)| memory.get(&address(*page)).is_some_and(|there| there != content);
            let changed: Vec<_> = changed.into_iter().filter(differs).collect();
            memory.extend(changed.iter().map(|(page, content)| (address(*page), *content)));
            let (frames, _) = image(&[(areas, memory)], known);
            let sent = frames.iter().filter(|frame| matches!(frame, Frame::Page(..))).count();
            prop_assert_eq!(sent, changed.len());
        }
    }

    #[test]
    fn the_digest_of_a_range_is_known_when_all_of_its_pages_are() {
        let mut pages = PageDigests::default();
        pages.set(0x1000, 7);
        pages.set(0x3000, 8);
        assert_eq!((pages.of_range(0x1000, 0x2000), pages.of_range(0x1000, 0x4000)), (Some(vec![7]), None));
        pages.set(0x2000, 9);
        assert_eq!(pages.of_range(0x1000, 0x4000), Some(vec![7, 9, 8]));
        assert_ne!(range_digest([7, 9, 8]), range_digest([7, 8, 9]));
    }
}
