//! The thread that opens links to other processes and admits those that others open: all handshakes at once, none of which it waits for.
//!
//! It is one thread, from the beginning, for the sake of the program's memory. A thread costs its process a stack, and the C
//! library keeps what it needs for it in the program's heap. A thread that was started when a link is opened, or opened again,
//! would move what the program allocates after that, in this replica and not in its siblings; and a program may send addresses.

use super::agent;
use crate::engine;
use crate::engine::opening::{Opened, Opening, Wishes};
use crate::transport::handshake::{Admitting, Dialling, sleep};
use crate::transport::tcp::{Connection, Receiver};
use redrt_wire::auth::Secret;
use std::io;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Connections that have not proved themselves yet, at most. Whoever opens more waits for those before.
const ADMISSIONS_MAX: usize = 32;

/// Between tries to reach a host that does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// A link that is being opened.
struct Dial {
    opening: Opening,
    stage: Stage,
}

enum Stage {
    /// Nothing is done before then.
    Paused(Instant),
    Underway(Box<Dialling>),
}

impl Dial {
    fn begin(opening: Opening) -> Self {
        let now = Instant::now();
        Self { stage: Stage::Paused(if opening.has_failed { now + PAUSE } else { now }), opening }
    }

    /// Goes on as far as it can. `None` when it is over.
    fn advance(self) -> Option<Self> {
        let Self { opening, stage } = self;
        // In a copy nobody wants what its source wanted.
        if !opening.is_wanted() {
            return None;
        }
        let dialling = match stage {
            Stage::Paused(until) if Instant::now() < until => return Some(Self { opening, stage }),
            Stage::Paused(_) => Dialling::begin(opening.address, &opening.secret, opening.name).map(Box::new),
            Stage::Underway(dialling) => Ok(dialling),
        };
        let result = match dialling.map(|dialling| dialling.advance(|| opening.is_wanted())) {
            Ok(ControlFlow::Continue(more)) => return Some(Self { opening, stage: Stage::Underway(Box::new(more)) }),
            Ok(ControlFlow::Break(result)) => result,
            Err(error) => Err(error),
        };
        // A host that is silent may be cut off for a while; only redrun can say that it is dead. One that refuses has no such
        // process any more.
        let refused = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied)
        };
        if result.as_ref().is_err_and(|error| !refused(error)) {
            return Some(Self { opening, stage: Stage::Paused(Instant::now() + PAUSE) });
        }
        engine::cell().link_dialled(Opened { to: opening.to, wanted: opening.wanted, result });
        None
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

/// Serves wishes for links and those who connect, until the process ends.
fn serve(wishes: &Wishes, listener: &TcpListener) {
    if let Err(error) = serve_all(wishes, listener) {
        super::abort(1, format!("data connections cannot be accepted: {error}"))
    }
}

fn serve_all(wishes: &Wishes, listener: &TcpListener) -> io::Result<()> {
    let (mut dials, mut admissions) = (Vec::<Dial>::new(), Vec::<Admitting>::new());
    loop {
        dials.extend(wishes.take().into_iter().map(Dial::begin));
        dials = dials.into_iter().filter_map(Dial::advance).collect();
        if let Some(job) = super::job() {
            accept(listener, &mut admissions, &job.welcome.link_secret)?;
        }
        admissions = admissions.into_iter().filter_map(advance).collect();
        let listens = (admissions.len() < ADMISSIONS_MAX).then_some(listener.as_raw_fd());
        let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries: Vec<_> = [wishes.bell()].into_iter().chain(listens).map(entry).collect();
        entries.extend(dials.iter().filter_map(Dial::entry));
        entries.extend(admissions.iter().map(Admitting::entry));
        let due = dials.iter().map(Dial::due).chain(admissions.iter().map(Admitting::deadline)).min();
        sleep(&mut entries, due)?;
    }
}

/// Takes who has connected.
fn accept(listener: &TcpListener, admissions: &mut Vec<Admitting>, secret: &Secret) -> io::Result<()> {
    while admissions.len() < ADMISSIONS_MAX {
        match Connection::accept(listener) {
            // Whoever is gone already is refused; there is nobody to tell.
            Ok(stream) => admissions.extend(Admitting::begin(stream, secret)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Goes on as far as it can. `None` when it is over: whoever does not know the secret is refused.
fn advance(admitting: Admitting) -> Option<Admitting> {
    // One that a copy found in its memory is its source's.
    if !admitting.is_current() {
        return None;
    }
    match admitting.advance() {
        ControlFlow::Continue(more) => Some(more),
        ControlFlow::Break(accepted) => {
            if let Ok(accepted) = accepted {
                engine::cell().link_opened(Receiver::new(accepted));
            }
            None
        }
    }
}

/// Starts it.
pub fn start(wishes: &'static Wishes, listener: TcpListener) -> io::Result<()> {
    agent::spawn("redrt-links", Box::new(move || serve(wishes, &listener)))
}
