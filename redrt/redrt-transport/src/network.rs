//! Interface of networks to the engine, for processes that share no memory.
//!
//! TCP is one network ([`crate::tcp`]). Another takes a module with these traits, and a line in the library's table of
//! networks. Connections carry whole frames, in order. A process opens one when it first sends; where both of two have
//! opened one, the engine moves them to one for both directions (`engine::link::sharing`). Both ends are polled. A
//! frame is given to an idle outlet, which then has to deliver it; an inlet yields one frame at a time.
//!
//! The engine sends again the frames that are lost with a connection (`quiesce::Replica::reset`). So a network only
//! reports the loss. An image of a process has no connections: its copy opens its own.

use crate::frame::{FLAG_DIGEST, Fragment, FrameError, FrameKind, HEADER_BYTES, Header};
use crate::rendezvous_buffer::RendezvousBufferError;
use crate::{Body, RendezvousBufferId, RendezvousBuffers};
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::secret::Secret;
use std::any::Any;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Frame length in bytes that every network must take whole: replicated payloads of up to 8 KiB go with their offers.
pub const FRAME_BYTES_LEAST: usize = 9 << 10;

/// Payload bytes that outlive the call that sends them.
pub trait Source: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// The two ends of a connection: the first bytes over one that is authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The job of the process that opens it.
    pub job: u64,
    /// The process that opens it and sends over it, by its own job's number.
    pub from: ProcessIndex,
    /// Incarnation of that process.
    pub incarnation: Incarnation,
    /// The addressee, by its own job's number: another process may have taken over the address.
    pub to: ProcessIndex,
    /// Number of times that the connection between the two has begun anew.
    pub epoch: u32,
}

impl Name {
    /// Length of its encoding: job, then four words of 32 bits, little-endian.
    pub const BYTES: usize = 24;

    /// Its encoding.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [self.from.0, self.incarnation.0, self.to.0, self.epoch];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.job.to_le_bytes());
        bytes
    }

    /// Decodes a name. Any bytes are some name.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            job: u64::from(word(16)) | u64::from(word(20)) << 32,
            from: ProcessIndex(word(0)),
            incarnation: Incarnation(word(4)),
            to: ProcessIndex(word(8)),
            epoch: word(12),
        }
    }
}

/// A connection to be opened.
pub struct Opening {
    /// The other process, by this process's number.
    pub to: ProcessIndex,
    /// Name to send once it is open.
    pub name: Name,
    /// Address of the other process, in the network's own form.
    pub address: String,
    /// Secret of the links of the other process's job.
    pub secret: Secret,
    /// Cleared when the connection is no longer wanted.
    pub wanted: Arc<AtomicBool>,
    /// True if the previous one broke at once: begin with a pause.
    pub has_failed: bool,
}

impl Opening {
    /// Returns true if the connection is still wanted.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// Result of an attempt to open a connection.
pub enum Connecting {
    /// It is open.
    Open(Box<dyn Outlet>),
    /// The engine gets the outcome later ([`Opened`]).
    Underway,
    /// The other end is gone, or cannot be reached over this network.
    Refused,
}

/// Outcome of a connection that took its time.
pub struct Opened {
    /// The other process.
    pub to: ProcessIndex,
    /// The request it belongs to; there may be a newer one for the same process.
    pub wanted: Arc<AtomicBool>,
    /// The connection, or why none exists.
    pub result: io::Result<Box<dyn Outlet>>,
}

/// Returns true if a connection failed because the other end's host, or one on the way there, does not answer.
#[must_use]
pub fn is_of_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable)
}

/// A network that processes may be reached over.
pub trait Network: Send + Sync {
    /// Its name in the addresses of processes.
    fn name(&self) -> &'static str;

    /// Longest frame in bytes that goes in one piece, payload fragments excepted: [`FRAME_BYTES_LEAST`] or more.
    fn frame_bytes_max(&self) -> usize;

    /// Opens a connection, or begins to.
    fn connect(&self, opening: Opening) -> Connecting;
}

/// The sending end of a connection.
pub trait Outlet: Send {
    /// Longest frame in bytes that it takes, payload fragments excepted.
    fn frame_bytes_max(&self) -> usize;

    /// Largest number of payload bytes in one fragment.
    fn data_bytes_max(&self) -> usize;

    /// Takes one frame in parts, and copies what cannot go at once. The outlet must be idle; otherwise it breaks.
    fn send(&mut self, parts: &[&[u8]]);

    /// Takes one frame whose last part is `start..end` of `payload`, which need not be copied. The outlet must be idle;
    /// otherwise it breaks.
    fn send_shared(&mut self, head: &[u8], payload: &Arc<dyn Source>, start: usize, end: usize) {
        self.send(&[head, &payload.bytes()[start..end]]);
    }

    /// Sends more of the bytes it has taken.
    fn flush(&mut self);

    /// Returns true if all bytes taken have gone, or the connection is lost.
    fn is_idle(&self) -> bool;

    /// Returns true if all bytes taken have reached the other end's host. They need not have been read there.
    fn has_arrived(&self) -> bool;

    /// Returns true if the connection is known to be lost.
    fn is_broken(&self) -> bool;

    /// Checks for the loss of the connection though nothing is sent now. Returns true if it is lost.
    fn poll_loss(&mut self) -> bool {
        self.is_broken()
    }

    /// Number of retransmissions in a row that the other end's host has not acknowledged. They come after a fifth of a
    /// second at first, and twice the time each time. A living host acknowledges whatever its processes do.
    fn unanswered(&self) -> u32 {
        0
    }

    /// Breaks the connection, as an injected fault of the network.
    fn disconnect(&self);

