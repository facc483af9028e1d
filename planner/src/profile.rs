//! What is known of a program and of a site, as files hold it: the input of advice.

use crate::clusters::Traffic;
use crate::overhead::{CallTimes, measured_beta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form of a profile file.
pub const FORMAT: u32 = 1;

/// What the name of a profile ends with, in a directory.
pub const FILE_END: &str = ".profile.json";

/// A program that is hardly slowed down by what goes on beside it may seem to stand still, if its times differ much.
const SLOWDOWN_MAX: f64 = 0.9;

/// One run of a program. Of all but its name, ranks and time, absent is unknown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// The program, as it was started.
    pub program: String,
    /// Virtual ranks.
    pub ranks: u32,
    /// Hosts it had.
    #[serde(default)]
    pub hosts: Option<u32>,
    /// Replicas of a rank, in the mean.
    #[serde(default = "one")]
    pub degree: f64,
    /// Seconds it took, without failures.
    pub elapsed_s: f64,
    /// Seconds in MPI by kind of call, means over the ranks.
    #[serde(default)]
    pub calls: Option<Calls>,
    /// Bytes by pair of ranks: sender, receiver, bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<(u32, u32, f64)>,
    /// Memory of a process.
    #[serde(default)]
    pub image_bytes: Option<f64>,
    /// Seconds from the loss of a replica until its place is filled: the mean.
    #[serde(default)]
    pub window_s: Option<f64>,
    /// Seconds for which the program stands still for a checkpoint that it makes itself.
    #[serde(default)]
    pub checkpoint_s: Option<f64>,
    /// Checkpoints that the runtime took.
    #[serde(default)]
    pub checkpoints: u32,
    /// Seconds from the begin of one of them until it was on the disk: the mean.
    #[serde(default)]
    pub save_s: Option<f64>,
    /// Of these, seconds for which the program stood still: the mean.
    #[serde(default)]
    pub save_stop_s: Option<f64>,
    /// Bytes of one of them, of all replicas: the mean.
    #[serde(default)]
    pub saved_bytes: Option<f64>,
    /// Times that the job went back to a checkpoint of the runtime.
    #[serde(default)]
    pub returns: u32,
    /// Seconds from an interruption until the program works again: the mean.
    #[serde(default)]
    pub restart_s: Option<f64>,
    /// Seconds from the begin of a copy of a process until it runs: the mean.
    #[serde(default)]
    pub copy_s: Option<f64>,
    /// Of these, seconds for which its source was stopped: the mean.
    #[serde(default)]
    pub stop_s: Option<f64>,
    /// The most bytes of sent messages that a process kept at once for siblings that might need them.
    #[serde(default)]
    pub retained_bytes: Option<f64>,
    /// What it ended with. The time of a run that failed is not what the program takes.
    #[serde(default)]
    pub exit_code: i32,
    /// Replicas lost.
    #[serde(default)]
    pub losses: u32,
    /// Copies made of processes.
    #[serde(default)]
    pub copies: u32,
    /// Faults injected.
    #[serde(default)]
    pub injected: u64,
}

fn one() -> f64 {
    1.0
}

/// Seconds in MPI, means over the ranks.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// All calls.
    pub mpi_s: f64,
    /// Blocking sends.
    pub send_s: f64,
    /// Nonblocking sends.
    pub isend_s: f64,
    /// Blocking receives.
    pub recv_s: f64,
    /// Nonblocking receives.
    pub irecv_s: f64,
    /// Waits, tests and probes.
    pub wait_s: f64,
    /// Collectives.
    pub collective_s: f64,
}

/// Why a profile cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Of another version.
    #[error("it has format {0}; this version reads {FORMAT}")]
    Format(u32),
    /// A figure that cannot be.
    #[error("{0} is {1}, which cannot be")]
    Figure(&'static str, f64),
}

impl Profile {
    /// Checks the figures.
    ///
    /// # Errors
    /// Names the first that cannot be.
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

    /// A run of which no more is known.
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

