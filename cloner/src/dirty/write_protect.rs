//! userfaultfd in asynchronous write-protect mode, read by PAGEMAP_SCAN: Linux 6.7 and later, for any user.

use super::{DirtyTracker, Scan, Watched};
use crate::maps::ADDRESSES_END;
use crate::ranges::RangeSet;
use crate::sys::pagemap::{self, Categories, Region, Wanted};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

const PAGE: u64 = 4096;

/// Bytes covered by one last-level page table of the kernel, which vanishes as a whole or not at all.
const TABLE_BYTES: u64 = 2 << 20;

/// Tracker that uses write protection.
pub struct WriteProtect {
    pagemap: File,
    userfaultfd: OwnedFd,
    /// Pages populated at the last scan that cleared: protected since, unless written or unmapped.
    protected: RangeSet,
    /// Category of guard pages; empty if the kernel does not report them (before Linux 6.16).
    guard: Categories,
}

impl WriteProtect {
    /// Required userfaultfd features: asynchronous write protection, also of shared memory and unpopulated pages.
    pub const FEATURES: u64 = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15;

    /// Makes a tracker from the process's page map and userfaultfd. Errors if the kernel is too old.
    pub fn new(pagemap: File, userfaultfd: OwnedFd) -> io::Result<Self> {
        // Scans an empty range: an old kernel rejects the call, or the category of guard pages.
        let knows = |what| pagemap::scan(&pagemap, (0, 0), false, Wanted::any(what), &mut |_| {});
        knows(Categories::PRESENT)?;
        let guard = if knows(Categories::GUARD).is_ok() { Categories::GUARD } else { Categories::empty() };
        Ok(Self { pagemap, userfaultfd, protected: RangeSet::new(), guard })
    }

    /// Scans an area. Guard pages are never protected, so that each scan for written pages reports them.
    fn scan(&self, area: &Watched, clear: bool, each: &mut dyn FnMut(&Region)) -> io::Result<()> {
        let mut shown = Categories::WRITTEN | Categories::ZERO_PAGE | self.guard;
        if area.file_backed {
            // For these categories the kernel looks at each page besides its page table entry.
            shown = shown | Categories::FILE | Categories::PRESENT;
        }
        let wanted = Wanted {
            all: if clear { Categories::WRITTEN } else { Categories::empty() },
            any: Categories::PRESENT | Categories::SWAPPED,
            none: if clear { self.guard } else { Categories::empty() },
            shown,
        };
        pagemap::scan(&self.pagemap, (area.start, area.end), clear, wanted, each)
    }
}

/// Classification of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Untouched: zeros, or the file's content.
    None,
    /// Content of its own.
    Own { is_written: bool },
    /// A guard page, which must not be touched.
    Guarded,
}

fn content(area: &Watched, region: &Region) -> Content {
    let categories = Categories::from_bits_truncate(region.categories);
    if categories.contains(Categories::GUARD) {
        return Content::Guarded;
    }
    if categories.contains(Categories::ZERO_PAGE) || area.file_backed && categories.contains(Categories::FILE) {
        return Content::None;
    }
    Content::Own { is_written: categories.contains(Categories::WRITTEN) }
}

impl WriteProtect {
    /// Scans written pages only, in a tenth of the time of a scan of all pages. For anonymous memory that was
    /// protected completely.
    ///
    /// The kernel skips pages that are still protected, and reports the others: written ones, and places without a
    /// page. The trap: it also skips page tables that have vanished with all their pages. So one page is looked up in
    /// each table that should still exist.
    fn scan_written(&self, area: &Watched, scan: &mut Scan) -> io::Result<()> {
        let mut unprotected = RangeSet::new();
        let written = Categories::WRITTEN;
        // The kernel has a fast path for exactly these masks.
        let wanted = Wanted { all: written, any: Categories::empty(), none: Categories::empty(), shown: written };
        pagemap::scan(&self.pagemap, (area.start, area.end), false, wanted, &mut |region| {
            unprotected.push(region.start, region.end);
        })?;
        let mut found = RangeSet::new();
        for (start, end) in unprotected.iter() {
            self.scan(&Watched { start, end, ..*area }, false, &mut |region| match content(area, region) {
                Content::Own { .. } => found.push(region.start, region.end),
                Content::Guarded => scan.guarded.push(region.start, region.end),
                Content::None => {}
            })?;
        }
        let here: RangeSet = [(area.start, area.end)].into_iter().collect();
        let mut clean = RangeSet::new();
        let mut table = (u64::MAX, false);
        for (start, end) in self.protected.intersection(&here).difference(&unprotected).pieces(TABLE_BYTES) {
            if table.0 != start / TABLE_BYTES {
                table = (start / TABLE_BYTES, pagemap::is_there(&self.pagemap, start)?);
            }
            if table.1 {
                clean.push(start, end);
            }
        }
        for (start, end) in found.iter() {
            scan.dirty.push(start, end);
        }
        for (start, end) in clean.union(&found).iter() {
            scan.populated.push(start, end);
        }
        Ok(())
    }

