//! Reads an image through, without becoming its process.

use super::frame::{Kind, PAGES_BYTES_MAX, RECORD_BYTES_MAX};
use super::state::{Final, IMAGE_VERSION, Layout, Prologue};
use super::stream::FrameReader;
use std::io::{self, Read};

/// What an image says of itself, when all of it is there as it was written.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The program.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// Bytes of the image.
    pub bytes: u64,
}

/// Why a file is not an image that was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAnImage {
    /// Another version of this program has written it.
    #[error("the image has version {there}, this program {IMAGE_VERSION}")]
    Version {
        /// Its version.
        there: u32,
    },
    /// Its parts are sound each, and do not belong together.
    #[error("the image is not the one that was written")]
    Changed,
    /// A frame that only a destination or another place in the stream has.
    #[error("a frame of {0:?} does not belong into an image")]
    Misplaced(Kind),
}

impl From<NotAnImage> for io::Error {
    fn from(error: NotAnImage) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads an image of one stream to its end.
///
/// # Errors
/// When it cannot be read, or is not what was written: which of its parts is not.
pub fn check(input: impl Read) -> io::Result<Facts> {
    let mut reader = FrameReader::new(input);
    let header = reader.expect(Kind::Prologue)?;
    let prologue: Prologue = reader.record(&header)?;
    if prologue.version != IMAGE_VERSION {
        return Err(NotAnImage::Version { there: prologue.version }.into());
    }
    let mut memory = vec![0; PAGES_BYTES_MAX.max(RECORD_BYTES_MAX) as usize];
    loop {
        let digest = reader.digest();
        let header = reader.header()?;
        match header.kind {
            Kind::Pages | Kind::Object => reader.payload(&header, &mut memory[..header.wire_len as usize])?,
            Kind::Layout => drop(reader.record::<Layout>(&header)?),
            Kind::Fresh | Kind::RoundEnd | Kind::Expect => {}
            Kind::Final => {
                let end: Final = reader.record(&header)?;
                if end.stream_hashes != [digest] {
                    return Err(NotAnImage::Changed.into());
                }
                reader.expect(Kind::Commit)?;
                return Ok(Facts { program: prologue.program, pid: prologue.pid, bytes: reader.received_bytes() });
            }
            other => return Err(NotAnImage::Misplaced(other).into()),
        }
    }
}
