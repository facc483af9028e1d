//! A message that has arrived, until it is delivered.

use super::matching::ContextIndex;
use super::outgoing::OutgoingId;
use super::request::RequestId;
use quiesce::MessageId;
use redrt_transport::RendezvousBufferId;
use redrt_transport::frame::Rendezvous;
use redrt_transport::memory::Scratch;
use redrt_types::{ProcessIndex, ReplicaId, ViewNumber};
use sdc_detect::Element;

/// Place of a message's payload.
pub enum Data {
    /// In memory of the engine, until a receive takes it.
    Bytes(Box<[u8]>),
    /// In its sender's memory.
    Remote(ProcessIndex, Rendezvous),
    /// In the buffer of this process's own send.
    Local(OutgoingId),
    /// Under way to the receive's buffer (`None`) or to staging memory.
    RendezvousBuffer(Option<Scratch>),
    /// In the receive's buffer.
    Placed,
    /// To be offered again to this copy by a sender.
    Awaited,
}

/// A message that has arrived and is not delivered yet.
pub struct Message {
    /// Index of its context.
    pub context: ContextIndex,
    /// Rank of its sender in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Payload length in bytes.
    pub length: u64,
    /// Type of the payload's elements.
    pub element: Element,
    /// Place of its payload.
    pub data: Data,
    /// The receive that it was matched with.
    pub receive: Option<RequestId>,
    /// Its identity in the replication protocol; `None` for messages outside of it.
    pub id: Option<MessageId>,
    /// True once its verdict is in.
    pub verified: bool,
    /// True for a further copy that is fetched only to be compared.
    pub is_shadow: bool,
    /// The transfer of its payload. Boxed: few messages have one, and all are moved.
    pub pull: Option<Box<Pull>>,
    /// The payload that was found to be wrong, until the right one has come.
    pub suspect: Option<Box<Suspect>>,
}

/// A payload that was asked for and is arriving.
pub struct Pull {
    /// The rendezvous buffer it was granted.
    pub rendezvous_buffer: RendezvousBufferId,
    /// The process that pushes it.
    pub from: ProcessIndex,
    /// Address of the rendezvous buffer.
    pub start: usize,
}

impl Message {
    /// Returns true if this is the engine's record of message `id`, and not a shadow.
    pub fn is_record_of(&self, id: MessageId) -> bool {
        self.id == Some(id) && !self.is_shadow
    }

    /// A message without a payload so far.
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

/// A payload that was found to be wrong, kept as evidence.
pub struct Suspect {
    pub(super) view: ViewNumber,
    pub(super) supplier: ReplicaId,
    pub(super) element: Element,
    pub(super) bytes: Box<[u8]>,
}
