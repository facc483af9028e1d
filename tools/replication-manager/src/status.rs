//! The state of the job, for status pages, metrics and reports, and its users' requests.

use super::checkpoint::{CheckpointWatch, NoCheckpoints, RESUME_CODE};
use super::members::Members;
use super::recovery::{ChangeRequest, ChangeRequestError, Copies, Recovery};
use super::{Check, Course, Input, Machines, NotHeld, Redundancy, ReplicationManager};
use redrt_types::{ReplicaId, View, VirtualRank, World};
use redrt_wire::checkpoint::Generation;
use redrt_wire::clone::{CloneId, Newcomer};
use std::time::Duration;

impl ReplicationManager {
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

    /// How far the job has come.
    #[must_use]
    pub fn course(&self) -> &Course {
        &self.course
    }

    /// The findings. None without [`ReplicationManager::check_determinism`].
    #[must_use]
    pub fn determinism(&self) -> Option<&Check> {
        self.machines.differences.check()
    }

    /// The checkpoint that is being taken.
    #[must_use]
    pub fn checkpoint_under_way(&self) -> Option<Generation> {
        self.machines.checkpoint.as_ref()?.under_way()
    }

    /// The checkpoints of this life. None in a job that takes none.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&CheckpointWatch> {
        self.machines.checkpoint.as_ref()
    }

    /// The replicas that are to leave, each with the number of its new host. None if any host will do.
    pub fn leaving(&self) -> impl Iterator<Item = (ReplicaId, Option<u32>)> + '_ {
        self.machines.recovery.iter().flat_map(Copies::leaving)
    }

    /// The processes whose images are written for the current checkpoint. Empty if none exists.
    #[must_use]
    pub fn checkpoint_sources(&self) -> &[ReplicaId] {
        self.machines.checkpoint.as_ref().map_or(&[], CheckpointWatch::sources)
    }

    /// Returns true if replicas of this rank may be stopped, or are about to be, for a checkpoint or a copy.
    #[must_use]
    pub fn is_stopping(&self, rank: VirtualRank) -> bool {
        let is_cutting = |copies: &Copies| copies.clones().is_cutting_in(rank);
        let Machines { checkpoint, recovery, .. } = &self.machines;
        recovery.as_ref().is_some_and(is_cutting) || checkpoint.as_ref().is_some_and(CheckpointWatch::is_stopping)
    }

    /// The clones under way, without copies that stand ready.
    pub fn attempts(&self) -> impl Iterator<Item = (CloneId, Newcomer)> + '_ {
        self.machines.recovery.iter().flat_map(|copies| copies.clones().under_way())
    }

    /// The copies that stand ready, each with its source.
    pub fn held(&self) -> impl Iterator<Item = (ReplicaId, ReplicaId)> + '_ {
        let held = self.machines.recovery.iter().flat_map(|copies| copies.clones().held());
        held.map(|newcomer| (newcomer.replica, newcomer.source))
    }

    /// Returns true if the job is being ended with a checkpoint whose images are cut. Output from then on is printed
    /// again when the job is resumed.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        let is_taken = self.machines.checkpoint.as_ref().is_some_and(CheckpointWatch::is_taken_to_stop);
        self.is_suspended() || !self.course.is_ending() && is_taken
    }

    /// Returns true if the job is ending with a checkpoint that is kept.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.course.code() == Some(RESUME_CODE)
    }
}

/// Commands.
impl ReplicationManager {
    /// Records the host of each process, before the processes are launched there.
    pub fn launched_on(&mut self, placement: Vec<u32>) {
        self.members.launch(placement);
        self.machines.signals.launch();
    }

    /// Replaces lost replicas by copies from now on.
    pub fn recover_with(&mut self, recovery: Recovery) {
        self.members.launch(recovery.host_of.clone());
        self.members.ranks().zip(&recovery.degrees).for_each(|(rank, degree)| self.members.want(rank, *degree));
        // A job that goes on from a checkpoint has made cuts before.
        let cut_count = self.view().latest_cut().0;
        self.machines.recovery = Some(Copies::new(recovery, cut_count));
    }

    /// Allows copies on this host: it is new, or it was closed before.
    pub fn open_host(&mut self, number: u32, name: String) {
        self.machines.recovery.iter_mut().for_each(|copies| copies.hosts_mut().open(number, name.clone()));
    }

    /// Marks a host as gone. It has no replicas any more, and gets no more copies.
    pub fn dismiss_host(&mut self, number: u32) {
        self.machines.recovery.iter_mut().for_each(|copies| copies.hosts_mut().dismiss(number));
    }

    /// Changes the place or number of replicas. `room` is the number of copies that the hosts concerned can still take,
    /// if known.
    ///
    /// # Errors
    /// The reason why the request cannot be fulfilled. Nothing has changed then.
    pub fn request(
        &mut self,
        now: Duration,
        request: ChangeRequest,
        room: Option<u32>,
    ) -> Result<(), ChangeRequestError> {
        let Some(copies) = &self.machines.recovery else { return Err(ChangeRequestError::NotCloneable) };
        if !self.course.is_under_way() {
            return Err(ChangeRequestError::NotRunning { phase: self.course.phase() });
        }
        copies.check(self.facts(now), &request, room)?;
        if let ChangeRequest::Degree { degree, ranks } = &request {
            ranks.iter().for_each(|rank| self.members.want(*rank, *degree));
        }
        self.recover(now, |copies, facts, out| copies.grant(facts, request, out));
        self.pass_recovery_time(now);
        self.observe_redundancy(now);
        Ok(())
    }

    /// Tells the replication manager that standard input has arrived. Copies of rank 0 that were cut before lack it,
    /// and are given up.
    pub fn input_passed(&mut self, now: Duration) {
        self.latest = now;
        let rank = VirtualRank(0);
        if self.held().any(|(replica, _)| replica.rank == rank) {
            self.recover(now, |copies, facts, out| copies.drop_held(facts, rank, NotHeld::InputCame, out));
        }
    }

    /// Records all differences from now on.
    pub fn check_determinism(&mut self) {
        self.machines.differences.begin_check();
    }

    /// Asks for a checkpoint as soon as possible. With `stops` the job ends with it, to be resumed later.
    ///
    /// # Errors
    /// [`NoCheckpoints`] if this job cannot take checkpoints.
    pub fn want_checkpoint(&mut self, now: Duration, stops: bool) -> Result<(), NoCheckpoints> {
        self.machines.checkpoint.as_mut().ok_or(NoCheckpoints)?.want(stops);
        self.handle(now, Input::Tick);
        Ok(())
    }

    /// Discards the newest checkpoint, to which the job cannot go back any more. Returns its number.
    pub fn forget_checkpoint(&mut self) -> Option<Generation> {
        self.machines.checkpoint.as_mut()?.forget()
    }
}
