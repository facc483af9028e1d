//! What a network offers to the engine, between processes that share no memory.
//!
//! TCP is one ([`crate::tcp`]); another is a module with these traits and a line in the library's table of networks.
//! Connections carry whole frames, in order. A process opens one when it first sends; where both of two have opened
//! one, the engine moves them to one for both directions (`engine::link::sharing`). Both ends are polled. A frame is
//! given to an outlet that is idle and is then the outlet's to deliver; an inlet yields one frame at a time.
//!
//! What is lost with a connection is the engine's to send again (`quiesce::Replica::reset`), so a network that loses
//! one says so and does nothing else. An image of a process has no connections: its copy opens its own.

use crate::frame::{FLAG_DIGEST, Fragment, FrameError, HEADER_BYTES, Header, Kind};
use crate::landing::LandingError;
use crate::{Body, LandingId, Landings};
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::secret::Secret;
use std::any::Any;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A network takes frames of at least this length, in bytes, whole: replicated, payloads of up to 8 KiB go with their
/// offers.
pub const FRAME_BYTES_LEAST: usize = 9 << 10;

/// Payload bytes that outlive the call that sends them.
pub trait Source: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// Between whom a connection is: said first over one that has proved itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The job of the process that opens it.
    pub job: u64,
    /// The process that opens it and sends over it, as its job numbers it.
    pub from: ProcessIndex,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The process it is for, as that one's job numbers it: another may have taken over the address.
    pub to: ProcessIndex,
    /// How often the connection between the two has begun anew.
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

    /// What these bytes say. All bytes are a name of somebody.
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

/// A connection that is to be opened.
pub struct Opening {
    /// To which process, as this one numbers them.
    pub to: ProcessIndex,
    /// What is said when it is open.
    pub name: Name,
    /// Where the other process can be reached, in the network's own terms.
    pub address: String,
    /// The secret of the links of its job.
    pub secret: Secret,
    /// Cleared when nobody wants the connection any more.
    pub wanted: Arc<AtomicBool>,
    /// The one before broke at once: begins with a pause.
    pub has_failed: bool,
}

impl Opening {
    /// Whether somebody still wants the connection.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// How far a connection is that is being opened.
pub enum Connecting {
    /// It is open.
    Open(Box<dyn Outlet>),
    /// What becomes of it is told to the engine later ([`Opened`]).
    Underway,
    /// The other end is gone, or cannot be reached in this way.
    Refused,
}

/// What became of a connection that took its time.
pub struct Opened {
    /// To which process.
    pub to: ProcessIndex,
    /// Of which wish; there may be a newer one for the same process.
    pub wanted: Arc<AtomicBool>,
    /// The connection, or why there is none.
    pub result: io::Result<Box<dyn Outlet>>,
}

/// Whether a connection could not be opened because the other end's host does not answer, or none on the way there.
#[must_use]
pub fn is_of_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable)
}

/// A network that processes may be reached over.
pub trait Network: Send + Sync {
    /// Its name in the addresses of processes.
    fn name(&self) -> &'static str;

    /// Longest frame that goes in one piece, in bytes, payload fragments excepted: [`FRAME_BYTES_LEAST`] or more.
    fn frame_bytes_max(&self) -> usize;

    /// Opens a connection, or begins to.
    fn connect(&self, opening: Opening) -> Connecting;
}

/// The sending end of a connection.
pub trait Outlet: Send {
    /// Longest frame that it takes, payload fragments excepted.
    fn frame_bytes_max(&self) -> usize;

    /// Most payload bytes of one fragment.
    fn data_bytes_max(&self) -> usize;

    /// Gives one frame in parts, which are copied where they cannot go at once. The outlet is idle, or breaks.
    fn send(&mut self, parts: &[&[u8]]);

    /// Gives one frame whose last part is `start..end` of `payload`, which need not be copied. The outlet is idle, or
    /// breaks.
    fn send_shared(&mut self, head: &[u8], payload: &Arc<dyn Source>, start: usize, end: usize) {
        self.send(&[head, &payload.bytes()[start..end]]);
    }

    /// Sends more of what it has taken.
    fn flush(&mut self);

    /// Whether all that was given has gone, or nothing can go any more.
    fn is_idle(&self) -> bool;

    /// Whether all that was given has reached the other end's host. It need not have been read there.
    fn has_arrived(&self) -> bool;

    /// Whether the connection is lost.
    fn is_broken(&self) -> bool;

    /// Looks whether the connection is lost, though nothing is sent now.
    fn look(&mut self) -> bool {
        self.is_broken()
    }

    /// How often in a row the other end's host has not acknowledged what was sent to it again, after a fifth of a
    /// second at first and twice the time each time. A host that is there acknowledges whatever its processes do.
    fn unanswered(&self) -> u32 {
        0
    }

