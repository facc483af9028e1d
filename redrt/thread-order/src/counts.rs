//! How far a thread has come, and what it may do without asking.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// The counts of one thread. That thread alone makes operations; others read how far it has come.
#[derive(Debug)]
pub struct Counts {
    /// The last operation that it has made.
    made: AtomicU64,
    /// It makes operations up to this one as the leader did, each taking its lock; or one of the two below.
    until: AtomicU64,
}

/// In [`Counts::until`]: this process leads.
const LEADS: u64 = u64::MAX;
/// Threads are not ordered any more.
const UNORDERED: u64 = u64::MAX - 1;

/// What a thread may do for its next operation without the order in hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortcut {
    /// Nothing: it asks ([`crate::Order::next`]).
    Ask,
    /// It makes the operation as it comes. If it takes a lock that nobody else had last it counts it ([`Counts::go`]),
    /// otherwise it says what it was ([`crate::Order::record`]).
    Leads,
    /// It takes the lock and counts that.
    Follows,
    /// Threads are not ordered.
    Unordered,
}

impl Counts {
    /// That of a thread of a process that leads, or follows.
    pub(crate) fn new(leads: bool) -> Self {
        Self { made: AtomicU64::new(0), until: AtomicU64::new(if leads { LEADS } else { 0 }) }
    }

    /// What its thread may do next.
    #[inline]
    #[must_use]
    pub fn shortcut(&self) -> Shortcut {
        match self.until.load(SeqCst) {
            LEADS => Shortcut::Leads,
            UNORDERED => Shortcut::Unordered,
            until if self.made.load(SeqCst) < until => Shortcut::Follows,
            _ => Shortcut::Ask,
        }
    }

    /// Its thread has made its next operation, which has this number.
    #[inline]
    pub fn go(&self) -> u64 {
        self.made.fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(SeqCst)
    }

    pub(crate) fn allow(&self, until: u64) {
        self.until.store(until, SeqCst);
    }

    pub(crate) fn lead(&self) {
        self.allow(LEADS);
    }

    pub(crate) fn end(&self) {
        self.allow(UNORDERED);
    }
}

impl Clone for Counts {
    fn clone(&self) -> Self {
        Self { made: AtomicU64::new(self.made()), until: AtomicU64::new(self.until.load(SeqCst)) }
    }
}

/// What the threads of a process leave for each other.
#[derive(Debug, Default)]
pub struct Notes {
    /// Threads have made operations that no batch tells of.
    pub is_untold: AtomicBool,
    /// How many threads wait for operations of others.
    pub waiting: AtomicU32,
    /// Followers have yet to come to many operations: what they are told meanwhile takes memory there.
    pub is_far_ahead: AtomicBool,
}

impl Notes {
    /// Nothing was made, and nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { is_untold: AtomicBool::new(false), waiting: AtomicU32::new(0), is_far_ahead: AtomicBool::new(false) }
    }

    /// An operation was made: whether somebody is to be told, of the first one since the last batch, or because it is
    /// waited for.
    #[inline]
    #[must_use]
    pub fn concerns_others(&self, leads: bool) -> bool {
        if leads { !self.is_untold.load(SeqCst) } else { self.waiting.load(SeqCst) > 0 }
    }
}
