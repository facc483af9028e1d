//! Frames of the replication protocol: their headers, and frames that go in parts.

use crate::injection::with_flipped;
use crate::link::Links;
use crate::payload::EAGER_BYTES_MAX;
use crate::refusal::Fault;
use quiesce::Frame;
use redrt_transport::frame::{FLAG_DIGEST, FrameKind, Header, NO_CORE};
use redrt_types::{ContextId, Envelope, ProcessIndex, SeqNum, Tag};
use rustc_hash::FxHashMap;
use sdc_detect::digest;

/// Flag of `Header::tag`: more parts of this protocol frame follow.
const MORE: i32 = 1;
const PART_BYTES: usize = EAGER_BYTES_MAX;
/// Bound on a protocol frame: room for millions of decisions.
const PROTOCOL_BYTES_MAX: usize = 64 << 20;

#[inline(always)]
pub(super) fn set_sequence(header: &mut Header, sequence: SeqNum) {
    header.sequence = sequence.0 as u32;
    header.index = (sequence.0 >> 32) as u16;
}

/// Header of an eager message; a rendezvous changes its kind.
#[inline(always)]
pub(crate) fn offer_header(context: ContextId, sequence: SeqNum, envelope: Envelope, core: u16) -> Header {
    let mut header = Header::new(FrameKind::Eager, context.0);
    (header.flags, header.core) = (FLAG_DIGEST, core);
    (header.tag, header.source) = (envelope.tag.0, envelope.source);
    set_sequence(&mut header, sequence);
    header
}

#[inline(always)]
pub(crate) fn digest_header(context: ContextId, sequence: SeqNum, core: u16) -> Header {
    let mut header = Header::new(FrameKind::Digest, context.0);
    (header.flags, header.core) = (FLAG_DIGEST, core);
    set_sequence(&mut header, sequence);
    header
}

/// Header of an acknowledgement of one message, or of all up to one.
#[inline(always)]
pub(super) fn acknowledgement(kind: FrameKind, context: ContextId, sequence: SeqNum) -> Header {
    let mut header = Header::new(kind, context.0);
    set_sequence(&mut header, sequence);
    header
}

pub(super) fn sequence_of(header: &Header) -> SeqNum {
    SeqNum(u64::from(header.sequence) | u64::from(header.index) << 32)
}

pub(super) fn core_of(header: &Header) -> Option<u16> {
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

/// Frames that go in parts, with checksums.
pub(super) struct Parts {
    seed: u64,
    /// Received parts of frames that are incomplete.
    partial: FxHashMap<ProcessIndex, Vec<u8>>,
}

impl Parts {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, partial: FxHashMap::default() }
    }

    /// Forgets received parts of this process: the frame comes again, or never.
    pub(super) fn forget(&mut self, process: ProcessIndex) {
        self.partial.remove(&process);
    }

    /// Forgets all received parts: the frames come again.
    pub(super) fn clear(&mut self) {
        self.partial.clear();
    }

    /// Adds a part to a protocol frame; `Some` once it is complete. A wrong decision would send this replica another
    /// way than its siblings, and nobody would see why. So frames with decisions, or with statements on who holds
    /// which, are compared with their checksums before they are read.
    pub(super) fn collect(
        &mut self,
        from: ProcessIndex,
        header: &Header,
        checksum: u128,
        body: &[u8],
    ) -> Result<Option<Frame>, Fault> {
        check_part(self.seed, header, checksum, body)?;
        let partial = self.partial.entry(from).or_default();
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

    /// Sends a frame in parts. `inject` may change a bit of it whose number it returns, given the length in bytes.
    /// Fails, with the length, if it is too long.
    #[inline(never)]
    pub(super) fn send(
        &self,
        links: &mut Links,
        to: ProcessIndex,
        frame: &Frame,
        inject: impl FnOnce(usize) -> Option<u64>,
    ) -> Result<(), usize> {
        let bytes = postcard::to_stdvec(frame).expect("protocol frames are plain data");
        if bytes.len() > PROTOCOL_BYTES_MAX {
            return Err(bytes.len());
        }
        let flip = inject(bytes.len());
        let mut sent_bytes = 0;
        let mut parts = bytes.chunks(PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let mut header = Header::new(FrameKind::Protocol, 0);
            header.flags = FLAG_DIGEST;
            header.tag = if parts.peek().is_some() { MORE } else { 0 };
            let digest = digest(self.seed, Tag(header.tag), part);
            match flip.and_then(|bit| bit.checked_sub(8 * sent_bytes)).filter(|bit| *bit < 8 * part.len() as u64) {
                None => links.send(to, header, Some(digest.0), part),
                Some(bit) => links.send(to, header, Some(digest.0), &with_flipped(part, bit)),
            }
            sent_bytes += part.len() as u64;
        }
        Ok(())
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
        let mut header = Header::new(FrameKind::Protocol, 0);
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
