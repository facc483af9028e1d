//! The receiver's side: new messages and duplicates, votes and verdicts, acknowledgements.

use super::{Replica, Verification};
use crate::channel::{Inbox, Phase, Slot};
use crate::error::Breach;
use crate::frame::{Action, Arrival, Finding, Frame, MessageId, MismatchReport, Output};
use crate::hashable_map::ChannelKey;
use crate::mutation::Mutation;
use crate::view::Protocol;
use redrt_types::{
    ContextId, Digest, Envelope, Kinship, ReplicaId, ReplicaIndex, ReplicaSet, SeqNum, View, VirtualRank,
};
use sdc_detect::Verdict;

/// Maximum number of messages of a channel between two acknowledgements …
const ACK_COUNT: u32 = 16;
/// … and maximum number of bytes.
const ACK_BYTES: u64 = 64 * 1024;
/// Length from which a message is acknowledged at once, since its send may wait for that to complete.
const ACK_PROMPT_BYTES: u64 = 8 * 1024;
/// Maximum number of messages of one sender that are asked about at one look: those that have been overdue longest. A
/// program may use hundreds of channels, and where one replica lags, messages of all of them are overdue.
const OVERDUE_AT_ONCE: usize = 4;

impl Replica {
    pub(super) fn handle_offer(
        &mut self,
        from: ReplicaId,
        context: ContextId,
        sequence: SeqNum,
        envelope: Envelope,
        (digest, core): (Digest, Option<u16>),
    ) -> Result<Arrival, Breach> {
        let message = MessageId { sender: from.rank, context, sequence };
        let awaits_majority = self.awaits_majority(from.rank);
        let inbox = self.inboxes.get_or_insert_with((from.rank, context), Inbox::default);
        let arrived = inbox.arrived;
        // Each replica sends a channel in order, from a position not after the first one that is missing here.
        if sequence.0 > arrived {
            return Err(Breach::OfferOutOfOrder { context, sequence, expected: arrived });
        }
        let far_ahead = |end| Breach::FarAhead { context, sequence, end };
        let Some(slot) = inbox.admit(sequence).map_err(far_ahead)? else { return Ok(Arrival::Nothing) };
        // In the all-to-all protocol a vote is final only when the payload of that copy was hashed.
        let is_final = self.protocol == Protocol::Hash;
        let is_new_vote = !slot.tally.claimed().contains(from.index);
        slot.tally.record(from.index, digest, is_final);
        slot.tally.record_core(from.index, core);
        match slot.phase {
            Phase::Announced => {
                slot.phase = Phase::Incomplete { supplier: from.index };
                slot.envelope = Some(envelope);
                slot.is_agreed = !awaits_majority;
                // Messages that are only announced have not arrived, so this is the first that has not.
                let is_next = inbox.matched == arrived;
                inbox.arrived += 1;
                if !awaits_majority {
                    inbox.matched += u64::from(is_next);
                    return Ok(Arrival::New { is_agreed: is_next });
                }
                // An outvoted message is fetched from another replica when its payload is here, and can be compared
                // with the right one.
                Ok(Arrival::New { is_agreed: self.agrees_on_arrival(message, from.index) })
            }
            Phase::Wanted { .. } | Phase::Withheld { .. } => {
                slot.phase = Phase::Incomplete { supplier: from.index };
                let place = slot.place;
                slot.envelope = Some(envelope);
                self.agree(message);
                Ok(Arrival::Again { place })
            }
            Phase::Incomplete { .. } | Phase::Complete { .. } => {
                self.evaluate(message);
                Ok(if !is_final && is_new_vote { Arrival::Shadow } else { Arrival::Nothing })
            }
            Phase::Settled => Ok(Arrival::Nothing),
        }
    }

    pub(super) fn handle_digest(
        &mut self,
        from: ReplicaId,
        context: ContextId,
        sequence: SeqNum,
        (digest, core): (Digest, Option<u16>),
    ) -> Result<(), Breach> {
        let is_ignored = self.has(Mutation::KinshipIgnored);
        let inbox = self.inboxes.get_or_insert_with((from.rank, context), Inbox::default);
        let far_ahead = |end| Breach::FarAhead { context, sequence, end };
        let Some(slot) = inbox.admit(sequence).map_err(far_ahead)? else { return Ok(()) };
        slot.tally.record(from.index, digest, true);
        slot.tally.record_core(from.index, core);
        let is_judged = match slot.phase {
            Phase::Announced => false,
            Phase::Complete { .. } => true,
            _ => !slot.is_agreed,
        };
        if is_judged {
            let conclusion = conclusion(slot, &self.live, &self.view, from.rank, is_ignored);
            self.conclude(MessageId { sender: from.rank, context, sequence }, conclusion);
        }
        Ok(())
    }

