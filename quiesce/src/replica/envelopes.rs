//! When matching gets a message: once its envelope is agreed, in the order of its channel.
//!
//! A payload that turns out to be wrong is fetched again before it is delivered. An envelope cannot be taken back: a
//! receive that a wrong tag has matched is gone, and a probe has told the program. So where a majority can outvote a
//! replica, a message whose offer has come waits for the claims of others. Their digests cover tag and length, so a
//! claim that equals the supplier's vouches for the envelope as well as for the bytes.
//!
//! ```text
//!   Offer(tag 7) from v.0 ──▶ Arrived, not agreed        v.0 says 7, v.1 and v.2 say 5:
//!   Digest from v.1, the same ──▶ Agreed: matching       fetched from v.1 ──▶ Again(tag 5) ──▶ Agreed
//! ```
//! Delivery waits for the claims of all live replicas anyway, so what comes later is the pull of a long payload and the
//! answer of a probe. With fewer than three live replicas of the sender there is no majority, unless copies stand ready
//! to judge, and a message is agreed when it arrives; so it is where the verdict may follow the delivery.

use super::{Replica, Verification};
use crate::channel::Phase;
use crate::frame::{Action, Finding, MessageId, Output};
use crate::mutation::Mutation;
use crate::path::MAJORITY_DEGREE;
use redrt_types::{Digest, Kinship, ReplicaIndex, ReplicaSet, VirtualRank};
use sdc_detect::{Tally, agreed};

/// What the claims so far say of the envelope that a supplier has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judged {
    /// Claims that are missing may decide.
    Open,
    /// It is to be taken.
    Agreed,
    /// This replica's is to be taken, because a majority has it.
    Outvoted(ReplicaIndex),
    /// This replica's is to be taken, though nobody can judge.
    Other(ReplicaIndex),
    /// Arbiters are to judge.
    Disputed(Digest),
}

impl Replica {
    /// Whether messages of this rank wait for others' claims.
    #[inline]
    pub(super) fn awaits_majority(&self, sender: VirtualRank) -> bool {
        self.corrects
            && self.verification == Verification::Strict
            && (self.live(sender).len() >= usize::from(MAJORITY_DEGREE) || self.asks_arbiters(sender))
            && !self.has(Mutation::EnvelopeBelieved)
    }

    /// The offer of a new message that awaits a majority is being handled: whether matching gets it at once, because
    /// its envelope is agreed and no earlier message is missing.
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

    /// Looks whether the envelope of a message that has arrived can be agreed on now. One that has waited goes on to
    /// wait, however few are left: it may have come from the one that was corrupt.
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
                // The payload in hand will not be hashed: this vote is what it claims.
                self.slot(message).tally.confirm(supplier);
                self.fetch(message, other);
            }
        }
    }

    /// The payload in hand is not what a majority has: that is told while it can be compared.
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

    /// Gives matching this message and those behind it that waited for it only.
    pub(super) fn match_agreed(&mut self, message: MessageId) {
        let MessageId { sender, context, .. } = message;
        let inbox = self.inboxes.get_mut((sender, context)).expect("a message has its channel");
        inbox.slot(message.sequence).expect("it is not settled").is_agreed = true;
        while let Some((sequence, place)) = inbox.next_agreed() {
            self.outputs.push_back(Output::Agreed { message: MessageId { sender, context, sequence }, place });
        }
    }

    /// Nobody can judge. The leader's side, where all replicas of the own rank are to take the same; `None` when that
    /// is the supplier's, or each replica takes what it was sent.
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

/// Who has sent the envelope that is to be taken.
enum Claimants {
    /// Claims that are missing may decide.
    Open,
    /// A majority, of which these are live or the supplier.
    Most(ReplicaSet),
    /// There is no majority.
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
    // No way to count the others gives them more than one each.
    if kinship.weight(agreeing, live) * 2 > live.len() {
        return Claimants::Most(agreeing.union(ReplicaSet::only(supplier)));
    }
    let missing = live.without(tally.claimed());
    if missing == live.without(agreeing) && !missing.is_empty() {
        return Claimants::Open;
    }
    let mut counting = live;
    counting.insert(supplier);
    // Those that have not voted may yet contradict everybody.
    let votes: Vec<_> = counting.iter().map(|index| (index, tally.claim(index).ok_or(index))).collect();
    match agreed(&votes, kinship) {
        Some(Ok(digest)) if *digest == claim => Claimants::Most(agreeing.union(ReplicaSet::only(supplier))),
        Some(Ok(digest)) => Claimants::Most(who_says(*digest)),
        _ if !missing.is_empty() => Claimants::Open,
        _ => Claimants::Tied,
    }
}
