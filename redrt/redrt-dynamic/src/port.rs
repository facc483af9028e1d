//! Ports (MPI-5.0 §11.9): places at which a job waits for another. A port's name holds an address and a secret of the
//! port, so only processes that were given the name can connect.
//!
//! ```text
//!   accept                                      connect
//!     listens ◀───────────── connects, proves that it knows the name
//!     terms: members, secret of links, context ──▶
//!            ◀──────────────────────── terms
//! ```
//! The connection is encrypted for all jobs, since the secrets of their links pass over it. It is closed once both
//! sides have the other's terms; the processes then open links of their own.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::{MPI_ERR_PORT, MPI_MAX_PORT_NAME};
use redrt_engine as engine;
use redrt_engine::contact::Contact;
use redrt_runtime::workers;
use redrt_wire::auth;
use redrt_wire::deadline::Limited;
use redrt_wire::frame::{FrameReader, encode};
use redrt_wire::seal::Cipher;
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for a step of a handshake.
const STEP_TIME_MAX: Duration = Duration::from_secs(10);

/// Time for which a connection waits to be accepted, unless the program sets one: "the connection attempt will
/// eventually time out after an implementation-defined time" (MPI-5.0 §11.9.3). The other job may be busy for long.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Beginning of a port's name.
const SCHEME: &str = "redrt-port:";

/// Terms that two groups exchange.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The members of the group, by rank.
    pub members: Vec<Contact>,
    /// This group's half of the context of their intercommunicator.
    pub context: u64,
}

/// A port on which `MPI_Comm_accept` takes connections.
pub struct Port {
    name: String,
    secret: Secret,
    listener: TcpListener,
}

process_local! {
    static PORTS: LazyLock<Mutex<HashMap<String, Arc<Port>>>> = LazyLock::new(Mutex::default);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &impl std::fmt::Display) -> Error {
    Error::new(MPI_ERR_PORT, format!("the port cannot be used: {error}"))
}

/// Opens a port at this address and returns its name.
///
/// # Errors
/// `MPI_ERR_PORT` when no socket can be opened.
pub fn open(address: SocketAddr) -> Result<String> {
    let make = || -> io::Result<Port> {
        let listener = TcpListener::bind(SocketAddr::new(address.ip(), 0))?;
        let secret = Secret::generate()?;
        Ok(Port { name: name_of(listener.local_addr()?, &secret), secret: secret.sealing(true), listener })
    };
    let port = make().map_err(|error| failed(&error))?;
    assert!(port.name.len() < MPI_MAX_PORT_NAME as usize, "{} is too long for a port's name", port.name);
    let name = port.name.clone();
    lock(&PORTS).insert(name.clone(), Arc::new(port));
    Ok(name)
}

/// Closes a port of this process. Connections that wait there to be accepted are refused.
///
/// # Errors
/// `MPI_ERR_PORT` when this process has no such port.
pub fn close(name: &str) -> Result {
    let Some(port) = lock(&PORTS).remove(name) else {
        fail!(MPI_ERR_PORT, "this process has not opened that port, or has closed it");
    };
    // Wakes the thread that accepts, if there is one.
    let _ = SockRef::from(&port.listener).shutdown(Shutdown::Both);
    Ok(())
}

fn name_of(address: SocketAddr, secret: &Secret) -> String {
    format!("{SCHEME}{address}#{}", secret.to_text())
}

/// Address and secret of a port's name.
fn parse(name: &str) -> Option<(SocketAddr, Secret)> {
    let (address, secret) = name.strip_prefix(SCHEME)?.split_once('#')?;
    Some((address.parse().ok()?, Secret::from_text(secret)?.sealing(true)))
}

/// Result of another thread's work, for which this thread waits.
pub struct Awaited<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> Awaited<T> {
    /// Begins the work in a thread of its own, so that progress is made meanwhile.
    fn begin(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let place = Arc::new(Mutex::new(None));
        let theirs = place.clone();
        let run = move || {
            let done = work();
            *lock(&theirs) = Some(done);
            engine::cell().notify_waiting();
        };
        workers::spawn(name, Box::new(run))?;
        Ok(Self(place))
    }

    /// Takes the result; `None` while the work is not done.
    pub fn take(&self) -> Option<T> {
        lock(&self.0).take()
    }

    /// Waits for the result.
    pub fn wait(&self) -> T {
        engine::cell().wait_for(|_| self.take())
    }
}

/// Begins to wait for a group that connects to this port.
///
/// # Errors
/// `MPI_ERR_PORT` when this process has no such port.
pub fn accept(name: &str, terms: Terms) -> Result<Awaited<Result<Terms>>> {
    let Some(port) = lock(&PORTS).get(name).cloned() else {
        fail!(MPI_ERR_PORT, "a port is accepted at by the process that has opened it, and this one has no such port");
    };
    Awaited::begin("redrt-port", move || accept_one(&port, &terms)).map_err(|error| failed(&error))
}

fn accept_one(port: &Port, terms: &Terms) -> Result<Terms> {
    loop {
        let (stream, _) = port.listener.accept().map_err(|_| Error::new(MPI_ERR_PORT, "the port was closed"))?;
        // A peer without the port's secret, or one that disconnects during the handshake, is ignored.
        if let Ok(theirs) = meet(stream, &port.secret, terms, Side::Accepting) {
            return Ok(theirs);
        }
    }
}

