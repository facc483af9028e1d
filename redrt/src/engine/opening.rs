//! Wishes for links to other processes. Opening a link waits for its other end, and a host that has lost its
//! power does not answer for a long time; the engine, which views need, is not held meanwhile.
//!
//! ```text
//!   engine: Unopened ──▶ Opening, frames wait ──▶ Tcp | Gone
//!                 │ ask               ▲ Opened
//!                 ▼                   │
//!   the thread that shakes hands (`runtime::links`)
//! ```

use redrt_transport::tcp::{Name, Sender};
use redrt_transport::{descriptors, handshake};
use redrt_types::ProcessIndex;
use redrt_wire::auth::Secret;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A link that is to be opened.
pub struct Opening {
    /// To which process, as this one numbers them.
    pub to: ProcessIndex,
    /// What is said when it is open.
    pub name: Name,
    /// Where it listens.
    pub address: SocketAddr,
    /// The secret of the links of its job.
    pub secret: Secret,
    /// Cleared when nobody wants the link any more.
    pub wanted: Arc<AtomicBool>,
    /// The one before broke at once: begins with a pause.
    pub has_failed: bool,
}

impl Opening {
    /// Whether somebody still wants the link.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// What became of it.
pub struct Opened {
    /// To which process.
    pub to: ProcessIndex,
    /// Of which wish; there may be a newer one for the same link.
    pub wanted: Arc<AtomicBool>,
    /// The link, or why there is none.
    pub result: io::Result<Sender>,
}

/// Where wishes wait for the thread that serves them.
pub struct Wishes {
    waiting: Mutex<Vec<Opening>>,
    /// Readable while any wait. A copy of the process has its own.
    bell: File,
}

impl Wishes {
    fn push(&self, opening: Opening) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(opening);
        // A full counter is one that rings.
        let _ = (&self.bell).write(&1_u64.to_ne_bytes());
    }

    /// Those that wait.
    pub fn take(&self) -> Vec<Opening> {
        // One that comes after this rings again.
        let _ = (&self.bell).read(&mut [0; size_of::<u64>()]);
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Readable when some wait.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

static WISHES: OnceLock<Wishes> = OnceLock::new();

/// Where wishes arrive from now on, for the thread that serves them.
pub fn install() -> io::Result<&'static Wishes> {
    let bell = descriptors::event()?;
    Ok(WISHES.get_or_init(|| Wishes { waiting: Mutex::default(), bell }))
}

/// Has a link opened. Gives the wish back where nobody serves it.
pub fn ask(opening: Opening) -> Result<(), Opening> {
    match WISHES.get() {
        Some(wishes) => {
            wishes.push(opening);
            Ok(())
        }
        None => Err(opening),
    }
}

/// Opens a link, and waits for it.
pub fn open(opening: &Opening) -> io::Result<Sender> {
    handshake::open(opening.address, &opening.secret, opening.name)
}
