//! Faults that are injected into messages between replicas: bits of payloads in flight, in the log, or in the buffer of
//! a receive, and bits of decisions.
//!
//! None of it exists in a job without faults. There each payload that is short enough goes with its offer
//! ([`Way::Eager`]), and nothing else is looked at. In a job with faults no payload is short enough for that
//! ([`super::replication::Replication`]), so each takes the other way, by [`Injection`].

use super::payload::{Payload, Target, is_short};
use redrt_transport::network::Source;
use std::sync::Arc;

/// The source of faults: which message is hit, and in which bit. It may be asked with the engine locked.
pub trait Faults: Sync {
    /// The bit to flip in the copy of a payload of this length, in bytes, before it is transmitted; `None` for no
    /// fault.
    fn take_wire_bit(&self, length: usize) -> Option<u64>;

    /// The bit to flip in the next frame with decisions, of this length in bytes; `None` for no fault.
    fn take_decision_bit(&self, length: usize) -> Option<u64>;

    /// The payload to keep in place of one that was sent; `None` to keep it as it is.
    fn corrupt_kept(&self, payload: &Payload) -> Option<Payload>;

    /// Called before the program gets a message from another rank whose verdict is in.
    fn before_delivery(&self, target: &Target, length: u64);
}

/// The way of a payload to its receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It goes with its offer.
    Eager,
    /// It goes when it is asked for.
    Offered,
    /// It goes with its offer, and faults may hit it.
    EagerInjected,
    /// It goes when it is asked for, and faults may hit it.
    OfferedInjected,
}

impl Way {
    /// The way of a payload of this length, in bytes, that may not just go with its offer.
    pub(super) fn of(length: usize, synchronous: bool, is_injected: bool) -> Self {
        match (is_short(length, synchronous), is_injected) {
            (true, false) => Self::Eager,
            (false, false) => Self::Offered,
            (true, true) => Self::EagerInjected,
            (false, true) => Self::OfferedInjected,
        }
    }

    /// Returns true if the payload goes with its offer.
    #[inline]
    pub fn is_eager(self) -> bool {
        matches!(self, Self::Eager | Self::EagerInjected)
    }

    /// Returns true if faults may hit it.
    pub fn is_injected(self) -> bool {
        matches!(self, Self::EagerInjected | Self::OfferedInjected)
    }
}

/// The faults of this process, and the sums that show whether all of them were found.
pub struct Injection {
    faults: &'static dyn Faults,
    /// Sums over all messages sent, and over all received.
    sums: [u64; 2],
    /// Bits to flip in payloads that will be asked for, once each.
    flips: Vec<(u64, u64)>,
}

impl Injection {
    /// Begins to inject faults.
    pub fn new(faults: &'static dyn Faults) -> Self {
        Self { faults, sums: [0; 2], flips: Vec::new() }
    }

    /// The sums over all messages sent, and over all received.
    pub(super) fn sums(&self) -> [u64; 2] {
        self.sums
    }

    /// Adds a sent message to its sum. `summand` does not depend on the order of messages.
    pub(super) fn add_sent(&mut self, summand: u64) {
        self.sums[0] = self.sums[0].wrapping_add(summand);
    }

    /// The bytes to transmit in place of these, if a fault hits them.
    pub(super) fn transmitted(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.faults.take_wire_bit(bytes.len()).map(|bit| with_flipped(bytes, bit))
    }

    /// Returns true if a fault hits a payload of this length, in bytes, that is about to be offered. Then it must not
    /// be read from its sender's memory: [`Injection::pushed`] changes the bytes that are pushed.
    pub(super) fn hits_offer(&mut self, id: u64, length: usize) -> bool {
        let bit = self.faults.take_wire_bit(length);
        self.flips.extend(bit.map(|bit| (id, bit)));
        bit.is_some()
    }

    /// The payload to push in place of this one.
    pub(super) fn pushed(&mut self, id: u64, payload: Arc<Payload>) -> Arc<Payload> {
        match self.flips.iter().position(|(flipped, _)| *flipped == id) {
            None => payload,
            Some(at) => {
                let (_, bit) = self.flips.swap_remove(at);
                Arc::new(Payload::Owned(with_flipped(payload.bytes(), bit).into()))
            }
        }
    }

    /// Takes in that this payload is pushed to nobody any more.
    pub(super) fn forget(&mut self, id: u64) {
        self.flips.retain(|(flipped, _)| *flipped != id);
    }

    /// The bit to flip in a frame with decisions of this length in bytes; `None` for no fault.
    pub(super) fn decision_bit(&mut self, length: usize) -> Option<u64> {
        self.faults.take_decision_bit(length)
    }

    /// The payload to keep in place of one that was sent; `None` to keep it as it is.
    pub(super) fn kept(&mut self, payload: &Payload) -> Option<Payload> {
        self.faults.corrupt_kept(payload)
    }

    /// Adds a message that the program gets to its sum, and then hits the receive's buffer, with `length` bytes.
    #[cold]
    pub(super) fn hit_received(&mut self, target: &Target, length: u64, summand: u64) {
        self.sums[1] = self.sums[1].wrapping_add(summand);
        self.faults.before_delivery(target, length);
    }
}

/// A copy of these bytes with one bit flipped.
pub(super) fn with_flipped(bytes: &[u8], bit: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Hits each second payload in this bit.
    struct Second(AtomicU64);

    impl Faults for Second {
        fn take_wire_bit(&self, _: usize) -> Option<u64> {
            (self.0.fetch_add(1, Ordering::Relaxed) % 2 == 1).then_some(9)
        }

        fn take_decision_bit(&self, _: usize) -> Option<u64> {
            None
        }

        fn corrupt_kept(&self, _: &Payload) -> Option<Payload> {
            None
        }

        fn before_delivery(&self, _: &Target, _: u64) {}
    }

    fn injection() -> Injection {
        Injection::new(Box::leak(Box::new(Second(AtomicU64::new(0)))))
    }

    #[test]
    fn a_payload_that_is_hit_is_flipped_in_its_copy() {
        let mut injection = injection();
        assert_eq!(injection.transmitted(&[0; 3]), None);
        assert_eq!(injection.transmitted(&[0; 3]), Some(vec![0, 2, 0]));
    }

    #[test]
    fn an_offer_that_is_hit_is_pushed_once_with_a_flipped_bit() {
        let mut injection = injection();
        let payload = Arc::new(Payload::Owned(Box::new([0; 2])));
        let ids = [7, 8];
        assert_eq!(ids.map(|id| injection.hits_offer(id, 2)), [false, true]);
        let pushed = |injection: &mut Injection, id| injection.pushed(id, payload.clone()).bytes().to_vec();
        assert_eq!(pushed(&mut injection, ids[0]), [0, 0]);
        assert_eq!(pushed(&mut injection, ids[1]), [0, 2]);
        assert_eq!(pushed(&mut injection, ids[1]), [0, 0]);
    }

    #[test]
    fn only_payloads_that_are_short_go_with_their_offers() {
        let long = super::super::payload::EAGER_BYTES_MAX + 1;
        assert_eq!(Way::of(8, false, false), Way::Eager);
        assert_eq!(Way::of(8, true, false), Way::Offered);
        assert_eq!(Way::of(8, false, true), Way::EagerInjected);
        assert_eq!(Way::of(long, false, true), Way::OfferedInjected);
    }
}
