//! A job whose lost replicas are replaced by clones while it stands still (thesis on DINO, section 3.7.2).
//!
//! redrt does not stop the job while it clones: [`crate::policy`] has that model. Both ignore nothing but the loss of a
//! whole sphere, which [`crate::policy`] adds.

/// Replicas on nodes of their own, one unit of time for all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cloning {
    /// Virtual ranks n: there are n·r nodes.
    pub ranks: f64,
    /// Replicas of each, r.
    pub degree: f64,
    /// Mean time to failure of a node, θ.
    pub mttf: f64,
    /// Time that one recovery takes, t_clone.
    pub clone: f64,
}

impl Cloning {
    /// Failures in a unit of time: n·r/θ.
    #[must_use]
    pub fn failure_rate(&self) -> f64 {
        self.ranks * self.degree / self.mttf
    }

    /// Time with recoveries, of a run that takes `redundant` without (eq. 3.7). Infinite when failures come faster than
    /// clones are made.
    #[must_use]
    pub fn time(&self, redundant: f64) -> f64 {
        let working = 1.0 - self.failure_rate() * self.clone;
        if working > 0.0 { redundant / working } else { f64::INFINITY }
    }

    /// Failures n_f in that time (eq. 3.6), which is the number of spare nodes that are used.
    #[must_use]
    pub fn failures(&self, redundant: f64) -> f64 {
        self.time(redundant) * self.failure_rate()
    }

    /// Spare nodes that are needed if what fails stays away.
    #[must_use]
    pub fn spares(&self, redundant: f64) -> f64 {
        self.failures(redundant).ceil()
    }

    /// Spare nodes that are needed if what fails is back, as a spare, after `mttr` (section 3.9.1): those of all the
    /// run, spread over the whole repair times in it. A run shorter than one repair needs them all.
    #[must_use]
    pub fn spares_with_repair(&self, redundant: f64, mttr: f64) -> f64 {
        let repairs = (self.time(redundant) / mttr).floor().max(1.0);
        (self.spares(redundant) / repairs).ceil()
    }
}

/// Terms of Poisson's distribution are summed up to this mean.
const SUMMED_MAX: f64 = 1e5;

/// Spares such that they suffice with probability `confidence`, when `failures` are expected until one is back, or the
/// job ends: a quantile of Poisson's distribution. (The published sizes are means: they are exceeded in about half of
/// the runs.)
#[must_use]
pub fn spares_with_confidence(failures: f64, confidence: f64) -> u64 {
    if failures > SUMMED_MAX {
        // Chernoff's bound, which at this size is hardly more than the quantile.
        let log = -(1.0 - confidence).ln();
        return (failures + (2.0 * failures * log).sqrt() + log).ceil() as u64;
    }
    let mut log_term = -failures;
    let mut sum = log_term.exp();
    let mut count = 0;
    // Beyond ten standard deviations nothing is left to add, whatever rounding has lost.
    let count_max = (failures + 10.0 * failures.sqrt() + 100.0) as u64;
    while sum < confidence && count < count_max {
        count += 1;
        log_term += (failures / count as f64).ln();
        sum += log_term.exp();
    }
    count
}
