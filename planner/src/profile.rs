//! Measured facts of a program, in the form of profile files: the input for advice.

use crate::clusters::Traffic;
use crate::overhead::{CallTimes, measured_beta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the format of profile files.
pub const FORMAT: u32 = 1;

/// Suffix of the names of profile files in a directory.
pub const FILE_END: &str = ".profile.json";

/// Upper bound for the slowdown: with times that vary much, an unaffected program may seem to stop.
const SLOWDOWN_MAX: f64 = 0.9;

/// Measurements of one run. All fields except program, ranks and time are optional.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Command line of the program.
    pub program: String,
    /// Number of virtual ranks.
    pub ranks: u32,
    /// Number of hosts; `None` if unknown.
    #[serde(default)]
    pub hosts: Option<u32>,
    /// Mean number of replicas of a rank.
    #[serde(default = "one")]
    pub degree: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// Time in MPI by kind of call; `None` if unknown.
    #[serde(default)]
    pub calls: Option<Calls>,
    /// Sender, receiver and bytes of each pair of ranks; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<(u32, u32, f64)>,
    /// Memory of a process in bytes; `None` if unknown.
    #[serde(default)]
    pub image_bytes: Option<f64>,
    /// Mean time from the loss of a replica until it is replaced, in seconds; `None` if none was.
    #[serde(default)]
    pub window_s: Option<f64>,
    /// Downtime in seconds for a checkpoint that the program makes itself; `None` if it makes none.
    #[serde(default)]
    pub checkpoint_s: Option<f64>,
    /// Number of checkpoints that the runtime took.
    #[serde(default)]
    pub checkpoints: u32,
    /// Mean time in seconds from the beginning of such a checkpoint until it was on the disk.
    #[serde(default)]
    pub save_s: Option<f64>,
    /// Mean downtime in seconds within that time.
    #[serde(default)]
    pub save_stop_s: Option<f64>,
    /// Mean size in bytes of such a checkpoint, with one replica of each rank.
    #[serde(default)]
    pub saved_bytes: Option<f64>,
    /// Number of times that the job went back to a checkpoint of the runtime.
    #[serde(default)]
    pub returns: u32,
    /// Mean time in seconds from an interruption until the program worked again.
    #[serde(default)]
    pub restart_s: Option<f64>,
    /// Mean time in seconds from the beginning of a clone until the copy ran.
    #[serde(default)]
    pub copy_s: Option<f64>,
    /// Mean downtime in seconds of the source within that time.
    #[serde(default)]
    pub stop_s: Option<f64>,
    /// Most bytes of sent messages that a process retained at once for siblings that might need them.
    #[serde(default)]
    pub retained_bytes: Option<f64>,
    /// Exit code. The time of a failed run is not that of the program.
    #[serde(default)]
    pub exit_code: i32,
    /// Number of replicas that were lost.
    #[serde(default)]
    pub losses: u32,
    /// Number of clones that were made.
    #[serde(default)]
    pub copies: u32,
    /// Number of faults that were injected.
    #[serde(default)]
    pub injected: u64,
}

fn one() -> f64 {
    1.0
}

/// Seconds in MPI calls, as means over the ranks.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// Seconds in all calls.
    pub mpi_s: f64,
    /// Seconds in blocking sends.
    pub send_s: f64,
    /// Seconds in nonblocking sends.
    pub isend_s: f64,
    /// Seconds in blocking receives.
    pub recv_s: f64,
    /// Seconds in nonblocking receives.
    pub irecv_s: f64,
    /// Seconds in waits, tests and probes.
    pub wait_s: f64,
    /// Seconds in collective calls.
    pub collective_s: f64,
}

/// Reason why a profile cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file has this format, which this version does not read.
    #[error("it has format {0}; this version reads {FORMAT}")]
    Format(u32),
    /// An impossible figure: its name and value.
    #[error("{0} is {1}, which cannot be")]
    Figure(&'static str, f64),
}