    /// Asks for overdue messages, because this process may be waiting. For each channel that is the oldest message that
    /// some replicas of its sender have announced and others have not, or whose payload none has sent. It is asked for
    /// again after twice as many looks each time. A replica that has sent it alone, or has not sent it, has left the
    /// path of its siblings, and they find that out. A replica that lags has not.
    ///
    /// Where many channels wait for a replica that lags, those are asked about that have waited longest.
    pub fn ask_overdue(&mut self) {
        if self.has(Mutation::OverdueIgnored) {
            return;
        }
        for sender in (0..self.world.rank_count()).map(VirtualRank) {
            let live = self.live(sender);
            if live.len() < 2 {
                continue;
            }
            let mut waiting = Vec::new();
            for channel in self.inboxes.of(sender) {
                let mut window = self.inbox(channel).window();
                let overdue = window.find(|sequence| {
                    let Some(slot) = self.inbox(channel).slot(*sequence) else { return false };
                    let claimed = slot.tally.claimed().intersection(live);
                    let lacks_payload = matches!(slot.phase, Phase::Announced | Phase::Wanted { .. });
                    !claimed.is_empty() && (claimed != live || lacks_payload)
                });
                let Some(sequence) = overdue else { continue };
                let slot = self.inbox(channel).slot(sequence).expect("it was just found");
                slot.overdue = slot.overdue.saturating_add(1);
                let asked = if let Phase::Wanted { asked } = slot.phase { Some(asked) } else { None };
                waiting.push((slot.overdue, channel.1, sequence, asked));
            }
            // The sort is stable: channels that have waited equally long stay in order.
            waiting.sort_by_key(|(looks, ..)| std::cmp::Reverse(*looks));
            for (looks, context, sequence, asked) in waiting.into_iter().take(OVERDUE_AT_ONCE) {
                // The first look must ask, because a job in which no process asks for anything counts as stalled. Not
                // every look may ask, since frames that are sent would hide that nothing else moves.
                if !looks.is_power_of_two() {
                    continue;
                }
                let (frame, asked) = match asked {
                    Some(asked) => (Frame::Fetch { context, sequence }, ReplicaSet::only(asked)),
                    None => (Frame::Overdue { context, sequence }, live),
                };
                asked.iter().for_each(|index| self.transmit(ReplicaId { rank: sender, index }, frame.clone()));
            }
        }
    }

    /// Sets the engine's own number of a message that has arrived. It is returned with further outputs about the
    /// message.
    pub fn set_place(&mut self, message: MessageId, place: u32) {
        if let Some(slot) = self.inboxes.get_mut(channel(message)).and_then(|inbox| inbox.slot(message.sequence)) {
            slot.place = place;
        }
    }

    /// Takes the digest of a payload that `from` sent for this message ([`Arrival::New`] or [`Arrival::Again`]) and
    /// that is complete in memory. Ignored if another supplier was chosen since.
    pub fn payload_received(&mut self, from: ReplicaId, message: MessageId, computed: Digest) {
        let is_ignored = self.has(Mutation::KinshipIgnored);
        let Some(slot) = self.inboxes.get_mut(channel(message)).and_then(|inbox| inbox.slot(message.sequence)) else {
            return;
        };
        if slot.phase != (Phase::Incomplete { supplier: from.index }) {
            return;
        }
        slot.phase = Phase::Complete { supplier: from.index, computed };
        slot.tally.confirm(from.index);
        if self.verification == Verification::Deferred
            && !slot.verified
            && slot.tally.claim(from.index) == Some(computed)
        {
            slot.verified = true;
            let place = slot.place;
            self.outputs.push_back(Output::Verified { message, place });
        }
        let conclusion = conclusion(slot, &self.live, &self.view, message.sender, is_ignored);
        self.conclude(message, conclusion);
    }

