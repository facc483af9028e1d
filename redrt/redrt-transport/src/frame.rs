//! Data-plane frames: a fixed 32-byte header, an optional 16-byte digest, then the body.
//!
//! ```text
//!  0      4      5       6       8         16         20    24       28     30        31   32
//!  | size | kind | flags | index | context | sequence | tag | source | core | element | 0 | [digest 16] body …
//! ```
//! `size` is the whole frame in bytes and is written last in shared memory, where a non-zero value publishes the
//! record. `index` is a small number whose meaning depends on the kind. `sequence` holds the low 32 bits of a 64-bit
//! number that both ends know to within 2^31. Little-endian.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;

/// Bytes of the digest that follows the header when [`FLAG_DIGEST`] is set.
pub const DIGEST_BYTES: usize = 16;

/// Flag of a header that is followed by a digest of the logical message.
pub const FLAG_DIGEST: u8 = 1;

/// Fault of bytes that are no frame, in words that follow on the sender's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// An unknown kind.
    #[error("sent a frame of kind {0}, which there is not")]
    Kind(u8),
    /// A size smaller than header and digest.
    #[error("sent a frame of {size} bytes, of which {head} come before the body")]
    Size {
        /// Stated size of the whole frame.
        size: u32,
        /// Size of header and digest.
        head: u32,
    },
    /// A size that does not fit the frame's place.
    #[error("sent a frame of {size} bytes, where {max} are possible")]
    TooLong {
        /// Stated size of the whole frame.
        size: u32,
        /// Largest possible size there.
        max: usize,
    },
    /// A record of the previous lap of its ring: the end of the new records was overwritten.
    #[error("has a frame in its ring that was read before")]
    Old,
    /// Unknown flags, or a digest that is missing or out of place.
    #[error("sent a {kind:?} frame with flags {flags:#x}")]
    Flags {
        /// Kind of the frame.
        kind: FrameKind,
        /// Flags of the frame.
        flags: u8,
    },
    /// A body that its kind cannot have.
    #[error("sent a {kind:?} frame with a body of {length} bytes")]
    Body {
        /// Kind of the frame.
        kind: FrameKind,
        /// Length of the body in bytes.
        length: u32,
    },
}

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// A message with its payload.
    Eager = 1,
    /// A message whose payload waits at the sender: body is a [`Rendezvous`].
    Offer = 2,
    /// The receiver has matched an offer and requests its bytes: body is a [`ClearToSend`].
    ClearToSend = 3,
    /// Bytes of a granted payload: body is a [`Fragment`] head, then the bytes.
    Data = 4,
    /// The receiver has read the payload from the sender's memory. The sender's number of the offer is in `sequence`,
    /// its low half, and `source`.
    Done = 5,
    /// A digest in place of a payload.
    Digest = 6,
    /// Cumulative acknowledgement: every message of the channel below `sequence` has been received.
    Ack = 7,
    /// Acknowledgement of the one message `sequence`.
    AckOne = 8,
    /// Any other protocol frame, postcard-encoded, with a digest of its body.
    Protocol = 9,
    /// Between siblings: the progress of a thread (`context` is its number). A question when the body is empty,
    /// otherwise the answer, a [`Whereabouts`].
    Whereabouts = 10,
    /// The last frame over this connection: later frames come back over the one that the addressee has opened.
    Moved = 11,
}

impl FrameKind {
    /// The kind with this number; `None` for an unknown one.
    #[inline]
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Eager,
            2 => Self::Offer,
            3 => Self::ClearToSend,
            4 => Self::Data,
            5 => Self::Done,
            6 => Self::Digest,
            7 => Self::Ack,
            8 => Self::AckOne,
            9 => Self::Protocol,
            10 => Self::Whereabouts,
            11 => Self::Moved,
            _ => return None,
        })
    }

    /// Returns true if a body of this kind can have this length.
    #[inline]
    fn has_body(self, length: u32) -> bool {
        match self {
            Self::Eager | Self::Protocol => true,
            Self::Done | Self::Digest | Self::Ack | Self::AckOne | Self::Moved => length == 0,
            Self::Offer => length == Rendezvous::BYTES as u32,
            Self::ClearToSend => length == ClearToSend::BYTES as u32,
            Self::Data => length >= Fragment::BYTES as u32,
            Self::Whereabouts => length == 0 || length == Whereabouts::BYTES as u32,
        }
    }
}

/// Value of [`Header::core`] for an unknown processor.
pub const NO_CORE: u16 = u16::MAX;

