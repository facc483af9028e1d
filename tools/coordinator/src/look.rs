//! The state of the job, for status pages, metrics and reports.

use super::{Coordinator, Phase, Redundancy};
use redrt_types::{Incarnation, ReplicaId, View, VirtualRank, World};
use redrt_wire::event::{Coverage, Statistics};
use redrt_wire::exit::Exit;
use redrt_wire::profile::ProcessProfile;
use std::time::Duration;

impl Coordinator {
    /// The latest view of the job.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The shape of the job, with all places of its ranks.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.settings.world
    }

    /// Number of replicas that each rank started with, by rank.
    #[must_use]
    pub fn first_degrees(&self) -> Vec<u16> {
        self.settings.view.degrees()
    }

    /// Number of live replicas of a rank that are in step, each able to go on alone.
    #[must_use]
    pub fn in_step_count(&self, rank: VirtualRank) -> usize {
        self.view.live(rank).filter(|replica| self.is_in_step(*replica)).count()
    }

    /// Measures how long ranks have had all their replicas.
    #[must_use]
    pub fn redundancy(&self) -> &Redundancy {
        &self.redundancy
    }

    /// The incarnation of the process in a place, or of the last one there.
    #[must_use]
    pub fn incarnation(&self, replica: ReplicaId) -> Incarnation {
        self.processes[self.world().process(replica).0 as usize].incarnation
    }

    /// The process id on its host. None before the process was started.
    #[must_use]
    pub fn pid(&self, replica: ReplicaId) -> Option<i32> {
        self.processes[self.world().process(replica).0 as usize].pid
    }

    /// Time for which a process has been waiting in MPI, as of its latest answer. Zero if it does not wait.
    #[must_use]
    pub fn waits(&self, replica: ReplicaId, now: Duration) -> Duration {
        self.pace.waiting_time(now, replica)
    }

    /// The counters of a process, as of its latest answer to a wave.
    pub fn latest(&self, replica: ReplicaId) -> Statistics {
        self.processes[self.world().process(replica).0 as usize].latest
    }

    /// Returns true if a process has called `MPI_Init`.
    #[must_use]
    pub fn has_begun(&self, replica: ReplicaId) -> bool {
        self.processes[self.world().process(replica).0 as usize].phase != Phase::Started
    }

    /// The final counters of each process. None for those that did not come to `MPI_Finalize`.
    pub fn statistics(&self) -> impl Iterator<Item = (ReplicaId, Option<Statistics>)> + '_ {
        let present = self.world().replicas().zip(&self.processes).filter(|(_, process)| !process.is_vacant);
        present.map(|(replica, process)| (replica, process.statistics))
    }

    /// The comparisons that a process made, by communicator. Empty before `MPI_Finalize`.
    pub fn coverage(&self, replica: ReplicaId) -> &[Coverage] {
        &self.processes[self.world().process(replica).0 as usize].coverage
    }

    /// The profiles of the processes that sent one in `MPI_Finalize`, which they do only if profiling is on.
    pub fn profiles(&self) -> impl Iterator<Item = (ReplicaId, &ProcessProfile)> + '_ {
        let told = self.world().replicas().zip(&self.processes);
        told.filter_map(|(replica, process)| Some((replica, process.profile.as_deref()?)))
    }

    /// The state of the job in one word.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match (&self.ending, self.released, self.cards_sent) {
            (Some(_), _, _) => "ending",
            (None, true, _) => "finalized",
            (None, false, true) => "running",
            (None, false, false) => "launching",
        }
    }

    /// The state of each process in one or two words, in order of process number.
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

    /// The exit of each process, and true if it was counted as lost.
    pub fn exits(&self) -> impl Iterator<Item = (ReplicaId, Option<Exit>, bool)> + '_ {
        let present = self.world().replicas().zip(&self.processes).filter(|(_, process)| !process.is_vacant);
        present.map(|(replica, process)| (replica, process.exit, process.lost))
    }
}
