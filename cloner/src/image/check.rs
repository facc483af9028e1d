//! Verifies an image by reading it through, without becoming its process.

use super::digests::{Base, Beside, Contents};
use super::frame::FrameContent;
use super::known::{Comparing, PAGE, page_digest};
use super::state::{Final, IMAGE_VERSION, Layout, Prologue};
use super::stream::FrameReader;
use crate::ranges::RangeSet;
use std::io::{self, Read};

/// Facts about an image that was found complete and unchanged.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the program's file.
    pub program: String,
    /// Process id that the program knows.
    pub pid: u32,
    /// Bytes of the image's file.
    pub bytes: u64,
    /// Digests of its pages, for the file beside it and for images that are built on it.
    pub contents: Contents,
}

/// Reason why a file is not a valid image.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAnImage {
    /// The image was written by another version of this program.
    #[error("the image has version {there}, this program {IMAGE_VERSION}")]
    Version {
        /// Version of the image.
        there: u32,
    },
    /// Each frame is sound, but the digest of all headers differs: frames are missing, or from another image.
    #[error("the image is not the one that was written")]
    Changed,
    /// A frame that belongs to replies, to the file beside an image, or to another place in the stream.
    #[error("a frame of {0:?} does not belong into an image")]
    Misplaced(FrameContent),
    /// The image below is not the one that this image was built on, or is missing.
    #[error("the image below is another than the one that it was built on")]
    OtherBelow,
    /// The image below lacks pages that this one left out, at this address.
    #[error("pages at {0:#x} are not in the image below as this one has kept them")]
    NotBelow(u64),
}

impl From<NotAnImage> for io::Error {
    fn from(error: NotAnImage) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads an image of one stream to its end. `base` loads the contents of the image below, by its number.
///
/// # Errors
/// If the input cannot be read, `base` fails, or the image is invalid ([`NotAnImage`] or a frame error).
pub fn check(input: impl Read, base: impl FnOnce(u64) -> io::Result<Base>) -> io::Result<Facts> {
    let mut reader = FrameReader::new(input);
    let header = reader.expect(FrameContent::Prologue)?;
    let prologue: Prologue = reader.record(&header)?;
    if prologue.version != IMAGE_VERSION {
        return Err(NotAnImage::Version { there: prologue.version }.into());
    }
    let base = prologue.below.map(|below| base(below.number)).transpose()?;
    if base.as_ref().map(|base| base.below) != prologue.below {
        return Err(NotAnImage::OtherBelow.into());
    }
    let (areas, pages) = base.map(|base| (base.areas, base.pages)).unwrap_or_default();
    let mut memory = Walk { layout: Layout::anonymous(&areas), anonymous: areas, pages: Comparing::on(pages) };
    memory.rounds(&mut reader)?;
    let digest = reader.digest();
    let header = reader.expect(FrameContent::Final)?;
    let end: Final = reader.record(&header)?;
    if end.stream_hashes != [digest] {
        return Err(NotAnImage::Changed.into());
    }
    reader.expect(FrameContent::Commit)?;
    let (own, kept) = memory.pages.into_parts();
    let areas = memory.anonymous.iter().collect();
    let beside = Beside { version: IMAGE_VERSION, digest: reader.digest(), below: prologue.below, areas };
    let contents = Contents::new(beside, own, &kept);
    Ok(Facts { program: prologue.program, pid: prologue.pid, bytes: reader.received_bytes(), contents })
}

/// Memory of a destination that loads the image, as digests.
struct Walk {
    layout: Layout,
    anonymous: RangeSet,
    pages: Comparing,
}

impl Walk {
    fn rounds(&mut self, reader: &mut FrameReader<impl Read>) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let header = reader.header()?;
            let (address, end) = (header.address, header.address.saturating_add(header.argument));
            match header.kind {
                FrameContent::Layout => self.apply(reader.record(&header)?),
                FrameContent::Pages => {
                    let bytes = reader.memory(&header, &mut buffer)?;
                    for (page, bytes) in (address..).step_by(PAGE as usize).zip(bytes.chunks(PAGE as usize)) {
                        if self.anonymous.contains(page) {
                            self.pages.sent(page, page_digest(bytes));
                        }
                    }
                }
                FrameContent::Kept => {
                    let digest = reader.kept_digest(&header)?;
                    if self.pages.keep(address, end) != Some(digest) {
                        return Err(NotAnImage::NotBelow(address).into());
                    }
                }
                FrameContent::Fresh => self.pages.fresh(address, end),
                FrameContent::Object => {
                    reader.memory(&header, &mut buffer)?;
                }
                FrameContent::Expect => {}
                FrameContent::RoundEnd if header.argument == 1 => return Ok(()),
                FrameContent::RoundEnd => self.pages.all_seen(),
                other => return Err(NotAnImage::Misplaced(other).into()),
            }
        }
    }

    fn apply(&mut self, layout: Layout) {
        self.pages.retain(&layout.kept(&self.layout));
        self.anonymous = layout.anonymous_ranges();
        self.layout = layout;
    }
}
