//! One configuration, with what is expected of it.

use serde::Serialize;

/// What happens to data that one replica has wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Corruption {
    /// Some rank has one replica: nobody sees it there.
    Unseen,
    /// Two replicas differ.
    Detected,
    /// Three replicas outvote it.
    Outvoted,
}

/// Where a time comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A formula.
    ClosedForm,
    /// Many simulated runs.
    Simulation,
}

/// Who takes checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SavedBy {
    /// The program, of what it needs.
    Program,
    /// The runtime, of the whole job, in a directory that all hosts see. There is no other level, and no smaller group.
    Runtime,
}

/// One configuration.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Replicas of a rank, in the mean.
    pub degree: f64,
    /// Hosts that are kept free.
    pub spares: u32,
    /// Hosts, spares included.
    pub hosts: u32,
    /// Who takes checkpoints; absent: nobody.
    pub saved_by: Option<SavedBy>,
    /// Work between checkpoints.
    pub checkpoint_interval_s: Option<f64>,
    /// Work before the first.
    pub first_checkpoint_s: Option<f64>,
    /// Expected time. Infinite: it does not end.
    pub time_s: f64,
    /// Where that comes from.
    pub source: Source,
    /// Host hours.
    pub host_hours: f64,
    /// Kilowatt hours.
    pub energy_kwh: Option<f64>,
    /// Probability that all replicas of a rank are lost at some time, which sets the job back.
    pub interrupted: f64,
    /// Probability that it is not done at the deadline.
    pub late: Option<f64>,
    /// Memory of all processes.
    pub memory_bytes: Option<f64>,
    /// Disk for the checkpoints that are kept, and the next while it is written: two in all of one replica of each rank
    /// where the program makes them, three of all replicas where the runtime does.
    pub disk_bytes: Option<f64>,
    /// What happens to corrupt data.
    pub corruption: Corruption,
    /// What is passed to `redrun`, without the program.
    pub command: String,
}

impl Row {
    /// The command of this configuration, without the program: `ranks` ranks, `per_host` processes to a host.
    pub(super) fn with_command(self, ranks: u32, per_host: u32) -> Self {
        let mut words = vec!["redrun".to_owned()];
        if self.degree > 1.0 {
            words.push(format!("-r {}", self.degree));
        }
        words.push(format!("-n {ranks} -N {per_host}"));
        if self.spares > 0 {
            words.push(format!("--spares {}", self.spares));
        }
        if self.saved_by == Some(SavedBy::Runtime) {
            words.extend(self.checkpoint_words());
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

/// As `redrun` takes it: whole seconds where nobody sees the difference.
#[must_use]
pub fn time_text(seconds: f64) -> String {
    if seconds < 100.0 { format!("{:.1}s", seconds.max(0.1)) } else { format!("{seconds:.0}s") }
}
