//! The order in which threads take an interpreter's lock, as a machine: pure, for one process.
//!
//! A thread of an interpreter alternates between *segments*, in which it holds the lock, and *gaps*, in which it has
//! given it up by itself to wait or to compute outside. Where a segment ends its program has chosen, so siblings end it
//! at the same place. Who begins the next one is chosen by time: that is the order which the leader records and the
//! others follow, an item for each begin.
//!
//! A thread that waits very long may ask the holder to give way in the midst of a segment. Where that is nobody has
//! chosen, and in a sibling it is elsewhere. The item of the one that waited says so ([`Turn::is_forced`]), and the
//! one that gave way has an item of its own when it goes on ([`Turn::resumes`]). In a follower it may come to the end
//! of its segment before it is asked to give way: then there is nothing to resume, and that item is passed over.
//!
//! In a gap a thread may wait for a semaphore, which is a lock of the program's. Others try it in their segments, so it
//! is taken between two segments, and that is an item ([`Turn::is_semaphore`]).

use std::collections::{BTreeMap, BTreeSet};

/// One item: a thread takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// The thread's number, the same in all replicas.
    pub thread: u64,
    /// It goes on with a segment in the midst of which it had given way.
    pub resumes: bool,
    /// The holder had to give way for it.
    pub is_forced: bool,
    /// The semaphore for which it waited in its gap had not come in time.
    pub has_timed_out: bool,
    /// It takes a semaphore in its gap, and not the lock.
    pub is_semaphore: bool,
}

impl Turn {
    const RESUMES: u8 = 1;
    const FORCED: u8 = 2;
    const TIMED_OUT: u8 = 4;
    const SEMAPHORE: u8 = 8;

    /// As an outcome says it.
    pub fn to_bytes(self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.resumes, Self::RESUMES)
            | flag(self.is_forced, Self::FORCED)
            | flag(self.has_timed_out, Self::TIMED_OUT)
            | flag(self.is_semaphore, Self::SEMAPHORE);
        [&self.thread.to_le_bytes()[..], &[flags]].concat()
    }

    /// `None` for what is none.
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
    /// Whether it is what a thread asks for, whatever else it says.
    fn is_for(self, asked: Self) -> bool {
        let what = |turn: Self| (turn.thread, turn.resumes, turn.is_semaphore);
        what(self) == what(asked)
    }
}

/// The items as far as they are known: a stream of outcomes.
pub trait Log {
    /// The next one, which stays the next.
    fn front(&mut self) -> Option<Turn>;
    /// Takes it.
    fn pass(&mut self);
    /// Whether this process decides what the next one is, when none is known.
    fn leads(&mut self) -> bool;
    /// Decides it.
    fn decide(&mut self, turn: Turn);
}

/// Whether a thread may go for the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// Not yet.
    Wait,
    /// It may: whoever gets it first is the next.
    Free,
    /// It is the next one.
    Next(Turn),
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// Threads that have given up the lock by themselves.
    in_gap: BTreeSet<u64>,
    /// Segments that threads have begun before their turn: they were on their way when the order began.
    early: BTreeMap<u64, u32>,
    /// Who has the lock.
    holder: Option<u64>,
    /// Who had the lock last has given way.
    has_given_way: bool,
    /// Of which thread the latest item was.
    latest: u64,
    /// Threads that have given way in the leader and have no item that says that they have gone on.
    interrupted: BTreeSet<u64>,
    /// Threads that have ended.
    ended: BTreeSet<u64>,
    /// A thread that waits for the lock while others have it again and again; only where this process leads.
    starving: Option<u64>,
}

impl Order {
    /// The next item is this.
    fn note(&mut self, turn: Turn) {
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
        self.note(turn);
        log.pass();
    }

    fn decide(&mut self, log: &mut impl Log, turn: Turn) {
        self.note(turn);
        log.decide(turn);
    }

