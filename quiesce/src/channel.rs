//! One channel (sending virtual rank → receiving virtual rank, context), from both ends.
//!
//! Sequence numbers start at 0 and are the same in all replicas. The sender's end is the retention log. The receiver's
//! end is a window of messages that are not settled yet. Both are arrays indexed by sequence number minus a base.

use crate::frame::PayloadKey;
use crate::outcome::Place;
use redrt_types::{Digest, Envelope, ReplicaIndex, ReplicaSet, SeqNum};
use sdc_detect::Tally;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// A message in the retention log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Logged {
    pub(crate) envelope: Envelope,
    pub(crate) digest: Digest,
    /// The place in the program at which it was sent.
    pub(crate) sent_at: Place,
    /// `None` once released. The entry stays while earlier messages are kept.
    pub(crate) payload: Option<PayloadKey>,
    /// Replicas of the receiver, live or expected, that may still ask for it.
    pub(crate) unacked: ReplicaSet,
    /// True while it waits for a decision to become stable.
    pub(crate) held: bool,
    /// True if it is kept for newcomers only, which may be long in coming.
    pub(crate) is_detached: bool,
}

/// Positions of one replica of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Cursor {
    /// First position that it wants.
    pub(crate) from: u64,
    /// First position that it has not acknowledged in order.
    acked: u64,
}

/// The sender's end: all messages that some live or expected replica of the receiver has not acknowledged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Outbox {
    base: u64,
    log: VecDeque<Logged>,
    pub(crate) cursors: Vec<Cursor>,
    /// Messages that were asked for before they could be sent.
    pub(crate) fetches: Vec<(ReplicaIndex, SeqNum)>,
}

impl Outbox {
    pub(crate) fn new(receiver_degree: u16) -> Self {
        Self {
            base: 0,
            log: VecDeque::new(),
            cursors: vec![Cursor::default(); usize::from(receiver_degree)],
            fetches: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.log.len()
    }

    /// The messages in the log, oldest first.
    pub(crate) fn log(&self) -> impl Iterator<Item = &Logged> {
        self.log.iter()
    }

    /// Frees memory that only long logs need.
    pub(crate) fn shrink(&mut self) {
        self.log.shrink_to_fit();
        self.fetches.shrink_to_fit();
    }

    #[inline]
    pub(crate) fn next(&self) -> SeqNum {
        SeqNum(self.base + self.log.len() as u64)
    }

    pub(crate) fn get(&self, sequence: SeqNum) -> Option<&Logged> {
        self.log.get(usize::try_from(sequence.0.checked_sub(self.base)?).ok()?)
    }

    pub(crate) fn get_mut(&mut self, sequence: SeqNum) -> Option<&mut Logged> {
        self.log.get_mut(usize::try_from(sequence.0.checked_sub(self.base)?).ok()?)
    }

    /// Appends a message. If this process lags, some replicas have acknowledged the message before, and do not count.
    pub(crate) fn push(&mut self, mut message: Logged, awaited: ReplicaSet, released: &mut Vec<Released>) -> SeqNum {
        let sequence = self.next();
        for (index, cursor) in self.cursors.iter().enumerate() {
            if cursor.acked > sequence.0 {
                message.unacked.remove(ReplicaIndex(index as u16));
            }
        }
        if let Some(gone) = message.let_go(awaited) {
            released.push(gone);
        }
        self.log.push_back(message);
        self.trim();
        sequence
    }

    /// The members of `replicas` that want a message at this position.
    #[inline]
    pub(crate) fn wanting(&self, sequence: SeqNum, replicas: ReplicaSet) -> impl Iterator<Item = ReplicaIndex> {
        replicas.iter().filter(move |index| sequence.0 >= self.cursors[usize::from(index.0)].from)
    }

    /// Positions in the log from `bookmark` on.
    pub(crate) fn resumable(&self, bookmark: SeqNum) -> impl Iterator<Item = SeqNum> + use<> {
        (bookmark.0.max(self.base)..self.next().0).map(SeqNum)
    }

    /// Records that a replica has acknowledged all messages before `upto`.
    pub(crate) fn acknowledge(
        &mut self,
        replica: ReplicaIndex,
        upto: SeqNum,
        awaited: ReplicaSet,
        released: &mut Vec<Released>,
    ) {
        let cursor = &mut self.cursors[usize::from(replica.0)];
        if upto.0 <= cursor.acked {
            return;
        }
        let first = cursor.acked.max(self.base) - self.base;
        cursor.acked = upto.0;
        let end = upto.0.saturating_sub(self.base).min(self.log.len() as u64);
        for offset in first..end {
            self.clear(offset as usize, replica, awaited, released);
        }
        self.trim();
    }

    /// Records that a replica has acknowledged one message, though earlier ones are still open.
    pub(crate) fn acknowledge_one(
        &mut self,
        replica: ReplicaIndex,
        sequence: SeqNum,
        awaited: ReplicaSet,
        released: &mut Vec<Released>,
    ) {
        if self.get(sequence).is_some() {
            self.clear((sequence.0 - self.base) as usize, replica, awaited, released);
            self.trim();
        }
    }

    /// Drops a replica of the receiver that is no longer live. Nothing is kept for it.
    pub(crate) fn forget(&mut self, replica: ReplicaIndex, awaited: ReplicaSet, released: &mut Vec<Released>) {
        self.cursors[usize::from(replica.0)] = Cursor::default();
        self.fetches.retain(|(from, _)| *from != replica);
        for offset in 0..self.log.len() {
            self.clear(offset, replica, awaited, released);
        }
        self.trim();
    }

    /// Returns true if a replica other than these has not acknowledged some message. The newest messages are checked
    /// first.
    pub(crate) fn is_owed_besides(&self, others: ReplicaSet) -> bool {
        self.log.iter().rev().any(|logged| !logged.unacked.without(others).is_empty())
    }

    /// Keeps all messages in the log for a newcomer as well.
    pub(crate) fn pin(&mut self, newcomer: ReplicaIndex) {
        self.cursors[usize::from(newcomer.0)] = Cursor::default();
        for logged in self.log.iter_mut().filter(|logged| logged.payload.is_some()) {
            logged.unacked.insert(newcomer);
        }
    }

    fn clear(&mut self, offset: usize, replica: ReplicaIndex, awaited: ReplicaSet, released: &mut Vec<Released>) {
        let logged = &mut self.log[offset];
        logged.unacked.remove(replica);
        released.extend(logged.let_go(awaited));
    }

    fn trim(&mut self) {
        while self.log.front().is_some_and(|logged| logged.payload.is_none()) {
            self.log.pop_front();
            self.base += 1;
        }
    }
}

/// A payload that need not be kept as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// No replica will ask for it any more.
    Wholly { payload: PayloadKey, length_bytes: u64 },
    /// Only newcomers may ask for it.
    ToNewcomers { payload: PayloadKey },
}

