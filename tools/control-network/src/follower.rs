//! A daemon's end of its stream to the coordinator, across all connections and all coordinators. Pure.
//!
//! ```text
//!              called, resync, way lost                attached
//!   settled ──────────────────────────▶ asks (Attach) ──────────▶ settled
//!     hears, says                         hears nothing, keeps what it says
//! ```
//! *The trap.* A coordinator that was stopped does not know that it was replaced, and sends on. So a daemon follows no
//! term below the highest it has followed, and between two coordinators nothing counts: no messages, and no
//! acknowledgements either. An acknowledged message would be dropped here, although the next coordinator may not know
//! it.

use super::session::Session;
use redrt_wire::tree::{Allegiance, Term};
use std::rc::Rc;

/// Stream to the coordinator: see the module.
#[derive(Debug, Default)]
pub struct Follower {
    allegiance: Allegiance,
    session: Session,
    /// Number of requests to be attached.
    attachment: u32,
    /// True once the coordinator has answered the last request.
    is_settled: bool,
    #[cfg(any(test, feature = "simulation"))]
    mistake: Option<simulation::Mistake>,
}

/// A daemon's request to be attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Number of requests before this one.
    pub attachment: u32,
    /// The highest known term.
    pub term: Term,
    /// Number of messages received from the coordinator.
    pub received: u64,
}

impl Follower {
    /// The highest known term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.allegiance.term()
    }

    /// Bytes that the coordinator has not acknowledged.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        self.session.log_bytes()
    }

    /// Handles the call of a coordinator. True if that coordinator is to be asked from now on.
    pub fn called(&mut self, term: Term) -> bool {
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(simulation::Mistake::FollowsOlder) {
            self.allegiance = Allegiance::default();
        }
        let is_followed = self.allegiance.follows(term);
        self.is_settled &= !is_followed;
        is_followed
    }

    /// Notes that there is no connection to the coordinator.
    pub fn way_lost(&mut self) {
        self.is_settled = false;
    }

    /// Begins a new request: over another connection, or because the coordinator may have missed messages.
    pub fn asks_again(&mut self) {
        self.attachment += 1;
    }

    /// The request to send.
    pub fn request(&mut self) -> Request {
        self.is_settled = false;
        Request { attachment: self.attachment, term: self.term(), received: self.session.received() }
    }

    /// Handles the answer to a request: the coordinator's term, and the number of messages it has. Returns the missing
    /// messages with their numbers; `None` if the answer is not the awaited one.
    pub fn attached(&mut self, attachment: u32, term: Term, received: u64) -> Option<Vec<(u64, Rc<[u8]>)>> {
        if attachment != self.attachment || !self.allegiance.follows(term) {
            return None;
        }
        self.is_settled = true;
        let missing: Vec<_> = self.session.missing(received).collect();
        Some((self.session.first()..).zip(missing).collect())
    }

    /// True if a message from above comes from the coordinator that is followed, and counts.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        #[cfg(any(test, feature = "simulation"))]
        if self.mistake == Some(simulation::Mistake::HandlesUnsettled) {
            return true;
        }
        self.is_settled
    }

    /// Counts a message from the coordinator. `Some(count)` if an acknowledgement is due.
    pub fn count(&mut self, bytes: usize) -> Option<u64> {
        self.session.count(bytes)
    }

    /// The count that the coordinator does not know yet. Must be called at intervals.
    pub fn untold(&mut self) -> Option<u64> {
        if self.is_settled { self.session.untold() } else { None }
    }

    /// Handles the coordinator's acknowledgement of `count` messages.
    pub fn taken(&mut self, count: u64) {
        if self.is_heard() {
            self.session.taken(count);
        }
    }

    /// Keeps a message. Returns its number, and true if it may be sent now; otherwise it is sent once a coordinator has
    /// answered.
    pub fn say(&mut self, body: Rc<[u8]>) -> (u64, bool) {
        let number = self.session.sent();
        self.session.keep(body);
        (number, self.is_settled)
    }
}

#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
#[cfg(any(test, feature = "simulation"))]
pub mod tree;