    /// Scans every page.
    ///
    /// The trap: where a program discards its private copy of a file's page, the kernel leaves a mark that looks like a
    /// protected page in swap. The page would count as unwritten, with its earlier content. So in mappings of files,
    /// pages that seem to be in swap always count as written.
    fn scan_all(&self, area: &Watched, clear: bool, scan: &mut Scan) -> io::Result<()> {
        let (mut written, mut doubtful) = (RangeSet::new(), RangeSet::new());
        self.scan(area, false, &mut |region| match content(area, region) {
            Content::None => {}
            Content::Guarded => scan.guarded.push(region.start, region.end),
            Content::Own { is_written } => {
                scan.populated.push(region.start, region.end);
                if is_written && !clear {
                    written.push(region.start, region.end);
                }
                if area.file_backed && !Categories::from_bits_truncate(region.categories).contains(Categories::PRESENT)
                {
                    doubtful.push(region.start, region.end);
                }
            }
        })?;
        if clear {
            let protected = self.scan(area, true, &mut |region| {
                if matches!(content(area, region), Content::Own { .. }) {
                    written.push(region.start, region.end);
                }
            });
            match protected {
                // An area was mapped since registration. It is unprotected, so the next scan finds all of it dirty.
                // Pages that were protected before the kernel stopped may not have been reported, so all populated
                // pages count as written now.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    let here: RangeSet = [(area.start, area.end)].into_iter().collect();
                    written = written.union(&scan.populated.intersection(&here));
                }
                other => other?,
            }
        }
        for (start, end) in written.union(&doubtful).iter() {
            scan.dirty.push(start, end);
        }
        Ok(())
    }

    /// Registers all memory except `unfit` areas, which are sorted.
    ///
    /// Memory mapped since the last scan is not registered, and would be skipped silently. The trap: registering areas
    /// one by one, from a list that is a moment old, splits a mapping that the program has made meanwhile, and its next
    /// `mremap` across the split fails. So each gap between unfit areas, which do not come and go, is registered in one
    /// piece.
    fn register(&self, unfit: &[(u64, u64)]) -> io::Result<()> {
        let mut from = PAGE;
        for (start, end) in unfit.iter().copied().chain([(ADDRESSES_END, ADDRESSES_END)]) {
            if start > from {
                match pagemap::register(&self.userfaultfd, from, start) {
                    // Nothing is mapped in this gap.
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)) => {}
                    other => other?,
                }
            }
            from = from.max(end);
        }
        Ok(())
    }
}

impl DirtyTracker for WriteProtect {
    fn find_dirty(&mut self, watched: &[Watched], unfit: &[(u64, u64)], clear: bool) -> io::Result<Scan> {
        let mut scan = Scan::default();
        self.register(unfit)?;
        for area in watched {
            if clear || area.file_backed || self.protected.is_empty() {
                self.scan_all(area, clear, &mut scan)?;
            } else {
                self.scan_written(area, &mut scan)?;
            }
        }
        // A page may have appeared between the two scans.
        scan.populated = scan.populated.union(&scan.dirty);
        scan.guarded = scan.guarded.difference(&scan.populated);
        if clear {
            self.protected = scan.populated.clone();
        }
        Ok(scan)
    }

