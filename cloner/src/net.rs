//! The connections of a clone: who may connect, and which streams belong together.
//!
//! Both ends prove that they know the secret before anything else is read. Then the source says, in a record of fixed size, to which
//! image the stream belongs.

use crate::secure::{self, Keys, SecureReader, SecureWriter};
use redrt_wire::auth::{self, Secret};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
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

/// One stream of an image, open at both ends.
pub struct Stream {
    socket: TcpStream,
    /// If what goes over it is encrypted.
    keys: Option<Keys>,
}

impl Stream {
    /// The accepting end of a stream, whose greeting has been read. Agrees on keys if that says so.
    pub fn accepted(mut socket: TcpStream, secret: &Secret, greeting: &Greeting) -> io::Result<Self> {
        let keys = greeting.secure.then(|| secure::respond(&mut socket, secret, &greeting.encode())).transpose()?;
        Ok(Self { socket, keys })
    }

    /// The accepting end of one that is not encrypted.
    #[must_use]
    pub fn plain(socket: TcpStream) -> Self {
        Self { socket, keys: None }
    }

    /// The same stream once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, keys: self.keys.clone() })
    }

    /// What is written to it. Those who write one after the other to the same stream have numbers of their own.
    #[must_use]
    pub fn into_writer(self, number: u16) -> Box<dyn Write + Send> {
        match self.keys {
            Some(keys) => Box::new(SecureWriter::new(self.socket, keys, number)),
            None => Box::new(self.socket),
        }
    }

    /// What comes from it.
    #[must_use]
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        match self.keys {
            Some(keys) => Box::new(SecureReader::new(self.socket, keys)),
            None => Box::new(self.socket),
        }
    }

    /// The other end is not to wait for more.
    pub fn shut_down(&self) {
        // It may be shut down by the other end already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Connects `count` streams for a copy with process id `pid`, encrypted if the secret says so.
pub fn connect(destination: &str, secret: &Secret, pid: u32, count: u16) -> io::Result<Vec<Stream>> {
    // The other side goes on when it has all streams.
    let opened = open(destination, secret, pid, count)?;
    let agree = |(mut socket, greeting): (TcpStream, Greeting)| {
        let agreed = greeting.secure.then(|| secure::initiate(&mut socket, secret, &greeting.encode()));
        Ok(Stream { keys: agreed.transpose().map_err(authentication)?, socket })
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
            let mut stream = stream.ok_or(last)?;
            prepare(&stream, AUTHENTICATION_LIMIT)?;
            auth::connect(&mut stream, &secret.clone().sealing(false)).map_err(authentication)?;
            prepare(&stream, STALL_LIMIT)?;
            let greeting = Greeting { session, index, count, pid, secure: secret.is_sealing() };
            stream.write_all(&greeting.encode())?;
            Ok((stream, greeting))
        })
        .collect()
}

/// Accepts a stream: authenticates it and reads its greeting. One that is not encrypted is refused where the secret says that all are.
pub fn accept(stream: &mut TcpStream, secret: &Secret) -> io::Result<Greeting> {
    prepare(stream, AUTHENTICATION_LIMIT)?;
    auth::accept(stream, &secret.clone().sealing(false)).map_err(authentication)?;
    let mut bytes = [0; Greeting::BYTES];
    stream.read_exact(&mut bytes)?;
    prepare(stream, STALL_LIMIT)?;
    let greeting = Greeting::decode(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not redclone of this version"))?;
    if secret.is_sealing() && !greeting.secure {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "its connection is not encrypted"));
    }
    Ok(greeting)
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
