//! Messages whose payloads are still needed.

use super::payload::Payload;
use super::request::RequestId;
use redrt_types::VirtualRank;
use sdc_detect::Element;
use slab::Slab;

/// Number of an outgoing message, never given twice. The lower half says where it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OutgoingId(pub u64);

impl OutgoingId {
    fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// A message whose payload is still needed.
pub struct Outgoing {
    /// The bytes.
    pub payload: Payload,
    /// What they are.
    pub element: Element,
    /// It goes with its offer, not by rendezvous.
    pub eager: bool,
    /// To whom it may be sent; `None` when it stays in this process.
    pub to: Option<VirtualRank>,
    /// Its receiver has asked for it.
    pub granted: bool,
    /// The program has its buffer back, and only newcomers may ask for this.
    pub detached: bool,
    /// Who waits for it to be no longer needed.
    pub request: Option<RequestId>,
}

/// All of them.
#[derive(Default)]
pub struct Outgoings {
    slots: Slab<(OutgoingId, Outgoing)>,
    uses: u64,
    /// What messages occupy that went with their offers and were not acknowledged by all.
    eager_bytes: usize,
}

/// What a message occupies beside its payload: here, in the protocol's log and as a frame that waits.
const OVERHEAD_BYTES: usize = 512;

/// With more than this unacknowledged, sends of short messages complete when they are acknowledged, as those of long
/// ones. So a sender that is faster than its receivers waits, and does not run out of memory.
const EAGER_BYTES_MAX: usize = 32 << 20;

impl Outgoing {
    /// How much of [`Outgoings::eager_bytes`] is its.
    #[inline]
    fn eager_bytes(&self) -> usize {
        if self.eager && !self.detached { OVERHEAD_BYTES + self.payload.len() } else { 0 }
    }
}

impl Outgoings {
    /// Keeps one.
    #[inline]
    pub fn insert(&mut self, outgoing: Outgoing) -> OutgoingId {
        self.uses += 1;
        self.eager_bytes += outgoing.eager_bytes();
        let entry = self.slots.vacant_entry();
        let id = OutgoingId(entry.key() as u64 & 0xffff_ffff | self.uses << 32);
        entry.insert((id, outgoing));
        id
    }

    /// The one with this number, while it is needed.
    #[inline]
    pub fn get(&self, id: OutgoingId) -> Option<&Outgoing> {
        self.slots.get(id.slot()).filter(|(kept, _)| *kept == id).map(|(_, outgoing)| outgoing)
    }

    /// Likewise.
    #[inline]
    pub fn get_mut(&mut self, id: OutgoingId) -> Option<&mut Outgoing> {
        self.slots.get_mut(id.slot()).filter(|(kept, _)| *kept == id).map(|(_, outgoing)| outgoing)
    }

    /// It is not needed any more.
    #[inline]
    pub fn remove(&mut self, id: OutgoingId) -> Option<Outgoing> {
        self.get(id)?;
        let (_, outgoing) = self.slots.remove(id.slot());
        self.eager_bytes -= outgoing.eager_bytes();
        Some(outgoing)
    }

    /// Only newcomers may ask for it from now on: how long it is kept does not depend on its receivers.
    pub fn detach(&mut self, id: OutgoingId) {
        if let Some(outgoing) = self.get_mut(id) {
            let freed = outgoing.eager_bytes();
            outgoing.detached = true;
            self.eager_bytes -= freed;
        }
    }

    /// Whether so much is unacknowledged that sends are to wait.
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
        let (element, eager) = (Element::Unknown, true);
        Outgoing { payload, element, eager, to: None, granted: false, detached: false, request: None }
    }

    #[test]
    fn a_number_that_is_over_is_nobodys() {
        let mut all = Outgoings::default();
        let first = all.insert(outgoing());
        assert!(all.remove(first).is_some() && all.remove(first).is_none());
        let second = all.insert(outgoing());
        assert_eq!(first.slot(), second.slot());
        assert!(all.get(first).is_none() && all.get_mut(first).is_none() && all.get(second).is_some());
        assert!(all.get(OutgoingId(u64::MAX)).is_none());
    }

    #[test]
    fn sends_wait_while_too_much_is_unacknowledged_but_not_for_what_newcomers_need() {
        let mut all = Outgoings::default();
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
