//! What happens when two replicas differ and nobody knows which of them is wrong: copies of both, made before, are let
//! in to judge.
//!
//! ```text
//!  w.j: tie of v.0, v.1 ── Disputed ─────▶ coordinator: are copies of v held?
//!   │   the message waits                    ├─ view with the arbiters: they repeat what v has done since they were
//!   │ ◀── votes of v.2 (of v.0), v.3 (of v.1)│  made, from what was kept for them, come to the message, and vote
//!   │   verdict, by three lineages or more   │
//!   └── or open, and delivered as it came ◀──┴─ pins without them: there are none, or none any more
//! ```
//! An arbiter is a join whose view waits until it is needed: its pins, cut and restore are those of any other (`join`).
//! What is special is that its vote is worth less than another's. Memory that was wrong before the cut is wrong in the
//! copy, too, and an original with its copy would outvote a sound sibling. So a vote that repeats its original's makes
//! no majority (`sdc_detect`'s `judge`).
//!
//! A dispute ends in any case: while somebody is ready the coordinator knows of it, and once nobody is ready and no
//! arbiter is live the verdict is open, as it is where no copies are held.

use super::{Replica, Verification};
use crate::frame::{Action, Finding, MessageId};
use crate::mutation::Mutation;
use crate::outcome::DecisionKey;
use redrt_types::{Digest, Origin, ReplicaId, ReplicaIndex, ReplicaSet, View, VirtualRank};

impl Replica {
    /// Whether a message that nobody can judge waits for arbiters.
    pub(super) fn is_left_to_arbiters(&mut self, message: MessageId) -> bool {
        let sender = message.sender;
        let ready = self.ready(sender);
        let is_kept = self.has(Mutation::DisputeKept) && self.slot(message).is_disputed;
        let have_joined = self.has_arbiters && self.view.live(sender).any(|replica| is_arbiter(&self.view, replica));
        let waits = !ready.is_empty() && !have_joined || is_kept;
        waits && self.verification == Verification::Strict && !self.slot(message).verified
    }

    /// Whether this is an arbiter whose original is there to be judged. If it took a message that its rank's replicas
    /// have taken in two forms, it would have one side's memory from then on and speak for another: it takes none that
    /// nobody can judge, and is ended.
    pub(super) fn judges_a_sibling(&self) -> bool {
        let is_judged = |origin: Origin| {
            let original = self.view.member(ReplicaId { rank: self.me.rank, index: origin.index });
            original.is_some_and(|member| member.incarnation == origin.incarnation)
        };
        self.view.member(self.me).and_then(|member| member.origin).is_some_and(is_judged)
    }

    /// Reports a message that nobody can judge yet, once.
    pub(super) fn dispute(&mut self, message: MessageId, supplier: ReplicaIndex, computed: Digest) {
        if !std::mem::replace(&mut self.slot(message).is_disputed, true) {
            self.report(message, supplier, computed, Finding::Undecidable, None, Action::Disputed);
        }
    }

    /// Looks again at what is in dispute: there may be nobody left who could judge.
    pub(super) fn settle_disputes(&mut self) {
        if self.joining {
            return;
        }
        for sender in (0..self.world.rank_count()).map(VirtualRank) {
            for channel in self.inboxes.of(sender) {
                for sequence in self.inbox(channel).window() {
                    if self.inbox(channel).slot(sequence).is_some_and(|slot| slot.is_disputed) {
                        self.evaluate(MessageId { sender, context: channel.1, sequence });
                    }
                }
            }
        }
    }

    /// Copies of a rank that stand ready.
    pub(super) fn ready(&self, rank: VirtualRank) -> ReplicaSet {
        self.ready[rank.0 as usize].without(self.live(rank))
    }

    /// Whether anybody who is live, or about to be, may still ask for something that this process has sent. Copies that
    /// stand ready do not count: they join only if somebody has yet to receive something.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.outboxes.iter().any(|((rank, _), outbox)| {
            let ready = self.ready(rank);
            if ready.is_empty() { outbox.len() > 0 } else { outbox.is_owed_besides(ready) }
        })
    }

    /// Whether all siblings can take an outcome (see [`count_ballots`](Self::count_ballots)) but copies that stand
    /// ready are in the way, for as long as they do: the maker of views is to drop them.
    #[must_use]
    pub fn is_hindered(&self, key: DecisionKey) -> bool {
        let ready = self.ready(self.me.rank);
        !ready.is_empty() && self.awaited(self.me.rank) == ready && self.decisions.count_ballots(key) == Some(true)
    }
}

/// Whether a place has an arbiter.
pub(super) fn is_arbiter(view: &View, replica: ReplicaId) -> bool {
    view.member(replica).is_some_and(|member| member.origin.is_some())
}
