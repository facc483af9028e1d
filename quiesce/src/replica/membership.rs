//! Application of a view: logs keep nothing for the lost, receivers take other suppliers, votes of the lost are not
//! awaited, and the sphere may have a new leader.

use super::Replica;
use super::arbitration::is_arbiter;
use super::sending::serve;
use crate::channel::{Phase, Slot};
use crate::error::ProtocolError;
use crate::frame::{Frame, MessageId};
use crate::mutation::Mutation;
use crate::view::{Service, service};
use redrt_types::{ContextId, ReplicaId, ReplicaIndex, ReplicaSet, SeqNum, View, VirtualRank};

/// In a newcomer all suppliers count as lost, because payloads that were on their way to its original do not reach it.
const ALL: ReplicaSet = ReplicaSet::ALL;

impl Replica {
    /// Applies a new view of the coordinator. The present view and older ones are ignored, and views may be skipped.
    ///
    /// # Errors
    /// When an earlier frame of a sibling contradicts this view. The view is applied all the same.
    pub fn apply_view(&mut self, view: View) -> Result<(), ProtocolError> {
        if view.number <= self.view.number {
            return Ok(());
        }
        let mut outcome = Ok(());
        let before = std::mem::replace(&mut self.view, view);
        let joins = self.joining && self.view.is_live(self.me);
        self.view_has_changed = true;
        self.joining &= !joins;
        self.has_arbiters = self.world.replicas().any(|replica| is_arbiter(&self.view, replica));
        for rank in (0..self.world.rank_count()).map(VirtualRank) {
            let gone =
                |replica: &ReplicaId| before.is_live(*replica) && before.member(*replica) != self.view.member(*replica);
            let lost: ReplicaSet = self.world.sphere(rank).filter(gone).map(|replica| replica.index).collect();
            let live = self.view.live_set(rank);
            if lost.is_empty() && live == self.live(rank) && !joins {
                continue;
            }
            let strangers = live.without(self.live(rank).without(lost));
            let newcomers = if joins { live } else { strangers };
            let has_newcomers = !newcomers.is_empty();
            self.live[rank.0 as usize] = live;
            // Must precede `forget`: messages that only lost replicas could want at the cut may be wanted by newcomers
            // now.
            let pinned = if joins { self.pin_late_joiners(rank, strangers) } else { ReplicaSet::EMPTY };
            self.forget(rank, lost, pinned);
            if self.joining {
                continue;
            }
            newcomers.iter().for_each(|index| self.introduce(ReplicaId { rank, index }));
            self.forget_predecessors(rank, strangers);
            self.change_suppliers(rank, if joins { ALL } else { lost });
            if has_newcomers {
                self.repeat_ahead(rank);
            }
            if rank == self.me.rank
                && !self.joining
                && let Some(leader) = self.view.leader(rank)
            {
                outcome = self.decisions.apply_view(live, leader.index, &mut self.outputs);
                self.change_paths(lost, newcomers);
            }
        }
        self.record_sources();
        self.yield_withheld();
        self.transmit_stable();
        outcome
    }

    /// The sender's side: stops keeping messages for lost replicas, and sends nothing in their places until a newcomer
    /// asks. For newcomers in the places `pinned`, messages are kept already.
    fn forget(&mut self, rank: VirtualRank, lost: ReplicaSet, pinned: ReplicaSet) {
        for index in lost.iter() {
            self.services[self.world.process(ReplicaId { rank, index }).0 as usize] = Service::None;
            self.wanted[self.world.process(ReplicaId { rank, index }).0 as usize] = Service::None;
        }
        let awaited = self.awaited(rank);
        for channel in self.outboxes.of(rank) {
            let outbox = self.outboxes.get_mut(channel).expect("it was just listed");
            lost.without(pinned).iter().for_each(|index| outbox.forget(index, awaited, &mut self.released));
            outbox.fetches.retain(|(from, _)| !lost.contains(*from));
        }
        self.release();
        self.forget_votes(rank, lost);
    }

    /// Drops the votes of lost replicas. A successor in such a place votes itself, and must not be blamed for the
    /// other's vote. The payload in hand stands until it is outvoted, even if its supplier is lost.
    fn forget_votes(&mut self, sender: VirtualRank, lost: ReplicaSet) {
        if lost.is_empty() {
            return;
        }
        for channel in self.inboxes.of(sender) {
            for sequence in self.inbox(channel).window() {
                let Some(slot) = self.inbox(channel).slot(sequence) else { continue };
                let mut gone = lost;
                if let Phase::Complete { supplier, .. } | Phase::Withheld { supplier, .. } = slot.phase {
                    gone.remove(supplier);
                }
                slot.tally.forget(gone);
                slot.reported = slot.reported.without(gone);
            }
        }
    }

