//! Wishes for connections. Opening one waits for its other end, and a host that has lost its power does not answer for
//! a long time; the engine, which views need, is not held meanwhile.
//!
//! ```text
//!   engine: Unopened ──▶ Opening, frames wait ──▶ Open | Gone
//!                 │ connect           ▲ Opened
//!                 ▼                   │
//!   the thread that shakes hands (`runtime::links`)
//! ```

use super::{FRAME_BYTES_MAX, handshake};
use crate::descriptors;
use crate::network::{Connecting, Network, Opening};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, OnceLock, PoisonError};

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

/// TCP as a network. Addresses are those of sockets: `10.0.0.7:40112`.
#[derive(Default)]
pub struct Tcp {
    wishes: OnceLock<Wishes>,
}

impl Tcp {
    /// Its name in the addresses of processes.
    pub const NAME: &'static str = "tcp";

    /// Where wishes arrive from now on, for the thread that serves them.
    pub fn serve(&self) -> io::Result<&Wishes> {
        let bell = descriptors::event()?;
        Ok(self.wishes.get_or_init(|| Wishes { waiting: Mutex::default(), bell }))
    }
}

impl Network for Tcp {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn connect(&self, opening: Opening) -> Connecting {
        if let Some(wishes) = self.wishes.get() {
            wishes.push(opening);
            return Connecting::Underway;
        }
        // Nobody serves wishes: the other end is waited for.
        let opened = opening.address.parse().map_err(io::Error::other);
        match opened.and_then(|address| handshake::open(address, &opening.secret, opening.name)) {
            Ok(sender) => Connecting::Open(Box::new(sender)),
            Err(_) => Connecting::Refused,
        }
    }
}
