//! Progress of a thread, and the operations it may make without asking.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

/// The counts of one thread. Only that thread makes its operations; others read its progress.
#[derive(Debug)]
pub struct Counts {
    /// Number of its last operation.
    made: AtomicU64,
    /// Up to this operation the thread repeats the leader's, each of which takes its lock; or one of the two marks
    /// below.
    until: AtomicU64,
}

/// Mark in [`Counts::until`]: this process leads.
const LEADS: u64 = u64::MAX;
/// Mark in [`Counts::until`]: threads are no longer ordered.
const UNORDERED: u64 = u64::MAX - 1;

/// Treatment of a thread's next operation without a look at the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortcut {
    /// None: the thread asks ([`crate::Order::next`]).
    Ask,
    /// The thread makes the operation freely. If it takes a lock that no other thread had last, it counts the operation
    /// ([`Counts::go`]); otherwise it records the operation ([`crate::Order::record`]).
    Leads,
    /// The thread takes the lock, and counts the operation.
    Follows,
    /// Threads are not ordered.
    Unordered,
}

impl Counts {
    /// Counts of a thread of a process that leads, or follows.
    pub(crate) fn new(leads: bool) -> Self {
        Self { made: AtomicU64::new(0), until: AtomicU64::new(if leads { LEADS } else { 0 }) }
    }

    /// Treatment of the thread's next operation.
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

    /// Counts an operation of its thread, and returns the operation's number.
    #[inline]
    pub fn go(&self) -> u64 {
        self.made.fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(SeqCst)
    }

    /// Sets the number of operations made, of a thread that has made none in order.
    pub(crate) fn set_made(&self, made: u64) {
        self.made.store(made, SeqCst);
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

/// Flags that the threads of a process leave for each other.
#[derive(Debug, Default)]
pub struct Notes {
    /// True if threads have made operations since the last batch.
    pub is_untold: AtomicBool,
    /// Number of threads that wait for operations of others.
    pub waiting: AtomicU32,
    /// True if followers have yet to make many operations: further batches take memory there.
    pub is_far_ahead: AtomicBool,
}

impl Notes {
    /// Starts with no operation, and no waiting thread.
    #[must_use]
    pub const fn new() -> Self {
        Self { is_untold: AtomicBool::new(false), waiting: AtomicU32::new(0), is_far_ahead: AtomicBool::new(false) }
    }

    /// Returns true if an operation just made concerns others: in a leader the first one since the last batch, in a
    /// follower one that threads wait for.
    #[inline]
    #[must_use]
    pub fn concerns_others(&self, leads: bool) -> bool {
        if leads { !self.is_untold.load(SeqCst) } else { self.waiting.load(SeqCst) > 0 }
    }
}
