//! Limits for files that a host keeps in memory.
//!
//! The trap: such a file takes memory from the programs, and once none is left the OOM killer ends one of them rather
//! than refuse the file. So a tenth of the memory stays free, or the write fails.

use crate::direct::Direct;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs, statfs};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Reciprocal of the fraction of memory that stays free.
const RESERVE_PARTS: u64 = 10;
/// Free memory is checked again after this many bytes.
const STEP_BYTES: u64 = 16 << 20;

/// A file would leave less free memory than required.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no room in memory: {} MiB are available, and {} MiB of it stay free", available_bytes >> 20, reserve_bytes >> 20)]
pub struct MemoryExhausted {
    available_bytes: u64,
    reserve_bytes: u64,
}

/// Returns true if `path`, or the directory in which it would be created, is on tmpfs.
#[must_use]
pub fn is_in_memory(path: &Path) -> bool {
    let there = path.ancestors().find(|ancestor| ancestor.exists());
    there.and_then(|there| statfs(there).ok()).is_some_and(|facts| facts.filesystem_type() == TMPFS_MAGIC)
}

/// Budget of one file.
#[derive(Debug)]
pub struct MemoryBudget {
    is_in_memory: bool,
    left_bytes: u64,
}

impl MemoryBudget {
    /// Makes the budget of an open file. Files outside of memory have no limit.
    ///
    /// # Errors
    /// If the kernel does not tell the type of its file system.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self { is_in_memory: fstatfs(file)?.filesystem_type() == TMPFS_MAGIC, left_bytes: 0 })
    }

    /// Must be called before the file grows by `byte_count`.
    ///
    /// # Errors
    /// [`MemoryExhausted`] if too little memory would stay free; if `/proc/meminfo` cannot be read.
    pub fn take(&mut self, byte_count: u64) -> io::Result<()> {
        if !self.is_in_memory {
            return Ok(());
        }
        if byte_count > self.left_bytes {
            let step_bytes = byte_count.max(STEP_BYTES);
            check(&std::fs::read_to_string("/proc/meminfo")?, step_bytes)?;
            self.left_bytes = step_bytes;
        }
        self.left_bytes -= byte_count;
        Ok(())
    }
}

fn check(meminfo: &str, wanted_bytes: u64) -> io::Result<()> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let unread = || io::Error::other("/proc/meminfo does not say how much memory is available");
    let available_bytes = bytes("MemAvailable:").ok_or_else(unread)?;
    let reserve_bytes = bytes("MemTotal:").ok_or_else(unread)? / RESERVE_PARTS;
    if available_bytes < reserve_bytes.saturating_add(wanted_bytes) {
        return Err(io::Error::new(io::ErrorKind::StorageFull, MemoryExhausted { available_bytes, reserve_bytes }));
    }
    Ok(())
}

/// A file that is written sequentially, and refuses to grow beyond its budget.
pub struct Growing {
    file: Direct,
    memory_budget: MemoryBudget,
}

impl Growing {
    /// Prepares an empty file.
    ///
    /// # Errors
    /// As for [`MemoryBudget::of`].
    pub fn new(file: File) -> io::Result<Self> {
        Ok(Self { memory_budget: MemoryBudget::of(&file)?, file: Direct::new(file)? })
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.memory_budget.take(bytes.len() as u64)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_memory_stays_free() {
        let meminfo = "MemTotal:       10485760 kB\nMemFree:          1024 kB\nMemAvailable:    1179648 kB\n";
        assert!(check(meminfo, 128 << 20).is_ok());
        let error = check(meminfo, (128 << 20) + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), "no room in memory: 1152 MiB are available, and 1024 MiB of it stay free");
        assert!(check("MemTotal: 1 kB\n", 0).is_err());
    }

    #[test]
    fn only_what_is_in_memory_is_kept_from_growing() {
        let directory = tempfile::tempdir().unwrap();
        let on_disk = File::create(directory.path().join("file")).unwrap();
        if is_in_memory(&directory.path().join("not/there/yet")) {
            println!("skipped: temporary files are in memory here");
        } else {
            MemoryBudget::of(&on_disk).unwrap().take(u64::MAX).unwrap();
        }
        let shared = Path::new("/dev/shm");
        if !is_in_memory(shared) {
            return println!("skipped: {} is not in memory here", shared.display());
        }
        let in_memory = tempfile::tempfile_in(shared).unwrap();
        let mut memory_budget = MemoryBudget::of(&in_memory).unwrap();
        memory_budget.take(1).unwrap();
        assert!(memory_budget.take(u64::MAX).is_err());
        let mut growing = Growing::new(in_memory).unwrap();
        growing.write_all(&[1; 4096]).unwrap();
    }
}
