//! Divides hosts into clusters that roll back together, with few bytes between clusters, and small clusters.
//!
//! The cost of a partition is `a · logged + b · restarted`: the fraction of bytes between clusters, which must be
//! logged, and the mean fraction of hosts that restart when one fails, `Σ (|C|/N)²`.
//!
//! The hosts are bisected recursively. Each bisection grows one part from a host, and then moves hosts between the
//! parts while the cost falls (Fiduccia and Mattheyses). A division is kept if it lowers the cost, taking all divisions
//! below it into account. Finally, hosts move between clusters where that lowers the cost.

use super::HostGraph;

/// Weights of the cost, and the least size of a cluster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Weights {
    /// Weight of the fraction of bytes that are logged.
    pub logged: f64,
    /// Weight of the fraction of hosts that restart.
    pub restarted: f64,
    /// Least number of hosts in a cluster.
    pub hosts_min: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { logged: 1.0, restarted: 1.0, hosts_min: 4 }
    }
}

/// Most hosts from which a part is grown; they are spread evenly.
const SEED_COUNT_MAX: usize = 16;
/// Most rounds of refinement. Refinement stops earlier when a round gains nothing.
const ROUND_COUNT_MAX: usize = 8;

/// Divides hosts into clusters. Each is a sorted list of hosts; clusters are ordered by their first host.
#[must_use]
pub fn partition(graph: &HostGraph, weights: Weights) -> Vec<Vec<u32>> {
    let all: Vec<u32> = (0..graph.neighbours.len() as u32).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let divider = Divider { graph, weights, host_count: all.len() as f64 };
    let (clusters, _) = divider.divide(all);
    let mut clusters = divider.refine(clusters);
    clusters.iter_mut().for_each(|cluster| cluster.sort_unstable());
    clusters.sort();
    clusters
}

struct Divider<'a> {
    graph: &'a HostGraph,
    weights: Weights,
    host_count: f64,
}

