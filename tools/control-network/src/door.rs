//! Incoming and outgoing handshakes of a daemon: all at once, on the thread of its loop, without blocking.
//!
//! ```text
//!  strangers ──▶ unauthenticated connections, who have 5 s in all ──▶ Met::Accepted, who know a secret
//!                     │  too many, too late, or wrong
//!                     └──▶ Met::Refused, a few of them; the others are counted
//!  dial ────────▶ Met::Dialled
//! ```
//! Connections, addresses to dial and time enter; [`Met`] leaves. Of a stranger's bytes only one step of the handshake
//! is kept, whose size is known. The cost of strangers is bounded: [`UNAUTHENTICATED_MAX`] descriptors,
//! `ACCEPTED_AT_ONCE` connections each time the loop comes here, a few lines of a log each minute.
//!
//! If there are too many unauthenticated connections, [`unauthenticated`] chooses the one to drop.

use super::quota::Quota;
use anyhow::{Context, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use redrt_wire::auth::{self, Accepting, Connecting};
use redrt_wire::deadline::Limited;
use redrt_wire::seal::Cipher;
use redrt_wire::secret::Secret;
use redrt_wire::unauthenticated;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Time for a stranger's whole handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of incoming handshakes at once.
pub const UNAUTHENTICATED_MAX: usize = 128;
/// Maximum number of connections accepted before the loop goes on.
const ACCEPTED_AT_ONCE: usize = 64;
/// Maximum number of connections that wait in the kernel.
const BACKLOG: i32 = 1024;
/// Pause of accepting when descriptors or memory are short.
const CLOSED_TIME: Duration = Duration::from_millis(100);
/// Attempts to connect if the other end drops the connection before any message: it may be flooded.
const TRIES: u32 = 3;
const EVENTS_AT_ONCE: usize = 256;
const LISTENER_TOKEN: u64 = u64::MAX;
const TIMER_TOKEN: u64 = u64::MAX - 1;
const UNACKNOWLEDGED_TIME_MAX: Duration = Duration::from_secs(20);

/// Outcome of a handshake.
#[derive(Debug)]
pub enum Met {
    /// A holder of a secret has connected.
    Accepted(Opened),
    /// A connection without a valid secret was refused.
    Refused(Refusal),
    /// Outcome of a dial.
    Dialled {
        /// The number given to [`Door::dial`].
        purpose: u64,
        /// The connection, or the reason for its failure.
        result: io::Result<Opened>,
    },
}

/// A refused stranger.
#[derive(Debug)]
pub struct Refusal {
    /// Address of the stranger.
    pub address: SocketAddr,
    /// The reason.
    pub error: io::Error,
    /// Number of other refusals since the last one reported.
    pub untold_count: u64,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refused a connection from {}: {}", self.address, self.error)?;
        if self.untold_count > 0 {
            write!(f, " (and {} others since the last such line)", self.untold_count)?;
        }
        Ok(())
    }
}

/// A connection whose handshake has succeeded.
#[derive(Debug)]
pub struct Opened {
    /// The connection. Blocking or not is up to the receiver.
    pub stream: TcpStream,
    /// Address of the other end.
    pub address: SocketAddr,
    /// Cipher of the connection.
    pub cipher: Cipher,
    /// Index of the door's secret that the other end has used; 0 if it was dialled.
    pub key: usize,
    /// Name that the other end gave; empty if it was dialled.
    pub name: Vec<u8>,
}

/// A handshake under way.
struct UnauthenticatedConnection {
    stream: TcpStream,
    address: SocketAddr,
    until: Instant,
    heard: Vec<u8>,
    stage: Stage,
}

enum Stage {
    /// The connection is being made.
    Dialled { purpose: u64, secret: Secret },
    /// Dialled: the greeting was sent, and the answer is awaited.
    Greeted { purpose: u64, connecting: Connecting },
    /// Accepted: the greeting is awaited.
    Stranger,
    /// Accepted: the answer was sent, and the proof is awaited.
    Answered(Accepting),
}

/// Handshakes: see the module.
pub struct Door {
    keys: Vec<Secret>,
    /// Length of the names that other ends give.
    name_bytes: usize,
    epoll: Epoll,
    timer: TimerFd,
    listener: Option<TcpListener>,
    address: SocketAddr,
    /// Accepting is paused until then.
    closed_until: Option<Instant>,
    all_unauthenticated: BTreeMap<u64, UnauthenticatedConnection>,
    next: u64,
    quota: Quota<(SocketAddr, io::Error)>,
    /// Outcomes that were known at once.
    met: Vec<Met>,
}

