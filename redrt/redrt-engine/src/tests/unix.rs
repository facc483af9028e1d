//! A network over Unix sockets, as an example: the parts that a module for another network needs.
//!
//! Sockets of kind SEQPACKET keep the borders of frames, so each frame comes as a whole. For tests only: peers prove no
//! identity.

use redrt_transport::RendezvousBuffers;
use redrt_transport::network::{Connecting, Incoming, Inlet, Name, Network, Opening, Outlet, Received, whole_frame};
use redrt_types::ProcessIndex;
use socket2::{Domain, SockAddr, Socket, Type};
use std::any::Any;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

const FRAME_BYTES_MAX: usize = 16 << 10;
const DATA_BYTES_MAX: usize = 8 << 10;

/// The network. The address of a process is the path of its socket.
pub struct Unix;

impl Network for Unix {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn connect(&self, opening: Opening) -> Connecting {
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
            socket.connect(&SockAddr::unix(&opening.address)?)?;
            socket.send(&opening.name.to_bytes())?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(socket)
        };
        let sending = |socket| Sending { socket, waiting: VecDeque::new(), sent_bytes: 0, is_broken: false };
        connect().map_or(Connecting::Refused, |socket| Connecting::Open(Box::new(sending(socket))))
    }
}

/// Listening socket of a process.
pub struct Listener(Socket);

impl Listener {
    /// Listens at this path.
    pub fn bind(path: &Path) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        socket.listen(8)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// The next connection that another process has opened, if any.
    pub fn accept(&self) -> Option<Incoming> {
        let (socket, _) = self.0.accept().ok()?;
        let mut name = [0; Name::BYTES];
        (&socket).read_exact(&mut name).ok()?;
        socket.set_nonblocking(true).ok()?;
        let receiving = Receiving { socket, frame: vec![0; FRAME_BYTES_MAX], taken_bytes: 0 };
        Some(Incoming::new(Name::from_bytes(name), Box::new(receiving)))
    }
}

struct Sending {
    socket: Socket,
    waiting: VecDeque<Vec<u8>>,
    sent_bytes: u64,
    is_broken: bool,
}

impl Outlet for Sending {
    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn data_bytes_max(&self) -> usize {
        DATA_BYTES_MAX
    }

    fn send(&mut self, parts: &[&[u8]]) {
        self.waiting.push_back(parts.concat());
        self.sent_bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(frame) = self.waiting.front() {
            match (&self.socket).write(frame) {
                Ok(_) => _ = self.waiting.pop_front(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.is_broken = true;
                    self.waiting.clear();
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    fn has_arrived(&self) -> bool {
        // The kernel puts bytes straight into the other end's buffer.
        self.waiting.is_empty()
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn disconnect(&self) {
        // Fails if the other end is gone already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn waits_on(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }
}

struct Receiving {
    socket: Socket,
    frame: Vec<u8>,
    taken_bytes: u64,
}

impl Inlet for Receiving {
    fn next(&mut self, from: ProcessIndex, rendezvous_buffers: &mut RendezvousBuffers) -> Received {
        match (&self.socket).read(&mut self.frame) {
            Ok(0) => Received::Closed,
            Ok(length) => {
                self.taken_bytes += length as u64;
                whole_frame(from, &self.frame[..length], rendezvous_buffers)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    fn waits_on(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    fn disconnect(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
