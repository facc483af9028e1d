//! What others may know of the job.

use super::{Coordinator, Phase, Redundancy};
use redrt_types::{Incarnation, ReplicaId, View, VirtualRank, World};
use redrt_wire::event::{Coverage, Statistics};
use redrt_wire::exit::Exit;
use redrt_wire::profile::ProcessProfile;
use std::time::Duration;

impl Coordinator {
    /// The membership now.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Shape of the job.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.settings.world
    }

    /// By rank: how many replicas it started with.
    #[must_use]
    pub fn first_degrees(&self) -> Vec<u16> {
        self.settings.view.degrees()
    }

    /// Replicas of a rank that live, and can go on alone.
    #[must_use]
    pub fn in_step_count(&self, rank: VirtualRank) -> usize {
        self.view.live(rank).filter(|replica| self.is_in_step(*replica)).count()
    }

    /// How long ranks have had all their replicas.
    #[must_use]
    pub fn redundancy(&self) -> &Redundancy {
        &self.redundancy
    }

    /// Which life of its place a process is.
    #[must_use]
    pub fn incarnation(&self, replica: ReplicaId) -> Incarnation {
        self.processes[self.world().process(replica).0 as usize].incarnation
    }

    /// The id of a process on its host, once it runs.
    #[must_use]
    pub fn pid(&self, replica: ReplicaId) -> Option<i32> {
        self.processes[self.world().process(replica).0 as usize].pid
    }

    /// For how long a process has been waiting in MPI, as far as it has said.
    #[must_use]
    pub fn waits(&self, replica: ReplicaId, now: Duration) -> Duration {
        self.pace.waiting_time(now, replica)
    }

    /// What each process counted, as far as it came to tell.
    pub fn latest(&self, replica: ReplicaId) -> Statistics {
        self.processes[self.world().process(replica).0 as usize].latest
    }

    /// Whether a process has called `MPI_Init`.
    #[must_use]
    pub fn has_begun(&self, replica: ReplicaId) -> bool {
        self.processes[self.world().process(replica).0 as usize].phase != Phase::Started
    }

    /// The counters of all processes that have told them at the end.
    pub fn statistics(&self) -> impl Iterator<Item = (ReplicaId, Option<Statistics>)> + '_ {
        let present = self.world().replicas().zip(&self.processes).filter(|(_, process)| !process.is_vacant);
        present.map(|(replica, process)| (replica, process.statistics))
    }

    /// What each process has compared, by communicator, as it told at the end.
    pub fn coverage(&self, replica: ReplicaId) -> &[Coverage] {
        &self.processes[self.world().process(replica).0 as usize].coverage
    }

    /// What each process was seen to do, where that is wanted and it has told at the end.
    pub fn profiles(&self) -> impl Iterator<Item = (ReplicaId, &ProcessProfile)> + '_ {
        let told = self.world().replicas().zip(&self.processes);
        told.filter_map(|(replica, process)| Some((replica, process.profile.as_deref()?)))
    }

    /// How far the job has come, in a word.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match (&self.ending, self.released, self.cards_sent) {
            (Some(_), _, _) => "ending",
            (None, true, _) => "finalized",
            (None, false, true) => "running",
            (None, false, false) => "launching",
        }
    }

    /// How far each process has come, in a word.
    pub fn states(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.processes.iter().map(|process| match (process.phase, process.exit) {
            _ if process.is_vacant => "free",
            _ if process.lost => "lost",
            _ if process.leaves => "leaving",
            _ if process.retired => "retired",
            (_, Some(_)) => "exited",
            (Phase::Started, None) => "started",
            (Phase::Greeted, None) => "in MPI_Init",
            (Phase::Ready, None) => "running",
            (Phase::Finalizing(_), None) => "finalizing",
        })
    }

    /// How each process ended, with whether it was counted as lost.
    pub fn exits(&self) -> impl Iterator<Item = (ReplicaId, Option<Exit>, bool)> + '_ {
        let present = self.world().replicas().zip(&self.processes).filter(|(_, process)| !process.is_vacant);
        present.map(|(replica, process)| (replica, process.exit, process.lost))
    }
}
