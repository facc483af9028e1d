//! Memory from the kernel, by address.

use std::io;

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
