//! Header of a frame, and its limits.
//!
//! ```text
//!  0        4    5        6       8          12         16        24        32       40
//!  │ "RCL1" │kind│encoding│ zeros │ wire len │ raw len  │ address │ argument│ hash   │ wire len bytes …
//! ```
//! Little endian. The hash is xxh3 of the payload as it travels. Decoding allocates at most the limits below.

use twox_hash::XxHash3_64;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 40;
/// Longest payload of [`FrameContent::Pages`] and [`FrameContent::Object`], before and after compression.
pub const PAGES_BYTES_MAX: u32 = 1 << 20;
/// Longest range of [`FrameContent::Expect`]: one huge page.
pub const EXPECT_BYTES_MAX: u64 = 2 << 20;
/// Longest range of [`FrameContent::Kept`] and [`FrameContent::Digests`].
pub const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a digest: the payload of [`FrameContent::Kept`], and of [`FrameContent::Digests`] for each page.
const DIGEST_BYTES: u32 = 16;
/// Longest payload of [`FrameContent::GivenUp`].
pub const GIVEN_UP_BYTES_MAX: u32 = 4 << 10;
/// Longest payload of other frames.
pub const RECORD_BYTES_MAX: u32 = 64 << 20;
const MAGIC: [u8; 4] = *b"RCL1";

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameContent {
    /// Identity of the process, and the requirements on the host of the copy. First frame of an image.
    Prologue = 1,
    /// Areas of memory, at the beginning of each round.
    Layout = 2,
    /// Content of memory from `address` on.
    Pages = 3,
    /// `argument` bytes from `address` on are as freshly mapped: zeros, or the content of the file.
    Fresh = 4,
    /// End of a round in this stream. `argument` 1: it was the last one.
    RoundEnd = 5,
    /// Content of shared object `argument`, from offset `address` on.
    Object = 6,
    /// All state besides memory, and the digests of all streams.
    Final = 7,
    /// The image is complete. A copy runs only after this.
    Commit = 8,
    /// Reply of the destination.
    Reply = 9,
    /// Content for all `argument` bytes from `address` on follows in this round, so the destination can prepare the
    /// memory in one step.
    Expect = 10,
    /// The source gives up, with its reason. Last frame of each stream.
    GivenUp = 11,
    /// `argument` bytes from `address` on are as in the image below. The payload is the digest of the page digests.
    Kept = 12,
    /// Digests of the pages in `argument` bytes from `address` on; only in the file beside an image.
    Digests = 13,
    /// Identity of the image. First frame of the file beside it.
    Beside = 14,
}

/// Encoding of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Encoding {
    /// The payload travels as it is.
    #[default]
    Plain = 0,
    /// zstd at level 1: fast, for links slower than a processor.
    Zstd = 1,
    /// LZ4 block format, without a frame.
    Lz4 = 2,
}

/// Header of a frame, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Content of the payload, and meaning of the other fields.
    pub kind: FrameContent,
    /// Encoding of the payload: always plain, except for memory.
    pub encoding: Encoding,
    /// Bytes of the payload that follows.
    pub wire_len: u32,
    /// Bytes of the payload after decompression.
    pub raw_len: u32,
    /// Address, or offset in a shared object; depends on the kind.
    pub address: u64,
    /// Length, object or flag; see [`FrameContent`].
    pub argument: u64,
    /// xxh3 of the payload as it travels.
    pub hash: u64,
}

/// Reason why bytes are not a valid frame.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The magic differs: another program, another version, or lost synchronization.
    #[error("this is not a frame of an image of this version")]
    Magic,
    /// Unknown kind or encoding, or padding that is not zero.
    #[error("frame of unknown kind {0} or encoding {1}")]
    Unknown(u8, u8),
    /// A length beyond the limit of its kind.
    #[error("frame of {0:?} states {1} bytes, which is too many")]
    TooLong(FrameContent, u32),
    /// A range that wraps around, is too long, or is not made of pages.
    #[error("frame of {0:?} names an impossible range: {1:#x}, {2} bytes")]
    Range(FrameContent, u64, u64),
    /// The payload differs from its hash.
    #[error("a frame of {0:?} was corrupted on the way")]
    Corrupt(FrameContent),
}

impl Header {
    /// Makes a header for an uncompressed `payload`.
    #[must_use]
    pub fn new(kind: FrameContent, address: u64, argument: u64, payload: &[u8]) -> Self {
        let len = u32::try_from(payload.len()).expect("payloads are far below 4 GiB");
        Self {
            kind,
            encoding: Encoding::Plain,
            wire_len: len,
            raw_len: len,
            address,
            argument,
            hash: XxHash3_64::oneshot(payload),
        }
    }

