//! The file beside an image that lists digests of its pages, so that another image can be built on it without reading
//! it.
//!
//! ```text
//!  Beside  Digests … Kept … Commit     identity of the image; digests of own pages; ranges kept from the image below
//! ```
//! It consists of the frames of images. It ends with a `Commit` whose address and argument are the digest of all
//! headers before it. Digests of kept pages are not repeated: the file beside the image below has them.

use super::frame::{FrameContent, Header, KEPT_BYTES_MAX, PAGES_BYTES_MAX};
use super::known::{PAGE, PageDigests, range_digest};
use super::state::IMAGE_VERSION;
use super::stream::{FrameReader, FrameWriter};
use crate::ranges::RangeSet;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

const DIGEST_BYTES: usize = 16;
const _: () = assert!(KEPT_BYTES_MAX / PAGE * DIGEST_BYTES as u64 <= PAGES_BYTES_MAX as u64, "digests fit a frame");

/// Identity of the image below, as recorded in the image that is built on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Below {
    /// Number that the store of images gave it. It is less than the numbers of all images built on it.
    pub number: u64,
    /// Digest of all headers of the image, which covers its content by their hashes.
    pub digest: u128,
}

/// First record of the file: the image that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// [`IMAGE_VERSION`] of the writer.
    pub version: u32,
    /// Digest of all headers of the image, by which images built on it refer to it.
    pub digest: u128,
    /// Image below; `None` for the first of a chain.
    pub below: Option<Below>,
    /// Areas of anonymous memory in the last round, as `(start, end)`.
    pub areas: Vec<(u64, u64)>,
}

/// Content of an image: its own pages, and those it keeps from the image below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The image, its base and its areas.
    pub beside: Beside,
    /// Digests of the pages in the image itself.
    pub own: PageDigests,
    /// Ranges taken from the image below: start, end, and digest of the page digests.
    pub kept: Vec<(u64, u64, u128)>,
}

/// Complete content of an image, wherever its pages are stored: what another image is built on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Base {
    /// Identity of the image.
    pub below: Below,
    /// Areas of its anonymous memory.
    pub areas: RangeSet,
    /// Digests of all its pages.
    pub pages: PageDigests,
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

impl Contents {
    /// Makes the content of an image from the digests of its own pages and of the pages kept from the image below.
    #[must_use]
    pub fn new(beside: Beside, own: PageDigests, kept: &PageDigests) -> Self {
        let whole = |(start, end)| {
            let pages = kept.of_range(start, end).expect("a range of pages that are known");
            (start, end, range_digest(pages))
        };
        let kept = kept.ranges().pieces(KEPT_BYTES_MAX).map(whole).collect();
        Self { beside, own, kept }
    }

    /// Bytes of memory that are kept from the image below.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|(start, end, _)| end - start).sum()
    }

    /// Writes the file beside the image. Returns its length in bytes.
    ///
    /// # Errors
    /// If `output` fails.
    /// When `output` does not take it.
    pub fn write(&self, output: impl Write) -> io::Result<u64> {
        let mut writer = FrameWriter::new(output);
        writer.send_record(FrameContent::Beside, &self.beside)?;
        for (start, end) in self.own.ranges().pieces(KEPT_BYTES_MAX) {
            let pages = self.own.of_range(start, end).expect("a range of pages that are known");
            let bytes: Vec<u8> = pages.into_iter().flat_map(u128::to_le_bytes).collect();
            writer.send(&Header::new(FrameContent::Digests, start, end - start, &bytes), &bytes)?;
        }
        for (start, end, digest) in &self.kept {
            let digest = digest.to_le_bytes();
            writer.send(&Header::new(FrameContent::Kept, *start, end - start, &digest), &digest)?;
        }
        let digest = writer.digest();
        writer.send_mark(FrameContent::Commit, (digest >> 64) as u64, digest as u64)?;
        writer.flush()?;
        Ok(writer.sent_bytes())
    }

    /// Reads a file that [`Contents::write`] has written.
    ///
    /// # Errors
    /// If the input cannot be read, has another version, or is not what was written.
    pub fn read(input: impl Read) -> io::Result<Self> {
        let mut reader = FrameReader::new(input);
        let header = reader.expect(FrameContent::Beside)?;
        let beside: Beside = reader.record(&header)?;
        if beside.version != IMAGE_VERSION {
            return Err(wrong("it was written by another version"));
        }
        let (mut own, mut kept) = (PageDigests::default(), Vec::new());
        let mut bytes = vec![0; PAGES_BYTES_MAX as usize];
        loop {
            let digest = reader.digest();
            let header = reader.header()?;
            let (start, end) = (header.address, header.address.saturating_add(header.argument));
            match header.kind {
                FrameContent::Digests => {
                    let bytes = &mut bytes[..header.wire_len as usize];
                    reader.payload(&header, bytes)?;
                    let (pages, _) = bytes.as_chunks::<DIGEST_BYTES>();
                    for (address, page) in (start..end).step_by(PAGE as usize).zip(pages) {
                        own.set(address, u128::from_le_bytes(*page));
                    }
                }
                FrameContent::Kept => kept.push((start, end, reader.kept_digest(&header)?)),
                FrameContent::Commit if digest == u128::from(header.address) << 64 | u128::from(header.argument) => {
                    reader.payload(&header, &mut [])?;
                    return Ok(Self { beside, own, kept });
                }
                FrameContent::Commit => return Err(wrong("it is not what was written")),
                _ => return Err(wrong("it has a frame that does not belong there")),
            }
        }
    }
}

