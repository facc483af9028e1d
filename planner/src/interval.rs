//! How much work to do between two checkpoints, and how long a job with checkpoints takes.

/// Work between checkpoints, by Daly's first order: `sqrt(2 M d) - d` (thesis on FTM, section 3.3.2 and eq. 6.1).
///
/// `mtti` is the mean time between interruptions of the whole job, `checkpoint` the time one checkpoint takes. The
/// result is not positive when a checkpoint takes twice the MTTI or more: then no interval helps.
#[must_use]
pub fn daly_first_order(mtti: f64, checkpoint: f64) -> f64 {
    (2.0 * mtti * checkpoint).sqrt() - checkpoint
}

/// Work between checkpoints, by Daly's higher order. It is the MTTI when a checkpoint takes twice the MTTI or more.
#[must_use]
pub fn daly_higher_order(mtti: f64, checkpoint: f64) -> f64 {
    if checkpoint >= 2.0 * mtti {
        return mtti;
    }
    let share = checkpoint / (2.0 * mtti);
    (2.0 * checkpoint * mtti).sqrt() * (1.0 + share.sqrt() / 3.0 + share / 9.0) - checkpoint
}

/// Work between checkpoints, by Fialho (thesis on FTM, eq. 5.15).
///
/// `dependency` is how many processes roll back when one does: 1 if all do. `log_time` is the time a message log takes
/// to process: 0 with coordinated checkpoints.
#[must_use]
pub fn fialho(mtti: f64, checkpoint: f64, dependency: f64, log_time: f64) -> f64 {
    (dependency * checkpoint * (2.0 * mtti - checkpoint - 2.0 * log_time)).sqrt() / dependency - checkpoint
}

/// A job that saves its state every so often and returns to the last one when it is interrupted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Checkpoints {
    /// Work between two checkpoints.
    pub interval: f64,
    /// Time that one checkpoint takes.
    pub checkpoint: f64,
    /// Time from an interruption until work goes on from the last checkpoint.
    pub restart: f64,
}

impl Checkpoints {
    /// Expected time of `work` by Daly's complete model: interruptions are Poisson with mean distance `mtti` and may
    /// hit checkpoints and restarts too. Every interval ends with a checkpoint, also the last.
    #[must_use]
    pub fn time_complete(&self, work: f64, mtti: f64) -> f64 {
        segment(self.interval + self.checkpoint, self.restart, mtti) * work / self.interval
    }

    /// The same for whole intervals and a shorter last one, with no checkpoint at the end.
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

/// Expected time until `length` passes without an interruption, when each costs `restart`, which may be interrupted
/// itself: `M e^(R/M) (e^(length/M) - 1)`. Exact for Poisson interruptions.
#[must_use]
pub fn segment(length: f64, restart: f64, mtti: f64) -> f64 {
    if mtti.is_infinite() {
        return length;
    }
    mtti * (restart / mtti).exp() * (length / mtti).exp_m1()
}
