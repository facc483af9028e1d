//! TCP between processes. Each process accepts on one port; a link is opened by its sender on first use, proves that it
//! knows the job's secret, names its process, and then carries frames one way, or both: see `engine::link::sharing`.
//!
//! Handshakes are shaken elsewhere, by a thread that serves them all (`handshake`): two processes may be opening links to each
//! other at the same time, each holding its engine's lock, and would wait for each other forever otherwise.

use super::frame::{FLAG_DIGEST, Fragment, FrameError, HEADER_BYTES, Header, Kind};
use super::landing::LandingError;
use super::{Body, LandingId, Landings, descriptors};
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::seal::Cipher;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest frame that is buffered whole; larger payloads go by grant and data frames, which are read into place.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// Bytes of payload in one data frame.
pub const DATA_BYTES_MAX: usize = 4 << 20;

/// Longest data frame.
const DATA_FRAME_BYTES_MAX: usize = HEADER_BYTES + Fragment::BYTES + DATA_BYTES_MAX;

const BUFFER_BYTES: usize = 256 << 10;

/// So much is read at most that may be, or be followed by, bytes for a landing: what is in the buffer is copied once more.
const AHEAD_BYTES: usize = 4 << 10;

/// Payload bytes that outlive the call that sends them.
pub trait Source: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// What is said first over a link that has proved itself: four numbers of 32 bits, little-endian.
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
    pub(super) const BYTES: usize = 24;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [self.from.0, self.incarnation.0, self.to.0, self.epoch];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.job.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
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

enum Chunk {
    Copied(Vec<u8>),
    Shared { payload: Arc<dyn Source>, start: usize, end: usize },
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared { payload, start, end } => &payload.bytes()[*start..*end],
        }
    }
}

/// A connected socket of the library: the copy of a process does not have it.
pub struct Connection {
    stream: ManuallyDrop<TcpStream>,
    epoch: u32,
}

impl Connection {
    /// Of a socket that is made without waiting for anything.
    pub fn make<S: AsRawFd + Into<TcpStream>>(make: impl FnOnce() -> io::Result<S>) -> io::Result<Self> {
        let socket = descriptors::make(make)?;
        Ok(Self { stream: ManuallyDrop::new(socket.into()), epoch: descriptors::epoch() })
    }

    /// The next that somebody has opened to a listener that does not block.
    pub fn accept(listener: &TcpListener) -> io::Result<Self> {
        Self::make(|| listener.accept().map(|(stream, _)| stream))
    }

    /// The next that somebody opens to a listener. Waits for that beforehand: others make sockets too, which takes turns.
    #[cfg(test)]
    pub fn await_next(listener: &TcpListener) -> Self {
        let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: - one entry, valid during the call.
        let count = unsafe { libc::poll(&raw mut entry, 1, -1) };
        assert_eq!(count, 1, "{}", io::Error::last_os_error());
        Self::accept(listener).expect("somebody has connected")
    }

    /// Whether it was made in this life of the process.
    pub fn is_current(&self) -> bool {
        self.epoch == descriptors::epoch()
    }
}

impl Deref for Connection {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: - dropped here only, and not used any more.
        descriptors::close(self.stream.as_raw_fd(), || unsafe { ManuallyDrop::drop(&mut self.stream) });
    }
}

pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Best effort: the default algorithm may be one made for the internet, which halves the rate of a local link.
    let name = b"cubic";
    // SAFETY: - name is valid for its length.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as u32,
        )
    };
    Ok(())
}

