//! Memory from the kernel, by address.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const HUGE_BYTES: u64 = 2 << 20;
const PAGE: usize = 4096;
/// A huge page that takes longer than this was no bargain: small ones take a millisecond.
const HUGE_LIMIT: Duration = Duration::from_micros(1500);
const PENALTY_MAX: u32 = 256;
/// One that takes longer than this is the last: the kernel has each processor do something before it collapses memory,
/// and where all of them are wanted by many that takes seconds.
const HUGE_GIVEN_UP: Duration = Duration::from_millis(50);
/// Number of blocks made of small pages before a huge one is tried again.
static SKIPPED: AtomicU32 = AtomicU32::new(0);
/// What the next disappointment adds to that.
static PENALTY: AtomicU32 = AtomicU32::new(1);

/// Advice: these pages must not be touched. The C library's headers do not have it yet.
pub const MADV_GUARD_INSTALL: i32 = 102;

/// Whether the kernel has guard pages (Linux 6.13).
pub fn has_guard_pages() -> io::Result<bool> {
    let page = Mapped::new(PAGE)?;
    // SAFETY: - the mapping is owned, and nothing of it is used.
    Ok(unsafe { libc::madvise(page.address.cast(), PAGE, MADV_GUARD_INSTALL) } == 0)
}

/// Makes memory ready of which all is about to be written: with a huge page where that is possible, which takes a fifth
/// of the time of small ones. Its content does not change. What the kernel does not allow is left to the first touch.
///
/// Two traps. Advice for huge pages would stay with the area and split it where it ends, and a program that then moves
/// or grows its memory across the split fails; collapsing what is there leaves the area as it is. And huge pages are
/// not always at hand: the kernel may have to move memory around, and the host of a virtual machine may have taken back
/// large free blocks, which come ten times as slowly as small ones that were in use lately. So one that came late is
/// followed by small ones for a while. On a host that is busy none is tried.
pub fn make_ready(address: u64, len: u64) {
    let place = address as *mut libc::c_void;
    let whole = address.is_multiple_of(HUGE_BYTES) && len == HUGE_BYTES && !is_busy();
    if whole && SKIPPED.try_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
        let begin = Instant::now();
        // SAFETY: - touches a page, if it is there, without changing what is in it. Any other address is an error of
        //           the call.
        unsafe { libc::madvise(place, PAGE, libc::MADV_POPULATE_WRITE) };
        // SAFETY: - changes which pages are behind the addresses, not what is in them.
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
    // SAFETY: - touches pages without changing what is in them.
    unsafe { libc::madvise(place, len as usize, libc::MADV_POPULATE_WRITE) };
}

/// Whether more than twice as many threads wanted to run as there are processors, when this was asked first.
fn is_busy() -> bool {
    static IS_BUSY: OnceLock<bool> = OnceLock::new();
    *IS_BUSY.get_or_init(|| {
        let runnable = std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| runnable_count(&text));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        runnable.is_some_and(|runnable| runnable > 2 * processors)
    })
}

/// Of `/proc/loadavg`, as in `0.20 0.18 0.12 1/80 11206`: the threads that want to run.
fn runnable_count(loads: &str) -> Option<usize> {
    loads.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Anonymous private memory of this process.
pub struct Mapped {
    address: *mut u8,
    len: usize,
}

// SAFETY: - it is plain memory, owned like a box of bytes.
unsafe impl Send for Mapped {}
// SAFETY: - shared references only read it; changing it needs `&mut`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Fresh zeroed memory.
    pub fn new(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: - a new mapping wherever the kernel likes.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { address: address.cast(), len })
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Touches all of it, so that nobody waits for that later. What the kernel does not allow is left untouched.
    pub fn populate(&mut self) {
        // SAFETY: - the mapping is owned; its content does not change.
        unsafe { libc::madvise(self.address.cast(), self.len, libc::MADV_POPULATE_WRITE) };
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: - mapped, initialized by the kernel, owned by self.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: - mapped, initialized by the kernel, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: - the mapping is owned and not used any more.
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
