//! Optimal work between checkpoints, and the resulting time of a job.

/// Work between checkpoints by Daly's first-order formula: `sqrt(2 M d) - d` (thesis on FTM, section 3.3.2 and eq.
/// 6.1).
///
/// `mtti` is the mean time between interruptions of the whole job, `checkpoint` the time of one checkpoint. The result
/// is not positive if a checkpoint takes twice the MTTI or more: then no interval helps.
#[must_use]
pub fn daly_first_order(mtti: f64, checkpoint: f64) -> f64 {
    (2.0 * mtti * checkpoint).sqrt() - checkpoint
}

/// Work between checkpoints by Daly's higher-order formula. It equals the MTTI if a checkpoint takes twice that or
/// more.
#[must_use]
pub fn daly_higher_order(mtti: f64, checkpoint: f64) -> f64 {
    if checkpoint >= 2.0 * mtti {
        return mtti;
    }
    let share = checkpoint / (2.0 * mtti);
    (2.0 * checkpoint * mtti).sqrt() * (1.0 + share.sqrt() / 3.0 + share / 9.0) - checkpoint
}

/// Work between checkpoints by Fialho's formula (thesis on FTM, eq. 5.15).
///
/// `dependency` is the number of processes that roll back when one does: 1 if all do. `log_time` is the processing time
/// of a message log: 0 for coordinated checkpoints.
#[must_use]
pub fn fialho(mtti: f64, checkpoint: f64, dependency: f64, log_time: f64) -> f64 {
    (dependency * checkpoint * (2.0 * mtti - checkpoint - 2.0 * log_time)).sqrt() / dependency - checkpoint
}

/// A job that takes checkpoints at fixed intervals, and returns to the last one when interrupted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Checkpoints {
    /// Work between two checkpoints.
    pub interval: f64,
    /// Time that one checkpoint takes.
    pub checkpoint: f64,
    /// Time from an interruption until work continues from the last checkpoint.
    pub restart: f64,
}

impl Checkpoints {
    /// Expected time of `work` by Daly's complete model: interruptions are Poisson with mean distance `mtti`, also
    /// during checkpoints and restarts. Each interval ends with a checkpoint, including the last one.
    #[must_use]
    pub fn time_complete(&self, work: f64, mtti: f64) -> f64 {
        segment(self.interval + self.checkpoint, self.restart, mtti) * work / self.interval
    }

    /// Expected time of `work` with a shorter last interval, and without a checkpoint at the end.
    #[must_use]
    pub fn time(&self, work: f64, mtti: f64) -> f64 {
        if work <= 0.0 {
            return 0.0;
        }
        let saved = ((work / self.interval).ceil() - 1.0).max(0.0);
        let last = work - saved * self.interval;
        saved * segment(self.interval + self.checkpoint, self.restart, mtti) + segment(last, self.restart, mtti)
    }
}

/// Expected time until `length` passes without interruption, if each costs `restart`, which may itself be interrupted:
/// `M e^(R/M) (e^(length/M) - 1)`. Exact for Poisson interruptions.
#[must_use]
pub fn segment(length: f64, restart: f64, mtti: f64) -> f64 {
    if mtti.is_infinite() {
        return length;
    }
    mtti * (restart / mtti).exp() * (length / mtti).exp_m1()
}
