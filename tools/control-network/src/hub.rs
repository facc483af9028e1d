//! Authenticated connections, accepted and dialled, behind one descriptor to wait on.
//!
//! Addresses to dial and messages to send enter; [`Event`]s leave. The [`Door`] does the handshakes. No frame is read
//! before the other end has proved that it knows a secret of this hub, and everything is encrypted.

use super::door::{Door, Met, Opened, Refusal};
use crate::link::{Link, Received};
use anyhow::Result;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use redrt_wire::secret::Secret;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

const EVENTS_AT_ONCE: usize = 256;
const DOOR_TOKEN: u64 = u64::MAX;

/// A connection of a hub.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LinkId(u64);

impl LinkId {
    /// The id of no connection, for tests.
    #[must_use]
    pub const fn of_nobody(number: u64) -> Self {
        Self(u64::MAX - number)
    }
}

/// An event of a hub.
#[derive(Debug)]
pub enum Event {
    /// A holder of a secret has connected. The number is the secret's index.
    Accepted(LinkId, usize),
    /// A connection without a valid secret was refused.
    Refused(Refusal),
    /// Outcome of a dial.
    Dialled {
        /// The number given to [`Hub::dial`].
        purpose: u64,
        /// The connection, or the reason for its failure.
        result: io::Result<LinkId>,
    },
    /// Messages may have arrived.
    Readable(LinkId),
    /// The connection has ended. Messages that had arrived can still be read.
    Closed(LinkId),
}

struct HubConnection {
    link: Link<TcpStream>,
    local: IpAddr,
    watched_for_writing: bool,
}

/// Connections: see the module.
pub struct Hub {
    secret: Secret,
    door: Door,
    epoll: Epoll,
    entries: HashMap<LinkId, HubConnection>,
    next: u64,
}

impl Hub {
    /// Listens on this address (port 0: any).
    pub fn new(address: SocketAddr, secret: Secret) -> Result<Self> {
        Self::with_keys(address, vec![secret])
    }

    /// Listens for holders of any of several secrets. The first one is used for dialling.
    ///
    /// # Panics
    /// When `secrets` is empty.
    pub fn with_keys(address: SocketAddr, secrets: Vec<Secret>) -> Result<Self> {
        let first = secrets[0].clone();
        Self::behind(Door::new(address, secrets, 0)?, first)
    }

    /// A hub for dialling only.
    pub fn without_door(secret: Secret) -> Result<Self> {
        Self::behind(Door::without_listener(vec![secret.clone()])?, secret)
    }

