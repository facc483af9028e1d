//! Probability that a failure of hosts takes more members of an encoding group than its code can lose.

use super::Layout;
use super::groups::Clustering;
use std::collections::BTreeMap;

/// How many hosts fail at once, given that something fails.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FailureLaw {
    /// Probability that it is one host.
    pub one: f64,
    /// Probability of f ≥ 2 hosts, times `ratio` to the power -f.
    pub scale: f64,
    /// How many times rarer each host more makes it.
    pub ratio: f64,
}

impl Default for FailureLaw {
    /// 0.95 for one host and `0.5 · 10^-f` for more; the rest are failures without loss of a host. Inferred from the
    /// results of the paper on FTI and HydEE, all four of which it gives.
    fn default() -> Self {
        Self { one: 0.95, scale: 0.5, ratio: 10.0 }
    }
}

/// Failures of more hosts at once are not added up: what they add is below 10⁻²⁹.
const HOSTS_AT_ONCE_MAX: u32 = 30;

impl FailureLaw {
    /// Probability that exactly `hosts` fail at once.
    #[must_use]
    pub fn probability(&self, hosts: u32) -> f64 {
        match hosts {
            0 => 0.0,
            1 => self.one,
            more => self.scale * self.ratio.powi(-(more as i32)),
        }
    }

    /// Probability that a failure is one that some group does not survive, where half of a group's members, rounded
    /// down, may be lost.
    ///
    /// Groups on the same hosts are lost together. The probabilities of others are added (the union bound), which is
    /// exact as long as two are not lost at once.
    #[must_use]
    pub fn catastrophe(&self, clustering: &Clustering, layout: &Layout) -> f64 {
        // Host sets of the same size and tolerance are alike.
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

/// Hosts that a group may lose, whichever they are, when it may lose this number of members.
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

/// Probability that of `failed` hosts among `hosts` more than `tolerated` are among the `size` of a group
/// (hypergeometric).
fn more_than(tolerated: u32, size: u32, hosts: u32, failed: u32) -> f64 {
    let hits = tolerated + 1..=size.min(failed);
    let ways = hits.filter(|hits| failed - hits <= hosts - size);
    let log = |hits: u32| log_choose(size, hits) + log_choose(hosts - size, failed - hits) - log_choose(hosts, failed);
    ways.map(|hits| log(hits).exp()).sum()
}

fn log_choose(of: u32, choose: u32) -> f64 {
    (1..=choose).map(|number| (f64::from(of - choose + number) / f64::from(number)).ln()).sum()
}
