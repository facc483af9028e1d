//! Agreement on envelopes: matching gets a message once its envelope is agreed, in the order of its channel.
//!
//! A wrong payload is fetched again before it is delivered. An envelope cannot be taken back: a receive that a wrong
//! tag has matched is gone, and a probe has told the program. So where a majority can outvote a replica, a message
//! whose offer has arrived waits for the claims of other replicas. Their digests cover tag and length, so a claim that
//! equals the supplier's vouches for the envelope as well as for the bytes.
//!
//! ```text
//!   Offer(tag 7) from v.0 ──▶ Arrived, not agreed        v.0 says 7, v.1 and v.2 say 5:
//!   Digest from v.1, the same ──▶ Agreed: matching       fetched from v.1 ──▶ Again(tag 5) ──▶ Agreed
//! ```
//! Delivery waits for the claims of all live replicas anyway, so only the pull of a long payload and the answer to a
//! probe are delayed. With fewer than three live replicas of the sender there is no majority, unless copies stand ready
//! to judge, and a message is agreed on arrival. The same holds where the verdict may follow the delivery.

use super::{Replica, Verification};
use crate::channel::Phase;
use crate::frame::{Action, Finding, MessageId, Output};
use crate::mutation::Mutation;
use crate::path::MAJORITY_DEGREE;
use redrt_types::{Digest, Kinship, ReplicaIndex, ReplicaSet, VirtualRank};
use sdc_detect::{Tally, agreed};

/// The judgement of the claims so far on a supplier's envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judged {
    /// Missing claims may decide.
    Open,
    /// The supplier's envelope is to be taken.
    Agreed,
    /// A majority has the envelope of this replica, which is to be taken.
    Outvoted(ReplicaIndex),
    /// The envelope of this replica is to be taken, though there is no majority.
    Other(ReplicaIndex),
    /// Arbiters are to judge. The supplier's claim is named.
    Disputed(Digest),
}

impl Replica {
    /// Returns true if messages of this rank wait for a majority before they are matched.
    #[inline]
    pub(super) fn awaits_majority(&self, sender: VirtualRank) -> bool {
        self.corrects
            && self.verification == Verification::Strict
            && (self.live(sender).len() >= usize::from(MAJORITY_DEGREE) || self.asks_arbiters(sender))
            && !self.has(Mutation::EnvelopeBelieved)
    }

    /// Judges a new message that awaits a majority. Returns true if matching gets it at once, because its envelope is
    /// agreed and no earlier message is missing.
    pub(super) fn agrees_on_arrival(&mut self, message: MessageId, supplier: ReplicaIndex) -> bool {
        if self.judge_envelope(message, supplier) != Judged::Agreed {
            return false;
        }
        let inbox = self.inbox((message.sender, message.context));
        let is_next = inbox.matched == message.sequence.0;
        inbox.slot(message.sequence).expect("it has just come").is_agreed = true;
        inbox.matched += u64::from(is_next);
        is_next
    }

    /// Judges the envelope of a message that has arrived. A message that has waited goes on waiting even if few senders
    /// are left, since its offer may be that of the corrupt one.
    pub(super) fn agree(&mut self, message: MessageId) {
        let Some(slot) = self.inbox((message.sender, message.context)).slot(message.sequence) else { return };
        let (Phase::Incomplete { supplier } | Phase::Complete { supplier, .. } | Phase::Withheld { supplier, .. }) =
            slot.phase
        else {
            return;
        };
        if slot.is_agreed {
            return;
        }
        let judged = self.judge_envelope(message, supplier);
        match judged {
            Judged::Open => {}
            Judged::Agreed => self.match_agreed(message),
            Judged::Disputed(claim) => self.dispute(message, supplier, claim),
            Judged::Outvoted(other) | Judged::Other(other) => {
                if let Judged::Outvoted(_) = judged {
                    self.report_outvoted(message);
                }
                // The payload in hand will not be hashed, so the vote is final as claimed.
                self.slot(message).tally.confirm(supplier);
                self.fetch(message, other);
            }
        }
    }

