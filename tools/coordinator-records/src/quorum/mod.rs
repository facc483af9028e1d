//! The coordinators of a job on several hosts (`redrun --coordinators 3`): each host has a peer, and one peer runs the
//! coordinator.
//!
//! ```text
//!   host 1                          host 2               host 3
//!     redrun --coordinator ═ Mirror ═ peer ══ TCP ══ peer ══ peer        coordinator-quorum decides
//!   host 1 is lost                  host 2
//!                                     peer ─ starts ─▶ redrun --coordinator --come-back, from the kept records
//! ```
//! A peer is a process of its own (`redrtd --quorum-peer`), which neither the end of a daemon nor that of a coordinator
//! ends. The coordinator's records go to the peer of its host, and a flush of the journal blocks until most peers have
//! them ([`mirror`]). The peer on the coordinator's host notices the coordinator's end, and brings it back; an elected
//! peer starts a coordinator on its host (`tools/redrtd/src/quorum_peer.rs`).

pub mod mirror;

use anyhow::{Context, Result};
use control_network::link::Link;
use coordinator_quorum::{Id, Message, Place, Proposal};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Exit code of a coordinator that another coordinator has replaced.
pub const REPLACED_CODE: i32 = 77;

/// First argument of `redrtd` as a peer. The setup follows on standard input.
pub const PEER_FLAG: &str = "--quorum-peer";
/// File in the coordinator's directory that a living peer locks: nobody else brings the coordinator back then.
pub const LOCK: &str = "member";
/// File in which a peer notes the host of the coordinator, if that is another.
pub const ELSEWHERE: &str = "elsewhere";

/// First message to a peer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// The peer's number.
    pub id: Id,
    /// Address to listen on.
    pub address: IpAddr,
    /// The peer's host, by the name that users give it.
    pub host: String,
    /// Other peers, one of which leads. Empty for the first.
    pub peers: Vec<(Id, SocketAddr)>,
    /// Wanted number of voters.
    pub voters: u8,
    /// Election timeout: the leader is replaced if it is silent for this long.
    pub timeout: Duration,
    /// Time without a leader after which the peer ends.
    pub lease: Duration,
    /// The `redrun` to start coordinators with; `redrtd` is beside it.
    #[serde(with = "redrt_types::path_bytes")]
    pub redrun: PathBuf,
}

/// Message to a peer.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToPeer {
    /// From another peer: its number and place.
    Hello(Id, Place),
    /// From another peer: a message of Raft.
    Raft(Box<Message>),
    /// From another peer: the records are not needed any more.
    Over,
    /// From its coordinator: records to keep.
    Propose(Proposal),
    /// From its coordinator: there may be other voters.
    Permit,
    /// From its coordinator: it works.
    Beat,
    /// From its coordinator: the job has ended. It may be silent until a console has seen that.
    Ending,
}

/// The peers, as one of them knows them.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peers {
    /// Place of each peer.
    pub places: Vec<(Id, Place)>,
    /// Peers that vote. With a single one, the loss of its host ends the job.
    pub voters: Vec<Id>,
}

/// Message of a peer to its coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// Number of proposals that are kept.
    Kept(u64),
    /// The peers have changed.
    Quorum(Peers),
}

/// A part of a message. Frames are limited; the records that a new peer gets first are not.
#[derive(Serialize, Deserialize)]
pub struct Piece {
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    is_last: bool,
}

const PIECE_BYTES: usize = 1 << 20;

/// Splits a message into frames.
pub fn pieces(message: &impl Serialize) -> Vec<Piece> {
    let body = encode_long(message);
    let count = body.chunks(PIECE_BYTES).count();
    let piece = |(at, bytes): (usize, &[u8])| Piece { bytes: bytes.to_vec(), is_last: at + 1 == count };
    body.chunks(PIECE_BYTES).enumerate().map(piece).collect()
}

/// Assembles messages from pieces.
#[derive(Debug, Default)]
pub struct Pieces(Vec<u8>);

impl Pieces {
    /// Adds a piece. Returns the message if it is complete.
    pub fn add<T: DeserializeOwned>(&mut self, piece: Piece) -> Result<Option<T>> {
        self.0.extend_from_slice(&piece.bytes);
        if !piece.is_last {
            return Ok(None);
        }
        let body = std::mem::take(&mut self.0);
        decode_body(&body).map(Some).context("Failed to read a message of a coordinator or a peer")
    }
}

/// A connection between two processes of one host, one of which started the other.
#[derive(Debug)]
pub struct Talk {
    /// Link, for polling.
    pub link: Link<File>,
    pieces: Pieces,
    /// True once the other end is gone.
    pub has_ended: bool,
}

impl Talk {
    /// Uses this stream, which becomes non-blocking.
    ///
    /// # Errors
    /// When the stream's flags cannot be set.
    pub fn new(stream: File) -> Result<Self> {
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&stream, flags).context("Failed to use a connection")?;
        Ok(Self { link: Link::new(stream, None), pieces: Pieces::default(), has_ended: false })
    }

    /// Sends a message. If the other end is gone the message is lost.
    pub fn send(&mut self, message: &impl Serialize) {
        pieces(message).iter().for_each(|piece| self.has_ended |= self.link.send(piece).is_err());
    }

    /// The next message, if one has arrived.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        loop {
            while let Some(piece) = self.link.next_message()? {
                if let Some(message) = self.pieces.add(piece)? {
                    return Ok(Some(message));
                }
            }
            use control_network::link::Received;
            match self.link.receive() {
                Ok(Received::Bytes) => {}
                Ok(Received::Nothing) => return Ok(None),
                Ok(Received::End) | Err(_) => {
                    self.has_ended = true;
                    return Ok(None);
                }
            }
        }
    }

    /// Events to poll for: messages, and room while bytes wait to be sent.
    pub fn awaited(&self) -> PollFd<'_> {
        let waits = self.link.backlog_bytes() > 0;
        let flags = if waits { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        PollFd::new(self.link.fd(), flags)
    }

    /// Blocks until [`Talk::awaited`] is ready.
    pub fn wait(&self) -> Result<()> {
        match poll(&mut [self.awaited()], PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error).context("Failed to wait for a peer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_several_pieces_arrives() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = |stream| Talk::new(File::from(std::os::fd::OwnedFd::from(stream))).unwrap();
        let (mut one, mut other) = (file(one), file(other));
        let records = vec![serde_bytes::ByteBuf::from(vec![7; 3 << 20]), serde_bytes::ByteBuf::from("end")];
        let sender = std::thread::spawn(move || {
            one.send(&ToPeer::Propose(Proposal::Append(records.clone())));
            while one.link.backlog_bytes() > 0 {
                one.wait().unwrap();
                one.link.flush().unwrap();
            }
            (records, one)
        });
        let heard = loop {
            match other.receive::<ToPeer>().unwrap() {
                Some(message) => break message,
                None => other.wait().unwrap(),
            }
        };
        let (records, one) = sender.join().unwrap();
        assert!(matches!(heard, ToPeer::Propose(Proposal::Append(heard)) if heard == records));
        drop(one);
        // A child that another test spawns holds that end too, until its exec.
        while !other.has_ended {
            assert!(other.receive::<ToPeer>().unwrap().is_none());
            other.wait().unwrap();
        }
    }
}
