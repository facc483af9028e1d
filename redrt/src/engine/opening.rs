//! Opening links to other hosts without waiting for them: a host that has lost its power does not answer for a long time, and
//! whoever opens a link holds the engine, which views need.
//!
//! ```text
//!   engine: Unopened ──▶ Opening, frames wait ──▶ Tcp | Gone
//!                 │ ask               ▲ Opened
//!                 ▼                   │
//!   a thread that starts one thread for each link
//! ```
//! The thread that starts the others exists from the beginning: threads that the program's own threads started would
//! count among those, and replicas number theirs by the order of their creation.

use crate::transport::tcp::{Name, Sender};
use redrt_wire::auth::Secret;
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, mpsc::Receiver};
use std::time::Duration;

/// Between tries to reach a host that does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// A link that is to be opened.
pub struct Opening {
    /// What is said when it is open.
    pub name: Name,
    /// Where it listens.
    pub address: SocketAddr,
    /// The job's secret.
    pub secret: Secret,
    /// Cleared when nobody wants the link any more.
    pub wanted: Arc<AtomicBool>,
    /// In which life of the process it was wanted.
    pub life: u32,
    /// The one before broke at once: begins with a pause.
    pub has_failed: bool,
}

/// What became of it.
pub struct Opened {
    /// What was said over it.
    pub name: Name,
    /// In which life of the process it was wanted.
    pub life: u32,
    /// The link, or why there is none.
    pub result: io::Result<Sender>,
}

static OPENER: OnceLock<mpsc::Sender<Opening>> = OnceLock::new();

/// Where wishes arrive, for the thread that serves them; only the first call gives it.
pub fn install() -> Option<Receiver<Opening>> {
    let (sender, receiver) = mpsc::channel();
    OPENER.set(sender).ok().map(|()| receiver)
}

/// Has a link opened. Gives the wish back where nobody serves it.
pub fn ask(opening: Opening) -> Result<(), Opening> {
    match OPENER.get() {
        Some(opener) => opener.send(opening).map_err(|mpsc::SendError(opening)| opening),
        None => Err(opening),
    }
}

/// Starts a thread for each wish; `done` takes what became of it. Returns when there can be no more wishes.
pub fn serve(wishes: &Receiver<Opening>, done: fn(Opened)) {
    for opening in wishes {
        let (name, life) = (opening.name, opening.life);
        let started = std::thread::Builder::new()
            .name("redrt-open".into())
            .stack_size(256 << 10)
            .spawn(move || done(Opened { name, life, result: open(&opening) }));
        if let Err(error) = started {
            done(Opened { name, life, result: Err(error) });
        }
    }
}

/// Opens a link. A host that is silent may be cut off for a while; only redrun can say that it is dead. One that refuses has no
/// such process any more.
pub fn open(opening: &Opening) -> io::Result<Sender> {
    if opening.has_failed {
        std::thread::sleep(PAUSE);
    }
    loop {
        let is_wanted = || opening.wanted.load(Ordering::Relaxed);
        let result = Sender::open(opening.address, &opening.secret, opening.name, is_wanted);
        let refused = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied)
        };
        match result {
            Err(error) if !refused(&error) && is_wanted() => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}