    /// Whether nothing went wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.exit_code == 0 && self.losses == 0 && self.copies == 0 && self.injected == 0 && self.returns == 0
    }

    /// Whether nothing happened that made it longer, or shorter, than the program takes.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.is_sound() && self.checkpoints == 0
    }

    /// Bytes a second that a process sends, the mean over the ranks: as fast a log of messages grows. `None` if traffic
    /// is not known.
    #[must_use]
    pub fn sent_rate(&self) -> Option<f64> {
        let sum: f64 = self.traffic.iter().map(|(_, _, bytes)| bytes).sum();
        (!self.traffic.is_empty()).then(|| sum / f64::from(self.ranks) / self.elapsed_s)
    }

    /// What was sent, if that is known.
    #[must_use]
    pub fn matrix(&self) -> Option<Traffic> {
        (!self.traffic.is_empty()).then(|| Traffic { ranks: self.ranks, pairs: self.traffic.clone() })
    }

    /// Share of its speed that the program lost while checkpoints were written, by how much longer it took than `bare`
    /// seconds. `None` if no checkpoint was taken, or anything else happened.
    fn save_slowdown(&self, bare: f64) -> Option<f64> {
        let (save, stop) = self.save_s.zip(self.save_stop_s).filter(|_| self.is_sound() && self.checkpoints > 0)?;
        let each = (self.elapsed_s - bare) / f64::from(self.checkpoints);
        Some(((each - stop) / (save - stop)).clamp(0.0, SLOWDOWN_MAX)).filter(|share| !share.is_nan())
    }

    /// Serial share of communication, by DINO's equation 3.3, of a run without replicas.
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

/// What many runs of one program at one number of ranks say.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Learned {
    /// The program.
    pub program: String,
    /// Virtual ranks.
    pub ranks: u32,
    /// Runs.
    pub runs: usize,
    /// Median seconds by degree.
    pub times_s: Vec<(f64, f64)>,
    /// Share of the run that each replica more adds: measured if there are runs at two degrees, else by the model from
    /// calls.
    pub beta: Option<f64>,
    /// Whether it was measured.
    pub is_beta_measured: bool,
    /// Memory of a process, the most.
    pub image_bytes: Option<f64>,
    /// Median window of a lost replica.
    pub window_s: Option<f64>,
    /// Median checkpoint.
    pub checkpoint_s: Option<f64>,
    /// Median time until a checkpoint of the runtime is on the disk, for one replica of each rank.
    pub save_s: Option<f64>,
    /// Median stop for one.
    pub save_stop_s: Option<f64>,
    /// Share of its speed that the program loses in that time.
    pub save_slowdown: Option<f64>,
    /// Median restart.
    pub restart_s: Option<f64>,
    /// Median time of the copy of a process.
    pub copy_s: Option<f64>,
    /// Median stop of a process that is copied.
    pub stop_s: Option<f64>,
}

impl Learned {
    /// Adds up runs of one program and number of ranks. `None` if there are none.
    #[must_use]
    pub fn new(runs: &[Profile]) -> Option<Self> {
        let first = runs.first()?;
        let mut by_degree = BTreeMap::<u64, Vec<f64>>::new();
        for run in runs.iter().filter(|run| run.is_undisturbed()) {
            by_degree.entry((run.degree * 1000.0).round() as u64).or_default().push(run.elapsed_s);
        }
        let times = by_degree.into_iter().filter_map(|(degree, times)| Some((degree as f64 / 1000.0, median(times)?)));
        let times_s: Vec<_> = times.collect();
        // The least degree, which is 1 if that was run, against the next.
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
            // All replicas are saved.
            save_s: of(|run| run.save_s.map(|time| time / run.degree)),
            save_stop_s: of(|run| run.save_stop_s),
            save_slowdown,
            restart_s: of(|run| run.restart_s),
            copy_s: of(|run| run.copy_s),
            stop_s: of(|run| run.stop_s),
        })
    }

    /// Seconds without replicas: measured, or by the model from the least degree that was.
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
