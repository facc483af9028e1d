//! The two ends of a ring of records, in memory that two processes share.
//!
//! ```text
//!   | record … | record | 0 …                 | old records … |
//!     ▲ reading           ▲ writing
//! ```
//! Records are whole lines. A record is published by writing its first word, which is not zero, last. Before that, the
//! first word behind the record is zeroed, so the reader looks only at the first word of its own place. The rest of a
//! record is the writer's until then. From then on it is the reader's, until the reader gives its space back.
//!
//! Neither end trusts the other: its words are checked, and an impossible one closes the ring.

use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a line; records begin and end with one.
pub const LINE_BYTES: usize = 64;

/// Lap mark in the first words of records, a bit that is the ring's own; set in every other lap. In sound memory a zero
/// stands behind the last record. The trap: where that zero was overwritten, old records lie behind it, and would be
/// read round and round. The bit tells that they are of the previous lap, and they are refused.
pub const LAP: u64 = 1 << 47;

/// First word of a place from which the writer went back to the begin.
const WRAP: u64 = u64::MAX;

/// The memory of a ring, as both ends see it.
pub trait Memory {
    /// Bytes of all lines.
    fn capacity(&self) -> usize;

    /// First word of the line at `offset`, a multiple of [`LINE_BYTES`] below the capacity.
    fn word(&self, offset: usize) -> &AtomicU64;

    /// Bytes that the reader has given back since the begin of the ring.
    fn consumed(&self) -> &AtomicU64;

    /// Non-zero while the writer waits for room.
    fn starved(&self) -> &AtomicU32;
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Writing {
    offset: usize,
    /// [`LAP`] in every other lap, else 0.
    lap: u64,
    produced: u64,
    consumed_seen: u64,
    /// Number of bytes from `offset` on whose lines begin with zeros. Where no record begins or ends at the end of the
    /// ring.
    clear: usize,
    broken: bool,
}

impl Default for Writing {
    fn default() -> Self {
        Self { offset: 0, lap: 0, produced: 0, consumed_seen: 0, clear: LINE_BYTES, broken: false }
    }
}

impl Writing {
    /// Returns true if the reader claims to have consumed bytes that it cannot have. Then the ring takes no more
    /// records.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Bytes of the ring that records have taken since its begin.
    #[must_use]
    pub fn produced_bytes(&self) -> u64 {
        self.produced
    }

    /// Bytes of the ring that are taken and not consumed.
    fn used(&self) -> usize {
        self.produced.wrapping_sub(self.consumed_seen) as usize
    }

    /// Takes in the reader's count. An impossible count leaves a ring that is full for good.
    fn read_count<M: Memory>(&mut self, memory: &M, order: Ordering) {
        let seen = memory.consumed().load(order);
        let can_be = self.produced.checked_sub(seen).is_some_and(|used| used <= memory.capacity() as u64);
        self.broken |= !can_be || !seen.is_multiple_of(LINE_BYTES as u64);
        self.consumed_seen = if self.broken { self.produced.wrapping_sub(memory.capacity() as u64) } else { seen };
    }

    fn has_room<M: Memory>(&mut self, memory: &M, bytes: usize) -> bool {
        if self.used() + bytes + LINE_BYTES <= memory.capacity() {
            return true;
        }
        self.read_count(memory, Ordering::Acquire);
        if self.used() + bytes + LINE_BYTES <= memory.capacity() {
            return true;
        }
        // Ask for a wake-up, then look once more: the reader publishes its count and then looks at the flag.
        memory.starved().store(1, Ordering::SeqCst);
        self.read_count(memory, Ordering::SeqCst);
        self.used() + bytes + LINE_BYTES <= memory.capacity()
    }

