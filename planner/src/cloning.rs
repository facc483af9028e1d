//! A job that stops while clones replace its lost replicas (thesis on DINO, section 3.7.2).
//!
//! redrt does not stop the job while it clones: [`crate::policy`] models that. The only effect missing here is the loss
//! of a whole sphere, which [`crate::policy`] adds.

/// Replicas on nodes of their own. All times in one unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cloning {
    /// Number of virtual ranks n; the job has n·r nodes.
    pub ranks: f64,
    /// Number of replicas of each rank, r.
    pub degree: f64,
    /// Mean time to failure of a node, θ.
    pub mttf: f64,
    /// Time of one recovery, t_clone.
    pub clone: f64,
}

impl Cloning {
    /// Failures in one unit of time: n·r/θ.
    #[must_use]
    pub fn failure_rate(&self) -> f64 {
        self.ranks * self.degree / self.mttf
    }

    /// Time with recoveries of a run that takes `redundant` without (eq. 3.7). Infinite if failures come faster than
    /// clones are made.
    #[must_use]
    pub fn time(&self, redundant: f64) -> f64 {
        let working = 1.0 - self.failure_rate() * self.clone;
        if working > 0.0 { redundant / working } else { f64::INFINITY }
    }

    /// Number of failures n_f in that time (eq. 3.6), which is the number of spare nodes used.
    #[must_use]
    pub fn failures(&self, redundant: f64) -> f64 {
        self.time(redundant) * self.failure_rate()
    }

    /// Number of spare nodes needed if failed ones are not repaired.
    #[must_use]
    pub fn spares(&self, redundant: f64) -> f64 {
        self.failures(redundant).ceil()
    }

    /// Number of spare nodes needed if failed ones return as spares after `mttr` (section 3.9.1): those for the whole
    /// run, divided by the number of complete repair times in it. A run shorter than one repair needs all of them.
    #[must_use]
    pub fn spares_with_repair(&self, redundant: f64, mttr: f64) -> f64 {
        let repairs = (self.time(redundant) / mttr).floor().max(1.0);
        (self.spares(redundant) / repairs).ceil()
    }
}

/// Largest mean for which terms of the Poisson distribution are summed.
const SUMMED_MAX: f64 = 1e5;

/// Number of spares that suffices with probability `confidence`: a quantile of the Poisson distribution. `failures` is
/// the expected number until one is repaired, or until the job ends. (The published sizes are means, which about half
/// of the runs exceed.)
#[must_use]
pub fn spares_with_confidence(failures: f64, confidence: f64) -> u64 {
    if failures > SUMMED_MAX {
        // Chernoff's bound, which is close to the quantile at this size.
        let log = -(1.0 - confidence).ln();
        return (failures + (2.0 * failures * log).sqrt() + log).ceil() as u64;
    }
    let mut log_term = -failures;
    let mut sum = log_term.exp();
    let mut count = 0;
    // Ten standard deviations bound the sum, in case rounding keeps it below `confidence`.
    let count_max = (failures + 10.0 * failures.sqrt() + 100.0) as u64;
    while sum < confidence && count < count_max {
        count += 1;
        log_term += (failures / count as f64).ln();
        sum += log_term.exp();
    }
    count
}