    /// Encodes the header, little endian.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.encoding as u8;
        bytes[8..12].copy_from_slice(&self.wire_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.argument.to_le_bytes());
        bytes[32..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    /// Decodes a header and checks it against all limits.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        use FrameContent::*;
        if bytes[..4] != MAGIC {
            return Err(FrameError::Magic);
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let unknown = FrameError::Unknown(bytes[4], bytes[5]);
        let kinds = [
            Prologue, Layout, Pages, Fresh, RoundEnd, Object, Final, Commit, Reply, Expect, GivenUp, Kept, Digests,
            Beside,
        ];
        let Some(kind) = kinds.into_iter().find(|kind| *kind as u8 == bytes[4]) else { return Err(unknown) };
        let encodings = [Encoding::Plain, Encoding::Zstd, Encoding::Lz4];
        let Some(encoding) = encodings.into_iter().find(|encoding| *encoding as u8 == bytes[5]) else {
            return Err(unknown);
        };
        let carries_memory = matches!(kind, Pages | Object);
        if bytes[6..8] != [0, 0] || (encoding != Encoding::Plain && !carries_memory) {
            return Err(unknown);
        }
        let header = Self {
            kind,
            encoding,
            wire_len: word(8),
            raw_len: word(12),
            address: long(16),
            argument: long(24),
            hash: long(32),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FrameError> {
        let carries_memory = matches!(self.kind, FrameContent::Pages | FrameContent::Object);
        let limit = match self.kind {
            FrameContent::Pages | FrameContent::Object | FrameContent::Digests => PAGES_BYTES_MAX,
            FrameContent::Kept => DIGEST_BYTES,
            FrameContent::Fresh | FrameContent::Expect | FrameContent::RoundEnd | FrameContent::Commit => 0,
            FrameContent::GivenUp => GIVEN_UP_BYTES_MAX,
            _ => RECORD_BYTES_MAX,
        };
        let longest = self.wire_len.max(self.raw_len);
        if longest > limit || (self.encoding == Encoding::Plain && self.wire_len != self.raw_len) {
            return Err(FrameError::TooLong(self.kind, longest));
        }
        let (address, len) = match self.kind {
            FrameContent::Fresh | FrameContent::Expect | FrameContent::Kept | FrameContent::Digests => {
                (self.address, self.argument)
            }
            _ if carries_memory => (self.address, u64::from(self.raw_len)),
            _ => return Ok(()),
        };
        let fits = address.checked_add(len).is_some_and(|end| end < 1 << 47)
            && match self.kind {
                FrameContent::Expect => len <= EXPECT_BYTES_MAX,
                FrameContent::Kept | FrameContent::Digests => len <= KEPT_BYTES_MAX,
                _ => true,
            };
        if !fits
            || len == 0
            || !address.is_multiple_of(4096)
            || (self.kind != FrameContent::Object && !len.is_multiple_of(4096))
        {
            return Err(FrameError::Range(self.kind, address, len));
        }
        let has_digests = match self.kind {
            FrameContent::Kept => self.wire_len == DIGEST_BYTES,
            FrameContent::Digests => u64::from(self.wire_len) == len / 4096 * u64::from(DIGEST_BYTES),
            _ => true,
        };
        if has_digests { Ok(()) } else { Err(FrameError::Range(self.kind, address, len)) }
    }

    /// Checks a received payload against length and hash.
    pub fn verify(&self, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() == self.wire_len as usize && XxHash3_64::oneshot(payload) == self.hash {
            Ok(())
        } else {
            Err(FrameError::Corrupt(self.kind))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fuzz_any_bytes_decode_to_an_error_or_to_what_encodes_to_them(mut bytes: [u8; HEADER_BYTES], like_one in 0_u8..4) {
            if like_one > 0 {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            if like_one > 1 {
                bytes[4] = bytes[4] % 14 + 1;
                bytes[5] = 0;
                bytes[6..8].fill(0);
            }
            if like_one > 2 {
                bytes[8..16].fill(0);
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(header.wire_len.max(header.raw_len) <= RECORD_BYTES_MAX);
            }
        }

        #[test]
        fn one_flipped_bit_in_a_payload_is_noticed(payload in prop::collection::vec(any::<u8>(), 1..300), at: usize, bit in 0..8) {
            let header = Header::new(FrameContent::Final, 0, 0, &payload);
            prop_assert_eq!(header.verify(&payload), Ok(()));
            let mut wrong = payload.clone();
            let at = at % wrong.len();
            wrong[at] ^= 1_u8 << bit;
            prop_assert_eq!(header.verify(&wrong), Err(FrameError::Corrupt(FrameContent::Final)));
        }
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let page = vec![7; 4096];
        for address in [1, u64::MAX - 4095, 1 << 47] {
            let header = Header::new(FrameContent::Pages, address, 0, &page);
            assert!(matches!(Header::decode(&header.encode()), Err(FrameError::Range(..))), "{address:#x}");
        }
        let header = Header::new(FrameContent::Expect, 0x20_0000, EXPECT_BYTES_MAX + 4096, &[]);
        assert!(matches!(Header::decode(&header.encode()), Err(FrameError::Range(..))));
        let header = Header::new(FrameContent::Pages, 4096, 0, &vec![0; (PAGES_BYTES_MAX + 4096) as usize]);
        assert!(matches!(Header::decode(&header.encode()), Err(FrameError::TooLong(..))));
    }
}