impl Logged {
    /// Returns the release that follows from the acknowledgements so far. `awaited` are newcomers that no view has yet.
    fn let_go(&mut self, awaited: ReplicaSet) -> Option<Released> {
        let payload = self.payload?;
        if self.unacked.is_empty() {
            self.payload = None;
            return Some(Released::Wholly { payload, length_bytes: self.envelope.length_bytes });
        }
        if self.is_detached || !self.unacked.without(awaited).is_empty() {
            return None;
        }
        self.is_detached = true;
        Some(Released::ToNewcomers { payload })
    }
}

/// The progress of a message at the receiver.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Phase {
    /// Votes may have arrived, but no offer.
    #[default]
    Announced,
    /// The offer has arrived, and its payload is on the way.
    Incomplete { supplier: ReplicaIndex },
    /// The payload must come from another replica, or again. This replica was asked.
    Wanted { asked: ReplicaIndex },
    /// The payload is complete. Votes may be missing.
    Complete { supplier: ReplicaIndex, computed: Digest },
    /// The payload is not as its supplier has sent it, and no other replica has a better one.
    Withheld { supplier: ReplicaIndex, computed: Digest },
    /// It will never be asked for again.
    Settled,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    pub(crate) tally: Tally,
    /// The envelope of the first offer.
    pub(crate) envelope: Option<Envelope>,
    /// True once other replicas vouch for the envelope. Matching gets the message after those before it.
    pub(crate) is_agreed: bool,
    /// True once the engine was told that it may deliver the message.
    pub(crate) verified: bool,
    /// Replicas that were reported as outvoted on this message.
    pub(crate) reported: ReplicaSet,
    /// Number of times a payload had to be fetched again.
    pub(crate) attempts: u16,
    /// True if the tie was reported, and the message waits for arbiters.
    pub(crate) is_disputed: bool,
    /// True if the tie was reported, and all receivers take the payload of one side.
    pub(crate) is_undecided: bool,
    /// The engine's number of the message.
    pub(crate) place: u32,
    /// Number of looks at which some replicas of the sender had announced it, and others had not.
    pub(crate) overdue: u8,
}

/// The receiver's end: a window from the first message that is not settled.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Inbox {
    base: u64,
    slots: VecDeque<Slot>,
    /// Position of the next message whose offer has not arrived.
    pub(crate) arrived: u64,
    /// Position of the next message that matching has not got.
    pub(crate) matched: u64,
    /// First position that was not acknowledged in order.
    acked: u64,
    /// Messages that were settled out of order and not acknowledged.
    ahead: Vec<SeqNum>,
    /// Messages and bytes that were settled since the latest acknowledgement.
    pub(crate) unacked_count: u32,
    pub(crate) unacked_bytes: u64,
    pub(crate) compared: Compared,
}