    /// Notes that the payload of a message that is not agreed comes only when it is matched.
    pub fn payload_awaits_match(&mut self, message: MessageId) {
        self.agree(message);
    }

    /// Notes that the payload of a further copy ([`Arrival::Shadow`]) was hashed and dropped.
    pub fn shadow_received(&mut self, from: ReplicaId, message: MessageId, computed: Digest) {
        let Some(slot) = self.inboxes.get_mut(channel(message)).and_then(|inbox| inbox.slot(message.sequence)) else {
            return;
        };
        let Some(claim) = slot.tally.claim(from.index) else { return };
        if slot.tally.final_votes().contains(from.index) {
            return;
        }
        slot.tally.confirm(from.index);
        if claim != computed {
            self.report(message, from.index, computed, Finding::TransportCorrupt, None, Action::Outvoted);
        }
        self.evaluate(message);
    }

    /// Acts on the state of a message: gives it to matching once its envelope is agreed, and carries out the verdict
    /// once that is in.
    pub(super) fn evaluate(&mut self, message: MessageId) {
        let is_ignored = self.has(Mutation::KinshipIgnored);
        if let Some(slot) = self.inboxes.get_mut(channel(message)).and_then(|inbox| inbox.slot(message.sequence)) {
            let conclusion = conclusion(slot, &self.live, &self.view, message.sender, is_ignored);
            self.conclude(message, conclusion);
        }
    }

    /// Carries out a conclusion about a message that is not settled.
    #[inline(always)]
    fn conclude(&mut self, message: MessageId, conclusion: Conclusion) {
        match conclusion {
            Conclusion::Open => {}
            Conclusion::Agreeable => self.agree(message),
            Conclusion::Unanimous => self.settle(message),
            Conclusion::NotAsClaimed { supplier, computed } => self.correct_transport(message, supplier, computed),
            Conclusion::Differing { supplier, computed, verdict } => {
                self.judge_differing(message, supplier, computed, *verdict);
            }
        }
    }

    #[cold]
    fn judge_differing(&mut self, message: MessageId, supplier: ReplicaIndex, computed: Digest, verdict: Verdict) {
        match verdict {
            Verdict::Unanimous => self.settle(message),
            Verdict::ReplicaCorrupt { culprits, agreed } => {
                self.correct_replica(message, supplier, computed, &culprits, agreed);
            }
            Verdict::Undecidable if self.is_left_to_arbiters(message) => {
                self.dispute(message, supplier, computed);
            }
            Verdict::Undecidable if self.judges_a_sibling() => {
                self.report(message, supplier, computed, Finding::Undecidable, None, Action::Withheld);
                self.slot(message).phase = Phase::Withheld { supplier, computed };
            }
            Verdict::TransportCorrupt | Verdict::Undecidable => self.take_one_side(message, supplier, computed),
        }
    }

    /// Takes one side of a message without a majority. Where the own rank has three replicas or more, all of them take
    /// the payload of the sender's leader. The trap: if each took its own plane's, two of three would have the same
    /// side, right or wrong, and would outvote the third from then on. With fewer replicas there is no such majority,
    /// so each takes its supplier's payload, and the results of both sides can be compared.
    fn take_one_side(&mut self, message: MessageId, supplier: ReplicaIndex, computed: Digest) {
        let other = self.shared_side(message, supplier);
        let slot = self.slot(message);
        let other = other.filter(|_| !slot.verified);
        if !std::mem::replace(&mut slot.is_undecided, true) {
            let action = if other.is_some() { Action::Refetched } else { Action::Delivered };
            self.report(message, supplier, computed, Finding::Undecidable, None, action);
        }
        match other {
            Some(other) => self.fetch(message, other),
            None => self.settle(message),
        }
    }

    fn correct_transport(&mut self, message: MessageId, supplier: ReplicaIndex, computed: Digest) {
        let live = self.live(message.sender);
        let limit = 2 * live.len() as u16 + 2;
        let withholds = self.withholds && self.has_sibling() && !self.has(Mutation::CorruptLogDelivered);
        let slot = self.slot(message);
        slot.attempts += 1;
        // A corrupt log yields the same bytes for ever. A sibling may have the message intact. A process without
        // siblings goes on with the bytes that it has.
        let other = next_after(live, supplier).filter(|_| slot.attempts <= limit);
        let action = match other {
            Some(_) => Action::Refetched,
            None if withholds => Action::Withheld,
            None => Action::Delivered,
        };
        self.report(message, supplier, computed, Finding::TransportCorrupt, None, action);
        match other {
            Some(other) => self.fetch(message, other),
            None if withholds => self.slot(message).phase = Phase::Withheld { supplier, computed },
            None => self.settle(message),
        }
    }

