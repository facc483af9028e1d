//! The receiving end of a link.

use super::{AHEAD_BYTES, BUFFER_BYTES, DATA_FRAME_BYTES_MAX, FRAME_BYTES_MAX, Wire, disconnect};
use crate::frame::{FLAG_DIGEST, Fragment, FrameError, FrameKind, HEADER_BYTES, Header};
use crate::network::{Inlet, Received, Rubbish};
use crate::rendezvous_buffer::RendezvousBufferError;
use crate::{Body, RendezvousBufferId, RendezvousBuffers};
use redrt_types::ProcessIndex;
use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Decrypts bytes of an encrypted link.
struct Unsealer {
    raw: Box<[u8]>,
    plain: Vec<u8>,
    /// Length of the part of `plain` that has been taken.
    taken: usize,
}

impl Unsealer {
    fn new() -> Self {
        Self { raw: vec![0; BUFFER_BYTES].into_boxed_slice(), plain: Vec::new(), taken: 0 }
    }

    /// Moves decrypted bytes to these places. Returns the number of bytes.
    fn take(&mut self, vectors: &[libc::iovec]) -> usize {
        let mut count = 0;
        for vector in vectors {
            let left = &self.plain[self.taken..];
            let length = left.len().min(vector.iov_len);
            // SAFETY: - every vector is valid for writes of its length: `read_vectored` was given it so.
            //         - plain is our own memory, so they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), vector.iov_base.cast(), length) };
            self.taken += length;
            count += length;
        }
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
        count
    }
}

/// A data frame whose bytes are still arriving.
struct Streaming {
    rendezvous_buffer: RendezvousBufferId,
    offset: u64,
    left: usize,
}

/// The receiving end of a link.
pub struct Receiver {
    pub(super) wire: Arc<Wire>,
    unsealer: Option<Unsealer>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    streaming: Option<Streaming>,
    taken_bytes: u64,
    closed: bool,
}

impl Inlet for Receiver {
    /// Reads from the socket only when the buffer holds no whole frame.
    fn next(&mut self, from: ProcessIndex, rendezvous_buffers: &mut RendezvousBuffers) -> Received {
        self.take_next(from, rendezvous_buffers).unwrap_or_else(Received::Rubbish)
    }

    fn has_bytes(&self) -> bool {
        self.start < self.end
    }

    fn waits_on(&self) -> Option<RawFd> {
        Some(self.wire.stream.as_raw_fd())
    }

    fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    fn is_current(&self) -> bool {
        self.wire.stream.is_current()
    }

