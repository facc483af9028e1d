//! What a machine achieves: processors, energy, and jobs in a given time.

/// One way of running a job on a machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    /// Time of the job.
    pub time: f64,
    /// Nodes that it has, spares included.
    pub nodes: f64,
}

impl Use {
    /// Node time of the job.
    #[must_use]
    pub fn node_time(&self) -> f64 {
        self.time * self.nodes
    }

    /// Energy of the job, in watts times the unit of time.
    #[must_use]
    pub fn energy(&self, watts_per_node: f64) -> f64 {
        self.node_time() * watts_per_node
    }

    /// How many times the jobs a machine completes this way that it completes the other way (figure 3.1's capacity).
    #[must_use]
    pub fn capacity_over(&self, other: &Self) -> f64 {
        other.node_time() / self.node_time()
    }
}
