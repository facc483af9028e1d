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

/// Reads an image of one stream to its end.
///
/// # Errors
/// When it cannot be read, or is not what was written: which of its parts is not.
pub fn check(input: impl Read) -> io::Result<Facts> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut reader = FrameReader::new(input);
    let header = reader.expect(Kind::Prologue)?;
    let prologue: Prologue = reader.record(&header)?;
    if prologue.version != IMAGE_VERSION {
        return Err(wrong(format!("the image has version {}, this program {IMAGE_VERSION}", prologue.version)));
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
                    return Err(wrong("the image is not the one that was written".into()));
                }
                reader.expect(Kind::Commit)?;
                return Ok(Facts { program: prologue.program, pid: prologue.pid, bytes: reader.received_bytes() });
            }
            other => return Err(wrong(format!("a frame of {other:?} does not belong into an image"))),
        }
    }
}