impl Profile {
    /// Checks version and figures.
    ///
    /// # Errors
    /// The first impossible figure.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.format != FORMAT {
            return Err(ProfileError::Format(self.format));
        }
        let above_zero = [("ranks", f64::from(self.ranks)), ("elapsed_s", self.elapsed_s)];
        if let Some((name, value)) = above_zero.into_iter().find(|(_, value)| !(*value > 0.0 && value.is_finite())) {
            return Err(ProfileError::Figure(name, value));
        }
        if !(self.degree >= 1.0 && self.degree.is_finite()) {
            return Err(ProfileError::Figure("degree", self.degree));
        }
        let calls = self.calls.unwrap_or_default();
        let others = [
            ("mpi_s", calls.mpi_s),
            ("send_s", calls.send_s),
            ("isend_s", calls.isend_s),
            ("recv_s", calls.recv_s),
            ("irecv_s", calls.irecv_s),
            ("wait_s", calls.wait_s),
            ("collective_s", calls.collective_s),
            ("copy_s", self.copy_s.unwrap_or(0.0)),
            ("stop_s", self.stop_s.unwrap_or(0.0)),
            ("retained_bytes", self.retained_bytes.unwrap_or(0.0)),
            ("image_bytes", self.image_bytes.unwrap_or(0.0)),
            ("window_s", self.window_s.unwrap_or(0.0)),
            ("checkpoint_s", self.checkpoint_s.unwrap_or(0.0)),
            ("save_s", self.save_s.unwrap_or(0.0)),
            ("save_stop_s", self.save_stop_s.unwrap_or(0.0)),
            ("saved_bytes", self.saved_bytes.unwrap_or(0.0)),
            ("restart_s", self.restart_s.unwrap_or(0.0)),
        ];
        match others.into_iter().find(|(_, value)| !(*value >= 0.0 && value.is_finite())) {
            Some((name, value)) => Err(ProfileError::Figure(name, value)),
            None => Ok(()),
        }
    }

    /// A run of which only these figures are known.
    #[must_use]
    pub fn new(program: String, ranks: u32, elapsed_s: f64) -> Self {
        Self {
            format: FORMAT,
            program,
            ranks,
            hosts: None,
            degree: 1.0,
            elapsed_s,
            calls: None,
            traffic: Vec::new(),
            image_bytes: None,
            window_s: None,
            checkpoint_s: None,
            checkpoints: 0,
            save_s: None,
            save_stop_s: None,
            saved_bytes: None,
            returns: 0,
            restart_s: None,
            copy_s: None,
            stop_s: None,
            retained_bytes: None,
            exit_code: 0,
            losses: 0,
            copies: 0,
            injected: 0,
        }
    }

    /// Returns true if the run ended well, without losses, clones, injected faults or restarts.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.exit_code == 0 && self.losses == 0 && self.copies == 0 && self.injected == 0 && self.returns == 0
    }

    /// Returns true if nothing influenced the time of the run, checkpoints included.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.is_sound() && self.checkpoints == 0
    }

    /// Bytes per second that a process sends, as mean over the ranks: the growth of a message log. `None` if traffic is
    /// unknown.
    #[must_use]
    pub fn sent_rate(&self) -> Option<f64> {
        let sum: f64 = self.traffic.iter().map(|(_, _, bytes)| bytes).sum();
        (!self.traffic.is_empty()).then(|| sum / f64::from(self.ranks) / self.elapsed_s)
    }

    /// Communication matrix; `None` if traffic is unknown.
    #[must_use]
    pub fn matrix(&self) -> Option<Traffic> {
        (!self.traffic.is_empty()).then(|| Traffic { ranks: self.ranks, pairs: self.traffic.clone() })
    }

    /// Fraction of speed lost while checkpoints were written, computed from the excess over `bare` seconds. `None` if
    /// there was no checkpoint, or another disturbance.
    fn save_slowdown(&self, bare: f64) -> Option<f64> {
        let (save, stop) = self.save_s.zip(self.save_stop_s).filter(|_| self.is_sound() && self.checkpoints > 0)?;
        let each = (self.elapsed_s - bare) / f64::from(self.checkpoints);
        Some(((each - stop) / (save - stop)).clamp(0.0, SLOWDOWN_MAX)).filter(|share| !share.is_nan())
    }

    /// Serial fraction of communication by DINO's equation 3.3. `None` for a run with replicas, or without call times.
    #[must_use]
    pub fn beta(&self) -> Option<f64> {
        let Calls { mpi_s, send_s, isend_s, recv_s, irecv_s, wait_s, .. } =
            self.calls.filter(|_| self.degree == 1.0)?;
        let times = CallTimes {
            application: self.elapsed_s,
            mpi: mpi_s,
            send: send_s,
            isend: isend_s,
            recv: recv_s,
            irecv: irecv_s,
            wait: wait_s,
        };
        Some(times.beta())
    }
}

