//! Memory from the kernel, by address.

use nix::errno::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

const HUGE_BYTES: u64 = 2 << 20;
const PAGE: usize = 4096;
/// False when this kernel has shown that it does not make huge pages on demand.
static HUGE_PAGES: AtomicBool = AtomicBool::new(true);

/// Makes memory ready of which all is about to be written: with a huge page where that is possible, which takes a fifth of the time of
/// small ones. Its content does not change. What the kernel does not allow is left to the first touch.
///
/// The trap: advice for huge pages would stay with the area and split it where it ends, and a program that then moves or
/// grows its memory across the split fails. Collapsing what is there leaves the area as it is.
pub fn make_ready(address: u64, len: u64) {
    let place = address as *mut libc::c_void;
    if address.is_multiple_of(HUGE_BYTES) && len == HUGE_BYTES && HUGE_PAGES.load(Ordering::Relaxed) {
        // SAFETY: - touches a page, if it is there, without changing what is in it. Any other address is an error of the call.
        unsafe { libc::madvise(place, PAGE, libc::MADV_POPULATE_WRITE) };
        // SAFETY: - changes which pages are behind the addresses, not what is in them.
        if unsafe { libc::madvise(place, HUGE_BYTES as usize, libc::MADV_COLLAPSE) } == 0 {
            return;
        }
        // Memory may be short at times; this says that it never works.
        if Errno::last() == Errno::EINVAL {
            HUGE_PAGES.store(false, Ordering::Relaxed);
        }
    }
    // SAFETY: - touches pages without changing what is in them.
    unsafe { libc::madvise(place, len as usize, libc::MADV_POPULATE_WRITE) };
}

/// Anonymous private memory of this process.
pub struct Mapped {
    address: *mut u8,
    len: usize,
}

// SAFETY: - it is plain memory, owned like a box of bytes.
unsafe impl Send for Mapped {}
// SAFETY: - as above; changing it needs `&mut`.
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
        // SAFETY: - as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: - the mapping is owned and not used any more.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}
