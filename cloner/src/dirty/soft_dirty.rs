//! Soft-dirty bits of `/proc/PID/clear_refs` and `/proc/PID/pagemap`, on kernels built with CONFIG_MEM_SOFT_DIRTY.

use super::{DirtyTracker, Scan, Watched};
use crate::ranges::RangeSet;
use crate::sys::memory::Mapped;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE: u64 = 1 << 61;
/// Guard pages; set by Linux 6.15 and later.
const GUARD: u64 = 1 << 58;
const DIRTY: u64 = 1 << 55;
const PAGE: u64 = 4096;
/// Entries read at once: half a megabyte, for 256 MiB of memory.
const BATCH: u64 = 64 << 10;
/// Bytes of mapped memory beyond which `smaps` is read first, to skip empty areas.
const SPARSE_BYTES: u64 = 1 << 30;

/// Tracker that uses soft-dirty bits.
pub struct SoftDirty {
    pagemap: File,
    smaps: File,
    clear_refs: File,
}

impl SoftDirty {
    /// Makes a tracker from files of `/proc/PID`.
    ///
    /// Errors if the kernel lacks the bits. Such a kernel accepts the order to clear them and does nothing, so they are
    /// tried on this process.
    pub fn new(pagemap: File, smaps: File, clear_refs: File) -> io::Result<Self> {
        if works_here()? {
            Ok(Self { pagemap, smaps, clear_refs })
        } else {
            Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no soft-dirty bits"))
        }
    }
}

fn works_here() -> io::Result<bool> {
    let mut page = Mapped::new(PAGE as usize)?;
    page.bytes_mut()[0] = 1;
    let start = page.address();
    let watched = [Watched { start, end: start + PAGE, file_backed: false }];
    let pagemap = File::open("/proc/self/pagemap")?;
    File::options().write(true).open("/proc/self/clear_refs")?.write_all(b"4")?;
    let before = scan_areas(&pagemap, &watched)?;
    page.bytes_mut()[0] = 2;
    let after = scan_areas(&pagemap, &watched)?;
    Ok(before.dirty.is_empty() && !after.dirty.is_empty())
}

/// Reads the page map of the ranges.
///
/// The kernel produces an entry for each page, present or not: 200 MB for a reservation of 100 GiB. So if much is
/// mapped, `smaps` is read first to find the areas with any content.
pub fn scan(pagemap: &File, smaps: &File, watched: &[Watched]) -> io::Result<Scan> {
    let mapped: u64 = watched.iter().map(|area| area.end - area.start).sum();
    if mapped <= SPARSE_BYTES {
        return scan_areas(pagemap, watched);
    }
    let mut text = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match smaps.read_at(&mut piece, text.len() as u64)? {
            0 => break,
            count => text.extend_from_slice(&piece[..count]),
        }
    }
    scan_areas(pagemap, &occupied(&String::from_utf8_lossy(&text), watched))
}

/// Parts of `watched` in areas with private memory. Both are sorted.
fn occupied(smaps: &str, watched: &[Watched]) -> Vec<Watched> {
    let mut areas = Vec::new();
    let mut range = None;
    for line in smaps.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((start, end)) = word.split_once('-') {
            range = u64::from_str_radix(start, 16).ok().zip(u64::from_str_radix(end, 16).ok());
        } else if matches!(word, "Anonymous:" | "Swap:")
            && rest.trim() != "0 kB"
            && let Some(range) = range.take()
        {
            areas.push(range);
        }
    }
    let areas: RangeSet = areas.into_iter().collect();
    let inside = |area: &Watched| -> Vec<Watched> {
        let all: RangeSet = [(area.start, area.end)].into_iter().collect();
        all.intersection(&areas).iter().map(|(start, end)| Watched { start, end, ..*area }).collect()
    };
    watched.iter().flat_map(inside).collect()
}

fn scan_areas(pagemap: &File, watched: &[Watched]) -> io::Result<Scan> {
    let mut scan = Scan::default();
    let mut buffer = Vec::new();
    for area in watched {
        let (mut page, end) = (area.start / PAGE, area.end / PAGE);
        while page < end {
            let count = (end - page).min(BATCH);
            buffer.resize((count * 8) as usize, 0);
            pagemap.read_exact_at(&mut buffer, page * 8)?;
            for entry in buffer.chunks_exact(8) {
                let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
                let there = entry & (PRESENT | SWAPPED) != 0 && !(area.file_backed && entry & FILE != 0);
                if entry & GUARD != 0 {
                    scan.guarded.push(page * PAGE, (page + 1) * PAGE);
                } else if there {
                    scan.populated.push(page * PAGE, (page + 1) * PAGE);
                    if entry & DIRTY != 0 {
                        scan.dirty.push(page * PAGE, (page + 1) * PAGE);
                    }
                }
                page += 1;
            }
        }
    }
    Ok(scan)
}

/// Guard pages in these ranges.
pub fn guarded(pagemap: &File, ranges: &[(u64, u64)]) -> io::Result<RangeSet> {
    let watched: Vec<_> =
        ranges.iter().map(|(start, end)| Watched { start: *start, end: *end, file_backed: false }).collect();
    Ok(scan_areas(pagemap, &watched)?.guarded)
}

impl DirtyTracker for SoftDirty {
    fn find_dirty(&mut self, watched: &[Watched], _unfit: &[(u64, u64)], clear: bool) -> io::Result<Scan> {
        let scan = scan(&self.pagemap, &self.smaps, watched)?;
        if clear {
            self.clear_refs.write_all(b"4")?;
        }
        Ok(scan)
    }

    fn guarded(&self, ranges: &[(u64, u64)]) -> io::Result<RangeSet> {
        guarded(&self.pagemap, ranges)
    }

    // A page written between reading the bits and clearing them would be missed.
    fn needs_stop(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "soft-dirty"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_that_hold_nothing_are_passed_over() {
        let text = "1000-3000 rw-p 0 00:00 0\nRss: 4 kB\nAnonymous:             4 kB\nSwap:                  0 kB\n\
                    3000-6000 rw-p 0 00:00 0\nRss: 4 kB\nAnonymous:             0 kB\nSwap:                  0 kB\n\
                    8000-9000 rw-p 0 00:00 0\nRss: 0 kB\nAnonymous:             0 kB\nSwap:                  4 kB\n";
        let watched = |start, end| Watched { start, end, file_backed: false };
        let found = occupied(text, &[watched(0x1000, 0x2000), watched(0x2000, 0x5000), watched(0x8000, 0x9000)]);
        let found: Vec<_> = found.iter().map(|area| (area.start, area.end)).collect();
        assert_eq!(found, [(0x1000, 0x2000), (0x2000, 0x3000), (0x8000, 0x9000)]);
    }

    #[test]
    fn a_large_reservation_does_not_hide_what_is_in_it() {
        let mut memory = Mapped::new(4 << 30).unwrap();
        memory.bytes_mut()[3 << 30] = 1;
        let start = memory.address();
        let watched = [Watched { start, end: start + (4 << 30), file_backed: false }];
        let open = |name: &str| File::open(format!("/proc/self/{name}")).unwrap();
        let scan = scan(&open("pagemap"), &open("smaps"), &watched).unwrap();
        assert!(scan.populated.contains(start + (3 << 30)), "{scan:?}");
    }
}