    fn disconnect(&self) {
        disconnect(&self.wire.stream);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Receiver {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let unsealer = wire.cipher.is_some().then(Unsealer::new);
        let (start, end) = (0, 0);
        Self { wire, unsealer, buffer, start, end, streaming: None, taken_bytes: 0, closed: false }
    }

    fn take_next(
        &mut self,
        from: ProcessIndex,
        rendezvous_buffers: &mut RendezvousBuffers,
    ) -> Result<Received, Rubbish> {
        loop {
            if let Some(streaming) = &mut self.streaming {
                let have = (self.end - self.start).min(streaming.left);
                if have > 0 {
                    let bytes = &self.buffer[self.start..self.start + have];
                    rendezvous_buffers.write(from, streaming.rendezvous_buffer, streaming.offset, bytes)?;
                    self.start += have;
                    return Ok(self.landed(have));
                }
                return Ok(match self.read_streaming(from, rendezvous_buffers)? {
                    0 if self.closed => Received::Closed,
                    0 => Received::Nothing,
                    count => self.landed(count),
                });
            }
            match self.parse(from, rendezvous_buffers)? {
                Some(frame) => return Ok(frame),
                None if self.streaming.is_some() => continue,
                None => {}
            }
            if !self.fill(rendezvous_buffers) {
                return Ok(if self.closed { Received::Closed } else { Received::Nothing });
            }
        }
    }

    fn landed(&mut self, count: usize) -> Received {
        let streaming = self.streaming.as_mut().expect("a data frame is arriving");
        streaming.offset += count as u64;
        streaming.left -= count;
        self.taken_bytes += count as u64;
        let rendezvous_buffer = streaming.rendezvous_buffer;
        if streaming.left == 0 {
            self.streaming = None;
        }
        Received::Landed(rendezvous_buffer, count)
    }

    fn parse(
        &mut self,
        from: ProcessIndex,
        rendezvous_buffers: &mut RendezvousBuffers,
    ) -> Result<Option<Received>, Rubbish> {
        let pending = &self.buffer[self.start..self.end];
        let Some(head) = pending.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::from_bytes(head);
        let kind = header.check()?;
        let max = if kind == FrameKind::Data { DATA_FRAME_BYTES_MAX } else { FRAME_BYTES_MAX };
        if header.size as usize > max {
            return Err(FrameError::TooLong { size: header.size, max }.into());
        }
        if kind == FrameKind::Data {
            let body = HEADER_BYTES + header.digest_bytes();
            let Some(fragment) = pending.get(body..).and_then(Fragment::from_bytes) else { return Ok(None) };
            let left = header.body_bytes() - Fragment::BYTES;
            let rendezvous_buffer = RendezvousBufferId(fragment.rendezvous_buffer);
            rendezvous_buffers.place(from, rendezvous_buffer, fragment.offset, left)?;
            self.start += body + Fragment::BYTES;
            self.taken_bytes += (body + Fragment::BYTES) as u64;
            if left > 0 {
                self.streaming = Some(Streaming { rendezvous_buffer, offset: fragment.offset, left });
            }
            return Ok(None);
        }
        if pending.len() < header.size as usize {
            return Ok(None);
        }
        let digest = if header.flags & FLAG_DIGEST != 0 {
            u128::from_le_bytes(pending[HEADER_BYTES..HEADER_BYTES + 16].try_into().expect("16 bytes"))
        } else {
            0
        };
        let body = &pending[HEADER_BYTES + header.digest_bytes()..header.size as usize];
        // SAFETY: - the buffer is neither moved nor written to before the next call of `next`, and the caller uses the
        //           body before that.
        let body = unsafe { Body::new(body.as_ptr(), body.len()) };
        self.start += header.size as usize;
        self.taken_bytes += u64::from(header.size);
        Ok(Some(Received::Frame(header, kind, digest, body)))
    }

    fn fill(&mut self, rendezvous_buffers: &RendezvousBuffers) -> bool {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < FRAME_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let missing = match self.buffer[self.start..self.end].first_chunk() {
            Some(head) => (Header::from_bytes(head).size as usize).saturating_sub(self.end - self.start),
            None => 0,
        };
        let room = &mut self.buffer[self.end..];
        let length = if rendezvous_buffers.is_empty() { room.len() } else { room.len().min(missing.max(AHEAD_BYTES)) };
        let room = &mut room[..length];
        let vectors = [libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
        let count = self.read_vectored(&vectors);
        self.end += count;
        count > 0
    }

    fn read_streaming(
        &mut self,
        from: ProcessIndex,
        rendezvous_buffers: &mut RendezvousBuffers,
    ) -> Result<usize, RendezvousBufferError> {
        (self.start, self.end) = (0, 0);
        let streaming = self.streaming.as_ref().expect("a data frame is arriving");
        let left = streaming.left;
        let Some(place) = rendezvous_buffers.place(from, streaming.rendezvous_buffer, streaming.offset, left)? else {
            // The rendezvous buffer was given up: read these bytes and drop them.
            let vectors =
                [libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: left.min(self.buffer.len()) }];
            return Ok(self.read_vectored(&vectors));
        };
        let vectors = [
            libc::iovec { iov_base: place.cast(), iov_len: left },
            libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: AHEAD_BYTES },
        ];
        let count = self.read_vectored(&vectors);
        self.end = count.saturating_sub(left);
        Ok(count.min(left))
    }

    fn read_vectored(&mut self, vectors: &[libc::iovec]) -> usize {
        if self.unsealer.is_some() {
            return self.read_sealed(vectors);
        }
        self.read_raw(vectors)
    }

    /// The same over an encrypted link. Forged bytes end it.
    fn read_sealed(&mut self, vectors: &[libc::iovec]) -> usize {
        loop {
            let unsealer = self.unsealer.as_mut().expect("the link is encrypted");
            if !unsealer.plain.is_empty() {
                return unsealer.take(vectors);
            }
            let raw = [libc::iovec { iov_base: unsealer.raw.as_mut_ptr().cast(), iov_len: unsealer.raw.len() }];
            let count = self.read_raw(&raw);
            if count == 0 {
                return 0;
            }
            let Unsealer { raw, plain, .. } = self.unsealer.as_mut().expect("the link is encrypted");
            let opened = self.wire.cipher().expect("the link is encrypted").open(&raw[..count], plain);
            if opened.is_err() {
                self.closed = true;
                return 0;
            }
        }
    }

    fn read_raw(&mut self, vectors: &[libc::iovec]) -> usize {
        loop {
            // SAFETY: - every vector is this link's buffer or a rendezvous buffer, both valid for writes of their
            // length.
            let count = unsafe { libc::readv(self.wire.stream.as_raw_fd(), vectors.as_ptr(), vectors.len() as i32) };
            if count > 0 {
                return count as usize;
            }
            if count == 0 {
                self.closed = true;
                return 0;
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return 0,
                _ => {
                    self.closed = true;
                    return 0;
                }
            }
        }
    }
}
