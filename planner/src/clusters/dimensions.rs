//! Quality of a clustering in four quantities, and the clusterings on the Pareto front.

use super::catastrophe::FailureLaw;
use super::groups::Clustering;
use super::partition::{Weights, partition};
use super::{HostGraph, Layout, Traffic};
use serde::Serialize;
use std::collections::BTreeSet;

/// Four quantities of a clustering; less is better in each.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Dimensions {
    /// Fraction of bytes sent between clusters, which are logged.
    pub logged: f64,
    /// Fraction of ranks that restart when one host fails, as mean over the hosts.
    pub restarted: f64,
    /// Seconds to encode a gigabyte.
    pub encode_s_per_gb: f64,
    /// Probability that a failure loses data.
    pub catastrophe: f64,
}

impl Dimensions {
    /// Requirements of the paper: 20 % logged, 20 % restarted, a minute to encode a gigabyte, and at most one failure
    /// in a thousand that loses data ("several thousand").
    pub const BASELINE: Self = Self { logged: 0.2, restarted: 0.2, encode_s_per_gb: 60.0, catastrophe: 1e-3 };

    /// The quantities, in the order of the fields.
    #[must_use]
    pub fn values(&self) -> [f64; 4] {
        [self.logged, self.restarted, self.encode_s_per_gb, self.catastrophe]
    }

    /// Returns true if all four quantities are at most those of `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.values().iter().zip(other.values()).all(|(own, other)| *own <= other)
    }

    /// Distances from the centre of a radar chart, where 1 is the baseline. Fractions and time are relative to it. For
    /// the probability, orders of magnitude from 10⁻¹⁵ on are.
    #[must_use]
    pub fn radar(&self, baseline: &Self) -> [f64; 4] {
        let orders = |probability: f64| (probability.max(1e-15).log10() + 15.0).max(0.0);
        let [logged, restarted, encode, catastrophe] = self.values();
        [
            logged / baseline.logged,
            restarted / baseline.restarted,
            encode / baseline.encode_s_per_gb,
            orders(catastrophe) / orders(baseline.catastrophe),
        ]
    }
}

/// Input for judging clusterings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Judge<'a> {
    /// Communication matrix of the job.
    pub traffic: &'a Traffic,
    /// Placement of ranks on hosts and racks.
    pub layout: &'a Layout,
    /// Distribution of failing hosts.
    pub law: FailureLaw,
    /// Seconds to encode a gigabyte, for each member of a group: 6.375 on the paper's machine.
    pub encode_s_per_gb_member: f64,
}

/// Seconds for a gigabyte and member in the paper on FTI and HydEE.
pub const PUBLISHED_ENCODE_S: f64 = 6.375;

/// A clustering with a name, for tables.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Candidate {
    /// Description of the clustering.
    pub name: String,
    /// Its four quantities, for comparison.
    pub dimensions: Dimensions,
    /// Number of its clusters.
    pub clusters: usize,
    /// Clusters and groups of ranks; left out of reports.
    #[serde(skip)]
    pub clustering: Clustering,
}

