//! TCP between processes. Each process accepts connections on one port. A link is opened by its sender on first use,
//! proves knowledge of the job's secret, names its process, and then carries frames one way, or both: see
//! `engine::link::sharing`.
//!
//! A thread of its own serves all handshakes (`handshake`). The trap: two processes may be opening links to each other
//! at the same time, each holding its engine's lock, and would otherwise wait for each other for ever.

mod dialling;
pub mod handshake;
mod receiving;
mod sending;

pub use dialling::{DialRequests, Tcp};
pub use receiving::Receiver;
pub use sending::Sender;

use super::descriptors;
use super::frame::{Fragment, HEADER_BYTES};
use super::network::{Incoming, Name};
use redrt_wire::seal::Cipher;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest frame that is buffered whole. Larger payloads go by clear-to-send and data frames, which are read into
/// place.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// Largest number of payload bytes in one data frame.
pub const DATA_BYTES_MAX: usize = 4 << 20;

/// Longest data frame.
const DATA_FRAME_BYTES_MAX: usize = HEADER_BYTES + Fragment::BYTES + DATA_BYTES_MAX;

const BUFFER_BYTES: usize = 256 << 10;

/// Bound on the bytes read into the buffer where bytes for a rendezvous buffer may follow: those would have to be
/// copied from there.
const AHEAD_BYTES: usize = 4 << 10;

/// A connected socket of the library, which a copy of the process does not get.
pub struct Connection {
    stream: ManuallyDrop<TcpStream>,
    epoch: u32,
}

impl Connection {
    /// Takes a socket from `make`, which must not wait.
    pub fn make<S: AsRawFd + Into<TcpStream>>(make: impl FnOnce() -> io::Result<S>) -> io::Result<Self> {
        let socket = descriptors::make(make)?;
        Ok(Self { stream: ManuallyDrop::new(socket.into()), epoch: descriptors::epoch() })
    }

    /// Accepts the next connection of a listener that does not block. Also returns the address of its other end.
    pub fn accept(listener: &TcpListener) -> io::Result<(Self, IpAddr)> {
        let mut from = IpAddr::from([0; 4]);
        let accept = || {
            listener.accept().map(|(stream, address)| {
                from = address.ip();
                stream
            })
        };
        Self::make(accept).map(|made| (made, from))
    }

    /// Accepts the next connection of a listener. The wait comes first, since sockets are made in turns.
    #[cfg(any(test, feature = "testing"))]
    pub fn await_next(listener: &TcpListener) -> Self {
        let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: - one entry, valid during the call.
        let count = unsafe { libc::poll(&raw mut entry, 1, -1) };
        assert_eq!(count, 1, "{}", io::Error::last_os_error());
        Self::accept(listener).expect("somebody has connected").0
    }

    /// Returns true if it was made in this life of the process.
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
        // SAFETY: - dropped only here, and not used afterwards.
        descriptors::close(self.stream.as_raw_fd(), || unsafe { ManuallyDrop::drop(&mut self.stream) });
    }
}

pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Best effort: the default algorithm may be one for the internet, which halves the rate of a local link.
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

