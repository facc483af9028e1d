//! One channel (sending virtual rank → receiving virtual rank, context), seen from either end.
//!
//! Sequence numbers start at 0 and are the same in all replicas. The sender's end is the retention log; the receiver's
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
    /// Where in the program it was sent.
    pub(crate) sent_at: Place,
    /// `None` once it has been released, while earlier messages keep the place.
    pub(crate) payload: Option<PayloadKey>,
    /// Live replicas of the receiver that may still ask for it.
    pub(crate) unacked: ReplicaSet,
    /// Whether it waits for a decision to become stable.
    pub(crate) held: bool,
    /// Whether it is kept for newcomers only, which may be long in coming.
    pub(crate) is_detached: bool,
}

/// What is known of one replica of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Cursor {
    /// It wants nothing before this position.
    pub(crate) from: u64,
    /// It has acknowledged everything before this position.
    acked: u64,
}

/// The sender's end: everything that some live replica of the receiver has not acknowledged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Outbox {
    base: u64,
    log: VecDeque<Logged>,
    pub(crate) cursors: Vec<Cursor>,
    /// Messages asked for before they could be transmitted.
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

    /// Oldest first.
    pub(crate) fn log(&self) -> impl Iterator<Item = &Logged> {
        self.log.iter()
    }

    /// Gives memory back that only long queues need.
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

    /// Appends a message. Replicas that acknowledged it before it was sent, because this process lags, do not count.
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

    /// Those of `replicas` that have not said that they need nothing at this position.
    #[inline]
    pub(crate) fn wanting(&self, sequence: SeqNum, replicas: ReplicaSet) -> impl Iterator<Item = ReplicaIndex> {
        replicas.iter().filter(move |index| sequence.0 >= self.cursors[usize::from(index.0)].from)
    }

    /// Positions that may be transmitted to a replica which resumes at `bookmark`.
    pub(crate) fn resumable(&self, bookmark: SeqNum) -> impl Iterator<Item = SeqNum> + use<> {
        (bookmark.0.max(self.base)..self.next().0).map(SeqNum)
    }

    /// A replica has acknowledged everything before `upto`.
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

    /// A replica has acknowledged one message ahead of earlier ones.
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

    /// A replica of the receiver is no longer live: nothing is kept for it.
    pub(crate) fn forget(&mut self, replica: ReplicaIndex, awaited: ReplicaSet, released: &mut Vec<Released>) {
        self.cursors[usize::from(replica.0)] = Cursor::default();
        self.fetches.retain(|(from, _)| *from != replica);
        for offset in 0..self.log.len() {
            self.clear(offset, replica, awaited, released);
        }
        self.trim();
    }

    /// Whether anybody but these has not acknowledged something. What was sent last is looked at first.
    pub(crate) fn is_owed_besides(&self, others: ReplicaSet) -> bool {
        self.log.iter().rev().any(|logged| !logged.unacked.without(others).is_empty())
    }

    /// Keeps what is in the log for a newcomer too.
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

/// A payload that needs not be kept as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// Nobody will ask for it any more.
    Wholly { payload: PayloadKey, length_bytes: u64 },
    /// Nobody will but newcomers.
    ToNewcomers { payload: PayloadKey },
}

impl Logged {
    /// What follows from who has acknowledged it. `awaited` are newcomers that no view has yet.
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

/// How far a message has come at the receiver.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Phase {
    /// At most votes have come.
    #[default]
    Announced,
    /// Matching has it; the payload is on its way.
    Incomplete { supplier: ReplicaIndex },
    /// Matching has it; the payload must come from another replica, or again. This one was asked.
    Wanted { asked: ReplicaIndex },
    /// The payload is complete; votes may be missing.
    Complete { supplier: ReplicaIndex, computed: Digest },
    /// The payload is not what its supplier says it sent, and nobody has another.
    Withheld { supplier: ReplicaIndex, computed: Digest },
    /// It will never be asked for again.
    Settled,
}

/// A message at the receiver.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    pub(crate) tally: Tally,
    /// As it arrived first.
    pub(crate) envelope: Option<Envelope>,
    /// Its envelope is vouched for: matching has it, or gets it after those before it.
    pub(crate) is_agreed: bool,
    /// Whether the engine has been told that it may deliver it.
    pub(crate) verified: bool,
    /// Replicas that were reported as outvoted on this message.
    pub(crate) reported: ReplicaSet,
    /// How often a payload had to be asked for again.
    pub(crate) attempts: u16,
    /// It was reported that nobody can judge it, and it waits for arbiters.
    pub(crate) is_disputed: bool,
    /// It was reported that nobody can judge it, and all receivers take the payload of one side.
    pub(crate) is_undecided: bool,
    /// What the engine calls it.
    pub(crate) place: u32,
    /// How often it was found that some replicas of the sender have spoken of it, and others have not.
    pub(crate) overdue: u8,
}

/// The receiver's end: a window of messages from the first one that is not settled.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Inbox {
    base: u64,
    slots: VecDeque<Slot>,
    /// The position of the next message that has not arrived.
    pub(crate) arrived: u64,
    /// The position of the next message that matching has not seen.
    pub(crate) matched: u64,
    /// Everything before this position has been acknowledged.
    acked: u64,
    /// Settled out of order and not acknowledged.
    ahead: Vec<SeqNum>,
    /// Messages and bytes settled since the last acknowledgement.
    pub(crate) unacked_count: u32,
    pub(crate) unacked_bytes: u64,
    pub(crate) compared: Compared,
}

/// What was compared on a channel. Nothing depends on it, so states that differ in it alone are the same state.
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
    /// The first position not settled: where a new supplier starts.
    pub(crate) fn bookmark(&self) -> SeqNum {
        SeqNum(self.base)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives memory back that only long windows need.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.ahead.shrink_to_fit();
    }

    /// The slot of a message that somebody speaks of, `None` when it is settled. Everyone speaks of the messages of a
    /// channel in order, so one that is not in the window is the next; else the error says which is.
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

    /// The slot of a message in the window that is not settled.
    #[inline]
    pub(crate) fn slot(&mut self, sequence: SeqNum) -> Option<&mut Slot> {
        let offset = usize::try_from(sequence.0.checked_sub(self.base)?).ok()?;
        self.slots.get_mut(offset).filter(|slot| slot.phase != Phase::Settled)
    }

    /// The next message that matching is to get, if it is agreed: matching has it from now on.
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

    /// Marks a message settled and moves the window; returns the message's length.
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

    /// Marks a message settled before earlier ones are.
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

    /// Lists everything that is settled ahead to be acknowledged again, for someone who has not heard it. Returns
    /// whether there is something, and whether the channel is not waiting to acknowledge already.
    pub(crate) fn repeat_ahead(&mut self) -> bool {
        let settled = |place: &usize| self.slots[*place].phase == Phase::Settled;
        self.ahead = (0..self.slots.len()).filter(settled).map(|place| SeqNum(self.base + place as u64)).collect();
        let was_idle = self.unacked_count == 0;
        self.unacked_count = self.unacked_count.max(u32::from(!self.ahead.is_empty()));
        was_idle && self.unacked_count > 0
    }

    /// What is to be acknowledged now: everything before a position, and single messages after it.
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