/// The fixed head of every frame. `size` is filled in by the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub struct Header {
    /// Bytes of the whole frame.
    pub size: u32,
    /// Number of a [`FrameKind`].
    pub kind: u8,
    /// Set of `FLAG_*` bits.
    pub flags: u8,
    /// Meaning depends on the kind.
    pub index: u16,
    /// Context of the communicator.
    pub context: u64,
    /// Low 32 bits of the position on the channel.
    pub sequence: u32,
    /// Message tag.
    pub tag: i32,
    /// Rank of the sender in the communicator.
    pub source: u32,
    /// The processor that a message or digest was sent from; [`NO_CORE`] when unknown. Used for reports only.
    pub core: u16,
    /// Type of the payload's elements, an [`Element`], as its sender states it. Used for reports only.
    ///
    /// [`Element`]: sdc_detect::Element
    pub element: u8,
    zero: u8,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// Makes a header whose other fields are zero, except for an unknown core.
    #[inline(always)]
    pub fn new(kind: FrameKind, context: u64) -> Self {
        Self {
            size: 0,
            kind: kind as u8,
            flags: 0,
            index: 0,
            context,
            sequence: 0,
            tag: 0,
            source: 0,
            core: NO_CORE,
            element: 0,
            zero: 0,
        }
    }

    /// The header of a frame with a body of this size in bytes and no digest.
    #[inline]
    pub fn of_size(kind: FrameKind, body_bytes: usize) -> Self {
        Self { size: (HEADER_BYTES + body_bytes) as u32, ..Self::new(kind, 0) }
    }

    /// The header's words, as in shared memory.
    #[inline(always)]
    pub fn words(&self) -> [u64; HEADER_BYTES / 8] {
        [
            u64::from(self.size)
                | u64::from(self.kind) << 32
                | u64::from(self.flags) << 40
                | u64::from(self.index) << 48,
            self.context,
            u64::from(self.sequence) | u64::from(self.tag as u32) << 32,
            u64::from(self.source) | u64::from(self.core) << 32 | u64::from(self.element) << 48,
        ]
    }

    /// The header's bytes, as in a byte stream.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        head_bytes(self.words())
    }

    /// Reads a header from its bytes.
    #[inline]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            size: u32_at(0),
            kind: bytes[4],
            flags: bytes[5],
            index: u16::from_le_bytes([bytes[6], bytes[7]]),
            context: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            sequence: u32_at(16),
            tag: u32_at(20) as i32,
            source: u32_at(24),
            core: u16::from_le_bytes([bytes[28], bytes[29]]),
            element: bytes[30],
            zero: 0,
        }
    }

    /// Bytes between the header and the body.
    #[inline]
    pub fn digest_bytes(&self) -> usize {
        if self.flags & FLAG_DIGEST != 0 { DIGEST_BYTES } else { 0 }
    }

    /// Bytes of the body. Only for a header that [`Header::check`] found sound.
    #[inline]
    pub fn body_bytes(&self) -> usize {
        self.size as usize - HEADER_BYTES - self.digest_bytes()
    }

    /// Checks size, flags and kind of the frame, and returns its kind. Other fields are not checked.
    #[inline]
    pub fn check(&self) -> Result<FrameKind, FrameError> {
        let Some(kind) = FrameKind::from_u8(self.kind) else { return Err(FrameError::Kind(self.kind)) };
        let head = (HEADER_BYTES + self.digest_bytes()) as u32;
        let Some(length) = self.size.checked_sub(head) else {
            return Err(FrameError::Size { size: self.size, head });
        };
        if self.flags & !FLAG_DIGEST != 0 {
            Err(FrameError::Flags { kind, flags: self.flags })
        } else if !kind.has_body(length) {
            Err(FrameError::Body { kind, length })
        } else {
            Ok(kind)
        }
    }
}

/// Bytes of a header with these words.
pub fn head_bytes(words: [u64; HEADER_BYTES / 8]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The first word of a header, with another size of its frame in bytes.
#[inline]
pub fn with_size(first: u64, size: u32) -> u64 {
    first & !u64::from(u32::MAX) | u64::from(size)
}

/// Body of an offer: place of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rendezvous {
    /// Payload bytes.
    pub length: u64,
    /// Address in the sender's memory; 0 when it may not be read directly.
    pub address: u64,
    /// Sender's number of the offer.
    pub offer: u64,
}

/// Body of a clear-to-send: place for the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClearToSend {
    /// Sender's number of the offer.
    pub offer: u64,
    /// Receiver's number of the rendezvous buffer.
    pub rendezvous_buffer: u64,
    /// Bytes requested, from the start of the payload.
    pub length: u64,
}

/// Head of the body of a data frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Receiver's number of the rendezvous buffer.
    pub rendezvous_buffer: u64,
    /// Offset of these bytes within the payload.
    pub offset: u64,
}

