//! A run of a job: its options, the machine that decides, the hosts, and the clock. All reports on a running job are
//! made from it.

use super::fleet::Fleet;
use job_coordinator::Coordinator;
use job_options::Job;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::dynamic::Origin;
use std::time::{Duration, Instant};

/// A run: see the module.
pub(super) struct Run<'a> {
    pub job: &'a Job,
    /// Number of the job.
    pub number: u64,
    pub coordinator: Coordinator,
    pub fleet: Fleet,
    pub started_at: Instant,
}

impl Run<'_> {
    /// Time of the job.
    pub fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Name of the host of a replica. Empty if it has none.
    pub fn host_name(&self, replica: ReplicaId) -> String {
        self.host_name_in(replica, None)
    }

    /// Name of a replica's host in a view, which may be an older one. `None`: the present host.
    pub fn host_name_in(&self, replica: ReplicaId, view: Option<ViewNumber>) -> String {
        let host = view.map_or_else(|| self.coordinator.host(replica), |view| self.coordinator.host_in(replica, view));
        host.map_or_else(String::new, |host| self.fleet.name(host).to_owned())
    }

    /// Number of live processes.
    pub fn live_count(&self) -> u64 {
        let view = self.coordinator.manager().view();
        self.job.world.replicas().filter(|replica| view.is_live(*replica)).count() as u64
    }

    /// Programs by the names that the user gave.
    pub fn program_names(&self) -> String {
        let names = self.job.applications.iter().filter_map(|application| application.arguments.first());
        names.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" : ")
    }

    /// Number of a host, by its name in the job or `localhost`.
    pub fn find_host(&self, name: &str) -> Option<u32> {
        let is_here = |host: &u32| self.fleet.plan().hosts[*host as usize].local && !self.fleet.is_dead(*host);
        let here = || (0..self.fleet.plan().hosts.len() as u32).find(is_here);
        self.fleet.find(name).or_else(|| (name == "localhost").then(here).flatten())
    }

    /// This job's origin, for its processes.
    pub fn origin(&self) -> Origin {
        let plan = self.fleet.plan();
        let places = |host: &u32| plan.hosts[*host as usize].slot_count.unwrap_or(self.fleet.cpu_count(*host));
        let place_count = (0..plan.hosts.len() as u32).filter(|host| !plan.hosts[*host as usize].spare);
        let place_count = place_count.map(|host| places(&host)).fold(0, u32::saturating_add);
        match &self.job.origin {
            Some(origin) => Origin { place_count, ..origin.clone() },
            None => Origin { tree: self.number, parent_port: None, place_count },
        }
    }

    /// Ranks of the job that a user names by ranges, first and last. All without a range.
    ///
    /// # Errors
    /// The first range that is none of this job.
    pub fn ranks(&self, ranges: &[(u32, u32)]) -> Result<Vec<VirtualRank>, (u32, u32)> {
        let rank_count = self.job.world.rank_count();
        if let Some(wrong) = ranges.iter().find(|(first, last)| first > last || *last >= rank_count) {
            return Err(*wrong);
        }
        let named = |rank: &u32| ranges.is_empty() || ranges.iter().any(|(first, last)| (first..=last).contains(&rank));
        Ok((0..rank_count).filter(named).map(VirtualRank).collect())
    }
}