    /// Breaks the connection, as something on its way might.
    fn disconnect(&self);

    /// The bytes of this payload are about to go: what it holds of them must be copied. One that copies all that it is
    /// given holds none.
    fn detach(&mut self, _payload: &[u8]) {}

    /// Bytes of all frames that were given.
    fn sent_bytes(&self) -> u64;

    /// What to wait on for more room, or for the loss of the connection. `None` where it wakes the process itself.
    fn waits_on(&self) -> Option<RawFd>;

    /// Whether frames also come back over this connection.
    fn is_shared(&self) -> bool {
        true
    }

    /// Gives the last frame, and goes on over the connection that `inlet` reads from. Only for one that is not shared.
    fn move_over(&mut self, _inlet: &dyn Inlet, _last: Header) {}

    /// What comes back over this connection, if anything can.
    fn way_back(&self) -> Option<Box<dyn Inlet>> {
        None
    }
}

/// The receiving end of a connection.
pub trait Inlet: Send {
    /// The next thing that has come from `from`; its body stays as it is until the next call.
    fn next(&mut self, from: ProcessIndex, landings: &mut Landings) -> Received;

    /// Whether something has come that can be had without asking the system.
    fn has_bytes(&self) -> bool {
        false
    }

    /// What to wait on for more. `None` where it wakes the process itself.
    fn waits_on(&self) -> Option<RawFd>;

    /// Bytes of all frames that were taken.
    fn taken_bytes(&self) -> u64;

    /// Whether it was opened in this life of the process: a copy finds its source's in its memory.
    fn is_current(&self) -> bool {
        true
    }

    /// Breaks the connection, as something on its way might.
    fn disconnect(&self);

    /// This, for an outlet of the same network.
    fn as_any(&self) -> &dyn Any;
}

/// What an inlet yields.
pub enum Received {
    /// A whole frame; its body stays valid until the next call of [`Inlet::next`].
    Frame(Header, Kind, u128, Body),
    /// That many more bytes of a landing's payload are in place.
    Landed(LandingId, usize),
    /// Nothing now.
    Nothing,
    /// The other end is gone.
    Closed,
    /// It sent what is no frame. Nothing more can be taken from it.
    Rubbish(Rubbish),
}

/// What is wrong with what came over a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rubbish {
    /// The frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Where payload bytes are to go.
    #[error(transparent)]
    Landing(#[from] LandingError),
}

/// What one frame yields that has come as a whole. `bytes` must stay as they are until the next frame is taken.
pub fn whole_frame(from: ProcessIndex, bytes: &[u8], landings: &mut Landings) -> Received {
    take_whole(from, bytes, landings).unwrap_or_else(Received::Rubbish)
}

fn take_whole(from: ProcessIndex, bytes: &[u8], landings: &mut Landings) -> Result<Received, Rubbish> {
    let length = bytes.len() as u32;
    let head = bytes.first_chunk().ok_or(FrameError::Size { size: length, head: HEADER_BYTES as u32 })?;
    let header = Header::from_bytes(head);
    let kind = header.check()?;
    if header.size != length {
        return Err(FrameError::TooLong { size: header.size, max: bytes.len() }.into());
    }
    let body = &bytes[HEADER_BYTES + header.digest_bytes()..];
    if kind == Kind::Data {
        let fragment = Fragment::from_bytes(body).ok_or(FrameError::Body { kind, length: body.len() as u32 })?;
        let (landing, bytes) = (LandingId(fragment.landing), &body[Fragment::BYTES..]);
        landings.write(from, landing, fragment.offset, bytes)?;
        return Ok(Received::Landed(landing, bytes.len()));
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
    /// Between whom it is.
    pub name: Name,
    /// Bytes of frames that came over another connection before.
    taken_before: u64,
    inlet: Box<dyn Inlet>,
}

impl Incoming {
    /// A connection that was accepted.
    pub fn new(name: Name, inlet: Box<dyn Inlet>) -> Self {
        Self { name, taken_before: 0, inlet }
    }

    /// What comes back over the connection of `outlet`, and follows another of this name of which `taken_bytes` were
    /// taken. `None` where nothing can come back.
    pub fn continued_over(outlet: &dyn Outlet, name: Name, taken_bytes: u64) -> Option<Self> {
        Some(Self { name, taken_before: taken_bytes, inlet: outlet.way_back()? })
    }

    /// The receiving end.
    pub fn inlet(&self) -> &dyn Inlet {
        &*self.inlet
    }

    /// The next thing that has come.
    pub fn next(&mut self, landings: &mut Landings) -> Received {
        self.inlet.next(self.name.from, landings)
    }

    /// Bytes of all frames that were taken, also over the connection that this one follows.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_before + self.inlet.taken_bytes()
    }
}
