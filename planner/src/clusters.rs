//! Clusters of ranks for hierarchical checkpoints (paper on FTI and HydEE). A cluster is a set of whole hosts that roll
//! back together; messages between clusters are logged. Within a cluster, groups of ranks on distinct hosts share an
//! erasure code.
//!
//! - [`Traffic`]: bytes by pair of ranks, and the hosts of the ranks
//! - [`partition`]: divides hosts into clusters, by recursive bisection with refinement
//! - [`groups`]: divides a cluster into encoding groups across hosts and racks
//! - [`catastrophe`]: probability that a failure of hosts loses data
//! - [`dimensions`]: the four quantities of a clustering, and the Pareto front

pub mod catastrophe;
pub mod dimensions;
pub mod groups;
pub mod partition;

use serde::{Deserialize, Serialize};

/// Communication matrix of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Sender, receiver and bytes. Entries of the same pair add up.
    pub pairs: Vec<(u32, u32, f64)>,
}

/// Reason why a matrix cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TrafficError {
    /// The matrix has no ranks at all.
    #[error("the matrix has no ranks")]
    Empty,
    /// A pair names a rank that does not exist.
    #[error("the pair {0} → {1} is not among the {2} ranks 0 to {last}", last = .2 - 1)]
    NoSuchRank(u32, u32, u32),
    /// A number of bytes is negative, infinite or not a number.
    #[error("{2} bytes from rank {0} to {1} cannot be")]
    Bytes(u32, u32, f64),
    /// The number of ranks differs from that of the layout.
    #[error("{ranks} ranks are not {hosts} hosts x {per_host}")]
    Layout {
        /// Number of ranks in the matrix.
        ranks: u32,
        /// Number of hosts in the layout.
        hosts: u32,
        /// Number of ranks on each host.
        per_host: u32,
    },
}

/// Placement of ranks: each host in turn has the same number of consecutive ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Number of ranks on each host.
    pub per_host: u32,
    /// Rack of each host. Hosts of one rack fail together.
    pub racks: Vec<u32>,
}

impl Layout {
    /// A layout in which each host is in a rack of its own.
    #[must_use]
    pub fn new(hosts: u32, per_host: u32) -> Self {
        Self { per_host, racks: (0..hosts).collect() }
    }

    /// Number of hosts of the layout.
    #[must_use]
    pub fn host_count(&self) -> u32 {
        self.racks.len() as u32
    }

    /// Number of ranks of the layout.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        self.host_count() * self.per_host
    }

    /// Host of a rank.
    #[must_use]
    pub fn host(&self, rank: u32) -> u32 {
        rank / self.per_host
    }
}

impl Traffic {
    /// Checks that the matrix is valid, and fits the layout.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self, layout: &Layout) -> Result<(), TrafficError> {
        if self.ranks == 0 {
            return Err(TrafficError::Empty);
        }
        let (hosts, per_host) = (layout.host_count(), layout.per_host);
        if u64::from(hosts) * u64::from(per_host) != u64::from(self.ranks) {
            return Err(TrafficError::Layout { ranks: self.ranks, hosts, per_host });
        }
        for &(from, to, bytes) in &self.pairs {
            if from >= self.ranks || to >= self.ranks {
                return Err(TrafficError::NoSuchRank(from, to, self.ranks));
            }
            if !(bytes >= 0.0 && bytes.is_finite()) {
                return Err(TrafficError::Bytes(from, to, bytes));
            }
        }
        Ok(())
    }

    /// Sum of all bytes.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.pairs.iter().map(|(.., bytes)| bytes).sum()
    }

    /// Traffic of a domain in strips: each rank sends one byte to each of its two neighbours.
    #[must_use]
    pub fn chain(ranks: u32) -> Self {
        let pairs = (1..ranks).flat_map(|rank| [(rank - 1, rank, 1.0), (rank, rank - 1, 1.0)]);
        Self { ranks, pairs: pairs.collect() }
    }

    /// Extrapolates the traffic to a run with `factor` times the ranks, on a domain longer by the same factor. Each
    /// pair of ranks at some distance exchanges the mean of the measured pairs at that distance.
    ///
    /// This is right for domains in strips. For others it keeps the distances, and is only a guess.
    #[must_use]
    pub fn scaled(&self, factor: u32) -> Self {
        let ranks = self.ranks * factor;
        // Sum of bytes by distance between ranks. Divided by the number of pairs at that distance, it becomes the mean.
        let mut by_distance = std::collections::BTreeMap::<i64, f64>::new();
        for &(from, to, bytes) in &self.pairs {
            *by_distance.entry(i64::from(to) - i64::from(from)).or_default() += bytes;
        }
        let mut pairs = Vec::new();
        for (distance, bytes) in by_distance {
            let mean = bytes / (i64::from(self.ranks) - distance.abs()) as f64;
            let first = 0.max(-distance);
            let last = i64::from(ranks) - 0.max(distance);
            pairs.extend((first..last).map(|from| (from as u32, (from + distance) as u32, mean)));
        }
        Self { ranks, pairs }
    }
}

/// Bytes between hosts, both directions together: the input for clusters of whole hosts.
#[derive(Clone, PartialEq, Debug)]
pub struct HostGraph {
    /// For each host, its communication partners and the bytes. Sorted, without the host itself.
    pub neighbours: Vec<Vec<(u32, f64)>>,
    /// Sum of all bytes, including those within hosts.
    pub total: f64,
}

impl HostGraph {
    /// Sums the traffic of each pair of hosts.
    #[must_use]
    pub fn new(traffic: &Traffic, layout: &Layout) -> Self {
        let mut sums = vec![std::collections::BTreeMap::<u32, f64>::new(); layout.host_count() as usize];
        for &(from, to, bytes) in &traffic.pairs {
            let (from, to) = (layout.host(from), layout.host(to));
            if from != to {
                *sums[from as usize].entry(to).or_default() += bytes;
                *sums[to as usize].entry(from).or_default() += bytes;
            }
        }
        let neighbours = sums.into_iter().map(|sums| sums.into_iter().collect()).collect();
        Self { neighbours, total: traffic.total() }
    }
}