    /// Offset at which a record of `space` bytes, a multiple of [`LINE_BYTES`], may be written, all but its first word.
    /// `None` without room: the reader will wake the writer ([`Reading::relieve`]).
    #[inline(always)]
    pub fn reserve<M: Memory>(&mut self, memory: &M, space: usize) -> Option<usize> {
        let to_end = memory.capacity() - self.offset;
        let wrap = space > to_end;
        if !self.has_room(memory, if wrap { to_end + space } else { space }) {
            return None;
        }
        if wrap {
            memory.word(0).store(0, Ordering::Relaxed);
            memory.word(self.offset).store(WRAP, Ordering::Release);
            self.produced += to_end as u64;
            self.offset = 0;
            self.clear = LINE_BYTES;
            self.lap ^= LAP;
        }
        let next = self.next(space, memory.capacity());
        if next == 0 || self.clear < space + LINE_BYTES {
            memory.word(next).store(0, Ordering::Relaxed);
        }
        Some(self.offset)
    }

    fn next(&self, space: usize, capacity: usize) -> usize {
        if self.offset + space == capacity { 0 } else { self.offset + space }
    }

    /// Publishes the record that was written at the offset of [`Writing::reserve`]. `first`: its first word, not zero
    /// and without [`LAP`].
    #[inline]
    pub fn publish<M: Memory>(&mut self, memory: &M, space: usize, first: u64) {
        memory.word(self.offset).store(first | self.lap, Ordering::Release);
        self.offset = self.next(space, memory.capacity());
        self.produced += space as u64;
        if self.offset == 0 {
            self.lap ^= LAP;
            self.clear = LINE_BYTES;
        } else {
            self.clear = self.clear.saturating_sub(space).max(LINE_BYTES);
        }
    }

    /// Zeroes the line behind the next record, if that is a short one. The reader had the line last, and fetching it
    /// takes as long as a message: better now than when the next record waits for it.
    #[inline]
    pub fn clear_ahead<M: Memory>(&mut self, memory: &M) {
        let ahead = self.offset + self.clear;
        if self.clear == LINE_BYTES
            && ahead < memory.capacity()
            && self.used() + self.clear + LINE_BYTES <= memory.capacity()
        {
            memory.word(ahead).store(0, Ordering::Relaxed);
            self.clear += LINE_BYTES;
        }
    }
}

/// The reading end of a ring.
#[derive(Debug, Default)]
pub struct Reading {
    offset: usize,
    /// [`LAP`] in every other lap, else 0.
    lap: u64,
    consumed: u64,
    published: u64,
    /// Bytes of the record at the front; 0 before it was examined.
    space: usize,
    closed: bool,
}

impl Reading {
    /// Closes the ring for good: nothing more is taken from it.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Bytes of the ring that records have taken and given back since its begin.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        self.consumed
    }

    /// Offset of the record at the front; `None` until one is published.
    #[inline]
    pub fn front<M: Memory>(&mut self, memory: &M) -> Option<usize> {
        if self.closed {
            return None;
        }
        let mut first = memory.word(self.offset).load(Ordering::Acquire);
        // A writer at the begin cannot go back to it.
        if first == WRAP && self.offset > 0 {
            self.consumed += (memory.capacity() - self.offset) as u64;
            self.offset = 0;
            self.lap ^= LAP;
            first = memory.word(self.offset).load(Ordering::Acquire);
        }
        (first != 0).then_some(self.offset)
    }

    /// Returns true if a record with this first word was written in this lap.
    #[inline]
    #[must_use]
    pub fn is_of_this_lap(&self, first: u64) -> bool {
        first & LAP == self.lap
    }

    /// Bound on the bytes of the record at the front.
    #[must_use]
    pub fn space_max<M: Memory>(&self, memory: &M) -> usize {
        memory.capacity() - self.offset
    }

    /// Sets the bytes of the record at the front, at most [`Reading::space_max`]. [`Reading::consume`] gives them back.
    #[inline]
    pub fn found(&mut self, bytes: usize) {
        self.space = bytes.next_multiple_of(LINE_BYTES);
    }

    /// Gives back the space of the record whose size was set.
    #[inline]
    pub fn consume<M: Memory>(&mut self, memory: &M) {
        let space = std::mem::take(&mut self.space);
        self.offset += space;
        if self.offset == memory.capacity() {
            self.offset = 0;
            self.lap ^= LAP;
        }
        self.consumed += space as u64;
        if self.consumed - self.published >= (memory.capacity() / 4) as u64 {
            self.published = self.consumed;
            memory.consumed().store(self.consumed, Ordering::Release);
        }
    }

