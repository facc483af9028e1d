//! Arbitration: two replicas differ, no vote can decide which of them is wrong, and copies of both that were made
//! before are let in to judge.
//!
//! ```text
//!  w.j: tie of v.0, v.1 ── Disputed ─────▶ coordinator: are copies of v held?
//!   │   the message waits                    ├─ view with the arbiters: they repeat what v has done since they were
//!   │ ◀── votes of v.2 (of v.0), v.3 (of v.1)│  made, from what was kept for them, come to the message, and vote
//!   │   verdict, by three lineages or more   │
//!   └── or open, and delivered as it came ◀──┴─ pins without them: there are none, or none any more
//! ```
//! Where the two ask for different outcomes, they wait themselves and report the dispute (`paths`). Arbiters come to
//! that outcome by the leader's decisions since their cuts, and claim what they ask for there.
//!
//! An arbiter is a join whose view waits until it is needed. Its pins, cut and restore are those of any other join
//! (`join`). The difference is that its vote weighs less. Memory that was wrong before the cut is wrong in the copy
//! too, and an original with its copy would outvote a sound sibling. So a vote or a claim that repeats the original's
//! makes no majority (`sdc_detect`'s `agreed`).
//!
//! Every dispute ends. While copies stand ready, the coordinator knows of it. Once none stand ready and no arbiter is
//! live, the verdict is undecidable, as it is where no copies are held.

use super::{Replica, Verification};
use crate::frame::{Action, Finding, MessageId};
use crate::mutation::Mutation;
use crate::outcome::{DecisionKey, Question};
use redrt_types::{Digest, Origin, ReplicaId, ReplicaIndex, ReplicaSet, View, VirtualRank};

impl Replica {
    /// Returns true if a message without a majority waits for arbiters.
    pub(super) fn is_left_to_arbiters(&mut self, message: MessageId) -> bool {
        let is_kept = self.has(Mutation::DisputeKept) && self.slot(message).is_disputed;
        (self.asks_arbiters(message.sender) || is_kept) && !self.slot(message).verified
    }

    /// Returns true if copies of a rank are to judge its replicas: some stand ready, and none has joined.
    pub(super) fn asks_arbiters(&self, rank: VirtualRank) -> bool {
        let have_joined = || self.has_arbiters && self.view.live(rank).any(|replica| is_arbiter(&self.view, replica));
        self.verification == Verification::Strict && !self.ready(rank).is_empty() && !have_joined()
    }

    /// Returns true in an arbiter whose original is live to be judged. If the arbiter took a message of which its
    /// rank's replicas hold two forms, it would have the memory of one side and vote for the other. So it takes no
    /// message without a majority, and is ended.
    pub(super) fn judges_a_sibling(&self) -> bool {
        let is_judged = |origin: Origin| {
            let original = self.view.member(ReplicaId { rank: self.me.rank, index: origin.index });
            original.is_some_and(|member| member.incarnation == origin.incarnation)
        };
        self.view.member(self.me).and_then(|member| member.origin).is_some_and(is_judged)
    }

    /// Reports a dispute about a message, once.
    pub(super) fn dispute(&mut self, message: MessageId, supplier: ReplicaIndex, computed: Digest) {
        if !std::mem::replace(&mut self.slot(message).is_disputed, true) {
            self.report(message, supplier, computed, Finding::Undecidable, None, Action::Disputed);
        }
    }

    /// Judges disputes again, since there may be no arbiter left.
    pub(super) fn settle_disputes(&mut self) {
        if self.joining {
            return;
        }
        self.judge_disputed_paths();
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

    /// Copies of a rank that stand ready, and are not in the view.
    pub(super) fn ready(&self, rank: VirtualRank) -> ReplicaSet {
        self.ready[rank.0 as usize].without(self.live(rank))
    }

    /// Returns true if a replica that is live or about to join may still ask for a message of this process. Copies that
    /// stand ready do not count, since they join only if some message is still to be received.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.outboxes.iter().any(|((rank, _), outbox)| {
            let ready = self.ready(rank);
            if ready.is_empty() { outbox.len() > 0 } else { outbox.is_owed_besides(ready) }
        })
    }

    /// Returns true if all siblings can take an outcome (see [`count_ballots`](Self::count_ballots)), but copies that
    /// stand ready prevent it. The maker of views must drop them.
    #[must_use]
    pub fn is_hindered(&self, key: DecisionKey, question: Question) -> bool {
        let ready = self.ready(self.me.rank);
        let count = || self.decisions.count_ballots(key, &question, self.strays_passed_over(key, &question));
        !ready.is_empty() && self.awaited(self.me.rank) == ready && count() == Some(true)
    }
}

