//! The read-only view of the job that its machines decide by.

use super::ending::Course;
use super::members::Members;
use super::messages::Settings;
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
