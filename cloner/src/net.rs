//! Connections of a clone: authentication, and which streams belong together.
//!
//! Both ends prove that they know the secret before anything else is read. With its proof the source sends a record of
//! fixed size that names the stream's image. A second handshake follows between the two processes that carry the image
//! ([`crate::secure`]), because another process accepted the connection.

use crate::secure::{self, Keys, SecureReader, SecureWriter};
use redrt_wire::auth;
use redrt_wire::deadline::Limited;
use redrt_wire::secret::Secret;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"redclon2";
/// A connection without progress for this long is given up, which also covers a host that vanished.
pub const STALL_LIMIT: Duration = Duration::from_secs(20);
const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(5);
/// Most streams that an image is sent through.
pub const STREAM_COUNT_MAX: u16 = 64;

/// The record that introduces a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Random number of the image that the stream belongs to.
    pub session: [u8; 16],
    /// Index of the stream, from 0.
    pub index: u16,
    /// Number of streams of the image.
    pub count: u16,
    /// Process id that the copy must have.
    pub pid: u32,
}

impl Greeting {
    /// Bytes of an encoded greeting.
    pub const BYTES: usize = 32;

    /// Encodes the greeting, little endian.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.session);
        bytes[24..26].copy_from_slice(&self.index.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.count.to_le_bytes());
        bytes[28..].copy_from_slice(&self.pid.to_le_bytes());
        bytes
    }

    /// Decodes a greeting. `None` if the version differs, or a field is out of bounds.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let greeting = Self {
            session: bytes[8..24].try_into().expect("sixteen bytes"),
            index: half(24),
            count: half(26),
            pid: u32::from_le_bytes(bytes[28..].try_into().expect("four bytes")),
        };
        let fits = (1..=STREAM_COUNT_MAX).contains(&greeting.count) && greeting.index < greeting.count;
        (bytes[..8] == MAGIC && fits && (2..1 << 22).contains(&greeting.pid)).then_some(greeting)
    }
}

/// One stream of an image, open at both ends, with its keys.
pub struct Stream {
    socket: TcpStream,
    keys: Keys,
}

impl Stream {
    /// Makes the accepting end of a stream whose greeting was read, by agreeing on keys.
    pub fn accepted(mut socket: TcpStream, secret: &Secret, greeting: &Greeting) -> io::Result<Self> {
        let keys = secure::respond(&mut socket, secret, &greeting.encode())?;
        Ok(Self { socket, keys })
    }

    /// Duplicates the handle, with the same keys.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, keys: self.keys.clone() })
    }

    /// Writing half. Successive writers of one stream need ascending `number`s, which keep their nonces apart.
    #[must_use]
    pub fn into_writer(self, number: u16) -> Box<dyn Write + Send> {
        Box::new(SecureWriter::new(self.socket, self.keys, number))
    }

    /// Reading half of the stream.
    #[must_use]
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        Box::new(SecureReader::new(self.socket, self.keys))
    }

    /// Ends the connection in both directions, so that the other end stops waiting.
    pub fn shut_down(&self) {
        // The other end may have shut it down already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Connects `count` streams for a copy with process id `pid`.
///
/// Errors if no address of `destination` answers, or the secret is refused.
pub fn connect(destination: &str, secret: &Secret, pid: u32, count: u16) -> io::Result<Vec<Stream>> {
    // All streams are opened before the first key exchange: the destination answers once it has all of them.
    let opened = open(destination, secret, pid, count)?;
    let agree = |(mut socket, greeting): (TcpStream, Greeting)| {
        let keys = secure::initiate(&mut socket, secret, &greeting.encode()).map_err(authentication)?;
        Ok(Stream { keys, socket })
    };
    opened.into_iter().map(agree).collect()
}

fn open(destination: &str, secret: &Secret, pid: u32, count: u16) -> io::Result<Vec<(TcpStream, Greeting)>> {
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
            let stream = stream.ok_or(last)?;
            prepare(&stream)?;
            let greeting = Greeting { session, index, count, pid };
            let mut limited = Limited::new(&stream, Instant::now() + AUTHENTICATION_LIMIT);
            auth::connect(&mut limited, &secret.clone().sealing(true), &greeting.encode()).map_err(authentication)?;
            prepare(&stream)?;
            Ok((stream, greeting))
        })
        .collect()
}

/// Takes a stream whose other end has authenticated itself under `name`, an encoded [`Greeting`].
pub fn accept(stream: &TcpStream, name: &[u8]) -> io::Result<Greeting> {
    stream.set_nonblocking(false)?;
    prepare(stream)?;
    let greeting = name.try_into().ok().and_then(Greeting::decode);
    greeting.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not redclone of this version"))
}

/// Takes over streams that a parent left open for this process alone, by descriptor number.
///
/// # Safety
/// Each number is an open socket, and nothing else in this process uses it.
pub unsafe fn inherited(numbers: &[RawFd]) -> io::Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for number in numbers {
        // SAFETY: - `*number` is open and owned by nobody else, as this function's contract demands.
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

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL_LIMIT))?;
    stream.set_write_timeout(Some(STALL_LIMIT))?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(STALL_LIMIT))?;
    // Congestion control by bandwidth estimates (BBR) costs more than it gains within a machine room. Without cubic the
    // system's default stays.
    let _ = socket.set_tcp_congestion(b"cubic");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fuzz_greetings_survive_and_rubbish_does_not(mut bytes: [u8; Greeting::BYTES], real: bool) {
            if real {
                bytes[..8].copy_from_slice(&MAGIC);
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
