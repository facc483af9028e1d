//! Locks in memory that processes share: one for readers and writers in order of arrival, and one for short moments.
//!
//! ```text
//!   next     the ticket that is drawn next
//!   readers  a reader with this ticket may enter: all before it are readers that have entered, or have left
//!   writers  a writer with this ticket may enter: all before it have left
//! ```
//! A thread draws a ticket, and waits for its turn. A reader that enters admits the next ticket if that is a reader's,
//! by counting `readers` on. A thread that leaves counts `writers` on. All numbers wrap around. Zeros are a free lock,
//! so memory fresh from the kernel is one.
//!
//! Waiting and waking are left to the caller.

use crate::primitive::{AtomicU32, Ordering};

/// A lock for readers and writers; nobody overtakes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Tickets {
    next: AtomicU32,
    readers: AtomicU32,
    writers: AtomicU32,
}

/// A place in the order of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    number: u32,
    is_writer: bool,
}

impl Tickets {
    /// Takes the last place in the order. The ticket must be used: later tickets wait for it.
    #[inline]
    pub fn draw(&self, is_writer: bool) -> Ticket {
        Ticket { number: self.next.fetch_add(1, Ordering::AcqRel), is_writer }
    }

    /// Returns true if it is this ticket's turn; then writes of earlier holders are visible. It stays true until the
    /// ticket enters.
    #[inline]
    pub fn has_come(&self, ticket: Ticket) -> bool {
        let turn = if ticket.is_writer { &self.writers } else { &self.readers };
        turn.load(Ordering::Acquire) == ticket.number
    }

    /// Enters, once the turn has come. Returns true if another thread may have been waiting for that.
    #[inline]
    pub fn enter(&self, ticket: Ticket) -> bool {
        if ticket.is_writer {
            return false;
        }
        let entered = self.readers.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.drawn() != entered
    }

    /// Leaves. Returns true if another thread may have been waiting for that.
    #[inline]
    pub fn leave(&self, is_writer: bool) -> bool {
        if is_writer {
            // Nobody else leaves while a writer is inside. The next reader may leave as soon as it sees the second
            // store.
            let left = self.writers.load(Ordering::Relaxed).wrapping_add(1);
            self.writers.store(left, Ordering::Release);
            self.readers.fetch_add(1, Ordering::AcqRel);
            return self.drawn() != left;
        }
        let left = self.writers.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.drawn() != left
    }

    /// Number of tickets drawn. Read by a write, which is ordered with each draw: a thread that draws after it sees all
    /// earlier writes.
    #[inline]
    fn drawn(&self) -> u32 {
        self.next.fetch_add(0, Ordering::AcqRel)
    }
}

/// A lock that is held for short moments. The first thread that finds it free gets it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Latch(AtomicU32);