/// Begins to connect to a port. The other side has to accept within `patience`.
///
/// # Errors
/// `MPI_ERR_PORT` when `name` is not the name of a port.
pub fn connect(name: &str, terms: Terms, patience: Duration) -> Result<Awaited<Result<Terms>>> {
    let Some((address, secret)) = parse(name) else {
        fail!(MPI_ERR_PORT, "'{name}' is not the name of a port: MPI_Open_port makes them");
    };
    let meet = move || connect_to(address, &secret, &terms, patience);
    Awaited::begin("redrt-port", meet).map_err(|error| failed(&error))
}

fn connect_to(address: SocketAddr, secret: &Secret, terms: &Terms, patience: Duration) -> Result<Terms> {
    let stream = TcpStream::connect_timeout(&address, patience);
    let met = stream.and_then(|stream| meet(stream, secret, terms, Side::Connecting(patience)));
    met.map_err(|error| {
        let why = match error.kind() {
            // The errors of a socket's time limit.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("not within {patience:?} (info key timeout)")
            }
            _ => error.to_string(),
        };
        Error::new(MPI_ERR_PORT, format!("nobody accepts at port {address}: {why}"))
    })
}

/// An end of a connection.
#[derive(Clone, Copy)]
enum Side {
    Accepting,
    /// Waits for this time until the other end accepts.
    Connecting(Duration),
}

/// Exchanges the terms of both ends, after a handshake by the secret.
fn meet(stream: TcpStream, secret: &Secret, mine: &Terms, side: Side) -> io::Result<Terms> {
    stream.set_nodelay(true)?;
    let cipher = match side {
        Side::Accepting => auth::accept(&mut Limited::new(&stream, Instant::now() + STEP_TIME_MAX), secret, 0)?.1,
        Side::Connecting(patience) => {
            auth::connect(&mut Limited::new(&stream, Instant::now() + patience), secret, b"")?
        }
    };
    let mut cipher = cipher.ok_or(io::ErrorKind::InvalidData)?;
    let mut stream = Limited::new(&stream, Instant::now() + STEP_TIME_MAX);
    match side {
        Side::Accepting => {
            let theirs = receive(&mut stream, &mut cipher)?;
            send(&mut stream, &mut cipher, mine)?;
            Ok(theirs)
        }
        Side::Connecting(_) => {
            send(&mut stream, &mut cipher, mine)?;
            receive(&mut stream, &mut cipher)
        }
    }
}

fn send(stream: &mut impl Write, cipher: &mut Cipher, terms: &Terms) -> io::Result<()> {
    let mut sealed = Vec::new();
    cipher.seal(&encode(terms), &mut sealed);
    stream.write_all(&sealed)
}

fn receive(stream: &mut impl Read, cipher: &mut Cipher) -> io::Result<Terms> {
    let mut frames = FrameReader::default();
    loop {
        if let Some(terms) = frames.next().map_err(io::Error::other)? {
            return Ok(terms);
        }
        let (mut bytes, mut plain) = ([0; 4096], Vec::new());
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => cipher.open(&bytes[..count], &mut plain)?,
        }
        frames.push(&plain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redrt_types::ProcessIndex;

    fn terms(context: u64) -> Terms {
        let contact = |rank| Contact {
            job: 5,
            tree: 5,
            process: ProcessIndex(rank),
            address: Some(([127, 0, 0, 1], 99).into()),
            secret: Secret::new([6; 32]),
        };
        Terms { members: (0..200).map(contact).collect(), context }
    }

    #[test]
    fn two_who_know_the_name_tell_each_other_their_terms() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = name_of(listener.local_addr().unwrap(), &Secret::generate().unwrap());
        let (address, secret) = parse(&name).unwrap();
        let theirs = secret.clone();
        let accepting =
            std::thread::spawn(move || meet(listener.accept().unwrap().0, &theirs, &terms(1), Side::Accepting));
        let heard = meet(TcpStream::connect(address).unwrap(), &secret, &terms(2), Side::Connecting(PATIENCE)).unwrap();
        assert_eq!((heard, accepting.join().unwrap().unwrap()), (terms(1), terms(2)));
    }

    #[test]
    fn who_does_not_know_it_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let secret = |byte| Secret::new([byte; 32]).sealing(true);
        let accepting =
            std::thread::spawn(move || meet(listener.accept().unwrap().0, &secret(1), &terms(1), Side::Accepting));
        assert!(meet(TcpStream::connect(address).unwrap(), &secret(2), &terms(2), Side::Connecting(PATIENCE)).is_err());
        assert!(accepting.join().unwrap().is_err());
    }

    #[test]
    fn who_is_not_accepted_gives_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let secret = Secret::new([1; 32]).sealing(true);
        let error = connect_to(address, &secret, &terms(2), Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.code(), MPI_ERR_PORT);
        assert!(error.message().ends_with("not within 1ms (info key timeout)"), "{}", error.message());
    }

    proptest! {
        #[test]
        fn any_text_is_a_port_or_refused(text in "(redrt-port:)?[0-9.:\\[\\]a-f]{0,20}#?[0-9a-f]{0,70}.{0,3}") {
            if let Some((address, secret)) = parse(&text) {
                prop_assert_eq!(parse(&name_of(address, &secret.clone().sealing(false))), Some((address, secret)));
            }
        }
    }
}
