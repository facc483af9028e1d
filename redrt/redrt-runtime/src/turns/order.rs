//! The order in which threads take an interpreter's lock, as a machine: pure, for one process.
//!
//! A thread of an interpreter alternates between *segments*, in which it holds the lock, and *gaps*, in which it has
//! given the lock up by itself to wait or to compute outside. The program chooses the end of a segment, so siblings end
//! it at the same place. Timing chooses the thread that begins the next segment. The leader records this order, with an
//! item for each begin, and the others follow it.
//!
//! A thread that waits very long may ask the holder to give way in the midst of a segment, at a place that differs
//! between replicas. The item of the waiting thread is marked then ([`Turn::is_forced`]). The thread that gave way has
//! an item of its own when it goes on ([`Turn::resumes`]). In a follower it may reach the end of its segment before it
//! is asked to give way: then there is nothing to resume, and that item is skipped.
//!
//! In a gap a thread may wait for a semaphore, which is a lock of the program. Other threads try it in their segments,
//! so it is taken between two segments, and that is an item ([`Turn::is_semaphore`]).

use std::collections::{BTreeMap, BTreeSet};

/// One item: a thread takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// The thread's number, the same in all replicas.
    pub thread: u64,
    /// The thread resumes a segment in which it had given way.
    pub resumes: bool,
    /// The holder had to give way for this thread.
    pub is_forced: bool,
    /// The semaphore for which the thread waited in its gap had not come in time.
    pub has_timed_out: bool,
    /// The thread takes a semaphore in its gap, not the lock.
    pub is_semaphore: bool,
}

impl Turn {
    const RESUMES: u8 = 1;
    const FORCED: u8 = 2;
    const TIMED_OUT: u8 = 4;
    const SEMAPHORE: u8 = 8;

    /// Encodes the item as the bytes of an outcome.
    pub fn to_bytes(self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.resumes, Self::RESUMES)
            | flag(self.is_forced, Self::FORCED)
            | flag(self.has_timed_out, Self::TIMED_OUT)
            | flag(self.is_semaphore, Self::SEMAPHORE);
        [&self.thread.to_le_bytes()[..], &[flags]].concat()
    }

    /// Decodes an item; `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (thread, [flags]) = bytes.split_first_chunk()? else { return None };
        let has = |flag: u8| flags & flag != 0;
        Some(Self {
            thread: u64::from_le_bytes(*thread),
            resumes: has(Self::RESUMES),
            is_forced: has(Self::FORCED),
            has_timed_out: has(Self::TIMED_OUT),
            is_semaphore: has(Self::SEMAPHORE),
        })
    }
}

impl Turn {
    /// Returns true if the item is of the thread and kind of `asked`. The other flags are not compared.
    fn is_for(self, asked: Self) -> bool {
        let what = |turn: Self| (turn.thread, turn.resumes, turn.is_semaphore);
        what(self) == what(asked)
    }
}

/// The known items: a stream of outcomes.
pub trait Log {
    /// Returns the next item, and leaves it in the stream.
    fn front(&mut self) -> Option<Turn>;
    /// Takes the next item.
    fn pass(&mut self);
    /// Returns true if this process decides the next item when none is known.
    fn leads(&mut self) -> bool;
    /// Decides the next item.
    fn decide(&mut self, turn: Turn);
}

/// Answer to a thread that needs the lock or a semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// It has to wait.
    Wait,
    /// The thread may try: the first one to succeed is the next.
    Free,
    /// The thread is the next one, by this item.
    Next(Turn),
}

/// The machine: the state of all threads at the lock.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Threads that have given up the lock by themselves.
    in_gap: BTreeSet<u64>,
    /// Number of segments that each thread has begun before its turn: it was on its way when the order began.
    early: BTreeMap<u64, u32>,
    /// The thread that holds the lock.
    holder: Option<u64>,
    /// True if the last holder has given way in the midst of its segment.
    has_given_way: bool,
    /// Thread of the latest item.
    latest: u64,
    /// Threads that have given way in the leader and do not have the item yet with which they resume.
    interrupted: BTreeSet<u64>,
    ended: BTreeSet<u64>,
    /// A thread that waits for the lock while others get it again and again; only in a process that leads.
    starving: Option<u64>,
}

impl Order {
    /// Updates the state for an item that is about to be passed or decided.
    fn record(&mut self, turn: Turn) {
        if turn.is_semaphore {
            return;
        }
        if turn.is_forced {
            self.interrupted.insert(self.latest);
        }
        if turn.resumes {
            self.interrupted.remove(&turn.thread);
        }
        self.latest = turn.thread;
    }

    fn pass(&mut self, log: &mut impl Log, turn: Turn) {
        self.record(turn);
        log.pass();
    }

    fn decide(&mut self, log: &mut impl Log, turn: Turn) {
        self.record(turn);
        log.decide(turn);
    }

    /// Skips items whose threads will not come any more.
    fn settle(&mut self, log: &mut impl Log) {
        while let Some(turn) = log.front() {
            // A thread that ended here, and goes on in the leader, has found other data by a race, which is not
            // ordered.
            let is_over = self.ended.contains(&turn.thread);
            if is_over || turn.resumes && self.in_gap.contains(&turn.thread) {
                self.pass(log, turn);
                continue;
            }
            let begins = !turn.resumes && !turn.is_semaphore;
            let Some(early) = self.early.get_mut(&turn.thread).filter(|_| begins) else { return };
            *early -= 1;
            if *early == 0 {
                self.early.remove(&turn.thread);
            }
            self.pass(log, turn);
        }
        // These threads had given way in a leader that was lost. Here they have reached the end of their segments.
        // Siblings in which they have given way as well wait for their items.
        if !self.interrupted.is_empty() && log.leads() {
            let ended: Vec<_> = self.interrupted.intersection(&self.in_gap).copied().collect();
            for thread in ended {
                self.decide(log, Turn { thread, resumes: true, ..Turn::default() });
            }
        }
    }

