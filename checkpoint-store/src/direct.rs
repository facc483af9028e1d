//! Writing files without the page cache.
//!
//! A buffered write is copied to the cache first, and from there to the disk. For images of many GiB that nobody reads
//! soon, that costs the program a third of its processors during the write, and everything it had in the cache. With
//! `O_DIRECT` the disk takes whole blocks from our memory.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Bytes written at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// Alignment of direct writes, in memory and in the file. Disks require 512 or 4096.
const ALIGNMENT_BYTES: usize = 4096;

/// A file that is written sequentially from its beginning. After a flush the kernel has all data; after `sync_all` of
/// the file, the disk has.
///
/// Only local disks are written directly. Other file systems get the same writes through the cache: some do not support
/// direct ones, and network file systems are faster if they may collect writes.
pub struct Direct {
    file: File,
    is_direct: bool,
    /// Index in `memory` at which aligned blocks begin.
    first: usize,
    memory: Vec<u8>,
    filled: usize,
    offset: u64,
}

impl Direct {
    /// Prepares an empty file for writing.
    ///
    /// # Errors
    /// If the kernel does not tell the type of its file system.
    pub fn new(file: File) -> io::Result<Self> {
        let kind = fstatfs(&file)?.filesystem_type();
        let memory = vec![0; BLOCK_BYTES + ALIGNMENT_BYTES];
        let first = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        let mut direct = Self { file, is_direct: false, first, memory, filled: 0, offset: 0 };
        if [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC].contains(&kind) {
            direct.set(true);
        }
        Ok(direct)
    }

    /// Sets or clears `O_DIRECT`. If it cannot be set, writes go through the cache.
    fn set(&mut self, is_direct: bool) {
        let flags = if is_direct { OFlag::O_DIRECT } else { OFlag::empty() };
        self.is_direct = fcntl(&self.file, FcntlArg::F_SETFL(flags)).is_ok() && is_direct;
    }

    fn write_block(&mut self) -> io::Result<()> {
        let block = &self.memory[self.first..self.first + BLOCK_BYTES];
        match self.file.write_all_at(block, self.offset) {
            // The disk has larger sectors, or a layer below does not support direct writes.
            Err(error) if self.is_direct && error.kind() == io::ErrorKind::InvalidInput => {
                self.set(false);
                self.file.write_all_at(&self.memory[self.first..self.first + BLOCK_BYTES], self.offset)?;
            }
            written => written?,
        }
        self.offset += BLOCK_BYTES as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Write for Direct {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(BLOCK_BYTES - self.filled);
        let begin = self.first + self.filled;
        self.memory[begin..begin + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        if self.filled == BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(count)
    }

    /// Writes an incomplete block through the cache, because direct writes need whole sectors. The block is written
    /// again once it is complete.
    fn flush(&mut self) -> io::Result<()> {
        let was_direct = self.is_direct;
        if was_direct {
            self.set(false);
        }
        self.file.write_all_at(&self.memory[self.first..self.first + self.filled], self.offset)?;
        if was_direct {
            self.set(true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_file_has_what_was_written(
            parts in proptest::collection::vec((0_usize..3 * BLOCK_BYTES / 2, any::<bool>()), 0..6), seed: u8,
        ) {
            // On a memory file system, and on that of the build directory.
            for directory in [tempfile::tempdir_in("/dev/shm").unwrap(), tempfile::tempdir_in(".").unwrap()] {
                let path = directory.path().join("file");
                let mut direct = Direct::new(File::create(&path).unwrap()).unwrap();
                let mut all: Vec<u8> = Vec::new();
                for (len, flushed) in &parts {
                    let part: Vec<u8> = (0..*len).map(|at| (at + all.len()) as u8 ^ seed).collect();
                    direct.write_all(&part).unwrap();
                    all.extend(part);
                    if *flushed {
                        direct.flush().unwrap();
                        prop_assert!(std::fs::read(&path).unwrap() == all);
                    }
                }
                direct.flush().unwrap();
                prop_assert!(std::fs::read(&path).unwrap() == all);
            }
        }
    }

    #[test]
    fn a_full_disk_is_told() {
        // /dev/full accepts no data, whether directly or not.
        let mut direct = Direct::new(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        assert_eq!(direct.write_all(&vec![1; 2 * BLOCK_BYTES]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut direct = Direct::new(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        direct.write_all(b"little").unwrap();
        assert_eq!(direct.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
