//! What is known of the hosts of a site: how long jobs had them, and how often they were lost.

use serde::{Deserialize, Serialize};

/// How one host of a site has fared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its name.
    pub host: String,
    /// Hours in which jobs had it.
    pub hours: f64,
    /// Times that it lost replicas; those lost together count once.
    pub losses: u32,
    /// Whether it was found to corrupt data.
    pub is_sick: bool,
}

/// Mean time to failure of a host, from what was seen.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mtbf {
    /// Hours in all.
    pub hours: f64,
    /// Losses in all.
    pub losses: u32,
    /// The estimate, hours over losses. Without a loss, the lower bound.
    pub estimate_h: f64,
    /// What it is more than, with 95 % confidence.
    pub low_h: f64,
}

impl Mtbf {
    /// From the facts of all hosts. `None` if nothing was seen.
    #[must_use]
    pub fn new(hosts: &[HostFacts]) -> Option<Self> {
        let hours: f64 = hosts.iter().map(|host| host.hours).sum();
        let losses: u32 = hosts.iter().map(|host| host.losses).sum();
        let low_h = hours / losses_max(losses);
        let estimate_h = if losses == 0 { low_h } else { hours / f64::from(losses) };
        (hours > 0.0).then_some(Self { hours, losses, estimate_h, low_h })
    }
}

/// The mean of Poisson's distribution for which so few or fewer are seen in 5 % of all cases.
fn losses_max(seen: u32) -> f64 {
    let (mut low, mut high) = (f64::from(seen), 2.0 * f64::from(seen) + 10.0);
    for _ in 0..100 {
        let mean = f64::midpoint(low, high);
        // In logarithms, for the first terms are too small for anything else.
        let mut log_term = -mean;
        let mut sum = log_term.exp();
        for count in 1..=seen {
            log_term += (mean / f64::from(count)).ln();
            sum += log_term.exp();
        }
        if sum > 0.05 { low = mean } else { high = mean }
    }
    high
}