    /// Passes over what needs no thread any more.
    fn settle(&mut self, log: &mut impl Log) {
        while let Some(turn) = log.front() {
            // One that has ended here and goes on in the leader has seen something else, which nobody has ordered.
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
        // A leader was lost in which these had given way. Here they came to the end of their segments before; siblings
        // in which they have given way as well wait for their items.
        if !self.interrupted.is_empty() && log.leads() {
            let ended: Vec<_> = self.interrupted.intersection(&self.in_gap).copied().collect();
            for thread in ended {
                self.decide(log, Turn { thread, resumes: true, ..Turn::default() });
            }
        }
    }

    /// A thread wants this: the lock, to go on after it has given way in the midst of a segment, or a semaphore.
    pub fn ask(&mut self, log: &mut impl Log, wanted: Turn) -> Permit {
        self.settle(log);
        // Not in the midst of a segment, nor of one that was interrupted.
        let is_between = self.holder.is_none() && !self.has_given_way;
        // Who begins a segment lets one that starves go first.
        let begins = !wanted.resumes && !wanted.is_semaphore;
        match log.front() {
            None if begins && self.starving.is_some_and(|starving| starving != wanted.thread) => Permit::Wait,
            None if log.leads() && (is_between || !wanted.is_semaphore) => Permit::Free,
            Some(turn) if turn.is_for(wanted) && (self.holder.is_none() || !wanted.is_semaphore) => Permit::Next(turn),
            // It has given way here and not in the leader: it ends its segment before the next one of its own.
            Some(turn) if turn.thread == wanted.thread && wanted.resumes => Permit::Free,
            // What is waited for there may be what it has yet to give back.
            Some(turn) if turn.is_semaphore && wanted.resumes => Permit::Free,
            // It goes on without it: it was not there in time, or a signal came.
            Some(turn) if turn.thread == wanted.thread && wanted.is_semaphore && !turn.is_semaphore => {
                Permit::Next(turn)
            }
            _ => Permit::Wait,
        }
    }

    /// Whether a thread that was let in may still take the lock: where this process leads. In a copy of it, which
    /// follows, it waits for its turn.
    pub fn may_still(&mut self, log: &mut impl Log, wanted: Turn) -> bool {
        log.front().is_none() && log.leads() || self.ask(log, wanted) != Permit::Wait
    }

    /// A thread has taken it. `turn`: what its item says, if this process leads; whether it was forced is known here.
    /// Whether others may look again.
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
            // It goes on with a segment in which it has given way here only.
            _ if turn.resumes || turn.is_semaphore => return false,
            _ => *self.early.entry(turn.thread).or_default() += 1,
        }
        true
    }

    /// A thread gives the lock up. `gives_way`: in the midst of a segment, because another asked it to.
    pub fn dropped(&mut self, thread: u64, gives_way: bool) {
        (self.holder, self.has_given_way) = (None, gives_way);
        if !gives_way {
            self.in_gap.insert(thread);
        }
    }

    /// A thread has ended: others do not wait for it.
    pub fn ended(&mut self, thread: u64) {
        self.ended.insert(thread);
        self.starving = self.starving.filter(|starving| *starving != thread);
    }

    /// A thread waits for the lock, which others have had again and again meanwhile: it is the next one, where this
    /// process leads. No holder has to give way for that in the midst of its segment.
    pub fn starves(&mut self, log: &mut impl Log, thread: u64) {
        if log.front().is_none() && log.leads() {
            self.starving.get_or_insert(thread);
        }
    }

    /// Whether a thread that waits for the lock may ask the holder to give way now; `is_patient`: the holder's segment
    /// is not very long yet.
    pub fn may_force(&mut self, log: &mut impl Log, thread: u64, is_patient: bool) -> bool {
        match log.front() {
            // In the leader it was the holder of the item before that gave way.
            Some(turn) if turn.thread == thread && !turn.is_semaphore => {
                turn.is_forced && self.holder == Some(self.latest)
            }
            Some(_) => false,
            None => log.leads() && !is_patient,
        }
    }
}

#[cfg(test)]
mod simulation;

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
