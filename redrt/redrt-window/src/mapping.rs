//! Memory that several processes of a host map.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Memory that several processes map. It has no name, so it is freed when they have ended, in whatever way.
pub struct Mapping {
    start: usize,
    length: usize,
}

impl Mapping {
    /// Makes the file behind new shared memory of `length` bytes.
    pub fn create(length: usize) -> io::Result<File> {
        // SAFETY: - the name is a C string.
        let fd = unsafe { libc::memfd_create(c"redrt-window".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: - open, and owned by this value alone: memfd_create has just made it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(length as u64)?;
        Ok(file)
    }

    /// Opens the file that another process of this host has open under this descriptor.
    pub fn of_process(pid: i32, fd: i32) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))
    }

    /// Maps the first `length` bytes of a file, at least one.
    pub fn map(file: &File, length: usize) -> io::Result<Self> {
        Self::of_part(file.as_raw_fd(), 0, length, 0)
    }

    /// Maps `length` bytes, at least one, of a file from `offset` on. The mapping is at the address `hint` if there is
    /// room.
    pub fn of_part(fd: RawFd, offset: u64, length: usize, hint: usize) -> io::Result<Self> {
        let length = length.max(1);
        let (protection, hint) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::without_provenance_mut(hint));
        // SAFETY: - replaces no mapping: without MAP_FIXED the kernel chooses free addresses.
        let start = unsafe { libc::mmap(hint, length, protection, libc::MAP_SHARED, fd, offset as libc::off_t) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.expose_provenance(), length })
    }

    /// Address of the first byte in this process.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: - mapped by `of_part`, with this length, and unmapped only here.
        //         - no longer used: the window that uses it has been freed.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.start), self.length) };
    }
}
