//! Authenticated connections, those that others open and those opened to others, behind one descriptor to wait on.
//!
//! Enters: addresses to dial, messages to send. Leaves: [`Event`]s. Handshakes and dialling block, so each runs in a thread of its
//! own: a stranger who says nothing, or a host that does not answer, delays nobody. No frame is read from a connection whose
//! other end has not proved that it knows the job's secret.

use crate::link::{Link, Received};
use anyhow::{Context, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use redrt_wire::auth::{self, Secret};
use redrt_wire::seal::Cipher;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long a stranger may take to prove that it is none.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
const EVENTS_AT_ONCE: usize = 256;
const LISTENER_TOKEN: u64 = u64::MAX;
const WAKE_TOKEN: u64 = u64::MAX - 1;

/// One of a hub's connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LinkId(u64);

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// Someone who knows the secret has connected.
    Accepted(LinkId),
    /// Someone who does not has tried.
    Refused {
        /// From where.
        address: SocketAddr,
        /// What went wrong.
        error: io::Error,
    },
    /// What was dialled for this purpose is connected, or is not.
    Dialled {
        /// As given to [`Hub::dial`].
        purpose: u64,
        /// The connection.
        result: io::Result<LinkId>,
    },
    /// There may be messages.
    Readable(LinkId),
    /// The other end has closed the connection, or it broke. Messages that had arrived can still be read.
    Closed(LinkId),
}

enum Met {
    Accepted(Opened),
    Refused { address: SocketAddr, error: io::Error },
    Dialled { purpose: u64, result: io::Result<Opened> },
}

/// A connection that has proved itself.
#[derive(Debug)]
pub struct Opened {
    /// The connection, blocking.
    pub stream: TcpStream,
    /// What it is encrypted with, if it is.
    pub cipher: Option<Cipher>,
}

struct Entry {
    link: Link<TcpStream>,
    local: IpAddr,
    watched_for_writing: bool,
}

/// See the module.
pub struct Hub {
    secret: Secret,
    epoll: Epoll,
    listener: Option<TcpListener>,
    address: SocketAddr,
    wake: UnixStream,
    waker: UnixStream,
    sender: Sender<Met>,
    receiver: Receiver<Met>,
    entries: HashMap<LinkId, Entry>,
    next: u64,
}

