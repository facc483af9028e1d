//! Connections to helpers. A task has the arguments and the environment of a program, which can be more than a socket
//! takes at once: what is left goes out when the helper has read some of it.

use super::Daemon;
use super::child::Kind;
use control_network::link::Link;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use redrt_wire::clone::CloneId;
use std::os::unix::net::UnixStream;

/// What is waited for: answers, and room while something is left to be sent.
pub(super) fn interest(link: &Link<UnixStream>) -> EpollFlags {
    match link.backlog_bytes() {
        0 => EpollFlags::EPOLLIN,
        _ => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
    }
}

impl Daemon {
    /// Watches the connection to a helper.
    pub(super) fn watch_helper(&self, kind: Kind, number: usize, link: &Link<UnixStream>) -> nix::Result<()> {
        self.epoll.add(link.fd(), EpollEvent::new(interest(link), kind.token(number)))
    }

    /// There is room on the connection to a helper, if it is one.
    pub(super) fn flush_helper(&mut self, kind: Kind, number: usize) {
        let link = match kind {
            Kind::Helper => self.children[number].helper.as_mut(),
            Kind::Sender => self.senders.get_mut(&CloneId(number as u64)).map(|sender| &mut sender.link),
            Kind::Saver => self.savers.get_mut(&number).map(|saver| &mut saver.link),
            Kind::Carrier => self.carriers.get_mut(&number).map(|carrier| &mut carrier.link),
            Kind::Flipper => self.flippers.get_mut(&number).map(|flipper| &mut flipper.link),
            Kind::Fetcher => self.fetching.as_mut().map(|fetching| &mut fetching.link),
            Kind::Death | Kind::Agent | Kind::Output | Kind::Error | Kind::Input => None,
        };
        let Some(link) = link else { return };
        // A broken connection shows when it is read.
        let _ = link.flush();
        let _ = self.epoll.modify(link.fd(), &mut EpollEvent::new(interest(link), kind.token(number)));
    }
}