    /// Drops votes and payloads of the predecessors of newcomers. Newcomers vote anew, and a payload that still waits
    /// for votes is fetched again.
    fn forget_predecessors(&mut self, sender: VirtualRank, newcomers: ReplicaSet) {
        if newcomers.is_empty() {
            return;
        }
        let Some(supplier) = self.supplier(sender) else { return };
        for channel in self.inboxes.of(sender) {
            for sequence in self.inbox(channel).window() {
                let message = MessageId { sender, context: channel.1, sequence };
                let Some(slot) = self.inbox(channel).slot(sequence) else { continue };
                let is_in_hand = matches!(slot.phase, Phase::Complete { supplier: old, .. } if newcomers.contains(old));
                if is_in_hand && slot.verified {
                    continue;
                }
                slot.tally.forget(newcomers);
                slot.reported = slot.reported.without(newcomers);
                if is_in_hand {
                    self.fetch(message, supplier);
                }
            }
        }
    }

    /// The receiver's side: asks each live replica of the sender for its service, where that has changed.
    fn change_suppliers(&mut self, sender: VirtualRank, lost: ReplicaSet) {
        let live = self.live(sender);
        let Some(supplier) = self.supplier(sender) else { return };
        let is_new =
            self.wanted[self.world.process(ReplicaId { rank: sender, index: supplier }).0 as usize] != Service::Payload;
        for channel in self.inboxes.of(sender) {
            for sequence in self.inbox(channel).window() {
                let message = MessageId { sender, context: channel.1, sequence };
                let lost_supplier = |slot: &Slot| match slot.phase {
                    Phase::Incomplete { supplier } | Phase::Withheld { supplier, .. } => lost.contains(supplier),
                    Phase::Wanted { asked } => lost.contains(asked),
                    _ => false,
                };
                let Some(slot) = self.inbox(channel).slot(sequence) else { continue };
                slot.tally.drop_open(lost);
                match slot {
                    // A new supplier gets a Resume first, which covers this message.
                    slot if lost_supplier(slot) && is_new => slot.phase = Phase::Wanted { asked: supplier },
                    slot if lost_supplier(slot) => self.fetch(message, supplier),
                    _ => self.evaluate(message),
                }
            }
        }
        let me = self.me;
        if self.has_met(sender) {
            for server in self.world.sphere(sender).filter(|server| live.contains(server.index) && *server != me) {
                self.resume(server, live, supplier);
            }
        }
        // An engine may keep messages of a process to itself out of the protocol, so this service is requested without
        // a frame.
        if sender == me.rank && self.wanted[self.world.process(me).0 as usize] == Service::None {
            let wanted = service(&self.world, live, self.protocol, me, me.index);
            self.wanted[self.world.process(me).0 as usize] = wanted;
            let bookmarks = self.bookmarks(sender);
            self.handle_resume(me, wanted, &bookmarks);
        }
    }

    /// Returns true if a frame has ever come from a rank.
    fn has_met(&self, rank: VirtualRank) -> bool {
        self.partners.contains(&rank)
    }

    /// Notes a frame from a rank. After a change of view, the first one makes this process ask its replicas for their
    /// services.
    #[inline]
    pub(super) fn meet(&mut self, rank: VirtualRank) {
        if self.met_last != Some(rank) {
            self.met_last = Some(rank);
            if self.partners.insert(rank) && self.view_has_changed {
                self.change_suppliers(rank, ReplicaSet::EMPTY);
            }
        }
    }

    /// The sender's side of a join. The trap: the newcomer's image may be older than the first message of a channel, so
    /// that it knows of no sender to ask. Digests of the messages in the log tell it, and it answers with a request.
    fn introduce(&mut self, newcomer: ReplicaId) {
        let process = self.world.process(newcomer).0 as usize;
        let is_skipped = self.has(Mutation::IntroductionSkipped);
        if self.services[process] != Service::None || newcomer == self.me || is_skipped {
            return;
        }
        self.services[process] = Service::Digests;
        for channel in self.outboxes.of(newcomer.rank) {
            let outbox = self.outboxes.get_mut(channel).expect("it was just listed");
            let first = SeqNum(outbox.cursors[usize::from(newcomer.index.0)].from);
            for sequence in outbox.resumable(first) {
                let logged = outbox.get(sequence).expect("it is in the log");
                if !logged.held && logged.unacked.contains(newcomer.index) {
                    self.outputs.extend(serve(Service::Digests, newcomer, channel, sequence, logged));
                }
            }
        }
    }

    pub(super) fn resume(&mut self, server: ReplicaId, live: ReplicaSet, supplier: ReplicaIndex) {
        let wanted = service(&self.world, live, self.protocol, server, self.me.index);
        let process = self.world.process(server).0 as usize;
        if self.wanted[process] == wanted || (self.has(Mutation::SupplierWrong) && server.index == supplier) {
            return;
        }
        self.wanted[process] = wanted;
        let bookmarks = self.bookmarks(server.rank);
        self.transmit(server, Frame::Resume { service: wanted, bookmarks, view: self.view.number });
    }

    /// The bookmarks of the channels from a rank.
    fn bookmarks(&mut self, sender: VirtualRank) -> Vec<(ContextId, SeqNum)> {
        let late = u64::from(self.has(Mutation::BookmarkLate));
        let channels = self.inboxes.of(sender).into_iter();
        channels.map(|channel| (channel.1, SeqNum(self.inbox(channel).bookmark().0 + late))).collect()
    }
}
