//! Time until the failure of a process or host is detected.

/// A failure detector that pings all other processes in turn, once each period (paper on GASPI, section VI). Seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scan {
    /// Time between the beginnings of two scans.
    pub period: f64,
    /// Fixed part of a scan's time.
    pub base: f64,
    /// Time of one ping to a live process.
    pub ping: f64,
    /// Time until the ping of a dead process returns an error.
    pub error: f64,
}

impl Scan {
    /// Values of the paper: the line through its table I, a period of 3 s, and the remainder of its mean detection
    /// time.
    pub const PUBLISHED: Self = Self { period: 3.0, base: 0.003, ping: 0.000_985, error: 3.6 };

    /// Time of one scan of `nodes` processes.
    #[must_use]
    pub fn time(&self, nodes: f64) -> f64 {
        self.base + self.ping * nodes
    }

    /// Mean time from a failure to its detection: half a period, half a scan, and the error.
    #[must_use]
    pub fn detection_mean(&self, nodes: f64) -> f64 {
        self.period / 2.0 + self.time(nodes) / 2.0 + self.error
    }

    /// Longest time from a failure to its detection.
    #[must_use]
    pub fn detection_max(&self, nodes: f64) -> f64 {
        self.period + self.time(nodes) + self.error
    }
}

/// Fits a straight line by least squares. Returns its value at 0, and its slope.
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

/// Shortest, mean and longest detection time with heartbeats: each node sends one every `heartbeat`, and counts as dead
/// when the last one is `timeout` old (RaaS, thesis on FTM, chapter 6).
#[must_use]
pub fn heartbeat_detection(heartbeat: f64, timeout: f64) -> (f64, f64, f64) {
    (timeout - heartbeat, timeout - heartbeat / 2.0, timeout)
}

/// Mean cost of one failure: detection, rebuilding, reading data back, and repeated work. The latter is half a
/// checkpoint interval on average (the paper on GASPI counts a whole one).
#[must_use]
pub fn failure_cost_mean(detection: f64, rebuild: f64, read: f64, checkpoint_interval: f64) -> f64 {
    detection + rebuild + read + redo_mean(checkpoint_interval)
}

/// Mean time of repeated work after a failure.
#[must_use]
pub fn redo_mean(checkpoint_interval: f64) -> f64 {
    checkpoint_interval / 2.0
}
