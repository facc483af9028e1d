//! The hold on all processes, while files and terminals take nothing or output is withheld that may be printed again.
//!
//! Enters: whether the queue of output is full, which depends on what threads have written. Leaves: an order to all
//! daemons when that changes anything.

use super::mutation::{self, Mutation};
use super::{Output, Root};
use redrt_wire::daemon::ToDaemon;
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
}

impl Root {
    /// Has all processes held, or let go, if that is due. Returns false if it is not.
    pub(super) fn look_at_holding(&mut self) -> bool {
        let held = self.holding.is_full || self.printing.withholds();
        if !self.is_launched() || std::mem::replace(&mut self.holding.are_held, held) == held {
            return false;
        }
        self.outputs.push_back(Output::Send(ToDaemon::HoldOutput { replica: None, held }));
        true
    }
}
