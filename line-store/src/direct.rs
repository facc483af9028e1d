//! Writing past the cache of the file system.
//!
//! What is written to a file is copied to the cache first, and from there to the disk. For images of many GiB, which
//! nobody reads soon, that costs the program a third of its processors while they are written, and all that it had in
//! the cache itself. With `O_DIRECT` the disk takes them from here, in whole blocks.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// What is written at once.
const BLOCK_BYTES: usize = 1 << 20;
/// At a multiple of this, in memory and in the file. That of disks is 512 or 4096.
const ALIGNMENT_BYTES: usize = 4096;

/// A file that is written from its beginning to its end. All of it is with the system after a flush, and on the disk
/// after `sync_all` of the file.
///
/// Local disks are written directly. Other file systems get the same writes through the cache: some know no other way,
/// and those that are reached by a network are faster if they may collect them.
pub struct Direct {
    file: File,
    is_direct: bool,
    /// Where whole blocks begin in `memory`.
    first: usize,
    memory: Vec<u8>,
    filled: usize,
    offset: u64,
}

impl Direct {
    /// Writes to an empty file.
    ///
    /// # Errors
    /// When the file system of the file cannot be found out.
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

    /// Where it cannot be, all goes through the cache.
    fn set(&mut self, is_direct: bool) {
        let flags = if is_direct { OFlag::O_DIRECT } else { OFlag::empty() };
        self.is_direct = fcntl(&self.file, FcntlArg::F_SETFL(flags)).is_ok() && is_direct;
    }

    fn write_block(&mut self) -> io::Result<()> {
        let block = &self.memory[self.first..self.first + BLOCK_BYTES];
        match self.file.write_all_at(block, self.offset) {
            // A disk with larger sectors, or a layer below that knows no direct writes.
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

    /// What there is of a block goes through the cache: only whole sectors can be written directly. It is written again
    /// with the rest of its block.
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
            // In memory, and wherever the project is built.
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
        // It takes nothing, directly or not.
        let mut direct = Direct::new(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        assert_eq!(direct.write_all(&vec![1; 2 * BLOCK_BYTES]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut direct = Direct::new(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        direct.write_all(b"little").unwrap();
        assert_eq!(direct.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
