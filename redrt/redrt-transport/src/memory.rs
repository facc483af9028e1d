//! Stretches of the application's memory, and of our own, that collectives read and write.

use sdc_detect::Element;
use std::alloc::{Layout, alloc_zeroed};
use std::sync::{Mutex, PoisonError};

/// Memory that this process occupies; 0 when the kernel does not say.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    // SAFETY: - reads a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.map_or(0, |pages: u64| pages * page_bytes)
}

/// `length` bytes at an address, with checked sub-stretches. Like the C buffers it stands for, it may overlap others
/// and be written through while others point to it; nothing here makes references to the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    start: *mut u8,
    length: usize,
    element: Element,
}

// SAFETY: - a Region is an address; `new` has been promised that its bytes stay valid.
unsafe impl Send for Region {}
// SAFETY: - a shared reference gives the address alone; who reads or writes there answers for it.
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

    /// The same bytes, which are known to be such elements.
    #[must_use]
    #[inline]
    pub fn of(self, element: Element) -> Self {
        Self { element, ..self }
    }

    /// What the bytes are known to be.
    #[inline]
    pub fn element(self) -> Element {
        self.element
    }

    /// No bytes.
    #[inline]
    pub fn empty() -> Self {
        Self { start: std::ptr::NonNull::dangling().as_ptr(), length: 0, element: Element::Unknown }
    }

    /// First byte.
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
        unsafe { std::ptr::copy(from.start, self.start, from.length) };
    }

    /// The bytes, for one call that does not write them.
    #[inline]
    pub fn with_bytes<T>(self, read: impl FnOnce(&[u8]) -> T) -> T {
        if self.length == 0 {
            return read(&[]);
        }
        // SAFETY: - valid for reads: promised to `new`; nobody writes them during the call, because the holder of the
        //           region is the one who would.
        read(unsafe { std::slice::from_raw_parts(self.start, self.length) })
    }

    /// The bytes, for one call that writes them.
    #[inline]
    pub fn with_bytes_mut<T>(self, write: impl FnOnce(&mut [u8]) -> T) -> T {
        if self.length == 0 {
            return write(&mut []);
        }
        // SAFETY: - valid for writes: promised to `new`; nobody else accesses them during the call.
        write(unsafe { std::slice::from_raw_parts_mut(self.start, self.length) })
    }
}

/// Memory of our own that lives as long as a collective, or a message, needs it.
pub struct Scratch {
    words: Vec<u64>,
    length: usize,
    /// It is kept for others that do not care what is in it.
    is_spare: bool,
}

/// Memory that nobody needs now. To have fresh pages, or zeros in old ones, may take as long as all that is done with
/// it.
static SPARES: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

/// Maximum number of pieces that are kept, and of words in all.
const SPARES_MAX: usize = 4;
const SPARE_WORDS_MAX: usize = (32 << 20) / 8;

#[cold]
fn no_memory(length: usize) -> ! {
    let layout = Layout::array::<u64>(words_for(length)).unwrap_or(Layout::new::<u64>());
    std::alloc::handle_alloc_error(layout)
}

/// Zeroed memory of `count` words, if there is any.
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

/// Two words more than needed: the start is moved up to a multiple of 16.
fn words_for(length: usize) -> usize {
    length.div_ceil(8) + 2
}

impl Scratch {
    /// `length` zero bytes, aligned to 16.
    pub fn new(length: usize) -> Self {
        Self { words: vec![0; words_for(length)], length, is_spare: false }
    }

    /// `length` bytes, aligned to 16, in which anything may be.
    #[inline]
    pub fn spare(length: usize) -> Self {
        Self::try_spare(length).unwrap_or_else(|| no_memory(length))
    }

    /// Likewise; `None` when there is no memory for them. Pages that are not touched take none.
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
        // SAFETY: - these bytes of the vector are behind the first that is aligned; who has a region has the scratch
        //           for itself.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }

    /// The bytes. Valid until the scratch is dropped.
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
            // The shortest serves the fewest.
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