impl Judge<'_> {
    /// Computes the four quantities of a clustering.
    #[must_use]
    pub fn dimensions(&self, clustering: &Clustering) -> Dimensions {
        Dimensions {
            logged: self.logged(clustering),
            restarted: self.restarted(clustering),
            encode_s_per_gb: self.encode_s_per_gb_member * f64::from(clustering.group_size_max()),
            catastrophe: self.law.catastrophe(clustering, self.layout),
        }
    }

    fn logged(&self, clustering: &Clustering) -> f64 {
        let cluster = |rank: u32| clustering.cluster_of_rank[rank as usize];
        let between = self.traffic.pairs.iter().filter(|(from, to, _)| cluster(*from) != cluster(*to));
        let total = self.traffic.total();
        if total > 0.0 { between.map(|(.., bytes)| bytes).sum::<f64>() / total } else { 0.0 }
    }

    fn restarted(&self, clustering: &Clustering) -> f64 {
        let count = clustering.cluster_of_rank.iter().max().map_or(0, |last| *last as usize + 1);
        let mut sizes = vec![0_u32; count];
        clustering.cluster_of_rank.iter().for_each(|cluster| sizes[*cluster as usize] += 1);
        let of_host = |ranks: &[u32]| {
            let clusters: BTreeSet<_> = ranks.iter().collect();
            clusters.into_iter().map(|cluster| f64::from(sizes[*cluster as usize])).sum::<f64>()
        };
        let hosts = clustering.cluster_of_rank.chunks(self.layout.per_host as usize);
        let ranks = clustering.cluster_of_rank.len() as f64;
        hosts.map(of_host).sum::<f64>() / f64::from(self.layout.host_count()) / ranks
    }

    fn candidate(&self, name: String, clustering: Clustering) -> Candidate {
        let clusters = clustering.cluster_of_rank.iter().collect::<BTreeSet<_>>().len();
        Candidate { name, dimensions: self.dimensions(&clustering), clusters, clustering }
    }

    /// Clusterings of several kinds that fit the layout: those of the paper for comparison, and hierarchical ones with
    /// weights from avoiding logs to avoiding restarts.
    #[must_use]
    pub fn candidates(&self, hosts_min: u32) -> Vec<Candidate> {
        let ranks = self.layout.rank_count();
        let fits = |size: &u32| *size <= ranks && ranks.is_multiple_of(*size);
        let mut candidates: Vec<_> = [8, 32]
            .into_iter()
            .filter(fits)
            .map(|size| self.candidate(format!("consecutive {size}"), Clustering::consecutive(ranks, size)))
            .collect();
        for size in [4, 8, 16].into_iter().filter(|size| *size <= self.layout.host_count()) {
            candidates.push(self.candidate(format!("distributed {size}"), Clustering::distributed(self.layout, size)));
        }
        let graph = HostGraph::new(self.traffic, self.layout);
        let mut seen = BTreeSet::new();
        for power in -8..=8 {
            let weights = Weights { logged: 1.0, restarted: 2.0_f64.powi(power), hosts_min };
            let clusters = partition(&graph, weights);
            if !seen.insert(clusters.clone()) {
                continue;
            }
            let sizes = || clusters.iter().map(Vec::len);
            let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
            let hosts = if least == most { least.to_string() } else { format!("{least} to {most}") };
            for group in [4, 8].into_iter().filter(|group| *group as usize <= least.max(4)) {
                let clustering = Clustering::hierarchical(self.layout, &clusters, group);
                let name = format!("hierarchical, {hosts} hosts, groups of {}", clustering.group_size_max());
                candidates.push(self.candidate(name, clustering));
            }
        }
        candidates
    }
}

/// Pareto front, by ascending fraction of logged bytes: clusterings that no other equals in all quantities and beats in
/// one.
#[must_use]
pub fn front(candidates: &[Candidate]) -> Vec<&Candidate> {
    let beats = |one: &Dimensions, other: &Dimensions| one.is_within(other) && one != other;
    let is_beaten = |of: &Candidate| candidates.iter().any(|one| beats(&one.dimensions, &of.dimensions));
    let mut front: Vec<_> = candidates.iter().filter(|of| !is_beaten(of)).collect();
    front.sort_by(|one, other| one.dimensions.logged.total_cmp(&other.dimensions.logged));
    front.dedup_by(|one, other| one.dimensions == other.dimensions);
    front
}

/// The best candidate: within the baseline in all quantities if possible; among those, the one with the least sum of
/// distances in the radar chart.
#[must_use]
pub fn best<'a>(candidates: &[&'a Candidate], baseline: &Dimensions) -> Option<&'a Candidate> {
    let score = |of: &Dimensions| {
        let sum: f64 = of.radar(baseline).iter().sum();
        (!of.is_within(baseline), sum)
    };
    let order = |one: &&&Candidate, other: &&&Candidate| {
        let ((out_one, sum_one), (out_other, sum_other)) = (score(&one.dimensions), score(&other.dimensions));
        out_one.cmp(&out_other).then(sum_one.total_cmp(&sum_other))
    };
    candidates.iter().min_by(order).copied()
}