impl Door {
    /// Listens on this address (port 0: any) for holders of one of these secrets, who give names of `name_bytes` bytes.
    pub fn new(address: SocketAddr, keys: Vec<Secret>, name_bytes: usize) -> Result<Self> {
        let listener = listen(address).with_context(|| format!("Failed to listen at {address}"))?;
        let mut door = Self::without_listener(keys)?;
        door.name_bytes = name_bytes;
        door.address = listener.local_addr()?;
        door.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_TOKEN))?;
        door.listener = Some(listener);
        Ok(door)
    }

    /// A door for dialling only.
    pub fn without_listener(keys: Vec<Secret>) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        epoll.add(timer.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, TIMER_TOKEN))?;
        Ok(Self {
            keys: sealing(keys),
            name_bytes: 0,
            epoll,
            timer,
            listener: None,
            address: ([0, 0, 0, 0], 0).into(),
            closed_until: None,
            all_unauthenticated: BTreeMap::new(),
            next: 0,
            quota: Quota::new(Instant::now()),
            met: Vec::new(),
        })
    }

    /// Address of the listener; port 0 without one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Readable when [`Door::met`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Connects to another door. [`Met::Dialled`] follows within `time_max`.
    pub fn dial(&mut self, purpose: u64, address: SocketAddr, time_max: Duration) {
        let until = Instant::now() + time_max;
        let outcome = self.keys.first().cloned().ok_or_else(|| ErrorKind::InvalidInput.into()).and_then(|secret| {
            let stage = Stage::Dialled { purpose, secret };
            let unauthenticated = UnauthenticatedConnection {
                stream: begin_to_connect(address)?,
                address,
                until,
                heard: Vec::new(),
                stage,
            };
            self.admit(unauthenticated, EpollFlags::EPOLLOUT)
        });
        if let Err(error) = outcome {
            self.met.push(Met::Dialled { purpose, result: Err(error) });
        }
        self.set_timer();
    }

    fn admit(&mut self, unauthenticated: UnauthenticatedConnection, flags: EpollFlags) -> io::Result<()> {
        let number = self.next;
        self.next += 1;
        self.epoll.add(&unauthenticated.stream, EpollEvent::new(flags, number))?;
        self.all_unauthenticated.insert(number, unauthenticated);
        Ok(())
    }

    /// Outcomes since the last call. Never blocks.
    pub fn met(&mut self) -> Vec<Met> {
        let mut raw = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let count = self.epoll.wait(&mut raw, EpollTimeout::ZERO).unwrap_or(0);
        let mut is_knocked_at = false;
        for event in &raw[..count] {
            match event.data() {
                // Last: connections that have sent something come first.
                LISTENER_TOKEN => is_knocked_at = true,
                TIMER_TOKEN => drop(self.timer.wait()),
                number => self.advance(number),
            }
        }
        if is_knocked_at {
            self.accept();
        }
        self.keep_time();
        self.set_timer();
        std::mem::take(&mut self.met)
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.listener.as_ref().filter(|_| self.closed_until.is_none()) else { return };
            match listener.accept() {
                Ok((stream, address)) => self.greet(stream, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Descriptors or memory are short. The listener would stay readable, so it is removed for a while.
                Err(_) => {
                    self.closed_until = Some(Instant::now() + CLOSED_TIME);
                    let _ = self.epoll.delete(listener);
                }
            }
        }
    }

    fn greet(&mut self, stream: TcpStream, address: SocketAddr) {
        let until = Instant::now() + HANDSHAKE_TIME_MAX;
        let unauthenticated =
            UnauthenticatedConnection { stream, address, until, heard: Vec::new(), stage: Stage::Stranger };
        let number = self.next;
        let tuned = unauthenticated.stream.set_nonblocking(true).and_then(|()| tune(&unauthenticated.stream));
        match tuned.and_then(|()| self.admit(unauthenticated, EpollFlags::EPOLLIN)) {
            // Most strangers have sent their greeting by now.
            Ok(()) => self.advance(number),
            Err(error) => self.refuse(address, error),
        }
        let strangers = || self.all_unauthenticated.iter().filter(|(_, unauthenticated)| unauthenticated.is_visitor());
        if strangers().count() > UNAUTHENTICATED_MAX
            && let Some(number) =
                unauthenticated::superfluous(strangers().map(|(number, unauthenticated)| unauthenticated.rank(*number)))
            && let Some(unauthenticated) = self.all_unauthenticated.remove(&number)
        {
            self.refuse(unauthenticated.address, io::Error::other("too many connect at once"));
        }
    }

    fn refuse(&mut self, address: SocketAddr, error: io::Error) {
        self.report(Instant::now(), Some((address, error)));
    }

    /// Reports this refusal, or one that was held back, if the quota permits.
    fn report(&mut self, now: Instant, refused: Option<(SocketAddr, io::Error)>) {
        if let Some(((address, error), untold_count)) = self.quota.pass(now, refused) {
            self.met.push(Met::Refused(Refusal { address, error, untold_count }));
        }
    }

    /// Continues a handshake as far as it can.
    fn advance(&mut self, number: u64) {
        let Some(mut unauthenticated) = self.all_unauthenticated.remove(&number) else { return };
        let purpose = unauthenticated.purpose();
        match (unauthenticated.step(&self.keys, self.name_bytes), purpose) {
            (Ok(None), _) => {
                let flags = unauthenticated.waits_for();
                match (self.epoll.modify(&unauthenticated.stream, &mut EpollEvent::new(flags, number)), purpose) {
                    (Ok(()), _) => drop(self.all_unauthenticated.insert(number, unauthenticated)),
                    (Err(error), Some(purpose)) => {
                        self.met.push(Met::Dialled { purpose, result: Err(error.into()) });
                    }
                    (Err(error), None) => self.refuse(unauthenticated.address, error.into()),
                }
            }
            (Ok(Some(end)), purpose) => {
                let _ = self.epoll.delete(&unauthenticated.stream);
                let End { cipher, key, name } = end;
                let opened =
                    Opened { stream: unauthenticated.stream, address: unauthenticated.address, cipher, key, name };
                self.met.push(match purpose {
                    Some(purpose) => Met::Dialled { purpose, result: Ok(opened) },
                    None => Met::Accepted(opened),
                });
            }
            (Err(error), Some(purpose)) => self.met.push(Met::Dialled { purpose, result: Err(error) }),
            (Err(error), None) => self.refuse(unauthenticated.address, error),
        }
    }

    fn keep_time(&mut self) {
        let now = Instant::now();
        let late: Vec<_> = self
            .all_unauthenticated
            .extract_if(.., |_, unauthenticated| unauthenticated.until <= now)
            .map(|(_, unauthenticated)| unauthenticated)
            .collect();
        for unauthenticated in late {
            let error = io::Error::new(ErrorKind::TimedOut, "it took too long to prove that it knows the secret");
            match unauthenticated.purpose() {
                Some(purpose) => self.met.push(Met::Dialled { purpose, result: Err(error) }),
                None => self.refuse(unauthenticated.address, error),
            }
        }
        self.report(now, None);
        if self.closed_until.is_some_and(|until| until <= now)
            && let Some(listener) = &self.listener
        {
            let opened = self.epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER_TOKEN));
            self.closed_until = opened.err().map(|_| now + CLOSED_TIME);
        }
    }

    /// Makes the descriptor readable at the next time limit, or now if there are outcomes.
    fn set_timer(&self) {
        let all_unauthenticated = self.all_unauthenticated.values().map(|unauthenticated| unauthenticated.until);
        let told_at = if self.met.is_empty() { None } else { Some(Instant::now()) };
        let due = all_unauthenticated.chain(self.closed_until).chain(self.quota.due()).chain(told_at).min();
        let set = match due {
            Some(due) => {
                // A timer of zero would be disarmed.
                let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
                let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
                self.timer.set(expiration, TimerSetTimeFlags::empty())
            }
            None => self.timer.unset(),
        };
        debug_assert!(set.is_ok(), "{set:?}");
    }
}

