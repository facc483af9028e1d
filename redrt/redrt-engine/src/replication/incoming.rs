//! Frames of other replicas: frames go to the machine, payloads into place, and verdicts to the receives.

use super::super::message::{Data, Message};
use super::super::refusal::Fault;
use super::super::request::{Operation, RequestId};
use super::super::{Engine, has_faults};
use super::{MORE, PROTOCOL_BYTES_MAX};
use quiesce::matching::Arrived;
use quiesce::{Arrival, Frame, MessageId};
use redrt_transport::frame::{Header, Kind, NO_CORE, Rendezvous};
use redrt_types::{ContextId, Digest, Envelope, ProcessIndex, ReplicaId, SeqNum, Tag};
use sdc_detect::{Element, digest};

/// The payload of an offer at hand.
#[derive(Clone, Copy)]
enum Offered<'a> {
    Eager(&'a [u8]),
    Remote(Rendezvous),
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

fn sequence_of(header: &Header) -> SeqNum {
    SeqNum(u64::from(header.sequence) | u64::from(header.index) << 32)
}

fn core_of(header: &Header) -> Option<u16> {
    Some(header.core).filter(|core| *core != NO_CORE)
}

/// Checks that a part of a protocol frame is unchanged.
fn check_part(seed: u64, header: &Header, checksum: u128, body: &[u8]) -> Result<(), Fault> {
    let is_whole = digest(seed, Tag(header.tag), body).0 == checksum;
    if is_whole { Ok(()) } else { Err(Fault::Checksum) }
}

/// Decodes a protocol frame. Frames with kinds of their own are refused here.
fn decode_protocol(bytes: &[u8]) -> Result<Frame, Fault> {
    match postcard::take_from_bytes(bytes) {
        Ok((Frame::Offer { .. } | Frame::Digest { .. } | Frame::Ack { .. } | Frame::AckOne { .. }, _)) => {
            Err(Fault::Undecodable)
        }
        Ok((frame, [])) => Ok(frame),
        Ok(_) | Err(_) => Err(Fault::Undecodable),
    }
}

impl Engine {
    /// Handles a frame of the replication protocol.
    pub(crate) fn handle_replicated(
        &mut self,
        from: ProcessIndex,
        kind: Kind,
        header: &Header,
        digest: u128,
        body: &[u8],
    ) -> Result<(), Fault> {
        let replica = self.world.replica(from);
        let (context, sequence) = (ContextId(header.context), sequence_of(header));
        match kind {
            Kind::Eager => self.handle_offer(from, header, digest, Offered::Eager(body)),
            Kind::Offer => {
                let rendezvous = Rendezvous::from_bytes(body).ok_or(Fault::Undecodable)?;
                self.handle_offer(from, header, digest, Offered::Remote(rendezvous))
            }
            Kind::Digest => {
                let core = core_of(header);
                self.heed(replica, Frame::Digest { context, sequence, digest: Digest(digest), core })
            }
            Kind::Ack => self.heed(replica, Frame::Ack { context, upto: sequence }),
            Kind::AckOne => self.heed(replica, Frame::AckOne { context, sequence }),
            Kind::Protocol => match self.collect_parts(from, header, digest, body)? {
                Some(frame) => {
                    let heeded = self.heed(replica, frame);
                    self.answer_siblings();
                    self.sibling_spoke();
                    heeded
                }
                None => Ok(()),
            },
            Kind::Whereabouts => self.handle_whereabouts(from, header, body),
            Kind::Moved => Err(Fault::Misplaced(kind)),
            Kind::Grant | Kind::Data | Kind::Done => unreachable!("these are the engine's own"),
        }
    }

    /// Hands the machine a frame that is no offer. Inlined, so that short frames are not built in memory.
    #[inline(always)]
    fn heed(&mut self, from: ReplicaId, frame: Frame) -> Result<(), Fault> {
        let handled = self.replication().replica.handle(from, frame);
        self.carry_out();
        handled?;
        Ok(())
    }

    /// Adds a part to a protocol frame; `Some` once it is complete. A wrong decision would send this replica another
    /// way than its siblings, and nobody would see why. So frames with decisions, or with statements on who holds
    /// which, are compared with their checksums before they are read.
    fn collect_parts(
        &mut self,
        from: ProcessIndex,
        header: &Header,
        checksum: u128,
        body: &[u8],
    ) -> Result<Option<Frame>, Fault> {
        check_part(self.replication().seed, header, checksum, body)?;
        let partial = self.replication().partial.entry(from).or_default();
        if partial.len() + body.len() > PROTOCOL_BYTES_MAX {
            *partial = Vec::new();
            return Err(Fault::Endless(PROTOCOL_BYTES_MAX));
        }
        partial.extend_from_slice(body);
        if header.tag == MORE {
            return Ok(None);
        }
        decode_protocol(&std::mem::take(partial)).map(Some)
    }

    fn handle_offer(
        &mut self,
        from: ProcessIndex,
        header: &Header,
        digest: u128,
        offered: Offered,
    ) -> Result<(), Fault> {
        let length_bytes = match offered {
            Offered::Eager(bytes) => bytes.len() as u64,
            Offered::Remote(rendezvous) => rendezvous.length,
        };
        let envelope = Envelope { source: header.source, tag: Tag(header.tag), length_bytes };
        let (context, sequence) = (ContextId(header.context), sequence_of(header));
        let (digest, core) = (Digest(digest), core_of(header));
        let replica = self.world.replica(from);
        let id = MessageId { sender: replica.rank, context, sequence };
        let frame = Frame::Offer { context, sequence, envelope, digest, core };
        match self.replication().replica.handle(replica, frame)? {
            Arrival::Nothing => {}
            Arrival::New { is_agreed } => {
                let element = Element::from_number(header.element);
                self.arrived(id, (envelope, element, is_agreed), from, offered);
            }
            Arrival::Again { place } => self.again(id, place, envelope, from, offered),
            Arrival::Shadow => self.shadow(id, envelope, from, offered),
        }
        self.carry_out();
        Ok(())
    }

    fn arrived(
        &mut self,
        id: MessageId,
        (envelope, element, is_agreed): (Envelope, Element, bool),
        from: ProcessIndex,
        offered: Offered,
    ) {
        let context = self.contexts.index(id.context.0);
        let key = self.messages.vacant_key();
        let Envelope { source, tag, length_bytes } = envelope;
        let arrived = is_agreed.then(|| self.contexts.get(context).queues.arrive(source, tag, key));
        let (receive, decided) = match arrived {
            Some(Arrived::Matched { receive, decided }) => (Some(receive), decided),
            Some(Arrived::Queued) => {
                self.note_queued();
                (None, None)
            }
            None => (None, None),
        };
        let data = self.place_offered(receive, from, offered);
        let message = Message::new(context, source, tag.0, length_bytes);
        self.messages.insert(Message { element, data, receive, id: Some(id), ..message });
        // The number fits: more messages would need more memory than there is.
        self.replication().replica.set_place(id, key as u32);
        self.record_match(context, decided, source);
        self.payload_offered(id, key, tag.0, from, offered);
        if !is_agreed && matches!(offered, Offered::Remote(_)) {
            self.replication().replica.payload_awaits_match(id);
        }
    }

    /// Hands a message to matching, once its envelope is agreed.
    pub(super) fn agreed(&mut self, id: MessageId, place: u32) {
        let key = self.record_at(place, id).expect("it cannot be delivered before");
        let Message { context, source, tag, .. } = self.messages[key];
        match self.contexts.get(context).queues.arrive(source, Tag(tag), key) {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, source);
                self.deliver(key, receive);
            }
            Arrived::Queued => self.note_queued(),
        }
    }

    /// The place of an offer's payload from now on. A payload that came with its offer is put into the buffer of its
    /// receive, if there is one.
    fn place_offered(&mut self, receive: Option<RequestId>, from: ProcessIndex, offered: Offered) -> Data {
        match (offered, receive) {
            (Offered::Remote(rendezvous), _) => Data::Remote(from, rendezvous),
            (Offered::Eager(bytes), Some(receive)) => {
                self.copy_to(receive, bytes);
                Data::Placed
            }
            (Offered::Eager(bytes), None) => Data::Bytes(bytes.into()),
        }
    }

    /// Has the payload of a recorded message compared, or pulled if a receive wants it.
    fn payload_offered(&mut self, id: MessageId, key: usize, tag: i32, from: ProcessIndex, offered: Offered) {
        match offered {
            Offered::Eager(bytes) => self.payload_complete(id, key, &Whole { from, tag, bytes, hashed: None }),
            Offered::Remote(_) => {
                if self.messages[key].receive.is_some() {
                    self.pull(key);
                }
            }
        }
    }

    fn digest_of(&mut self, whole: &Whole) -> Digest {
        whole.hashed.unwrap_or_else(|| digest(self.replication().seed, Tag(whole.tag), whole.bytes))
    }

    /// Has a payload that is complete in memory compared.
    pub(crate) fn payload_complete(&mut self, id: MessageId, key: usize, whole: &Whole) {
        let (from, computed) = (self.world.replica(whole.from), self.digest_of(whole));
        let compared = self.compare_with_suspect(key, from, Tag(whole.tag), whole.bytes);
        self.replication().replica.payload_received(from, id, computed);
        self.carry_out();
        if let Some(compared) = compared {
            self.tell_evidence(id, compared);
        }
    }

    fn again(&mut self, id: MessageId, place: u32, envelope: Envelope, from: ProcessIndex, offered: Offered) {
        let key = self.record_at(place, id).expect("it is not delivered");
        // The first offer's envelope may have been corrupt. A receive that was matched by it stays matched, but gets
        // the right status.
        let message = &mut self.messages[key];
        (message.source, message.tag, message.length) = (envelope.source, envelope.tag.0, envelope.length_bytes);
        if let Some(pull) = self.messages[key].pull.take() {
            self.landings.remove(pull.landing);
        }
        self.messages[key].data = self.place_offered(self.messages[key].receive, from, offered);
        let (context, waits) = (self.messages[key].context, self.messages[key].receive.is_none());
        self.payload_offered(id, key, envelope.tag.0, from, offered);
        if waits {
            let mut matched = Vec::new();
            self.contexts.get(context).queues.refile(key, envelope.source, envelope.tag, &mut matched);
            self.deliver_all(matched);
        }
    }

    fn shadow(&mut self, id: MessageId, envelope: Envelope, from: ProcessIndex, offered: Offered) {
        match offered {
            Offered::Eager(bytes) => {
                self.shadow_complete(id, &Whole { from, tag: envelope.tag.0, bytes, hashed: None });
            }
            Offered::Remote(rendezvous) => {
                let mut message = Message::new(0, envelope.source, envelope.tag.0, envelope.length_bytes);
                message.id = Some(id);
                message.data = Data::Remote(from, rendezvous);
                message.is_shadow = true;
                let key = self.messages.insert(message);
                self.pull(key);
            }
        }
    }

    /// Has a further copy of a message compared.
    pub(crate) fn shadow_complete(&mut self, id: MessageId, whole: &Whole) {
        let (from, computed) = (self.world.replica(whole.from), self.digest_of(whole));
        self.replication().replica.shadow_received(from, id, computed);
        self.carry_out();
    }

    /// The record of a message at this place; `None` once it is verified and delivered.
    fn record_at(&self, place: u32, id: MessageId) -> Option<usize> {
        let key = place as usize;
        self.messages.get(key).filter(|message| message.is_record_of(id)).map(|_| key)
    }

    /// Likewise, by a search of all records.
    pub(crate) fn record_of(&self, id: MessageId) -> Option<usize> {
        self.messages.iter().find(|(_, message)| message.is_record_of(id)).map(|(key, _)| key)
    }

    pub(super) fn verified(&mut self, id: MessageId, place: u32) {
        let Some(key) = self.record_at(place, id) else { return };
        let message = &mut self.messages[key];
        message.verified = true;
        if message.receive.is_some() {
            self.finish_verified(key);
        }
    }

    /// Completes a receive whose message is verified, with the payload in its buffer.
    pub(crate) fn finish_verified(&mut self, key: usize) {
        self.sum_up_received(key);
        let message = self.messages.remove(key);
        let receive = message.receive.expect("it was matched");
        let placed = message.length.min(self.capacity_of(receive));
        if has_faults()
            && let Operation::Receive { target, .. } = &self.requests.get(receive).operation
        {
            self.runtime.before_delivery(target, placed);
        }
        self.complete_receive(receive, placed, message.source, message.tag, message.length);
    }

    /// Adds a message that the program gets to its sum, where faults are injected. It is hashed anew, whatever digest
    /// was found before.
    fn sum_up_received(&mut self, key: usize) {
        let seed = self.replication().seed;
        if self.replication().sums.is_none() {
            return;
        }
        let (id, tag) = (self.messages[key].id.expect("it is replicated"), self.messages[key].tag);
        let found = self.payload_of(key).map_or(Digest(0), |bytes| digest(seed, Tag(tag), &bytes));
        let replication = self.replication();
        let summand = replication.summand(id.sender, id.context, id.sequence, found);
        if let Some([_, sum]) = &mut replication.sums {
            *sum = sum.wrapping_add(summand);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiesce::{DecisionItem, DecisionKey, Outcome, StreamId};

    #[test]
    fn a_decision_frame_with_any_bit_flipped_is_refused() {
        let key = DecisionKey { stream: StreamId::Thread(1), index: 4 };
        let item = DecisionItem::new(
            key,
            quiesce::Question::default(),
            Outcome::Bytes(b"read from a file".to_vec()),
            redrt_types::ReplicaIndex(0),
        );
        let body = postcard::to_stdvec(&Frame::Decisions { first: 3, items: vec![item] }).unwrap();
        let mut header = Header::new(Kind::Protocol, 0);
        let checksum = digest(7, Tag(header.tag), &body).0;
        assert_eq!(check_part(7, &header, checksum, &body), Ok(()));
        for bit in 0..body.len() * 8 {
            let mut wrong = body.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check_part(7, &header, checksum, &wrong), Err(Fault::Checksum), "bit {bit}");
        }
        // A part that announces more was not meant to be the last.
        header.tag = MORE;
        assert_eq!(check_part(7, &header, checksum, &body), Err(Fault::Checksum));
    }
}