    /// Returns true if another replica of the own rank is live.
    pub(super) fn has_sibling(&self) -> bool {
        self.live(self.me.rank).iter().any(|index| index != self.me.index)
    }

    /// Delivers the messages that were withheld, if no sibling is left.
    pub(super) fn yield_withheld(&mut self) {
        if self.has_sibling() {
            return;
        }
        for sender in (0..self.world.rank_count()).map(VirtualRank) {
            for channel in self.inboxes.of(sender) {
                for sequence in self.inbox(channel).window() {
                    let Some(slot) = self.inbox(channel).slot(sequence) else { continue };
                    if let Phase::Withheld { supplier, computed } = slot.phase {
                        slot.phase = Phase::Complete { supplier, computed };
                        self.evaluate(MessageId { sender, context: channel.1, sequence });
                    }
                }
            }
        }
    }

    fn correct_replica(
        &mut self,
        message: MessageId,
        supplier: ReplicaIndex,
        computed: Digest,
        culprits: &[ReplicaIndex],
        agreed: Digest,
    ) {
        let live = self.live(message.sender);
        let ignored = !self.corrects || self.has(Mutation::VerdictIgnored);
        let slot = self.slot(message);
        let agrees = |replica: &ReplicaIndex| slot.tally.claim(*replica) == Some(agreed);
        let other = if computed == agreed || slot.verified || ignored { None } else { live.iter().find(agrees) };
        let reported = slot.reported;
        culprits.iter().for_each(|culprit| slot.reported.insert(*culprit));
        let action = match other {
            Some(_) => Action::Refetched,
            None if computed == agreed => Action::Outvoted,
            None => Action::Delivered,
        };
        for culprit in culprits.iter().filter(|culprit| !reported.contains(**culprit)) {
            self.report(message, supplier, computed, Finding::ReplicaCorrupt, Some(*culprit), action);
        }
        match other {
            Some(other) => self.fetch(message, other),
            None => self.settle(message),
        }
    }

    /// Asks a replica of the sender for the payload of a message that has arrived.
    pub(super) fn fetch(&mut self, message: MessageId, other: ReplicaIndex) {
        self.slot(message).phase = Phase::Wanted { asked: other };
        let MessageId { sender, context, sequence } = message;
        self.transmit(ReplicaId { rank: sender, index: other }, Frame::Fetch { context, sequence });
    }

    /// Settles a message: delivers it unless that was done, and acknowledges it in time.
    fn settle(&mut self, message: MessageId) {
        let live = self.live(message.sender);
        let inbox = self.inboxes.get_mut(channel(message)).expect("a message has its channel");
        let slot = inbox.slot(message.sequence).expect("it is not settled yet");
        if !slot.is_agreed {
            return self.settle_unagreed(message);
        }
        let (verified, place) = (slot.verified, slot.place);
        if slot.tally.final_votes().intersection(live).len() >= 2 {
            self.counters.messages_compared += 1;
            let length_bytes = slot.envelope.map_or(0, |envelope| envelope.length_bytes);
            self.counters.bytes_compared = self.counters.bytes_compared.saturating_add(length_bytes);
            inbox.compared.messages += 1;
            inbox.compared.bytes = inbox.compared.bytes.saturating_add(length_bytes);
        }
        if !verified {
            self.outputs.push_back(Output::Verified { message, place });
        }
        if inbox.unacked_count == 0 {
            self.unacknowledged.push(channel(message));
        }
        let length_bytes = inbox.settle(message.sequence);
        let is_due = inbox.unacked_count >= ACK_COUNT || inbox.unacked_bytes >= ACK_BYTES;
        if is_due || length_bytes >= ACK_PROMPT_BYTES {
            self.acknowledge(channel(message));
        }
    }

    /// Settles a message whose envelope was never agreed, because no better one can be had.
    #[cold]
    #[inline(never)]
    fn settle_unagreed(&mut self, message: MessageId) {
        self.match_agreed(message);
        self.settle(message);
    }