    /// Reports that a majority contradicts the payload in hand, while that can still be compared.
    fn report_outvoted(&mut self, message: MessageId) {
        let slot = self.slot(message);
        if let Phase::Complete { supplier, computed } = slot.phase
            && !slot.reported.contains(supplier)
        {
            slot.reported.insert(supplier);
            let (finding, action) = (Finding::ReplicaCorrupt, Action::Refetched);
            self.report(message, supplier, computed, finding, Some(supplier), action);
        }
    }

    /// Gives matching this message, and those behind it that waited only for it.
    pub(super) fn match_agreed(&mut self, message: MessageId) {
        let MessageId { sender, context, .. } = message;
        let inbox = self.inboxes.get_mut((sender, context)).expect("a message has its channel");
        inbox.slot(message.sequence).expect("it is not settled").is_agreed = true;
        while let Some((sequence, place)) = inbox.next_agreed() {
            self.outputs.push_back(Output::Agreed { message: MessageId { sender, context, sequence }, place });
        }
    }

    /// Without a majority, the leader's side, where all replicas of the own rank must take the same. `None` when that
    /// is the supplier's, or when each replica takes its supplier's payload.
    pub(super) fn shared_side(&mut self, message: MessageId, supplier: ReplicaIndex) -> Option<ReplicaIndex> {
        let is_shared = self.corrects
            && self.live(self.me.rank).len() >= usize::from(MAJORITY_DEGREE)
            && !self.has(Mutation::SidesTaken);
        let leader = self.view.leader(message.sender).filter(|_| is_shared)?.index;
        let tally = &self.slot(message).tally;
        (tally.claim(leader)? != tally.claim(supplier)?).then_some(leader)
    }

    fn judge_envelope(&mut self, message: MessageId, supplier: ReplicaIndex) -> Judged {
        let live = self.live(message.sender);
        let unrelated = Kinship::default();
        let is_ignored = self.has(Mutation::KinshipIgnored);
        let kinship = if is_ignored { &unrelated } else { self.view.kinship(message.sender) };
        let inbox = self.inboxes.get_mut((message.sender, message.context)).expect("a message has its channel");
        let tally = &inbox.slot(message.sequence).expect("it is not settled").tally;
        let Some(claim) = tally.claim(supplier) else { return Judged::Open };
        match claimants(tally, (supplier, claim), live, kinship) {
            Claimants::Open => Judged::Open,
            Claimants::Most(most) if most.contains(supplier) => Judged::Agreed,
            Claimants::Most(most) => most.iter().next().map_or(Judged::Open, Judged::Outvoted),
            Claimants::Tied if self.is_left_to_arbiters(message) => Judged::Disputed(claim),
            Claimants::Tied => self.shared_side(message, supplier).map_or(Judged::Agreed, Judged::Other),
        }
    }
}

/// The replicas that have sent the envelope which is to be taken.
enum Claimants {
    /// Missing claims may decide.
    Open,
    /// A majority. Those of it that are live or the supplier are listed.
    Most(ReplicaSet),
    /// All claims are there, and there is no majority.
    Tied,
}

fn claimants(
    tally: &Tally,
    (supplier, claim): (ReplicaIndex, Digest),
    live: ReplicaSet,
    kinship: &Kinship,
) -> Claimants {
    let who_says = |digest: Digest| live.iter().filter(move |index| tally.claim(*index) == Some(digest)).collect();
    let agreeing: ReplicaSet = who_says(claim);
    // The others count one each at most, so these outweigh them.
    if kinship.weight(agreeing, live) * 2 > live.len() {
        return Claimants::Most(agreeing.union(ReplicaSet::only(supplier)));
    }
    let missing = live.without(tally.claimed());
    if missing == live.without(agreeing) && !missing.is_empty() {
        return Claimants::Open;
    }
    let mut counting = live;
    counting.insert(supplier);
    // A replica without a vote may yet contradict all others, so it counts as a vote of its own.
    let votes: Vec<_> = counting.iter().map(|index| (index, tally.claim(index).ok_or(index))).collect();
    match agreed(&votes, kinship) {
        Some(Ok(digest)) if *digest == claim => Claimants::Most(agreeing.union(ReplicaSet::only(supplier))),
        Some(Ok(digest)) => Claimants::Most(who_says(*digest)),
        _ if !missing.is_empty() => Claimants::Open,
        _ => Claimants::Tied,
    }
}
