//! Spare Node Configuration: the share of a run from which on going on with fewer nodes ends sooner than waiting for a
//! spare (thesis on FTM, section 5.3.2).

/// What is known of a program on a machine. One unit of time for all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SpareChoice {
    /// Time of the run without protection and without failure.
    pub work: f64,
    /// Overhead of protection, as a share of it.
    pub overhead: f64,
    /// Time on the remaining nodes over time on all, both protected: 1 or more. (Eq. 5.10 prints the inverse.)
    pub slowdown: f64,
    /// Share of an interval that is lost by a failure.
    pub lost_share: f64,
    /// Work between checkpoints.
    pub interval: f64,
    /// Time until the remaining nodes go on.
    pub restart_remaining: f64,
    /// Time until a spare node can be used and has the state; where it has to be provided first, that too.
    pub copy_to_spare: f64,
    /// Time until the spare goes on.
    pub restart_spare: f64,
}

impl SpareChoice {
    /// Time that remains after a failure at share `done` of the progress, with a spare (eq. 5.12).
    #[must_use]
    pub fn with_spare(&self, done: f64) -> f64 {
        let left = (1.0 - done) * (1.0 + self.overhead) * self.work;
        self.lost_share * self.interval + self.copy_to_spare + self.restart_spare + left
    }

    /// The same on the remaining nodes (eq. 5.13).
    #[must_use]
    pub fn without_spare(&self, done: f64) -> f64 {
        let left = (1.0 - done) * (1.0 + self.overhead) * self.work;
        self.slowdown * (self.lost_share * self.interval + left) + self.restart_remaining
    }

    /// Share s of the progress from which on the remaining nodes end sooner (eq. 5.14). 1 or more: a spare is always
    /// better; 0 or less: never.
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