    /// Returns true if the writer may be waiting for room.
    pub fn is_starved<M: Memory>(&self, memory: &M) -> bool {
        memory.starved().load(Ordering::Relaxed) != 0
    }

    /// Publishes the count of all consumed bytes. Returns true if the writer was waiting for room: then it must be
    /// woken.
    pub fn relieve<M: Memory>(&mut self, memory: &M) -> bool {
        self.published = self.consumed;
        memory.consumed().store(self.consumed, Ordering::SeqCst);
        memory.starved().swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(all(test, redrt_loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread::{self, Thread};

    const LINES: usize = 4;

    /// A ring of four lines. loom knows the contents of records, and notices when both ends use a line at once.
    #[derive(Default)]
    struct Small {
        words: [AtomicU64; LINES],
        contents: [UnsafeCell<u64>; LINES],
        consumed: AtomicU64,
        starved: AtomicU32,
    }

    // SAFETY: - the contents are handed from one end to the other by the protocol, and loom checks that.
    unsafe impl Sync for Small {}

    impl Memory for Small {
        fn capacity(&self) -> usize {
            LINES * LINE_BYTES
        }

        fn word(&self, offset: usize) -> &AtomicU64 {
            &self.words[offset / LINE_BYTES]
        }

        fn consumed(&self) -> &AtomicU64 {
            &self.consumed
        }

        fn starved(&self) -> &AtomicU32 {
            &self.starved
        }
    }

    /// Lines of each record. The third does not fit behind the second; the last ends where the ring ends.
    const RECORDS: [usize; 5] = [1, 2, 2, 1, 1];

    fn fill(ring: &Small, offset: usize, lines: usize, number: u64) {
        for line in offset / LINE_BYTES..offset / LINE_BYTES + lines {
            // SAFETY: - reserved and not published: the writer's.
            ring.contents[line].with_mut(|content| unsafe { *content = number });
        }
    }

    fn write(ring: &Small, too_early: bool) {
        let mut writing = Writing::default();
        for (number, lines) in RECORDS.iter().enumerate() {
            let (number, space) = (number as u64 + 1, lines * LINE_BYTES);
            let offset = loop {
                if let Some(offset) = writing.reserve(ring, space) {
                    break offset;
                }
                assert!(!writing.is_broken());
                thread::park();
            };
            if !too_early {
                fill(ring, offset, *lines, number);
            }
            writing.publish(ring, space, number << 8 | *lines as u64);
            if too_early {
                fill(ring, offset, *lines, number);
            }
            writing.clear_ahead(ring);
        }
    }

    fn read(ring: &Small, writer: &Thread) {
        let mut reading = Reading::default();
        for (number, lines) in RECORDS.iter().enumerate() {
            let offset = loop {
                if let Some(offset) = reading.front(ring) {
                    break offset;
                }
                if reading.is_starved(ring) && reading.relieve(ring) {
                    writer.unpark();
                }
                thread::yield_now();
            };
            let first = ring.word(offset).load(Ordering::Relaxed);
            assert!(reading.is_of_this_lap(first));
            assert_eq!(first & !LAP, (number as u64 + 1) << 8 | *lines as u64);
            assert!(lines * LINE_BYTES <= reading.space_max(ring));
            for line in offset / LINE_BYTES..offset / LINE_BYTES + lines {
                // SAFETY: - published and not consumed: the reader's.
                ring.contents[line].with(|content| assert_eq!(unsafe { *content }, number as u64 + 1));
            }
            reading.found(lines * LINE_BYTES);
            reading.consume(ring);
        }
        assert_eq!(reading.front(ring), None, "nothing is read twice");
    }

    fn check(too_early: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let ring = Arc::new(Small::default());
            let theirs = ring.clone();
            let writer = thread::spawn(move || write(&theirs, too_early));
            read(&ring, writer.thread());
            writer.join().unwrap();
        });
    }

    #[test]
    fn every_record_is_read_once_and_whole() {
        check(false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn what_is_written_after_it_was_published_is_found_out() {
        check(true);
    }
}
