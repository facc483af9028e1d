//! How long it takes to find that a process or host has failed.

/// A process that asks all others, one after the other, in every period (paper on GASPI, section VI). Seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scan {
    /// Time from the beginning of one scan to that of the next.
    pub period: f64,
    /// Fixed part of a scan.
    pub base: f64,
    /// Time of one ping.
    pub ping: f64,
    /// Time until the ping of a process that is dead ends with an error.
    pub error: f64,
}

impl Scan {
    /// The paper's: the line through its table I, a period of 3 s, and what remains of its mean detection time.
    pub const PUBLISHED: Self = Self { period: 3.0, base: 0.003, ping: 0.000_985, error: 3.6 };

    /// Time of one scan of `nodes`.
    #[must_use]
    pub fn time(&self, nodes: f64) -> f64 {
        self.base + self.ping * nodes
    }

    /// Mean time from a failure until it is known: half a period, half a scan, and the error.
    #[must_use]
    pub fn detection_mean(&self, nodes: f64) -> f64 {
        self.period / 2.0 + self.time(nodes) / 2.0 + self.error
    }

    /// The longest.
    #[must_use]
    pub fn detection_max(&self, nodes: f64) -> f64 {
        self.period + self.time(nodes) + self.error
    }
}

/// Straight line through points by least squares: what it is at 0, and its slope.
#[must_use]
pub fn fit_line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let rise: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let run: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = rise / run;
    (mean_y - slope * mean_x, slope)
}

/// Shortest, mean and longest time from a failure until it is known, where each node leaves a stamp every `heartbeat`
/// and is dead when the last one is `timeout` old (RaaS, thesis on FTM, chapter 6).
#[must_use]
pub fn heartbeat_detection(heartbeat: f64, timeout: f64) -> (f64, f64, f64) {
    (timeout - heartbeat, timeout - heartbeat / 2.0, timeout)
}

/// Mean cost of one failure: detection, rebuilding, reading data back, and the work that is done again. That is half of
/// the distance of checkpoints on average (the paper on GASPI says all of it).
#[must_use]
pub fn failure_cost_mean(detection: f64, rebuild: f64, read: f64, checkpoint_interval: f64) -> f64 {
    detection + rebuild + read + redo_mean(checkpoint_interval)
}

/// Mean time of the work that is done again.
#[must_use]
pub fn redo_mean(checkpoint_interval: f64) -> f64 {
    checkpoint_interval / 2.0
}
