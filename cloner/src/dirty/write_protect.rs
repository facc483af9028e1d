//! userfaultfd in asynchronous write-protect mode, read by PAGEMAP_SCAN: Linux 6.7 and later, for any user.

use super::{DirtyTracker, Look, Watched};
use crate::ranges::RangeSet;
use crate::sys::pagemap::{self, Categories, Region};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

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
        let shown = Categories::WRITTEN | Categories::ZERO_PAGE | Categories::FILE;
        pagemap::scan(&self.pagemap, area.start, area.end, clear, all, there, shown, each)
    }
}

impl DirtyTracker for WriteProtect {
    fn look(&mut self, watched: &[Watched], clear: bool) -> io::Result<Look> {
        let (mut populated, mut dirty) = (RangeSet::new(), RangeSet::new());
        for area in watched {
            let counts = |region: &Region| {
                let categories = Categories::from_bits_truncate(region.categories);
                let file = area.file_backed && categories.contains(Categories::FILE);
                (!categories.contains(Categories::ZERO_PAGE) && !file, categories.contains(Categories::WRITTEN))
            };
            // Memory that was mapped since the last look is not registered, and without this it would be skipped in silence. For what is
            // registered it changes nothing. Some areas cannot be registered; they are dirty as a whole, always.
            let registered = pagemap::register(&self.userfaultfd, area.start, area.end).is_ok();
            self.scan(area, false, false, &mut |region| {
                let (counts, written) = counts(region);
                if counts {
                    populated.push(region.start, region.end);
                    if !registered || (written && !clear) {
                        dirty.push(region.start, region.end);
                    }
                }
            })?;
            if registered && clear {
                self.scan(area, true, true, &mut |region| {
                    if counts(region).0 {
                        dirty.push(region.start, region.end);
                    }
                })?;
            }
        }
        // A page may have come in between the two scans.
        Ok(Look { populated: populated.union(&dirty), dirty })
    }

    fn needs_stop(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "write-protect"
    }
}