impl Contents {
    /// Combines this image, called `number`, with the content of the image below it.
    ///
    /// # Errors
    /// If `below` is not the image that this one was built on, or lacks a page that this one keeps.
    pub fn on(self, number: u64, below: Option<&Base>) -> io::Result<Base> {
        if below.map(|base| base.below) != self.beside.below {
            return Err(wrong("the image below is another than the one that this one was built on"));
        }
        let mut pages = self.own;
        for (start, end, digest) in self.kept {
            let kept = below.and_then(|below| below.pages.of_range(start, end));
            let kept = kept.filter(|kept| range_digest(kept.iter().copied()) == digest);
            let kept = kept.ok_or_else(|| wrong("a page is not what the image above has kept of it"))?;
            (start..end).step_by(PAGE as usize).zip(kept).for_each(|(address, page)| pages.set(address, page));
        }
        let below = Below { number, digest: self.beside.digest };
        Ok(Base { below, areas: self.beside.areas.into_iter().collect(), pages })
    }
}

impl Base {
    /// Collects the content of image `number` along its chain. `open` returns what the file beside an image has, by
    /// number.
    ///
    /// # Errors
    /// If `open` fails, or an image is not the one that the next was built on.
    pub fn find(number: u64, open: &mut dyn FnMut(u64) -> io::Result<Contents>) -> io::Result<Self> {
        let contents = open(number)?;
        let below = match contents.beside.below {
            Some(below) if below.number < number => Some(Self::find(below.number, open)?),
            Some(_) => return Err(wrong("an image cannot be built on a newer one")),
            None => None,
        };
        contents.on(number, below.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(from: u64, digests: &[u128]) -> PageDigests {
        let mut pages = PageDigests::default();
        digests.iter().zip(from..).for_each(|(digest, page)| pages.set(page * PAGE, *digest));
        pages
    }

    fn beside(digest: u128, below: Option<Below>) -> Beside {
        Beside { version: IMAGE_VERSION, digest, below, areas: vec![(0x1000, 0x9000)] }
    }

    /// Pages 1 to 4. The second image has changed page 2 and released page 4.
    fn chain() -> [Contents; 2] {
        let first = Contents::new(beside(11, None), pages(1, &[21, 22, 23, 24]), &PageDigests::default());
        let mut kept = pages(1, &[21]);
        kept.set(3 * PAGE, 23);
        let below = Below { number: 1, digest: 11 };
        [first, Contents::new(beside(12, Some(below)), pages(2, &[32]), &kept)]
    }

    fn written(contents: &Contents) -> Vec<u8> {
        let mut bytes = Vec::new();
        contents.write(&mut bytes).unwrap();
        bytes
    }

    fn base(chain: &[Contents]) -> io::Result<Base> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        Base::find(chain.len() as u64, &mut |number| chain.get(number as usize - 1).cloned().ok_or_else(missing))
    }

    #[test]
    fn what_is_kept_has_the_digests_of_the_image_below() {
        let chain = chain();
        assert_eq!(base(&chain[..1]).unwrap().pages, pages(1, &[21, 22, 23, 24]));
        let both = base(&chain).unwrap();
        assert_eq!((both.pages, both.below), (pages(1, &[21, 32, 23]), Below { number: 2, digest: 12 }));
    }

    #[test]
    fn another_image_below_and_other_pages_in_it_are_noticed() {
        let [first, second] = chain();
        let other = Contents { beside: beside(13, None), ..first.clone() };
        assert!(base(&[other, second.clone()]).unwrap_err().to_string().contains("is another"));
        let changed = Contents { own: pages(1, &[21, 22, 99, 24]), ..first };
        assert!(base(&[changed, second.clone()]).unwrap_err().to_string().contains("has kept"));
        let below = Below { number: 2, digest: 12 };
        let circular = Contents { beside: beside(12, Some(below)), ..second };
        assert!(base(&[circular.clone(), circular]).unwrap_err().to_string().contains("newer"));
    }

    #[test]
    fn many_digests_take_several_frames() {
        let many: Vec<u128> = (1..=140_000).collect();
        let contents = Contents::new(beside(11, None), pages(3, &many), &PageDigests::default());
        assert!(Contents::read(&written(&contents)[..]).unwrap() == contents);
    }

    proptest! {
        #[test]
        fn fuzz_what_was_changed_or_cut_is_an_error(at: usize, bit in 0..8, cut: bool) {
            let second = &chain()[1];
            let mut bytes = written(second);
            prop_assert_eq!(&Contents::read(&bytes[..]).unwrap(), second);
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1_u8 << bit }
            prop_assert!(Contents::read(&bytes[..]).is_err());
        }

        #[test]
        fn fuzz_any_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Contents::read(&bytes[..]).is_err());
        }
    }
}
