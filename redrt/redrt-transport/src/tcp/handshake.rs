//! Handshakes of links that are opened or accepted. None is waited for: one thread serves them all.
//!
//! ```text
//!  Dialling                                          Admitting
//!    connects ─────────────────────────────────────▶  accepted
//!    greeting ─────────────────────────────────────▶  reads it
//!    reads it ◀──────────────────────────────────────  answer
//!    proof, name ──────────────────────────────────▶  reads them
//!    reads it ◀──────────────────────────────────────  admitted
//!  Sender                                            Incoming
//! ```
//! The last byte matters for checkpoints (`membership::cloning`): while one is taken a process admits nobody, and
//! frames sent to it before would be in no image. So nothing is sent before the other end has the link and reads from
//! it.
//!
//! Sockets do not block. The next message has a known length, and is handled only once all of it is there; later bytes
//! stay in the socket. Messages fit a new socket's buffer. The bytes are those of `redrt_wire::auth`.

use super::{Connection, Sender, accepted, send_quietly, tune};
use crate::network::{Incoming, Name};
use redrt_wire::auth::{Accepting, Connecting};
use redrt_wire::seal::Cipher;
use redrt_wire::secret::Secret;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Bound on the time to open a link.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Byte of the other end once it has the link.
const ADMITTED: u8 = 1;

/// Result of a step: `Break` with the end, `Continue` when more bytes are needed.
pub type Step<T, This> = ControlFlow<io::Result<T>, This>;

/// A connection, and the part of the next message that has come.
struct Hearing {
    stream: Connection,
    heard: Vec<u8>,
    deadline: Instant,
}

impl Hearing {
    fn new(stream: Connection) -> Self {
        Self { stream, heard: Vec::new(), deadline: Instant::now() + TIMEOUT }
    }

