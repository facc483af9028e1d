//! The thread that opens links to other processes and admits links of others. All handshakes run at once, and the
//! thread blocks on none of them.
//!
//! One thread, started at the beginning, keeps the program's memory the same in all replicas. A thread needs a stack,
//! and the C library keeps its data in the program's heap. A thread that is started when a link is opened, or opened
//! again, would move the program's later allocations in one replica only; and programs may send addresses.

pub mod listening;
pub mod networks;

use crate::{job, unable, workers};
use redrt_engine as engine;
use redrt_transport::network::{Opened, Opening, Outlet, is_of_silence};
use redrt_transport::tcp::handshake::{Admitting, Dialling, sleep};
use redrt_transport::tcp::{Connection, DialRequests};
use redrt_wire::lack::Lack;
use redrt_wire::secret::Secret;
use redrt_wire::unauthenticated;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of connections whose peers have not proved that they know the secret. Beyond it one is closed: see
/// [`redrt_wire::unauthenticated`].
const UNAUTHENTICATED_MAX: usize = 64;
/// Maximum number of connections accepted before this thread does other work.
const ACCEPTED_AT_ONCE: usize = 32;

/// Pause between attempts to reach a host that does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// A host that has not answered for this time is reported as silent. Only redrun decides that it is lost.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Time for which a process may be short of descriptors or memory for its links before it ends.
const SHORTAGE_TIME_MAX: Duration = Duration::from_secs(3);

/// A link that is being opened.
struct Dial {
    opening: Opening,
    stage: Stage,
    /// Time of the host's last answer, or of the first attempt.
    silent_since: Instant,
}

enum Stage {
    /// Paused until this time.
    Paused(Instant),
    Underway(Box<Dialling>),
}

impl Dial {
    fn begin(opening: Opening) -> Self {
        let now = Instant::now();
        let stage = Stage::Paused(if opening.has_failed { now + PAUSE } else { now });
        Self { stage, opening, silent_since: now }
    }

    /// Advances the handshake as far as possible. `None` when it is over: the engine has its result. Fails when this
    /// process has been short of descriptors or memory for too long.
    fn advance(self, shortage: &mut Shortage) -> io::Result<Option<Self>> {
        let Self { opening, stage, silent_since } = self;
        // A copy does not need the links that its source wanted.
        if !opening.is_wanted() {
            return Ok(None);
        }
        let dialling = match stage {
            Stage::Paused(until) if Instant::now() < until => return Ok(Some(Self { opening, stage, silent_since })),
            Stage::Paused(_) => match dial(&opening) {
                Ok(dialling) => {
                    shortage.is_over();
                    Ok(Box::new(dialling))
                }
                Err(error) => {
                    shortage.record(&error, Instant::now())?;
                    Err(error)
                }
            },
            Stage::Underway(dialling) => Ok(dialling),
        };
        let result = match dialling.map(|dialling| dialling.advance(|| opening.is_wanted())) {
            Ok(ControlFlow::Continue(more)) => {
                return Ok(Some(Self { opening, stage: Stage::Underway(Box::new(more)), silent_since }));
            }
            Ok(ControlFlow::Break(result)) => result,
            Err(error) => Err(error),
        };
        // A silent host may be cut off for a while. A host that refuses the connection no longer has the process.
        let refused = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied)
        };
        let now = Instant::now();
        let silent_since = if result.as_ref().is_err_and(is_of_silence) { silent_since } else { now };
        if result.as_ref().is_err_and(|error| !refused(error)) && now - silent_since < SILENCE_MAX {
            return Ok(Some(Self { opening, stage: Stage::Paused(now + PAUSE), silent_since }));
        }
        let result = result.map(|sender| -> Box<dyn Outlet> { Box::new(sender) });
        engine::cell().link_dialled(Opened { to: opening.to, wanted: opening.wanted, result });
        Ok(None)
    }

    fn entry(&self) -> Option<libc::pollfd> {
        match &self.stage {
            Stage::Paused(_) => None,
            Stage::Underway(dialling) => Some(dialling.entry()),
        }
    }

    fn due(&self) -> Instant {
        match &self.stage {
            Stage::Paused(until) => *until,
            Stage::Underway(dialling) => dialling.deadline(),
        }
    }
}

/// Begins to open a connection. An invalid address counts as a refusal.
fn dial(opening: &Opening) -> io::Result<Dialling> {
    let address = opening.address.parse().map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
    Dialling::begin(address, &opening.secret, opening.name)
}

