//! Memory obtained from the kernel, by address.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const HUGE_BYTES: u64 = 2 << 20;
const PAGE: usize = 4096;
/// Time beyond which a huge page does not pay: the small pages of a block take about a millisecond.
const HUGE_LIMIT: Duration = Duration::from_micros(1500);
const PENALTY_MAX: u32 = 256;
/// Time beyond which huge pages are given up for good. Collapsing memory makes the kernel run work on each processor,
/// which takes seconds if many callers want that on a loaded host.
const HUGE_GIVEN_UP: Duration = Duration::from_millis(50);
/// Blocks still to be made of small pages before a huge page is tried again.
static SKIPPED: AtomicU32 = AtomicU32::new(0);
/// Value that [`SKIPPED`] gets after the next slow huge page.
static PENALTY: AtomicU32 = AtomicU32::new(1);

/// `madvise` advice that makes guard pages; not yet in the C library's headers.
pub const MADV_GUARD_INSTALL: i32 = 102;

/// Returns true if the kernel has guard pages (Linux 6.13).
pub fn has_guard_pages() -> io::Result<bool> {
    let page = Mapped::new(PAGE)?;
    // SAFETY: - `page` is owned by this function, is `PAGE` long, and its content is not used.
    Ok(unsafe { libc::madvise(page.address.cast(), PAGE, MADV_GUARD_INSTALL) } == 0)
}

/// Prepares memory that is about to be written completely, with a huge page if possible: that takes a fifth of the time
/// of small pages. The content does not change. Memory that the kernel refuses is left to page faults.
///
/// Two traps. Advice for huge pages would stay with the area and split it at its end, and a program that later moves or
/// grows its memory across the split fails; collapsing existing pages leaves the area as it is. And huge pages may be
/// slow: the kernel may have to compact memory, or the host of a virtual machine may have taken back large free blocks,
/// which return ten times as slowly as recently used small ones. So a slow huge page is followed by small pages for a
/// while, and on a busy host none is tried.
pub fn make_ready(address: u64, len: u64) {
    let place = address as *mut libc::c_void;
    let whole = address.is_multiple_of(HUGE_BYTES) && len == HUGE_BYTES && !is_busy();
    if whole && SKIPPED.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
        let begin = Instant::now();
        // SAFETY: - `MADV_POPULATE_WRITE` faults a page in without changing its content.
        //         - an unmapped address makes the call fail, without effect.
        unsafe { libc::madvise(place, PAGE, libc::MADV_POPULATE_WRITE) };
        // SAFETY: - `MADV_COLLAPSE` replaces the pages behind the addresses, and keeps their content.
        let made = unsafe { libc::madvise(place, HUGE_BYTES as usize, libc::MADV_COLLAPSE) } == 0;
        if made && begin.elapsed() < HUGE_LIMIT {
            PENALTY.store(1, Relaxed);
            return;
        }
        let penalty = PENALTY.load(Relaxed);
        PENALTY.store((penalty * 4).min(PENALTY_MAX), Relaxed);
        SKIPPED.store(if begin.elapsed() < HUGE_GIVEN_UP { penalty } else { u32::MAX }, Relaxed);
        if made {
            return;
        }
    }
    // SAFETY: - `MADV_POPULATE_WRITE` faults pages in without changing their content.
    unsafe { libc::madvise(place, len as usize, libc::MADV_POPULATE_WRITE) };
}

/// Returns true if more than twice as many threads wanted to run as there are processors, at the first call.
fn is_busy() -> bool {
    static IS_BUSY: OnceLock<bool> = OnceLock::new();
    *IS_BUSY.get_or_init(|| {
        let runnable = std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| runnable_count(&text));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        runnable.is_some_and(|runnable| runnable > 2 * processors)
    })
}

/// Parses the number of runnable threads from `/proc/loadavg`, such as 1 in `0.20 0.18 0.12 1/80 11206`.
fn runnable_count(loads: &str) -> Option<usize> {
    loads.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// An anonymous private mapping, owned like a boxed slice. Dropping it unmaps it.
pub struct Mapped {
    address: *mut u8,
    len: usize,
}

// SAFETY: - the mapping belongs to this value alone, and is usable from any thread.
unsafe impl Send for Mapped {}
// SAFETY: - `&Mapped` only reads the memory; writing needs `&mut Mapped`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `len` bytes of zeros, without reserving memory for them.
    pub fn new(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: - without an address hint the kernel picks a free range, so no existing memory is touched.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { address: address.cast(), len })
        }
    }

    /// First address of the mapping.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Faults in all pages, so that later writes do not wait. Pages that the kernel refuses are left to page faults.
    pub fn populate(&mut self) {
        // SAFETY: - `address..address + len` is mapped and owned; the call does not change its content.
        unsafe { libc::madvise(self.address.cast(), self.len, libc::MADV_POPULATE_WRITE) };
    }

    /// The mapped bytes, for reading.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: - `address..address + len` is mapped and initialized by the kernel.
        //         - `self` owns it, and is borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// The mapped bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: - `address..address + len` is mapped and initialized by the kernel.
        //         - `self` owns it, and is borrowed mutably as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: - `address..address + len` is owned by `self`, of which no borrow is left.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_want_to_run_are_in_the_list_of_loads() {
        assert_eq!(runnable_count("0.20 0.18 0.12 7/80 11206\n"), Some(7));
        assert_eq!(runnable_count("0.20 0.18"), None);
        let own = std::fs::read_to_string("/proc/loadavg").expect("/proc is mounted");
        assert!(runnable_count(&own).is_some_and(|count| count > 0), "{own}: this thread runs");
    }
}