impl Divider<'_> {
    fn restart_cost(&self, size: usize) -> f64 {
        self.weights.restarted * (size as f64 / self.host_count).powi(2)
    }

    fn log_cost(&self, bytes: f64) -> f64 {
        if self.graph.total > 0.0 { self.weights.logged * bytes / self.graph.total } else { 0.0 }
    }

    fn least(&self) -> usize {
        self.weights.hosts_min.max(1) as usize
    }

    /// Cheapest clusters of these hosts in the tree of divisions, and their cost.
    fn divide(&self, hosts: Vec<u32>) -> (Vec<Vec<u32>>, f64) {
        let whole = self.restart_cost(hosts.len());
        if hosts.len() < 2 * self.least() {
            return (vec![hosts], whole);
        }
        let (one, other, bytes) = self.bisect(&hosts);
        let (mut clusters, cost_one) = self.divide(one);
        let (others, cost_other) = self.divide(other);
        let cost = cost_one + cost_other + self.log_cost(bytes);
        if cost >= whole {
            return (vec![hosts], whole);
        }
        clusters.extend(others);
        (clusters, cost)
    }

    /// Bisects these hosts. Returns both parts and the bytes between them.
    fn bisect(&self, hosts: &[u32]) -> (Vec<u32>, Vec<u32>, f64) {
        let step = hosts.len().div_ceil(SEED_COUNT_MAX);
        let best = (0..hosts.len())
            .step_by(step)
            .map(|seed| {
                let mut halves = Halves::grown(self, hosts, seed);
                halves.refine();
                halves
            })
            .min_by(|one, other| one.cost().total_cmp(&other.cost()))
            .expect("there is a host to grow from");
        let (mut one, mut other) = (Vec::new(), Vec::new());
        hosts
            .iter()
            .zip(&best.in_one)
            .for_each(|(host, is_in)| if *is_in { one.push(*host) } else { other.push(*host) });
        (one, other, best.cut)
    }

    /// Moves single hosts to a neighbour's cluster while that lowers the cost.
    fn refine(&self, mut clusters: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        let mut cluster_of = vec![0; self.graph.neighbours.len()];
        for (number, cluster) in clusters.iter().enumerate() {
            cluster.iter().for_each(|host| cluster_of[*host as usize] = number);
        }
        for _ in 0..ROUND_COUNT_MAX {
            let mut moved = false;
            for host in 0..cluster_of.len() {
                let from = cluster_of[host];
                if clusters[from].len() <= self.least() {
                    continue;
                }
                let mut bytes = std::collections::BTreeMap::<usize, f64>::new();
                for (neighbour, sent) in &self.graph.neighbours[host] {
                    *bytes.entry(cluster_of[*neighbour as usize]).or_default() += sent;
                }
                let at_home = bytes.get(&from).copied().unwrap_or(0.0);
                let change = |to: usize, there: f64| {
                    let (left, joined) = (clusters[from].len(), clusters[to].len());
                    self.log_cost(at_home - there) + self.restart_cost(left - 1) - self.restart_cost(left)
                        + self.restart_cost(joined + 1)
                        - self.restart_cost(joined)
                };
                let candidates =
                    bytes.iter().filter(|(to, _)| **to != from).map(|(to, there)| (change(*to, *there), *to));
                if let Some((gain, to)) = candidates.min_by(|one, other| one.0.total_cmp(&other.0))
                    && gain < -1e-12
                {
                    clusters[from].retain(|other| *other as usize != host);
                    clusters[to].push(host as u32);
                    cluster_of[host] = to;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        clusters
    }
}

/// A division of some hosts into two parts.
struct Halves<'a> {
    divider: &'a Divider<'a>,
    /// Neighbours of each host among these hosts, as positions, with bytes.
    neighbours: Vec<Vec<(usize, f64)>>,
    in_one: Vec<bool>,
    size_one: usize,
    cut: f64,
}

impl<'a> Halves<'a> {
    /// Grows one part from a seed up to half of the hosts, always by the host with the least increase of the cut.
    fn grown(divider: &'a Divider<'a>, hosts: &[u32], seed: usize) -> Self {
        let position: std::collections::BTreeMap<u32, usize> =
            hosts.iter().enumerate().map(|(number, host)| (*host, number)).collect();
        let near = |host: &u32| {
            let all = divider.graph.neighbours[*host as usize].iter();
            all.filter_map(|(other, bytes)| Some((*position.get(other)?, *bytes))).collect::<Vec<_>>()
        };
        let neighbours: Vec<_> = hosts.iter().map(near).collect();
        let mut halves = Self { divider, neighbours, in_one: vec![false; hosts.len()], size_one: 0, cut: 0.0 };
        halves.flip(seed);
        while halves.size_one < hosts.len() / 2 {
            let outside = (0..hosts.len()).filter(|host| !halves.in_one[*host]);
            let next = outside.min_by(|one, other| halves.cut_change(*one).total_cmp(&halves.cut_change(*other)));
            halves.flip(next.expect("half of the hosts are outside"));
        }
        halves
    }

    /// Change of the bytes between the parts if this host changes sides.
    fn cut_change(&self, host: usize) -> f64 {
        let change =
            |(other, bytes): &(usize, f64)| if self.in_one[*other] == self.in_one[host] { *bytes } else { -bytes };
        self.neighbours[host].iter().map(change).sum()
    }

    fn flip(&mut self, host: usize) {
        self.cut += self.cut_change(host);
        self.in_one[host] = !self.in_one[host];
        if self.in_one[host] { self.size_one += 1 } else { self.size_one -= 1 }
    }

    fn cost_of(&self, cut: f64, size_one: usize) -> f64 {
        let size_other = self.in_one.len() - size_one;
        self.divider.log_cost(cut) + self.divider.restart_cost(size_one) + self.divider.restart_cost(size_other)
    }

    fn cost(&self) -> f64 {
        self.cost_of(self.cut, self.size_one)
    }

    fn may_flip(&self, host: usize) -> bool {
        let size = if self.in_one[host] { self.size_one } else { self.in_one.len() - self.size_one };
        size > self.divider.least()
    }

    /// Passes in which each host moves once, the best move first even if it raises the cost. Moves after the cheapest
    /// state are undone.
    fn refine(&mut self) {
        for _ in 0..ROUND_COUNT_MAX {
            let before = self.cost();
            let mut best = (before, 0);
            let mut moves = Vec::new();
            let mut is_free = vec![true; self.in_one.len()];
            loop {
                let after = |host: usize| {
                    let size = if self.in_one[host] { self.size_one - 1 } else { self.size_one + 1 };
                    self.cost_of(self.cut + self.cut_change(host), size)
                };
                let free = (0..is_free.len()).filter(|host| is_free[*host] && self.may_flip(*host));
                let next = free.map(|host| (after(host), host)).min_by(|one, other| one.0.total_cmp(&other.0));
                let Some((cost, host)) = next else { break };
                self.flip(host);
                is_free[host] = false;
                moves.push(host);
                if cost < best.0 - 1e-15 {
                    best = (cost, moves.len());
                }
                // In a large graph, long sequences of worsening moves lead nowhere.
                if moves.len() > best.1 + 32 {
                    break;
                }
            }
            moves[best.1..].iter().rev().for_each(|host| self.flip(*host));
            if best.1 == 0 {
                break;
            }
        }
    }
}