    /// Copies the bytes of this payload that it still holds, which are about to go. An outlet that copies all it takes
    /// holds none.
    fn detach(&mut self, _payload: &[u8]) {}

    /// Bytes of all frames that were given.
    fn sent_bytes(&self) -> u64;

    /// Descriptor to wait on for more room, or for the loss of the connection. `None` where the network wakes the
    /// process itself.
    fn waits_on(&self) -> Option<RawFd>;

    /// Returns true if frames also come back over this connection.
    fn is_shared(&self) -> bool {
        true
    }

    /// Sends `last`, and continues over the connection that `inlet` reads from. Only for an outlet that is not shared.
    fn move_over(&mut self, _inlet: &dyn Inlet, _last: Header) {}

    /// The inlet for frames that come back over this connection; `None` if none can.
    fn way_back(&self) -> Option<Box<dyn Inlet>> {
        None
    }
}

/// The receiving end of a connection.
pub trait Inlet: Send {
    /// The next frame or payload bytes from `from`; a frame's body stays as it is until the next call.
    fn next(&mut self, from: ProcessIndex, rendezvous_buffers: &mut RendezvousBuffers) -> Received;

    /// Returns true if bytes have come that can be had without a system call.
    fn has_bytes(&self) -> bool {
        false
    }

    /// Descriptor to wait on for more. `None` where the network wakes the process itself.
    fn waits_on(&self) -> Option<RawFd>;

    /// Bytes of all frames that were taken.
    fn taken_bytes(&self) -> u64;

    /// Returns true if it was opened in this life of the process: a copy finds its source's inlets in its memory.
    fn is_current(&self) -> bool {
        true
    }

    /// Breaks the connection, as an injected fault of the network.
    fn disconnect(&self);

    /// This inlet, for an outlet of the same network.
    fn as_any(&self) -> &dyn Any;
}

/// Yield of an inlet.
pub enum Received {
    /// A whole frame; its body stays valid until the next call of [`Inlet::next`].
    Frame(Header, FrameKind, u128, Body),
    /// This number of further bytes of a rendezvous buffer's payload are in place.
    Landed(RendezvousBufferId, usize),
    /// Nothing has come.
    Nothing,
    /// The other end is gone.
    Closed,
    /// The other end sent bytes that are no frame. Nothing more can be taken from it.
    Rubbish(Rubbish),
}

/// Fault of bytes that came over a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rubbish {
    /// The fault is in the frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The fault is in the place of payload bytes.
    #[error(transparent)]
    RendezvousBuffer(#[from] RendezvousBufferError),
}

/// Handles one frame that has come as a whole. `bytes` must stay unchanged until the next frame is taken.
pub fn whole_frame(from: ProcessIndex, bytes: &[u8], rendezvous_buffers: &mut RendezvousBuffers) -> Received {
    take_whole(from, bytes, rendezvous_buffers).unwrap_or_else(Received::Rubbish)
}

fn take_whole(
    from: ProcessIndex,
    bytes: &[u8],
    rendezvous_buffers: &mut RendezvousBuffers,
) -> Result<Received, Rubbish> {
    let length = bytes.len() as u32;
    let head = bytes.first_chunk().ok_or(FrameError::Size { size: length, head: HEADER_BYTES as u32 })?;
    let header = Header::from_bytes(head);
    let kind = header.check()?;
    if header.size != length {
        return Err(FrameError::TooLong { size: header.size, max: bytes.len() }.into());
    }
    let body = &bytes[HEADER_BYTES + header.digest_bytes()..];
    if kind == FrameKind::Data {
        let fragment = Fragment::from_bytes(body).ok_or(FrameError::Body { kind, length: body.len() as u32 })?;
        let (rendezvous_buffer, bytes) = (RendezvousBufferId(fragment.rendezvous_buffer), &body[Fragment::BYTES..]);
        rendezvous_buffers.write(from, rendezvous_buffer, fragment.offset, bytes)?;
        return Ok(Received::Landed(rendezvous_buffer, bytes.len()));
    }
    let digest = if header.flags & FLAG_DIGEST != 0 {
        u128::from_le_bytes(bytes[HEADER_BYTES..HEADER_BYTES + 16].try_into().expect("16 bytes"))
    } else {
        0
    };
    // SAFETY: - the caller keeps the bytes until it takes the next frame.
    Ok(Received::Frame(header, kind, digest, unsafe { Body::new(body.as_ptr(), body.len()) }))
}

/// A connection that another process has opened.
pub struct Incoming {
    /// The two ends of the connection.
    pub name: Name,
    /// Bytes of frames that came over another connection before.
    taken_before: u64,
    inlet: Box<dyn Inlet>,
}

impl Incoming {
    /// Takes over an accepted connection.
    pub fn new(name: Name, inlet: Box<dyn Inlet>) -> Self {
        Self { name, taken_before: 0, inlet }
    }

    /// The way back over the connection of `outlet`, as the continuation of another of this name of which `taken_bytes`
    /// were taken. `None` where nothing can come back.
    pub fn continued_over(outlet: &dyn Outlet, name: Name, taken_bytes: u64) -> Option<Self> {
        Some(Self { name, taken_before: taken_bytes, inlet: outlet.way_back()? })
    }

    /// The receiving end.
    pub fn inlet(&self) -> &dyn Inlet {
        &*self.inlet
    }

    /// The next frame or payload bytes that have come.
    pub fn next(&mut self, rendezvous_buffers: &mut RendezvousBuffers) -> Received {
        self.inlet.next(self.name.from, rendezvous_buffers)
    }

    /// Bytes of all frames taken, also over the connection that this one continues.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_before + self.inlet.taken_bytes()
    }
}
