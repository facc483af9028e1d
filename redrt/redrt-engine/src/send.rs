//! Sending: to another rank, with or without replication, or to oneself.

use super::injection::Way;
use super::message::{Data, Message};
use super::outgoing::OutgoingId;
use super::payload::{Payload, is_short};
use super::replication::frames::{digest_header, offer_header};
use super::request::{RequestId, Status};
use super::{Engine, contact, evidence};
use quiesce::matching::Arrived;
use quiesce::{Outbound, PayloadKey};
use redrt_transport::frame::{FrameKind, Header};
use redrt_transport::network::Source;
use redrt_types::{ContextId, Envelope, ReplicaId, Tag, VirtualRank};
use sdc_detect::Element;

pub use super::payload::EAGER_BYTES_MAX;

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
        is_short(length, self.synchronous)
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

    /// Sends to another rank where ranks are replicated.
    fn send_replicated(&mut self, arguments: SendArguments) -> Sent {
        let length = arguments.payload.len();
        let way = self.outgoing.way_of(length, arguments.synchronous);
        let SendArguments { context, source, to, tag, payload, element, .. } = arguments;
        if let Some(traffic) = &mut self.traffic {
            traffic.record(to, length);
        }
        let payload = if way.is_eager() { payload.into_owned() } else { payload };
        let digest = self.replication().digest(Tag(tag), payload.bytes());
        let id = self.outgoing.keep(payload, element, Some(to), way);
        let envelope = Envelope { source, tag: Tag(tag), length_bytes: length as u64 };
        let context = ContextId(context);
        let program = self.runtime;
        let outbound = self.replication().sphere(program).send(to, context, envelope, digest, PayloadKey(id.0));
        let Outbound { sequence, offer_to, digest_to } = outbound;
        let core = evidence::core();
        for index in offer_to.iter() {
            let process = self.world.process(ReplicaId { rank: to, index });
            let header = offer_header(context, sequence, envelope, core);
            self.outgoing.transmit_offer(&mut self.links, process, header, digest, id);
        }
        for index in digest_to.iter() {
            let process = self.world.process(ReplicaId { rank: to, index });
            self.links.send(process, digest_header(context, sequence, core), Some(digest.0), &[]);
        }
        self.carry_out();
        if way.is_injected() {
            let summand = self.replication().summand(to, context, sequence, digest);
            self.outgoing.hit_sent(id, summand);
        }
        // All receivers may have acknowledged it already, if this replica lags behind its siblings.
        let waits = !way.is_eager() || self.outgoing.is_crowded();
        let is_needed = waits && self.outgoing.get(id).is_some_and(|outgoing| !outgoing.detached);
        if is_needed { Sent::Pending(id) } else { Sent::Complete }
    }

    #[inline]
    fn send_plain(&mut self, arguments: SendArguments) -> Sent {
        if let Some(traffic) = &mut self.traffic {
            traffic.record(arguments.to, arguments.payload.len());
        }
        let to = contact::sole_process(arguments.to);
        let mut header = Header::new(FrameKind::Eager, arguments.context);
        header.tag = arguments.tag;
        header.source = arguments.source;
        let is_eager = arguments.payload.len() <= self.links.eager_bytes_max(to) && !arguments.synchronous;
        if is_eager && self.links.try_send(to, &header, None, arguments.payload.bytes()) {
            return Sent::Complete;
        }
        self.outgoing.send_later(&mut self.links, to, header, arguments, is_eager)
    }

    /// Sends to the own virtual rank. The message stays in the process: every replica sends it to itself.
    fn send_to_self(&mut self, arguments: SendArguments) -> Sent {
        let context = self.arrivals.index(arguments.context);
        let arrived = self.arrivals.arrive(context, arguments.source, Tag(arguments.tag));
        let length = arguments.payload.len() as u64;
        // Another thread of this process may wait for it, or probe for it.
        self.requests.completions += 1;
        let mut message = Message::new(context, arguments.source, arguments.tag, length);
        match arrived {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, arguments.source);
                self.requests.place(receive, arguments.payload.bytes(), &message);
                Sent::Complete
            }
            Arrived::Queued if arguments.synchronous || length as usize > super::receive::COPY_BYTES_MAX => {
                let id = self.outgoing.keep(arguments.payload, arguments.element, None, Way::Offered);
                message.data = Data::Local(id);
                self.arrivals.insert(message);
                Sent::Pending(id)
            }
            Arrived::Queued => {
                message.data = Data::Bytes(arguments.payload.bytes().into());
                self.arrivals.insert(message);
                Sent::Complete
            }
        }
    }
}
