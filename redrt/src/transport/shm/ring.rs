//! Both ends of a ring, with frames as its records.

use super::{CAPACITY, FRAME_BYTES_MAX, RING_CONTROL_BYTES, RingControl, Segment, wake};
use crate::transport::frame::{self, FrameError, HEADER_BYTES, Header, Kind};
use redrt_sync::ring::{self, Memory, Reading, Writing};
use redrt_sync::seen;
use redrt_types::ProcessIndex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// [`ring::LAP`], in the header's flags: frames do not use it.
const LAP_FLAG: u8 = (ring::LAP >> 40) as u8;

/// The memory of one ring.
#[derive(Clone, Copy)]
struct Ring(*mut u8);

impl Ring {
    fn control(&self) -> &RingControl {
        // SAFETY: - the control line is at the start of the ring, aligned, atomics only.
        unsafe { &*self.0.cast::<RingControl>() }
    }

    /// The record at `offset`, a multiple of a line below the capacity.
    fn record(self, offset: usize) -> *mut u8 {
        debug_assert!(offset < CAPACITY && offset.is_multiple_of(ring::LINE_BYTES));
        // SAFETY: - in bounds: offset is below CAPACITY.
        unsafe { self.0.add(RING_CONTROL_BYTES + offset) }
    }
}

impl Memory for Ring {
    const CAPACITY: usize = CAPACITY;

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: - in bounds and aligned: offset is a multiple of 64 below CAPACITY.
        unsafe { &*self.record(offset).cast::<AtomicU64>() }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        &self.control().consumed
    }

    #[inline]
    fn starved(&self) -> &AtomicU32 {
        &self.control().starved
    }
}

/// The sending end of one ring.
pub struct Producer {
    ring: Ring,
    writing: Writing,
    receiver: ProcessIndex,
    bit: u32,
    segment: Segment,
}

// SAFETY: - the ring lives as long as the process, and only the owner of the Producer writes records.
unsafe impl Send for Producer {}

impl Producer {
    /// The sending end of `sender → receiver`. There must be only one in the job.
    pub fn new(segment: Segment, sender: ProcessIndex, receiver: ProcessIndex) -> Self {
        let ring = Ring(segment.ring(receiver, sender));
        Self { ring, writing: Writing::default(), receiver, bit: sender.0, segment }
    }

    /// Whether the consumer says that it has consumed what it cannot have. The ring takes nothing any more.
    pub fn is_broken(&self) -> bool {
        self.writing.is_broken()
    }

    /// Bytes of the ring that records have taken so far.
    pub fn produced_bytes(&self) -> u64 {
        self.writing.produced_bytes()
    }

    /// Writes one frame: header, digest and body parts, one after the other. `false` when the ring has no room for it;
    /// nothing is written then. `fill` writes the body's `body_bytes` bytes at the pointer it is given.
    ///
    /// Returns `None` for no room, else whether the consumer has to be woken through its wake socket.
    #[inline(always)]
    pub fn send(
        &mut self,
        header: &Header,
        digest: Option<u128>,
        body_bytes: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        // Word by word: reading several words at once that were written one by one, the processor would have to wait until all it has written
        // before is visible, also the records before this one. In arguments they stay apart.
        let [first, context, position, origin] = header.words();
        let digest = digest.map(|digest| (digest as u64, (digest >> 64) as u64));
        self.send_words(first, context, position, origin, digest, body_bytes, fill)
    }

