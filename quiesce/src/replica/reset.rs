//! A connection between two living processes that broke: what was on its way between them, in either direction, is lost
//! from some point on, and a new one takes its place.
//!
//! ```text
//!   v.i                                                  w.j
//!    │ Offer 7, Offer 8 ─────────────────╳                │
//!    │ reset(w.j)                                         │
//!    ├── Resume{what w sends, bookmarks} ───────────────► │ reset(v.i), then the frame
//!    │ ◄───────────── Resume{Payload, context: 7} ────────┤
//!    ├── Offer 7, Offer 8 ──────────────────────────────► │
//! ```
//! It is what happens after a change of view, between the two alone. Either end forgets what it was asked for and
//! serves nothing until it is asked anew; either asks anew. Bookmarks are acknowledgements, so those that were lost do
//! no harm; votes and payloads come again from the log. A follower says again what it holds of its leader's decisions,
//! and the leader tells it the rest, as it would a newcomer.
//!
//! It asks of the transport that the ends agree where the new connection begins: what was sent after one end's `reset`
//! is handed over only after the other's, what was sent before is not.

use super::Replica;
use crate::channel::{Phase, Slot};
use crate::frame::MessageId;
use crate::mutation::Mutation;
use crate::view::Service;
use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};

impl Replica {
    /// The connection with this process was lost and begins anew. Nothing happens if the view does not have it: then
    /// nothing is owed.
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

    /// Whether some live process has yet to say, over a connection that is new, what it wants. What was sent to it
    /// before may be lost, and nothing is sent until then.
    #[must_use]
    pub fn is_resuming(&self) -> bool {
        let is_silent =
            |peer: ReplicaId| peer != self.me && self.services[self.world.process(peer).0 as usize] == Service::None;
        (0..self.world.rank_count()).any(|rank| self.view.live(VirtualRank(rank)).any(is_silent))
    }

    /// The receiver's side.
    fn ask_anew(&mut self, server: ReplicaId) {
        let sender = server.rank;
        let Some(supplier) = self.supplier(sender) else { return };
        self.wanted[self.world.process(server).0 as usize] = Service::None;
        self.resume(server, self.live(sender), supplier);
        let is_supplier = self.wanted[self.world.process(server).0 as usize] == Service::Payload;
        for channel in self.inboxes.of(sender) {
            for sequence in self.inbox(channel).window() {
                let Some(slot) = self.inbox(channel).slot(sequence) else { continue };
                // Copies that were announced and not hashed are announced again.
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
                    // It was told to resume before that.
                    slot.phase = Phase::Wanted { asked: server.index };
                } else {
                    self.fetch(MessageId { sender, context: channel.1, sequence }, server.index);
                }
            }
        }
    }
}