    fn guarded(&self, ranges: &[(u64, u64)]) -> io::Result<RangeSet> {
        let mut guarded = RangeSet::new();
        if self.guard != Categories::empty() {
            for range in ranges {
                pagemap::scan(&self.pagemap, *range, false, Wanted::any(self.guard), &mut |region| {
                    guarded.push(region.start, region.end);
                })?;
            }
        }
        Ok(guarded)
    }

    fn needs_stop(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "write-protect"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirty;
    use crate::sys::memory::Mapped;
    use std::collections::BTreeSet;
    use std::os::fd::FromRawFd;

    const GUARD_INSTALL: i32 = 102;
    const GUARD_REMOVE: i32 = 103;

    fn own_userfaultfd() -> io::Result<OwnedFd> {
        const USER_MODE_ONLY: i32 = 1;
        const API: u64 = 0xc018_aa3f;
        // SAFETY: - `userfaultfd` takes flags only and touches no memory of this process.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) } as i32;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: - the call has just made `fd`, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut api = [0xaa_u64, WriteProtect::FEATURES, 0];
        // SAFETY: - `api` has the three words of `struct uffdio_api`, and outlives the call.
        match unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&fd), API, api.as_mut_ptr()) } {
            0 => Ok(fd),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Pages of the mapping, enough for the random walk below.
    const PAGES: usize = 3 * 512;

    fn advise(memory: &mut Mapped, page: usize, count: usize, advice: i32) -> i32 {
        let bytes = &mut memory.bytes_mut()[page * 4096..(page + count) * 4096];
        // SAFETY: - `bytes` is a part of the mapping and borrowed mutably, so nothing else reads or writes it.
        unsafe { libc::madvise(bytes.as_mut_ptr().cast(), bytes.len(), advice) }
    }

    #[test]
    fn a_quick_look_shows_what_a_look_at_all_pages_shows() {
        let mut memory = Mapped::new(PAGES * 4096).unwrap();
        let pagemap = || File::open("/proc/self/pagemap").unwrap();
        let tracker = own_userfaultfd().and_then(|fd| WriteProtect::new(pagemap(), fd));
        let mut tracker = match tracker {
            Ok(tracker) => tracker,
            Err(error) => return eprintln!("skipped: this kernel does not track writes with userfaultfd: {error}"),
        };
        let start = memory.address();
        let area = Watched { start, end: start + (PAGES * 4096) as u64, file_backed: false };
        pagemap::register(&tracker.userfaultfd, area.start, area.end).unwrap();
        let mut random = 1_u64;
        let mut below = |end: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % end
        };
        let (mut vanished, mut unchanged) = (0, 0);
        let (mut guards, knows_guards) = (BTreeSet::new(), tracker.guard == Categories::GUARD);
        if !knows_guards {
            eprintln!("this kernel does not show guard pages, so there are none");
        }
        for round in 0..400 {
            let page = below(PAGES);
            match below(10) {
                8 if knows_guards => {
                    let count = 1 + below(PAGES - page).min(20);
                    if advise(&mut memory, page, count, GUARD_INSTALL) == 0 {
                        guards.extend(page..page + count);
                    }
                }
                9 if knows_guards => {
                    let count = 1 + below(PAGES - page);
                    assert_eq!(advise(&mut memory, page, count, GUARD_REMOVE), 0);
                    guards.retain(|guard| !(page..page + count).contains(guard));
                }
                0..=4 if guards.contains(&page) => {}
                0..4 => memory.bytes_mut()[page * 4096] = 7,
                4 => drop(std::hint::black_box(memory.bytes()[page * 4096])),
                5 => assert_eq!(advise(&mut memory, page, 1 + below(PAGES - page), libc::MADV_DONTNEED), 0),
                // Makes a huge page, if the kernel has one.
                6 => drop(advise(&mut memory, 0, PAGES, libc::MADV_COLLAPSE)),
                _ => unchanged += 1,
            }
            if round % 5 == 0 {
                let mut scan = Scan::default();
                tracker.scan_all(&area, true, &mut scan).unwrap();
                tracker.protected = scan.populated.union(&scan.dirty);
            }
            let (mut quick, mut all) = (Scan::default(), Scan::default());
            tracker.scan_written(&area, &mut quick).unwrap();
            tracker.scan_all(&area, false, &mut all).unwrap();
            assert_eq!(quick.populated, all.populated, "round {round}");
            assert_eq!(quick.dirty, all.dirty, "round {round}");
            let ranges = guards.iter().map(|page| start + (*page * 4096) as u64).map(|page| (page, page + 4096));
            let guarded: RangeSet = ranges.collect();
            let asked = tracker.guarded(&[(area.start, area.end)]).unwrap();
            assert_eq!([&quick.guarded, &all.guarded, &asked], [&guarded; 3], "round {round}");
            let entries = dirty::scan_once(&pagemap(), &File::open("/proc/self/smaps").unwrap(), &[area]).unwrap();
            assert_eq!(entries.guarded, guarded, "round {round}");
            vanished += usize::from(tracker.protected.bytes() > all.populated.bytes());
        }
        assert!(vanished > 10 && unchanged > 10, "{vanished} {unchanged}");
    }

    #[test]
    fn thousands_of_separate_pieces_and_their_writes_are_found() {
        const PIECES: usize = 3000;
        let mut memory = Mapped::new(2 * PIECES * 4096).unwrap();
        assert_eq!(advise(&mut memory, 0, 2 * PIECES, libc::MADV_NOHUGEPAGE), 0);
        let tracker = own_userfaultfd().and_then(|fd| WriteProtect::new(File::open("/proc/self/pagemap").unwrap(), fd));
        let mut tracker = match tracker {
            Ok(tracker) => tracker,
            Err(error) => return eprintln!("skipped: this kernel does not track writes with userfaultfd: {error}"),
        };
        let start = memory.address();
        let watched = [Watched { start, end: start + 2 * (PIECES * 4096) as u64, file_backed: false }];
        pagemap::register(&tracker.userfaultfd, start, watched[0].end).unwrap();
        let pieces = |step: usize| (0..PIECES).step_by(step).map(|piece| 2 * piece);
        let range = |page: usize| (start + (page * 4096) as u64, start + ((page + 1) * 4096) as u64);
        for (step, clear) in [(1, true), (2, true), (3, false)] {
            pieces(step).for_each(|page| memory.bytes_mut()[page * 4096] = 1);
            let mut scan = Scan::default();
            if clear {
                tracker.scan_all(&watched[0], true, &mut scan).unwrap();
                tracker.protected = scan.populated.clone();
            } else {
                tracker.scan_written(&watched[0], &mut scan).unwrap();
            }
            assert_eq!(scan.populated, pieces(1).map(range).collect(), "step {step}");
            assert_eq!(scan.dirty, pieces(step).map(range).collect(), "step {step}");
        }
    }

    #[test]
    fn a_page_that_is_the_files_again_counts_as_written() {
        let tracker = own_userfaultfd()
            .and_then(|fd| Ok((WriteProtect::new(File::open("/proc/self/pagemap")?, fd)?, tempfile::tempfile()?)));
        let (mut tracker, mut file) = match tracker {
            Ok(both) => both,
            Err(error) => return eprintln!("skipped: this kernel does not track writes with userfaultfd: {error}"),
        };
        io::Write::write_all(&mut file, &[3; 8192]).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: - without an address hint the kernel picks a free range, so no existing memory is touched.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_PRIVATE, fd, 0) };
        assert_ne!(place, libc::MAP_FAILED);
        let start = place as u64;
        let watched = [Watched { start, end: start + 8192, file_backed: true }];
        pagemap::register(&tracker.userfaultfd, start, start + 8192).unwrap();
        // SAFETY: - `place` is the start of a writable mapping of 8192 bytes.
        unsafe { place.cast::<u8>().write_volatile(4) };
        let scan = |tracker: &mut WriteProtect, clear| {
            let mut scan = Scan::default();
            tracker.scan_all(&watched[0], clear, &mut scan).unwrap();
            scan
        };
        assert!(scan(&mut tracker, true).dirty.contains(start));
        assert!(!scan(&mut tracker, false).dirty.contains(start));
        // SAFETY: - the page is within the mapping, and no reference to it exists; its content becomes the file's.
        assert_eq!(unsafe { libc::madvise(place, 4096, libc::MADV_DONTNEED) }, 0);
        let after = scan(&mut tracker, false);
        assert!(after.dirty.contains(start) || !after.populated.contains(start), "{after:?}");
    }
}
