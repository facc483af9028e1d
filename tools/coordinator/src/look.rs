//! The state of the job, for status pages, metrics and reports, and the wishes of those who run it.

use super::line::{LineWatch, NoLines, RESUME_CODE};
use super::members::Members;
use super::{Check, Coordinator, Input, Redundancy};
use redrt_types::{ReplicaId, View, World};
use redrt_wire::line::Generation;
use std::time::Duration;

impl Coordinator {
    /// The processes of the job, as far as they are known.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The latest view of the job.
    #[must_use]
    pub fn view(&self) -> &View {
        self.members.view()
    }

    /// The shape of the job, with all places of its ranks.
    #[must_use]
    pub fn world(&self) -> &World {
        self.members.world()
    }

    /// Measures how long ranks have had all their replicas.
    #[must_use]
    pub fn redundancy(&self) -> &Redundancy {
        &self.redundancy
    }

    /// Time for which a process has been waiting in MPI, as of its latest answer. Zero if it does not wait.
    #[must_use]
    pub fn waits(&self, replica: ReplicaId, now: Duration) -> Duration {
        self.machines.pace.waiting_time(now, replica)
    }

    /// The state of the job in one word.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        self.course.phase()
    }

    /// The findings. None without [`Coordinator::check_determinism`].
    #[must_use]
    pub fn determinism(&self) -> Option<&Check> {
        self.machines.differences.check()
    }

    /// The checkpoint that is being taken.
    #[must_use]
    pub fn line_under_way(&self) -> Option<Generation> {
        self.machines.line.as_ref()?.under_way()
    }

    /// The processes whose images are written for the current checkpoint. Empty if none exists.
    #[must_use]
    pub fn line_sources(&self) -> &[ReplicaId] {
        self.machines.line.as_ref().map_or(&[], LineWatch::sources)
    }

    /// The newest checkpoint that is kept.
    #[must_use]
    pub fn newest_line(&self) -> Option<Generation> {
        self.machines.line.as_ref()?.newest()
    }

    /// Returns true if processes may be stopped for a checkpoint.
    #[must_use]
    pub fn is_stopping_for_line(&self) -> bool {
        self.machines.line.as_ref().is_some_and(LineWatch::is_stopping)
    }

    /// Returns true if the job is being ended with a checkpoint whose images are cut. Output from then on is printed
    /// again when the job is resumed.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        let is_taken = self.machines.line.as_ref().is_some_and(LineWatch::is_taken_to_stop);
        self.is_suspended() || !self.course.is_ending() && is_taken
    }

    /// Returns true if the job is ending with a checkpoint that is kept.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.course.code() == Some(RESUME_CODE)
    }
}

/// Commands.
impl Coordinator {
    /// Records the host of each process, before the processes are launched there.
    pub fn launched_on(&mut self, placement: Vec<u32>) {
        self.members.launch(placement);
        self.machines.signals.launch();
    }

    /// Records all differences from now on.
    pub fn check_determinism(&mut self) {
        self.machines.differences.begin_check();
    }

    /// Asks for a checkpoint as soon as possible. With `stops` the job ends with it, to be resumed later.
    ///
    /// # Errors
    /// [`NoLines`] if this job cannot take checkpoints.
    pub fn want_line(&mut self, now: Duration, stops: bool) -> Result<(), NoLines> {
        self.machines.line.as_mut().ok_or(NoLines)?.want(stops);
        self.handle(now, Input::Tick);
        Ok(())
    }

    /// Discards the newest checkpoint, to which the job cannot go back any more. Returns its number.
    pub fn forget_line(&mut self) -> Option<Generation> {
        self.machines.line.as_mut()?.forget()
    }
}
