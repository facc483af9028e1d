//! Hosts of a job and the means to reach them, from the command line or the environment.

use redrt_types::ReplicaId;
use redrt_wire::daemon::{Binding, HostName};
use redrt_wire::slots::Slots;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Default of `--detect-timeout`.
pub const DETECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A host of the plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedHost {
    /// Name of the host. `None` for `redrun`'s own host if no hosts were named.
    pub name: Option<HostName>,
    /// Number of places for processes, if given.
    pub slot_count: Option<u32>,
    /// True if it is to be kept free.
    pub spare: bool,
    /// True for the host on which `redrun` runs.
    pub local: bool,
}

/// Start of daemons on other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Launcher {
    /// By this command, once for each host.
    Remote(Vec<OsString>),
    /// By srun (`control_network::job_steps`).
    Slurm {
        /// The command, as words.
        command: Vec<OsString>,
        /// Nodes of each group of the allocation, in its order. Only heterogeneous jobs have several groups.
        groups: Vec<Vec<String>>,
    },
}

/// Layout of processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum MapBy {
    /// Host after host is filled.
    #[default]
    Slot,
    /// Ranks go round the hosts.
    Node,
}

/// Place of a process by a rankfile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankPlace {
    /// The process.
    pub replica: ReplicaId,
    /// Number of its host, in the order of the plan.
    pub host: u32,
    /// Cores to bind it to, if given.
    pub slots: Option<Slots>,
}

/// Everything known about hosts before daemons run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostPlan {
    /// The hosts, in order.
    pub hosts: Vec<PlannedHost>,
    /// Start of daemons.
    pub launcher: Launcher,
    /// Maximum number of daemons below one in the tree.
    pub fan_out: u32,
    /// Interface or network to use, if given.
    pub interface: Option<String>,
    /// True if connections between processes are encrypted.
    pub secure: bool,
    /// Address on which `redrun` listens.
    pub coordinator_address: IpAddr,
    /// Time within which a dead host is found.
    pub detect_timeout: Duration,
    /// Time for which processes outlive a killed coordinator; zero if they end with it.
    pub coordinator_lease: Duration,
    /// Number of hosts with the coordinator's records. With more than one, processes also outlive the coordinator's
    /// host.
    pub coordinators: u8,
    /// Length above which the coordinator's journal is replaced by a snapshot.
    pub coordinator_journal_bytes: u64,
    /// Number of processes for each host, if given.
    pub per_host: Option<u32>,
    /// Layout of processes.
    pub map_by: MapBy,
    /// Processors and GPUs of each process.
    pub binding: Binding,
    /// Places from a rankfile. Other processes go where there is room.
    pub ranks: Vec<RankPlace>,
    /// Number of ranks that the rankfile needs, the job's default. `None` without a rankfile.
    pub rank_count: Option<u32>,
    /// Rack of each host by name, from a topology file. Empty without one.
    pub racks: Vec<(String, u32)>,
    /// True if the host of each process is printed.
    pub report: bool,
    /// Places for copies on `redrun`'s host, if that is the only one.
    pub spare_places: u32,
}

/// All hosts of a job would be kept free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("--spares {spare_count}: the job has {host_count} hosts, and one at least must be left")]
pub struct NoHostLeft {
    /// Number of hosts to keep free.
    pub spare_count: u32,
    /// Number of hosts of the job.
    pub host_count: usize,
}

impl HostPlan {
    /// A plan with this host alone.
    #[must_use]
    pub fn here() -> Self {
        Self {
            hosts: vec![PlannedHost { name: None, slot_count: None, spare: false, local: true }],
            launcher: Launcher::Remote(vec!["ssh".into()]),
            fan_out: host_watch::shape::FAN_OUT,
            interface: None,
            secure: false,
            coordinator_address: Ipv4Addr::LOCALHOST.into(),
            detect_timeout: DETECT_TIMEOUT,
            coordinator_lease: Duration::ZERO,
            coordinators: 1,
            coordinator_journal_bytes: coordinator_journal::file::JOURNAL_BYTES_USUAL,
            per_host: None,
            map_by: MapBy::Slot,
            binding: Binding::default(),
            ranks: Vec::new(),
            rank_count: None,
            racks: Vec::new(),
            report: false,
            spare_places: 0,
        }
    }

    /// Replaces the hosts. Their `local` is computed here, since the plan may come from another host.
    #[must_use]
    pub fn with_hosts(self, mut hosts: Vec<PlannedHost>) -> Self {
        if let Launcher::Remote(_) = self.launcher {
            for (host, name) in hosts.iter_mut().filter_map(|host| host.name.clone().map(|name| (host, name))) {
                host.local = name.user.is_none() && host_addresses::is_here(&name.name);
            }
        }
        Self { hosts, ..self }
    }

    /// Keeps `count` more hosts free for copies of lost replicas; places on this host if it is the only one.
    ///
    /// # Errors
    /// When no host would be left for the job.
    pub fn keep_free(&mut self, count: u32) -> Result<(), NoHostLeft> {
        if !self.is_remote() {
            self.spare_places = count;
            return Ok(());
        }
        let used: Vec<_> = self.hosts.iter_mut().filter(|host| !host.spare).collect();
        if used.len() <= count as usize {
            return Err(NoHostLeft { spare_count: count, host_count: used.len() });
        }
        used.into_iter().rev().take(count as usize).for_each(|host| host.spare = true);
        Ok(())
    }

    /// True if lost replicas can be replaced.
    #[must_use]
    pub fn has_spares(&self) -> bool {
        self.spare_places > 0 || self.hosts.iter().any(|host| host.spare)
    }

    /// True if daemons run on other hosts, so that connections may break.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.hosts.iter().any(|host| !host.local)
    }
}