/// Returns true if an arbiter is in this place.
pub(super) fn is_arbiter(view: &View, replica: ReplicaId) -> bool {
    view.member(replica).is_some_and(|member| member.origin.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::tests::talk::talk;
    use super::*;
    use crate::outcome::{Call, Outcome, Place, Question, StreamId};
    use crate::path::PathFinding;
    use crate::view::Protocol;
    use crate::{Config, Lookup, Output};
    use redrt_types::{Admission, CutNumber, Incarnation, World};

    const KEY: DecisionKey = DecisionKey { stream: StreamId::Thread(0), index: 0 };

    /// Rank 0 with two replicas, and places for two more.
    fn pair() -> Vec<Replica> {
        let world = World::new(vec![4]);
        let view = View::with_degrees(&world, &[2]);
        let start = |index| {
            let (me, protocol, verification) = (ReplicaId::new(0, index), Protocol::Hash, Verification::Strict);
            Replica::new(Config { me, view: view.clone(), world: world.clone(), protocol, verification })
        };
        (0..2).map(start).collect()
    }

    fn asks(call: Call) -> Question {
        Question { call, place: Place { thread: 0, calls: 8, kind: 2 }, ..Question::default() }
    }

    /// Lets replicas exchange frames until none are left. Returns the findings.
    fn speak(replicas: &mut [Replica]) -> Vec<PathFinding> {
        let mut findings = Vec::new();
        talk(replicas, |_, output| {
            if let Output::Parted(report) = output {
                findings.push(report.finding);
            }
        });
        findings
    }

    /// Sets these pins in all replicas.
    fn pin(replicas: &mut [Replica], awaited: &[ReplicaId], ready: &[ReplicaId]) {
        replicas.iter_mut().for_each(|replica| replica.set_pins(awaited, ready));
    }

    const fn place(index: u16) -> ReplicaId {
        ReplicaId { rank: VirtualRank(0), index: ReplicaIndex(index) }
    }

    const COPIES: [ReplicaId; 2] = [place(2), place(3)];

    /// A pair in which only the leader has read a clock, with a copy of each replica that stands ready.
    fn disputing() -> (Vec<Replica>, Vec<Replica>) {
        let mut pair = pair();
        pin(&mut pair, &COPIES, &[]);
        let copies = pair.iter().zip(COPIES).map(|(source, place)| {
            let mut copy = source.clone();
            copy.take_place(place);
            copy
        });
        let copies = copies.collect();
        pin(&mut pair, &[], &COPIES);
        pair[0].decide(KEY, asks(Call::Clock), Outcome::Clock { clock: 0, ns: 1 });
        speak(&mut pair);
        assert_eq!(pair[1].lookup(KEY, asks(Call::Observe)), Lookup::Wait);
        (pair, copies)
    }

    #[test]
    fn parted_replicas_report_once_and_leave_it_to_ready_copies() {
        let (mut pair, _) = disputing();
        assert_eq!(speak(&mut pair), [PathFinding::Disputed, PathFinding::Disputed]);
        assert_eq!(pair[1].lookup(KEY, asks(Call::Observe)), Lookup::Wait);
        assert_eq!(speak(&mut pair), []);
        pin(&mut pair, &[], &[]);
        assert_eq!(speak(&mut pair), [PathFinding::Undecidable, PathFinding::Undecidable]);
    }

    #[test]
    fn arbiters_outvote_leader_or_sibling_by_their_requests() {
        for (call, wrong) in [(Call::Observe, 0), (Call::Clock, 1)] {
            let (mut all, copies) = disputing();
            speak(&mut all);
            let admission = |(source, replica)| {
                let (incarnation, cut) = (Incarnation(1), CutNumber(u64::from(source) + 1));
                Admission { replica, incarnation, source: ReplicaIndex(source), cut }
            };
            let arbiters: Vec<_> = (0..).zip(COPIES).map(admission).collect();
            let view = all[0].view().with_arbiters(&arbiters);
            all.extend(copies);
            all.iter_mut().for_each(|replica| replica.apply_view(view.clone()).unwrap());
            assert_eq!(speak(&mut all), [], "they have not come to it");
            all[2..].iter_mut().for_each(|arbiter| _ = arbiter.lookup(KEY, asks(call)));
            let outvoted = PathFinding::Outvoted(ReplicaSet::only(ReplicaIndex(wrong)));
            let findings = speak(&mut all);
            assert!(!findings.is_empty() && findings.iter().all(|finding| *finding == outvoted), "{findings:?}");
        }
    }
}
