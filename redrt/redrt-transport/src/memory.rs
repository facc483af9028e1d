//! Memory that collectives read and write, the application's and the library's.

use crate::copying;
use sdc_detect::Element;
use std::alloc::{Layout, alloc_zeroed};
use std::sync::{Mutex, PoisonError};

/// Resident memory of this process in bytes; 0 when the kernel does not say.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    // SAFETY: - no pointers: it returns a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.map_or(0, |pages: u64| pages * page_bytes)
}

/// `length` bytes at an address, with checked parts. Like the C buffer it stands for, it may overlap others, and be
/// written while others point to it; a Region makes no references to the bytes except during a call.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    start: *mut u8,
    length: usize,
    element: Element,
}

// SAFETY: - a Region is an address; `new` has been promised that its bytes stay valid.
unsafe impl Send for Region {}
// SAFETY: - a shared reference gives the address alone; the code that reads or writes there answers for that.
unsafe impl Sync for Region {}

impl Region {
    /// The bytes `start..start + length`.
    ///
    /// # Safety
    /// They must be valid for reads, and for writes if the region is written, as long as the region or a part of it is
    /// used; MPI forbids the application to access them meanwhile.
    #[inline]
    pub unsafe fn new(start: *mut u8, length: usize) -> Self {
        Self { start, length, element: Element::Unknown }
    }

    /// The same bytes, with their known element type.
    #[must_use]
    #[inline]
    pub fn of(self, element: Element) -> Self {
        Self { element, ..self }
    }

    /// Type of the elements, if known.
    #[inline]
    pub fn element(self) -> Element {
        self.element
    }

    /// The region without bytes.
    #[inline]
    pub fn empty() -> Self {
        Self { start: std::ptr::NonNull::dangling().as_ptr(), length: 0, element: Element::Unknown }
    }

    /// Address of the first byte.
    #[inline]
    pub fn start(self) -> *mut u8 {
        self.start
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(self) -> usize {
        self.length
    }

    /// Bytes `offset..offset + length`.
    ///
    /// # Panics
    /// When they are not within the region.
    #[must_use]
    #[inline]
    pub fn part(self, offset: usize, length: usize) -> Self {
        assert!(offset + length <= self.length, "{offset}+{length} is outside of {} bytes", self.length);
        // SAFETY: - within the region: checked.
        Self { start: unsafe { self.start.add(offset) }, length, ..self }
    }

    /// Copies all of `from` to the front of this region; they may overlap.
    ///
    /// # Panics
    /// When `from` is longer.
    #[inline]
    pub fn copy_from(self, from: Self) {
        assert!(from.length <= self.length, "{} bytes into {}", from.length, self.length);
        // SAFETY: - both are valid for from.length bytes: checked, and promised to `new`.
        unsafe { copying::copy(from.start, self.start, from.length) };
    }

    /// Runs `read`, which only reads, on the bytes.
    #[inline]
    pub fn with_bytes<T>(self, read: impl FnOnce(&[u8]) -> T) -> T {
        if self.length == 0 {
            return read(&[]);
        }
        // SAFETY: - valid for reads: promised to `new`; nobody writes them during the call, because only the holder of
        // the
        //           region would.
        read(unsafe { std::slice::from_raw_parts(self.start, self.length) })
    }

    /// Runs `write` on the bytes.
    #[inline]
    pub fn with_bytes_mut<T>(self, write: impl FnOnce(&mut [u8]) -> T) -> T {
        if self.length == 0 {
            return write(&mut []);
        }
        // SAFETY: - valid for writes: promised to `new`; nobody else accesses them during the call.
        write(unsafe { std::slice::from_raw_parts_mut(self.start, self.length) })
    }
}

/// Memory of the library for the time that a collective, or a message, needs it.
pub struct Scratch {
    words: Vec<u64>,
    length: usize,
    /// True if it is kept for reuse by others that need no particular contents.
    is_spare: bool,
}

/// Cached memory: faulting in fresh pages, or zeroing old ones, may take as long as all use of them.
static SPARES: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

/// Bound on the cached pieces; below it, on their words in all.
const SPARES_MAX: usize = 4;
const SPARE_WORDS_MAX: usize = (32 << 20) / 8;

#[cold]
fn no_memory(length: usize) -> ! {
    let layout = Layout::array::<u64>(words_for(length)).unwrap_or(Layout::new::<u64>());
    std::alloc::handle_alloc_error(layout)
}

/// Zeroed memory of `count` words; `None` when there is not enough, or none is asked for.
fn zeroed(count: usize) -> Option<Vec<u64>> {
    let layout = Layout::array::<u64>(count).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: - the layout is not of size zero.
    let start = unsafe { alloc_zeroed(layout) }.cast::<u64>();
    if start.is_null() {
        return None;
    }
    // SAFETY: - count initialized words, allocated with the layout that the vector will free them with.
    Some(unsafe { Vec::from_raw_parts(start, count, count) })
}

/// Words for `length` bytes, and two more: the start is moved up to a multiple of 16.
fn words_for(length: usize) -> usize {
    length.div_ceil(8) + 2
}

impl Scratch {
    /// `length` zero bytes, aligned to 16.
    pub fn new(length: usize) -> Self {
        Self { words: vec![0; words_for(length)], length, is_spare: false }
    }

