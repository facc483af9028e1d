//! Payloads that are kept: their way to receivers, and back to the program when nobody needs them any more.
//!
//! ```text
//!   keep ──▶ transmit_offer ──▶ [clear-to-send ──▶ pushed in pieces] ──▶ release: the request completes
//!                                                            └─▶ give_back: only newcomers may ask from now on
//! ```

use super::injection::Way;
use super::link::{Body, Links};
use super::outgoing::{Outgoing, OutgoingId, Outgoings};
use super::payload::Payload;
use super::refusal::Fault;
use super::request::{Requests, Status};
use super::send::{SendArguments, Sent};
use redrt_transport::frame::{ClearToSend, FrameKind, Header, Rendezvous};
use redrt_transport::network::Source;
use redrt_types::{Digest, ProcessIndex, VirtualRank};
use sdc_detect::Element;

impl Outgoings {
    /// Keeps a payload until it is no longer needed.
    pub(super) fn keep(&mut self, payload: Payload, element: Element, to: Option<VirtualRank>, way: Way) -> OutgoingId {
        self.insert(Outgoing { payload, element, way, to, granted: false, detached: false, request: None })
    }

    /// Sends a message of a job without replicas that cannot go at once.
    #[cold]
    pub(super) fn send_later(
        &mut self,
        links: &mut Links,
        to: ProcessIndex,
        mut header: Header,
        arguments: SendArguments,
        is_eager: bool,
    ) -> Sent {
        let way = if is_eager { Way::Eager } else { Way::Offered };
        let id = self.keep(arguments.payload, arguments.element, Some(arguments.to), way);
        let payload = &mut self.get_mut(id).expect("just kept").payload;
        if is_eager {
            links.queue(to, header, None, Body::Shared(payload.share()), Some(id));
            return Sent::Pending(id);
        }
        header.kind = FrameKind::Offer as u8;
        let address = if links.local_pid(to).is_some() { payload.address() } else { 0 };
        let body = Rendezvous { length: payload.len() as u64, address, offer: id.0 };
        links.send(to, header, None, &body.to_bytes());
        Sent::Pending(id)
    }

    /// Transmits the offer of a payload between replicas, with the payload if it goes with its offer.
    #[inline(always)]
    pub(super) fn transmit_offer(
        &mut self,
        links: &mut Links,
        to: ProcessIndex,
        mut header: Header,
        digest: Digest,
        id: OutgoingId,
    ) {
        let outgoing = self.get_mut(id).expect("it is kept until it is released");
        header.element = outgoing.element as u8;
        if outgoing.way != Way::Eager {
            return self.transmit_otherwise(links, to, header, digest, id);
        }
        if !links.try_send(to, &header, Some(digest.0), outgoing.payload.bytes()) {
            links.queue(to, header, Some(digest.0), Body::Shared(outgoing.payload.share()), None);
        }
    }

    /// Transmits the offer of a payload that goes when it is asked for, or that faults may hit.
    #[inline(never)]
    fn transmit_otherwise(
        &mut self,
        links: &mut Links,
        to: ProcessIndex,
        mut header: Header,
        digest: Digest,
        id: OutgoingId,
    ) {
        let (outgoing, injection) = self.with_injection(id).expect("it is kept until it is released");
        let (payload, way) = (&outgoing.payload, outgoing.way);
        let injection = injection.filter(|_| way.is_injected());
        if way.is_eager() {
            return match injection.and_then(|injection| injection.transmitted(payload.bytes())) {
                Some(flipped) => links.send(to, header, Some(digest.0), &flipped),
                None if links.try_send(to, &header, Some(digest.0), payload.bytes()) => {}
                None => links.queue(to, header, Some(digest.0), Body::Shared(outgoing.payload.share()), None),
            };
        }
        header.kind = FrameKind::Offer as u8;
        let is_hit = injection.is_some_and(|injection| injection.hits_offer(id.0, payload.len()));
        let is_readable = links.local_pid(to).is_some() && !is_hit;
        let address = if is_readable { payload.address() } else { 0 };
        let body = Rendezvous { length: payload.len() as u64, address, offer: id.0 };
        links.send(to, header, Some(digest.0), &body.to_bytes());
    }

