//! Clusters of ranks for hierarchical checkpoints: whole hosts that roll back together, with messages between clusters
//! logged, and within each cluster groups over distinct hosts that share an erasure code (paper on FTI and HydEE).
//!
//! - [`Traffic`]: bytes by pair of ranks, and the hosts they run on
//! - [`partition`]: hosts into clusters, by recursive bisection with refinement
//! - [`groups`]: the members of a cluster into encoding groups across hosts and racks
//! - [`catastrophe`]: probability that a failure of hosts loses data
//! - [`dimensions`]: the four quantities a clustering is judged by, and the front of those that nothing beats

pub mod catastrophe;
pub mod dimensions;
pub mod groups;
pub mod partition;

use serde::{Deserialize, Serialize};

/// Bytes sent by pair of ranks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// Ranks there are.
    pub ranks: u32,
    /// Sender, receiver, bytes. A pair that comes again adds up.
    pub pairs: Vec<(u32, u32, f64)>,
}

/// Why figures cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TrafficError {
    /// There are no ranks.
    #[error("the matrix has no ranks")]
    Empty,
    /// A pair names a rank that there is not.
    #[error("the pair {0} → {1} is not among the {2} ranks 0 to {last}", last = .2 - 1)]
    NoSuchRank(u32, u32, u32),
    /// A number of bytes is negative, infinite or not a number.
    #[error("{2} bytes from rank {0} to {1} cannot be")]
    Bytes(u32, u32, f64),
    /// The ranks do not fit on the hosts.
    #[error("{ranks} ranks are not {hosts} hosts x {per_host}")]
    Layout {
        /// Ranks of the matrix.
        ranks: u32,
        /// Hosts that were told.
        hosts: u32,
        /// Ranks for each.
        per_host: u32,
    },
}

/// Where ranks run: host after host is filled with as many consecutive ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Ranks of each host.
    pub per_host: u32,
    /// The rack of each host. What shares a rack fails together.
    pub racks: Vec<u32>,
}

impl Layout {
    /// Hosts that are each in a rack of their own.
    #[must_use]
    pub fn new(hosts: u32, per_host: u32) -> Self {
        Self { per_host, racks: (0..hosts).collect() }
    }

    /// Hosts there are.
    #[must_use]
    pub fn host_count(&self) -> u32 {
        self.racks.len() as u32
    }

    /// Ranks there are.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        self.host_count() * self.per_host
    }

    /// The host of a rank.
    #[must_use]
    pub fn host(&self, rank: u32) -> u32 {
        rank / self.per_host
    }
}

impl Traffic {
    /// Checks that these figures can be used with this layout.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
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

    /// Bytes in all.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.pairs.iter().map(|(.., bytes)| bytes).sum()
    }

    /// Each rank to both its neighbours in a row, one byte each: a domain in strips.
    #[must_use]
    pub fn chain(ranks: u32) -> Self {
        let pairs = (1..ranks).flat_map(|rank| [(rank - 1, rank, 1.0), (rank, rank - 1, 1.0)]);
        Self { ranks, pairs: pairs.collect() }
    }

    /// What a run with `factor` times the ranks would send, if it did the same on a domain that is as many times
    /// longer: the traffic of each part is that of the run which was measured, and the ends of neighbouring parts
    /// exchange what its first and last ranks do with their own neighbours at that distance.
    ///
    /// Right for domains in strips; of anything else it keeps the distances, and is a guess.
    #[must_use]
    pub fn scaled(&self, factor: u32) -> Self {
        let ranks = self.ranks * factor;
        // Mean bytes of a rank to one at this distance, over the ranks that have one there.
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

/// Bytes between hosts, both directions together: what clusters of whole hosts are found from.
#[derive(Clone, PartialEq, Debug)]
pub struct HostGraph {
    /// For each host, those it exchanges messages with, and how many bytes. Sorted, without itself.
    pub neighbours: Vec<Vec<(u32, f64)>>,
    /// All bytes, those within hosts included.
    pub total: f64,
}

impl HostGraph {
    /// Adds up what the ranks of each pair of hosts exchange.
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