/// A connection whose peer has not proved yet that it knows the secret.
struct UnauthenticatedConnection {
    number: u64,
    address: IpAddr,
    admitting: Admitting,
}

/// Accepted connections whose peers have yet to prove that they know the secret.
#[derive(Default)]
struct UnauthenticatedConnections {
    all: Vec<UnauthenticatedConnection>,
    next: u64,
}

impl UnauthenticatedConnections {
    /// Accepts waiting connections. If there are too many unauthenticated connections, one of the largest group is
    /// closed. Fails when this process has been short of descriptors or memory for too long.
    ///
    /// The trap: an image may be taken while this thread waits for its turn to accept. What then comes is a connection
    /// of the life that goes on from the image, and that life has another secret. So `secret` is asked for after the
    /// connection is there. If the image is taken between the two, the connection is not current and is dropped.
    fn accept(
        &mut self,
        listener: &TcpListener,
        secret: impl Fn() -> Secret,
        shortage: &mut Shortage,
    ) -> io::Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            match Connection::accept(listener) {
                Ok((stream, address)) => {
                    shortage.is_over();
                    // On an error the peer is gone already.
                    if let Ok(admitting) = Admitting::begin(stream, &secret()) {
                        self.add(address, admitting);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                Err(error) if shortage.record(&error, Instant::now())? => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add(&mut self, address: IpAddr, admitting: Admitting) {
        self.next += 1;
        // Most peers have sent their first message by now.
        self.all.extend(advance(UnauthenticatedConnection { number: self.next, address, admitting }));
        if self.all.len() > UNAUTHENTICATED_MAX {
            let all_unauthenticated =
                self.all.iter().map(|unauthenticated| unauthenticated::UnauthenticatedConnection {
                    number: unauthenticated.number,
                    address: unauthenticated.address,
                    is_answered: unauthenticated.admitting.is_answered(),
                });
            let superfluous = unauthenticated::superfluous(all_unauthenticated);
            self.all.retain(|unauthenticated| Some(unauthenticated.number) != superfluous);
        }
    }

    /// Advances all handshakes as far as possible.
    fn advance(&mut self) {
        self.all = std::mem::take(&mut self.all).into_iter().filter_map(advance).collect();
    }
}

/// Serves requests for links and incoming connections, until the process ends. A lasting shortage ends this process
/// alone.
fn serve(dial_requests: &DialRequests, listener: &TcpListener) {
    if let Err(error) = serve_all(dial_requests, listener) {
        // This thread may meet closed descriptors before the thread of redrun's connection does.
        let lack = match error.raw_os_error().unwrap_or(libc::EIO) {
            libc::EBADF => Lack::Closed,
            errno => Lack::Connection { errno },
        };
        unable(lack)
    }
}

fn serve_all(dial_requests: &DialRequests, listener: &TcpListener) -> io::Result<()> {
    let (mut dials, mut all_unauthenticated) = (Vec::<Dial>::new(), UnauthenticatedConnections::default());
    let (mut shortage, mut is_knocked_at) = (Shortage::default(), false);
    loop {
        dials.extend(dial_requests.take().into_iter().map(Dial::begin));
        dials =
            dials.into_iter().filter_map(|dial| dial.advance(&mut shortage).transpose()).collect::<io::Result<_>>()?;
        // Only if a connection waits: without a free descriptor, accepting fails even if none waits.
        if is_knocked_at && job().is_some() {
            let secret = || job().expect("a job is never left").welcome.link_secret.clone();
            all_unauthenticated.accept(listener, secret, &mut shortage)?;
        }
        all_unauthenticated.advance();
        let pause = shortage.pause(Instant::now());
        let listens = pause.is_none();
        let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // poll ignores entries with a negative descriptor.
        let listens = if listens { listener.as_raw_fd() } else { -1 };
        let mut entries: Vec<_> = [dial_requests.bell(), listens].into_iter().map(entry).collect();
        entries.extend(dials.iter().filter_map(Dial::entry));
        entries.extend(all_unauthenticated.all.iter().map(|unauthenticated| unauthenticated.admitting.entry()));
        let deadlines = all_unauthenticated.all.iter().map(|unauthenticated| unauthenticated.admitting.deadline());
        let due = dials.iter().map(Dial::due).chain(deadlines).chain(pause).min();
        sleep(&mut entries, due)?;
        is_knocked_at = entries[1].revents != 0;
    }
}

/// A shortage of descriptors or memory; `None` without one. The program may free some soon, but a replica that stays
/// without links would delay the job.
#[derive(Default)]
struct Shortage(Option<Want>);

struct Want {
    since: Instant,
    /// No connection is accepted before this time.
    until: Instant,
}

impl Shortage {
    /// Returns true if the error is a shortage, and records it. Fails when the shortage has lasted too long.
    fn record(&mut self, error: &io::Error, now: Instant) -> io::Result<bool> {
        let wants = |error: &i32| [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].contains(error);
        let Some(number) = error.raw_os_error().filter(wants) else { return Ok(false) };
        // A shortage that did not recur for a while is over.
        let before = self.0.take().filter(|want| now < want.until + 4 * PAUSE);
        let since = before.map_or(now, |want| want.since);
        if now - since > SHORTAGE_TIME_MAX {
            return Err(io::Error::from_raw_os_error(number));
        }
        self.0 = Some(Want { since, until: now + PAUSE });
        Ok(true)
    }

    fn is_over(&mut self) {
        self.0 = None;
    }

    /// End of the pause in which no connection is accepted; `None` if there is no pause now.
    fn pause(&self, now: Instant) -> Option<Instant> {
        self.0.as_ref().map(|want| want.until).filter(|until| *until > now)
    }
}

process_local! {
    /// Held while a connection becomes a link: the peer sends over it, and this process reads from it.
    static ADMITTING: Mutex<()> = Mutex::new(());
}

/// Locks the admission: no connection becomes a link while the guard is held. It comes before the engine in the order
/// of locks.
pub fn closed() -> MutexGuard<'static, ()> {
    ADMITTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Advances the handshake as far as possible. `None` when it is over: the engine has the link, or the peer was refused
/// because it does not know the secret.
fn advance(unauthenticated: UnauthenticatedConnection) -> Option<UnauthenticatedConnection> {
    let _closed = closed();
    // In a copy, a unauthenticated connection in memory is its source's.
    if !unauthenticated.admitting.is_current() {
        return None;
    }
    match unauthenticated.admitting.advance() {
        ControlFlow::Continue(admitting) => Some(UnauthenticatedConnection { admitting, ..unauthenticated }),
        ControlFlow::Break(accepted) => {
            if let Ok(accepted) = accepted {
                engine::cell().link_opened(accepted);
            }
            None
        }
    }
}

/// Starts the thread. Fails if no thread can be started.
pub fn start(dial_requests: &'static DialRequests, listener: TcpListener) -> io::Result<()> {
    workers::spawn("redrt-links", Box::new(move || serve(dial_requests, &listener)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_transport::tcp::handshake;
    use std::cell::Cell;

    /// A thread that is stopped for an image before it has accepted anything must not remember the secret of that life.
    #[test]
    fn a_connection_meets_the_secret_of_its_own_life() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (mut all, mut shortage) = (UnauthenticatedConnections::default(), Shortage::default());
        all.accept(&listener, || panic!("nobody has connected"), &mut shortage).unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        handshake::sleep(&mut [libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 }], None)
            .unwrap();
        let asked = Cell::new(0);
        let secret = || {
            asked.set(asked.get() + 1);
            // The connection is there already.
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            Secret::new([7; 32])
        };
        all.accept(&listener, secret, &mut shortage).unwrap();
        assert_eq!((asked.get(), all.all.len()), (1, 1));
        drop(peer);
    }

    #[test]
    fn a_want_of_descriptors_is_waited_for_and_not_for_ever() {
        let (mut shortage, begin) = (Shortage::default(), Instant::now());
        let none_left = io::Error::from_raw_os_error(libc::EMFILE);
        let later = |count: u32| begin + count * PAUSE;
        assert!(!shortage.record(&io::ErrorKind::ConnectionReset.into(), begin).unwrap());
        assert!(shortage.pause(begin).is_none());
        assert!(shortage.record(&none_left, begin).unwrap());
        assert_eq!((shortage.pause(begin), shortage.pause(later(1))), (Some(later(1)), None));
        let mut count = 0;
        while shortage.record(&none_left, later(count)).is_ok() {
            count += 1;
        }
        assert!(count * PAUSE > SHORTAGE_TIME_MAX && count * PAUSE <= SHORTAGE_TIME_MAX + 2 * PAUSE);
        // A shortage that has passed does not count.
        assert!(shortage.record(&none_left, later(1000)).unwrap() && shortage.record(&none_left, later(2000)).unwrap());
        shortage.is_over();
        assert!(shortage.pause(later(2000)).is_none());
    }
}