    /// Likewise, with the words of the header and the two halves of the digest.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn send_words(
        &mut self,
        first: u64,
        context: u64,
        position: u64,
        origin: u64,
        digest: Option<(u64, u64)>,
        body_bytes: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Option<bool> {
        let digest_bytes = if digest.is_some() { 16 } else { 0 };
        let bytes = HEADER_BYTES + digest_bytes + body_bytes;
        debug_assert!(bytes <= FRAME_BYTES_MAX, "a frame of {bytes} bytes");
        let space = bytes.next_multiple_of(ring::LINE_BYTES);
        let record = self.ring.record(self.writing.reserve(&self.ring, space)?);
        // SAFETY: - within the record, which has room for a header, and is aligned to a line.
        unsafe { record.add(8).cast::<[u64; 3]>().write([context, position, origin]) };
        if let Some((low, high)) = digest {
            // SAFETY: - within the record, behind the header; aligned like it.
            unsafe { record.add(HEADER_BYTES).cast::<[u64; 2]>().write([low, high]) };
        }
        // SAFETY: - body_bytes fit into the record after header and digest.
        fill(unsafe { record.add(HEADER_BYTES + digest_bytes) });
        self.writing.publish(&self.ring, space, frame::with_size(first, bytes as u32));
        let must_wake = self.tell();
        self.writing.clear_ahead(&self.ring);
        Some(must_wake)
    }

    fn tell(&self) -> bool {
        let slot = self.segment.slot(self.receiver);
        if seen::is_seen(&self.ring.control().polled, &slot.sleep) {
            return false;
        }
        if self.ring.control().polled.load(Ordering::SeqCst) == 0 {
            slot.bits[self.bit as usize / 64].fetch_or(1 << (self.bit % 64), Ordering::SeqCst);
            slot.pending.store(1, Ordering::SeqCst);
        }
        wake(&slot.sleep)
    }
}

/// The receiving end of one ring.
pub struct Consumer {
    ring: Ring,
    reading: Reading,
}

// SAFETY: - the ring lives as long as the process, and only the owner of the Consumer consumes records.
unsafe impl Send for Consumer {}

impl Consumer {
    /// The receiving end of `sender → receiver`. There must be only one in the job.
    pub fn new(segment: Segment, sender: ProcessIndex, receiver: ProcessIndex) -> Self {
        Self { ring: Ring(segment.ring(receiver, sender)), reading: Reading::default() }
    }

    /// Says whether this ring is polled without being told.
    pub fn set_polled(&self, polled: bool) {
        self.ring.control().polled.store(u32::from(polled), Ordering::SeqCst);
    }

    /// Whether a record is published at the front.
    #[inline]
    pub fn has_record(&mut self) -> bool {
        self.reading.front(&self.ring).is_some()
    }

    /// The record at the front, if one is published: its header, what it is, and where digest and body start. It stays
    /// valid until [`Consumer::consume`]. An error when it is no frame, or does not fit into the ring: then where the next
    /// one starts is unknown, and the ring is to be closed.
    #[inline]
    pub fn front(&mut self) -> Result<Option<(Header, Kind, *const u8)>, FrameError> {
        let Some(offset) = self.reading.front(&self.ring) else { return Ok(None) };
        let record = self.ring.record(offset);
        // SAFETY: - in bounds: a header fits into a line; what was written before the record was published is seen since its first word was. Header is
        //           plain data.
        let mut header = unsafe { record.cast::<Header>().read() };
        if !self.reading.is_of_this_lap(u64::from(header.flags) << 40) {
            return Err(FrameError::Old);
        }
        header.flags &= !LAP_FLAG;
        let kind = header.check()?;
        let max = FRAME_BYTES_MAX.min(self.reading.space_max(&self.ring));
        if header.size as usize > max {
            return Err(FrameError::TooLong { size: header.size, max });
        }
        self.reading.found(header.size as usize);
        // SAFETY: - within the record.
        Ok(Some((header, kind, unsafe { record.add(HEADER_BYTES) })))
    }

    /// Takes no record any more.
    pub(super) fn close(&mut self) {
        self.reading.close();
    }

    /// Bytes of the ring that consumed records have taken so far.
    pub(super) fn consumed_bytes(&self) -> u64 {
        self.reading.consumed_bytes()
    }

    /// Gives the space of the record back that `front` has shown.
    #[inline]
    pub fn consume(&mut self) {
        self.reading.consume(&self.ring);
    }

    /// Publishes consumption and says whether the producer was waiting for that.
    pub(super) fn relieve(&mut self) -> bool {
        self.reading.relieve(&self.ring)
    }

    /// Whether the producer waits for room.
    pub(super) fn is_starved(&self) -> bool {
        self.reading.is_starved(&self.ring)
    }
}
