//! Which protection for a job: configurations that this runtime can carry out, each with its expected time, cost and
//! risk, in order.
//!
//! Times are seconds. A row says whether its time comes from a closed form or from the simulation.

mod row;

pub use row::{Corruption, Row, SavedBy, Source, time_text};

use crate::cloning::spares_with_confidence;
use crate::interval::daly_higher_order;
use crate::overhead::redundant_time;
use crate::policy::{Policy, Replacement, Saving};
use crate::simulation::{Outcomes, simulate_within};
use crate::spheres::Spheres;
use serde::Serialize;

/// What is asked.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Question {
    /// Time of the job without replicas, checkpoints and failures.
    pub work_s: f64,
    /// Share of that which each replica more adds.
    pub beta: f64,
    /// Virtual ranks.
    pub ranks: u32,
    /// Processes that a host takes.
    pub per_host: u32,
    /// Mean time to failure of a host.
    pub mttf_s: f64,
    /// Hosts there are; absent: as many as are wanted.
    pub hosts: Option<u32>,
    /// Hosts that have failed are back after this; absent: not before the job ends.
    pub repair_s: Option<f64>,
    /// From the loss of all replicas of a rank until the job works again.
    pub restart_s: f64,
    /// From the loss of a host until its replicas are replaced on a spare.
    pub window_s: f64,
    /// For this long the job stands still when a replica is copied.
    pub clone_stop_s: f64,
    /// Share of its speed that the job loses while copies are made.
    pub clone_slowdown: f64,
    /// For this long the program stands still for a checkpoint that it makes itself; absent: it makes none.
    pub checkpoint_s: Option<f64>,
    /// What a checkpoint of the runtime takes; absent: none are made.
    pub save: Option<SaveCost>,
    /// Memory of a process.
    pub image_bytes: Option<f64>,
    /// Power of a host.
    pub watts: Option<f64>,
    /// The job has to be done by then.
    pub deadline_s: Option<f64>,
    /// Probability of not being done by then that is accepted.
    pub risk: f64,
    /// What the order goes by.
    pub objective: Objective,
    /// Of the simulation.
    pub seed: u64,
}

/// What a checkpoint of the runtime takes of a job with one replica of each rank. All replicas are saved.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SaveCost {
    /// For this long the program stands still.
    pub stop_s: f64,
    /// From the begin until it is on the disk.
    pub time_s: f64,
    /// Share of its speed that the program loses in that time.
    pub slowdown: f64,
}

/// What the order of the answer goes by, among configurations that meet the deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Expected time.
    Time,
    /// Expected host hours.
    #[default]
    Cost,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The best first.
    pub rows: Vec<Row>,
    /// Configurations that need more hosts than there are.
    pub too_large: usize,
    /// Configurations that no formula covers, and in which too much fails to simulate them.
    pub not_simulated: usize,
}

/// Why a question has no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AdviceError {
    /// A figure that cannot be.
    #[error("{0} is {1}, which cannot be")]
    Figure(&'static str, f64),
    /// Not even one replica of each rank has room.
    #[error("{ranks} ranks, {per_host} to a host, need {needed} hosts; there are {hosts}")]
    NoRoom {
        /// Ranks.
        ranks: u32,
        /// Ranks to a host.
        per_host: u32,
        /// Hosts they need.
        needed: u32,
        /// Hosts there are.
        hosts: u32,
    },
}

/// Degrees that are tried.
const DEGREES: [f64; 6] = [1.0, 1.25, 1.5, 1.75, 2.0, 3.0];
/// Spares are enough with this probability.
const SPARE_CONFIDENCE: f64 = 0.999;
/// Runs of a simulation. Fewer if they take more steps than these; fewer than the least say nothing.
const RUN_COUNTS: [u32; 3] = [2000, 500, 100];
const STEP_COUNT_MAX: u64 = 5_000_000;
/// A simulated job that takes this multiple of its work is taken to never end.
const STRETCH_MAX: f64 = 50.0;

impl Question {
    fn check(&self) -> Result<(), AdviceError> {
        let above_zero = [
            ("the time of the job", self.work_s),
            ("the number of ranks", f64::from(self.ranks)),
            ("the number of processes for a host", f64::from(self.per_host)),
            ("the time between failures of a host", self.mttf_s),
            ("the deadline", self.deadline_s.unwrap_or(1.0)),
            ("the time of a checkpoint", self.checkpoint_s.unwrap_or(1.0)),
        ];
        let wrong = above_zero.into_iter().find(|(_, value)| !(*value > 0.0 && value.is_finite()));
        let at_least_zero = [
            ("the share that a replica adds", self.beta),
            ("the time of a restart", self.restart_s),
            ("the time of a replacement", self.window_s),
            ("the stop of a replacement", self.clone_stop_s),
            ("the time of a repair", self.repair_s.unwrap_or(0.0)),
            ("the memory of a process", self.image_bytes.unwrap_or(0.0)),
            ("the power of a host", self.watts.unwrap_or(0.0)),
            ("the risk", self.risk),
            ("the stop of a checkpoint", self.save.map_or(0.0, |save| save.stop_s)),
            ("the time until a checkpoint is on the disk", self.save.map_or(0.0, |save| save.time_s)),
        ];
        let wrong = wrong.or(at_least_zero.into_iter().find(|(_, value)| !(*value >= 0.0 && value.is_finite())));
        let save_slowdown = self.save.map_or(0.0, |save| save.slowdown);
        let shares = [
            ("the slow-down of a replacement", self.clone_slowdown),
            ("the slow-down of a checkpoint", save_slowdown),
            ("the risk", self.risk),
        ];
        let wrong = wrong.or(shares.into_iter().find(|(_, value)| !(0.0..1.0).contains(value)));
        wrong.map_or(Ok(()), |(name, value)| Err(AdviceError::Figure(name, value)))
    }