/// Result of a handshake.
struct End {
    cipher: Cipher,
    key: usize,
    name: Vec<u8>,
}

impl UnauthenticatedConnection {
    /// Purpose of a dial. `None` for accepted connections.
    fn purpose(&self) -> Option<u64> {
        match self.stage {
            Stage::Dialled { purpose, .. } | Stage::Greeted { purpose, .. } => Some(purpose),
            Stage::Stranger | Stage::Answered(_) => None,
        }
    }

    fn is_visitor(&self) -> bool {
        self.purpose().is_none()
    }

    fn rank(&self, number: u64) -> unauthenticated::UnauthenticatedConnection {
        unauthenticated::UnauthenticatedConnection {
            number,
            address: self.address.ip(),
            is_answered: matches!(self.stage, Stage::Answered(_)),
        }
    }

    fn waits_for(&self) -> EpollFlags {
        if matches!(self.stage, Stage::Dialled { .. }) { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
    }

    fn step(&mut self, keys: &[Secret], name_bytes: usize) -> io::Result<Option<End>> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Stranger) {
                Stage::Dialled { purpose, secret } => {
                    if !is_connected(&self.stream)? {
                        self.stage = Stage::Dialled { purpose, secret };
                        return Ok(None);
                    }
                    tune(&self.stream)?;
                    let (connecting, greeting) = Connecting::begin(&secret)?;
                    self.say(&greeting)?;
                    self.stage = Stage::Greeted { purpose, connecting };
                }
                Stage::Greeted { purpose, connecting } => {
                    if !self.has_heard(connecting.answer_bytes())? {
                        self.stage = Stage::Greeted { purpose, connecting };
                        return Ok(None);
                    }
                    let (proof, cipher) = connecting.finish(&self.heard, &[])?;
                    self.say(&proof)?;
                    return end(0, Vec::new(), cipher);
                }
                Stage::Stranger => {
                    if !self.has_heard(Accepting::greeting_bytes(true))? {
                        return Ok(None);
                    }
                    let (accepting, answer) = Accepting::begin(keys, &std::mem::take(&mut self.heard))?;
                    self.say(&answer)?;
                    self.stage = Stage::Answered(accepting);
                }
                Stage::Answered(accepting) => {
                    if !self.has_heard(accepting.proof_bytes(name_bytes))? {
                        self.stage = Stage::Answered(accepting);
                        return Ok(None);
                    }
                    let key = accepting.key();
                    let (name, cipher) = accepting.finish(&self.heard)?;
                    return end(key, name, cipher);
                }
            }
        }
    }

    /// True once `count` bytes of this step have arrived. Later bytes stay in the socket.
    fn has_heard(&mut self, count: usize) -> io::Result<bool> {
        while self.heard.len() < count {
            let mut piece = [0; 128];
            let wanted = piece.len().min(count - self.heard.len());
            match (&self.stream).read(&mut piece[..wanted]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.heard.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes a step of the handshake, which always fits a new socket's buffer.
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }
}

fn end(key: usize, name: Vec<u8>, cipher: Option<Cipher>) -> io::Result<Option<End>> {
    let cipher = cipher.ok_or(ErrorKind::InvalidData)?;
    Ok(Some(End { cipher, key, name }))
}

/// Makes all connections of a door encrypted.
fn sealing(keys: Vec<Secret>) -> Vec<Secret> {
    keys.into_iter().map(|secret| secret.sealing(true)).collect()
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn begin_to_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn is_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // A connection breaks if sent bytes are not acknowledged for this long; the system's default is a quarter of an
    // hour. Keep-alive probes cover connections without traffic, such as those before daemons watch each other.
    let probes = TcpKeepalive::new().with_time(UNACKNOWLEDGED_TIME_MAX / 2).with_interval(UNACKNOWLEDGED_TIME_MAX / 10);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIME_MAX))
}

