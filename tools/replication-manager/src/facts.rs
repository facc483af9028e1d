//! The read-only view of the job that its machines decide by.

use super::Settings;
use super::ending::Course;
use super::members::Members;
use redrt_types::ViewNumber;
use std::time::Duration;

/// All that machines may know of each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// Time of the input.
    pub now: Duration,
    pub settings: &'a Settings,
    pub members: &'a Members,
    pub course: &'a Course,
}

impl Facts<'_> {
    /// A value that changes whenever a rank may have got or lost a replica in step, and when the job begins or ceases
    /// to run.
    pub fn membership(self) -> (ViewNumber, usize, bool) {
        (self.members.view().number, self.members.joining_count(), self.course.is_under_way())
    }
}
