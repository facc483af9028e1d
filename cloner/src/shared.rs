//! Memory that several processes share, in a file of its own: images of the processes leave it out.
//!
//! The file uses the frames of an image: one `Object` for each stretch that is not a hole, then a `Commit`. Address and
//! argument of the `Commit` are the digest of all headers before it, which covers the content by their hashes.

use crate::image::frame::{Encoding, FrameContent, Header, PAGES_BYTES_MAX};
use crate::image::stream::{FrameReader, FrameWriter};
use crate::sparse;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Content of a memfd at one moment, without its holes.
pub struct SharedMemory {
    stretches: Vec<(u64, Vec<u8>)>,
}

impl SharedMemory {
    /// Copies the content of a memfd, which must not be written meanwhile.
    pub fn copy(fd: &OwnedFd) -> io::Result<Self> {
        let file = std::fs::File::from(fd.try_clone()?);
        let mut stretches = Vec::new();
        for (start, end) in sparse::parts(fd, file.metadata()?.len())? {
            for at in (start..end).step_by(PAGES_BYTES_MAX as usize) {
                let mut bytes = vec![0; (end - at).min(u64::from(PAGES_BYTES_MAX)) as usize];
                sparse::read(fd, at, &mut bytes)?;
                stretches.push((at, bytes));
            }
        }
        Ok(Self { stretches })
    }

    /// Writes the content as frames.
    pub fn write(&self, output: impl Write) -> io::Result<()> {
        let mut writer = FrameWriter::new(output);
        for (at, bytes) in &self.stretches {
            writer.send(&Header::new(FrameContent::Object, *at, 0, bytes), bytes)?;
        }
        let digest = writer.digest();
        writer.send_mark(FrameContent::Commit, (digest >> 64) as u64, digest as u64)?;
        writer.flush()
    }

    /// Restores written content into `fd`, a memfd that consists of holes.
    ///
    /// Errors if the input is damaged, or has data past the end of the memfd.
    pub fn restore(input: impl Read, fd: &OwnedFd) -> io::Result<()> {
        let file = std::fs::File::from(fd.try_clone()?);
        Self::read(input, file.metadata()?.len(), |at, bytes| file.write_all_at(bytes, at))
    }

    /// Reads a file through. Errors if it is not as it was written.
    pub fn check(input: impl Read) -> io::Result<()> {
        Self::read(input, u64::MAX, |_, _| Ok(()))
    }

    fn read(input: impl Read, len: u64, mut put: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut reader = FrameReader::new(input);
        let mut bytes = vec![0; PAGES_BYTES_MAX as usize];
        loop {
            let digest = reader.digest();
            let header = reader.header()?;
            match header.kind {
                FrameContent::Object if header.encoding != Encoding::Plain || header.address >= len => {
                    return Err(wrong("it has memory where there is none"));
                }
                FrameContent::Object => {
                    let bytes = &mut bytes[..header.wire_len as usize];
                    reader.payload(&header, bytes)?;
                    // Bytes past the end of the memfd were read as zeros.
                    let count = (len - header.address).min(bytes.len() as u64) as usize;
                    put(header.address, &bytes[..count])?;
                }
                FrameContent::Commit if digest == u128::from(header.address) << 64 | u128::from(header.argument) => {
                    return Ok(());
                }
                FrameContent::Commit => return Err(wrong("it is not what was written")),
                _ => return Err(wrong("it has a frame that does not belong there")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    fn memory(len: u64) -> (OwnedFd, std::fs::File) {
        let fd = memfd_create("test", MFdFlags::MFD_CLOEXEC).unwrap();
        let file = std::fs::File::from(fd.try_clone().unwrap());
        file.set_len(len).unwrap();
        (fd, file)
    }

    fn written() -> Vec<u8> {
        let (fd, file) = memory(64 << 20);
        file.write_all_at(&[7; 5000], 4096).unwrap();
        file.write_all_at(&[9], (64 << 20) - 1).unwrap();
        let mut bytes = Vec::new();
        SharedMemory::copy(&fd).unwrap().write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_written_down_is_there_again_and_holes_stay_holes() {
        let bytes = written();
        assert!(bytes.len() < 1 << 20, "{}", bytes.len());
        let (fd, file) = memory(64 << 20);
        SharedMemory::restore(&bytes[..], &fd).unwrap();
        let byte = |at: u64| {
            let mut one = [0];
            file.read_exact_at(&mut one, at).unwrap();
            one[0]
        };
        assert_eq!([4095, 4096, 9095, 9096, (64 << 20) - 2, (64 << 20) - 1].map(byte), [0, 7, 7, 0, 0, 9]);
    }

    #[test]
    fn what_is_torn_or_damaged_is_an_error() {
        let bytes = written();
        for len in [0, 39, 40, 5000, bytes.len() - 1] {
            assert!(SharedMemory::restore(&bytes[..len], &memory(64 << 20).0).is_err(), "{len}");
        }
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(SharedMemory::restore(&damaged[..], &memory(64 << 20).0).is_err(), "{at}");
        }
        // A memfd that is too small for the content.
        assert!(SharedMemory::restore(&bytes[..], &memory(1 << 20).0).is_err());
    }
}
