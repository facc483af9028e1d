//! The connections of a clone: who may connect, and which streams belong together.
//!
//! Both ends prove that they know the secret before anything else is read. Then the source says, in a record of fixed size, to which
//! image the stream belongs.

use crate::secure::{self, Keys};
use redrt_wire::auth::{self, Secret};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"redclon1";
/// The stream goes on with the handshake of [`crate::secure`].
const MAGIC_SECURE: [u8; 8] = *b"redclonS";
/// A connection on which nothing moves for so long is given up, also when the other host has vanished.
pub const STALL_LIMIT: Duration = Duration::from_secs(20);
const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(5);
/// As many streams carry an image at most.
pub const STREAM_COUNT_MAX: u16 = 64;

/// What a stream says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Random: the image it belongs to.
    pub session: [u8; 16],
    /// Its place among the streams.
    pub index: u16,
    /// How many there are.
    pub count: u16,
    /// The process id that the copy must have.
    pub pid: u32,
    /// What follows is encrypted.
    pub secure: bool,
}

impl Greeting {
    /// Bytes of it.
    pub const BYTES: usize = 32;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(if self.secure { &MAGIC_SECURE } else { &MAGIC });
        bytes[8..24].copy_from_slice(&self.session);
        bytes[24..26].copy_from_slice(&self.index.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.count.to_le_bytes());
        bytes[28..].copy_from_slice(&self.pid.to_le_bytes());
        bytes
    }

    /// From bytes; `None` when they are not a greeting of this version.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let greeting = Self {
            session: bytes[8..24].try_into().expect("sixteen bytes"),
            index: half(24),
            count: half(26),
            pid: u32::from_le_bytes(bytes[28..].try_into().expect("four bytes")),
            secure: bytes[..8] == MAGIC_SECURE,
        };
        let fits = (1..=STREAM_COUNT_MAX).contains(&greeting.count) && greeting.index < greeting.count;
        let known = bytes[..8] == MAGIC || bytes[..8] == MAGIC_SECURE;
        (known && fits && (2..1 << 22).contains(&greeting.pid)).then_some(greeting)
    }
}

/// Connects `count` streams for a copy with process id `pid`.
pub fn connect(destination: &str, secret: &Secret, pid: u32, count: u16) -> io::Result<Vec<TcpStream>> {
    let streams = open(destination, secret, pid, count, false)?;
    Ok(streams.into_iter().map(|(stream, _)| stream).collect())
}

/// The same, encrypted.
pub fn connect_secure(destination: &str, secret: &Secret, pid: u32, count: u16) -> io::Result<Vec<(TcpStream, Keys)>> {
    let mut all = Vec::new();
    // The other side goes on when it has all streams.
    for (mut stream, greeting) in open(destination, secret, pid, count, true)? {
        let keys = secure::initiate(&mut stream, secret, &greeting).map_err(authentication)?;
        all.push((stream, keys));
    }
    Ok(all)
}

fn open(
    destination: &str,
    secret: &Secret,
    pid: u32,
    count: u16,
    secure: bool,
) -> io::Result<Vec<(TcpStream, [u8; Greeting::BYTES])>> {
    let addresses: Vec<_> = destination.to_socket_addrs()?.collect();
    let mut session = [0; 16];
    session.copy_from_slice(&Secret::generate()?.key()[..16]);
    (0..count)
        .map(|index| {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            let mut stream = None;
            for address in &addresses {
                match TcpStream::connect_timeout(address, AUTHENTICATION_LIMIT) {
                    Ok(connected) => {
                        stream = Some(connected);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            let mut stream = stream.ok_or(last)?;
            prepare(&stream, AUTHENTICATION_LIMIT)?;
            auth::connect(&mut stream, secret).map_err(authentication)?;
            prepare(&stream, STALL_LIMIT)?;
            let greeting = Greeting { session, index, count, pid, secure }.encode();
            stream.write_all(&greeting)?;
            Ok((stream, greeting))
        })
        .collect()
}

/// Accepts a stream: authenticates it and reads its greeting.
pub fn accept(stream: &mut TcpStream, secret: &Secret) -> io::Result<Greeting> {
    refuse_sealing(secret)?;
    prepare(stream, AUTHENTICATION_LIMIT)?;
    auth::accept(stream, secret).map_err(authentication)?;
    let mut bytes = [0; Greeting::BYTES];
    stream.read_exact(&mut bytes)?;
    prepare(stream, STALL_LIMIT)?;
    Greeting::decode(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not redclone of this version"))
}

/// Where all connections are to be encrypted, an image must not go over one that is not.
fn refuse_sealing(secret: &Secret) -> io::Result<()> {
    if secret.is_sealing() {
        let message = "images are not encrypted on their way, and this job's connections are to be (--secure)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Listens at `address`.
pub fn listen(address: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address)
}

/// Streams that were handed over by number, by a parent that left them open for this process alone.
///
/// # Safety
/// The numbers are open sockets, and nothing else in this process uses them.
pub unsafe fn inherited(numbers: &[RawFd]) -> io::Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for number in numbers {
        // SAFETY: - the caller's promise.
        let fd = unsafe { OwnedFd::from_raw_fd(*number) };
        nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
        streams.push(fd.into());
    }
    Ok(streams)
}

fn authentication(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => error,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            io::Error::new(io::ErrorKind::PermissionDenied, "the other end refuses the secret")
        }
        _ => error,
    }
}

fn prepare(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(STALL_LIMIT))?;
    // Control of congestion by bandwidth estimates costs more than it brings between hosts of one machine room.
    // Where cubic is missing the system's own is used.
    let _ = socket.set_tcp_congestion(b"cubic");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fuzz_greetings_survive_and_rubbish_does_not(mut bytes: [u8; Greeting::BYTES], real: bool, secure: bool) {
            if real {
                bytes[..8].copy_from_slice(if secure { &MAGIC_SECURE } else { &MAGIC });
                bytes[24..28].copy_from_slice(&[1, 0, 4, 0]);
                bytes[28..].copy_from_slice(&[7, 0, 0, 0]);
            }
            match Greeting::decode(&bytes) {
                Some(greeting) => prop_assert_eq!(greeting.encode(), bytes),
                None => prop_assert!(!real),
            }
        }
    }
}
