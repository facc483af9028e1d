//! userfaultfd in asynchronous write-protect mode, read by PAGEMAP_SCAN: Linux 6.7 and later, for any user.

use super::{DirtyTracker, Look, Watched};
use crate::destination::plan::ADDRESSES_END;
use crate::ranges::RangeSet;
use crate::sys::pagemap::{self, Categories, Region};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

const PAGE: u64 = 4096;

/// The tracker.
pub struct WriteProtect {
    pagemap: File,
    userfaultfd: OwnedFd,
}

impl WriteProtect {
    /// What the userfaultfd must be able to do: asynchronous write protection, also of shared memory.
    pub const FEATURES: u64 = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15;

    /// For the process whose page map and userfaultfd these are. An error when the kernel is too old.
    pub fn new(pagemap: File, userfaultfd: OwnedFd) -> io::Result<Self> {
        // The call is tried on nothing: an old kernel does not know it.
        pagemap::scan(
            &pagemap,
            0,
            0,
            false,
            Categories::empty(),
            Categories::PRESENT,
            Categories::PRESENT,
            &mut |_| {},
        )?;
        Ok(Self { pagemap, userfaultfd })
    }

    fn scan(&self, area: &Watched, only_written: bool, clear: bool, each: &mut dyn FnMut(&Region)) -> io::Result<()> {
        let there = Categories::PRESENT | Categories::SWAPPED;
        let all = if only_written { Categories::WRITTEN } else { Categories::empty() };
        let mut shown = Categories::WRITTEN | Categories::ZERO_PAGE;
        if area.file_backed {
            // Costs the kernel a look at each page, beside its entry in the page table.
            shown = shown | Categories::FILE;
        }
        pagemap::scan(&self.pagemap, area.start, area.end, clear, all, there, shown, each)
    }
}

impl WriteProtect {
    /// Registers all memory but `unfit` areas, which are sorted.
    ///
    /// Memory that was mapped since the last look is not registered, and would be skipped in silence. The trap: registering areas one by one,
    /// by a list that is a moment old, splits a mapping that the program has made meanwhile, and its next `mremap` across the split
    /// fails. So what lies between unfit areas, which do not come and go, is registered in one piece: nothing is split.
    fn register(&self, unfit: &[(u64, u64)]) -> io::Result<()> {
        let mut from = PAGE;
        for (start, end) in unfit.iter().copied().chain([(ADDRESSES_END, ADDRESSES_END)]) {
            if start > from {
                match pagemap::register(&self.userfaultfd, from, start) {
                    // Nothing is mapped there.
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
    fn look(&mut self, watched: &[Watched], unfit: &[(u64, u64)], clear: bool) -> io::Result<Look> {
        let (mut populated, mut dirty) = (RangeSet::new(), RangeSet::new());
        self.register(unfit)?;
        for area in watched {
            let counts = |region: &Region| {
                let categories = Categories::from_bits_truncate(region.categories);
                let file = area.file_backed && categories.contains(Categories::FILE);
                (!categories.contains(Categories::ZERO_PAGE) && !file, categories.contains(Categories::WRITTEN))
            };
            self.scan(area, false, false, &mut |region| {
                let (counts, written) = counts(region);
                if counts {
                    populated.push(region.start, region.end);
                    if written && !clear {
                        dirty.push(region.start, region.end);
                    }
                }
            })?;
            if clear {
                let protected = self.scan(area, true, true, &mut |region| {
                    if counts(region).0 {
                        dirty.push(region.start, region.end);
                    }
                });
                match protected {
                    // Something was mapped since it was registered. It is unprotected, so the next look finds all of it dirty; what was
                    // protected before the kernel gave up may not have been shown, so all that is there counts now.
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                        let here: RangeSet = [(area.start, area.end)].into_iter().collect();
                        dirty = dirty.union(&populated.intersection(&here));
                    }
                    other => other?,
                }
            }
        }
        // A page may have come in between the two scans.
        Ok(Look { dirty: dirty.clone(), populated: populated.union(&dirty) })
    }

    fn needs_stop(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "write-protect"
    }
}
