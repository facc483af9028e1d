//! State of a host, for display.

use crate::host::{Admission, Facts, Spare, Unseen};
use crate::lease::JobId;
use std::time::Duration;

/// A host of the pool, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostStatus {
    /// Configuration given when it was added.
    pub spare: Spare,
    /// Decision about leasing it.
    pub admission: Admission,
    /// Job that has leases on it.
    pub job: Option<JobId>,
    /// Number of leases of that job.
    pub leased_count: u32,
    /// Failed clones since the last successful one.
    pub strikes: u32,
    /// End of its rest after a failure, if it is resting.
    pub backs_off_until: Option<Duration>,
    /// Reason why it could not be looked at, if so.
    pub unreachable: Option<Unseen>,
    /// Facts found by the last look.
    pub facts: Option<Facts>,
}

impl HostStatus {
    /// State in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (&self.admission, self.leased_count > 0) {
            (Admission::Bad { .. }, _) => "bad",
            (Admission::Draining, true) => "draining",
            (Admission::Draining, false) => "drained",
            (Admission::Open, true) => "leased",
            (Admission::Open, false) if self.unreachable.is_some() => "unreachable",
            (Admission::Open, false) if self.backs_off_until.is_some() => "resting",
            (Admission::Open, false) => "idle",
        }
    }
}