    fn behind(door: Door, secret: Secret) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(door.fd(), EpollEvent::new(EpollFlags::EPOLLIN, DOOR_TOKEN))?;
        Ok(Self { secret, door, epoll, entries: HashMap::new(), next: 0 })
    }

    /// Address of the listener; port 0 without one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// The secret used for dialling.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Readable when [`Hub::events`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Takes over a connection whose handshake has succeeded.
    pub fn adopt(&mut self, opened: Opened) -> io::Result<LinkId> {
        let Opened { stream, cipher, .. } = opened;
        stream.set_nonblocking(true)?;
        let local = stream.local_addr()?.ip();
        let id = LinkId(self.next);
        self.next += 1;
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, id.0))?;
        self.entries
            .insert(id, HubConnection { link: Link::new(stream, Some(cipher)), local, watched_for_writing: false });
        Ok(id)
    }

    /// This host's address on a connection.
    #[must_use]
    pub fn local_address(&self, id: LinkId) -> Option<IpAddr> {
        self.entries.get(&id).map(|entry| entry.local)
    }

    /// Connects to another daemon. [`Event::Dialled`] follows within `time_max`.
    pub fn dial(&mut self, purpose: u64, address: SocketAddr, time_max: Duration) {
        self.door.dial(purpose, address, time_max);
    }

    /// Sends a message, or queues it until the connection takes it. On a broken connection it is lost.
    pub fn send<T: Serialize>(&mut self, id: LinkId, message: &T) {
        if let Some(entry) = self.entries.get_mut(&id) {
            // A broken connection shows at the next read.
            let _ = entry.link.send(message);
            self.watch_for_writing(id);
        }
    }

    /// Bytes that wait to be sent on a connection.
    #[must_use]
    pub fn backlog_bytes(&self, id: LinkId) -> usize {
        self.entries.get(&id).map_or(0, |entry| entry.link.backlog_bytes())
    }

    /// The next message that has arrived. After an error the connection is of no more use.
    pub fn next_message<T: DeserializeOwned>(&mut self, id: LinkId) -> Result<Option<T>> {
        self.entries.get_mut(&id).map_or(Ok(None), |entry| entry.link.next_message())
    }

    /// Closes a connection, after an attempt to send what waits.
    pub fn close(&mut self, id: LinkId) {
        if let Some(mut entry) = self.entries.remove(&id) {
            let _ = entry.link.flush();
            let _ = self.epoll.delete(entry.link.fd());
        }
    }

    fn watch_for_writing(&mut self, id: LinkId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let wanted = entry.link.backlog_bytes() > 0;
        if wanted != entry.watched_for_writing {
            entry.watched_for_writing = wanted;
            let flags = if wanted { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            let _ = self.epoll.modify(entry.link.fd(), &mut EpollEvent::new(flags, id.0));
        }
    }

    /// Events since the last call. Never blocks.
    pub fn events(&mut self) -> Vec<Event> {
        let mut raw = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let count = self.epoll.wait(&mut raw, EpollTimeout::ZERO).unwrap_or(0);
        let mut events = Vec::new();
        let mut is_knocked_at = false;
        for event in &raw[..count] {
            match event.data() {
                // Last: authenticated connections come before strangers.
                DOOR_TOKEN => is_knocked_at = true,
                token => self.link_ready(LinkId(token), event.events(), &mut events),
            }
        }
        if is_knocked_at {
            self.meet(&mut events);
        }
        events
    }

    fn meet(&mut self, events: &mut Vec<Event>) {
        for met in self.door.met() {
            events.extend(match met {
                Met::Accepted(opened) => {
                    let key = opened.key;
                    self.adopt(opened).ok().map(|id| Event::Accepted(id, key))
                }
                Met::Refused(refusal) => Some(Event::Refused(refusal)),
                Met::Dialled { purpose, result } => {
                    Some(Event::Dialled { purpose, result: result.and_then(|opened| self.adopt(opened)) })
                }
            });
        }
    }

    fn link_ready(&mut self, id: LinkId, flags: EpollFlags, events: &mut Vec<Event>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if flags.contains(EpollFlags::EPOLLOUT) {
            let _ = entry.link.flush();
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            match entry.link.receive() {
                Ok(Received::Bytes) => events.push(Event::Readable(id)),
                Ok(Received::Nothing) => {}
                Ok(Received::End) | Err(_) => {
                    let _ = self.epoll.delete(entry.link.fd());
                    events.push(Event::Closed(id));
                }
            }
        }
        self.watch_for_writing(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use redrt_wire::tree::Up;

    fn hub(secret: &Secret) -> Hub {
        Hub::new(([127, 0, 0, 1], 0).into(), secret.clone()).unwrap()
    }

    /// The next event at one of two hubs, which may wait for each other.
    fn next(hubs: &mut [&mut Hub; 2]) -> (usize, Event) {
        loop {
            let mut fds = hubs.each_ref().map(|hub| PollFd::new(hub.fd(), PollFlags::POLLIN));
            assert!(poll(&mut fds, PollTimeout::from(10_000u16)).unwrap() > 0, "nothing has happened for 10 s");
            for (number, hub) in hubs.iter_mut().enumerate() {
                if let Some(event) = hub.events().pop() {
                    return (number, event);
                }
            }
        }
    }

    #[test]
    fn who_knows_the_secret_is_heard_and_others_are_refused() {
        let secret = Secret::generate().unwrap();
        let (mut one, mut other) = (hub(&secret), hub(&secret));
        other.dial(7, one.address(), Duration::from_secs(5));
        let mut hubs = [&mut one, &mut other];
        let (mut here, mut there) = (None, None);
        while here.is_none() || there.is_none() {
            match next(&mut hubs) {
                (0, Event::Accepted(link, 0)) => here = Some(link),
                (1, Event::Dialled { purpose: 7, result: Ok(link) }) => there = Some(link),
                (number, event) => panic!("{number}: {event:?}"),
            }
        }
        let (here, there) = (here.unwrap(), there.unwrap());
        hubs[1].send(there, &Up::Neighbour { host: 3 });
        assert!(matches!(next(&mut hubs), (0, Event::Readable(link)) if link == here));
        assert!(matches!(hubs[0].next_message(here), Ok(Some(Up::Neighbour { host: 3 }))));
        hubs[0].close(here);
        assert!(matches!(next(&mut hubs), (1, Event::Closed(link)) if link == there));

        let mut stranger = hub(&Secret::generate().unwrap());
        stranger.dial(8, one.address(), Duration::from_secs(5));
        let mut hubs = [&mut one, &mut stranger];
        for _ in 0..2 {
            match next(&mut hubs) {
                (0, Event::Refused(_)) | (1, Event::Dialled { purpose: 8, result: Err(_) }) => {}
                (number, event) => panic!("{number}: {event:?}"),
            }
        }
    }
}
