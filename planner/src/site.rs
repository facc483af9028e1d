//! Measured facts of the hosts of a site: hours of use, and losses.

use serde::{Deserialize, Serialize};

/// Record of one host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostFacts {
    /// Name of the host.
    pub host: String,
    /// Hours of use by jobs.
    pub hours: f64,
    /// Number of times that it lost replicas; losses at the same time count once.
    pub losses: u32,
    /// True if it was found to corrupt data.
    pub is_sick: bool,
}

/// Mean time to failure of a host, estimated from records.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mtbf {
    /// Hours of use of all hosts.
    pub hours: f64,
    /// Losses of all hosts.
    pub losses: u32,
    /// Estimate in hours: hours over losses. Without any loss, the lower bound.
    pub estimate_h: f64,
    /// Lower bound in hours, with 95 % confidence.
    pub low_h: f64,
}

impl Mtbf {
    /// Estimates from the records of all hosts. `None` without any hours.
    #[must_use]
    pub fn new(hosts: &[HostFacts]) -> Option<Self> {
        let hours: f64 = hosts.iter().map(|host| host.hours).sum();
        let losses: u32 = hosts.iter().map(|host| host.losses).sum();
        let low_h = hours / losses_max(losses);
        let estimate_h = if losses == 0 { low_h } else { hours / f64::from(losses) };
        (hours > 0.0).then_some(Self { hours, losses, estimate_h, low_h })
    }
}

/// Mean of the Poisson distribution under which `seen` or fewer events have a probability of 5 %.
fn losses_max(seen: u32) -> f64 {
    let (mut low, mut high) = (f64::from(seen), 2.0 * f64::from(seen) + 10.0);
    for _ in 0..100 {
        let mean = f64::midpoint(low, high);
        // In logarithms, because the first terms are too small for a float.
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
