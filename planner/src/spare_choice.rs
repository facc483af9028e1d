//! Spare Node Configuration: the fraction of a run from which on continuing with fewer nodes ends sooner than waiting
//! for a spare (thesis on FTM, section 5.3.2).

/// Measured times of a program on a machine. All in one unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpareChoice {
    /// Time of the run without protection and without failure.
    pub work: f64,
    /// Overhead of protection, as a fraction of `work`.
    pub overhead: f64,
    /// Ratio of the time on the remaining nodes to that on all, both protected: at least 1. (Eq. 5.10 prints the
    /// inverse.)
    pub slowdown: f64,
    /// Fraction of an interval that a failure loses.
    pub lost_share: f64,
    /// Work between two checkpoints.
    pub interval: f64,
    /// Time until the remaining nodes continue.
    pub restart_remaining: f64,
    /// Time until a spare node is usable and has the state, including its provisioning if necessary.
    pub copy_to_spare: f64,
    /// Time until the spare continues.
    pub restart_spare: f64,
}

impl SpareChoice {
    /// Remaining time with a spare, after a failure at fraction `done` of the progress (eq. 5.12).
    #[must_use]
    pub fn with_spare(&self, done: f64) -> f64 {
        let left = (1.0 - done) * (1.0 + self.overhead) * self.work;
        self.lost_share * self.interval + self.copy_to_spare + self.restart_spare + left
    }

    /// Remaining time on the remaining nodes (eq. 5.13).
    #[must_use]
    pub fn without_spare(&self, done: f64) -> f64 {
        let left = (1.0 - done) * (1.0 + self.overhead) * self.work;
        self.slowdown * (self.lost_share * self.interval + left) + self.restart_remaining
    }

    /// Fraction s of the progress from which on the remaining nodes end sooner (eq. 5.14). At 1 or more a spare is
    /// always better; at 0 or less, never.
    #[must_use]
    pub fn point(&self) -> f64 {
        let slower = self.slowdown - 1.0;
        let cost = self.restart_remaining - self.copy_to_spare - self.restart_spare;
        if slower <= 0.0 {
            return if cost < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
        }
        1.0 + (self.lost_share * self.interval * slower + cost) / (self.work * (1.0 + self.overhead) * slower)
    }
}
