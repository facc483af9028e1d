//! A message that has arrived, until it is delivered.

use super::matching::ContextIndex;
use super::outgoing::OutgoingId;
use super::request::RequestId;
use quiesce::MessageId;
use redrt_transport::LandingId;
use redrt_transport::frame::Rendezvous;
use redrt_transport::memory::Scratch;
use redrt_types::{ProcessIndex, ReplicaId, ViewNumber};
use sdc_detect::Element;

/// Where the payload of a message is.
pub enum Data {
    /// Here, waiting for a receive.
    Bytes(Box<[u8]>),
    /// With its sender.
    Remote(ProcessIndex, Rendezvous),
    /// In the buffer of this process's own send.
    Local(OutgoingId),
    /// On its way to the receive's buffer (`None`) or to memory of our own.
    Landing(Option<Scratch>),
    /// In the receive's buffer.
    Placed,
    /// With a sender that will offer it to this copy again.
    Awaited,
}

/// A message that has arrived and is not delivered yet.
pub struct Message {
    /// Its context.
    pub context: ContextIndex,
    /// Rank of its sender in the communicator.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Payload length in bytes.
    pub length: u64,
    /// What its payload consists of.
    pub element: Element,
    /// Its payload.
    pub data: Data,
    /// The receive that took it.
    pub receive: Option<RequestId>,
    /// Its place in the replication protocol; `None` for messages that do not take part.
    pub id: Option<MessageId>,
    /// Its verdict is in.
    pub verified: bool,
    /// A further copy, fetched only to be compared.
    pub is_shadow: bool,
    /// Where its payload is arriving. Few have one, and all are moved, so it is kept elsewhere.
    pub pull: Option<Box<Pull>>,
    /// Its payload as it was when it was found to be wrong, until the right one has come.
    pub suspect: Option<Box<Suspect>>,
}

/// A payload that was asked for.
pub struct Pull {
    /// Where it arrives.
    pub landing: LandingId,
    /// From whom.
    pub from: ProcessIndex,
    /// The address of the landing.
    pub start: usize,
}

impl Message {
    /// Whether it is what is kept of this message.
    pub fn is_record_of(&self, id: MessageId) -> bool {
        self.id == Some(id) && !self.is_shadow
    }

    /// A message with no payload yet.
    #[inline]
    pub fn new(context: ContextIndex, source: u32, tag: i32, length: u64) -> Self {
        Self {
            context,
            source,
            tag,
            length,
            element: Element::Unknown,
            data: Data::Bytes(Box::default()),
            receive: None,
            id: None,
            verified: false,
            is_shadow: false,
            pull: None,
            suspect: None,
        }
    }
}

/// A payload that was found to be wrong.
pub struct Suspect {
    pub(super) view: ViewNumber,
    pub(super) supplier: ReplicaId,
    pub(super) element: Element,
    pub(super) bytes: Box<[u8]>,
}
