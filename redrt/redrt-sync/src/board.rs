//! Boards: operations of a few members, in each of which a member posts data for the others.
//!
//! ```text
//!   member 0 │ 4 │ 5 │ 2 │ 3 │     operation k is in cell k modulo DEPTH of each member; here 0 is in operation 5,
//!   member 1 │ 4 │ 1 │ 2 │ 3 │     and 1 in operation 4: its reads there meet no write
//! ```
//! Operations are numbered, and all members take part in all of them, in order. A member that reaches operation k
//! writes its cell, and then the cell's number. So a number k says that its member has finished all earlier operations.
//! Before a member overwrites its post of operation k - [`DEPTH`], it must know that all members have posted the
//! operation after that. Where each waits for all others anyhow, that always holds. A member that does not know it
//! waits for a later operation, only half as far back, and then needs to look less often. Data too large for a cell go
//! into an annex, with the same rule. Annexes are fewer ([`ANNEX_COUNT`]).
//!
//! Numbers only grow, over all uses of a place: a wait for a number may find a later one.

use crate::primitive::{AtomicU64, Ordering};

/// Cells of a member: a member may be ahead of another by one operation less. The last member need not wait for those
/// ahead. So in a row of operations where one gives and the others take, all members meet once per this many.
pub const DEPTH: u64 = if cfg!(redrt_loom) { 2 } else { 16 };

/// Annexes of a member; cell n uses annex n modulo this number. They are large: with one for each cell, their data
/// would not stay in a cache.
pub const ANNEX_COUNT: u64 = if cfg!(redrt_loom) { 2 } else { 4 };

/// The numbers on the cells, as all members see them.
pub trait Numbers {
    /// Number of members.
    fn member_count(&self) -> usize;

    /// The number on a cell of a member; `cell` is below [`DEPTH`].
    fn number(&self, member: usize, cell: usize) -> &AtomicU64;
}

/// The cell of an operation.
#[inline]
#[must_use]
pub fn cell(number: u64) -> usize {
    (number % DEPTH) as usize
}

/// The annex of an operation.
#[inline]
#[must_use]
pub fn annex(number: u64) -> usize {
    (number % ANNEX_COUNT) as usize
}

/// Returns true if a member has reached operation `number`; then its post there may be read.
#[inline]
pub fn has_posted(numbers: &impl Numbers, member: usize, number: u64) -> bool {
    numbers.number(member, cell(number)).load(Ordering::Acquire) >= number
}

/// Returns true if all members have reached operation `number`. `come` counts the first members known to have, and is
/// updated.
#[inline]
pub fn have_all_posted(numbers: &impl Numbers, number: u64, come: &mut usize) -> bool {
    while *come < numbers.member_count() {
        if !has_posted(numbers, *come, number) {
            return false;
        }
        *come += 1;
    }
    true
}

/// The operation that all members must have reached before a member writes its cell for operation `number`. `None` when
/// they are known to have come far enough. `settled` is the last operation known to have been reached by all, at first
/// the one before the first.
#[inline]
#[must_use]
pub fn before_writing(number: u64, settled: u64) -> Option<u64> {
    let must_have_come = number.checked_sub(DEPTH - 1)?;
    (must_have_come > settled).then_some(number - DEPTH / 2)
}

/// The same for its annex, which is overwritten sooner.
#[inline]
#[must_use]
pub fn before_annexing(number: u64, settled: u64) -> Option<u64> {
    number.checked_sub(ANNEX_COUNT - 1).filter(|earlier| *earlier > settled)
}

/// Publishes that a member has reached operation `number`, with its cell written.
#[inline]
pub fn post(numbers: &impl Numbers, member: usize, number: u64) {
    numbers.number(member, cell(number)).store(number, Ordering::Release);
}

/// A member's confirmation that it has read the pieces that others posted in place: until then they keep them.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Reading(AtomicU64);

impl Reading {
    /// Confirms that it has read the pieces of operation `number`, or could not.
    #[inline]
    pub fn say(&self, number: u64, has_read: bool) {
        self.0.store(number << 1 | u64::from(!has_read), Ordering::Release);
    }

    /// Returns true if it has read them and false if it could not; `None` before it confirms. The reader confirms no
    /// later operation in the same cell before the waiting member has left this one.
    #[inline]
    #[must_use]
    pub fn said(&self, number: u64) -> Option<bool> {
        let said = self.0.load(Ordering::Acquire);
        (said >> 1 >= number).then_some(said & 1 == 0)
    }
}

/// Work in numbered parts for several members: the one that needs it, and others that have time.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Parts {
    taken: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

impl Parts {
    /// Starts the work anew. No member may be at work.
    pub fn reset(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
    }

    /// Takes a part that nobody else has taken; `None` when none of `total` is left.
    #[inline]
    pub fn take(&self, total: u64) -> Option<u64> {
        // The load comes first, so that the number does not grow with each attempt in vain.
        let is_left = self.taken.load(Ordering::Relaxed) < total;
        is_left.then(|| self.taken.fetch_add(1, Ordering::Relaxed)).filter(|part| *part < total)
    }

    /// Ends a part that was taken, done or given up. Returns true if it was the last of `total`.
    pub fn finish(&self, total: u64, is_done: bool) -> bool {
        if !is_done {
            self.failed.store(1, Ordering::Relaxed);
        }
        self.done.fetch_add(1, Ordering::AcqRel) + 1 >= total
    }

    /// Returns true if all parts are done or given up; the results are visible then.
    #[inline]
    #[must_use]
    pub fn are_over(&self, total: u64) -> bool {
        self.done.load(Ordering::Acquire) >= total
    }

    /// Returns true if some part was given up. Valid once all parts are over.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, redrt_loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const BASE: u64 = 7;

