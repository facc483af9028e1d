//! The roots of a job on several hosts (`redrun --roots 3`): each host has a member, and one member runs the root.
//!
//! ```text
//!   host 1                          host 2               host 3
//!     redrun --root ═ Mirror ═ member ══ TCP ══ member ══ member        crate root-quorum decides
//!   host 1 is lost                  host 2
//!                                     member ─ starts ─▶ redrun --root --come-back, from the records that are kept
//! ```
//! A member is a process of its own (`redrtd --member`), which neither the end of a daemon nor that of a root ends. The
//! root's records go to the member of its host, and a flush of the journal blocks until most members have them
//! ([`mirror`]). The member on the root's host notices the root's end, and brings it back; an elected member starts a
//! root on its host (`tools/redrtd/src/member.rs`).

pub mod mirror;

use anyhow::{Context, Result};
use control_network::link::Link;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::secret::Secret;
use root_quorum::{Id, Message, Place, Proposal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Exit code of a root that another root has replaced.
pub const REPLACED_CODE: i32 = 77;

/// First argument of `redrtd` as a member. The setup follows on standard input.
pub const MEMBER_FLAG: &str = "--member";
/// File in the root's directory that a living member locks: nobody else brings the root back then.
pub const LOCK: &str = "member";
/// File in which a member notes the host of the root, if that is another.
pub const ELSEWHERE: &str = "elsewhere";

/// First message to a member.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// The member's number.
    pub id: Id,
    /// Address to listen on.
    pub address: IpAddr,
    /// The member's host, by the name that users give it.
    pub host: String,
    /// Other members, one of which leads. Empty for the first.
    pub peers: Vec<(Id, SocketAddr)>,
    /// Wanted number of voters.
    pub voters: u8,
    /// Election timeout: the leader is replaced if it is silent for this long.
    pub timeout: Duration,
    /// Time without a leader after which the member ends.
    pub lease: Duration,
    /// The `redrun` to start roots with; `redrtd` is beside it.
    #[serde(with = "redrt_types::path_bytes")]
    pub redrun: PathBuf,
}

/// Message to a member.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToMember {
    /// From another member: its number and place.
    Hello(Id, Place),
    /// From another member: a message of Raft.
    Raft(Box<Message>),
    /// From another member: the records are not needed any more.
    Over,
    /// From its root: records to keep.
    Propose(Proposal),
    /// From its root: there may be other voters.
    Permit,
    /// From its root: it works.
    Beat,
    /// From its root: the job has ended. It may be silent until a console has seen that.
    Ending,
}

/// The members, as one of them knows them.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    /// Place of each member.
    pub places: Vec<(Id, Place)>,
    /// Members that vote. With a single one, the loss of its host ends the job.
    pub voters: Vec<Id>,
}

/// Message of a member to its root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToRoot {
    /// Number of proposals that are kept.
    Kept(u64),
    /// The members have changed.
    Council(Members),
}

/// A part of a message. Frames are limited; the records that a new member gets first are not.
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
        decode_body(&body).map(Some).context("Failed to read a message of a root or a member")
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
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
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
            Err(error) => Err(error).context("Failed to wait for a member"),
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
            one.send(&ToMember::Propose(Proposal::Append(records.clone())));
            while one.link.backlog_bytes() > 0 {
                one.wait().unwrap();
                one.link.flush().unwrap();
            }
            (records, one)
        });
        let heard = loop {
            match other.hear::<ToMember>().unwrap() {
                Some(message) => break message,
                None => other.wait().unwrap(),
            }
        };
        let (records, one) = sender.join().unwrap();
        assert!(matches!(heard, ToMember::Propose(Proposal::Append(heard)) if heard == records));
        drop(one);
        // A child that another test spawns holds that end too, until its exec.
        while !other.has_ended {
            assert!(other.hear::<ToMember>().unwrap().is_none());
            other.wait().unwrap();
        }
    }
}
