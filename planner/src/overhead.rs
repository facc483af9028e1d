//! Time of a job at redundancy r, predicted from a profile of the unreplicated run (thesis on DINO, section 3.7.1).

/// Time in MPI of an unreplicated run, by kind of call. Means over the ranks, in one unit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CallTimes {
    /// Time of the whole run.
    pub application: f64,
    /// Time in all MPI calls.
    pub mpi: f64,
    /// Time in blocking sends.
    pub send: f64,
    /// Time in nonblocking sends.
    pub isend: f64,
    /// Time in blocking receives.
    pub recv: f64,
    /// Time in nonblocking receives.
    pub irecv: f64,
    /// Time in waits and tests.
    pub wait: f64,
}

impl CallTimes {
    /// Division of waiting between sends and receives: (C1, C2) of eq. 3.1 and 3.2.
    #[must_use]
    pub fn wait_shares(&self) -> (f64, f64) {
        match (self.isend > 0.0, self.irecv > 0.0) {
            (true, true) => (0.5, 0.5),
            (true, false) => (1.0, 0.0),
            (false, true) => (0.0, 1.0),
            (false, false) => (0.0, 0.0),
        }
    }

    /// Fraction of MPI time spent sending (eq. 3.1).
    #[must_use]
    pub fn send_share(&self) -> f64 {
        share(self.send + self.isend + self.wait_shares().0 * self.wait, self.mpi)
    }

    /// Fraction of MPI time spent receiving (eq. 3.2).
    #[must_use]
    pub fn receive_share(&self) -> f64 {
        share(self.recv + self.irecv + self.wait_shares().1 * self.wait, self.mpi)
    }

    /// Fraction of the run added by each further replica (eq. 3.3).
    #[must_use]
    pub fn beta(&self) -> f64 {
        beta(self.send_share(), self.receive_share(), share(self.mpi, self.application))
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Serial fraction of communication β, from the fractions of MPI time in sending and receiving, and the fraction α of
/// the run in MPI (eq. 3.3).
#[must_use]
pub fn beta(send_share: f64, receive_share: f64, mpi_share: f64) -> f64 {
    send_share.min(receive_share) * mpi_share
}

/// Time at `degree`, which may be fractional, from the time without redundancy (eq. 3.4).
#[must_use]
pub fn redundant_time(work: f64, beta: f64, degree: f64) -> f64 {
    beta * work * degree + (1.0 - beta) * work
}

/// β that follows from a pair of measured times: the inverse of [`redundant_time`].
#[must_use]
pub fn measured_beta(work: f64, redundant: f64, degree: f64) -> f64 {
    (redundant / work - 1.0) / (degree - 1.0)
}
