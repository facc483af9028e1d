//! Large payloads, on the side of their receiver. It reads them from the sender's memory where it may; else it grants a
//! rendezvous buffer and the sender pushes fragments.
//!
//! ```text
//!   Engine::pull ──▶ Fetches::fetch ──▶ Whole: in place, maybe hashed
//!                                  ├──▶ Asked: a rendezvous buffer is granted ──fragments──▶ advance: in place
//!                                  └──▶ NoMemory: the length is impossible
//! ```

use super::link::Links;
use super::message::Pull;
use super::payload::Target;
use redrt_transport::frame::{ClearToSend, Fragment, FrameKind, Header, Rendezvous};
use redrt_transport::memory::Scratch;
use redrt_transport::rendezvous_buffer::RendezvousBufferError;
use redrt_transport::{RendezvousBufferId, RendezvousBuffers, direct};
use redrt_types::{Digest, ProcessIndex};
use sdc_detect::DigestStream;
use std::io;

/// Longer payloads are copied and hashed, or copied and spread, in pieces of this size, which stay in the cache.
const PIECE_BYTES: usize = 256 << 10;

/// A payload that is to be fetched.
pub(super) struct Wanted {
    /// Number of its message.
    pub key: usize,
    /// The process that has it.
    pub from: ProcessIndex,
    /// Its place there.
    pub rendezvous: Rendezvous,
    /// The receive's buffer, if it can be written straight to it. Valid for the payload's length until the receive
    /// completes.
    pub buffer: Option<*mut u8>,
}

/// State of a payload that was to be fetched.
pub(super) enum Fetched {
    /// All of it is at `start`, in the receive's buffer or in `staged`.
    Whole {
        /// Memory of the engine; `None` if it is in the receive's buffer.
        staged: Option<Scratch>,
        /// Address of its first byte.
        start: *mut u8,
        /// Its digest, if it was hashed on the way.
        hashed: Option<Digest>,
    },
    /// Its sender was asked to push it.
    Asked {
        /// Memory of the engine; `None` if it goes to the receive's buffer.
        staged: Option<Scratch>,
        /// Its transfer.
        pull: Pull,
    },
    /// There is no memory for a payload of this length.
    NoMemory,
}

/// The payloads that this process fetches.
#[derive(Default)]
pub(super) struct Fetches {
    rendezvous_buffers: RendezvousBuffers,
    /// True once this host has refused to read another process's memory.
    is_refused: bool,
}

impl Fetches {
    /// The rendezvous buffers, for a link that writes bytes straight to them.
    pub fn rendezvous_buffers(&mut self) -> &mut RendezvousBuffers {
        &mut self.rendezvous_buffers
    }

    /// Allows another attempt to read from a sender's memory: this host may permit what the last one refused.
    pub fn forget_refusal(&mut self) {
        self.is_refused = false;
    }

    /// Fetches a payload. `hashing` begins its digest, for a payload that is long enough to be hashed on the way.
    pub fn fetch(
        &mut self,
        links: &mut Links,
        wanted: &Wanted,
        hashing: impl FnOnce() -> Option<DigestStream>,
    ) -> Fetched {
        let Wanted { key, from, rendezvous, buffer } = wanted;
        let length = rendezvous.length as usize;
        let mut staged = None;
        let start = match buffer {
            Some(start) => *start,
            None => {
                // A length stated by a corrupt peer must not end this process. Pages are touched only as bytes come.
                let Some(staging) = Scratch::try_spare(length) else { return Fetched::NoMemory };
                staged.insert(staging).region().start()
            }
        };
        let read = if length == 0 { Some(None) } else { self.read_directly(links, *from, rendezvous, start, hashing) };
        if let Some(hashed) = read {
            return Fetched::Whole { staged, start, hashed };
        }
        // SAFETY: - start is the receive's buffer, lent until it completes, or `staged`, which the message keeps; both
        // outlive the rendezvous buffer, which is removed when the payload is complete or given up.
        let rendezvous_buffer = unsafe { self.rendezvous_buffers.insert(start, length, *key, *from) };
        let clear_to_send =
            ClearToSend { offer: rendezvous.offer, rendezvous_buffer: rendezvous_buffer.0, length: rendezvous.length };
        links.send(*from, Header::new(FrameKind::ClearToSend, 0), None, &clear_to_send.to_bytes());
        Fetched::Asked { staged, pull: Pull { rendezvous_buffer, from: *from, start: start as usize } }
    }

