//! Where processes are launched, and how many copies fit on each host.
//!
//! Enters: the plan of the hosts, their names and CPUs once all have attached, hosts that join later. Leaves: a host
//! for each process, and rooms for copies. A job that goes on from a checkpoint launches where the images are to be
//! had (`placement::homes`), another one where there is room ([`layout`](super::layout)).

use super::layout::{HostFacts, Layout, LayoutError, lay_out};
use checkpoint_store::StoredCheckpoint;
use placement::homes::{self, RestorePlace};
use placement::plan::{HostPlan, PlannedHost};
use redrt_types::{View, VirtualRank, World};
use redrt_wire::daemon::HostName;
use replication_manager::Recovery;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings of launches, fixed at the start of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchSettings {
    /// The hosts of the first life, and how processes are laid out on them.
    pub plan: HostPlan,
    /// Maximum number of clones at a time.
    pub clone_count_max: usize,
    /// Interval of renewing the copies that arbitrate between two replicas. None without them.
    pub arbitration_interval: Option<Duration>,
}

/// A host's room for copies, besides the processes that are launched there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostPlaces {
    /// Name of the host.
    pub name: String,
    /// Number of copies that fit.
    pub count: u32,
}

/// Places for processes: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launching {
    /// The replicas that the job starts with.
    start: View,
    clone_count_max: usize,
    arbitration_interval: Option<Duration>,
    /// The hosts of this life. A number that no host has got is that of an unnamed one, which is nowhere.
    plan: HostPlan,
    /// The hosts that have attached in this life, by number.
    facts: Vec<HostFacts>,
}

impl Launching {
    /// A job of which no host has attached.
    pub fn new(settings: LaunchSettings, start: View) -> Self {
        let LaunchSettings { plan, clone_count_max, arbitration_interval } = settings;
        Self { start, clone_count_max, arbitration_interval, plan, facts: Vec::new() }
    }

    pub fn plan(&self) -> &HostPlan {
        &self.plan
    }

    /// The fewest CPUs of a host. None before any has attached.
    pub fn cpu_count_min(&self) -> Option<u32> {
        self.facts.iter().map(|facts| facts.cpu_count).min()
    }

    /// All hosts of this life have attached.
    pub fn attached(&mut self, facts: Vec<HostFacts>) {
        self.facts = facts;
    }

    /// Begins a life on other hosts.
    pub fn begin_life(&mut self, hosts: Vec<PlannedHost>) {
        self.plan.hosts = hosts;
    }

    /// The coordinator is on other hosts than before: on those with these numbers.
    pub fn coordinator_is_on(&mut self, own: &[u32]) {
        for (number, host) in (0..).zip(&mut self.plan.hosts) {
            host.local = own.contains(&number);
        }
    }

    /// True of a host on which the coordinator is.
    pub fn is_local(&self, host: u32) -> bool {
        self.plan.hosts.get(host as usize).is_some_and(|host| host.local)
    }

    /// A host has joined. It may be one of the job already.
    pub fn join(&mut self, host: u32, name: HostName, slot_count: u32) {
        let nowhere = PlannedHost { name: None, slot_count: None, spare: true, local: false };
        if host as usize >= self.plan.hosts.len() {
            self.plan.hosts.resize(host as usize + 1, nowhere);
            self.plan.hosts[host as usize].name = Some(name);
            self.plan.hosts[host as usize].slot_count = Some(slot_count);
        }
    }

    /// Lays the processes of a view out, in a job without a checkpoint.
    pub fn lay_out(&self, world: &World, view: &View, facts: &[HostFacts]) -> Result<Layout, LayoutError> {
        lay_out(world, view, &self.plan, facts)
    }

    /// The place at which each process of a view goes on from a checkpoint.
    pub fn restore_places(&self, kept: &StoredCheckpoint, view: &View) -> Vec<Option<RestorePlace>> {
        let of_all = &kept.directory;
        homes::restore_places(&kept.manifest, &self.plan, view, of_all.parent().unwrap_or(of_all), of_all)
    }

    /// The replication manager's settings for replacing lost replicas.
    pub fn recovery(&self, placement: &[Option<u32>]) -> Recovery {
        let hosts = self.facts.iter().map(|facts| facts.name.clone()).collect();
        let host_of = placement.iter().map(|host| host.unwrap_or_default()).collect();
        let recovery = Recovery::new(hosts, self.start.degrees(), host_of, self.clone_count_max);
        match self.arbitration_interval {
            Some(interval) => recovery.arbitrating(interval),
            None => recovery,
        }
    }

    /// Places of each host that are free for copies.
    pub fn host_places(&self, world: &World, placement: &[Option<u32>]) -> Vec<HostPlaces> {
        let room = |(host, facts): (u32, &HostFacts)| HostPlaces {
            name: facts.name.clone(),
            count: self.places_kept_free(host) + self.places_to_judge(host, world, placement),
        };
        (0..).zip(&self.facts).map(room).collect()
    }

    /// Places on a host beyond the launched processes.
    fn places_kept_free(&self, number: u32) -> u32 {
        let host = &self.plan.hosts[number as usize];
        let cpu_count = self.facts[number as usize].cpu_count;
        match (host.spare, self.plan.is_remote()) {
            (true, _) => host.slot_count.unwrap_or_else(|| self.fair_count(cpu_count)),
            (false, false) => self.plan.spare_places,
            (false, true) => 0,
        }
    }

    /// Places on a host for arbiters: one for each replica launched there in a rank with two. They serve where no spare
    /// host does.
    fn places_to_judge(&self, number: u32, world: &World, placement: &[Option<u32>]) -> u32 {
        if self.arbitration_interval.is_none() {
            return 0;
        }
        let has_two = |rank: VirtualRank| self.start.degree(rank) == 2;
        let launched = world
            .replicas()
            .zip(placement)
            .filter(|(replica, host)| **host == Some(number) && self.start.is_live(*replica) && has_two(replica.rank));
        launched.count() as u32
    }

    /// Number of places of a host with so many CPUs, if the user gave none.
    pub fn fair_count(&self, cpu_count: u32) -> u32 {
        let used = self.plan.hosts.iter().filter(|host| !host.spare).count().max(1) as u32;
        let degrees = self.start.degrees().into_iter().map(u32::from);
        degrees.sum::<u32>().div_ceil(used).max(cpu_count)
    }
}
