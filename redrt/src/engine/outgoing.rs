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
}

impl Outgoings {
    /// Keeps one.
    #[inline]
    pub fn insert(&mut self, outgoing: Outgoing) -> OutgoingId {
        self.uses += 1;
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
        Some(self.slots.remove(id.slot()).1)
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
}
