//! Connections to helpers. A task holds a program's arguments and environment, which may exceed a socket's buffer: the
//! rest is sent once the helper has read some.

use super::HostDaemon;
use super::child::ChildEvent;
use super::fetching;
use control_network::link::Link;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use redrt_wire::clone::CloneId;
use std::os::unix::net::UnixStream;

/// Events to wait for: replies, and room while bytes wait to be sent.
pub(super) fn interest(link: &Link<UnixStream>) -> EpollFlags {
    match link.backlog_bytes() {
        0 => EpollFlags::EPOLLIN,
        _ => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
    }
}

impl HostDaemon {
    pub(super) fn watch_helper(&self, kind: ChildEvent, number: usize, link: &Link<UnixStream>) -> nix::Result<()> {
        self.epoll.add(link.fd(), EpollEvent::new(interest(link), kind.token(number)))
    }

    /// Sends waiting bytes to a helper. Other kinds are ignored.
    pub(super) fn flush_helper(&mut self, kind: ChildEvent, number: usize) {
        let link = match kind {
            ChildEvent::Helper => self.children[number].helper.as_mut(),
            ChildEvent::Sender => self.senders.get_mut(&CloneId(number as u64)).map(|sender| &mut sender.link),
            ChildEvent::Saver => self.savers.get_mut(&number).map(|saver| &mut saver.link),
            ChildEvent::Carrier => self.carriers.get_mut(&number).map(|carrier| &mut carrier.link),
            ChildEvent::Flipper => self.flippers.get_mut(&number).map(|flipper| &mut flipper.link),
            ChildEvent::Fetcher => self.fetching.as_mut().and_then(fetching::Fetching::link),
            ChildEvent::Death | ChildEvent::Agent | ChildEvent::Output | ChildEvent::Error | ChildEvent::Input => None,
        };
        let Some(link) = link else { return };
        // A broken connection shows at the next read.
        let _ = link.flush();
        let _ = self.epoll.modify(link.fd(), &mut EpollEvent::new(interest(link), kind.token(number)));
    }
}
