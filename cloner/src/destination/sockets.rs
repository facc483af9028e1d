//! Makes pairs of stream sockets with the bytes that were not read.

use crate::image::state::Socket;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, setsockopt, shutdown, socketpair, sockopt,
};
use nix::sys::time::TimeVal;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Ends by their ids.
pub(super) type Ends = BTreeMap<u64, OwnedFd>;

/// Makes all pairs. An end that is closed is closed at once.
pub(super) fn make(sockets: &[Socket]) -> io::Result<Ends> {
    let mut ends = Ends::new();
    for socket in sockets {
        if ends.contains_key(&socket.id) {
            continue;
        }
        let (one, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        let peer = sockets.iter().find(|end| end.id == socket.peer && socket.peer != 0);
        set(&one, socket)?;
        if let Some(peer) = peer {
            set(&other, peer)?;
            fill(&one, &peer.content)?;
        }
        fill(&other, &socket.content)?;
        shut(&one, socket)?;
        ends.insert(socket.id, one);
        if let Some(peer) = peer {
            shut(&other, peer)?;
            ends.insert(peer.id, other);
        }
    }
    Ok(ends)
}

fn set(end: &OwnedFd, socket: &Socket) -> io::Result<()> {
    // The kernel doubles what it is told. An unprivileged user may get less than asked for: it suffices if the content
    // fits.
    let _ = setsockopt(end, sockopt::SndBuf, &(socket.send_buffer_bytes / 2));
    setsockopt(end, sockopt::PassCred, &socket.passes_credentials)?;
    let time = |(seconds, microseconds)| TimeVal::new(seconds, microseconds);
    setsockopt(end, sockopt::ReceiveTimeout, &time(socket.receive_timeout))?;
    setsockopt(end, sockopt::SendTimeout, &time(socket.send_timeout))?;
    Ok(())
}

/// Sends bytes for the other end to receive.
fn fill(from: &OwnedFd, content: &[u8]) -> io::Result<()> {
    if content.is_empty() || send(from.as_raw_fd(), content, MsgFlags::MSG_DONTWAIT) == Ok(content.len()) {
        return Ok(());
    }
    Err(io::Error::other("a pair of sockets does not take what is in it"))
}

fn shut(end: &OwnedFd, socket: &Socket) -> io::Result<()> {
    let how = match socket.shutdown {
        1 => Shutdown::Read,
        2 => Shutdown::Write,
        3 => Shutdown::Both,
        _ => return Ok(()),
    };
    Ok(shutdown(end.as_raw_fd(), how)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;

    fn socket(id: u64, peer: u64, shutdown: u8, content: &[u8]) -> Socket {
        Socket {
            id,
            peer,
            shutdown,
            send_buffer_bytes: 212_992,
            passes_credentials: false,
            receive_timeout: (0, 0),
            send_timeout: (3, 0),
            content: ByteBuf::from(content),
        }
    }

    fn rest(end: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        let length = nix::sys::socket::recv(end.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn both_ends_have_their_bytes_and_a_closed_end_is_closed() {
        let ends =
            make(&[socket(5, 6, 2, b"for five"), socket(7, 0, 3, b"for seven"), socket(6, 5, 1, b"six")]).unwrap();
        assert_eq!(ends.keys().copied().collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!([5, 6, 7].map(|id| rest(&ends[&id])), [&b"for five"[..], b"six", b"for seven"]);
        // Nobody sends to 6 and 7 any more; 6 still sends to 5.
        assert_eq!([6, 7].map(|id| rest(&ends[&id])), [b"", b""]);
        fill(&ends[&6], b"more").unwrap();
        assert_eq!(rest(&ends[&5]), b"more");
        assert_eq!(nix::sys::socket::getsockopt(&ends[&5], sockopt::SendTimeout), Ok(TimeVal::new(3, 0)));
    }
}
