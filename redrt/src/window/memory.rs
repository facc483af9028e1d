//! The memory behind a window: the program's, of our own, or shared by the processes of a host.

use super::pages::Pages;
use crate::abi::memory::{allocate, free};
use redrt_types::VirtualRank;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Who owns a window's memory. It is only held until the window is freed.
#[expect(dead_code, reason = "held, not looked at")]
pub enum Memory {
    /// The program.
    Lent,
    /// The window.
    Own(Block),
    /// The members of the window, which are on one host.
    Shared(Shared),
    /// They too, in a job whose processes are saved or replicated.
    Pages(Pages),
}

/// Zero bytes that the window gives to the program.
pub struct Block(usize);

impl Block {
    /// `size` zero bytes; `None` when there is no memory for them.
    pub fn new(size: usize) -> Option<Self> {
        let start = allocate(size)?;
        // SAFETY: - size bytes have just been allocated there.
        unsafe { start.cast::<u8>().write_bytes(0, size) };
        Some(Self(start.expose_provenance()))
    }

    /// Its first byte.
    pub fn start(&self) -> usize {
        self.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        free(std::ptr::with_exposed_provenance_mut(self.0));
    }
}

/// Memory that several processes map. It has no name, so nothing of it is left when they have ended, however they end.
pub struct Mapping {
    start: usize,
    length: usize,
}

impl Mapping {
    /// The file behind new shared memory.
    pub fn create(length: usize) -> io::Result<File> {
        // SAFETY: - the name is a C string; a new descriptor is returned, or -1.
        let fd = unsafe { libc::memfd_create(c"redrt-window".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: - open, and nobody else's.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(length as u64)?;
        Ok(file)
    }

    /// The file that another process of this host has open.
    pub fn of_process(pid: i32, fd: i32) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))
    }

    /// Maps `length` bytes, at least one.
    pub fn map(file: &File, length: usize) -> io::Result<Self> {
        Self::of_part(file.as_raw_fd(), 0, length, 0)
    }

    /// Maps `length` bytes, at least one, of a file from `offset` on, at this address if there is room.
    pub fn of_part(fd: RawFd, offset: u64, length: usize, wish: usize) -> io::Result<Self> {
        let length = length.max(1);
        let (protection, wish) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::without_provenance_mut(wish));
        // SAFETY: - a new mapping, wherever the kernel finds room.
        let start = unsafe { libc::mmap(wish, length, protection, libc::MAP_SHARED, fd, offset as libc::off_t) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.expose_provenance(), length })
    }

    /// Its first byte.
    pub fn start(&self) -> usize {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: - mapped by `map`, with this length; the window is being freed, so nobody reaches it any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.start), self.length) };
    }
}

/// Memory that the members of a window map, and what they know of it.
#[derive(Clone)]
pub struct Shared {
    mapping: Arc<Mapping>,
    members: Arc<[VirtualRank]>,
    number: u64,
    is_for_copies: bool,
}

impl Shared {
    /// Memory of these members, who all know it by this number. `is_for_copies`: they can copy from and to each other's
    /// memory.
    pub fn new(mapping: Mapping, members: Arc<[VirtualRank]>, number: u64, is_for_copies: bool) -> Self {
        Self { mapping: Arc::new(mapping), members, number, is_for_copies }
    }

    /// Its first byte.
    pub fn start(&self) -> usize {
        self.mapping.start
    }

    /// In bytes.
    pub fn length(&self) -> usize {
        self.mapping.length
    }

    /// What all members know it by.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is of these members, and for copies if that is asked for.
    pub fn fits(&self, members: &[VirtualRank], for_copies: bool) -> bool {
        *self.members == *members && (self.is_for_copies || !for_copies)
    }
}