impl Hub {
    /// Listens at this address, of which the port may be 0.
    pub fn new(address: SocketAddr, secret: Secret) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("Failed to listen at {address}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut hub = Self::without_door(secret)?;
        hub.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_TOKEN))?;
        hub.address = address;
        hub.listener = Some(listener);
        Ok(hub)
    }

    /// For dialling only: listens nowhere.
    pub fn without_door(secret: Secret) -> Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE_TOKEN))?;
        let (sender, receiver) = channel();
        let (entries, listener, address) = (HashMap::new(), None, ([0, 0, 0, 0], 0).into());
        Ok(Self { secret, epoll, listener, address, wake, waker, sender, receiver, entries, next: 0 })
    }

    /// Where it listens; port 0 if nowhere.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The job's secret.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Readable when [`Hub::events`] has something to tell.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Takes over a connection that has proved itself.
    pub fn adopt(&mut self, Opened { stream, cipher }: Opened) -> Result<LinkId> {
        stream.set_nonblocking(true)?;
        let local = stream.local_addr()?.ip();
        let id = LinkId(self.next);
        self.next += 1;
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, id.0))?;
        self.entries.insert(id, Entry { link: Link::new(stream, cipher), local, watched_for_writing: false });
        Ok(id)
    }

    /// The address of this host that a connection uses.
    #[must_use]
    pub fn local_address(&self, id: LinkId) -> Option<IpAddr> {
        self.entries.get(&id).map(|entry| entry.local)
    }

    /// Connects to another daemon; [`Event::Dialled`] follows within `time_max`, more or less.
    pub fn dial(&self, purpose: u64, address: SocketAddr, time_max: Duration) {
        let secret = self.secret.clone();
        self.in_thread(move || Met::Dialled { purpose, result: dial(address, &secret, time_max) });
    }

    fn in_thread(&self, meet: impl FnOnce() -> Met + Send + 'static) {
        let sender = self.sender.clone();
        let Ok(mut waker) = self.waker.try_clone() else { return };
        std::thread::spawn(move || {
            if sender.send(meet()).is_ok() {
                let _ = waker.write(&[0]);
            }
        });
    }

    /// Sends a message, now or when the connection takes it. To one that is broken it is lost.
    pub fn send<T: Serialize>(&mut self, id: LinkId, message: &T) {
        if let Some(entry) = self.entries.get_mut(&id) {
            // A broken connection shows when it is read.
            let _ = entry.link.send(message);
            self.watch_for_writing(id);
        }
    }

    /// Bytes that wait to be sent there.
    #[must_use]
    pub fn backlog_bytes(&self, id: LinkId) -> usize {
        self.entries.get(&id).map_or(0, |entry| entry.link.backlog_bytes())
    }

    /// The next message that has arrived. An error means that the connection is of no more use.
    pub fn next_message<T: DeserializeOwned>(&mut self, id: LinkId) -> Result<Option<T>> {
        self.entries.get_mut(&id).map_or(Ok(None), |entry| entry.link.next_message())
    }

    /// Closes a connection.
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

    /// What has happened since the last call. Does not block.
    pub fn events(&mut self) -> Vec<Event> {
        let mut raw = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let count = self.epoll.wait(&mut raw, EpollTimeout::ZERO).unwrap_or(0);
        let mut events = Vec::new();
        for event in &raw[..count] {
            match event.data() {
                LISTENER_TOKEN => self.answer_door(),
                WAKE_TOKEN => self.meet(&mut events),
                token => self.link_ready(LinkId(token), event.events(), &mut events),
            }
        }
        events
    }

    fn answer_door(&self) {
        while let Some(Ok((stream, address))) = self.listener.as_ref().map(TcpListener::accept) {
            let secret = self.secret.clone();
            self.in_thread(move || match admit(stream, &secret) {
                Ok(opened) => Met::Accepted(opened),
                Err(error) => Met::Refused { address, error },
            });
        }
    }

    fn meet(&mut self, events: &mut Vec<Event>) {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|count| count > 0) {}
        while let Ok(met) = self.receiver.try_recv() {
            let adopted =
                |hub: &mut Self, opened| hub.adopt(opened).map_err(|error| io::Error::other(error.to_string()));
            events.extend(match met {
                Met::Accepted(opened) => adopted(self, opened).ok().map(Event::Accepted),
                Met::Refused { address, error } => Some(Event::Refused { address, error }),
                Met::Dialled { purpose, result } => {
                    Some(Event::Dialled { purpose, result: result.and_then(|opened| adopted(self, opened)) })
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

fn admit(mut stream: TcpStream, secret: &Secret) -> io::Result<Opened> {
    stream.set_nonblocking(false)?;
    tune(&stream, HANDSHAKE_TIME_MAX)?;
    let cipher = auth::accept(&mut stream, secret)?;
    Ok(Opened { stream, cipher })
}

/// Connects and authenticates; blocks.
pub fn dial(address: SocketAddr, secret: &Secret, time_max: Duration) -> io::Result<Opened> {
    let mut stream = TcpStream::connect_timeout(&address, time_max)?;
    tune(&stream, time_max)?;
    let cipher = auth::connect(&mut stream, secret)?;
    Ok(Opened { stream, cipher })
}

fn tune(stream: &TcpStream, time_max: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(time_max))?;
    stream.set_write_timeout(Some(time_max))?;
    // What was sent and is not acknowledged for so long breaks the connection, instead of after a quarter of an hour.
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MS_MAX)?;
    Ok(())
}

const UNACKNOWLEDGED_MS_MAX: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use redrt_wire::tree::Up;

    fn hub(secret: &Secret) -> Hub {
        Hub::new(([127, 0, 0, 1], 0).into(), secret.clone()).unwrap()
    }

    /// Waits for the next events of a hub.
    fn events(hub: &mut Hub) -> Vec<Event> {
        loop {
            let mut fds = [PollFd::new(hub.fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1), "nothing has happened for 10 s");
            let events = hub.events();
            if !events.is_empty() {
                return events;
            }
        }
    }

    #[test]
    fn who_knows_the_secret_is_heard_and_others_are_refused() {
        for sealing in [false, true] {
            meet(&Secret::generate().unwrap().sealing(sealing));
        }
    }

    fn meet(secret: &Secret) {
        let (mut one, mut other) = (hub(secret), hub(secret));
        other.dial(7, one.address(), Duration::from_secs(5));
        let [Event::Accepted(here)] = events(&mut one)[..] else { panic!("expected a connection") };
        let [Event::Dialled { purpose: 7, result: Ok(there) }] = events(&mut other)[..] else {
            panic!("not connected")
        };
        other.send(there, &Up::Neighbour { host: 3 });
        assert!(matches!(events(&mut one)[..], [Event::Readable(id)] if id == here));
        assert!(matches!(one.next_message(here), Ok(Some(Up::Neighbour { host: 3 }))));
        one.close(here);
        assert!(matches!(events(&mut other)[..], [Event::Closed(id)] if id == there));

        let mut stranger = hub(&Secret::generate().unwrap().sealing(secret.is_sealing()));
        stranger.dial(8, one.address(), Duration::from_secs(5));
        assert!(matches!(events(&mut one)[..], [Event::Refused { .. }]));
        assert!(matches!(events(&mut stranger)[..], [Event::Dialled { purpose: 8, result: Err(_) }]));
    }
}
