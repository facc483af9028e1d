//! Replacement of a broken connection between two living processes. From some point on, frames in either direction are
//! lost.
//!
//! ```text
//!   v.i                                                  w.j
//!    │ Offer 7, Offer 8 ─────────────────╳                │
//!    │ reset(w.j)                                         │
//!    ├── Resume{what w sends, bookmarks} ───────────────► │ reset(v.i), then the frame
//!    │ ◄───────────── Resume{Payload, context: 7} ────────┤
//!    ├── Offer 7, Offer 8 ──────────────────────────────► │
//! ```
//! The recovery is the same as after a change of view, between the two alone. Either end drops the other's requests,
//! serves nothing until it is asked anew, and asks anew itself. Bookmarks serve as acknowledgements, so lost ones do no
//! harm. Votes and payloads come again from the log. A follower reports its decisions again, and the leader sends it
//! the rest, as it would to a newcomer.
//!
//! The transport must make both ends agree where the new connection begins: frames that were sent after one end's
//! `reset` are delivered only after the other's, and earlier ones are not delivered at all.

use super::Replica;
use crate::channel::{Phase, Slot};
use crate::frame::MessageId;
use crate::mutation::Mutation;
use crate::view::Service;
use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};

impl Replica {
    /// Acts on the loss of the connection with this process. If the view does not contain it, nothing is owed and
    /// nothing happens.
    pub fn reset(&mut self, peer: ReplicaId) {
        if !self.is_live(peer) || self.joining || peer == self.me {
            return;
        }
        let process = self.world.process(peer).0 as usize;
        self.services[process] = Service::None;
        for channel in self.outboxes.of(peer.rank) {
            let outbox = self.outboxes.get_mut(channel).expect("it was just listed");
            outbox.fetches.retain(|(from, _)| *from != peer.index);
        }
        if !self.has(Mutation::ResetIgnored) {
            self.ask_anew(peer);
        }
        self.repeat_ahead(peer.rank);
        if peer.rank == self.me.rank {
            self.decisions.reset(peer.index, &mut self.outputs);
            self.repeat_claims(peer.index);
        }
    }

    /// Returns true if some live process has not asked for its service over a new connection. Frames that were sent to
    /// it before may be lost, and none are sent until it asks.
    #[must_use]
    pub fn is_resuming(&self) -> bool {
        let is_silent =
            |peer: ReplicaId| peer != self.me && self.services[self.world.process(peer).0 as usize] == Service::None;
        (0..self.world.rank_count()).any(|rank| self.view.live(VirtualRank(rank)).any(is_silent))
    }

    /// The receiver's side: asks a server for its service again.
    fn ask_anew(&mut self, server: ReplicaId) {
        let sender = server.rank;
        let Some(supplier) = self.supplier(sender) else { return };
        self.wanted[self.world.process(server).0 as usize] = Service::None;
        self.resume(server, self.live(sender), supplier);
        let is_supplier = self.wanted[self.world.process(server).0 as usize] == Service::Payload;
        for channel in self.inboxes.of(sender) {
            for sequence in self.inbox(channel).window() {
                let Some(slot) = self.inbox(channel).slot(sequence) else { continue };
                // Copies that were announced and not hashed will be announced again.
                slot.tally.drop_open(ReplicaSet::only(server.index));
                slot.overdue = 0;
                let is_due = |slot: &Slot| match slot.phase {
                    Phase::Incomplete { supplier: from } | Phase::Wanted { asked: from } => from == server.index,
                    _ => false,
                };
                if !is_due(slot) {
                    continue;
                }
                if is_supplier {
                    // It got a Resume before, which covers this message.
                    slot.phase = Phase::Wanted { asked: server.index };
                } else {
                    self.fetch(MessageId { sender, context: channel.1, sequence }, server.index);
                }
            }
        }
    }
}
