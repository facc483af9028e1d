//! A daemon's end of its stream to the root, over all the ways that it takes and all the roots that it has. Pure.
//!
//! ```text
//!              called, resync, way lost                attached
//!   settled ──────────────────────────▶ asks (Attach) ──────────▶ settled
//!     hears, says                         hears nothing, keeps what it says
//! ```
//! *The trap.* A root that was stopped does not know that another has taken its place, and sends on what follows from
//! what it knows. So a daemon follows no term that is lower than one it has followed, and between two roots nobody's
//! words count: neither messages, nor that something was received, which would be forgotten here and is perhaps unknown
//! to the root that goes on.

use super::session::Session;
use redrt_wire::tree::{Allegiance, Term};
use std::rc::Rc;

/// See the module.
#[derive(Debug, Default)]
pub struct Follower {
    allegiance: Allegiance,
    session: Session,
    /// How often it has asked to be attached.
    attachment: u32,
    /// The root has answered the last time.
    is_settled: bool,
    #[cfg(test)]
    mistake: Option<tests::Mistake>,
}

/// What a root is told by a daemon that asks to be attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// How often it has asked before.
    pub attachment: u32,
    /// The newest root that it has heard of.
    pub term: Term,
    /// How many messages from the root it has.
    pub received: u64,
}

impl Follower {
    /// The newest root that it has heard of.
    #[must_use]
    pub fn term(&self) -> Term {
        self.allegiance.term()
    }

    /// Bytes that the root may not have.
    #[must_use]
    pub fn log_bytes(&self) -> usize {
        self.session.log_bytes()
    }

    /// A root calls: whether that is the one to ask from now on.
    pub fn called(&mut self, term: Term) -> bool {
        #[cfg(test)]
        if self.mistake == Some(tests::Mistake::FollowsOlder) {
            self.allegiance = Allegiance::default();
        }
        let is_followed = self.allegiance.follows(term);
        self.is_settled &= !is_followed;
        is_followed
    }

    /// There is no way to the root.
    pub fn way_lost(&mut self) {
        self.is_settled = false;
    }

    /// There is another way, or the root may have missed something.
    pub fn asks_again(&mut self) {
        self.attachment += 1;
    }

    /// What the root is asked by.
    pub fn request(&mut self) -> Request {
        self.is_settled = false;
        Request { attachment: self.attachment, term: self.term(), received: self.session.received() }
    }

    /// The root has this term and so many messages, and answers the request of this number. What it does not have, each
    /// with its number; absent if that is not the answer which is awaited.
    pub fn attached(&mut self, attachment: u32, term: Term, received: u64) -> Option<Vec<(u64, Rc<[u8]>)>> {
        if attachment != self.attachment || !self.allegiance.follows(term) {
            return None;
        }
        self.is_settled = true;
        let missing: Vec<_> = self.session.missing(received).collect();
        Some((self.session.first()..).zip(missing).collect())
    }

    /// A message has come from above. Whether it is one of the root that is followed, and counts.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        #[cfg(test)]
        if self.mistake == Some(tests::Mistake::HearsUnsettled) {
            return true;
        }
        self.is_settled
    }

    /// Counts a message that was heard. `Some(count)` when the root should be told.
    pub fn count(&mut self, bytes: usize) -> Option<u64> {
        self.session.count(bytes)
    }

    /// The count for the root, if it does not know it. Called now and then.
    pub fn untold(&mut self) -> Option<u64> {
        if self.is_settled { self.session.untold() } else { None }
    }

    /// The root says that it has so many messages.
    pub fn taken(&mut self, count: u64) {
        if self.is_heard() {
            self.session.taken(count);
        }
    }

    /// Says something. Its number, and whether it can be sent now; else it goes when a root has answered.
    pub fn say(&mut self, body: Rc<[u8]>) -> (u64, bool) {
        let number = self.session.sent();
        self.session.keep(body);
        (number, self.is_settled)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree;
