//! First Protection Point: the fraction of a run before which a checkpoint costs more than starting over would.
//!
//! It concerns the first failure only, which is uniformly distributed over the run (thesis on FTM, section 5.2).
//! Fractions are of *progress*, not of elapsed time: a protected run has half of its work done at half of its own,
//! longer, time.

use crate::Version;

/// Measured times of a run with and without protection. All in one unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FirstPoint {
    /// Time of the run without protection.
    pub work: f64,
    /// Work between two checkpoints.
    pub interval: f64,
    /// Time from a failure until work continues from a checkpoint.
    pub restart: f64,
    /// Fraction of an interval that a failure loses: 0.5 if unknown.
    pub lost_share: f64,
    /// Time until a run without protection has been started again.
    pub relaunch: f64,
}

/// Overhead of protection as a fraction of the run's time (eq. 5.2).
#[must_use]
pub fn overhead(work: f64, protected: f64) -> f64 {
    (protected - work) / work
}

impl FirstPoint {
    /// Fraction k of progress from which on protection pays, for uncoordinated checkpoints, whose overhead is a
    /// fraction of the run (eq. 5.5).
    #[must_use]
    pub fn uncoordinated(&self, overhead: f64) -> f64 {
        let lost = self.lost_share * self.interval + self.restart;
        (lost + overhead * self.work - self.relaunch) / ((1.0 + overhead) * self.work)
    }

    /// The same for coordinated checkpoints, each of which takes `checkpoint` (eq. 5.9).
    ///
    /// The published denominator adds 1 to the interval, where the checkpoint time belongs, and so starts protection
    /// too late.
    #[must_use]
    pub fn coordinated(&self, checkpoint: f64, version: Version) -> f64 {
        let lost = self.lost_share * self.interval + self.restart - self.relaunch;
        let top = lost * self.interval + checkpoint * (self.work - self.interval);
        let beside = match version {
            Version::AsPublished => 1.0,
            Version::Corrected => checkpoint,
        };
        top / ((self.interval + beside) * self.work)
    }

    /// Remaining time after a failure at fraction `done` of a run with coordinated checkpoints (eq. 5.8). At the
    /// corrected k it equals the time of starting over.
    #[must_use]
    pub fn remaining(&self, checkpoint: f64, done: f64) -> f64 {
        let left = (1.0 - done) * self.work;
        self.lost_share * self.interval + self.restart + (left / self.interval - 1.0) * checkpoint + left
    }
}