    /// Answers a thread that needs the lock, wants to resume a segment in which it has given way, or needs a semaphore.
    pub fn ask(&mut self, log: &mut impl Log, wanted: Turn) -> Permit {
        self.settle(log);
        // False in the midst of a segment, also of one that was interrupted.
        let is_between = self.holder.is_none() && !self.has_given_way;
        // A thread that begins a segment lets a starving thread go first.
        let begins = !wanted.resumes && !wanted.is_semaphore;
        match log.front() {
            None if begins && self.starving.is_some_and(|starving| starving != wanted.thread) => Permit::Wait,
            None if log.leads() && (is_between || !wanted.is_semaphore) => Permit::Free,
            Some(turn) if turn.is_for(wanted) && (self.holder.is_none() || !wanted.is_semaphore) => Permit::Next(turn),
            // The thread has given way here and not in the leader: it ends its segment before the next one of its own.
            Some(turn) if turn.thread == wanted.thread && wanted.resumes => Permit::Free,
            // The semaphore may be one that this thread has not given back yet.
            Some(turn) if turn.is_semaphore && wanted.resumes => Permit::Free,
            // The thread goes on without the semaphore, which had not come in time, or a signal came.
            Some(turn) if turn.thread == wanted.thread && wanted.is_semaphore && !turn.is_semaphore => {
                Permit::Next(turn)
            }
            _ => Permit::Wait,
        }
    }

    /// Returns true if a thread that was let in may still take the lock. In a process that leads it may. In a copy of
    /// it, which follows, it waits for its turn.
    pub fn may_still(&mut self, log: &mut impl Log, wanted: Turn) -> bool {
        log.front().is_none() && log.leads() || self.ask(log, wanted) != Permit::Wait
    }

    /// Records that a thread has taken the lock or a semaphore. `turn` is its item, if this process leads;
    /// [`Turn::is_forced`] is set here. Returns true if other threads should ask again.
    pub fn taken(&mut self, log: &mut impl Log, turn: Turn) -> bool {
        self.settle(log);
        let is_forced = !turn.is_semaphore && std::mem::take(&mut self.has_given_way);
        let turn = Turn { is_forced, ..turn };
        if !turn.is_semaphore {
            self.in_gap.remove(&turn.thread);
            self.holder = Some(turn.thread);
            self.starving = self.starving.filter(|starving| *starving != turn.thread);
        }
        match log.front() {
            Some(front) if front.is_for(turn) => self.pass(log, front),
            None if log.leads() => self.decide(log, turn),
            // It resumes a segment in which it has given way here only.
            _ if turn.resumes || turn.is_semaphore => return false,
            _ => *self.early.entry(turn.thread).or_default() += 1,
        }
        true
    }

    /// Records that a thread gives the lock up. With `gives_way` it does so in the midst of a segment, at the request
    /// of another thread.
    pub fn dropped(&mut self, thread: u64, gives_way: bool) {
        (self.holder, self.has_given_way) = (None, gives_way);
        if !gives_way {
            self.in_gap.insert(thread);
        }
    }

    /// Records that a thread has ended: other threads do not wait for it.
    pub fn ended(&mut self, thread: u64) {
        self.ended.insert(thread);
        self.starving = self.starving.filter(|starving| *starving != thread);
    }

    /// Makes a thread the next one, in a process that leads, because other threads get the lock again and again. The
    /// holder need not give way for it in the midst of its segment.
    pub fn starves(&mut self, log: &mut impl Log, thread: u64) {
        if log.front().is_none() && log.leads() {
            self.starving.get_or_insert(thread);
        }
    }

    /// Returns true if a thread that waits for the lock may ask the holder to give way now. `is_patient` is true while
    /// the holder's segment is not very long.
    pub fn may_force(&mut self, log: &mut impl Log, thread: u64, is_patient: bool) -> bool {
        match log.front() {
            // In the leader, the thread of the item before this one gave way.
            Some(turn) if turn.thread == thread && !turn.is_semaphore => {
                turn.is_forced && self.holder == Some(self.latest)
            }
            Some(_) => false,
            None => log.leads() && !is_patient,
        }
    }
}

#[cfg(any(test, feature = "simulation"))]
pub mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    struct Items(Vec<Turn>);

    impl Log for Items {
        fn front(&mut self) -> Option<Turn> {
            self.0.first().copied()
        }

        fn pass(&mut self) {
            self.0.remove(0);
        }

        fn leads(&mut self) -> bool {
            false
        }

        fn decide(&mut self, _: Turn) {}
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let turn = |thread| Turn { thread, ..Turn::default() };
        let (mut order, mut items) = (Order::default(), Items(vec![turn(1), turn(1), turn(2)]));
        assert_eq!(order.ask(&mut items, turn(2)), Permit::Wait);
        order.ended(1);
        assert_eq!(order.ask(&mut items, turn(2)), Permit::Next(turn(2)));
    }

    #[test]
    fn turns_survive_their_bytes_and_nothing_else_is_one() {
        for flags in 0..16_u8 {
            let has = |bit: u8| flags & bit != 0;
            let (thread, is_semaphore) = (u64::MAX - 7, has(8));
            let turn = Turn { thread, resumes: has(1), is_forced: has(2), has_timed_out: has(4), is_semaphore };
            assert_eq!(Turn::from_bytes(&turn.to_bytes()), Some(turn));
        }
        assert_eq!(Turn::from_bytes(&[0; 8]), None);
        assert_eq!(Turn::from_bytes(&[0; 10]), None);
    }
}
