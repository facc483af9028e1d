//! Frames over a byte stream, with a running digest of all headers.

use super::compress;
use super::frame::{Encoding, FrameContent, FrameError, GIVEN_UP_BYTES_MAX, HEADER_BYTES, Header, PAGES_BYTES_MAX};
use redrt_wire::no_image::ReportedFailure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, Read, Write};
use twox_hash::XxHash3_128;

impl From<FrameError> for io::Error {
    fn from(error: FrameError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error.to_string())
    }
}

/// Writes frames, and computes the digest of their headers.
pub struct FrameWriter<W> {
    inner: W,
    digest: XxHash3_128,
    sent_bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Writes frames to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, digest: XxHash3_128::new(), sent_bytes: 0 }
    }

    /// Digest of all headers written so far.
    pub fn digest(&self) -> u128 {
        self.digest.finish_128()
    }

    /// Bytes written so far, headers included.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Direct access to the underlying stream.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Writes a frame: header and payload.
    pub fn send(&mut self, header: &Header, payload: &[u8]) -> io::Result<()> {
        let head = header.encode();
        self.digest.write(&head);
        self.sent_bytes += (head.len() + payload.len()) as u64;
        let mut parts = [IoSlice::new(&head), IoSlice::new(payload)];
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            match self.inner.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Encodes a record and writes it as a frame.
    pub fn send_record(&mut self, kind: FrameContent, record: &impl Serialize) -> io::Result<()> {
        let payload = postcard::to_stdvec(record).map_err(io::Error::other)?;
        self.send(&Header::new(kind, 0, 0, &payload), &payload)
    }

    /// Writes a frame without payload.
    pub fn send_mark(&mut self, kind: FrameContent, address: u64, argument: u64) -> io::Result<()> {
        self.send(&Header::new(kind, address, argument, &[]), &[])
    }

    /// Writes the last frame of the stream: the reason why nothing more follows. Long reasons are truncated.
    pub fn give_up(&mut self, told: &ReportedFailure) -> io::Result<()> {
        let mut told = told.clone();
        told.sentence.truncate(told.sentence.floor_char_boundary(GIVEN_UP_BYTES_MAX as usize - 16));
        self.send_record(FrameContent::GivenUp, &told)?;
        self.flush()
    }

    /// Flushes the underlying stream.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Reads frames, and computes the digest of their headers.
pub struct FrameReader<R> {
    inner: R,
    digest: XxHash3_128,
    received_bytes: u64,
}

impl<R: Read> FrameReader<R> {
    /// Reads frames from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, digest: XxHash3_128::new(), received_bytes: 0 }
    }

    /// Digest of all headers read so far.
    pub fn digest(&self) -> u128 {
        self.digest.finish_128()
    }

    /// Bytes of the frames whose headers were read so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Direct access to the underlying stream.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Reads a header. The caller must read the payload next.
    ///
    /// Errors with the sender's reason ([`ReportedFailure`]) if it has given up.
    pub fn header(&mut self) -> io::Result<Header> {
        let mut head = [0; HEADER_BYTES];
        self.inner.read_exact(&mut head)?;
        let header = Header::decode(&head)?;
        self.digest.write(&head);
        self.received_bytes += (head.len() as u64) + u64::from(header.wire_len);
        if header.kind == FrameContent::GivenUp {
            let told: ReportedFailure = self.record(&header)?;
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, told.heard_from("the source")));
        }
        Ok(header)
    }

    /// Reads the payload of `header` into `place`, which has its length, and verifies it.
    pub fn payload(&mut self, header: &Header, place: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(place)?;
        Ok(header.verify(place)?)
    }

    /// Reads and decodes the payload of a record.
    pub fn record<T: DeserializeOwned>(&mut self, header: &Header) -> io::Result<T> {
        let mut payload = Vec::new();
        // The buffer grows with the received bytes: a stated length alone allocates nothing.
        (&mut self.inner).take(u64::from(header.wire_len)).read_to_end(&mut payload)?;
        header.verify(&payload)?;
        decode(&payload)
    }

    /// Reads, verifies and decompresses the payload of a frame with memory.
    pub fn memory<'a>(&mut self, header: &Header, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let (wire, raw) = (header.wire_len as usize, header.raw_len as usize);
        buffer.resize(2 * PAGES_BYTES_MAX as usize, 0);
        let (packed, unpacked) = buffer.split_at_mut(PAGES_BYTES_MAX as usize);
        self.payload(header, &mut packed[..wire])?;
        let count = match header.encoding {
            Encoding::Plain => return Ok(&packed[..wire]),
            Encoding::Zstd => compress::unpack_zstd(&packed[..wire], &mut unpacked[..raw])?,
            Encoding::Lz4 => compress::unpack_lz4(&packed[..wire], &mut unpacked[..raw])?,
        };
        if count == raw {
            return Ok(&unpacked[..raw]);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a compressed frame has another length than it states"))
    }

    /// Reads the digest of a [`FrameContent::Kept`] frame.
    pub fn kept_digest(&mut self, header: &Header) -> io::Result<u128> {
        let mut digest = [0; 16];
        self.payload(header, &mut digest)?;
        Ok(u128::from_le_bytes(digest))
    }

    /// Reads a header, which must be of `kind`.
    pub fn expect(&mut self, kind: FrameContent) -> io::Result<Header> {
        let header = self.header()?;
        if header.kind == kind {
            Ok(header)
        } else {
            let text = format!("expected a frame of {kind:?}, got {:?}", header.kind);
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

/// Decodes a record, which must use all bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    match postcard::take_from_bytes(bytes) {
        Ok((record, [])) => Ok(record),
        Ok(_) => Err(wrong("a record is longer than it should be".into())),
        Err(error) => Err(wrong(format!("a record cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{Final, Layout, Prologue, Reply};
    use super::*;
    use crate::difference::Difference;
    use crate::error::told_of;
    use proptest::prelude::*;

    fn drain(bytes: &[u8]) -> io::Result<()> {
        let mut reader = FrameReader::new(bytes);
        let mut page = vec![0; super::super::frame::PAGES_BYTES_MAX as usize];
        loop {
            let header = reader.header()?;
            match header.kind {
                FrameContent::Prologue => drop(reader.record::<Prologue>(&header)?),
                FrameContent::Layout => drop(reader.record::<Layout>(&header)?),
                FrameContent::Final => drop(reader.record::<Final>(&header)?),
                FrameContent::Reply => drop(reader.record::<Reply>(&header)?),
                _ => reader.payload(&header, &mut page[..header.wire_len as usize])?,
            }
        }
    }

    fn sample() -> Vec<u8> {
        let mut writer = FrameWriter::new(Vec::new());
        writer.send_record(FrameContent::Layout, &Layout::default()).unwrap();
        writer.send(&Header::new(FrameContent::Pages, 4096, 0, &[3; 4096]), &[3; 4096]).unwrap();
        writer.send_mark(FrameContent::Fresh, 8192, 4096).unwrap();
        writer.send_record(FrameContent::Reply, &Reply::Refused(vec![Difference::ProcessId(7)])).unwrap();
        writer.send_mark(FrameContent::RoundEnd, 0, 1).unwrap();
        writer.inner
    }

    #[test]
    fn what_goes_in_comes_out_with_the_same_digest() {
        let bytes = sample();
        assert_eq!(drain(&bytes).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut reader = FrameReader::new(&bytes[..]);
        let header = reader.expect(FrameContent::Layout).unwrap();
        assert_eq!(reader.record::<Layout>(&header).unwrap(), Layout::default());
    }

    #[test]
    fn the_destination_fails_with_its_sources_reason() {
        let told = |why: &str| {
            let mut writer = FrameWriter::new(Vec::new());
            writer.send_mark(FrameContent::RoundEnd, 0, 0).unwrap();
            writer.give_up(&ReportedFailure { sentence: why.into(), is_lasting: true }).unwrap();
            let mut reader = FrameReader::new(&writer.inner[..]);
            reader.expect(FrameContent::RoundEnd).unwrap();
            let told = told_of(&reader.expect(FrameContent::Layout).unwrap_err());
            assert!(told.is_lasting);
            told.sentence
        };
        assert_eq!(
            told("prepare: refused: process 2 traces it"),
            "the source says: prepare: refused: process 2 traces it"
        );
        assert_eq!(told("a\x1b[2Jb"), "the source says: a [2Jb");
        // Longer than a frame allows, and not to be cut within a character.
        assert!(told(&"ä".repeat(5000)).len() > 4000);
    }

    proptest! {
        #[test]
        fn any_change_is_an_error_or_changes_the_digest(at: usize, bit in 0..8) {
            let good = sample();
            let mut bad = good.clone();
            let at = at % bad.len();
            bad[at] ^= 1_u8 << bit;
            let digest = |bytes: &[u8]| -> Option<u128> {
                let mut reader = FrameReader::new(bytes);
                let mut page = vec![0; 1 << 20];
                while !reader.inner.is_empty() {
                    let header = reader.header().ok()?;
                    reader.payload(&header, &mut page[..header.wire_len as usize]).ok()?;
                }
                Some(reader.digest())
            };
            prop_assert_ne!(digest(&good), digest(&bad));
        }

        #[test]
        fn fuzz_cut_and_scrambled_streams_end_in_errors(len: usize, noise in prop::collection::vec(any::<(usize, u8)>(), 0..6)) {
            let mut bytes = sample();
            for (at, byte) in noise {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(len % (bytes.len() + 1));
            prop_assert!(drain(&bytes).is_err());
        }

        #[test]
        fn fuzz_records_of_any_bytes_are_errors_or_records(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode::<Prologue>(&bytes);
            let _ = decode::<Layout>(&bytes);
            let _ = decode::<Final>(&bytes);
            let _ = decode::<Reply>(&bytes);
        }
    }
}
