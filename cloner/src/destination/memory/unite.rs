//! Restores the rule that each area is one mapping.
//!
//! A program may move or grow one mapping in one step, but `mremap` refuses a range of several mappings (EFAULT). In
//! the copy an area may consist of several: areas of earlier layouts that have merged since, or that were staged at
//! different places. The kernel merges neighbours only until their pages are touched separately. So an area that it has
//! not merged is mapped anew, and its content moved over.

use super::{Memory, Piece, own_mappings, relocate, unmap};
use crate::dirty::{Watched, scan_once};
use crate::image::state::{Area, Backing};
use std::fs::File;
use std::io;

/// Bytes copied before the originals are released, so that the host never holds much more than the copy.
const CHUNK_BYTES: u64 = 2 << 20;

impl Memory {
    /// Gives each area a single mapping, if it has more than one piece or kernel mapping. `pieces` are sorted and cover
    /// all areas.
    pub(super) fn unite(&self, pieces: Vec<Piece>) -> io::Result<Vec<Piece>> {
        let mappings: Vec<(u64, u64)> = own_mappings()?.iter().map(|mapping| (mapping.start, mapping.end)).collect();
        let mut pieces = pieces.into_iter().peekable();
        let mut united = Vec::with_capacity(self.layout.areas.len());
        for area in &self.layout.areas {
            let mut parts = Vec::with_capacity(1);
            while let Some(part) = pieces.next_if(|piece| piece.end <= area.end) {
                parts.push(part);
            }
            let whole = Piece { start: area.start, end: area.end, at: parts[0].at, backing: area.backing };
            let in_line =
                parts.iter().all(|part| part.at.wrapping_sub(part.start) == whole.at.wrapping_sub(whole.start));
            let next = mappings.partition_point(|(_, end)| *end <= whole.at);
            let end = whole.at + (area.end - area.start);
            if in_line && mappings.get(next).is_some_and(|mapping| mapping.0 <= whole.at && end <= mapping.1) {
                united.push(whole);
            } else {
                united.push(self.make_anew(area, parts)?);
            }
        }
        Ok(united)
    }

    /// Makes a single mapping for `area` with the content of `parts`, which are unmapped. It is placed at its final
    /// address if that is free, where the kernel merges it with later neighbours.
    fn make_anew(&self, area: &Area, mut parts: Vec<Piece>) -> io::Result<Piece> {
        for part in &mut parts {
            let len = part.end - part.start;
            let aside = self.hole(part.start, len)?;
            relocate(part.at, len, aside)?;
            part.at = aside;
        }
        let at = self.map(area.start, area.end - area.start, area.backing, area.grows_down)?;
        for part in &parts {
            let to = at + (part.start - area.start);
            // Contents of shared objects are in their memfds, not in the mapping.
            if !matches!(area.backing, Backing::Shared { .. }) {
                copy(part, to, matches!(area.backing, Backing::File { .. }))?;
            }
            unmap(part.at, part.end - part.start)?;
        }
        Ok(Piece { start: area.start, end: area.end, at, backing: area.backing })
    }
}

