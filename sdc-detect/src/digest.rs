//! Bytes of a message → 128-bit digest.
//!
//! xxh3-128 of the payload in the type's packed order, seeded with the job's seed, the tag and the length. Two replicas
//! that mean to send different messages thus disagree even when the bytes are equal. The digest guards against chance,
//! not against an adversary.

use redrt_types::{Digest, Tag};
use twox_hash::XxHash3_128;

/// Digest of a message whose payload is contiguous.
#[must_use]
pub fn digest(seed: u64, tag: Tag, payload: &[u8]) -> Digest {
    Digest(XxHash3_128::oneshot_with_seed(message_seed(seed, tag, payload.len() as u64), payload))
}

/// Digest of a message whose payload comes in pieces: a non-contiguous datatype, or a pipelined rendezvous.
#[derive(Clone)]
pub struct DigestStream {
    state: Box<XxHash3_128>,
    missing_bytes: u64,
}

impl DigestStream {
    /// Starts the digest of a message of `length_bytes`.
    #[must_use]
    pub fn new(seed: u64, tag: Tag, length_bytes: u64) -> Self {
        Self {
            state: Box::new(XxHash3_128::with_seed(message_seed(seed, tag, length_bytes))),
            missing_bytes: length_bytes,
        }
    }

    /// Adds the next piece.
    ///
    /// # Panics
    /// When the pieces are longer than the message.
    pub fn update(&mut self, piece: &[u8]) {
        let length = piece.len() as u64;
        assert!(length <= self.missing_bytes, "{length} bytes more, but only {} are missing", self.missing_bytes);
        self.missing_bytes -= length;
        self.state.write(piece);
    }

    /// The digest of the whole message, equal to [`digest`] of all pieces together.
    ///
    /// # Panics
    /// When pieces are missing.
    #[must_use]
    pub fn finish(&self) -> Digest {
        assert_eq!(self.missing_bytes, 0, "bytes are missing");
        Digest(self.state.finish_128())
    }
}

/// Spreads tag and length over all bits, by one multiplication each; they need not be unpredictable.
fn message_seed(seed: u64, tag: Tag, length_bytes: u64) -> u64 {
    let tag = u64::from(tag.0.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    seed ^ tag.rotate_left(32) ^ length_bytes.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_equals_one_shot_for_any_cut() {
        let payload: Vec<u8> = (0..3_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        for length in [0, 1, 16, 17, 128, 240, 241, 1024, 3000] {
            let whole = digest(42, Tag(5), &payload[..length]);
            for piece in [1, 3, 64, 1000] {
                let mut stream = DigestStream::new(42, Tag(5), length as u64);
                payload[..length].chunks(piece).for_each(|piece| stream.update(piece));
                assert_eq!(stream.finish(), whole, "{length} bytes in pieces of {piece}");
            }
        }
    }

    #[test]
    fn every_single_bit_and_the_envelope_matter() {
        let mut payload = vec![0x5a_u8; 70];
        let clean = digest(1, Tag(2), &payload);
        for bit in 0..payload.len() * 8 {
            payload[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(1, Tag(2), &payload), clean, "bit {bit}");
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        assert_ne!(digest(1, Tag(3), &payload), clean);
        assert_ne!(digest(2, Tag(2), &payload), clean);
        assert_ne!(digest(1, Tag(2), &[]), digest(1, Tag(0), &[]));
    }

    #[test]
    #[should_panic(expected = "only 4 are missing")]
    fn stream_refuses_more_than_the_message() {
        DigestStream::new(0, Tag(0), 4).update(&[0; 5]);
    }
}
