//! The asker of a reading: the function of the program that calls the C library to read a clock, and its callers.
//!
//! It covers a few functions. So a collection of garbage differs from the program's own reading through the same
//! function of its runtime, and is one asker at whatever place of the program memory runs short. Of each return address
//! the offset within its page counts, which address-space randomization does not change.

use crate::preload;
use quiesce::Question;
use redrt_engine::traces;
use rustc_hash::FxHasher;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::OnceLock;

/// Number of functions of the program that count.
const DEPTH: u32 = 4;
/// Maximum number of frames to look at: frames of this library come first.
const FRAMES_MAX: u32 = 64;
/// Mask of the offset within a page.
const IN_PAGE: usize = 0xfff;

process_local! {
    /// Address ranges of this library and of the preloaded one.
    static OWN: OnceLock<[Option<Range<u64>>; 2]> = OnceLock::new();
}

/// Finds the libraries whose functions are not the program's.
pub fn prepare() {
    OWN.get_or_init(|| {
        let maps = traces::maps();
        let around = |address: usize| traces::file_around(address as u64, &maps);
        [around(prepare as *const () as usize), preload::address().and_then(around)]
    });
}

/// Number of the asker that reads this clock now, the same in all replicas.
#[inline(never)]
pub fn here(clock: i32) -> u64 {
    let own = OWN.get();
    let is_own =
        |address: usize| own.is_some_and(|own| own.iter().flatten().any(|range| range.contains(&(address as u64))));
    let (mut innermost, mut all) = (FxHasher::default(), FxHasher::default());
    innermost.write_i32(clock);
    let (mut seen, mut taken, mut is_cut) = (0, 0, false);
    traces::walk_stack(|address| {
        seen += 1;
        if is_own(address) {
            return seen < FRAMES_MAX;
        }
        if !traces::is_in_function(address) {
            is_cut = true;
            return false;
        }
        if taken == 0 {
            innermost.write_usize(address & IN_PAGE);
        }
        all.write_usize(address & IN_PAGE);
        taken += 1;
        taken < DEPTH && seen < FRAMES_MAX
    });
    Question::asker(innermost.finish(), all.finish(), is_cut)
}
