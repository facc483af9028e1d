//! Throughput of a machine: node time, energy, and jobs in a given time.

/// One way to run a job on a machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    /// Time that the job takes.
    pub time: f64,
    /// Number of nodes that it occupies, spares included.
    pub nodes: f64,
}

impl Use {
    /// Node time of the job: time multiplied by nodes.
    #[must_use]
    pub fn node_time(&self) -> f64 {
        self.time * self.nodes
    }

    /// Energy of the job, in watts multiplied by the unit of time.
    #[must_use]
    pub fn energy(&self, watts_per_node: f64) -> f64 {
        self.node_time() * watts_per_node
    }

    /// Ratio of jobs that a machine completes this way to those that it completes the `other` way (capacity in figure
    /// 3.1).
    #[must_use]
    pub fn capacity_over(&self, other: &Self) -> f64 {
        other.node_time() / self.node_time()
    }
}