/// Writes to a socket. A closed other end is an error and no signal: the program may have left SIGPIPE at its default.
pub(super) fn send_quietly(stream: &TcpStream, slices: &[IoSlice]) -> io::Result<usize> {
    // SAFETY: - an all-zero msghdr is valid: nothing named, no vectors, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len();
    // SAFETY: - IoSlice has the layout of iovec, and every slice is valid for reads during the call.
    let count = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// An authenticated connection.
struct Wire {
    stream: Connection,
    /// Cipher of both directions, where the job's connections are encrypted. Nobody waits for the lock: both ends are
    /// the engine's.
    cipher: Option<Mutex<Cipher>>,
}

impl Wire {
    fn cipher(&self) -> Option<MutexGuard<'_, Cipher>> {
        self.cipher.as_ref().map(|cipher| cipher.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The encrypted form of these parts, each in records of its own; `None` if the connection is not encrypted.
    fn seal(&self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut cipher = self.cipher()?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut sealed = Vec::with_capacity(total + total / 1024 + 128);
        parts.iter().for_each(|part| cipher.seal(part, &mut sealed));
        Some(sealed)
    }
}

/// Resets a connection: bytes under way are lost, and both ends will find it broken.
fn disconnect(stream: &TcpStream) {
    // SAFETY: - an all-zero address is valid; its family is set next.
    let mut nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    nowhere.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    // SAFETY: - nowhere is valid for its size; disconnecting touches no memory of ours.
    unsafe { libc::connect(stream.as_raw_fd(), &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t) };
}

/// Makes an authenticated connection ready for the engine.
pub(super) fn accepted(name: Name, stream: Connection, cipher: Option<Cipher>) -> Incoming {
    let wire = Arc::new(Wire { stream, cipher: cipher.map(Mutex::new) });
    Incoming::new(name, Box::new(Receiver::new(wire)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RendezvousBuffers;
    use crate::frame::{FLAG_DIGEST, FrameError, FrameKind, Header};
    use crate::network::{Outlet, Received, Source};
    use redrt_types::{Incarnation, ProcessIndex};
    use redrt_wire::secret::Secret;
    use std::time::Instant;

    struct Bytes(Vec<u8>);

    impl Source for Bytes {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    fn link() -> (Sender, Incoming) {
        link_with(&Secret::new([3; 32]))
    }

    fn link_with(secret: &Secret) -> (Sender, Incoming) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let theirs = secret.clone();
        let accepting =
            std::thread::spawn(move || handshake::admit(Connection::await_next(&listener), &theirs).unwrap());
        let name = Name { job: 1, from: ProcessIndex(5), incarnation: Incarnation(1), to: ProcessIndex(2), epoch: 3 };
        let sender = handshake::open(address, secret, name).unwrap();
        let accepted = accepting.join().unwrap();
        assert_eq!(accepted.name, name);
        (sender, accepted)
    }

    fn frame(kind: FrameKind, digest: Option<u128>, length: usize) -> Header {
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

    fn interleave((mut sender, mut receiver): (Sender, Incoming)) {
        let payload: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7) as u8).collect();
        let source: Arc<dyn Source> = Arc::new(Bytes(payload.clone()));
        let mut place = vec![0u8; payload.len()];
        let mut rendezvous_buffers = RendezvousBuffers::default();
        // SAFETY: - place outlives the rendezvous buffer.
        let rendezvous_buffer =
            unsafe { rendezvous_buffers.insert(place.as_mut_ptr(), place.len(), 77, ProcessIndex(5)) };
        let (mut offset, mut frames, mut heard, mut done) = (0, 0u64, 0u64, false);
        while !done || heard < 40 {
            sender.flush();
            if sender.is_idle() && frames < 40 {
                let body = vec![frames as u8; (frames * 1500) as usize];
                let header = frame(FrameKind::Eager, Some(u128::from(frames)), body.len());
                sender.send(&[&header.to_bytes(), &u128::from(frames).to_le_bytes(), &body]);
                frames += 1;
            }
            if sender.is_idle() && offset < payload.len() {
                let end = (offset + 200_001).min(payload.len());
                let header = frame(FrameKind::Data, None, end - offset + Fragment::BYTES);
                let fragment = Fragment { rendezvous_buffer: rendezvous_buffer.0, offset: offset as u64 };
                sender.send_shared(&[&header.to_bytes()[..], &fragment.to_bytes()].concat(), &source, offset, end);
                offset = end;
            }
            match receiver.next(&mut rendezvous_buffers) {
                Received::Frame(_, kind, digest, body) => {
                    assert_eq!(kind, FrameKind::Eager);
                    assert_eq!((digest, body.bytes().len()), (u128::from(heard), (heard * 1500) as usize));
                    assert!(body.bytes().iter().all(|byte| *byte == heard as u8));
                    heard += 1;
                }
                Received::Landed(id, count) => done |= rendezvous_buffers.advance(id, count) == Some(77),
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
        assert!(matches!(receiver.next(&mut RendezvousBuffers::default()), Received::Closed));
    }

    #[test]
    fn a_reset_is_seen_by_both_ends() {
        for by_sender in [false, true] {
            let (mut sender, mut receiver) = link();
            assert!(!sender.poll_loss());
            if by_sender {
                sender.disconnect()
            } else {
                receiver.inlet().disconnect()
            }
            // The other end learns it from the network.
            let until = Instant::now() + handshake::TIMEOUT;
            while !(sender.poll_loss() && matches!(receiver.next(&mut RendezvousBuffers::default()), Received::Closed))
            {
                assert!(Instant::now() < until, "nobody has noticed");
            }
        }
    }

    #[test]
    fn rubbish_closes_the_link() {
        let (mut sender, mut receiver) = link();
        sender.send(&[&[0xff; 64]]);
        let mut rendezvous_buffers = RendezvousBuffers::default();
        loop {
            match receiver.next(&mut rendezvous_buffers) {
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
        let mut rendezvous_buffers = RendezvousBuffers::default();
        // SAFETY: - place outlives the rendezvous buffer.
        let rendezvous_buffer =
            unsafe { rendezvous_buffers.insert(place.as_mut_ptr(), place.len(), 0, ProcessIndex(5)) };
        let bytes = Arc::new(Bytes(payload.clone()));
        let source: Arc<dyn Source> = bytes.clone();
        // Sends until the kernel takes no more, and part of the payload waits here.
        let mut sent = 0;
        while sender.is_idle() {
            assert!(sent + payload.len() <= place.len(), "the kernel takes everything");
            let header = frame(FrameKind::Data, None, payload.len() + Fragment::BYTES);
            let head = Fragment { rendezvous_buffer: rendezvous_buffer.0, offset: sent as u64 };
            sender.send_shared(&[&header.to_bytes()[..], &head.to_bytes()].concat(), &source, 0, payload.len());
            sent += payload.len();
        }
        sender.detach(source.bytes());
        drop(source);
        drop(Arc::into_inner(bytes).expect("the link has let go of the payload"));
        let mut received = 0;
        while received < sent {
            sender.flush();
            match receiver.next(&mut rendezvous_buffers) {
                Received::Landed(id, count) => {
                    assert_eq!(rendezvous_buffers.advance(id, count), None);
                    received += count;
                }
                Received::Nothing => {}
                _ => panic!("something else came"),
            }
        }
        assert!(place[..sent].chunks(payload.len()).all(|piece| piece == payload));
    }
}
