//! Where granted payloads land: buffers that data frames are written to, whichever transport carries them.

use slab::Slab;

/// Number of a landing, sent in a grant. The upper half counts uses, so that data for a landing that was given up is
/// recognized and dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LandingId(pub u64);

struct Landing {
    id: LandingId,
    start: *mut u8,
    length: usize,
    received: usize,
    message: usize,
}

/// All landings of a process.
#[derive(Default)]
pub struct Landings {
    slots: Slab<Landing>,
    uses: u64,
}

// SAFETY: - the pointers are used only by whoever holds the engine's lock.
unsafe impl Send for Landings {}

impl Landings {
    /// Registers `length` bytes at `start` for the payload of `message`.
    ///
    /// # Safety
    /// The bytes must stay writable, and be used by nobody else, until the landing is removed.
    pub unsafe fn insert(&mut self, start: *mut u8, length: usize, message: usize) -> LandingId {
        self.uses += 1;
        let entry = self.slots.vacant_entry();
        let id = LandingId(entry.key() as u64 & 0xffff_ffff | self.uses << 32);
        entry.insert(Landing { id, start, length, received: 0, message });
        id
    }

    fn get(&mut self, id: LandingId) -> Option<&mut Landing> {
        self.slots.get_mut((id.0 & 0xffff_ffff) as usize).filter(|landing| landing.id == id)
    }

    /// Where `length` bytes at `offset` of the payload go; `None` when the landing is gone or too small.
    pub fn place(&mut self, id: LandingId, offset: u64, length: usize) -> Option<*mut u8> {
        let landing = self.get(id)?;
        let end = usize::try_from(offset).ok()?.checked_add(length)?;
        if end > landing.length {
            return None;
        }
        // SAFETY: - offset + length is within the landing.
        Some(unsafe { landing.start.add(offset as usize) })
    }

    /// Writes `bytes` at `offset` of the payload.
    pub fn write(&mut self, id: LandingId, offset: u64, bytes: &[u8]) {
        if let Some(place) = self.place(id, offset, bytes.len()) {
            // SAFETY: - place is valid for bytes.len() writes; the source is a transport buffer, so they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        }
    }

    /// Counts `length` more bytes as received; the message when that completes its payload, and the landing is removed.
    pub fn advance(&mut self, id: LandingId, length: usize) -> Option<usize> {
        let landing = self.get(id)?;
        landing.received += length;
        if landing.received < landing.length {
            return None;
        }
        Some(self.slots.remove((id.0 & 0xffff_ffff) as usize).message)
    }

    /// Gives a landing up; data that still arrive for it are dropped.
    pub fn remove(&mut self, id: LandingId) {
        if self.get(id).is_some() {
            self.slots.remove((id.0 & 0xffff_ffff) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_for_a_landing_that_was_given_up_is_dropped() {
        let mut first = [0u8; 8];
        let mut second = [0u8; 8];
        let mut landings = Landings::default();
        // SAFETY: - the arrays outlive the landings.
        let old = unsafe { landings.insert(first.as_mut_ptr(), 8, 1) };
        landings.remove(old);
        // SAFETY: - as above.
        let new = unsafe { landings.insert(second.as_mut_ptr(), 8, 2) };
        landings.write(old, 0, &[9; 8]);
        landings.write(new, 4, &[7; 4]);
        landings.write(new, 6, &[9; 4]);
        assert_eq!(landings.advance(old, 8), None);
        assert_eq!(landings.advance(new, 8), Some(2));
        assert_eq!((first, second), ([0; 8], [0, 0, 0, 0, 7, 7, 7, 7]));
    }
}
