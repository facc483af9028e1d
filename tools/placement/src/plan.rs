//! Which hosts a job uses, and how they are reached: what `redrun` was told, or finds in its environment.

use redrt_types::ReplicaId;
use redrt_wire::daemon::{Binding, HostName};
use redrt_wire::slots::Slots;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The default of `--detect-timeout`.
pub const DETECT_TIMEOUT: Duration = Duration::from_secs(1);

/// One host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedHost {
    /// Its name; absent for the host `redrun` runs on when no hosts were named.
    pub name: Option<HostName>,
    /// Places for processes, where that was said.
    pub slot_count: Option<u32>,
    /// Whether it is to be kept free.
    pub spare: bool,
    /// Whether it is the host `redrun` runs on.
    pub local: bool,
}

/// How daemons are started on hosts other than this.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Launcher {
    /// By this command, one for each host.
    Remote(Vec<OsString>),
    /// By srun (`control_network::job_steps`).
    Slurm {
        /// The command.
        command: Vec<OsString>,
        /// The nodes of each group of the allocation, in its order. Only heterogeneous jobs have several groups.
        groups: Vec<Vec<String>>,
    },
}

/// How processes are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum MapBy {
    /// Host after host is filled.
    #[default]
    Slot,
    /// Ranks go round the hosts.
    Node,
}

/// Where a process is to be, as a rankfile has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankPlace {
    /// Which process.
    pub replica: ReplicaId,
    /// The number of its host, in the order of the plan.
    pub host: u32,
    /// The cores it is bound to, where that was said.
    pub slots: Option<Slots>,
}

/// All that is known of hosts before any daemon runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostPlan {
    /// The hosts, in order.
    pub hosts: Vec<PlannedHost>,
    /// How daemons are started.
    pub launcher: Launcher,
    /// Daemons below one in the tree.
    pub fan_out: u32,
    /// The interface or network to use, where that was said.
    pub interface: Option<String>,
    /// Connections are encrypted.
    pub secure: bool,
    /// The address at which `redrun` listens.
    pub root_address: IpAddr,
    /// After this time at the latest a dead host is found.
    pub detect_timeout: Duration,
    /// How long processes go on when the root was killed; zero if they end with it.
    pub root_lease: Duration,
    /// How many hosts hold what the root decides. With more than one, processes outlive its host, too.
    pub roots: u8,
    /// A longer journal of the root is shortened.
    pub root_journal_bytes: u64,
    /// Processes for each host, where that was said.
    pub per_host: Option<u32>,
    /// How processes are laid out.
    pub map_by: MapBy,
    /// What each process may use of its host.
    pub binding: Binding,
    /// What a rankfile says of processes. The others go where there is room.
    pub ranks: Vec<RankPlace>,
    /// As many ranks as that file needs: those of the job, if nobody says how many.
    pub rank_count: Option<u32>,
    /// The rack of hosts, by name, where there is a file that says so.
    pub racks: Vec<(String, u32)>,
    /// Print where each process runs.
    pub report: bool,
    /// Places for copies on the host `redrun` runs on, when there is no other.
    pub spare_places: u32,
}

/// All hosts of a job would be kept free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("--spares {spare_count}: the job has {host_count} hosts, and one at least must be left")]
pub struct NoHostLeft {
    /// Hosts to keep free.
    pub spare_count: u32,
    /// Hosts of the job.
    pub host_count: usize,
}

impl HostPlan {
    /// The host this runs on, and no other.
    #[must_use]
    pub fn here() -> Self {
        Self {
            hosts: vec![PlannedHost { name: None, slot_count: None, spare: false, local: true }],
            launcher: Launcher::Remote(vec!["ssh".into()]),
            fan_out: host_watch::shape::FAN_OUT,
            interface: None,
            secure: false,
            root_address: Ipv4Addr::LOCALHOST.into(),
            detect_timeout: DETECT_TIMEOUT,
            root_lease: Duration::ZERO,
            roots: 1,
            root_journal_bytes: root_journal::file::JOURNAL_BYTES_USUAL,
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

    /// The same with these hosts, as they are seen from here: another may have planned them.
    #[must_use]
    pub fn with_hosts(self, mut hosts: Vec<PlannedHost>) -> Self {
        if let Launcher::Remote(_) = self.launcher {
            for (host, name) in hosts.iter_mut().filter_map(|host| host.name.clone().map(|name| (host, name))) {
                host.local = name.user.is_none() && host_addresses::is_here(&name.name);
            }
        }
        Self { hosts, ..self }
    }

    /// Keeps `count` more hosts free for copies of lost replicas; places on this one, when it is the only one.
    ///
    /// # Errors
    /// When none would be left for the job.
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

    /// Whether lost replicas can be replaced.
    #[must_use]
    pub fn has_spares(&self) -> bool {
        self.spare_places > 0 || self.hosts.iter().any(|host| host.spare)
    }

    /// Whether daemons and `redrun` may lose sight of each other.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.hosts.iter().any(|host| !host.local)
    }
}
