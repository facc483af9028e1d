//! Rendezvous buffers of granted payloads: buffers that data frames are written to, whichever transport carries them.
//!
//! A rendezvous buffer takes consecutive bytes from the process that was granted it, as far as it has room. All other
//! bytes sent to it are refused before they are written.

use redrt_types::ProcessIndex;
use rustc_hash::FxHashSet;
use slab::Slab;

/// Number of a rendezvous buffer, sent in a clear-to-send. The upper half counts uses, so that data for a rendezvous
/// buffer that was given up are recognised and dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RendezvousBufferId(pub u64);

impl RendezvousBufferId {
    fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// Fault of payload bytes, in words that follow on the sender's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RendezvousBufferError {
    /// The rendezvous buffer was never granted, or is complete.
    #[error("sent payload bytes for rendezvous buffer {0:#x}, which there is not")]
    Unknown(u64),
    /// The rendezvous buffer was granted to another process.
    #[error("sent payload bytes for rendezvous buffer {0:#x}, which is another process's")]
    Foreign(u64),
    /// The bytes are not the next ones.
    #[error("sent {count} payload bytes from {offset} on, where {expected} to {end} are missing")]
    OutOfPlace {
        /// Offset stated by the sender.
        offset: u64,
        /// Number of bytes.
        count: usize,
        /// Offset of the next missing byte.
        expected: usize,
        /// End of the payload.
        end: usize,
    },
}

struct RendezvousBuffer {
    id: RendezvousBufferId,
    from: ProcessIndex,
    start: *mut u8,
    length: usize,
    received: usize,
    message: usize,
}

/// All rendezvous buffers of a process.
#[derive(Default)]
pub struct RendezvousBuffers {
    slots: Slab<RendezvousBuffer>,
    uses: u64,
    /// Rendezvous buffers that were given up, and whose data may still be under way.
    given_up: FxHashSet<RendezvousBufferId>,
}

// SAFETY: - the pointers are used only under the engine's lock.
unsafe impl Send for RendezvousBuffers {}

impl RendezvousBuffers {
    /// Registers `length` bytes at `start` for the payload of `message`, to be sent by `from`.
    ///
    /// # Safety
    /// The bytes must stay writable, and be used by nobody else, until the rendezvous buffer is removed.
    pub unsafe fn insert(
        &mut self,
        start: *mut u8,
        length: usize,
        message: usize,
        from: ProcessIndex,
    ) -> RendezvousBufferId {
        self.uses += 1;
        let entry = self.slots.vacant_entry();
        let id = RendezvousBufferId(entry.key() as u64 & 0xffff_ffff | self.uses << 32);
        entry.insert(RendezvousBuffer { id, from, start, length, received: 0, message });
        id
    }