    /// `length` bytes with any contents, aligned to 16.
    #[inline]
    pub fn spare(length: usize) -> Self {
        Self::try_spare(length).unwrap_or_else(|| no_memory(length))
    }

    /// `length` bytes with any contents; `None` when there is no memory for them. Untouched pages take no memory.
    #[inline]
    pub fn try_spare(length: usize) -> Option<Self> {
        if length == 0 {
            return Some(Self { words: Vec::new(), length, is_spare: false });
        }
        Self::find_spare(length)
    }

    fn find_spare(length: usize) -> Option<Self> {
        let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spares.iter().position(|spare| spare.len() >= words_for(length));
        let found = found.map(|place| spares.swap_remove(place));
        drop(spares);
        let words = match found {
            Some(words) => words,
            None => zeroed(words_for(length))?,
        };
        Some(Self { words, length, is_spare: true })
    }

    fn start(words: *mut u64) -> *mut u8 {
        let start = words.cast::<u8>();
        start.wrapping_add(start.align_offset(16))
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let start = Self::start(self.words.as_ptr().cast_mut());
        // SAFETY: - these bytes of the vector are behind the first that is aligned; the holder of a region has the
        // scratch
        //           for itself.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }

    /// The bytes, as a region that is valid until the scratch is dropped.
    #[inline]
    pub fn region(&mut self) -> Region {
        let start = Self::start(self.words.as_mut_ptr());
        // SAFETY: - the vector is never resized, so the bytes stay where they are until it is dropped, and users of the
        //           region keep the scratch beside it.
        unsafe { Region::new(start, self.length) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_spare || self.words.len() > SPARE_WORDS_MAX / 2 {
            return;
        }
        let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        spares.push(std::mem::take(&mut self.words));
        while spares.len() > SPARES_MAX || spares.iter().map(Vec::len).sum::<usize>() > SPARE_WORDS_MAX {
            // The shortest piece serves the fewest requests.
            let shortest = (0..spares.len()).min_by_key(|place| spares[*place].len());
            shortest.map(|place| spares.swap_remove(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spare_serves_again_and_what_is_new_is_zero() {
        let start = {
            let mut spare = Scratch::spare(3_000_000);
            spare.region().with_bytes_mut(|bytes| bytes.fill(7));
            spare.region().start()
        };
        let mut again = Scratch::spare(2_999_000);
        assert_eq!((again.region().start(), again.region().len()), (start, 2_999_000));
        assert!(Scratch::new(3_000_000).region().with_bytes(|bytes| bytes.iter().all(|byte| *byte == 0)));
    }

    #[test]
    fn parts_are_checked() {
        let mut scratch = Scratch::new(10);
        let region = scratch.region();
        assert_eq!(region.start() as usize % 16, 0);
        region.with_bytes_mut(|bytes| bytes.copy_from_slice(b"0123456789"));
        region.part(2, 5).copy_from(region.part(0, 5));
        assert!(region.with_bytes(|bytes| bytes == b"0101234789"));
        assert!(std::panic::catch_unwind(|| region.part(6, 5)).is_err());
    }
}
