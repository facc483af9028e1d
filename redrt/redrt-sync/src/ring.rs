//! The two ends of a ring of records, in memory that two processes share.
//!
//! ```text
//!   | record … | record | 0 …                 | old records … |
//!     ▲ reading           ▲ writing
//! ```
//! Records are whole lines. One is published by writing its first word, which is not zero, last; before that, the first
//! word behind it is zeroed, so the reader needs to look at nothing but the first word of the place where it is. What
//! the rest of a record holds is the writer's until then, and the reader's from then on until it says that it has
//! consumed it.
//!
//! Nothing here trusts the other end: what it says is checked, and what cannot be closes the ring.

use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a line; records begin and end with one.
pub const LINE_BYTES: usize = 64;

/// Set in the first words of the records of every other lap, in a bit that is the ring's own. In sound memory a zero
/// stands behind the last record. Where that was written over, old records lie behind it; those of the lap before are
/// known by this bit, and refused: else they would be read round and round.
pub const LAP: u64 = 1 << 47;

/// First word of a place where the writer went back to the begin.
const WRAP: u64 = u64::MAX;

/// The memory of a ring, as both ends see it.
pub trait Memory {
    /// Bytes of all lines.
    fn capacity(&self) -> usize;

    /// First word of the line at `offset`, a multiple of [`LINE_BYTES`] below the capacity.
    fn word(&self, offset: usize) -> &AtomicU64;

    /// Bytes that the reader has given back, all in all.
    fn consumed(&self) -> &AtomicU64;

    /// Non-zero while the writer waits for room.
    fn starved(&self) -> &AtomicU32;
}

/// The end that writes.
#[derive(Debug)]
pub struct Writing {
    offset: usize,
    /// [`LAP`] in every other lap, else 0.
    lap: u64,
    produced: u64,
    consumed_seen: u64,
    /// From `offset` on, the number of bytes whose lines begin with zeros. Where no record begins or ends at the end of
    /// the ring.
    clear: usize,
    broken: bool,
}

impl Default for Writing {
    fn default() -> Self {
        Self { offset: 0, lap: 0, produced: 0, consumed_seen: 0, clear: LINE_BYTES, broken: false }
    }
}

impl Writing {
    /// Whether the reader says that it has consumed what it cannot have. The ring takes nothing any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Bytes of the ring that records have taken so far.
    #[must_use]
    pub fn produced_bytes(&self) -> u64 {
        self.produced
    }

    /// Bytes of the ring that are not consumed.
    fn used(&self) -> usize {
        self.produced.wrapping_sub(self.consumed_seen) as usize
    }

    /// Hears what the reader says. What cannot be leaves a ring that is full for good.
    fn look<M: Memory>(&mut self, memory: &M, order: Ordering) {
        let seen = memory.consumed().load(order);
        let can_be = self.produced.checked_sub(seen).is_some_and(|used| used <= memory.capacity() as u64);
        self.broken |= !can_be || !seen.is_multiple_of(LINE_BYTES as u64);
        self.consumed_seen = if self.broken { self.produced.wrapping_sub(memory.capacity() as u64) } else { seen };
    }

    fn has_room<M: Memory>(&mut self, memory: &M, bytes: usize) -> bool {
        if self.used() + bytes + LINE_BYTES <= memory.capacity() {
            return true;
        }
        self.look(memory, Ordering::Acquire);
        if self.used() + bytes + LINE_BYTES <= memory.capacity() {
            return true;
        }
        // Ask to be woken, then look once more: the reader publishes and then looks at the flag.
        memory.starved().store(1, Ordering::SeqCst);
        self.look(memory, Ordering::SeqCst);
        self.used() + bytes + LINE_BYTES <= memory.capacity()
    }

    /// Where a record of `space` bytes, a multiple of [`LINE_BYTES`], may be written, all but its first word. `None`
    /// when there is no room: the reader will say so ([`Reading::relieve`]).
    #[inline]
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

    /// Publishes the record that was written where [`Writing::reserve`] said. `first`: its first word, not zero and
    /// without [`LAP`].
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

    /// Zeroes the line behind the next record, if that is a short one. The reader had it last, and to get it takes as
    /// long as a message: better now than when the next record waits for it.
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

/// The end that reads.
#[derive(Debug, Default)]
pub struct Reading {
    offset: usize,
    /// [`LAP`] in every other lap, else 0.
    lap: u64,
    consumed: u64,
    published: u64,
    /// Bytes of the record at the front, once it was looked at.
    space: usize,
    /// Nothing more is taken from it.
    closed: bool,
}

impl Reading {
    /// Takes nothing more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Bytes of the ring that records have taken and given back so far.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        self.consumed
    }

    /// Where the record at the front is, if one is published.
    #[inline]
    pub fn front<M: Memory>(&mut self, memory: &M) -> Option<usize> {
        if self.closed {
            return None;
        }
        let mut first = memory.word(self.offset).load(Ordering::Acquire);
        // A writer that is at the begin has nowhere to go back to.
        if first == WRAP && self.offset > 0 {
            self.consumed += (memory.capacity() - self.offset) as u64;
            self.offset = 0;
            self.lap ^= LAP;
            first = memory.word(self.offset).load(Ordering::Acquire);
        }
        (first != 0).then_some(self.offset)
    }

    /// Whether a record with this first word was written in this lap.
    #[inline]
    #[must_use]
    pub fn is_of_this_lap(&self, first: u64) -> bool {
        first & LAP == self.lap
    }

    /// Most bytes that the record at the front can have.
    #[must_use]
    pub fn space_max<M: Memory>(&self, memory: &M) -> usize {
        memory.capacity() - self.offset
    }

    /// The record at the front has this many bytes, at most [`Reading::space_max`], which [`Reading::consume`] gives
    /// back.
    #[inline]
    pub fn found(&mut self, bytes: usize) {
        self.space = bytes.next_multiple_of(LINE_BYTES);
    }

    /// Gives the space of the record back that was found.
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

    /// Whether the writer may be waiting for room.
    pub fn is_starved<M: Memory>(&self, memory: &M) -> bool {
        memory.starved().load(Ordering::Relaxed) != 0
    }

    /// Says what has been consumed, all of it, and whether the writer was waiting for that: then it must be woken.
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

    /// A ring of four lines: what records hold is known to loom, which sees when both ends use a line at once.
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

    /// Lines of each record. The third does not fit behind the second, the last ends where the ring does.
    const RECORDS: [usize; 5] = [1, 2, 2, 1, 1];

    fn fill(ring: &Small, offset: usize, lines: usize, number: u64) {
        for line in offset / LINE_BYTES..offset / LINE_BYTES + lines {
            // SAFETY: - reserved, and not published: the writer's.
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
                // SAFETY: - published, and not consumed: the reader's.
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
