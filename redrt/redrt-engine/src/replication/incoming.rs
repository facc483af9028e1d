//! Payloads of messages between replicas, as they arrive.

use crate::message::Data;
use crate::request::{RequestId, Requests};
use redrt_transport::frame::Rendezvous;
use redrt_types::{Digest, ProcessIndex};

/// The payload of an offer at hand.
#[derive(Clone, Copy)]
pub(super) enum Offered<'a> {
    Eager(&'a [u8]),
    Remote(Rendezvous),
}

impl Offered<'_> {
    /// The place of the payload from now on. A payload that came with its offer is put into the buffer of its receive,
    /// if there is one.
    pub(super) fn place(self, requests: &mut Requests, receive: Option<RequestId>, from: ProcessIndex) -> Data {
        match (self, receive) {
            (Self::Remote(rendezvous), _) => Data::Remote(from, rendezvous),
            (Self::Eager(bytes), Some(receive)) => {
                requests.copy_to(receive, bytes);
                Data::Placed
            }
            (Self::Eager(bytes), None) => Data::Bytes(bytes.into()),
        }
    }
}

/// A payload that is complete in memory.
pub struct Whole<'a> {
    /// The process that sent it.
    pub from: ProcessIndex,
    /// Tag of its message.
    pub tag: i32,
    /// All of its bytes.
    pub bytes: &'a [u8],
    /// Their digest, if known.
    pub hashed: Option<Digest>,
}
