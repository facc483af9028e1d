//! Spheres of arbitrary degrees without repair, whose nodes have exponential lifetimes: exact survival, and mean time
//! to the first loss of a sphere. Partial replication (thesis on DINO, figure 3.1) is the case of degrees 1 and 2.

use crate::interval::{Checkpoints, daly_higher_order};

/// Numbers of spheres by degree.
#[derive(Clone, PartialEq, Debug)]
pub struct Spheres {
    /// Pairs of degree and number of spheres.
    pub counts: Vec<(u32, f64)>,
    /// Mean time to failure of a node.
    pub mttf: f64,
}

/// Number of parts for Simpson's rule; must be even.
const PART_COUNT: u32 = 4096;

impl Spheres {
    /// Spheres that all have one degree.
    #[must_use]
    pub fn uniform(count: f64, degree: u32, mttf: f64) -> Self {
        Self { counts: vec![(degree, count)], mttf }
    }

    /// `count` spheres, a fraction of which has two nodes, and the others one.
    #[must_use]
    pub fn partly_doubled(count: f64, share: f64, mttf: f64) -> Self {
        let doubled = (count * share).round();
        Self { counts: vec![(1, count - doubled), (2, doubled)], mttf }
    }

    /// Number of nodes of all spheres.
    #[must_use]
    pub fn node_count(&self) -> f64 {
        self.counts.iter().map(|(degree, count)| f64::from(*degree) * count).sum()
    }

    /// Probability that each sphere has a live node after `time`.
    #[must_use]
    pub fn survival(&self, time: f64) -> f64 {
        let lost = -(-time / self.mttf).exp_m1();
        // Kinds without spheres are skipped: zero times the logarithm of a survival of 0 is not a number.
        let some = self.counts.iter().filter(|(_, count)| *count > 0.0);
        let log: f64 = some.map(|(degree, count)| count * (-lost.powi(*degree as i32)).ln_1p()).sum();
        log.exp()
    }

    /// Mean time until a sphere is lost: the integral of [`survival`](Self::survival).
    #[must_use]
    pub fn mtti(&self) -> f64 {
        if self.counts.iter().all(|(_, count)| *count == 0.0) {
            return f64::INFINITY;
        }
        let mut end = self.mttf;
        while self.survival(end) > 1e-18 {
            end *= 2.0;
        }
        while self.survival(end / 2.0) < 1e-18 {
            end /= 2.0;
        }
        self.mean_time_within(end)
    }

    /// Mean time until a sphere is lost, or until `end` if that comes first.
    #[must_use]
    pub fn mean_time_within(&self, end: f64) -> f64 {
        let step = end / f64::from(PART_COUNT);
        let weight = |number: u32| match number {
            0 | PART_COUNT => 1.0,
            odd if odd % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let sum: f64 = (0..=PART_COUNT).map(|number| weight(number) * self.survival(f64::from(number) * step)).sum();
        sum * step / 3.0
    }

    /// Expected time of `work` that starts over, with all nodes alive, `relaunch` after each loss of a sphere. Exact,
    /// where [`crate::sphere::duda`] assumes a constant failure rate. No failures occur during the relaunch.
    #[must_use]
    pub fn time_from_scratch(&self, work: f64, relaunch: f64) -> f64 {
        let done = self.survival(work);
        (self.mean_time_within(work) + (1.0 - done) * relaunch) / done
    }

    /// Expected time relative to the work, of a job that returns to its last checkpoint when a sphere is lost. Uses
    /// Daly's complete model and interval, with the MTTI of these spheres (figure 3.1).
    #[must_use]
    pub fn checkpointed_stretch(&self, checkpoint: f64, restart: f64) -> f64 {
        let mtti = self.mtti();
        let interval = daly_higher_order(mtti, checkpoint);
        Checkpoints { interval, checkpoint, restart }.time_complete(1.0, mtti)
    }
}
