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
//! Nothing is drained: what was in flight at the cut is in a log. A message that the source has settled by the cut is
//! in the image; one that it has not is pinned wherever it may come from. What the copy itself has sent before the cut
//! and somebody may still want is in the source's log, which it has a copy of.
//!
//! A job that goes on from images of one replica of each rank is one in which all are copies: each process takes its
//! place in a view of which nobody has heard, and all pin for all (`pin_late_joiners`). Their cuts fit each other when
//! no source goes on before the last one is stopped.
//!
//! The coordinator says who is awaited as a whole, never what has changed, and says it again after each view with a
//! copy: a copy has the pins of its source, and hears nothing of what is said between the cut and that view. What it
//! kept for somebody whose join ended meanwhile it would keep for ever.
//!
//! The trap is a source that dies between cut and view: it may have made decisions that only the copy has, while its
//! siblings go on without them. The coordinator must not make a view with the copy unless the source is live in the
//! view before it.

use super::Replica;
use crate::mutation::Mutation;
use crate::view::Service;
use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};

impl Replica {
    /// Copies will be made, or are joining, in the places `awaited`, and stand ready to be arbiters in the places
    /// `ready`, and in no others: keeps for each whatever it may ask for. All live processes must have heard of a
    /// newcomer before the cut.
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

    /// The newcomer has joined and is in step, or will not come: nothing is kept for it beyond what the view says.
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

    /// In a copy, before anything else is asked of it: it is `me` from now on. Its engine takes no frame and runs no
    /// program until a view that has it is applied, and sets its matching queues to `Order::Following`. Payloads that
    /// were on their way to the source are offered again.
    ///
    /// # Panics
    /// When the source was not flushed before the cut, or not all its outputs were taken: they would be lost or done
    /// twice.
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

    /// In a copy, which no view had: others may have joined since the cut whom its source was asked to keep for after
    /// that. What they may ask for is in the log: what is not had been settled before the cut, and so before theirs.
    /// Returns for whom something is kept.
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

    /// Whether a sibling is expected to join: only then may this process be copied.
    #[must_use]
    pub fn expects_sibling(&self) -> bool {
        !self.awaited(self.me.rank).is_empty()
    }

    /// Whether this is a copy that no view has yet.
    #[must_use]
    pub fn is_joining(&self) -> bool {
        self.joining
    }

    /// Whether this is a full member of its sphere: it is in the view, and in a copy, it has heard its leader. The pins
    /// for it can go.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        !self.joining && self.decisions.is_in_step()
    }

    /// Somebody of `sender` has not heard which messages are settled ahead of others: a large send of it may wait.
    pub(super) fn repeat_ahead(&mut self, sender: VirtualRank) {
        for channel in self.inboxes.of(sender) {
            if self.inbox(channel).repeat_ahead() {
                self.unacknowledged.push(channel);
            }
        }
    }
}
