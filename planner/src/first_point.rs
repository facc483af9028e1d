//! First Protection Point: the share of a run before which a checkpoint costs more than starting again would.
//!
//! It concerns the first failure only, which is uniform over the run (thesis on FTM, section 5.2). Shares are of
//! *progress*, not of time on the clock: a run that is protected reaches half of its work at half of its own, longer,
//! time.

use crate::Version;

/// What a run without and one with protection were measured to take. One unit of time for all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FirstPoint {
    /// Time of the run without protection.
    pub work: f64,
    /// Work between checkpoints.
    pub interval: f64,
    /// Time from a failure until work goes on from a checkpoint.
    pub restart: f64,
    /// Share of an interval that is lost by a failure: 0.5 if nothing is known.
    pub lost_share: f64,
    /// Time until a run without protection is started again.
    pub relaunch: f64,
}

/// Overhead of protection as a share of the run's time (eq. 5.2).
#[must_use]
pub fn overhead(work: f64, protected: f64) -> f64 {
    (protected - work) / work
}

impl FirstPoint {
    /// Share k from which on protection pays, with uncoordinated checkpoints, whose overhead is a share of the run (eq.
    /// 5.5).
    #[must_use]
    pub fn uncoordinated(&self, overhead: f64) -> f64 {
        let lost = self.lost_share * self.interval + self.restart;
        (lost + overhead * self.work - self.relaunch) / ((1.0 + overhead) * self.work)
    }

    /// The same with coordinated checkpoints, each of which takes `checkpoint` (eq. 5.9).
    ///
    /// As published, the denominator has the interval and 1 in place of the interval and the checkpoint: it begins to
    /// protect too late.
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

    /// Time that remains after a failure at share `done` of a run with coordinated checkpoints (eq. 5.8). At the
    /// corrected k it is the time of starting again.
    #[must_use]
    pub fn remaining(&self, checkpoint: f64, done: f64) -> f64 {
        let left = (1.0 - done) * self.work;
        self.lost_share * self.interval + self.restart + (left / self.interval - 1.0) * checkpoint + left
    }
}
