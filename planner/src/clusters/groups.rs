//! Encoding groups: ranks whose checkpoints share an erasure code. Their hosts, and as far as possible their racks, are
//! distinct, so that one failure takes one member.

use super::Layout;
use serde::{Deserialize, Serialize};

/// Division of ranks into clusters, and of clusters into groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Clustering {
    /// Cluster of each rank. A cluster rolls back together, and messages between clusters are logged.
    pub cluster_of_rank: Vec<u32>,
    /// Groups of ranks that share an erasure code.
    pub groups: Vec<Vec<u32>>,
}

impl Clustering {
    /// Clusters of consecutive ranks, each of which is also a group: the naive choice.
    #[must_use]
    pub fn consecutive(ranks: u32, size: u32) -> Self {
        let groups: Vec<Vec<u32>> =
            (0..ranks).step_by(size as usize).map(|first| (first..(first + size).min(ranks)).collect()).collect();
        Self::of_groups(ranks, groups)
    }

    /// Groups over `size` hosts, each with one rank of every host. The groups are also the clusters.
    #[must_use]
    pub fn distributed(layout: &Layout, size: u32) -> Self {
        let hosts: Vec<u32> = (0..layout.host_count()).collect();
        let groups = hosts.chunks(size as usize).flat_map(|hosts| across(hosts, layout)).collect();
        Self::of_groups(layout.rank_count(), groups)
    }

    /// Clusters of whole hosts, with groups across `group_size` hosts of a cluster, or more if the division leaves a
    /// remainder.
    #[must_use]
    pub fn hierarchical(layout: &Layout, clusters: &[Vec<u32>], group_size: u32) -> Self {
        let mut cluster_of_rank = vec![0; layout.rank_count() as usize];
        let mut groups = Vec::new();
        for (number, hosts) in clusters.iter().enumerate() {
            for rank in hosts.iter().flat_map(|host| host * layout.per_host..(host + 1) * layout.per_host) {
                cluster_of_rank[rank as usize] = number as u32;
            }
            groups.extend(host_groups(hosts, layout, group_size).iter().flat_map(|hosts| across(hosts, layout)));
        }
        Self { cluster_of_rank, groups }
    }

    fn of_groups(ranks: u32, groups: Vec<Vec<u32>>) -> Self {
        let mut cluster_of_rank = vec![0; ranks as usize];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|rank| cluster_of_rank[*rank as usize] = number as u32);
        }
        Self { cluster_of_rank, groups }
    }

    /// Number of members of the largest group.
    #[must_use]
    pub fn group_size_max(&self) -> u32 {
        self.groups.iter().map(Vec::len).max().unwrap_or(0) as u32
    }

    /// Number of groups with more members in one rack than the code can restore.
    #[must_use]
    pub fn groups_lost_with_a_rack(&self, layout: &Layout) -> usize {
        let is_lost = |group: &&Vec<u32>| {
            let mut members = std::collections::BTreeMap::<u32, usize>::new();
            group.iter().for_each(|rank| *members.entry(layout.racks[layout.host(*rank) as usize]).or_default() += 1);
            members.values().any(|count| *count > group.len() / 2)
        };
        self.groups.iter().filter(is_lost).count()
    }
}

/// For each i, the i-th ranks of these hosts.
fn across(hosts: &[u32], layout: &Layout) -> Vec<Vec<u32>> {
    (0..layout.per_host).map(|place| hosts.iter().map(|host| host * layout.per_host + place).collect()).collect()
}

/// Divides the hosts of a cluster into groups of at least `size`, as equal as possible. Hosts of one rack are
/// distributed over different groups.
fn host_groups(hosts: &[u32], layout: &Layout, size: u32) -> Vec<Vec<u32>> {
    let count = (hosts.len() / size.max(1) as usize).max(1);
    let mut by_rack = hosts.to_vec();
    by_rack.sort_by_key(|host| (layout.racks[*host as usize], *host));
    let mut groups = vec![Vec::new(); count];
    // Hosts of one rack are consecutive, so dealing them in turn spreads a rack over all groups.
    let is_rack_shared =
        by_rack.windows(2).any(|pair| layout.racks[pair[0] as usize] == layout.racks[pair[1] as usize]);
    for (number, host) in by_rack.iter().enumerate() {
        let group = if is_rack_shared { number % count } else { number * count / by_rack.len() };
        groups[group].push(*host);
    }
    groups
}
