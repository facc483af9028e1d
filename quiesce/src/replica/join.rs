//! A newcomer: a copy of a live replica that takes a free place of its sphere.
//!
//! ```text
//!  coordinator        source v.i              partners, siblings          copy v.j
//!   ├─ pins {v.j} ─────► │ ─────────────────────► │ keep messages and
//!   │ ◄── pinned ────────┤ ◄──────────────────────┤ decisions for v.j too
//!   ├─ cut ────────────► │ ═══ memory ════════════│═════════════════════► │ take_place(v.j)
//!   ├─ view with v.j ──► │ ─────────────────────► │ ────────────────────► │
//!   ├─ pins {v.j} ─────► │ ─────────────────────► │ ────────────────────► │
//!   │                    │                        │ ◄──── Resume ─────────┤ as after any change of view
//!   │                    │                        ├───── Resume ────────► │
//!   ├─ pins {} ────────► │ ─────────────────────► │ ────────────────────► │ when v.j is in step
//! ```
//!
//! Nothing is drained, since every message in flight at the cut is in a log. A message that the source has settled by
//! the cut is in its image. A message that it has not settled is pinned wherever it may come from. Messages that the
//! copy itself sent before the cut, and that a receiver may still want, are in the source's log, of which it has a
//! copy.
//!
//! A job that goes on from images of one replica of each rank consists of copies only. Each process takes its place in
//! a view that no process has applied before, and all pin for all (`pin_late_joiners`). Their cuts fit together because
//! no source goes on before the last one is stopped.
//!
//! The coordinator always sends the complete set of pins, never a change, and repeats it after each view with a copy. A
//! copy starts with its source's pins and receives no others between the cut and that view. Without the repetition it
//! would keep messages for ever for a newcomer whose join ended in between.
//!
//! The trap is a source that dies between cut and view: it may have made decisions that only the copy has, while its
//! siblings go on without them. The coordinator must not make a view with the copy unless the source is live in the
//! view before it.

use super::Replica;
use crate::mutation::Mutation;
use crate::view::Service;
use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};

impl Replica {
    /// Sets the newcomers for which messages must be kept: in the places `awaited` copies will be made or are joining,
    /// and in the places `ready` they stand ready to be arbiters. All live processes must have set the pin of a
    /// newcomer before its cut.
    pub fn set_pins(&mut self, awaited: &[ReplicaId], ready: &[ReplicaId]) {
        let by_rank = |newcomers: &[ReplicaId]| {
            let mut sets = vec![ReplicaSet::EMPTY; self.pinned.len()];
            newcomers.iter().for_each(|newcomer| sets[newcomer.rank.0 as usize].insert(newcomer.index));
            sets
        };
        let (awaited, ready) = (by_rank(awaited), by_rank(ready));
        for rank in (0..self.world.rank_count()).map(VirtualRank) {
            let before = self.pinned[rank.0 as usize];
            let were_ready = std::mem::replace(&mut self.ready[rank.0 as usize], ready[rank.0 as usize]);
            if rank == self.me.rank && were_ready != self.ready[rank.0 as usize] {
                self.decisions.ask_again(&mut self.outputs);
            }
            let now = awaited[rank.0 as usize].union(ready[rank.0 as usize]);
            now.without(before).iter().for_each(|index| self.pin(ReplicaId { rank, index }));
            before.without(now).iter().for_each(|index| self.unpin(ReplicaId { rank, index }));
        }
        self.settle_disputes();
    }

    fn pin(&mut self, newcomer: ReplicaId) {
        if self.has(Mutation::PinSkipped) {
            return;
        }
        self.pinned[newcomer.rank.0 as usize].insert(newcomer.index);
        for channel in self.outboxes.of(newcomer.rank) {
            self.outboxes.get_mut(channel).expect("it was just listed").pin(newcomer.index);
        }
        if newcomer.rank == self.me.rank {
            self.decisions.set_pinned(true);
        }
    }

    /// Ends the pin of a newcomer that is in step or will not come. From then on only the view says for whom messages
    /// are kept.
    fn unpin(&mut self, newcomer: ReplicaId) {
        self.pinned[newcomer.rank.0 as usize].remove(newcomer.index);
        let awaited = self.awaited(newcomer.rank);
        if !self.is_live(newcomer) {
            for channel in self.outboxes.of(newcomer.rank) {
                let outbox = self.outboxes.get_mut(channel).expect("it was just listed");
                outbox.forget(newcomer.index, awaited, &mut self.released);
            }
            self.release();
        }
        if newcomer.rank == self.me.rank {
            self.decisions.set_pinned(!self.pinned[newcomer.rank.0 as usize].is_empty());
            self.decisions.ask_again(&mut self.outputs);
        }
    }

    /// Turns a copy into the process `me`, before any other call. Its engine takes no frame and runs no program until a
    /// view with it is applied, and sets its matching queues to `Order::Following`. Payloads that were on their way to
    /// the source are offered again.
    ///
    /// # Panics
    /// When the source was not flushed before the cut, or outputs were left. They would be lost, or carried out twice.
    pub fn take_place(&mut self, me: ReplicaId) {
        assert!(self.outputs.is_empty(), "{me}: the cut came between a call and its outputs");
        assert_eq!(me.rank, self.me.rank, "a copy stays in its sphere");
        self.me = me;
        self.joining = true;
        self.services.fill(Service::None);
        self.wanted.fill(Service::None);
        self.decisions.take_place(me);
        self.paths.take_place();
    }

    /// In a newcomer, pins replicas that may have joined after its image was cut. Its source may have got their pins
    /// after that, so the image has none. Messages that they may ask for are in the log: those that are not were
    /// settled before this cut, and so before theirs. Returns the replicas for which messages are kept.
    pub(super) fn pin_late_joiners(&mut self, rank: VirtualRank, joiners: ReplicaSet) -> ReplicaSet {
        if self.has(Mutation::LateJoinersUnpinned) {
            return ReplicaSet::EMPTY;
        }
        for channel in self.outboxes.of(rank) {
            let outbox = self.outboxes.get_mut(channel).expect("it was just listed");
            joiners.iter().for_each(|index| outbox.pin(index));
        }
        joiners
    }

    /// Returns true if a sibling is expected to join. Only then may this process be copied.
    #[must_use]
    pub fn expects_sibling(&self) -> bool {
        !self.awaited(self.me.rank).is_empty()
    }

    /// Returns true in a copy that no view contains yet.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.joining
    }

    /// Returns true if this process is a full member of its sphere: it is in the view and, in a copy, has received a
    /// frame of its leader. The pins for it can go then.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        !self.joining && self.decisions.is_in_step()
    }

    /// Repeats acknowledgements out of order to a rank, because a replica of it has not received them, and a large send
    /// may wait.
    pub(super) fn repeat_ahead(&mut self, sender: VirtualRank) {
        for channel in self.inboxes.of(sender) {
            if self.inbox(channel).repeat_ahead() {
                self.unacknowledged.push(channel);
            }
        }
    }
}
