//! Messages whose payloads are still needed.

use super::injection::{Injection, Way};
use super::payload::EAGER_BYTES_MAX as EAGER_BYTES_MAX_OF_ONE;
use super::payload::Payload;
use super::request::RequestId;
use redrt_types::VirtualRank;
use sdc_detect::Element;
use slab::Slab;

/// Number of an outgoing message, never reused. The lower half is its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OutgoingId(pub u64);

impl OutgoingId {
    fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// A message whose payload is still needed.
pub struct Outgoing {
    /// Its bytes, lent or copied.
    pub payload: Payload,
    /// Type of the payload's elements.
    pub element: Element,
    /// Its way to its receivers.
    pub way: Way,
    /// The rank that may ask for it; `None` when it stays in this process.
    pub to: Option<VirtualRank>,
    /// True once its receiver has asked for it.
    pub granted: bool,
    /// True once the program has its buffer back, and only newcomers may ask for the payload.
    pub detached: bool,
    /// The request that completes when the payload is no longer needed.
    pub request: Option<RequestId>,
}

/// All outgoing messages of a process.
pub struct Outgoings {
    slots: Slab<(OutgoingId, Outgoing)>,
    uses: u64,
    /// Memory of eager messages that are not acknowledged by all, overhead included.
    eager_bytes: usize,
    /// Payloads that are shorter, in bytes, go with their offers, and nothing else is looked at.
    eager_below_bytes: usize,
    /// Only where faults are injected.
    injection: Option<Box<Injection>>,
}

/// Memory of a message beside its payload: here, in the protocol's log and as a waiting frame.
const OVERHEAD_BYTES: usize = 512;

/// Unacknowledged bytes beyond which sends of short messages complete only on acknowledgement, as those of long ones
/// do. So a sender that is faster than its receivers waits, and does not run out of memory.
const EAGER_BYTES_MAX: usize = 32 << 20;

impl Outgoing {
    /// Its share of [`Outgoings::eager_bytes`].
    #[inline]
    fn eager_bytes(&self) -> usize {
        if self.way.is_eager() && !self.detached { OVERHEAD_BYTES + self.payload.len() } else { 0 }
    }
}

impl Outgoings {
    /// Starts with no messages. With an `injection`, faults hit them.
    pub fn new(injection: Option<Box<Injection>>) -> Self {
        let eager_below_bytes = if injection.is_some() { 0 } else { EAGER_BYTES_MAX_OF_ONE + 1 };
        Self { slots: Slab::new(), uses: 0, eager_bytes: 0, eager_below_bytes, injection }
    }

    /// The way of a payload of this length in bytes between replicas.
    #[inline]
    pub fn way_of(&self, length: usize, synchronous: bool) -> Way {
        if length < self.eager_below_bytes && !synchronous {
            return Way::Eager;
        }
        Way::of(length, synchronous, self.injection.is_some())
    }

    /// The faults that are injected; `None` in a job without.
    #[inline]
    pub fn injection(&mut self) -> Option<&mut Injection> {
        self.injection.as_deref_mut()
    }

    /// The sums over all messages sent, and over all received, where faults are injected.
    pub fn sums(&self) -> [u64; 2] {
        self.injection.as_ref().map_or([0; 2], |injection| injection.sums())
    }

    /// The message with this number, and the faults that may hit it.
    pub(super) fn with_injection(&mut self, id: OutgoingId) -> Option<(&mut Outgoing, Option<&mut Injection>)> {
        let kept = self.slots.get_mut(id.slot()).filter(|(kept, _)| *kept == id);
        kept.map(|(_, outgoing)| (outgoing, self.injection.as_deref_mut()))
    }

    /// Keeps a message, and numbers it.
    #[inline]
    pub fn insert(&mut self, outgoing: Outgoing) -> OutgoingId {
        self.uses += 1;
        self.eager_bytes += outgoing.eager_bytes();
        let entry = self.slots.vacant_entry();
        let id = OutgoingId(entry.key() as u64 & 0xffff_ffff | self.uses << 32);
        entry.insert((id, outgoing));
        id
    }

    /// The message with this number; `None` once it is no longer needed.
    #[inline]
    pub fn get(&self, id: OutgoingId) -> Option<&Outgoing> {
        self.slots.get(id.slot()).filter(|(kept, _)| *kept == id).map(|(_, outgoing)| outgoing)
    }

    /// The message with this number, to be changed; `None` once it is no longer needed.
    #[inline]
    pub fn get_mut(&mut self, id: OutgoingId) -> Option<&mut Outgoing> {
        self.slots.get_mut(id.slot()).filter(|(kept, _)| *kept == id).map(|(_, outgoing)| outgoing)
    }

    /// Drops a message that is no longer needed; `None` if it was dropped before.
    #[inline]
    pub fn remove(&mut self, id: OutgoingId) -> Option<Outgoing> {
        self.get(id)?;
        let (_, outgoing) = self.slots.remove(id.slot());
        self.eager_bytes -= outgoing.eager_bytes();
        Some(outgoing)
    }

    /// Marks a message that only newcomers may ask for from now on. Its receivers no longer limit it, so it does not
    /// count as crowding.
    pub fn detach(&mut self, id: OutgoingId) {
        if let Some(outgoing) = self.get_mut(id) {
            let freed = outgoing.eager_bytes();
            outgoing.detached = true;
            self.eager_bytes -= freed;
        }
    }

    /// Returns true if so much is unacknowledged that sends must wait.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.eager_bytes > EAGER_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing() -> Outgoing {
        let payload = Payload::Owned(Box::default());
        let (element, way) = (Element::Unknown, Way::Eager);
        Outgoing { payload, element, way, to: None, granted: false, detached: false, request: None }
    }

    #[test]
    fn a_number_that_is_over_is_nobodys() {
        let mut all = Outgoings::new(None);
        let first = all.insert(outgoing());
        assert!(all.remove(first).is_some() && all.remove(first).is_none());
        let second = all.insert(outgoing());
        assert_eq!(first.slot(), second.slot());
        assert!(all.get(first).is_none() && all.get_mut(first).is_none() && all.get(second).is_some());
        assert!(all.get(OutgoingId(u64::MAX)).is_none());
    }

    /// Messages kept only for newcomers do not count.
    #[test]
    fn sends_wait_while_too_much_is_unacknowledged() {
        let mut all = Outgoings::new(None);
        let room = EAGER_BYTES_MAX / OVERHEAD_BYTES;
        let kept: Vec<_> = (0..=room).map(|_| all.insert(outgoing())).collect();
        assert!(all.is_crowded());
        all.detach(kept[0]);
        all.detach(kept[0]);
        assert!(!all.is_crowded());
        all.insert(outgoing());
        assert!(all.is_crowded());
        kept.into_iter().for_each(|id| drop(all.remove(id)));
        assert_eq!(all.eager_bytes, OVERHEAD_BYTES);
    }
}