/// Body of an answer about a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whereabouts {
    /// MPI calls that the thread has begun.
    pub calls: u64,
    /// Outcomes that the thread has asked for.
    pub outcomes: u64,
    /// A number that stays equal only while the thread stands still outside of MPI calls.
    pub pulse: u64,
    /// Processor time of the thread, in nanoseconds.
    pub ran_ns: u64,
}

macro_rules! words {
    ($type:ident { $($field:ident),+ } $count:expr) => {
        impl $type {
            /// Encoded length in bytes.
            pub const BYTES: usize = 8 * $count;

            /// Encodes as little-endian words.
            #[inline]
            pub fn to_bytes(self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                for (chunk, word) in bytes.chunks_exact_mut(8).zip([$(self.$field),+]) {
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
                bytes
            }

            /// Decodes; `None` when there are too few bytes.
            #[inline]
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let mut words = bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("8 bytes")));
                Some(Self { $($field: words.next()?),+ })
            }
        }
    };
}

words!(Rendezvous { length, address, offer } 3);
words!(ClearToSend { offer, rendezvous_buffer, length } 3);
words!(Fragment { rendezvous_buffer, offset } 2);
words!(Whereabouts { calls, outcomes, pulse, ran_ns } 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        let mut header = Header::new(FrameKind::Offer, 0x1122_3344_5566_7788);
        header.flags = FLAG_DIGEST;
        header.index = 7;
        header.sequence = u32::MAX;
        header.tag = -5;
        header.source = 3;
        header.core = 12;
        header.element = 3;
        header.size = 72;
        assert_eq!(Header::from_bytes(&header.to_bytes()), header);
    }

    #[test]
    fn headers_that_contradict_themselves_are_refused() {
        let mut sound = Header::new(FrameKind::Offer, 1);
        (sound.size, sound.flags) = (72, FLAG_DIGEST);
        assert_eq!(sound.check(), Ok(FrameKind::Offer));
        for (header, error) in [
            (Header { kind: 200, ..sound }, FrameError::Kind(200)),
            (Header { kind: 0, ..sound }, FrameError::Kind(0)),
            (Header { size: 47, ..sound }, FrameError::Size { size: 47, head: 48 }),
            (Header { size: 0, ..sound }, FrameError::Size { size: 0, head: 48 }),
            (Header { flags: 3, ..sound }, FrameError::Flags { kind: FrameKind::Offer, flags: 3 }),
            (Header { size: 73, ..sound }, FrameError::Body { kind: FrameKind::Offer, length: 25 }),
        ] {
            assert_eq!(header.check(), Err(error));
        }
    }

    proptest::proptest! {
        /// Any bytes are a sound header or an error, and a sound header is encoded as it was.
        #[test]
        fn any_bytes_are_a_header_or_refused(
            mut bytes in proptest::array::uniform32(proptest::prelude::any::<u8>()),
            kind in 0u8..14,
            length in 0u32..40,
        ) {
            let _ = Header::from_bytes(&bytes).check();
            // Kind and size are nearly sound, so that the later checks are reached.
            bytes[4] = kind;
            bytes[5] &= 3;
            let mut header = Header::from_bytes(&bytes);
            header.size = (HEADER_BYTES + header.digest_bytes()) as u32 + length;
            if header.check().is_ok() {
                proptest::prop_assert_eq!(Header::from_bytes(&header.to_bytes()), header);
            }
        }

        /// Any bytes decode as a body if there are enough of them.
        #[test]
        fn any_bytes_are_a_body_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            let whole = |length: usize| bytes.len() >= length;
            proptest::prop_assert_eq!(Rendezvous::from_bytes(&bytes).is_some(), whole(Rendezvous::BYTES));
            proptest::prop_assert_eq!(ClearToSend::from_bytes(&bytes).is_some(), whole(ClearToSend::BYTES));
            proptest::prop_assert_eq!(Fragment::from_bytes(&bytes).is_some(), whole(Fragment::BYTES));
            proptest::prop_assert_eq!(Whereabouts::from_bytes(&bytes).is_some(), whole(Whereabouts::BYTES));
        }
    }

    #[test]
    fn bodies_round_trip_and_reject_short_input() {
        let clear_to_send = ClearToSend { offer: 1, rendezvous_buffer: u64::MAX, length: 3 };
        assert_eq!(ClearToSend::from_bytes(&clear_to_send.to_bytes()), Some(clear_to_send));
        assert_eq!(ClearToSend::from_bytes(&clear_to_send.to_bytes()[..23]), None);
    }
}
