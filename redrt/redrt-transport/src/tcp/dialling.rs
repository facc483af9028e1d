//! Requests for connections. Opening one waits for its other end, and a host without power does not answer for a long
//! time. Views need the engine, so it is not held meanwhile.
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

/// Queue of requests for the thread that serves them.
pub struct DialRequests {
    waiting: Mutex<Vec<Opening>>,
    /// Readable while requests wait. A copy of the process has its own.
    bell: File,
}

impl DialRequests {
    fn push(&self, opening: Opening) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(opening);
        // Fails only if the counter is full, and then it rings already.
        let _ = (&self.bell).write(&1_u64.to_ne_bytes());
    }

    /// Takes all waiting requests.
    pub fn take(&self) -> Vec<Opening> {
        // A later request rings again.
        let _ = (&self.bell).read(&mut [0; size_of::<u64>()]);
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Descriptor that is readable while requests wait.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

/// TCP as a network. Addresses have the form of socket addresses: `10.0.0.7:40112`.
#[derive(Default)]
pub struct Tcp {
    dial_requests: OnceLock<DialRequests>,
}

impl Tcp {
    /// Its name in the addresses of processes.
    pub const NAME: &'static str = "tcp";

    /// Opens the queue of requests, for the thread that serves them.
    pub fn serve(&self) -> io::Result<&DialRequests> {
        let bell = descriptors::event()?;
        Ok(self.dial_requests.get_or_init(|| DialRequests { waiting: Mutex::default(), bell }))
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
        if let Some(dial_requests) = self.dial_requests.get() {
            dial_requests.push(opening);
            return Connecting::Underway;
        }
        // No thread serves requests, so this one waits for the other end.
        let opened = opening.address.parse().map_err(io::Error::other);
        match opened.and_then(|address| handshake::open(address, &opening.secret, opening.name)) {
            Ok(sender) => Connecting::Open(Box::new(sender)),
            Err(_) => Connecting::Refused,
        }
    }
}
