//! Time of a job at redundancy r, from a profile of the run without (thesis on DINO, section 3.7.1).

/// Time in MPI of an unreplicated run, by kind of call; one unit of time, means over the ranks.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CallTimes {
    /// The whole run.
    pub application: f64,
    /// All MPI calls.
    pub mpi: f64,
    /// Blocking sends.
    pub send: f64,
    /// Nonblocking sends.
    pub isend: f64,
    /// Blocking receives.
    pub recv: f64,
    /// Nonblocking receives.
    pub irecv: f64,
    /// Waits and tests.
    pub wait: f64,
}

impl CallTimes {
    /// How waiting is divided between sends and receives, (C1, C2) of eq. 3.1 and 3.2.
    #[must_use]
    pub fn wait_shares(&self) -> (f64, f64) {
        match (self.isend > 0.0, self.irecv > 0.0) {
            (true, true) => (0.5, 0.5),
            (true, false) => (1.0, 0.0),
            (false, true) => (0.0, 1.0),
            (false, false) => (0.0, 0.0),
        }
    }

    /// Share of MPI time that sending takes (eq. 3.1).
    #[must_use]
    pub fn send_share(&self) -> f64 {
        share(self.send + self.isend + self.wait_shares().0 * self.wait, self.mpi)
    }

    /// Share of MPI time that receiving takes (eq. 3.2).
    #[must_use]
    pub fn receive_share(&self) -> f64 {
        share(self.recv + self.irecv + self.wait_shares().1 * self.wait, self.mpi)
    }

    /// Share of the run that each replica more adds to it (eq. 3.3).
    #[must_use]
    pub fn beta(&self) -> f64 {
        beta(self.send_share(), self.receive_share(), share(self.mpi, self.application))
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Serial share of communication β, from the shares of MPI time in sending and receiving and the share α of the run in
/// MPI (eq. 3.3).
#[must_use]
pub fn beta(send_share: f64, receive_share: f64, mpi_share: f64) -> f64 {
    send_share.min(receive_share) * mpi_share
}

/// Time at `degree`, which may be fractional, from that of the run without redundancy (eq. 3.4).
#[must_use]
pub fn redundant_time(work: f64, beta: f64, degree: f64) -> f64 {
    beta * work * degree + (1.0 - beta) * work
}

/// β that a measured pair of times has: the inverse of [`redundant_time`].
#[must_use]
pub fn measured_beta(work: f64, redundant: f64, degree: f64) -> f64 {
    (redundant / work - 1.0) / (degree - 1.0)
}