    /// Ranks its configurations. The same question has the same answer.
    ///
    /// # Errors
    /// If a figure cannot be, or there is no room for the job at all.
    pub fn advise(&self) -> Result<Advice, AdviceError> {
        self.check()?;
        let plane = self.ranks.div_ceil(self.per_host);
        if let Some(hosts) = self.hosts.filter(|hosts| *hosts < plane) {
            let Self { ranks, per_host, .. } = *self;
            return Err(AdviceError::NoRoom { ranks, per_host, needed: plane, hosts });
        }
        let mut advice = Advice { rows: Vec::new(), too_large: 0, not_simulated: 0 };
        for degree in DEGREES {
            // Degrees between two whole ones need hosts that have them.
            let doubled = (f64::from(plane) * degree.fract()).round() as u32;
            if degree.fract() > 0.0 && (doubled == 0 || doubled == plane) {
                continue;
            }
            for way in self.ways(degree, plane, doubled) {
                match self.row(degree, &way) {
                    None => advice.not_simulated += 1,
                    Some(row) if self.hosts.is_some_and(|hosts| row.hosts > hosts) => advice.too_large += 1,
                    Some(row) => advice.rows.push(row),
                }
            }
        }
        advice.rows.sort_by(|one, other| {
            let ((end_one, late_one, first_one, then_one), other) = (self.order(one), self.order(other));
            let figures = first_one.total_cmp(&other.2).then(then_one.total_cmp(&other.3));
            (end_one, late_one).cmp(&(other.0, other.1)).then(figures)
        });
        Ok(advice)
    }

    fn order(&self, row: &Row) -> (bool, bool, f64, f64) {
        let is_late = match (row.late, self.deadline_s) {
            (Some(late), _) => late > self.risk,
            (None, deadline) => deadline.is_some_and(|deadline| row.time_s > deadline),
        };
        let figures = match self.objective {
            Objective::Time => (row.time_s, row.host_hours),
            Objective::Cost => (row.host_hours, row.time_s),
        };
        (row.time_s.is_infinite(), is_late, figures.0, figures.1)
    }

    /// Without and with spares where there is a replica to copy, each without and with checkpoints of the program's own
    /// if it makes any; and with spares and checkpoints of the runtime.
    fn ways(&self, degree: f64, plane: u32, doubled: u32) -> Vec<Way> {
        let whole = degree.floor() as u32;
        let spheres = vec![(whole, plane - doubled), (whole + 1, doubled)];
        let bare = Policy {
            work: redundant_time(self.work_s, self.beta, degree),
            spheres,
            mttf: self.mttf_s,
            restart: self.restart_s,
            replacement: None,
            saving: None,
        };
        let mut policies = vec![bare.clone()];
        if degree > 1.0 {
            policies.push(self.with_spares(&bare));
        }
        let way = |policy: Policy, saved_by| Way { has_spares: policy.replacement.is_some(), policy, saved_by };
        let mut ways: Vec<_> = policies.iter().map(|policy| way(policy.clone(), None)).collect();
        if let Some(stop) = self.checkpoint_s {
            let saving = Saving { interval: 1.0, first: 0.0, stop, background: 0.0, slowdown: 0.0 };
            let saved = policies.iter().map(|policy| with_interval(policy, saving));
            ways.extend(saved.map(|policy| way(policy, Some(SavedBy::Program))));
        }
        if let Some(SaveCost { stop_s, time_s, slowdown }) = self.save {
            let background = (time_s * degree - stop_s).max(0.0);
            let saving = Saving { interval: 1.0, first: 0.0, stop: stop_s, background, slowdown };
            // What is gone stays gone unless there are spares, and the next loss would find the job with fewer hosts.
            let replaced = policies.pop().expect("one is always there");
            let saved_by = Some(SavedBy::Runtime);
            ways.push(Way { policy: with_interval(&replaced, saving), saved_by, has_spares: true });
            // Without replicas it can wait until the host is back, and be resumed.
            if degree == 1.0 && (plane == 1 || self.repair_s.is_some()) {
                let waiting = Policy { restart: self.restart_s + self.repair_s.unwrap_or(0.0), ..bare };
                ways.push(Way { policy: with_interval(&waiting, saving), saved_by, has_spares: false });
            }
        }
        // Where a job ends before its first checkpoint would be due, it is the same without.
        let saves = |policy: &Policy| policy.saving.is_none_or(|saving| saving.first_work() < policy.work);
        ways.retain(|way| saves(&way.policy));
        ways
    }