/// Copies the pages of `part` that have content of their own, and releases the originals.
fn copy(part: &Piece, to: u64, file_backed: bool) -> io::Result<()> {
    let watched = Watched { start: part.at, end: part.at + (part.end - part.start), file_backed };
    let open = |name: &str| File::open(format!("/proc/self/{name}"));
    let scan = scan_once(&open("pagemap")?, &open("smaps")?, &[watched])?;
    for (start, end) in scan.populated.iter() {
        for from in (start..end).step_by(CHUNK_BYTES as usize) {
            let len = (end - from).min(CHUNK_BYTES) as usize;
            // SAFETY: - `from` is within a piece, and the target within the mapping made for it: readable and writable.
            //         - both are disjoint mappings, and no reference points into them.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, (to + (from - part.at)) as *mut u8, len) };
            // SAFETY: - the range is within a piece, its content was just copied, and no reference points into it.
            unsafe { libc::madvise(from as *mut _, len, libc::MADV_DONTNEED) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::ONE_AT_A_TIME;
    use super::*;
    use crate::image::state::Layout;
    use std::sync::PoisonError;

    const PAGE: u64 = 4096;

    /// Areas, in pages, and the pages that are written afterwards.
    type Round = (&'static [(u64, u64)], std::ops::Range<u64>);

    fn areas(base: u64, pages: &[(u64, u64)]) -> Layout {
        let area = |(from, until): &(u64, u64)| Area {
            start: base + from * PAGE,
            end: base + until * PAGE,
            protection: (libc::PROT_READ | libc::PROT_WRITE) as u8,
            grows_down: false,
            advice: 0,
            backing: Backing::Anonymous,
        };
        Layout { areas: pages.iter().map(area).collect(), objects: Vec::new() }
    }

    fn byte(memory: &Memory, address: u64) -> *mut u8 {
        memory.locate(address, 1).unwrap()[0].0 as *mut u8
    }

    fn write(memory: &Memory, base: u64, pages: std::ops::Range<u64>) {
        for page in pages {
            // SAFETY: - the page is mapped and writable in `memory`, and no reference points into it.
            unsafe { byte(memory, base + page * PAGE).write(page as u8 + 1) };
        }
    }

    fn check(memory: &Memory, base: u64, pages: &[(u64, u64)], written: &[u64]) {
        let mappings = own_mappings().unwrap();
        for (from, until) in pages {
            let len = (until - from) * PAGE;
            let at = memory.locate(base + from * PAGE, len).unwrap();
            assert_eq!(at.len(), 1, "one piece");
            let inside = mappings.iter().any(|mapping| mapping.start <= at[0].0 && at[0].0 + len <= mapping.end);
            assert!(inside, "{from} to {until} at {at:x?} is not one mapping: {mappings:x?}");
            for page in *from..*until {
                let expected = if written.contains(&page) { page as u8 + 1 } else { 0 };
                // SAFETY: - the page is within the piece that was just found, mapped and readable.
                assert_eq!(unsafe { byte(memory, base + page * PAGE).read() }, expected, "page {page}");
            }
        }
    }

    /// Rounds of a program that makes mappings, writes to them, and fills the gaps between them. With `staged`, a
    /// mapping of this process lies at their final addresses.
    fn go_through_rounds(staged: bool) {
        let mut memory = Memory::default();
        let base = memory.hole(0, 64 * PAGE).unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        if staged {
            // SAFETY: - `MAP_FIXED_NOREPLACE` in a hole replaces nothing.
            let taken = unsafe { libc::mmap((base + 8 * PAGE) as *mut _, 4096, libc::PROT_NONE, flags, -1, 0) };
            assert_ne!(taken, libc::MAP_FAILED);
        }
        let mut written: Vec<u64> = Vec::new();
        let rounds: [Round; 5] = [
            (&[(0, 4), (6, 10), (20, 30)], 0..4),
            (&[(0, 4), (6, 10), (20, 30)], 7..9),
            (&[(0, 10), (20, 34)], 4..5),
            (&[(0, 3), (3, 40)], 25..40),
            (&[(0, 48)], 0..1),
        ];
        for (pages, touched) in rounds {
            memory.apply(areas(base, pages)).unwrap();
            written.retain(|page| pages.iter().any(|(from, until)| (*from..*until).contains(page)));
            check(&memory, base, pages, &written);
            write(&memory, base, touched.clone());
            written.extend(touched);
            check(&memory, base, pages, &written);
        }
        memory.apply(Layout::default()).unwrap();
        if staged {
            unmap(base + 8 * PAGE, PAGE).unwrap();
        }
    }

    #[test]
    fn areas_that_merge_become_one_mapping() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        go_through_rounds(false);
        go_through_rounds(true);
    }
}