    /// Acknowledges the settled messages of all channels.
    pub(super) fn acknowledge_all(&mut self) {
        while let Some(channel) = self.unacknowledged.pop() {
            self.acknowledge(channel);
        }
    }

    fn acknowledge(&mut self, channel: ChannelKey) {
        self.unacknowledged.retain(|other| *other != channel);
        let (sender, context) = channel;
        let inbox = self.inboxes.get_mut(channel).expect("a message was received on it");
        let (upto, ahead) = inbox.acknowledge();
        let mut live = self.live(sender);
        if self.has(Mutation::AckLost) {
            live = self.supplier(sender).map_or(ReplicaSet::EMPTY, ReplicaSet::only);
        }
        for index in live.iter() {
            let to = ReplicaId { rank: sender, index };
            if let Some(upto) = upto {
                self.transmit(to, Frame::Ack { context, upto });
            }
            for sequence in &ahead {
                self.transmit(to, Frame::AckOne { context, sequence: *sequence });
            }
        }
    }

    pub(super) fn report(
        &mut self,
        message: MessageId,
        supplier: ReplicaIndex,
        payload: Digest,
        finding: Finding,
        culprit: Option<ReplicaIndex>,
        action: Action,
    ) {
        let mut counting = self.live(message.sender);
        counting.insert(supplier);
        let view = self.view.number;
        let slot = self.slot(message);
        let place = |index| ReplicaId { rank: message.sender, index };
        let report = MismatchReport {
            message,
            envelope: slot.envelope.expect("a complete message has arrived"),
            supplier: place(supplier),
            payload,
            votes: slot.tally.votes(counting),
            finding,
            culprit: culprit.map(place),
            action,
            view,
        };
        self.outputs.push_back(Output::Mismatch(Box::new(report)));
    }

    pub(super) fn slot(&mut self, message: MessageId) -> &mut Slot {
        let inbox = self.inboxes.get_mut(channel(message)).expect("a message has its channel");
        inbox.slot(message.sequence).expect("the message is not settled")
    }

    pub(super) fn inbox(&mut self, channel: ChannelKey) -> &mut Inbox {
        self.inboxes.get_mut(channel).expect("the channel was listed")
    }
}

/// The conclusion from the votes on a message that is not settled.
enum Conclusion {
    /// Votes that may decide are missing.
    Open,
    /// The envelope may be agreed now.
    Agreeable,
    /// All votes are the same.
    Unanimous,
    /// The payload differs from the digest that its supplier sent. This is known without other votes, so it is fetched
    /// again at once.
    NotAsClaimed { supplier: ReplicaIndex, computed: Digest },
    /// All votes that count are there, and they differ.
    Differing { supplier: ReplicaIndex, computed: Digest, verdict: Box<Verdict> },
}

/// The conclusion from a slot. With `is_ignored` copies weigh as much as others; see [`Mutation::KinshipIgnored`].
#[inline(always)]
fn conclusion(slot: &Slot, live: &[ReplicaSet], view: &View, sender: VirtualRank, is_ignored: bool) -> Conclusion {
    let (live, unrelated) = (live[sender.0 as usize], Kinship::default());
    let kinship = if is_ignored { &unrelated } else { view.kinship(sender) };
    let Phase::Complete { supplier, computed } = slot.phase else { return Conclusion::Agreeable };
    if slot.tally.claim(supplier) != Some(computed) {
        return Conclusion::NotAsClaimed { supplier, computed };
    }
    match slot.tally.verdict(computed, supplier, live, kinship) {
        None if slot.is_agreed => Conclusion::Open,
        None => Conclusion::Agreeable,
        Some(Verdict::Unanimous) => Conclusion::Unanimous,
        Some(verdict) => Conclusion::Differing { supplier, computed, verdict: Box::new(verdict) },
    }
}

fn channel(message: MessageId) -> ChannelKey {
    (message.sender, message.context)
}

/// The next live replica after one, cyclically. That one itself when it is alone, `None` when none is live.
fn next_after(live: ReplicaSet, replica: ReplicaIndex) -> Option<ReplicaIndex> {
    live.iter().find(|other| *other > replica).or_else(|| live.iter().next())
}
