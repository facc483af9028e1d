//! Words that the members of a direct window share beside its memory: locks, latches and counts of epochs.
//!
//! ```text
//!   member 0 │ lock │ latch │ fences │ posts, by target │ completes, by origin │
//!   member 1 │ ...
//! ```
//! Fences, posts and completes are counts, each written by one member alone: the fences to which this member has come,
//! the posts of each target to it, and the access epochs to it that each origin has ended. All words are zeros at
//! first: new memory is, and kept memory was cleared.

use redrt_sync::tickets::{Latch, Tickets};
use std::sync::atomic::AtomicU32;

/// A value in a cache line of its own: writes to neighbouring values do not disturb the threads that wait for it.
#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Head {
    tickets: Line<Tickets>,
    latch: Line<Latch>,
    fences: Line<AtomicU32>,
}

const LINE_BYTES: usize = align_of::<Line<u8>>();
const WORD_BYTES: usize = size_of::<AtomicU32>();
/// Memory of members begins on a page.
const PAGE_BYTES: usize = 4096;

/// The shared words of a window, in memory that outlives this value.
pub struct Control {
    start: *const u8,
    member_count: usize,
}

// SAFETY: - usable in any thread: an address of memory that stays mapped, and consists of atomics.
unsafe impl Send for Control {}
// SAFETY: - usable by several threads: the address never changes, and the words are atomics.
unsafe impl Sync for Control {}

fn stride(member_count: usize) -> usize {
    size_of::<Head>() + (2 * member_count * WORD_BYTES).next_multiple_of(LINE_BYTES)
}

impl Control {
    /// Number of bytes for a window of `member_count` members; whole pages.
    pub fn bytes(member_count: usize) -> usize {
        (member_count * stride(member_count)).next_multiple_of(PAGE_BYTES)
    }

    /// The words at `start`.
    ///
    /// # Safety
    /// [`Control::bytes`] bytes there are mapped as long as this is used, at the beginning of a page, and were zeros.
    pub unsafe fn new(start: usize, member_count: usize) -> Self {
        Self { start: std::ptr::with_exposed_provenance(start), member_count }
    }

    /// Clears all words of a member.
    ///
    /// # Safety
    /// No member reads or writes these words during the call.
    pub unsafe fn clear(&self, member: u32) {
        assert!((member as usize) < self.member_count, "member {member} of {}", self.member_count);
        let stride = stride(self.member_count);
        let words = std::ptr::with_exposed_provenance_mut::<u8>(self.start.addr() + member as usize * stride);
        // SAFETY: - in bounds by the assertion.
        //         - not read or written by others meanwhile: the caller's duty above.
        unsafe { words.write_bytes(0, stride) };
    }

    fn head(&self, member: u32) -> &Head {
        assert!((member as usize) < self.member_count, "member {member} of {}", self.member_count);
        // SAFETY: - within the mapped memory by the assertion; aligned, as a multiple of lines from a page on.
        //         - may change meanwhile: it consists of atomics.
        unsafe { &*self.start.add(member as usize * stride(self.member_count)).cast::<Head>() }
    }

    /// The lock of a member's part of the window.
    pub fn tickets(&self, member: u32) -> &Tickets {
        &self.head(member).tickets.0
    }

    /// The latch that an accumulate on a member's memory holds.
    pub fn latch(&self, member: u32) -> &Latch {
        &self.head(member).latch.0
    }

    /// Number of fences to which a member has come.
    pub fn fences(&self, member: u32) -> &AtomicU32 {
        &self.head(member).fences.0
    }

    fn word(&self, member: u32, number: usize) -> &AtomicU32 {
        let words = std::ptr::from_ref(self.head(member)).cast::<u8>();
        assert!(number < 2 * self.member_count, "word {number} of {} members", self.member_count);
        // SAFETY: - within the member's words by the assertion: two for each member follow the head.
        unsafe { &*words.add(size_of::<Head>() + number * WORD_BYTES).cast::<AtomicU32>() }
    }

    /// Number of posts of `target` to `member`.
    pub fn posts(&self, member: u32, target: u32) -> &AtomicU32 {
        self.word(member, target as usize)
    }

    /// Number of access epochs to `member` that `origin` has ended.
    pub fn completes(&self, member: u32, origin: u32) -> &AtomicU32 {
        self.word(member, self.member_count + origin as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_are_apart_and_within() {
        for member_count in [1, 3, 17, 256] {
            let bytes = Control::bytes(member_count);
            let mut memory = vec![[0u64; PAGE_BYTES / 8]; bytes / PAGE_BYTES + 1];
            let start = (memory.as_mut_ptr() as usize).next_multiple_of(PAGE_BYTES);
            // SAFETY: - bytes zeros at a page, valid until the end of this round: memory has one page more.
            let control = unsafe { Control::new(start, member_count) };
            control.posts(0, 0).store(7, Ordering::Relaxed);
            let ticket = control.tickets(0).draw(true);
            assert!(!control.tickets(0).has_come(control.tickets(0).draw(true)));
            assert!(control.tickets(0).has_come(ticket));
            // SAFETY: - not used by others: no other thread has the memory.
            unsafe { control.clear(0) };
            assert_eq!(control.posts(0, 0).load(Ordering::Relaxed), 0);
            assert!(control.tickets(0).has_come(control.tickets(0).draw(true)));
            let mut seen = BTreeSet::new();
            let count = member_count as u32;
            for member in 0..count {
                let others =
                    (0..count).flat_map(|other| [control.posts(member, other), control.completes(member, other)]);
                let mut places: Vec<_> = others.map(|word| word.as_ptr() as usize).collect();
                places.push(std::ptr::from_ref(control.tickets(member)) as usize);
                places.push(std::ptr::from_ref(control.latch(member)) as usize);
                places.push(control.fences(member).as_ptr() as usize);
                assert!(places.iter().all(|place| (start..start + bytes).contains(place)));
                assert!(places.into_iter().all(|place| seen.insert(place)));
            }
        }
    }
}
