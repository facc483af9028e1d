//! The header of a piece: its place in the code, and the files of the part.
//!
//! ```text
//!  magic 8 │ K 1 │ M 1 │ index 1 │ binary logarithm of block bytes 1
//!  host 4 │ generation 8 │ stamp 8 │ number of files 4
//!  of each file: length of its name 2 │ name │ bytes 8
//!  digest of all of it 8                                                     little endian
//! ```

use super::{Code, DIGEST_BYTES, GRAIN_BYTES};
use redrt_wire::checkpoint::Generation;
use std::io::{self, Read};
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"redrtpc1";
const FIXED_BYTES: usize = 36;
/// Largest number of files of a part: a host has no more processes.
const FILE_COUNT_MAX: u32 = 1 << 16;
const NAME_BYTES_MAX: u16 = 255;
/// Binary logarithms of the smallest and largest block.
const BLOCK_LOG_RANGE: std::ops::RangeInclusive<u8> = 6..=20;

/// A file of the part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartFile {
    /// Its name, without a directory.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Header of a piece. But for the index it is the same in all pieces of an encoding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Numbers of pieces.
    pub code: Code,
    /// Index of this piece: data pieces come first.
    pub index: u8,
    /// Number of the host whose part it is.
    pub host: u32,
    /// The checkpoint.
    pub generation: Generation,
    /// Time of the encoding. Pieces of different encodings do not fit each other.
    pub stamp: u64,
    /// Bytes of a block, but for those of the last stripe: a power of two, 64 bytes to 1 MiB.
    pub block_bytes: u32,
    /// Files of the part, in the order of their bytes.
    pub files: Vec<PartFile>,
}

/// Reason why bytes are not the header of a piece.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The bytes cannot be read, or end too soon.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The bytes are those of another file, or of another version of redrt.
    #[error("it is no piece of a checkpoint")]
    Foreign,
    /// The digest differs from the content.
    #[error("its header is damaged")]
    Damaged,
}

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([self.code.data, self.code.parity, self.index, self.block_bytes.ilog2() as u8]);
        bytes.extend(self.host.to_le_bytes());
        bytes.extend(self.generation.0.to_le_bytes());
        bytes.extend(self.stamp.to_le_bytes());
        bytes.extend((self.files.len() as u32).to_le_bytes());
        for file in &self.files {
            bytes.extend((file.name.len() as u16).to_le_bytes());
            bytes.extend(file.name.as_bytes());
            bytes.extend(file.bytes.to_le_bytes());
        }
        let digest = XxHash3_64::oneshot(&bytes);
        bytes.extend(digest.to_le_bytes());
        bytes
    }

    /// Reads a header, and nothing behind it.
    ///
    /// # Errors
    /// If the bytes cannot be read, are damaged, or are no header.
    pub fn read(input: &mut dyn Read) -> Result<Self, HeaderError> {
        let mut bytes = vec![0; FIXED_BYTES];
        input.read_exact(&mut bytes)?;
        let file_count = u32::from_le_bytes(array(&bytes, 32));
        let code = Code::new(bytes[8], bytes[9]);
        let code = code.filter(|code| bytes[..8] == MAGIC && bytes[10] < code.piece_count());
        let Some(code) = code.filter(|_| BLOCK_LOG_RANGE.contains(&bytes[11]) && file_count <= FILE_COUNT_MAX) else {
            return Err(HeaderError::Foreign);
        };
        let mut files = Vec::new();
        for _ in 0..file_count {
            let name_bytes = u16::from_le_bytes(array(read_more(input, &mut bytes, 2)?, 0));
            if name_bytes > NAME_BYTES_MAX {
                return Err(HeaderError::Foreign);
            }
            let name = read_more(input, &mut bytes, name_bytes.into())?.to_vec();
            let length = u64::from_le_bytes(array(read_more(input, &mut bytes, 8)?, 0));
            let name = String::from_utf8(name).ok().filter(|name| is_plain(name)).ok_or(HeaderError::Foreign)?;
            files.push(PartFile { name, bytes: length });
        }
        let digest = XxHash3_64::oneshot(&bytes);
        let (host, generation, stamp) = (array(&bytes, 12), array(&bytes, 16), array(&bytes, 24));
        let (index, block_bytes) = (bytes[10], 1 << bytes[11]);
        if u64::from_le_bytes(array(read_more(input, &mut bytes, DIGEST_BYTES)?, 0)) != digest {
            return Err(HeaderError::Damaged);
        }
        let header = Self {
            code,
            index,
            host: u32::from_le_bytes(host),
            generation: Generation(u64::from_le_bytes(generation)),
            stamp: u64::from_le_bytes(stamp),
            block_bytes,
            files,
        };
        // The sum of the lengths is computed from here on.
        let sum = header.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes));
        if sum.is_none_or(|sum| sum > i64::MAX as u64) { Err(HeaderError::Foreign) } else { Ok(header) }
    }

    /// Bytes of the encoded header.
    #[must_use]
    pub fn encoded_bytes(&self) -> u64 {
        let of_files: usize = self.files.iter().map(|file| 2 + file.name.len() + 8).sum();
        (FIXED_BYTES + of_files + DIGEST_BYTES) as u64
    }

    /// Bytes of all files.
    #[must_use]
    pub fn part_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes of the part in a stripe of whole blocks.
    pub(super) fn stripe_bytes(&self) -> u64 {
        u64::from(self.code.data) * u64::from(self.block_bytes)
    }

    /// Number of stripes.
    pub(super) fn stripe_count(&self) -> u64 {
        self.part_bytes().div_ceil(self.stripe_bytes())
    }

    /// Bytes of each block of a stripe.
    pub(super) fn block_bytes_of(&self, stripe: u64) -> usize {
        let left = self.part_bytes() - stripe * self.stripe_bytes();
        let of_left = left.div_ceil(self.code.data.into()).next_multiple_of(GRAIN_BYTES);
        of_left.min(self.block_bytes.into()) as usize
    }

    /// Place of a stripe's block in the file of a piece.
    pub(super) fn block_offset(&self, stripe: u64) -> u64 {
        self.encoded_bytes() + stripe * (u64::from(self.block_bytes) + DIGEST_BYTES as u64)
    }

    /// Bytes of the file of a piece.
    #[must_use]
    pub fn piece_bytes(&self) -> u64 {
        match self.stripe_count().checked_sub(1) {
            Some(last) => self.block_offset(last) + (self.block_bytes_of(last) + DIGEST_BYTES) as u64,
            None => self.encoded_bytes(),
        }
    }
}

/// Reads this many bytes behind those that were read before, and returns them.
fn read_more<'a>(input: &mut dyn Read, bytes: &'a mut Vec<u8>, count: usize) -> io::Result<&'a [u8]> {
    let begin = bytes.len();
    bytes.resize(begin + count, 0);
    input.read_exact(&mut bytes[begin..])?;
    Ok(&bytes[begin..])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has this length")
}

/// True for the name of a file of the same directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}