    /// Enough spares that the lack of one is rare.
    fn with_spares(&self, bare: &Policy) -> Policy {
        let replacement = Replacement {
            window: self.window_s,
            stop: self.clone_stop_s,
            slowdown: self.clone_slowdown,
            spares: None,
            repair: self.repair_s,
        };
        Policy { replacement: Some(replacement), ..bare.clone() }
    }

    /// The figures of one. `None` if neither a formula nor a simulation of bearable length has its time.
    fn row(&self, degree: f64, way: &Way) -> Option<Row> {
        let Way { policy, saved_by, .. } = way;
        let closed = policy.expected_time();
        let simulated = |time_max: f64| {
            let with = |runs| simulate_within(policy, self.seed, runs, time_max, STEP_COUNT_MAX);
            RUN_COUNTS.into_iter().find_map(with)
        };
        let outcomes = match closed {
            Some(_) => None,
            None => Some(simulated(policy.work * STRETCH_MAX)?),
        };
        // The mean of those that ended says nothing of a job of which others do not.
        let mean = |outcomes: &Outcomes| if outcomes.unfinished > 0.0 { f64::INFINITY } else { outcomes.time };
        let time_s = closed.or(outcomes.as_ref().map(mean))?;
        // A formula tells the mean, and only a simulation whether a deadline is met.
        let late = self.deadline_s.and_then(simulated).map(|outcomes| outcomes.unfinished);
        let spares = self.spares(way, time_s);
        let hosts = u32::try_from(policy.host_count()).unwrap_or(u32::MAX).saturating_add(spares);
        let host_hours = time_s * f64::from(hosts) / crate::HOUR_S;
        let processes = f64::from(self.ranks) * degree;
        let of_saved = match saved_by {
            Some(SavedBy::Program) => f64::from(self.ranks) * 2.0,
            _ => processes * 3.0,
        };
        let saving = policy.saving;
        let row = Row {
            degree,
            spares,
            hosts,
            saved_by: *saved_by,
            checkpoint_interval_s: saving.map(|saving| saving.interval),
            first_checkpoint_s: saving.map(|saving| saving.first_work()),
            time_s,
            source: if closed.is_some() { Source::ClosedForm } else { Source::Simulation },
            host_hours,
            energy_kwh: self.watts.map(|watts| host_hours * watts / 1000.0),
            interrupted: outcomes.map_or_else(|| interrupted(policy, time_s), |outcomes| outcomes.interrupted),
            late,
            memory_bytes: self.image_bytes.map(|bytes| bytes * processes),
            disk_bytes: self.image_bytes.filter(|_| saving.is_some()).map(|bytes| bytes * of_saved),
            corruption: match degree {
                3.0.. => Corruption::Outvoted,
                2.0.. => Corruption::Detected,
                _ => Corruption::Unseen,
            },
            command: String::new(),
        };
        Some(row.with_command(self.ranks, self.per_host))
    }

    /// Of the failures in the time until a host is back, or all.
    fn spares(&self, Way { policy, saved_by, has_spares }: &Way, time_s: f64) -> u32 {
        let rate = match saved_by {
            _ if !has_spares => return 0,
            // What goes back to a checkpoint needs a host in place of any.
            Some(SavedBy::Runtime) => policy.host_count() as f64 / policy.mttf,
            _ => policy.replacement_rate(),
        };
        let time = if time_s.is_finite() { time_s } else { policy.work };
        let away = self.repair_s.map_or(time, |repair| repair.min(time));
        spares_with_confidence(rate * away, SPARE_CONFIDENCE).max(1).try_into().unwrap_or(u32::MAX)
    }
}

/// One way to run the job.
struct Way {
    policy: Policy,
    saved_by: Option<SavedBy>,
    /// Hosts are kept free for what is lost.
    has_spares: bool,
}

/// Probability of an interruption in the time that the job takes without any.
fn interrupted(policy: &Policy, time_s: f64) -> f64 {
    if policy.replacement.is_some() {
        let alone = policy.work * policy.replacement_stretch();
        return -(-policy.interruption_rate() * alone.min(time_s)).exp_m1();
    }
    let counts = policy.spheres.iter().map(|(degree, count)| (*degree, f64::from(*count))).collect();
    1.0 - Spheres { counts, mttf: policy.mttf }.survival(policy.work)
}

/// Checkpoints at the interval, and from the point, where the expected time is least. Where there is no closed form,
/// Daly's interval for the mean time to the first loss of a sphere.
fn with_interval(policy: &Policy, saving: Saving) -> Policy {
    let saved = Policy { saving: Some(saving), ..policy.clone() };
    if let Some(best) = saved.with_best_interval() {
        return best.with_best_first().unwrap_or(best);
    }
    let counts = policy.spheres.iter().map(|(degree, count)| (*degree, f64::from(*count))).collect();
    let mtti = Spheres { counts, mttf: policy.mttf }.mtti();
    let interval = daly_higher_order(mtti, saving.stop).min(policy.work);
    Policy { saving: Some(Saving { interval, ..saving }), ..policy.clone() }
}
