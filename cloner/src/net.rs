//! The connections of a clone: who may connect, and which streams belong together.
//!
//! Both ends prove that they know the secret before anything else is read; the source says with its proof, in a record
//! of fixed size, to which image the stream belongs. The image itself is encrypted anew between the two processes that
//! carry it ([`crate::secure`]): the process that accepted the stream is another one.

use crate::secure::{self, Keys, SecureReader, SecureWriter};
use redrt_wire::auth;
use redrt_wire::deadline::Limited;
use redrt_wire::secret::Secret;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"redclon2";
/// A connection on which nothing moves for so long is given up, also when the other host has vanished.
pub const STALL_LIMIT: Duration = Duration::from_secs(20);
const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of streams of an image.
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
}

impl Greeting {
    /// Bytes of it.
    pub const BYTES: usize = 32;

    /// As bytes.
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

    /// From bytes; `None` when they are not a greeting of this version.
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

/// One stream of an image, open at both ends.
pub struct Stream {
    socket: TcpStream,
    keys: Keys,
}

impl Stream {
    /// The accepting end of a stream, which has been greeted. Agrees on keys.
    pub fn accepted(mut socket: TcpStream, secret: &Secret, greeting: &Greeting) -> io::Result<Self> {
        let keys = secure::respond(&mut socket, secret, &greeting.encode())?;
        Ok(Self { socket, keys })
    }

    /// The same stream once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, keys: self.keys.clone() })
    }

    /// What is written to it. Those who write one after the other to the same stream have numbers of their own.
    #[must_use]
    pub fn into_writer(self, number: u16) -> Box<dyn Write + Send> {
        Box::new(SecureWriter::new(self.socket, self.keys, number))
    }

    /// What comes from it.
    #[must_use]
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        Box::new(SecureReader::new(self.socket, self.keys))
    }

    /// The other end is not to wait for more.
    pub fn shut_down(&self) {
        // It may be shut down by the other end already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Connects `count` streams for a copy with process id `pid`.
pub fn connect(destination: &str, secret: &Secret, pid: u32, count: u16) -> io::Result<Vec<Stream>> {
    // The other side goes on when it has all streams.
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

/// Takes a stream whose other end has authenticated itself and said this of itself.
pub fn accept(stream: &TcpStream, name: &[u8]) -> io::Result<Greeting> {
    stream.set_nonblocking(false)?;
    prepare(stream)?;
    let greeting = name.try_into().ok().and_then(Greeting::decode);
    greeting.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not redclone of this version"))
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

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL_LIMIT))?;
    stream.set_write_timeout(Some(STALL_LIMIT))?;
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
