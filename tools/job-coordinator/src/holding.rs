//! The hold on all processes, while files and terminals take nothing or output is withheld that may be printed again.
//!
//! Enters: whether the queue of output is full, which depends on what threads have written. Leaves: an order to all
//! daemons when that changes anything.

use super::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};

/// The hold on all processes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Holding {
    /// True from when too much output waits until little does.
    is_full: bool,
    /// True if daemons were ordered to hold their processes.
    are_held: bool,
}

impl Holding {
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Daemons of a new life start without a hold on any process.
    pub fn begin_life(&mut self) {
        self.are_held &= mutation::is(Mutation::HoldOutlivesLife);
    }
    /// True or false if processes are to be held or let go now. None if that changes nothing.
    pub fn change(&mut self, withholds: bool) -> Option<bool> {
        let held = self.is_full || withholds;
        (std::mem::replace(&mut self.are_held, held) != held).then_some(held)
    }
}
