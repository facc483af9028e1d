//! Spheres of any degrees whose nodes fail with exponential lifetimes and are not replaced: survival, and mean time to
//! the first loss of a sphere, exactly. Partial replication (thesis on DINO, figure 3.1) is the case of degrees 1 and
//! 2.

use crate::interval::{Checkpoints, daly_higher_order};

/// Number of spheres of each degree.
#[derive(Clone, PartialEq, Debug)]
pub struct Spheres {
    /// Degree and how many have it.
    pub counts: Vec<(u32, f64)>,
    /// Mean time to failure of a node.
    pub mttf: f64,
}

/// Parts of Simpson's rule; even.
const PART_COUNT: u32 = 4096;

impl Spheres {
    /// All of one degree.
    #[must_use]
    pub fn uniform(count: f64, degree: u32, mttf: f64) -> Self {
        Self { counts: vec![(degree, count)], mttf }
    }

    /// `count` spheres, a share of which has two nodes and the others one.
    #[must_use]
    pub fn partly_doubled(count: f64, share: f64, mttf: f64) -> Self {
        let doubled = (count * share).round();
        Self { counts: vec![(1, count - doubled), (2, doubled)], mttf }
    }

    /// Nodes in all.
    #[must_use]
    pub fn node_count(&self) -> f64 {
        self.counts.iter().map(|(degree, count)| f64::from(*degree) * count).sum()
    }

    /// Probability that every sphere has a node left after `time`.
    #[must_use]
    pub fn survival(&self, time: f64) -> f64 {
        let lost = -(-time / self.mttf).exp_m1();
        // None of a kind times a survival of 0 would not be a number.
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

    /// Mean of the time until a sphere is lost or `end`, whichever comes first.
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

    /// Expected time of `work` that starts again from its beginning, with all nodes, `relaunch` after a sphere is lost.
    /// Exact, where [`crate::sphere::duda`] takes the mean failure rate for a constant one. Nothing fails while it is
    /// launched.
    #[must_use]
    pub fn time_from_scratch(&self, work: f64, relaunch: f64) -> f64 {
        let done = self.survival(work);
        (self.mean_time_within(work) + (1.0 - done) * relaunch) / done
    }

    /// Expected time of a job that returns to its last checkpoint when a sphere is lost, over that of its work; with
    /// Daly's complete model and interval, for this set's MTTI (figure 3.1).
    #[must_use]
    pub fn checkpointed_stretch(&self, checkpoint: f64, restart: f64) -> f64 {
        let mtti = self.mtti();
        let interval = daly_higher_order(mtti, checkpoint);
        Checkpoints { interval, checkpoint, restart }.time_complete(1.0, mtti)
    }
}