    struct Board {
        cells: [[(AtomicU64, UnsafeCell<u64>); DEPTH as usize]; 2],
    }

    impl Numbers for Board {
        fn member_count(&self) -> usize {
            2
        }

        fn number(&self, member: usize, cell: usize) -> &AtomicU64 {
            &self.cells[member][cell].0
        }
    }

    fn board() -> Arc<Board> {
        let cell = || (AtomicU64::new(BASE - 1), UnsafeCell::new(0));
        Arc::new(Board { cells: std::array::from_fn(|_| std::array::from_fn(|_| cell())) })
    }

    fn wait(board: &Board, number: u64) {
        while !have_all_posted(board, number, &mut 0) {
            thread::yield_now();
        }
    }

    fn write(board: &Board, member: usize, number: u64, value: Option<u64>) {
        write_since(BASE, board, member, number, value);
    }

    fn write_since(settled: u64, board: &Board, member: usize, number: u64, value: Option<u64>) {
        if let Some(earlier) = before_writing(number, settled) {
            wait(board, earlier);
        }
        write_at_once(board, member, number, value);
    }

    fn write_at_once(board: &Board, member: usize, number: u64, value: Option<u64>) {
        if let Some(value) = value {
            // SAFETY: - loom reports it if another thread reads the place meanwhile.
            board.cells[member][cell(number)].1.with_mut(|place| unsafe { *place = value });
        }
        post(board, member, number);
    }

    fn read(board: &Board, member: usize, number: u64) -> u64 {
        while !has_posted(board, member, number) {
            thread::yield_now();
        }
        // SAFETY: - loom reports it if another thread writes the place meanwhile.
        board.cells[member][cell(number)].1.with(|place| unsafe { *place })
    }

    type Write = fn(&Board, usize, u64, Option<u64>);

    /// One member posts, and does not wait for the other.
    fn broadcast(write_root: Write) {
        loom::model(move || {
            let board = board();
            let theirs = board.clone();
            let root = thread::spawn(move || {
                for number in BASE + 1..BASE + 5 {
                    write_root(&theirs, 0, number, Some(number * 10));
                }
            });
            for number in BASE + 1..BASE + 5 {
                write(&board, 1, number, None);
                assert_eq!(read(&board, 0, number), number * 10);
            }
            root.join().unwrap();
        });
    }

    /// A member is never too far ahead of another.
    #[test]
    fn what_one_posts_stays_until_the_other_has_read_it() {
        broadcast(write);
    }

    #[test]
    #[should_panic]
    fn what_is_posted_too_early_is_found_out() {
        broadcast(write_at_once);
    }

    /// Each part is done once, and a thread that waits for the end sees all results.
    #[test]
    fn parts_are_done_once_by_any_member_that_has_time() {
        const TOTAL: u64 = 3;
        loom::model(|| {
            let work =
                Arc::new((Parts::default(), std::array::from_fn::<_, { TOTAL as usize }, _>(|_| UnsafeCell::new(0))));
            let help = |(parts, places): &(Parts, [UnsafeCell<u64>; TOTAL as usize])| {
                while let Some(part) = parts.take(TOTAL) {
                    // SAFETY: - loom reports it if another thread does this part too.
                    places[part as usize].with_mut(|place| unsafe { *place += part + 1 });
                    parts.finish(TOTAL, true);
                }
            };
            let theirs = work.clone();
            let helper = thread::spawn(move || help(&theirs));
            help(&work);
            while !work.0.are_over(TOTAL) {
                thread::yield_now();
            }
            for (part, place) in work.1.iter().enumerate() {
                // SAFETY: - loom reports it if a part is not over.
                assert_eq!(place.with(|place| unsafe { *place }), part as u64 + 1);
            }
            helper.join().unwrap();
        });
    }

    /// One member posts its piece in place, and rewrites it once the other has confirmed that it has read it.
    fn lend(waits: bool) {
        loom::model(move || {
            let board = board();
            let (piece, reading) = (Arc::new(UnsafeCell::new(0)), Arc::new(Reading::default()));
            let (theirs, its_piece, its_reading) = (board.clone(), piece.clone(), reading.clone());
            let reader = thread::spawn(move || {
                for number in BASE..BASE + 2 {
                    read(&theirs, 0, number);
                    // SAFETY: - loom reports it if another thread writes the piece meanwhile.
                    assert_eq!(its_piece.with(|piece| unsafe { *piece }), number);
                    its_reading.say(number, number == BASE);
                    write(&theirs, 1, number, None);
                }
            });
            for number in BASE..BASE + 2 {
                // SAFETY: - loom reports it if another thread reads the piece meanwhile.
                piece.with_mut(|piece| unsafe { *piece = number });
                write(&board, 0, number, Some(number));
                while waits && reading.said(number).is_none() {
                    thread::yield_now();
                }
                assert!(!waits || reading.said(number) == Some(number == BASE));
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_piece_stays_in_place_until_its_reader_has_confirmed_it() {
        lend(true);
    }

    #[test]
    #[should_panic]
    fn a_piece_that_is_written_anew_too_early_is_found_out() {
        lend(false);
    }

    /// Where each member waits for the other, each reads the other's post of this operation, and need not check that
    /// the other has reached an earlier one.
    #[test]
    fn all_read_what_all_have_posted() {
        loom::model(|| {
            let board = board();
            let theirs = board.clone();
            let run = |board: &Board, me: usize| {
                for number in BASE + 1..BASE + 4 {
                    write_since(number - 1, board, me, number, Some(number * 10 + me as u64));
                    assert_eq!(read(board, 1 - me, number), number * 10 + 1 - me as u64);
                }
            };
            let other = thread::spawn(move || run(&theirs, 1));
            run(&board, 0);
            other.join().unwrap();
        });
    }
}
