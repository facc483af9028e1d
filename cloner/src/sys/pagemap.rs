//! PAGEMAP_SCAN and userfaultfd registration, which are not yet in the C library's headers.

use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// `PAGE_IS_` categories of PAGEMAP_SCAN, or-ed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Categories(u64);

impl Categories {
    /// Written since it was last write-protected.
    pub const WRITTEN: Self = Self(1 << 1);
    /// A page of a file, not a private copy of one.
    pub const FILE: Self = Self(1 << 2);
    /// In memory, as opposed to swap.
    pub const PRESENT: Self = Self(1 << 3);
    /// In swap, as opposed to memory.
    pub const SWAPPED: Self = Self(1 << 4);
    /// The zero page, which all processes share.
    pub const ZERO_PAGE: Self = Self(1 << 5);
    /// A guard page (`MADV_GUARD_INSTALL`), which must not be touched.
    pub const GUARD: Self = Self(1 << 8);

    /// The empty set of categories.
    #[must_use]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// Takes bits as the kernel returns them, without a check.
    #[must_use]
    pub const fn from_bits_truncate(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns true if all categories of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Categories {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `struct page_region`: consecutive pages of the same categories.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// First address; a multiple of the page size.
    pub start: u64,
    /// First address after the region.
    pub end: u64,
    /// Categories of the pages, of those that were asked for.
    pub categories: u64,
}

/// `struct pm_scan_arg`, in the kernel's layout.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    page_count_max: u64,
    inverted: u64,
    all: u64,
    any: u64,
    shown: u64,
}

const PAGEMAP_SCAN: u64 = 0xc060_6610;
const WRITE_PROTECT_MATCHING: u64 = 1;
const CHECK_ASYNC: u64 = 2;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const MODE_WRITE_PROTECT: u64 = 2;
const REGION_COUNT: usize = 4096;
const _: () = assert!(size_of::<ScanArgument>() == 96 && size_of::<Region>() == 24);

/// Selection of pages, and the categories to return.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// A page must have all of these,
    pub all: Categories,
    /// at least one of these, unless this is empty,
    pub any: Categories,
    /// and none of these.
    pub none: Categories,
    /// Categories that are returned for each region.
    pub shown: Categories,
}

impl Wanted {
    /// Selects pages with at least one of these categories, and returns these.
    #[must_use]
    pub const fn any(any: Categories) -> Self {
        Self { all: Categories::empty(), any, none: Categories::empty(), shown: any }
    }
}

/// Calls `each` for the selected regions from `start` to `end`, by ascending address. With `protect`, the pages are
/// write-protected in the same step.
pub fn scan(
    pagemap: &File,
    (start, end): (u64, u64),
    protect: bool,
    wanted: Wanted,
    each: &mut dyn FnMut(&Region),
) -> io::Result<()> {
    let mut regions = [Region::default(); REGION_COUNT];
    let ask = |start: u64, regions: &mut [Region]| {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            flags: if protect { WRITE_PROTECT_MATCHING | CHECK_ASYNC } else { 0 },
            start,
            end,
            regions: regions.as_mut_ptr() as u64,
            region_count: regions.len() as u64,
            inverted: wanted.none.0,
            all: (wanted.all | wanted.none).0,
            any: wanted.any.0,
            shown: wanted.shown.0,
            ..ScanArgument::default()
        };
        // SAFETY: - `argument` is a local in the kernel's layout, and states its size.
        //         - `argument.regions` points to `region_count` writable regions.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        Ok(Errno::result(count)? as usize)
    };
    scan_by(&mut regions, start, end, ask, each)
}

/// Asks for regions until none are left. `ask` looks from an address to `end`, writes regions until the room is used,
/// and returns their number.
///
/// The trap: the kernel's `walk_end` is not where to continue. It collects 512 regions at a time and records the place
/// only when that buffer is full, so a call with room for more regions returns an older place, and regions would be
/// reported twice. So a call that did not use all room has seen everything; else the next call starts at the end of the
/// last region.
fn scan_by(
    regions: &mut [Region],
    start: u64,
    end: u64,
    mut ask: impl FnMut(u64, &mut [Region]) -> io::Result<usize>,
    each: &mut dyn FnMut(&Region),
) -> io::Result<()> {
    let mut from = start;
    loop {
        let count = ask(from, regions)?;
        let is_full = count >= regions.len();
        let begin = from;
        for region in &regions[..count.min(regions.len())] {
            // Overlaps are cut off, so that no address is reported twice whatever the kernel returns.
            let region = Region { start: region.start.max(from), end: region.end.min(end), ..*region };
            if region.start < region.end {
                each(&region);
                from = region.end;
            }
        }
        if !is_full || from >= end {
            return Ok(());
        }
        if from == begin {
            return Err(io::Error::other(format!("the kernel shows the pages from {begin:#x} on out of order")));
        }
    }
}