/// Connects to a door and authenticates within `time_max`; blocks.
pub fn dial(address: SocketAddr, secret: &Secret, time_max: Duration) -> io::Result<Opened> {
    dial_as(address, secret, &[], time_max)
}

/// Like [`dial`], with a name.
pub fn dial_as(address: SocketAddr, secret: &Secret, name: &[u8], time_max: Duration) -> io::Result<Opened> {
    let until = Instant::now() + time_max;
    let secret = secret.clone().sealing(true);
    for tries_left in (0..TRIES).rev() {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let stream = TcpStream::connect_timeout(&address, left)?;
        tune(&stream)?;
        match auth::connect(&mut Limited::new(&stream, until), &secret, name) {
            Ok(cipher) => {
                stream.set_read_timeout(Some(time_max))?;
                stream.set_write_timeout(Some(time_max))?;
                let cipher = cipher.ok_or(ErrorKind::InvalidData)?;
                return Ok(Opened { stream, address, cipher, key: 0, name: Vec::new() });
            }
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if tries_left > 0 => {}
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    let why = "the other end refuses the secret";
                    return Err(io::Error::new(ErrorKind::PermissionDenied, why));
                }
                _ => return Err(error),
            },
        }
    }
    unreachable!("the last try returns")
}

#[cfg(test)]
mod tests;
