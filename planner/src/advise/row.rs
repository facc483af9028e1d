//! One configuration, with its expected figures.

use super::levels::Level;
use serde::Serialize;

/// Effect of wrong data in one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Corruption {
    /// Undetected: some ranks have a single replica.
    Unseen,
    /// Detected: two replicas differ.
    Detected,
    /// Corrected: the other two of three replicas outvote it.
    Outvoted,
}

/// Origin of an expected time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A closed form, exact or of first order.
    ClosedForm,
    /// Statistics of simulated runs.
    Simulation,
}

/// Origin of the checkpoints of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SavedBy {
    /// The program saves the data that it needs.
    Program,
    /// The runtime saves the whole job, at this level.
    Runtime(Level),
}

/// A configuration and its figures.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Mean number of replicas of a rank.
    pub degree: f64,
    /// Number of spare hosts.
    pub spares: u32,
    /// Number of hosts, spares included.
    pub hosts: u32,
    /// Origin of checkpoints; `None` without checkpoints.
    pub saved_by: Option<SavedBy>,
    /// Expected number of times that hosts are lost with all parts of their checkpoints; `None` without checkpoints of
    /// the runtime.
    pub checkpoints_lost: Option<f64>,
    /// Work between checkpoints in seconds; `None` without checkpoints.
    pub checkpoint_interval_s: Option<f64>,
    /// Work before the first checkpoint in seconds; `None` without checkpoints.
    pub first_checkpoint_s: Option<f64>,
    /// Expected time in seconds; infinite if the job does not end.
    pub time_s: f64,
    /// Origin of the expected time.
    pub source: Source,
    /// Expected host hours, spares included.
    pub host_hours: f64,
    /// Expected energy in kilowatt hours; `None` if the power of a host is unknown.
    pub energy_kwh: Option<f64>,
    /// Probability that all replicas of a rank are lost at some time, which sets the job back.
    pub interrupted: f64,
    /// Probability of missing the deadline; `None` without a deadline, or if too long to simulate.
    pub late: Option<f64>,
    /// Memory of all processes in bytes, with checkpoints that are in memory; `None` if unknown.
    pub memory_bytes: Option<f64>,
    /// Disk space in bytes for the checkpoints that are kept and the one being written. The program's own count as two
    /// of one replica of each rank, those of the runtime as three, in as many copies as their level has. `None` if
    /// unknown.
    pub disk_bytes: Option<f64>,
    /// Effect of wrong data in one replica.
    pub corruption: Corruption,
    /// Command line of `redrun`, without the program.
    pub command: String,
}

impl Row {
    /// Sets the command line, for `ranks` ranks with `per_host` processes on each host.
    pub(super) fn with_command(self, ranks: u32, per_host: u32) -> Self {
        let mut words = vec!["redrun".to_owned()];
        if self.degree > 1.0 {
            words.push(format!("-r {}", self.degree));
        }
        words.push(format!("-n {ranks} -N {per_host}"));
        if self.spares > 0 {
            words.push(format!("--spares {}", self.spares));
        }
        if let Some(SavedBy::Runtime(level)) = self.saved_by {
            words.extend(self.checkpoint_words());
            words.extend((level != Level::Shared).then(|| format!("--checkpoint-level {}", level.name())));
        }
        Self { command: words.join(" "), ..self }
    }

    fn checkpoint_words(&self) -> Vec<String> {
        let times = self.checkpoint_interval_s.zip(self.first_checkpoint_s);
        let Some((interval, first)) = times.map(|(interval, first)| (time_text(interval), time_text(first))) else {
            return Vec::new();
        };
        let mut words = vec![format!("--checkpoint {interval}")];
        if first != interval {
            words.push(format!("--first-checkpoint {first}"));
        }
        words
    }
}

/// Formats a time for the command line of `redrun`: whole seconds from 100 s on.
#[must_use]
pub fn time_text(seconds: f64) -> String {
    if seconds < 100.0 { format!("{:.1}s", seconds.max(0.1)) } else { format!("{seconds:.0}s") }
}