    /// Lets faults hit the copy of a sent message that is kept, and adds the message to its sum.
    #[cold]
    pub(super) fn hit_sent(&mut self, id: OutgoingId, summand: u64) {
        if let Some(injection) = self.injection() {
            injection.add_sent(summand);
        }
        if let Some((outgoing, Some(injection))) = self.with_injection(id)
            && let Some(payload) = injection.kept(&outgoing.payload)
        {
            outgoing.payload = payload;
        }
    }

    /// The offer of this number, if it was made to that rank.
    fn offered_to(&mut self, rank: VirtualRank, id: OutgoingId) -> Result<&mut Outgoing, Fault> {
        let outgoing = self.get_mut(id).filter(|outgoing| outgoing.to == Some(rank) && !outgoing.way.is_eager());
        outgoing.ok_or(Fault::Offer(id.0))
    }

    /// Pushes the payload of an offer to its receiver, which grants a rendezvous buffer. `rank` is that of the
    /// receiver.
    ///
    /// With replication the payload goes to several replicas, and may have to go again; it stays until all have
    /// acknowledged it.
    pub(super) fn granted(
        &mut self,
        links: &mut Links,
        (from, rank): (ProcessIndex, VirtualRank),
        clear_to_send: ClearToSend,
        is_replicated: bool,
    ) -> Result<(), Fault> {
        let id = OutgoingId(clear_to_send.offer);
        let outgoing = self.offered_to(rank, id)?;
        let length = outgoing.payload.len() as u64;
        if clear_to_send.length != length {
            return Err(Fault::ClearToSendLength { wanted: clear_to_send.length, length });
        }
        if outgoing.granted && !is_replicated {
            return Err(Fault::Offer(id.0));
        }
        outgoing.granted = true;
        let (mut payload, is_injected) = (outgoing.payload.share(), outgoing.way.is_injected());
        if let Some(injection) = self.injection().filter(|_| is_injected) {
            payload = injection.pushed(id.0, payload);
        }
        links.push(from, payload, clear_to_send.rendezvous_buffer, id, !is_replicated);
        Ok(())
    }

    /// Takes in that the receiver of an offer, which plays this rank, has read its bytes.
    pub(super) fn payload_read(
        &mut self,
        requests: &mut Requests,
        rank: VirtualRank,
        id: OutgoingId,
    ) -> Result<(), Fault> {
        if self.offered_to(rank, id)?.granted {
            return Err(Fault::Offer(id.0));
        }
        self.gone(requests, id);
        Ok(())
    }

    /// Stops pushing a payload that nobody needs any more.
    fn cancel_pushes(&mut self, links: &mut Links, id: OutgoingId) {
        let Some((outgoing, injection)) = self.with_injection(id).filter(|(outgoing, _)| outgoing.granted) else {
            return;
        };
        links.cancel_pushes(id, &outgoing.payload);
        if let Some(injection) = injection {
            injection.forget(id.0);
        }
    }

    /// Gives the program its buffer back, and completes its request: only newcomers may need the payload, and they may
    /// be long in coming.
    pub(super) fn give_back(&mut self, links: &mut Links, requests: &mut Requests, id: OutgoingId) {
        self.cancel_pushes(links, id);
        let Some(outgoing) = self.get_mut(id) else { return };
        if outgoing.payload.is_lent() {
            outgoing.payload = Payload::Owned(outgoing.payload.bytes().into());
        }
        if let Some(request) = outgoing.request.take() {
            requests.complete(request, Status::EMPTY);
        }
        self.detach(id);
    }

    /// Drops a payload that all receivers have acknowledged, and completes its request.
    pub(super) fn release(&mut self, links: &mut Links, requests: &mut Requests, id: OutgoingId) {
        if self.get(id).is_some_and(|outgoing| outgoing.granted) {
            self.cancel_pushes(links, id);
        }
        self.gone(requests, id);
    }

    /// Drops a payload that is no longer needed, and completes its request. Returns the payload, if it was kept.
    pub(super) fn gone(&mut self, requests: &mut Requests, id: OutgoingId) -> Option<Payload> {
        let outgoing = self.remove(id)?;
        if let Some(request) = outgoing.request {
            requests.complete(request, Status::EMPTY);
        }
        Some(outgoing.payload)
    }
}