    /// Returns true if `count` bytes have come.
    fn has_heard(&mut self, count: usize) -> io::Result<bool> {
        while self.heard.len() < count {
            let mut piece = [0; 128];
            let wanted = piece.len().min(count - self.heard.len());
            match (&*self.stream).read(&mut piece[..wanted]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.heard.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let count = send_quietly(&self.stream, &[IoSlice::new(bytes)])?;
        if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Ends a handshake after a step with this `outcome`, if it is done, failed or late.
    fn end<T>(&self, outcome: io::Result<Option<T>>) -> ControlFlow<io::Result<T>> {
        match outcome {
            Ok(Some(end)) => ControlFlow::Break(Ok(end)),
            Ok(None) if Instant::now() < self.deadline => ControlFlow::Continue(()),
            Ok(None) => ControlFlow::Break(Err(io::ErrorKind::TimedOut.into())),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    fn entry(&self, events: i16) -> libc::pollfd {
        libc::pollfd { fd: self.stream.as_raw_fd(), events, revents: 0 }
    }

    fn is_current(&self) -> bool {
        self.stream.is_current()
    }
}

/// A link that this process opens.
pub struct Dialling {
    hearing: Hearing,
    secret: Secret,
    name: Name,
    /// Set once the connection is there and the greeting has gone.
    greeted: Option<Connecting>,
    /// Set once proof and name have gone too: the cipher of the link, if it is encrypted.
    named: Option<Option<Cipher>>,
}

impl Dialling {
    /// Begins to connect.
    pub fn begin(address: SocketAddr, secret: &Secret, name: Name) -> io::Result<Self> {
        let make = || Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None);
        let stream = Connection::make(make)?;
        match SockRef::from(&*stream).connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            _ => {}
        }
        Ok(Self { hearing: Hearing::new(stream), secret: secret.clone(), name, greeted: None, named: None })
    }

    /// Goes on as far as possible without waiting. The link is opened if that is still wanted once the other end is
    /// authenticated, and is open once that end has it. Fails with `HostUnreachable` where its host has not answered.
    pub fn advance(mut self, is_wanted: impl Fn() -> bool) -> Step<Sender, Self> {
        let outcome = self.step(is_wanted);
        match self.hearing.end(outcome) {
            ControlFlow::Continue(()) => ControlFlow::Continue(self),
            ControlFlow::Break(Err(error)) if error.kind() == io::ErrorKind::TimedOut && !self.has_greeted() => {
                ControlFlow::Break(Err(io::ErrorKind::HostUnreachable.into()))
            }
            ControlFlow::Break(end) => ControlFlow::Break(end.map(|cipher| Sender::new(self.hearing.stream, cipher))),
        }
    }

    fn step(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<Option<Option<Cipher>>> {
        if self.named.is_none() && !self.prove(is_wanted)? {
            return Ok(None);
        }
        if !self.hearing.has_heard(1)? {
            return Ok(None);
        }
        match self.hearing.heard[..] {
            [ADMITTED] => Ok(self.named.take()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns true if both ends are authenticated.
    fn prove(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<bool> {
        let answer_bytes = match &self.greeted {
            Some(connecting) => connecting.answer_bytes(),
            None if !self.is_connected()? => return Ok(false),
            None => {
                tune(&self.hearing.stream)?;
                let (connecting, greeting) = Connecting::begin(&self.secret)?;
                self.hearing.say(&greeting)?;
                self.greeted.insert(connecting).answer_bytes()
            }
        };
        if !self.hearing.has_heard(answer_bytes)? {
            return Ok(false);
        }
        let connecting = self.greeted.take().expect("it has been greeted");
        let answer = std::mem::take(&mut self.hearing.heard);
        let (said, cipher) = connecting.finish(&answer, &self.name.to_bytes())?;
        // A copy of the process must not use its source's name.
        if !is_wanted() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.hearing.say(&said)?;
        self.named = Some(cipher);
        Ok(true)
    }

    fn has_greeted(&self) -> bool {
        self.greeted.is_some() || self.named.is_some()
    }

    fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.hearing.stream.take_error()? {
            return Err(error);
        }
        match self.hearing.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Entry to poll for its next event.
    pub fn entry(&self) -> libc::pollfd {
        self.hearing.entry(if self.has_greeted() { libc::POLLIN } else { libc::POLLOUT })
    }

    /// Time at which it fails.
    pub fn deadline(&self) -> Instant {
        self.hearing.deadline
    }
}

/// A link that another process opens.
pub struct Admitting {
    hearing: Hearing,
    secret: Secret,
    /// Set once the greeting was answered.
    answered: Option<Accepting>,
}

impl Admitting {
    /// Begins with an accepted connection.
    pub fn begin(stream: Connection, secret: &Secret) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        tune(&stream)?;
        Ok(Self { hearing: Hearing::new(stream), secret: secret.clone(), answered: None })
    }

    /// Goes on as far as possible without waiting.
    pub fn advance(mut self) -> Step<Incoming, Self> {
        let outcome = self.step();
        match self.hearing.end(outcome) {
            ControlFlow::Continue(()) => ControlFlow::Continue(self),
            ControlFlow::Break(end) => {
                ControlFlow::Break(end.map(|(name, cipher)| accepted(name, self.hearing.stream, cipher)))
            }
        }
    }

    fn step(&mut self) -> io::Result<Option<(Name, Option<Cipher>)>> {
        if self.answered.is_none() {
            if !self.hearing.has_heard(Accepting::greeting_bytes(self.secret.is_sealing()))? {
                return Ok(None);
            }
            let greeting = std::mem::take(&mut self.hearing.heard);
            let (accepting, answer) = Accepting::begin(std::slice::from_ref(&self.secret), &greeting)?;
            self.hearing.say(&answer)?;
            self.answered = Some(accepting);
        }
        let proof_bytes = self.answered.as_ref().map_or(0, |accepting| accepting.proof_bytes(Name::BYTES));
        if !self.hearing.has_heard(proof_bytes)? {
            return Ok(None);
        }
        let accepting = self.answered.take().expect("it was answered");
        let (name, cipher) = accepting.finish(&self.hearing.heard)?;
        let name: [u8; Name::BYTES] = name.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        self.hearing.say(&[ADMITTED])?;
        Ok(Some((Name::from_bytes(name), cipher)))
    }

    /// Entry to poll for its next event.
    pub fn entry(&self) -> libc::pollfd {
        self.hearing.entry(libc::POLLIN)
    }

    /// Time at which it fails.
    pub fn deadline(&self) -> Instant {
        self.hearing.deadline
    }

    /// Returns true if its greeting was answered.
    pub fn is_answered(&self) -> bool {
        self.answered.is_some()
    }

    /// Returns true if it was accepted in this life of the process: see `descriptors`.
    pub fn is_current(&self) -> bool {
        self.hearing.is_current()
    }
}

/// Opens a link, and waits until it is open.
pub fn open(address: SocketAddr, secret: &Secret, name: Name) -> io::Result<Sender> {
    let mut dialling = Dialling::begin(address, secret, name)?;
    loop {
        sleep(&mut [dialling.entry()], Some(dialling.deadline()))?;
        match dialling.advance(|| true) {
            ControlFlow::Continue(more) => dialling = more,
            ControlFlow::Break(opened) => return opened,
        }
    }
}

/// Authenticates an accepted connection, and waits for that.
#[cfg(any(test, feature = "testing"))]
pub fn admit(stream: Connection, secret: &Secret) -> io::Result<Incoming> {
    let mut admitting = Admitting::begin(stream, secret)?;
    loop {
        sleep(&mut [admitting.entry()], Some(admitting.deadline()))?;
        match admitting.advance() {
            ControlFlow::Continue(more) => admitting = more,
            ControlFlow::Break(accepted) => return accepted,
        }
    }
}

/// Sleeps until one of these entries may have an event, or until this time. A thread that is woken too early finds
/// nothing and comes back.
pub fn sleep(entries: &mut [libc::pollfd], until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up: otherwise the last millisecond would be spent awake.
    let limit_ms = left.map_or(-1, |left| i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: - entries is valid for its length during the call.
    if unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, limit_ms) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{Incarnation, ProcessIndex};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    const NAME: Name =
        Name { job: 1 << 40, from: ProcessIndex(5), incarnation: Incarnation(1), to: ProcessIndex(2), epoch: 3 };

    fn secret(is_sealing: bool) -> Secret {
        Secret::new([3; 32]).sealing(is_sealing)
    }

    /// Runs both ends on one thread, so neither may wait for the other.
    fn meet(client: &Secret, server: &Secret) -> (io::Result<Sender>, io::Result<Incoming>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialling =
            ControlFlow::Continue(Dialling::begin(listener.local_addr().unwrap(), client, NAME).unwrap());
        let mut admitting = ControlFlow::Continue(Admitting::begin(Connection::await_next(&listener), server).unwrap());
        loop {
            dialling = match dialling {
                ControlFlow::Continue(more) => more.advance(|| true),
                over @ ControlFlow::Break(_) => over,
            };
            admitting = match admitting {
                ControlFlow::Continue(more) => more.advance(),
                over @ ControlFlow::Break(_) => over,
            };
            match (dialling, admitting) {
                (ControlFlow::Break(opened), ControlFlow::Break(accepted)) => return (opened, accepted),
                unfinished => (dialling, admitting) = unfinished,
            }
        }
    }

    #[test]
    fn one_thread_serves_both_ends() {
        for is_sealing in [false, true] {
            let (opened, accepted) = meet(&secret(is_sealing), &secret(is_sealing));
            assert!(opened.is_ok());
            assert_eq!(accepted.unwrap().name, NAME);
            let (opened, accepted) = meet(&secret(is_sealing), &Secret::new([4; 32]).sealing(is_sealing));
            assert!(opened.is_err() && accepted.is_err());
        }
    }

    #[test]
    fn nothing_is_sent_before_the_other_end_has_the_link() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialling = Dialling::begin(listener.local_addr().unwrap(), &secret(false), NAME).unwrap();
        let mut admitting = Admitting::begin(Connection::await_next(&listener), &secret(false)).unwrap();
        // The other end answers, and is then held.
        while !admitting.is_answered() {
            let (ControlFlow::Continue(more), ControlFlow::Continue(rest)) =
                (dialling.advance(|| true), admitting.advance())
            else {
                panic!("it has heard neither proof nor name")
            };
            (dialling, admitting) = (more, rest);
        }
        while dialling.named.is_none() {
            let ControlFlow::Continue(more) = dialling.advance(|| true) else { panic!("nobody has admitted it") };
            dialling = more;
        }
        let ControlFlow::Continue(mut dialling) = dialling.advance(|| true) else { panic!("nobody has admitted it") };
        let mut admitted = admitting.advance();
        while let ControlFlow::Continue(more) = admitted {
            admitted = more.advance();
        }
        assert!(matches!(admitted, ControlFlow::Break(Ok(_))));
        loop {
            dialling = match dialling.advance(|| true) {
                ControlFlow::Continue(more) => more,
                ControlFlow::Break(opened) => return assert!(opened.is_ok()),
            };
        }
    }

    #[test]
    fn who_says_nothing_or_half_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut admitting = Admitting::begin(Connection::await_next(&listener), &secret(false)).unwrap();
        for said in [&[][..], &[7; 20]] {
            stranger.write_all(said).unwrap();
            let ControlFlow::Continue(more) = admitting.advance() else { panic!("it was taken for more") };
            admitting = more;
        }
        admitting.hearing.deadline = Instant::now();
        let ControlFlow::Break(Err(error)) = admitting.advance() else { panic!("it may take for ever") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn nobody_listens_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = open(address, &secret(false), NAME).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = std::thread::spawn(move || admit(Connection::await_next(&listener), &secret(false)));
        let mut dialling = Dialling::begin(address, &secret(false), NAME).unwrap();
        let given_up = loop {
            sleep(&mut [dialling.entry()], Some(dialling.deadline())).unwrap();
            match dialling.advance(|| false) {
                ControlFlow::Continue(more) => dialling = more,
                ControlFlow::Break(opened) => break opened.err().unwrap(),
            }
        };
        assert_eq!(given_up.kind(), io::ErrorKind::ConnectionAborted);
        assert!(accepting.join().unwrap().is_err());
    }
}
