//! Pairs of stream sockets within the process (`socketpair`), by which its threads reach each other.
//!
//! The kernel tells the other end of a socket by its inode (sock_diag(7)). A socket whose other end is in the process,
//! or was closed, is carried with the bytes that were not read.

use super::{Descriptors, OfDescriptor, Refusal, socket_name};
use crate::control::Control;
use crate::image::state::{Open, Socket};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, UnixAddr, getsockname, getsockopt, recv, recvmsg, send,
    socket, sockopt,
};
use serde_bytes::ByteBuf;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};

/// Facts that the kernel tells of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    /// Inode of the other end; 0 if that is closed.
    peer: u64,
    /// Directions that are shut down: 1 for receiving, 2 for sending.
    shutdown: u8,
}

/// Message types and attributes: linux/sock_diag.h, linux/unix_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_SHUTDOWN: u16 = 6;
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 16;

/// A request about one socket: a header of netlink and a `unix_diag_req`.
fn request(inode: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    bytes.extend(40_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence and sender: one request at a time, to the kernel.
    bytes.extend([0; 8]);
    bytes.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    // In any state; without a cookie.
    bytes.extend([u32::MAX, inode, UDIAG_SHOW_PEER, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat());
    bytes
}

/// Reads the kernel's answer. `None` for an error, and for a socket that is not connected.
fn parse(answer: &[u8]) -> Option<Facts> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let (mut rest, mut peer, mut shutdown) = (answer.get(HEADER_BYTES + MESSAGE_BYTES..)?, None, 0);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    while let Some(header) = rest.get(..4) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = rest.get(4..length)?;
        match u16::from_ne_bytes([header[2], header[3]]) {
            UNIX_DIAG_PEER => peer = Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?).into()),
            UNIX_DIAG_SHUTDOWN => shutdown = *value.first()?,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Facts { peer: peer?, shutdown })
}

