//! Sending without replication, and to oneself: eager, or by rendezvous.

use super::Engine;
use super::link::Body;
use super::message::{Data, Message};
use super::outgoing::{Outgoing, OutgoingId};
use super::payload::Payload;
use super::request::{RequestId, Status};
use quiesce::matching::Arrived;
use redrt_transport::frame::{Header, Kind, Rendezvous};
use redrt_transport::network::Source;
use redrt_types::{ProcessIndex, Tag, VirtualRank};
use sdc_detect::Element;

/// Longest payload that is copied to the retention log, so that its send completes at once.
pub const EAGER_BYTES_MAX: usize = redrt_transport::shm::FRAME_BYTES_MAX - 64;

/// A message to be sent.
pub struct SendArguments {
    /// Context of the communicator.
    pub context: u64,
    /// Rank of this process in the communicator.
    pub source: u32,
    /// Virtual rank of the receiver.
    pub to: VirtualRank,
    /// Message tag.
    pub tag: i32,
    /// Its bytes, lent or copied.
    pub payload: Payload,
    /// Type of the payload's elements.
    pub element: Element,
    /// True to complete only once the receive has begun (MPI-5.0 §3.4).
    pub synchronous: bool,
}

/// State of a send when the call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Over: the payload is no longer needed.
    Complete,
    /// The payload is still needed; [`Engine::send_request`] makes a request for it.
    Pending(OutgoingId),
}

impl SendArguments {
    /// Returns true if a payload of this length in bytes is copied and goes with its offer, where ranks are replicated.
    #[inline]
    pub fn is_short(&self, length: usize) -> bool {
        length <= EAGER_BYTES_MAX && !self.synchronous
    }
}

impl Engine {
    /// Sends a message.
    #[inline]
    pub fn send(&mut self, arguments: SendArguments) -> Sent {
        if arguments.to == self.me.rank {
            self.send_to_self(arguments)
        } else if self.is_replicated() {
            self.send_replicated(arguments)
        } else {
            self.send_plain(arguments)
        }
    }

    /// Makes a request that completes when the send does.
    pub fn send_request(&mut self, sent: Sent) -> RequestId {
        let request = self.requests.insert(super::request::Operation::Send);
        match sent {
            Sent::Complete => self.requests.complete(request, Status::EMPTY),
            Sent::Pending(id) => {
                self.outgoing.get_mut(id).expect("a pending send is outgoing").request = Some(request);
            }
        }
        request
    }

    /// Keeps a payload until it is no longer needed.
    pub(super) fn keep(
        &mut self,
        payload: Payload,
        element: Element,
        to: Option<VirtualRank>,
        eager: bool,
    ) -> OutgoingId {
        self.outgoing.insert(Outgoing { payload, element, eager, to, granted: false, detached: false, request: None })
    }

    /// Gives the program its buffer back, and completes its request: only newcomers may need the payload, and they may
    /// be long in coming.
    pub(super) fn detach(&mut self, id: OutgoingId) {
        let Some(outgoing) = self.outgoing.get_mut(id) else { return };
        if outgoing.granted {
            self.links.cancel_pushes(id, &outgoing.payload);
        }
        if outgoing.payload.is_lent() {
            outgoing.payload = Payload::Owned(outgoing.payload.bytes().into());
        }
        if let Some(request) = outgoing.request.take() {
            self.requests.complete(request, Status::EMPTY);
        }
        self.outgoing.detach(id);
    }

    /// Drops a payload that is no longer needed, and completes its request. Returns the payload, if it was kept.
    pub(super) fn outgoing_gone(&mut self, id: OutgoingId) -> Option<Payload> {
        let outgoing = self.outgoing.remove(id)?;
        if let Some(request) = outgoing.request {
            self.requests.complete(request, Status::EMPTY);
        }
        Some(outgoing.payload)
    }

    #[inline]
    fn send_plain(&mut self, arguments: SendArguments) -> Sent {
        if let Some(traffic) = &mut self.traffic {
            traffic.note(arguments.to, arguments.payload.len());
        }
        let to = self.process_of(arguments.to);
        let mut header = Header::new(Kind::Eager, arguments.context);
        header.tag = arguments.tag;
        header.source = arguments.source;
        let is_eager = arguments.payload.len() <= self.links.eager_bytes_max(to) && !arguments.synchronous;
        if is_eager && self.links.try_send(to, &header, None, arguments.payload.bytes()) {
            return Sent::Complete;
        }
        self.send_later(to, header, arguments, is_eager)
    }

    /// Sends a message that cannot go at once.
    #[cold]
    fn send_later(&mut self, to: ProcessIndex, mut header: Header, arguments: SendArguments, is_eager: bool) -> Sent {
        if is_eager {
            let id = self.keep(arguments.payload, arguments.element, Some(arguments.to), true);
            let payload = self.outgoing.get_mut(id).expect("just kept").payload.share();
            self.links.queue(to, header, None, Body::Shared(payload), Some(id));
            return Sent::Pending(id);
        }
        let id = self.keep(arguments.payload, arguments.element, Some(arguments.to), false);
        let payload = &self.outgoing.get(id).expect("just kept").payload;
        header.kind = Kind::Offer as u8;
        let address = if self.links.local_pid(to).is_some() { payload.address() } else { 0 };
        let body = Rendezvous { length: payload.len() as u64, address, offer: id.0 };
        self.links.send(to, header, None, &body.to_bytes());
        Sent::Pending(id)
    }

    /// Sends to the own virtual rank. The message stays in the process: every replica sends it to itself.
    fn send_to_self(&mut self, arguments: SendArguments) -> Sent {
        let context = self.contexts.index(arguments.context);
        let key = self.messages.vacant_key();
        let tag = Tag(arguments.tag);
        let arrived = self.contexts.get(context).queues.arrive(arguments.source, tag, key);
        let length = arguments.payload.len() as u64;
        // Another thread of this process may wait for it, or probe for it.
        self.requests.completions += 1;
        let mut message = Message::new(context, arguments.source, arguments.tag, length);
        match arrived {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, arguments.source);
                self.place(receive, arguments.payload.bytes(), &message);
                Sent::Complete
            }
            Arrived::Queued if arguments.synchronous || length as usize > super::receive::COPY_BYTES_MAX => {
                let id = self.keep(arguments.payload, arguments.element, None, false);
                message.data = Data::Local(id);
                self.messages.insert(message);
                Sent::Pending(id)
            }
            Arrived::Queued => {
                message.data = Data::Bytes(arguments.payload.bytes().into());
                self.messages.insert(message);
                Sent::Complete
            }
        }
    }
}
