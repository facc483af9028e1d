//! A host of the pool, as it is shown.

use crate::host::{Admission, Facts, Spare, Unseen};
use crate::lease::JobId;
use std::time::Duration;

/// A host as the pool sees it, to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostStatus {
    /// What was said when it was added.
    pub spare: Spare,
    /// Whether it may be leased.
    pub admission: Admission,
    /// The job that has it.
    pub job: Option<JobId>,
    /// How many of its places that job has.
    pub leased_count: u32,
    /// Failures that were not made up for.
    pub strikes: u32,
    /// When it may be tried again after a failure, if that is to come.
    pub backs_off_until: Option<Duration>,
    /// Why it cannot be reached, if so.
    pub unreachable: Option<Unseen>,
    /// What was found there, when it was last looked at.
    pub facts: Option<Facts>,
}

impl HostStatus {
    /// Its state in one word.
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