/// Counts of comparisons on a channel. They do not affect behaviour, so states that differ only here are equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl PartialEq for Compared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Compared {}

impl Hash for Compared {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Inbox {
    /// The first position that is not settled, at which a new supplier starts.
    pub(crate) fn bookmark(&self) -> SeqNum {
        SeqNum(self.base)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Frees memory that only long windows need.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.ahead.shrink_to_fit();
    }

    /// The slot of a message that was announced. `None` when it is settled. Every replica announces a channel in order,
    /// so a message beyond the window must be the next. Otherwise the error is the position of the next one.
    #[inline]
    pub(crate) fn admit(&mut self, sequence: SeqNum) -> Result<Option<&mut Slot>, u64> {
        let Some(offset) = sequence.0.checked_sub(self.base) else { return Ok(None) };
        let length = self.slots.len() as u64;
        if offset >= length {
            if offset > length {
                return Err(self.base + length);
            }
            self.slots.push_back(Slot::default());
        }
        Ok(Some(&mut self.slots[offset as usize]).filter(|slot| slot.phase != Phase::Settled))
    }

    /// The slot of a message in the window. `None` when it is settled.
    #[inline]
    pub(crate) fn slot(&mut self, sequence: SeqNum) -> Option<&mut Slot> {
        let offset = usize::try_from(sequence.0.checked_sub(self.base)?).ok()?;
        self.slots.get_mut(offset).filter(|slot| slot.phase != Phase::Settled)
    }

    /// Hands the next message to matching, if its envelope is agreed.
    pub(crate) fn next_agreed(&mut self) -> Option<(SeqNum, u32)> {
        let offset = usize::try_from(self.matched.checked_sub(self.base)?).ok()?;
        let place = self.slots.get(offset).filter(|slot| slot.is_agreed)?.place;
        self.matched += 1;
        Some((SeqNum(self.matched - 1), place))
    }

    /// All positions in the window.
    pub(crate) fn window(&self) -> impl Iterator<Item = SeqNum> + use<> {
        (self.base..self.base + self.slots.len() as u64).map(SeqNum)
    }

    /// Marks a message settled and moves the window. Returns the message's length.
    #[inline]
    pub(crate) fn settle(&mut self, sequence: SeqNum) -> u64 {
        let slot = &mut self.slots[(sequence.0 - self.base) as usize];
        self.unacked_count += 1;
        let length_bytes = slot.envelope.map_or(0, |envelope| envelope.length_bytes);
        self.unacked_bytes = self.unacked_bytes.saturating_add(length_bytes);
        if sequence.0 > self.base {
            self.settle_ahead(sequence);
            return length_bytes;
        }
        self.slots.pop_front();
        self.base += 1;
        if self.slots.front().is_some_and(|slot| slot.phase == Phase::Settled) {
            self.pass_settled();
        }
        length_bytes
    }

    /// Marks a message settled while earlier ones are not.
    #[inline(never)]
    fn settle_ahead(&mut self, sequence: SeqNum) {
        let slot = &mut self.slots[(sequence.0 - self.base) as usize];
        let (is_agreed, place) = (slot.is_agreed, slot.place);
        *slot = Slot { phase: Phase::Settled, is_agreed, place, ..Slot::default() };
        self.ahead.push(sequence);
    }

    /// Moves the window to the first message that is not settled.
    #[inline(never)]
    fn pass_settled(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.phase == Phase::Settled) {
            self.slots.pop_front();
            self.base += 1;
        }
    }

    /// Lists all messages that were settled out of order for another acknowledgement, since some replica has not
    /// received the first. Returns true if the channel must be queued for acknowledgement.
    pub(crate) fn repeat_ahead(&mut self) -> bool {
        let settled = |place: &usize| self.slots[*place].phase == Phase::Settled;
        self.ahead = (0..self.slots.len()).filter(settled).map(|place| SeqNum(self.base + place as u64)).collect();
        let was_idle = self.unacked_count == 0;
        self.unacked_count = self.unacked_count.max(u32::from(!self.ahead.is_empty()));
        was_idle && self.unacked_count > 0
    }

    /// Returns the acknowledgement that is due: a position in order, and single messages beyond it.
    pub(crate) fn acknowledge(&mut self) -> (Option<SeqNum>, Vec<SeqNum>) {
        self.unacked_count = 0;
        self.unacked_bytes = 0;
        let upto = (self.base > self.acked).then_some(SeqNum(self.base));
        self.acked = self.base;
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.retain(|sequence| sequence.0 >= self.base);
        (upto, ahead)
    }
}