fn facts(inode: u64) -> io::Result<Option<Facts>> {
    let Ok(inode) = u32::try_from(inode) else { return Ok(None) };
    let kernel =
        socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    send(kernel.as_raw_fd(), &request(inode), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    Ok(parse(&answer[..length]))
}

/// Inode in the link of a socket, `socket:[4711]`.
fn inode(link: &[u8]) -> Option<u64> {
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The end of a pair behind a descriptor. Others are refused by their names.
pub(super) fn inspect(control: &Control, fd: i32, link: &[u8]) -> Result<Open, OfDescriptor> {
    let refused = || OfDescriptor::Socket(socket_name(control, fd));
    let id = inode(link).ok_or_else(refused)?;
    let own = control.descriptor(fd).map_err(|_| refused())?;
    let is_stream = getsockopt(&own, sockopt::SockType) == Ok(SockType::Stream);
    let is_unnamed = getsockname::<UnixAddr>(own.as_raw_fd()).is_ok_and(|name| name.path_len() == 0);
    let is_connected = || facts(id).is_ok_and(|facts| facts.is_some());
    if is_stream && is_unnamed && is_connected() { Ok(Open::Socket { id }) } else { Err(refused()) }
}

/// Records the sockets, with their bytes if the process is `stopped`. One whose other end is in another process is
/// refused, or left out.
pub(super) fn gather(
    control: &Control,
    all: &mut Descriptors,
    close_unsupported: bool,
    stopped: bool,
) -> io::Result<()> {
    let of = |descriptor: &crate::image::state::Descriptor| match descriptor.open {
        Open::Socket { id } if descriptor.same_as.is_none() => Some((id, descriptor.fd)),
        _ => None,
    };
    let found: Vec<(u64, i32)> = all.list.iter().filter_map(of).collect();
    for (id, fd) in &found {
        let facts = facts(*id)?.filter(|facts| facts.peer == 0 || found.iter().any(|(other, _)| *other == facts.peer));
        let end = match facts {
            Some(facts) if stopped => read(*id, facts, &control.descriptor(*fd)?)?,
            // The other end may have been closed since it was listed.
            Some(_) => continue,
            None => None,
        };
        match end {
            Some(end) => all.sockets.push(end),
            None if !stopped && facts.is_none() && control.proc_link(&format!("fd/{fd}")).is_err() => {}
            None => {
                if !close_unsupported {
                    let what = OfDescriptor::Socket(socket_name(control, *fd));
                    all.refusals.push(Refusal::Descriptor { fd: *fd, what });
                }
                all.list.retain(|descriptor| !matches!(descriptor.open, Open::Socket { id: found } if found == *id));
            }
        }
    }
    Ok(())
}

/// Reads the state of an end. `None` if descriptors are under way in it.
fn read(id: u64, facts: Facts, end: &OwnedFd) -> io::Result<Option<Socket>> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: - `waiting` is a local `c_int`, which is what FIONREAD writes.
    nix::errno::Errno::result(unsafe { libc::ioctl(end.as_raw_fd(), libc::FIONREAD, &raw mut waiting) })?;
    let mut bytes = vec![0; waiting.max(0) as usize];
    if !bytes.is_empty() {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg::<UnixAddr>(end.as_raw_fd(), &mut parts, None, flags)?;
        let (has_more, length) = (message.flags.contains(MsgFlags::MSG_CTRUNC), message.bytes);
        if has_more || length != bytes.len() {
            return Ok(None);
        }
    }
    let time = |time: nix::Result<nix::sys::time::TimeVal>| {
        time.map(|time| (time.tv_sec(), time.tv_usec())).unwrap_or_default()
    };
    Ok(Some(Socket {
        id,
        peer: facts.peer,
        shutdown: facts.shutdown,
        send_buffer_bytes: getsockopt(end, sockopt::SndBuf)?,
        passes_credentials: getsockopt(end, sockopt::PassCred)?,
        receive_timeout: time(getsockopt(end, sockopt::ReceiveTimeout)),
        send_timeout: time(getsockopt(end, sockopt::SendTimeout)),
        content: ByteBuf::from(bytes),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::socketpair;

    fn id(end: &OwnedFd) -> u64 {
        nix::sys::stat::fstat(end).unwrap().st_ino
    }

    #[test]
    fn the_other_end_of_a_pair_is_known_until_it_is_closed() {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).unwrap();
        assert_eq!(facts(id(&one)).unwrap(), Some(Facts { peer: id(&other), shutdown: 0 }));
        nix::sys::socket::shutdown(one.as_raw_fd(), nix::sys::socket::Shutdown::Write).unwrap();
        assert_eq!(facts(id(&one)).unwrap(), Some(Facts { peer: id(&other), shutdown: 2 }));
        assert_eq!(facts(id(&other)).unwrap(), Some(Facts { peer: id(&one), shutdown: 1 }));
        drop(other);
        assert_eq!(facts(id(&one)).unwrap().map(|facts| facts.peer), Some(0));
        let alone = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        assert_eq!(facts(id(&alone)).unwrap(), None);
    }

    #[test]
    fn bytes_of_a_pair_are_read_and_stay() {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).unwrap();
        for word in [&b"three "[..], b"words ", b"here"] {
            nix::unistd::write(&one, word).unwrap();
        }
        for _ in 0..2 {
            let state = read(id(&other), Facts { peer: id(&one), shutdown: 0 }, &other).unwrap().unwrap();
            assert_eq!(&state.content[..], b"three words here");
        }
    }

    #[test]
    fn answers_that_are_cut_are_no_facts() {
        let (one, _other) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).unwrap();
        assert!(facts(id(&one)).unwrap().is_some());
        let answer = [&[0; 4][..], &SOCK_DIAG_BY_FAMILY.to_ne_bytes(), &[0; 26], &[8, 0, 2, 0, 1, 0]].concat();
        (0..=answer.len()).for_each(|end| assert_eq!(parse(&answer[..end]), None));
    }
}