impl Latch {
    /// Takes the lock if it is free; then writes of earlier holders are visible. Returns false otherwise.
    #[inline]
    pub fn try_take(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
            && self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock.
    #[inline]
    pub fn give_back(&self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(redrt_loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_enter_together_and_nobody_overtakes() {
        let lock = Tickets::default();
        // The counters are as after many laps.
        for counter in [&lock.next, &lock.readers, &lock.writers] {
            counter.store(u32::MAX, Ordering::Relaxed);
        }
        let [first, second] = [lock.draw(false), lock.draw(false)];
        assert!(lock.has_come(first) && !lock.has_come(second));
        assert!(lock.enter(first), "the second waits for it");
        assert!(lock.has_come(second) && !lock.enter(second));
        let [writer, third] = [lock.draw(true), lock.draw(false)];
        assert!(!lock.has_come(writer) && !lock.has_come(third), "who waits longer comes first");
        assert!(lock.leave(false) && !lock.has_come(writer));
        assert!(lock.leave(false) && lock.has_come(writer) && !lock.has_come(third));
        lock.enter(writer);
        assert!(lock.leave(true) && lock.has_come(third));
        assert!(!lock.enter(third) && !lock.leave(false), "nobody is left");
    }

    #[test]
    fn a_latch_is_taken_once() {
        let latch = Latch::default();
        assert!(latch.try_take() && !latch.try_take());
        latch.give_back();
        assert!(latch.try_take());
    }
}

#[cfg(all(test, redrt_loom))]
mod tests {
    use super::*;
    use crate::primitive::fence;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    #[derive(Default)]
    struct Guarded {
        lock: Tickets,
        latch: Latch,
        value: UnsafeCell<u32>,
    }

    // SAFETY: - loom reports it if two threads reach the value at once.
    unsafe impl Sync for Guarded {}
    // SAFETY: - a value and two words: nothing of it belongs to one thread.
    unsafe impl Send for Guarded {}

    fn acquire(lock: &Tickets, is_writer: bool) {
        let ticket = lock.draw(is_writer);
        while !lock.has_come(ticket) {
            thread::yield_now();
        }
        lock.enter(ticket);
    }

    fn add_one(guarded: &Guarded) {
        // SAFETY: - loom reports it if another thread reaches the value meanwhile.
        guarded.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn read(guarded: &Guarded) -> u32 {
        // SAFETY: - loom reports it if another thread writes the value meanwhile.
        guarded.value.with(|value| unsafe { *value })
    }

    type Writing = fn(&Guarded);

    fn writers_and_a_reader(write: Writing) {
        loom::model(move || {
            let guarded = Arc::new(Guarded::default());
            let theirs = guarded.clone();
            let writer = thread::spawn(move || write(&theirs));
            acquire(&guarded.lock, false);
            let seen = read(&guarded);
            guarded.lock.leave(false);
            assert!(seen <= 1);
            write(&guarded);
            writer.join().unwrap();
            acquire(&guarded.lock, false);
            assert_eq!(read(&guarded), 2);
        });
    }

    #[test]
    fn a_writer_is_alone_and_is_seen() {
        writers_and_a_reader(|guarded| {
            acquire(&guarded.lock, true);
            add_one(guarded);
            guarded.lock.leave(true);
        });
    }

    #[test]
    #[should_panic]
    fn a_writer_that_enters_as_a_reader_is_found_out() {
        writers_and_a_reader(|guarded| {
            acquire(&guarded.lock, false);
            add_one(guarded);
            guarded.lock.leave(false);
        });
    }

    #[test]
    fn readers_that_leave_are_seen_by_the_writer() {
        loom::model(|| {
            let guarded = Arc::new(Guarded::default());
            let theirs = guarded.clone();
            let reader = thread::spawn(move || {
                acquire(&theirs.lock, false);
                read(&theirs);
                theirs.lock.leave(false);
            });
            acquire(&guarded.lock, false);
            read(&guarded);
            guarded.lock.leave(false);
            acquire(&guarded.lock, true);
            add_one(&guarded);
            guarded.lock.leave(true);
            reader.join().unwrap();
        });
    }

    /// A thread that falls asleep before its turn is woken by the one that leaves: one of the two sees the other.
    fn nobody_sleeps(leave: fn(&Tickets) -> bool) {
        loom::model(move || {
            let state = Arc::new((Tickets::default(), AtomicU32::new(0)));
            let theirs = state.clone();
            acquire(&state.0, true);
            let waiter = thread::spawn(move || {
                let (lock, sleep) = &*theirs;
                let ticket = lock.draw(true);
                sleep.store(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if lock.has_come(ticket) {
                    sleep.store(0, Ordering::SeqCst);
                    return true;
                }
                false
            });
            let (lock, sleep) = &*state;
            let mut is_told = false;
            if leave(lock) {
                fence(Ordering::SeqCst);
                is_told = sleep.load(Ordering::SeqCst) == 1;
            }
            assert!(waiter.join().unwrap() || is_told, "asleep, and nobody wakes it");
        });
    }

    #[test]
    fn nobody_sleeps_whose_turn_has_come() {
        nobody_sleeps(|lock| lock.leave(true));
    }

    #[test]
    #[should_panic(expected = "nobody wakes it")]
    fn who_looks_before_it_leaves_wakes_nobody() {
        nobody_sleeps(|lock| {
            let is_awaited = lock.drawn() != lock.writers.load(Ordering::Relaxed).wrapping_add(1);
            lock.leave(true);
            is_awaited
        });
    }

    #[test]
    fn a_latch_guards_and_shows_what_it_guards() {
        loom::model(|| {
            let guarded = Arc::new(Guarded::default());
            let theirs = guarded.clone();
            let run = |guarded: &Guarded| {
                while !guarded.latch.try_take() {
                    thread::yield_now();
                }
                add_one(guarded);
                guarded.latch.give_back();
            };
            let other = thread::spawn(move || run(&theirs));
            run(&guarded);
            other.join().unwrap();
            assert_eq!(read(&guarded), 2);
        });
    }
}