/// Returns true if there is a page at an address, in memory or in swap.
pub fn is_there(pagemap: &File, address: u64) -> io::Result<bool> {
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, address / 4096 * 8)?;
    // The two highest bits: present and swapped.
    Ok(u64::from_ne_bytes(entry) >> 62 != 0)
}

/// Registers a range for write protection, in the process that the userfaultfd belongs to.
pub fn register(userfaultfd: &OwnedFd, start: u64, end: u64) -> io::Result<()> {
    let mut argument = [start, end - start, MODE_WRITE_PROTECT, 0];
    // SAFETY: - `argument` has the four words of `struct uffdio_register`, and outlives the call.
    let result = unsafe { libc::ioctl(userfaultfd.as_raw_fd(), UFFDIO_REGISTER, argument.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::Mapped;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    /// Regions of consecutive present pages, by page number, as the kernel collects them.
    fn regions_of(pages: &[bool], from: u64) -> Vec<Region> {
        let mut all: Vec<Region> = Vec::new();
        for (number, _) in pages.iter().enumerate().filter(|(number, is_there)| **is_there && *number as u64 >= from) {
            let (start, end) = (number as u64 * PAGE, (number as u64 + 1) * PAGE);
            match all.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => all.push(Region { start, end, categories: 8 }),
            }
        }
        all
    }

    proptest! {
        /// Room ranges from far less to far more than the number of regions.
        #[test]
        fn every_piece_is_shown_once_whatever_room_there_is_for_them(
            pages in prop::collection::vec(any::<bool>(), 1..120), room in 1_usize..40, repeats: bool,
        ) {
            let end = pages.len() as u64 * PAGE;
            let mut asked = 0;
            let ask = |from: u64, regions: &mut [Region]| {
                asked += 1;
                let from = from / PAGE;
                // A kernel that repeats the page before the address must not change the result.
                let all = regions_of(&pages, if repeats { from.saturating_sub(1) } else { from });
                let count = all.len().min(regions.len());
                regions[..count].copy_from_slice(&all[..count]);
                Ok(count)
            };
            let mut shown = vec![false; pages.len()];
            let mut last = 0;
            let mut each = |region: &Region| {
                assert!(region.start >= last && region.start < region.end);
                last = region.end;
                shown[(region.start / PAGE) as usize..(region.end / PAGE) as usize].fill(true);
            };
            // The repetition takes one place, so a room of one would make no progress, which is an error.
            let mut regions = vec![Region::default(); if repeats { room + 1 } else { room }];
            scan_by(&mut regions, 0, end, ask, &mut each).unwrap();
            prop_assert_eq!(&shown, &pages);
            prop_assert!(asked <= pages.len() / room + 2, "{} calls", asked);
        }
    }

    #[test]
    fn a_kernel_that_makes_no_progress_is_an_error() {
        let same = |_: u64, regions: &mut [Region]| {
            regions.fill(Region { start: 0, end: PAGE, categories: 8 });
            Ok(regions.len())
        };
        let mut count = 0;
        let result = scan_by(&mut [Region::default(); 4], 0, 9 * PAGE, same, &mut |_| count += 1);
        assert!(result.is_err() && count == 1);
    }

    /// The kernel's own buffer has 512 regions, while [`REGION_COUNT`] are asked for.
    #[test]
    fn mappings_of_any_number_of_pieces_are_shown_whole() {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let there = Categories::PRESENT | Categories::SWAPPED;
        for count in [1, 511, 512, 513, 1000, 1024, 1025, 3000, 4095, 4096, 4097, 5000] {
            let mut memory = Mapped::new(2 * count * PAGE as usize).unwrap();
            let (start, len) = (memory.address(), 2 * count as u64 * PAGE);
            // SAFETY: - the range is the whole of `memory`, which is owned; advice does not change its content.
            unsafe { libc::madvise(start as *mut _, len as usize, libc::MADV_NOHUGEPAGE) };
            for piece in 0..count {
                memory.bytes_mut()[2 * piece * PAGE as usize] = 1;
            }
            let mut shown = Vec::new();
            let mut each = |region: &Region| shown.push((region.start, region.end));
            let scanned = scan(&pagemap, (start, start + len), false, Wanted::any(there), &mut each);
            if let Err(error) = scanned {
                return eprintln!("skipped: this kernel has no PAGEMAP_SCAN: {error}");
            }
            let expected: Vec<_> =
                (0..count as u64).map(|piece| start + 2 * piece * PAGE).map(|page| (page, page + PAGE)).collect();
            assert_eq!(shown, expected, "{count} pieces");
        }
    }
}
