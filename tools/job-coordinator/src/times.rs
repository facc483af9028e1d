//! Times of a return to a checkpoint, from the loss until all processes run again.
//!
//! ```text
//!   a loss ─▶ known ─▶ the rest has ended ─▶ daemons load processes ─▶ all have met
//!      detected     ended             moved                  loaded
//! ```
//! Enters: how late a loss was known, which depends on clocks of hosts; the steps of the return, with their times.
//! Leaves: the times, when processes run again. A return that begins anew, without a host, is the same one: the time of
//! its first attempt counts.

use super::mutation::{self, Mutation};
use redrt_wire::checkpoint::Generation;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Times of a return that is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReturnTimes {
    /// Number of the checkpoint.
    pub generation: Generation,
    /// Time from the loss until it was known.
    pub detected: Duration,
    /// Time until the remaining processes had ended.
    pub ended: Duration,
    /// Time until daemons were ordered to load processes.
    pub moved: Duration,
    /// Time until all processes had met.
    pub loaded: Duration,
    /// Time of the job that is computed again.
    pub again: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
struct Returning {
    detected: Duration,
    /// The end of the life became known.
    told_at: Duration,
    /// The remaining processes had ended.
    went_at: Duration,
    /// Daemons were ordered to load processes.
    loading_at: Duration,
}

/// The times of returns: see the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Times {
    /// Delay between the latest loss and its knowledge.
    late_by: Duration,
    /// Time at which this life was known to end.
    ending_since: Option<Duration>,
    under_way: Option<Returning>,
}

impl Times {
    /// The next loss was known so late.
    pub fn found_late(&mut self, by: Duration) {
        self.late_by = by;
    }

    /// The life is about to end.
    pub fn ending(&mut self, now: Duration) {
        self.ending_since = Some(now);
    }

    /// A return begins, perhaps anew.
    pub fn went_back(&mut self, now: Duration) {
        let told_at = self.ending_since.take().unwrap_or(now);
        let detected = std::mem::take(&mut self.late_by);
        let new = Returning { detected, told_at, went_at: now, loading_at: now };
        self.under_way.get_or_insert(new).loading_at = now;
    }

    /// Daemons were ordered to load processes.
    pub fn loading(&mut self, now: Duration) {
        if let Some(returning) = self.under_way.as_mut().filter(|_| !mutation::is(Mutation::LoadingNotRecorded)) {
            returning.loading_at = now;
        }
    }

    /// All processes have met. Returns the times of the return that is complete, if one was under way. `job_time`: that
    /// of the checkpoint.
    pub fn met(&mut self, now: Duration, generation: Generation, job_time: Duration) -> Option<ReturnTimes> {
        let Returning { detected, told_at, went_at, loading_at } = self.under_way.take()?;
        Some(ReturnTimes {
            generation,
            detected,
            ended: went_at - told_at,
            moved: loading_at - went_at,
            loaded: now - loading_at,
            again: went_at.saturating_sub(job_time),
        })
    }
}