/// Summary of several runs of one program at one number of ranks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Learned {
    /// Command line of the program.
    pub program: String,
    /// Number of virtual ranks.
    pub ranks: u32,
    /// Number of runs that were summarized.
    pub runs: usize,
    /// Pairs of degree and median seconds, of undisturbed runs.
    pub times_s: Vec<(f64, f64)>,
    /// Fraction of the run added by each further replica: measured if there are runs at several degrees, else by the
    /// model from call times.
    pub beta: Option<f64>,
    /// True if `beta` was measured.
    pub is_beta_measured: bool,
    /// Largest memory of a process, in bytes.
    pub image_bytes: Option<f64>,
    /// Median vulnerability window after a loss, in seconds.
    pub window_s: Option<f64>,
    /// Median downtime of the program's own checkpoints, in seconds.
    pub checkpoint_s: Option<f64>,
    /// Median time until a checkpoint of the runtime is on the disk, in seconds, for one replica of each rank.
    pub save_s: Option<f64>,
    /// Median downtime of a checkpoint of the runtime, in seconds.
    pub save_stop_s: Option<f64>,
    /// Median fraction of speed that the program loses while such a checkpoint is written.
    pub save_slowdown: Option<f64>,
    /// Median time of a restart, in seconds.
    pub restart_s: Option<f64>,
    /// Median time of a clone, in seconds.
    pub copy_s: Option<f64>,
    /// Median downtime of the source of a clone, in seconds.
    pub stop_s: Option<f64>,
}

impl Learned {
    /// Summarizes runs of one program and number of ranks. `None` without runs.
    #[must_use]
    pub fn new(runs: &[Profile]) -> Option<Self> {
        let first = runs.first()?;
        let mut by_degree = BTreeMap::<u64, Vec<f64>>::new();
        for run in runs.iter().filter(|run| run.is_undisturbed()) {
            by_degree.entry((run.degree * 1000.0).round() as u64).or_default().push(run.elapsed_s);
        }
        let times = by_degree.into_iter().filter_map(|(degree, times)| Some((degree as f64 / 1000.0, median(times)?)));
        let times_s: Vec<_> = times.collect();
        // β is measured by comparing runs at degree 1 with those at higher degrees.
        let measured = match times_s.as_slice() {
            [(1.0, single), rest @ ..] if !rest.is_empty() => {
                median(rest.iter().map(|(degree, time)| measured_beta(*single, *time, *degree)).collect())
            }
            _ => None,
        };
        let of = |figure: fn(&Profile) -> Option<f64>| median(runs.iter().filter_map(figure).collect());
        let slowdowns = runs.iter().filter_map(|run| {
            let (_, bare) = times_s.iter().find(|(degree, _)| (degree - run.degree).abs() < 1e-3)?;
            run.save_slowdown(*bare)
        });
        let save_slowdown = median(slowdowns.collect());
        Some(Self {
            program: first.program.clone(),
            ranks: first.ranks,
            runs: runs.len(),
            beta: measured.map(|beta| beta.max(0.0)).or_else(|| of(Profile::beta)),
            is_beta_measured: measured.is_some(),
            times_s,
            image_bytes: runs.iter().filter_map(|run| run.image_bytes).max_by(f64::total_cmp),
            window_s: of(|run| run.window_s),
            checkpoint_s: of(|run| run.checkpoint_s),
            // One replica of each rank is saved, at every degree.
            save_s: of(|run| run.save_s),
            save_stop_s: of(|run| run.save_stop_s),
            save_slowdown,
            restart_s: of(|run| run.restart_s),
            copy_s: of(|run| run.copy_s),
            stop_s: of(|run| run.stop_s),
        })
    }

    /// Seconds without replicas: measured, or by the model from the lowest measured degree. `None` without undisturbed
    /// runs.
    #[must_use]
    pub fn work_s(&self) -> Option<f64> {
        let (degree, time) = *self.times_s.first()?;
        Some(time / (1.0 + self.beta.unwrap_or(0.0) * (degree - 1.0)))
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
