//! Tracking of populated and dirty pages.
//!
//! The trap: scanning clears. A round that fails after its scan has cleared the bits of pages that nobody received. So
//! a tracker lives for one attempt only, and a new one starts with everything dirty.

mod soft_dirty;
mod write_protect;

pub use soft_dirty::SoftDirty;
pub use write_protect::WriteProtect;

use crate::control::Control;
use crate::error::has_ended;
use crate::ranges::RangeSet;
use std::fs::File;
use std::io;

/// Result of a scan of a range.
#[derive(Debug, Default)]
pub struct Scan {
    /// Pages with content of their own: neither untouched, nor the file's.
    pub populated: RangeSet,
    /// Populated pages that were written since the last scan that cleared.
    pub dirty: RangeSet,
    /// Guard pages (`MADV_GUARD_INSTALL`), which must not be touched. They are in no other set.
    pub guarded: RangeSet,
}

/// A range to track.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// First address; a multiple of the page size.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// True if unwritten pages come from a file, so that only written ones count as populated.
    pub file_backed: bool,
}

/// A method of finding dirty pages.
pub trait DirtyTracker {
    /// Finds dirty pages in all `watched` ranges, which are sorted. With `clear`, pages written from now on are dirty
    /// at the next scan; without it nothing changes. A range that is new since the last scan is dirty as a whole.
    /// `unfit` areas cannot be tracked and do not overlap the ranges.
    fn find_dirty(&mut self, watched: &[Watched], unfit: &[(u64, u64)], clear: bool) -> io::Result<Scan>;

    /// Guard pages in these ranges, whatever their backing.
    fn guarded(&self, ranges: &[(u64, u64)]) -> io::Result<RangeSet>;

    /// Returns true if threads must be stopped during a scan that clears, because reading and clearing are two steps.
    fn needs_stop(&self) -> bool;

    /// Returns true if the method finds dirty pages at all.
    fn tracks(&self) -> bool {
        true
    }

    /// Name of the method, for messages.
    fn name(&self) -> &'static str;
}

/// Scans once without tracking, on any kernel.
pub fn scan_once(pagemap: &File, smaps: &File, watched: &[Watched]) -> io::Result<Scan> {
    soft_dirty::scan(pagemap, smaps, watched)
}

/// Method by which dirty pages are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The best method that works for this process.
    #[default]
    Probe,
    /// userfaultfd and PAGEMAP_SCAN (Linux 6.7).
    WriteProtect,
    /// Soft-dirty bits, on kernels built with CONFIG_MEM_SOFT_DIRTY.
    SoftDirty,
    /// No tracking: all memory is sent while threads are stopped.
    None,
}

/// Makes a tracker for a process. [`Method::Probe`] tries the methods in turn.
pub fn tracker(method: Method, control: &Control) -> io::Result<Box<dyn DirtyTracker>> {
    let pagemap = || control.pagemap.try_clone();
    let smaps = || control.proc_file("smaps");
    match method {
        Method::WriteProtect => {
            Ok(Box::new(WriteProtect::new(pagemap()?, control.userfaultfd(WriteProtect::FEATURES)?)?))
        }
        Method::SoftDirty => Ok(Box::new(SoftDirty::new(pagemap()?, smaps()?, control.clear_refs()?)?)),
        Method::None => Ok(Box::new(NoTracker { pagemap: pagemap()?, smaps: smaps()? })),
        Method::Probe => {
            for method in [Method::WriteProtect, Method::SoftDirty] {
                match tracker(method, control) {
                    Err(error) if !has_ended(&error) => {}
                    decided => return decided,
                }
            }
            tracker(Method::None, control)
        }
    }
}

/// Reports every populated page as dirty.
struct NoTracker {
    pagemap: File,
    smaps: File,
}

impl DirtyTracker for NoTracker {
    fn find_dirty(&mut self, watched: &[Watched], _unfit: &[(u64, u64)], _clear: bool) -> io::Result<Scan> {
        let scan = soft_dirty::scan(&self.pagemap, &self.smaps, watched)?;
        Ok(Scan { dirty: scan.populated.clone(), ..scan })
    }

    fn guarded(&self, ranges: &[(u64, u64)]) -> io::Result<RangeSet> {
        soft_dirty::guarded(&self.pagemap, ranges)
    }

    fn needs_stop(&self) -> bool {
        false
    }

    fn tracks(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "none"
    }
}
