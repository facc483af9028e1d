//! A job that outlives its terminal (`redrun --detachable`): its *coordinator*, which runs it, is a process of its own,
//! and the user's `redrun` is a *console* only.
//!
//! ```text
//!   redrun --detachable          redrun --coordinator                daemons
//!     console ──── Attach + its three streams ──▶ coordinator ═══════ processes
//!             ──── Signal, Leave ─────────────▶
//!             ◀─── Running, Left, Displaced, Ended
//! ```
//! A console does not pass output on: the coordinator has the console's own descriptors and writes to them. So the
//! results of `write` tell how much was shown, whatever becomes of the console, and nothing is shown twice or lost.
//! Output without a console is kept (`tools/redrun/src/writer/spooled_output.rs`).
//!
//! Both ends run on one host for one user: the socket is in a directory that only the user can enter, and the
//! coordinator checks the user of each connection.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod client;
pub mod closed;
pub mod consoles;
pub mod user_signals;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, getsockopt, recvmsg, sendmsg,
    socketpair, sockopt,
};
use redrt_wire::frame;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Maximum length of a message, in bytes.
const MESSAGE_BYTES_MAX: usize = 64;

/// Message of a console.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// Use these streams from now on: standard input, output and error come along as descriptors.
    Attach {
        /// The user wants neither summary nor status lines.
        is_quiet: bool,
    },
    /// The user has sent this signal.
    Signal(i32),
    /// Give the terminal back.
    Leave,
}

/// Message of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromCoordinator {
    /// Number of the job, which may not run yet.
    Job(u64),
    /// All processes of this job are started.
    Running(u64),
    /// The terminal is not used any more.
    Left,
    /// Another console has displaced this one.
    Displaced,
    /// The job is over and all output is written. The value is its exit code.
    Ended(i32),
}

/// One end of the connection: a socket that preserves message boundaries and passes descriptors.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// Result of a receive.
#[derive(Debug)]
pub enum Received<T> {
    /// A message with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Nothing has arrived yet.
    Nothing,
    /// The other end is gone, or sent an unreadable message.
    End,
}

impl Channel {
    /// Takes over a connected `SOCK_SEQPACKET` socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Both ends of a new connection.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(one), Self(other)))
    }

    /// User and process at the other end.
    pub fn peer(&self) -> io::Result<(u32, i32)> {
        let peer = getsockopt(&self.0, sockopt::PeerCredentials)?;
        Ok((peer.uid(), peer.pid()))
    }

    /// Sends a message with descriptors. Never blocks: without room the message is lost, as for an end that never
    /// reads.
    ///
    /// # Errors
    /// When the other end is gone, or there is no room.
    pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = frame::encode_body(message);
        let descriptors: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&body)], rights, flags, None)?;
        Ok(())
    }

    /// Receives a message. Never blocks.
    pub fn receive<T: DeserializeOwned>(&self) -> Received<T> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let mut space = cmsg_space!([i32; 3]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Received::Nothing,
            Err(_) => return Received::End,
        };
        let mut descriptors = Vec::new();
        for control in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::ScmRights(received) = control {
                // SAFETY: - the kernel has just made these descriptors for this process, and nothing else owns them.
                descriptors.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        let byte_count = message.bytes;
        // No message is empty.
        match frame::decode_body(&bytes[..byte_count]) {
            Ok(message) if byte_count > 0 => Received::Message(message, descriptors),
            _ => Received::End,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn messages_stay_apart_and_bring_descriptors() {
        let (one, other) = Channel::pair().unwrap();
        assert!(matches!(other.receive::<ToCoordinator>(), Received::Nothing));
        let (mut reader, writer) = std::io::pipe().unwrap();
        one.send(&ToCoordinator::Attach { is_quiet: true }, &[writer.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        one.send(&ToCoordinator::Signal(2), &[]).unwrap();
        drop(writer);
        let Received::Message(ToCoordinator::Attach { is_quiet: true }, streams) = other.receive() else { panic!() };
        assert_eq!(streams.len(), 3);
        File::from(streams.into_iter().next().unwrap()).write_all(b"shown").unwrap();
        assert_eq!(std::io::read_to_string(&mut reader).unwrap(), "shown");
        assert!(matches!(other.receive(), Received::Message(ToCoordinator::Signal(2), none) if none.is_empty()));
        assert_eq!(other.peer().unwrap(), (nix::unistd::geteuid().as_raw(), std::process::id() as i32));
        drop(one);
        assert!(matches!(other.receive::<ToCoordinator>(), Received::End));
        assert!(other.send(&FromCoordinator::Left, &[]).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_message_or_the_end(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
            let (one, other) = Channel::pair().unwrap();
            nix::sys::socket::send(one.0.as_raw_fd(), &bytes, MsgFlags::empty()).unwrap();
            let _ = other.receive::<ToCoordinator>();
            assert!(matches!(other.receive::<ToCoordinator>(), Received::Nothing));
        }
    }
}