    /// Returns true if no payload is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn get(&mut self, id: RendezvousBufferId) -> Option<&mut RendezvousBuffer> {
        self.slots.get_mut(id.slot()).filter(|rendezvous_buffer| rendezvous_buffer.id == id)
    }

    /// The place of the next `count` bytes of a payload, which `from` sends as those from `offset` on. `None` when the
    /// rendezvous buffer was given up.
    pub fn place(
        &mut self,
        from: ProcessIndex,
        id: RendezvousBufferId,
        offset: u64,
        count: usize,
    ) -> Result<Option<*mut u8>, RendezvousBufferError> {
        let is_given_up = self.given_up.contains(&id);
        let Some(rendezvous_buffer) = self.get(id) else {
            return if is_given_up { Ok(None) } else { Err(RendezvousBufferError::Unknown(id.0)) };
        };
        if rendezvous_buffer.from != from {
            return Err(RendezvousBufferError::Foreign(id.0));
        }
        let (expected, end) = (rendezvous_buffer.received, rendezvous_buffer.length);
        if offset != expected as u64 || count > end - expected {
            return Err(RendezvousBufferError::OutOfPlace { offset, count, expected, end });
        }
        // SAFETY: - within the rendezvous buffer, as was just checked.
        Ok(Some(unsafe { rendezvous_buffer.start.add(expected) }))
    }

    /// Writes the next bytes of a payload, unless the rendezvous buffer was given up.
    pub fn write(
        &mut self,
        from: ProcessIndex,
        id: RendezvousBufferId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RendezvousBufferError> {
        if let Some(place) = self.place(from, id, offset, bytes.len())? {
            // SAFETY: - place is valid for bytes.len() writes; the source is a transport buffer, so they do not
            // overlap.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        }
        Ok(())
    }

    /// Counts `count` received bytes, which `place` has allowed. Once the payload is complete, removes the rendezvous
    /// buffer and returns its message.
    pub fn advance(&mut self, id: RendezvousBufferId, count: usize) -> Option<usize> {
        let rendezvous_buffer = self.get(id)?;
        rendezvous_buffer.received += count;
        if rendezvous_buffer.received < rendezvous_buffer.length {
            return None;
        }
        Some(self.slots.remove(id.slot()).message)
    }

    /// Gives a rendezvous buffer up; later data for it are dropped.
    pub fn remove(&mut self, id: RendezvousBufferId) {
        if self.get(id).is_some() {
            self.slots.remove(id.slot());
            self.given_up.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ProcessIndex = ProcessIndex(3);

    #[test]
    fn data_for_a_rendezvous_buffer_given_up_is_dropped() {
        let mut first = [0u8; 8];
        let mut second = [0u8; 8];
        let mut rendezvous_buffers = RendezvousBuffers::default();
        // SAFETY: - the arrays outlive the rendezvous buffers.
        let old = unsafe { rendezvous_buffers.insert(first.as_mut_ptr(), 8, 1, PEER) };
        rendezvous_buffers.remove(old);
        // SAFETY: - the array outlives the rendezvous buffers.
        let new = unsafe { rendezvous_buffers.insert(second.as_mut_ptr(), 8, 2, PEER) };
        assert_eq!(rendezvous_buffers.write(PEER, old, 0, &[9; 8]), Ok(()));
        assert_eq!(rendezvous_buffers.write(PEER, new, 0, &[7; 4]), Ok(()));
        assert_eq!(rendezvous_buffers.advance(old, 8), None);
        assert_eq!(rendezvous_buffers.advance(new, 4), None);
        assert_eq!(rendezvous_buffers.write(PEER, new, 4, &[8; 4]), Ok(()));
        assert_eq!(rendezvous_buffers.advance(new, 4), Some(2));
        assert_eq!((first, second), ([0; 8], [7, 7, 7, 7, 8, 8, 8, 8]));
    }

    #[test]
    fn data_that_are_not_the_next_ones_are_refused_and_not_written() {
        let mut place = [0u8; 8];
        let mut rendezvous_buffers = RendezvousBuffers::default();
        // SAFETY: - the array outlives the rendezvous buffer.
        let id = unsafe { rendezvous_buffers.insert(place.as_mut_ptr(), 8, 1, PEER) };
        let out_of_place =
            |offset, count| Err(RendezvousBufferError::OutOfPlace { offset, count, expected: 0, end: 8 });
        assert_eq!(rendezvous_buffers.write(PEER, id, 1, &[1; 4]), out_of_place(1, 4));
        assert_eq!(rendezvous_buffers.write(PEER, id, 0, &[1; 9]), out_of_place(0, 9));
        assert_eq!(rendezvous_buffers.write(PEER, id, u64::MAX, &[1; 2]), out_of_place(u64::MAX, 2));
        assert_eq!(
            rendezvous_buffers.write(ProcessIndex(4), id, 0, &[1; 8]),
            Err(RendezvousBufferError::Foreign(id.0))
        );
        let other = RendezvousBufferId(id.0 ^ 1 << 40);
        assert_eq!(rendezvous_buffers.write(PEER, other, 0, &[1; 8]), Err(RendezvousBufferError::Unknown(other.0)));
        assert_eq!(place, [0; 8]);
    }
}
