//! Which pages hold something, and which were written since they were last looked at.
//!
//! The trap: looking clears. A round that fails after it has looked has taken notice of pages that nobody received. So
//! a tracker lives for one attempt only, and a new one begins with everything dirty.

mod soft_dirty;
mod write_protect;

pub use soft_dirty::SoftDirty;
pub use write_protect::WriteProtect;

use crate::control::Control;
use crate::error::has_ended;
use crate::ranges::RangeSet;
use std::fs::File;
use std::io;

/// What a look at a range shows.
#[derive(Debug, Default)]
pub struct Look {
    /// Pages with a content of their own: not zero, not the file's.
    pub populated: RangeSet,
    /// Those of them that were written since the last look that cleared.
    pub dirty: RangeSet,
    /// Pages that must not be touched (`MADV_GUARD_INSTALL`). They are not among the others.
    pub guarded: RangeSet,
}

/// A range to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// Unwritten pages come from a file, so only those that were written count.
    pub file_backed: bool,
}

/// Finds dirty pages.
pub trait DirtyTracker {
    /// Looks at all ranges, which are sorted. `unfit` areas cannot be tracked, and are not among them. With `clear`,
    /// pages that are written from now on are dirty at the next look; otherwise nothing changes. Ranges that were not
    /// there at the last look are dirty altogether.
    fn look(&mut self, watched: &[Watched], unfit: &[(u64, u64)], clear: bool) -> io::Result<Look>;

    /// Pages in these ranges that must not be touched, whatever lies behind them.
    fn guarded(&self, ranges: &[(u64, u64)]) -> io::Result<RangeSet>;

    /// True when threads must be stopped during a look that clears, because looking and clearing are two steps.
    fn needs_stop(&self) -> bool;

    /// True when it finds anything at all.
    fn tracks(&self) -> bool {
        true
    }

    /// Its name, for messages.
    fn name(&self) -> &'static str;
}

/// Looks once, through any kernel's page map.
pub fn look_once(pagemap: &File, smaps: &File, watched: &[Watched]) -> io::Result<Look> {
    soft_dirty::look(pagemap, smaps, watched)
}

/// How dirty pages are to be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The best that works here.
    #[default]
    Probe,
    /// userfaultfd and PAGEMAP_SCAN.
    WriteProtect,
    /// Soft-dirty bits.
    SoftDirty,
    /// Not at all: everything goes over while threads are stopped.
    None,
}

/// Makes a tracker for a process. What works is found by trying.
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

/// Calls everything that holds something dirty.
struct NoTracker {
    pagemap: File,
    smaps: File,
}

impl DirtyTracker for NoTracker {
    fn look(&mut self, watched: &[Watched], _unfit: &[(u64, u64)], _clear: bool) -> io::Result<Look> {
        let look = soft_dirty::look(&self.pagemap, &self.smaps, watched)?;
        Ok(Look { dirty: look.populated.clone(), ..look })
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
