//! Frames: `u32` length, `u16` wire version, then one postcard-encoded message; little-endian.
//!
//! ```text
//!  0        4         6                 6 + length - 2
//!  | length | version | postcard bytes … |
//! ```
//! `length` counts what follows it. A frame longer than [`FRAME_BYTES_MAX`] is refused before it is buffered.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of every control message. Both ends must agree; there is no negotiation within one job.
pub const WIRE_VERSION: u16 = 1;

/// Longest accepted frame, in bytes after the length field. Large enough for the cards and view of 10^6 processes.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// A fault of received bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The length field is out of bounds.
    #[error("a control frame claims {0} bytes, which is out of bounds")]
    Length(usize),
    /// The other end speaks another version.
    #[error("the other end speaks wire version {0}, this one {WIRE_VERSION}: mixed redrt installations")]
    Version(u16),
    /// The body is not a message of the expected kind.
    #[error("a control frame's body cannot be decoded")]
    Body,
}

/// Encodes one message as a frame.
///
/// # Panics
/// When the message is longer than [`FRAME_BYTES_MAX`], which is a bug in the sender.
#[must_use]
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("control messages are plain data");
    assert!(body.len() + 2 <= FRAME_BYTES_MAX, "a control message of {} bytes", body.len());
    let mut frame = Vec::with_capacity(body.len() + 6);
    frame.extend_from_slice(&(body.len() as u32 + 2).to_le_bytes());
    frame.extend_from_slice(&WIRE_VERSION.to_le_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// Encodes a message that travels inside another.
///
/// # Panics
/// When the message is longer than [`FRAME_BYTES_MAX`], which is a bug in the sender.
#[must_use]
pub fn encode_body<T: Serialize>(message: &T) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("control messages are plain data");
    assert!(body.len() + 64 <= FRAME_BYTES_MAX, "a control message of {} bytes", body.len());
    body
}

/// Encodes a message that travels in pieces, and may be longer than a frame.
#[must_use]
pub fn encode_long<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("control messages are plain data")
}

/// Decodes a message encoded by [`encode_body`] or [`encode_long`].
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    postcard::from_bytes(body).map_err(|_| FrameError::Body)
}

/// Collects bytes as they arrive and yields whole messages.
#[derive(Default, Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    consumed: usize,
}

impl FrameReader {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message; `None` when more bytes are needed. After an error the connection is beyond repair.
    #[expect(
        clippy::should_implement_trait,
        reason = "the type of the messages is the caller's choice, so this is no iterator"
    )]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let pending = &self.buffer[self.consumed..];
        let Some((head, rest)) = pending.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if !(2..=FRAME_BYTES_MAX).contains(&length) {
            return Err(FrameError::Length(length));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let version = u16::from_le_bytes([rest[0], rest[1]]);
        if version != WIRE_VERSION {
            return Err(FrameError::Version(version));
        }
        let message = postcard::from_bytes(&rest[2..length]).map_err(|_| FrameError::Body)?;
        self.consumed += 4 + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Parting;

    #[test]
    fn frames_survive_any_fragmentation() {
        let bytes: Vec<u8> = (0..5u64).flat_map(|n| encode(&vec![n; n as usize])).collect();
        for step in 1..bytes.len() {
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(step) {
                reader.push(chunk);
                while let Some(message) = reader.next::<Vec<u64>>().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, (0..5u64).map(|n| vec![n; n as usize]).collect::<Vec<_>>());
        }
    }

    proptest::proptest! {
        /// Any bytes in any pieces give messages or an error, never a panic.
        #[test]
        fn any_bytes_are_read_or_refused(
            body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            step in 1usize..50,
        ) {
            use crate::control::{FromAgent, ToAgent};
            use crate::daemon::{FromDaemon, ToDaemon};
            use crate::tree::{Down, Up};
            fn read_all<T: DeserializeOwned>(bytes: &[u8], step: usize) {
                let mut reader = FrameReader::default();
                for chunk in bytes.chunks(step) {
                    reader.push(chunk);
                    while let Ok(Some(_)) = reader.next::<T>() {}
                }
            }
            let mut framed = (body.len() as u32 + 2).to_le_bytes().to_vec();
            framed.extend(WIRE_VERSION.to_le_bytes());
            framed.extend(&body);
            for bytes in [&body, &framed] {
                read_all::<ToAgent>(bytes, step);
                read_all::<FromAgent>(bytes, step);
                read_all::<ToDaemon>(bytes, step);
                read_all::<FromDaemon>(bytes, step);
                read_all::<Up>(bytes, step);
                read_all::<Down>(bytes, step);
                let _ = decode_body::<FromDaemon>(bytes);
            }
        }
    }

    #[test]
    fn events_survive_the_way() {
        use crate::control::FromAgent;
        use crate::event::{Action, Event, Excerpt, Finding, Mismatch, Vote};
        use redrt_types::{ContextId, Digest, ReplicaId, SeqNum, ViewNumber, VirtualRank};
        use sdc_detect::Element;
        let replica = ReplicaId::new(3, 1);
        let mismatch = Mismatch {
            receiver: ReplicaId::new(0, 0),
            sender: VirtualRank(3),
            supplier: replica,
            communicator: "MPI_COMM_WORLD".into(),
            context: ContextId(7),
            tag: -1,
            sequence: SeqNum(9),
            length_bytes: 8,
            payload: Digest(1),
            votes: vec![Vote { replica, digest: Digest(2), core: Some(1) }],
            element: Element::F64,
            excerpt: Some(Excerpt::Whole(vec![1; 8])),
            finding: Finding::ReplicaCorrupt,
            culprit: Some(replica),
            action: Action::Refetched,
            view: ViewNumber(2),
        };
        let events = [
            Event::Mismatch(Box::new(mismatch)),
            Event::Divergence { replica, parting: Parting::ClockAlone },
            Event::Reconnected { replica, peer: replica },
            Event::Unordered { replica },
            Event::Unsupported { replica, function: "MPI_Comm_spawn".into(), why: "-r 1".into() },
            Event::Injected { replica, asked: crate::fault::ProcessFault::Kill { send: 1 }, fault: "kill".into() },
        ];
        for event in events {
            let mut reader = FrameReader::default();
            reader.push(&encode(&FromAgent::Event(event.clone())));
            assert!(matches!(reader.next(), Ok(Some(FromAgent::Event(arrived))) if arrived == event));
        }
    }

    #[test]
    fn rubbish_is_an_error_not_a_panic() {
        let mut reader = FrameReader::default();
        reader.push(&u32::MAX.to_le_bytes());
        assert_eq!(reader.next::<u8>(), Err(FrameError::Length(u32::MAX as usize)));
        let mut reader = FrameReader::default();
        reader.push(&[3, 0, 0, 0, 9, 9, 0]);
        assert_eq!(reader.next::<u8>(), Err(FrameError::Version(0x0909)));
        let mut reader = FrameReader::default();
        reader.push(&[2, 0, 0, 0, 1, 0]);
        assert_eq!(reader.next::<u64>(), Err(FrameError::Body));
    }
}
