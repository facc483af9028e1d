//! Soft-dirty bits: `/proc/PID/clear_refs` and `/proc/PID/pagemap`. Any kernel that was built with them.

use super::{DirtyTracker, Look, Watched};
use crate::sys::memory::Mapped;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE: u64 = 1 << 61;
const DIRTY: u64 = 1 << 55;
const PAGE: u64 = 4096;
/// Entries read at once: half a megabyte, for 256 MiB.
const BATCH: u64 = 64 << 10;

/// The tracker.
pub struct SoftDirty {
    pagemap: File,
    clear_refs: File,
}

impl SoftDirty {
    /// For the process whose files these are. An error when the kernel does not have the bits: it takes the order to clear them
    /// and does nothing, so that is tried on this process.
    pub fn new(pagemap: File, clear_refs: File) -> io::Result<Self> {
        if works_here()? {
            Ok(Self { pagemap, clear_refs })
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
    let before = look(&pagemap, &watched)?;
    page.bytes_mut()[0] = 2;
    let after = look(&pagemap, &watched)?;
    Ok(before.dirty.is_empty() && !after.dirty.is_empty())
}

/// Reads the page map of the ranges.
pub fn look(pagemap: &File, watched: &[Watched]) -> io::Result<Look> {
    let mut look = Look::default();
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
                if there {
                    look.populated.push(page * PAGE, (page + 1) * PAGE);
                    if entry & DIRTY != 0 {
                        look.dirty.push(page * PAGE, (page + 1) * PAGE);
                    }
                }
                page += 1;
            }
        }
    }
    Ok(look)
}

impl DirtyTracker for SoftDirty {
    fn look(&mut self, watched: &[Watched], _unfit: &[(u64, u64)], clear: bool) -> io::Result<Look> {
        let look = look(&self.pagemap, watched)?;
        if clear {
            self.clear_refs.write_all(b"4")?;
        }
        Ok(look)
    }

    // A page that is written between reading the bits and clearing them would be lost.
    fn needs_stop(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "soft-dirty"
    }
}