    /// Reads the payload from its sender's memory and spreads it over the receive's buffer piece by piece. Returns the
    /// number of bytes; `None` if it was not possible.
    pub fn spread(
        &mut self,
        links: &Links,
        from: ProcessIndex,
        rendezvous: &Rendezvous,
        target: &Target,
    ) -> Option<u64> {
        let pid = self.readable_pid(links, from, rendezvous)?;
        let length = rendezvous.length.min(target.capacity) as usize;
        let mut piece = Scratch::spare(length.min(PIECE_BYTES));
        for offset in (0..length).step_by(PIECE_BYTES) {
            let part = piece.region().part(0, PIECE_BYTES.min(length - offset));
            let address = rendezvous.address.wrapping_add(offset as u64);
            // SAFETY: - a part of our own memory, which nobody else knows.
            if let Err(error) = unsafe { direct::read(pid, address, part.start(), part.len()) } {
                self.record_refusal(&error);
                return None;
            }
            // SAFETY: - the application lent the buffer until the receive completes, and it has not.
            part.with_bytes(|bytes| unsafe { target.place_at(offset as u64, bytes) });
        }
        Some(length as u64)
    }

    /// Writes a fragment that has come in a frame.
    pub fn write(
        &mut self,
        from: ProcessIndex,
        fragment: &Fragment,
        bytes: &[u8],
    ) -> Result<(), RendezvousBufferError> {
        self.rendezvous_buffers.write(from, RendezvousBufferId(fragment.rendezvous_buffer), fragment.offset, bytes)
    }

    /// Takes in that `count` bytes of a rendezvous buffer have arrived. Returns the number of the message if its
    /// payload is whole now.
    pub fn advance(&mut self, rendezvous_buffer: RendezvousBufferId, count: usize) -> Option<usize> {
        self.rendezvous_buffers.advance(rendezvous_buffer, count)
    }

    /// Gives up a payload that was asked for.
    pub fn give_up(&mut self, pull: &Pull) {
        self.rendezvous_buffers.remove(pull.rendezvous_buffer);
    }

    /// Process id for reading a payload directly; `None` where that is not possible.
    fn readable_pid(&self, links: &Links, from: ProcessIndex, rendezvous: &Rendezvous) -> Option<i32> {
        if self.is_refused || rendezvous.address == 0 { None } else { links.local_pid(from) }
    }

    fn record_refusal(&mut self, error: &io::Error) {
        // Reading is not permitted here, or across process-id namespaces: do not try again. Other errors, such as a
        // wrong address, do not count: the sender can push without the address.
        let is_refusal = |code| matches!(code, libc::EPERM | libc::EACCES | libc::ENOSYS);
        self.is_refused |= error.raw_os_error().is_some_and(is_refusal);
    }

    /// Reads the payload of a message from its sender's memory to `start`; `None` where that is not possible. Also
    /// returns its digest, if hashed on the way.
    fn read_directly(
        &mut self,
        links: &Links,
        from: ProcessIndex,
        rendezvous: &Rendezvous,
        start: *mut u8,
        hashing: impl FnOnce() -> Option<DigestStream>,
    ) -> Option<Option<Digest>> {
        let pid = self.readable_pid(links, from, rendezvous)?;
        let length = rendezvous.length as usize;
        let hashing = if length > 4 * PIECE_BYTES { hashing() } else { None };
        let read = match hashing {
            Some(hashing) => read_and_hash(pid, rendezvous.address, start, length, hashing),
            // SAFETY: - start is valid for rendezvous.length bytes of writes: `fetch` chose it so.
            None => unsafe { direct::read(pid, rendezvous.address, start, length) }.map(|()| None),
        };
        match read {
            Ok(hashed) => Some(hashed),
            Err(error) => {
                self.record_refusal(&error);
                None
            }
        }
    }
}

/// Tells the sender of an offer that its payload was read.
pub(super) fn say_done(links: &mut Links, to: ProcessIndex, offer: u64) {
    let mut header = Header::new(FrameKind::Done, 0);
    header.sequence = offer as u32;
    header.source = (offer >> 32) as u32;
    links.send(to, header, None, &[]);
}

/// Reads `length` bytes at `address` of process `pid` to `to`, piece by piece, and hashes each while it is in the
/// cache.
fn read_and_hash(
    pid: i32,
    address: u64,
    to: *mut u8,
    length: usize,
    mut hashing: DigestStream,
) -> io::Result<Option<Digest>> {
    for offset in (0..length).step_by(PIECE_BYTES) {
        let (piece, count) = (to.wrapping_add(offset), PIECE_BYTES.min(length - offset));
        // SAFETY: - within the memory that `fetch` chose to be valid for `length` bytes of writes.
        unsafe { direct::read(pid, address.wrapping_add(offset as u64), piece, count)? };
        // SAFETY: - count bytes were just written there.
        hashing.update(unsafe { std::slice::from_raw_parts(piece, count) });
    }
    Ok(Some(hashing.finish()))
}