/// Writes to a socket. That the other end is gone is an error, not a signal: the program may have left SIGPIPE at its default.
pub(super) fn send_quietly(stream: &TcpStream, slices: &[IoSlice]) -> io::Result<usize> {
    // SAFETY: - an all-zero msghdr is valid: nothing named, no vectors, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len();
    // SAFETY: - IoSlice has the layout of iovec, and every slice is valid for reads during the call.
    let count = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// A connection that has proved itself.
struct Wire {
    stream: Connection,
    /// Of both directions, where the job's connections are encrypted. Nobody waits for it: both ends are the engine's.
    cipher: Option<Mutex<Cipher>>,
}

impl Wire {
    fn cipher(&self) -> Option<MutexGuard<'_, Cipher>> {
        self.cipher.as_ref().map(|cipher| cipher.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// These parts as they travel, each by itself, if the connection is encrypted.
    fn seal(&self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut cipher = self.cipher()?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut sealed = Vec::with_capacity(total + total / 1024 + 128);
        parts.iter().for_each(|part| cipher.seal(part, &mut sealed));
        Some(sealed)
    }
}

/// The sending end of a link.
pub struct Sender {
    wire: Arc<Wire>,
    queue: VecDeque<Chunk>,
    /// Bytes of the queue's front that have gone.
    gone: usize,
    sent_bytes: u64,
    broken: bool,
    /// Where it goes on when all that was given has gone.
    next: Option<Arc<Wire>>,
}

impl Sender {
    /// Takes over a link that was opened.
    pub(super) fn new(stream: Connection, cipher: Option<Cipher>) -> Self {
        let wire = Arc::new(Wire { stream, cipher: cipher.map(Mutex::new) });
        Self { wire, queue: VecDeque::new(), gone: 0, sent_bytes: 0, broken: false, next: None }
    }

    /// Gives the last frame, and goes on over the connection that `receiver` reads from.
    pub fn move_over(&mut self, receiver: &Receiver, last: Header) {
        self.send(&[&last.to_bytes()]);
        self.next = Some(receiver.wire.clone());
        self.move_on();
    }

    fn move_on(&mut self) {
        if self.queue.is_empty()
            && let Some(next) = self.next.take()
        {
            self.wire = next;
        }
    }

    /// Whether a receiver uses the same connection.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.wire) > 1
    }

    /// Whether everything given so far has been taken by the kernel, or the link is broken and takes nothing.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the other end has closed or reset the link.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the other end has closed or reset the link, though nothing is sent over it now.
    pub fn look(&mut self) -> bool {
        let mut byte = 0_u8;
        // SAFETY: - byte is valid for one byte of writes.
        let count = unsafe {
            libc::recv(self.wire.stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        // What comes back is left for the receiver that there will be.
        let is_open = count > 0 || count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
        self.broken |= !is_open;
        self.broken
    }

    /// Resets the connection, as something on its way might.
    pub fn disconnect(&self) {
        disconnect(&self.wire.stream);
    }

    /// Bytes of all frames given to this link.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// The socket, to wait for it to take more.
    pub fn fd(&self) -> RawFd {
        self.wire.stream.as_raw_fd()
    }

    /// Gives one frame of copied parts. Always taken: what the kernel does not take is queued.
    pub fn send(&mut self, parts: &[&[u8]]) {
        if self.broken {
            return;
        }
        let total: usize = parts.iter().map(|part| part.len()).sum();
        self.sent_bytes += total as u64;
        if self.wire.cipher.is_some() {
            let sealed = self.wire.seal(&[&parts.concat()]).expect("it is encrypted");
            return self.give(sealed);
        }
        let mut taken = 0;
        if self.queue.is_empty() {
            let slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
            taken = self.write(&slices);
        }
        if taken < total && !self.broken {
            let mut rest = parts.concat();
            rest.drain(..taken);
            self.queue.push_back(Chunk::Copied(rest));
        }
    }

    /// Gives one frame whose last part is `start..end` of `payload`, which is not copied. The link must be idle.
    pub fn send_shared(&mut self, head: &[u8], payload: &Arc<dyn Source>, start: usize, end: usize) {
        if self.broken {
            return;
        }
        debug_assert!(self.queue.is_empty());
        self.sent_bytes += (head.len() + end - start) as u64;
        if let Some(sealed) = self.wire.seal(&[head, &payload.bytes()[start..end]]) {
            return self.give(sealed);
        }
        let taken = self.write(&[IoSlice::new(head), IoSlice::new(&payload.bytes()[start..end])]);
        if self.broken {
            return;
        }
        if taken < head.len() {
            self.queue.push_back(Chunk::Copied(head[taken..].to_vec()));
        }
        let start = start + taken.saturating_sub(head.len());
        if start < end {
            self.queue.push_back(Chunk::Shared { payload: payload.clone(), start, end });
        }
    }

    /// Gives bytes that are encrypted already.
    fn give(&mut self, mut bytes: Vec<u8>) {
        let taken = if self.queue.is_empty() { self.write(&[IoSlice::new(&bytes)]) } else { 0 };
        if taken < bytes.len() && !self.broken {
            bytes.drain(..taken);
            self.queue.push_back(Chunk::Copied(bytes));
        }
    }

    fn write(&mut self, slices: &[IoSlice]) -> usize {
        loop {
            match send_quietly(&self.wire.stream, slices) {
                Ok(count) => return count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
                Err(_) => {
                    self.broken = true;
                    self.queue.clear();
                    return 0;
                }
            }
        }
    }

    /// Copies what is queued of this payload, whose bytes are about to go.
    pub fn detach(&mut self, payload: &[u8]) {
        for chunk in &mut self.queue {
            if matches!(chunk, Chunk::Shared { payload: queued, .. } if queued.bytes().as_ptr() == payload.as_ptr()) {
                // What of the front has gone already is skipped by its length, so that stays.
                *chunk = Chunk::Copied(chunk.bytes().to_vec());
            }
        }
    }

    /// Gives the kernel more of what is queued.
    pub fn flush(&mut self) {
        while let Some(chunk) = self.queue.pop_front() {
            let gone = self.gone;
            let length = chunk.bytes().len();
            let taken = self.write(&[IoSlice::new(&chunk.bytes()[gone..])]);
            if self.broken {
                return;
            }
            if gone + taken < length {
                self.gone = gone + taken;
                self.queue.push_front(chunk);
                return;
            }
            self.gone = 0;
        }
        self.move_on();
    }
}

/// Resets a connection: what is on its way is lost, both ends will find it broken.
fn disconnect(stream: &TcpStream) {
    // SAFETY: - an all-zero address is valid; its family is set next.
    let mut nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    nowhere.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    // SAFETY: - nowhere is valid for its size; disconnecting touches no memory of ours.
    unsafe { libc::connect(stream.as_raw_fd(), &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t) };
}

/// A link that has proved itself and waits for the engine to take it over.
pub struct Accepted {
    /// What the other end says of itself.
    pub name: Name,
    wire: Arc<Wire>,
}

impl Accepted {
    /// A connection that has.
    pub(super) fn new(name: Name, stream: Connection, cipher: Option<Cipher>) -> Self {
        Self { name, wire: Arc::new(Wire { stream, cipher: cipher.map(Mutex::new) }) }
    }
}

#[cfg(test)]
impl Accepted {
    /// A connection that needs to prove nothing.
    pub fn for_test(name: Name, stream: TcpStream) -> Self {
        Self::new(name, Connection::make(|| Ok(stream)).expect("it is made"), None)
    }
}

/// Opens what arrives over an encrypted link.
struct Unsealer {
    raw: Box<[u8]>,
    plain: Vec<u8>,
    /// How much of that has been taken.
    taken: usize,
}

impl Unsealer {
    fn new() -> Self {
        Self { raw: vec![0; BUFFER_BYTES].into_boxed_slice(), plain: Vec::new(), taken: 0 }
    }

    /// Moves what has been opened to these places; how many bytes it was.
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
    landing: LandingId,
    offset: u64,
    left: usize,
}

/// What a link yields.
pub enum Received {
    /// A whole frame; its body stays valid until the next call of [`Receiver::next`].
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

/// What is wrong with what came over a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rubbish {
    /// The frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Where payload bytes are to go.
    #[error(transparent)]
    Landing(#[from] LandingError),
}

/// The receiving end of a link.
pub struct Receiver {
    /// The job of the process at the other end.
    pub job: u64,
    /// The process at the other end.
    pub from: ProcessIndex,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The process it is for.
    pub to: ProcessIndex,
    /// The epoch of the connection.
    pub epoch: u32,
    wire: Arc<Wire>,
    unsealer: Option<Unsealer>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    streaming: Option<Streaming>,
    taken_bytes: u64,
    closed: bool,
}

impl Receiver {
    /// Takes over an accepted link.
    pub fn new(accepted: Accepted) -> Self {
        Self::over(accepted.wire, accepted.name, 0)
    }

    /// What follows a link of which `taken_bytes` were taken, on the connection of `sender`. `name` is that of the link.
    pub fn continued_over(sender: &Sender, name: Name, taken_bytes: u64) -> Self {
        Self::over(sender.wire.clone(), name, taken_bytes)
    }

    fn over(wire: Arc<Wire>, name: Name, taken_bytes: u64) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let Name { job, from, incarnation, to, epoch } = name;
        let unsealer = wire.cipher.is_some().then(Unsealer::new);
        Self {
            job,
            from,
            incarnation,
            to,
            epoch,
            wire,
            unsealer,
            buffer,
            start: 0,
            end: 0,
            streaming: None,
            taken_bytes,
            closed: false,
        }
    }

    /// Whether it was accepted in this life of the process.
    pub fn is_current(&self) -> bool {
        self.wire.stream.is_current()
    }

    /// What was said when it was opened.
    pub fn name(&self) -> Name {
        let Self { job, from, incarnation, to, epoch, .. } = *self;
        Name { job, from, incarnation, to, epoch }
    }

    /// Bytes of all frames taken from this link.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Resets the connection, as something on its way might.
    pub fn disconnect(&self) {
        disconnect(&self.wire.stream);
    }

    /// The socket, to wait for it.
    pub fn fd(&self) -> RawFd {
        self.wire.stream.as_raw_fd()
    }

    /// Whether there is something that need not be read from the socket.
    pub fn has_bytes(&self) -> bool {
        self.start < self.end
    }

    /// The next thing that has arrived. Reads from the socket only when the buffer holds no whole frame.
    pub fn next(&mut self, landings: &mut Landings) -> Received {
        self.take_next(landings).unwrap_or_else(Received::Rubbish)
    }

    fn take_next(&mut self, landings: &mut Landings) -> Result<Received, Rubbish> {
        loop {
            if let Some(streaming) = &mut self.streaming {
                let have = (self.end - self.start).min(streaming.left);
                if have > 0 {
                    let bytes = &self.buffer[self.start..self.start + have];
                    landings.write(self.from, streaming.landing, streaming.offset, bytes)?;
                    self.start += have;
                    return Ok(self.landed(have));
                }
                return Ok(match self.read_streaming(landings)? {
                    0 if self.closed => Received::Closed,
                    0 => Received::Nothing,
                    count => self.landed(count),
                });
            }
            match self.parse(landings)? {
                Some(frame) => return Ok(frame),
                None if self.streaming.is_some() => continue,
                None => {}
            }
            if !self.fill(landings) {
                return Ok(if self.closed { Received::Closed } else { Received::Nothing });
            }
        }
    }

    fn landed(&mut self, count: usize) -> Received {
        let streaming = self.streaming.as_mut().expect("a data frame is arriving");
        streaming.offset += count as u64;
        streaming.left -= count;
        self.taken_bytes += count as u64;
        let landing = streaming.landing;
        if streaming.left == 0 {
            self.streaming = None;
        }
        Received::Landed(landing, count)
    }

    fn parse(&mut self, landings: &mut Landings) -> Result<Option<Received>, Rubbish> {
        let pending = &self.buffer[self.start..self.end];
        let Some(head) = pending.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::from_bytes(head);
        let kind = header.check()?;
        let max = if kind == Kind::Data { DATA_FRAME_BYTES_MAX } else { FRAME_BYTES_MAX };
        if header.size as usize > max {
            return Err(FrameError::TooLong { size: header.size, max }.into());
        }
        if kind == Kind::Data {
            let body = HEADER_BYTES + header.digest_bytes();
            let Some(fragment) = pending.get(body..).and_then(Fragment::from_bytes) else { return Ok(None) };
            let left = header.body_bytes() - Fragment::BYTES;
            let landing = LandingId(fragment.landing);
            landings.place(self.from, landing, fragment.offset, left)?;
            self.start += body + Fragment::BYTES;
            self.taken_bytes += (body + Fragment::BYTES) as u64;
            if left > 0 {
                self.streaming = Some(Streaming { landing, offset: fragment.offset, left });
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

    fn fill(&mut self, landings: &Landings) -> bool {
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
        let length = if landings.is_empty() { room.len() } else { room.len().min(missing.max(AHEAD_BYTES)) };
        let room = &mut room[..length];
        let vectors = [libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
        let count = self.read_vectored(&vectors);
        self.end += count;
        count > 0
    }

    fn read_streaming(&mut self, landings: &mut Landings) -> Result<usize, LandingError> {
        (self.start, self.end) = (0, 0);
        let streaming = self.streaming.as_ref().expect("a data frame is arriving");
        let left = streaming.left;
        let Some(place) = landings.place(self.from, streaming.landing, streaming.offset, left)? else {
            // Nobody wants these bytes any more: read them away.
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

    /// The same over an encrypted link. What nobody has encrypted ends it.
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
            // SAFETY: - every vector is this link's buffer or a landing, both valid for writes of their length.
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

#[cfg(test)]
mod tests {
    use super::super::handshake;
    use super::*;
    use redrt_wire::auth::Secret;
    use std::time::Instant;

    struct Bytes(Vec<u8>);

    impl Source for Bytes {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    fn link() -> (Sender, Receiver) {
        link_with(&Secret::new([3; 32]))
    }

    fn link_with(secret: &Secret) -> (Sender, Receiver) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let theirs = secret.clone();
        let accepting =
            std::thread::spawn(move || handshake::admit(Connection::await_next(&listener), &theirs).unwrap());
        let name = Name { job: 1, from: ProcessIndex(5), incarnation: Incarnation(1), to: ProcessIndex(2), epoch: 3 };
        let sender = handshake::open(address, secret, name).unwrap();
        let accepted = accepting.join().unwrap();
        assert_eq!(accepted.name, name);
        (sender, Receiver::new(accepted))
    }

    fn frame(kind: Kind, digest: Option<u128>, length: usize) -> Header {
        let mut header = Header::new(kind, 4);
        header.flags = if digest.is_some() { FLAG_DIGEST } else { 0 };
        header.size = (HEADER_BYTES + header.digest_bytes() + length) as u32;
        header
    }

    #[test]
    fn frames_and_large_payloads_interleave() {
        for sealing in [false, true] {
            interleave(link_with(&Secret::new([3; 32]).sealing(sealing)));
        }
    }

    fn interleave((mut sender, mut receiver): (Sender, Receiver)) {
        let payload: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7) as u8).collect();
        let source: Arc<dyn Source> = Arc::new(Bytes(payload.clone()));
        let mut place = vec![0u8; payload.len()];
        let mut landings = Landings::default();
        // SAFETY: - place outlives the landing.
        let landing = unsafe { landings.insert(place.as_mut_ptr(), place.len(), 77, ProcessIndex(5)) };
        let (mut offset, mut frames, mut heard, mut done) = (0, 0u64, 0u64, false);
        while !done || heard < 40 {
            sender.flush();
            if sender.is_idle() && frames < 40 {
                let body = vec![frames as u8; (frames * 1500) as usize];
                let header = frame(Kind::Eager, Some(u128::from(frames)), body.len());
                sender.send(&[&header.to_bytes(), &u128::from(frames).to_le_bytes(), &body]);
                frames += 1;
            }
            if sender.is_idle() && offset < payload.len() {
                let end = (offset + 200_001).min(payload.len());
                let header = frame(Kind::Data, None, end - offset + Fragment::BYTES);
                let fragment = Fragment { landing: landing.0, offset: offset as u64 };
                sender.send_shared(&[&header.to_bytes()[..], &fragment.to_bytes()].concat(), &source, offset, end);
                offset = end;
            }
            match receiver.next(&mut landings) {
                Received::Frame(_, kind, digest, body) => {
                    assert_eq!(kind, Kind::Eager);
                    assert_eq!((digest, body.bytes().len()), (u128::from(heard), (heard * 1500) as usize));
                    assert!(body.bytes().iter().all(|byte| *byte == heard as u8));
                    heard += 1;
                }
                Received::Landed(id, count) => done |= landings.advance(id, count) == Some(77),
                Received::Nothing => {}
                Received::Closed => panic!("closed"),
                Received::Rubbish(error) => panic!("{error}"),
            }
        }
        assert_eq!(place, payload);
    }

    #[test]
    fn a_vanished_peer_is_an_end_not_a_hang() {
        let (sender, mut receiver) = link();
        drop(sender);
        assert!(matches!(receiver.next(&mut Landings::default()), Received::Closed));
    }

    #[test]
    fn a_reset_is_seen_by_both_ends() {
        for by_sender in [false, true] {
            let (mut sender, mut receiver) = link();
            assert!(!sender.look());
            if by_sender {
                sender.disconnect()
            } else {
                receiver.disconnect()
            }
            // The other end is told by the network.
            let until = Instant::now() + handshake::TIMEOUT;
            while !(sender.look() && matches!(receiver.next(&mut Landings::default()), Received::Closed)) {
                assert!(Instant::now() < until, "nobody has noticed");
            }
        }
    }

    #[test]
    fn rubbish_closes_the_link() {
        let (mut sender, mut receiver) = link();
        sender.send(&[&[0xff; 64]]);
        let mut landings = Landings::default();
        loop {
            match receiver.next(&mut landings) {
                Received::Nothing => {}
                Received::Rubbish(error) => break assert_eq!(error, FrameError::Kind(0xff).into()),
                _ => panic!("rubbish was taken for a frame"),
            }
        }
    }

    #[test]
    fn a_payload_that_goes_is_copied_where_it_waits() {
        let (mut sender, mut receiver) = link();
        let payload: Vec<u8> = (0..(DATA_BYTES_MAX as u32)).map(|n| (n * 13) as u8).collect();
        let mut place = vec![0u8; 30 * payload.len()];
        let mut landings = Landings::default();
        // SAFETY: - place outlives the landing.
        let landing = unsafe { landings.insert(place.as_mut_ptr(), place.len(), 0, ProcessIndex(5)) };
        let bytes = Arc::new(Bytes(payload.clone()));
        let source: Arc<dyn Source> = bytes.clone();
        // Until the kernel takes no more, and part of the payload waits here.
        let mut sent = 0;
        while sender.is_idle() {
            assert!(sent + payload.len() <= place.len(), "the kernel takes everything");
            let header = frame(Kind::Data, None, payload.len() + Fragment::BYTES);
            let head = Fragment { landing: landing.0, offset: sent as u64 };
            sender.send_shared(&[&header.to_bytes()[..], &head.to_bytes()].concat(), &source, 0, payload.len());
            sent += payload.len();
        }
        sender.detach(source.bytes());
        drop(source);
        drop(Arc::into_inner(bytes).expect("the link has let go of the payload"));
        let mut received = 0;
        while received < sent {
            sender.flush();
            match receiver.next(&mut landings) {
                Received::Landed(id, count) => {
                    assert_eq!(landings.advance(id, count), None);
                    received += count;
                }
                Received::Nothing => {}
                _ => panic!("something else came"),
            }
        }
        assert!(place[..sent].chunks(payload.len()).all(|piece| piece == payload));
    }
}
