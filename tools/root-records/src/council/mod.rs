//! The roots of a job on several hosts (`redrun --roots 3`): a member on each, of which one runs the root.
//!
//! ```text
//!   host 1                          host 2               host 3
//!     redrun --root ═ Mirror ═ member ══ TCP ══ member ══ member        crate root-quorum decides
//!   host 1 is lost                  host 2
//!                                     member ─ starts ─▶ redrun --root --come-back, from the records that are kept
//! ```
//! A member is a process of its own (`redrtd --member`): neither a daemon that ends nor a root that is killed takes it
//! along. The root's records go to the member of its host, and a flush of the journal waits until most members have
//! them ([`mirror`]). The member of the root's host sees its end, and brings it back; one that is elected starts a root
//! on its host (`tools/redrtd/src/member.rs`).

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

/// The exit code of a root whose place another has taken.
pub const REPLACED_CODE: i32 = 77;

/// First argument of `redrtd` as a member. What it is to do follows on standard input.
pub const MEMBER_FLAG: &str = "--member";
/// A member locks this file in the root's directory while it lives: nobody else brings the root back then.
pub const LOCK: &str = "member";
/// It writes here which host has the root, when that is another.
pub const ELSEWHERE: &str = "elsewhere";

/// What a member is told first.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// Its own number.
    pub id: Id,
    /// Where it listens.
    pub address: IpAddr,
    /// Its host, as users call it.
    pub host: String,
    /// Others, of whom one leads; none for the first.
    pub peers: Vec<(Id, SocketAddr)>,
    /// How many voters there are to be.
    pub voters: u8,
    /// After this time a member that is silent is replaced.
    pub timeout: Duration,
    /// It ends when there was no root for so long.
    pub lease: Duration,
    /// The programs that it starts: `redrun` beside `redrtd`.
    #[serde(with = "redrt_types::path_bytes")]
    pub redrun: PathBuf,
}

/// What a member is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToMember {
    /// By another: who it is.
    Hello(Id, Place),
    /// By another.
    Raft(Box<Message>),
    /// By another, which knows that the records are not needed any more.
    Over,
    /// By its root: this is to be kept.
    Propose(Proposal),
    /// By its root: others may become voters.
    Permit,
    /// By its root: it works.
    Beat,
    /// By its root: the job has ended. It may be silent from now on, until somebody has seen that.
    Ending,
}

/// All members, as one of them knows them.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    /// Where they are.
    pub places: Vec<(Id, Place)>,
    /// Those whose votes count. With one, the loss of its host ends the job.
    pub voters: Vec<Id>,
}

/// What a root is told by its member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToRoot {
    /// So much of what it has proposed is kept.
    Kept(u64),
    /// These are the members.
    Council(Members),
}

/// A piece of a message: frames have a limit, and what a new member is given first has none.
#[derive(Serialize, Deserialize)]
pub struct Piece {
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    is_last: bool,
}

const PIECE_BYTES: usize = 1 << 20;

/// A message as it goes over a connection.
pub fn pieces(message: &impl Serialize) -> Vec<Piece> {
    let body = encode_long(message);
    let count = body.chunks(PIECE_BYTES).count();
    let piece = |(at, bytes): (usize, &[u8])| Piece { bytes: bytes.to_vec(), is_last: at + 1 == count };
    body.chunks(PIECE_BYTES).enumerate().map(piece).collect()
}

/// Puts messages together again.
#[derive(Debug, Default)]
pub struct Pieces(Vec<u8>);

impl Pieces {
    /// The message, if this was its last piece.
    pub fn add<T: DeserializeOwned>(&mut self, piece: Piece) -> Result<Option<T>> {
        self.0.extend_from_slice(&piece.bytes);
        if !piece.is_last {
            return Ok(None);
        }
        let body = std::mem::take(&mut self.0);
        decode_body(&body).map(Some).context("Failed to read a message of a root or a member")
    }
}

/// A connection between processes of one host, of which one has started the other.
#[derive(Debug)]
pub struct Talk {
    /// By which it is waited for.
    pub link: Link<File>,
    pieces: Pieces,
    /// The other end is gone.
    pub has_ended: bool,
}

impl Talk {
    /// Over this stream, which does not block from now on.
    ///
    /// # Errors
    /// When that cannot be had.
    pub fn new(stream: File) -> Result<Self> {
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&stream, flags).context("Failed to use a connection")?;
        Ok(Self { link: Link::new(stream, None), pieces: Pieces::default(), has_ended: false })
    }

    /// To one that is gone it is lost.
    pub fn send(&mut self, message: &impl Serialize) {
        pieces(message).iter().for_each(|piece| self.has_ended |= self.link.send(piece).is_err());
    }

    /// The next message that has come.
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

    /// What to wait for: that something can be received, or what waits can be sent.
    pub fn awaited(&self) -> PollFd<'_> {
        let waits = self.link.backlog_bytes() > 0;
        let flags = if waits { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        PollFd::new(self.link.fd(), flags)
    }

    /// Waits for that.
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
        // A process that another test starts just now has that end, too, until it runs its program.
        while !other.has_ended {
            assert!(other.hear::<ToMember>().unwrap().is_none());
            other.wait().unwrap();
        }
    }
}
