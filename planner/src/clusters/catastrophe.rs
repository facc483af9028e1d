//! Probability that a failure of hosts takes more members of an encoding group than its code can restore.

use super::Layout;
use super::groups::Clustering;
use std::collections::BTreeMap;

/// Distribution of the number of hosts that fail at once, given a failure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FailureLaw {
    /// Probability of exactly one host.
    pub one: f64,
    /// Factor of the probability of f ≥ 2 hosts, `scale · ratio^-f`.
    pub scale: f64,
    /// Factor by which each further host makes a failure rarer.
    pub ratio: f64,
}

impl Default for FailureLaw {
    /// 0.95 for one host and `0.5 · 10^-f` for more; the rest are failures without loss of a host. Inferred from the
    /// results of the paper on FTI and HydEE, all four of which it reproduces.
    fn default() -> Self {
        Self { one: 0.95, scale: 0.5, ratio: 10.0 }
    }
}

/// Most hosts failing at once that are summed: the rest contributes less than 10⁻²⁹.
const HOSTS_AT_ONCE_MAX: u32 = 30;

impl FailureLaw {
    /// Probability that exactly `hosts` hosts fail at once.
    #[must_use]
    pub fn probability(&self, hosts: u32) -> f64 {
        match hosts {
            0 => 0.0,
            1 => self.one,
            more => self.scale * self.ratio.powi(-(more as i32)),
        }
    }

    /// Probability that a failure is fatal to some group, whose code restores half of its members, rounded down.
    ///
    /// Groups on the same hosts are lost together. Probabilities of different groups are added (the union bound), which
    /// is exact as long as no two are lost at once.
    #[must_use]
    pub fn catastrophe(&self, clustering: &Clustering, layout: &Layout) -> f64 {
        // Sets of hosts with the same size and tolerance have the same probability.
        let mut alike = BTreeMap::<(u32, u32), std::collections::BTreeSet<Vec<u32>>>::new();
        for group in &clustering.groups {
            let mut members = BTreeMap::<u32, u32>::new();
            group.iter().for_each(|rank| *members.entry(layout.host(*rank)).or_default() += 1);
            let key = (members.len() as u32, hosts_tolerated(members.values().copied(), group.len() as u32 / 2));
            alike.entry(key).or_default().insert(members.into_keys().collect());
        }
        let hosts = layout.host_count();
        (1..=HOSTS_AT_ONCE_MAX.min(hosts))
            .map(|failed| {
                let groups = alike
                    .iter()
                    .map(|((size, tolerated), sets)| sets.len() as f64 * more_than(*tolerated, *size, hosts, failed));
                self.probability(failed) * groups.sum::<f64>().min(1.0)
            })
            .sum()
    }
}

/// Number of hosts that a group can lose, whichever they are, if it can lose `tolerance` members.
fn hosts_tolerated(members: impl Iterator<Item = u32>, tolerance: u32) -> u32 {
    let mut members: Vec<_> = members.collect();
    members.sort_unstable_by(|one, other| other.cmp(one));
    let mut lost = 0;
    let is_tolerated = |count: &&u32| {
        lost += **count;
        lost <= tolerance
    };
    members.iter().take_while(is_tolerated).count() as u32
}

/// Hypergeometric probability that, of `failed` among `hosts` hosts, more than `tolerated` are among the `size` hosts
/// of a group.
fn more_than(tolerated: u32, size: u32, hosts: u32, failed: u32) -> f64 {
    let hits = tolerated + 1..=size.min(failed);
    let ways = hits.filter(|hits| failed - hits <= hosts - size);
    let log = |hits: u32| log_choose(size, hits) + log_choose(hosts - size, failed - hits) - log_choose(hosts, failed);
    ways.map(|hits| log(hits).exp()).sum()
}

fn log_choose(of: u32, choose: u32) -> f64 {
    (1..=choose).map(|number| (f64::from(of - choose + number) / f64::from(number)).ln()).sum()
}
