//! One connection for both directions.
//!
//! Each of two processes opens a connection when it first sends to the other, maybe both at once. Where both are open,
//! the process with the higher number moves over: its last frame over the connection that it has opened says so, and
//! from then on it sends over the other one. The other process reads the returning frames there after that last frame,
//! so everything stays in order.
//!
//! ```text
//!   a < b   a ── opened ──▶ b     a ◀── opened ── b
//!                                 a ◀── Moved ─── b     both close it
//!           a ◀───────────▶ b
//! ```
//! The gain: the kernel acknowledges data in packets of their own, unless data goes back over the same connection and
//! carries the acknowledgement. With traffic one way, every message or every second one had such a packet.

use super::{Broken, Links, Route};
use redrt_transport::frame::{FrameKind, Header};
use redrt_transport::network::{Incoming, Name};
use redrt_types::ProcessIndex;

/// Marks that the other end sends over the connection that this process opens, to be read as soon as that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Followed {
    /// Name of the connection over which its frames came before.
    name: Name,
    taken_bytes: u64,
}

impl Links {
    /// Moves over to the connection that `process` has opened, if it is this process's turn to move and nothing waits
    /// to go.
    pub(super) fn share(&mut self, process: ProcessIndex) {
        let is_first = self.identity.me < process || self.is_foreign(process);
        let peer = &mut self.peers[process.0 as usize];
        let Route::Open(outlet) = &mut peer.route else { return };
        if is_first || !peer.is_confirmed || peer.busy || outlet.is_shared() {
            return;
        }
        let Some(receiver) = self.receivers.iter().find(|receiver| receiver.name.from == process) else { return };
        outlet.move_over(receiver.inlet(), Header::of_size(FrameKind::Moved, 0));
        if outlet.is_broken() {
            self.route_broke(process);
        } else if !outlet.is_idle() {
            self.mark_busy(process);
        }
    }

    /// Takes in that an open connection to `process` broke.
    pub(super) fn route_broke(&mut self, process: ProcessIndex) {
        let peer = &mut self.peers[process.0 as usize];
        peer.route = Route::Gone;
        self.broken.push(Broken::Lost { process, epoch: peer.epoch });
    }

    /// Takes in that the other end of this link has moved over. Returns false if it cannot have.
    pub fn moved(&mut self, at: usize) -> bool {
        let receiver = self.receivers.remove(at);
        let process = receiver.name.from;
        let is_first = self.identity.me < process && !self.is_foreign(process);
        let peer = &mut self.peers[process.0 as usize];
        let is_open = matches!(peer.route, Route::Open(_) | Route::Opening { .. } | Route::Gone);
        if !is_first || !is_open || receiver.inlet().has_bytes() || peer.followed.is_some() {
            return false;
        }
        peer.followed = Some(Followed { name: receiver.name, taken_bytes: receiver.taken_bytes() });
        self.follow(process);
        true
    }

    /// Reads returning frames over the connection to `process`, if the other end has moved there.
    pub(super) fn follow(&mut self, process: ProcessIndex) {
        let peer = &mut self.peers[process.0 as usize];
        if let Route::Open(outlet) = &peer.route
            && let Some(Followed { name, taken_bytes }) = peer.followed.take()
        {
            self.receivers.extend(Incoming::continued_over(&**outlet, name, taken_bytes));
        }
    }
}
