//! Advice on protecting a job: configurations that this runtime supports, ranked, each with its expected time, cost and
//! risk.
//!
//! Times are seconds. A row states whether its time comes from a closed form or from the simulation.

mod levels;
mod row;

pub use levels::{HostBounds, Level};
pub use row::{Corruption, Row, SavedBy, Source, time_text};

use crate::cloning::spares_with_confidence;
use crate::interval::daly_higher_order;
use crate::overhead::redundant_time;
use crate::policy::{Policy, Replacement, Saving};
use crate::simulation::{Outcomes, simulate_within};
use crate::spheres::Spheres;
use serde::Serialize;

/// The job, the machine and the goal for which advice is wanted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Question {
    /// Time of the job without replicas, checkpoints and failures.
    pub work_s: f64,
    /// Fraction of `work_s` added by each further replica.
    pub beta: f64,
    /// Number of virtual ranks.
    pub ranks: u32,
    /// Number of processes on each host.
    pub per_host: u32,
    /// Mean time to failure of a host.
    pub mttf_s: f64,
    /// Number of hosts available; `None` for no limit.
    pub hosts: Option<u32>,
    /// Time until a failed host is available again; `None` if that takes longer than the job.
    pub repair_s: Option<f64>,
    /// Time from the loss of all replicas of a rank until the job works again.
    pub restart_s: f64,
    /// Time from the loss of a host until its replicas are replaced on a spare: the vulnerability window.
    pub window_s: f64,
    /// Time for which the job stops when a replica is cloned.
    pub clone_stop_s: f64,
    /// Fraction of its speed that the job loses while clones are made.
    pub clone_slowdown: f64,
    /// Downtime for a checkpoint that the program makes itself; `None` if it makes none.
    pub checkpoint_s: Option<f64>,
    /// Cost of a checkpoint of the runtime in a directory that all hosts share; `None` if none are made.
    pub save: Option<SaveCost>,
    /// Capacities of a host, for checkpoints that hosts keep themselves.
    pub bounds: HostBounds,
    /// Memory of a process, in bytes; `None` if unknown.
    pub image_bytes: Option<f64>,
    /// Power of a host, in watts; `None` if unknown.
    pub watts: Option<f64>,
    /// Time within which the job must end; `None` for no deadline.
    pub deadline_s: Option<f64>,
    /// Accepted probability of missing the deadline.
    pub risk: f64,
    /// Quantity by which configurations are ranked.
    pub objective: Objective,
    /// Seed of the simulation.
    pub seed: u64,
}

/// Cost of a checkpoint of the runtime. One replica of each rank is saved, at every degree.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SaveCost {
    /// Downtime of the program.
    pub stop_s: f64,
    /// Time from the beginning until the checkpoint is on the disk.
    pub time_s: f64,
    /// Fraction of its speed that the program loses meanwhile.
    pub slowdown: f64,
}

/// Quantity by which configurations that meet the deadline are ranked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Expected time of the job.
    Time,
    /// Expected host hours of the job.
    #[default]
    Cost,
}

/// Ranked configurations, and numbers of those left out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// Configurations by rank, best first.
    pub rows: Vec<Row>,
    /// Number of configurations that need more hosts than available.
    pub too_large: usize,
    /// Number of configurations without a closed form that fail too often to be simulated.
    pub not_simulated: usize,
}

/// Reason why there is no advice.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AdviceError {
    /// An impossible figure: its name and value.
    #[error("{0} is {1}, which cannot be")]
    Figure(&'static str, f64),
    /// The hosts do not even hold one replica of each rank.
    #[error("{ranks} ranks, {per_host} to a host, need {needed} hosts; there are {hosts}")]
    TooFewHosts {
        /// Number of virtual ranks.
        ranks: u32,
        /// Number of processes on each host.
        per_host: u32,
        /// Number of hosts needed.
        needed: u32,
        /// Number of hosts available.
        hosts: u32,
    },
}

/// Degrees that are considered.
const DEGREES: [f64; 6] = [1.0, 1.25, 1.5, 1.75, 2.0, 3.0];
/// Probability with which the proposed spares suffice.
const SPARE_CONFIDENCE: f64 = 0.999;
/// Numbers of simulated runs, tried in turn until the steps stay below the limit. Fewer runs would be meaningless.
const RUN_COUNTS: [u32; 3] = [2000, 500, 100];
const STEP_COUNT_MAX: u64 = 5_000_000;
/// A simulated job that takes more than this multiple of its work counts as never ending.
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
        let HostBounds { disk_rate, network_rate, disk_bytes, memory_bytes } = self.bounds;
        let above_zero = above_zero.into_iter().chain([
            ("the rate of a host's disk", disk_rate.unwrap_or(1.0)),
            ("the rate of a host's network", network_rate.unwrap_or(1.0)),
            ("the room on a host's disk", disk_bytes.unwrap_or(1.0)),
            ("the memory of a host", memory_bytes.unwrap_or(1.0)),
        ]);
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
        let wrong = above_zero.into_iter().find(|(_, value)| !(*value > 0.0 && value.is_finite()));
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

    /// Ranks all configurations. Deterministic: the same question has the same answer.
    ///
    /// # Errors
    /// If a figure is impossible, or the job does not fit on the hosts at all.
    pub fn advise(&self) -> Result<Advice, AdviceError> {
        self.check()?;
        let plane = self.ranks.div_ceil(self.per_host);
        if let Some(hosts) = self.hosts.filter(|hosts| *hosts < plane) {
            let Self { ranks, per_host, .. } = *self;
            return Err(AdviceError::TooFewHosts { ranks, per_host, needed: plane, hosts });
        }
        let mut advice = Advice { rows: Vec::new(), too_large: 0, not_simulated: 0 };
        for degree in DEGREES {
            // Fractional degrees need a whole number of hosts for the additional replicas.
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

    /// Ways to run the job at a degree. Without spares, and with spares if there is a replica to clone; each without
    /// checkpoints, and with the program's own if it makes any. Also with spares and checkpoints of the runtime, at
    /// each level.
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
        let replaced = policies.pop().expect("one is always there");
        for (level, SaveCost { stop_s, time_s, slowdown }) in self.levels(degree, plane.saturating_add(doubled)) {
            let background = (time_s - stop_s).max(0.0);
            let saving = Saving { interval: 1.0, first: 0.0, stop: stop_s, background, slowdown };
            // Without spares a lost host stays lost, and the next loss would find the job with fewer hosts.
            let saved_by = Some(SavedBy::Runtime(level));
            ways.push(Way { policy: with_interval(&replaced, saving), saved_by, has_spares: true });
            // A job without replicas can also wait until its host is repaired, and be resumed then.
            if degree == 1.0 && level == Level::Shared && (plane == 1 || self.repair_s.is_some()) {
                let waiting = Policy { restart: self.restart_s + self.repair_s.unwrap_or(0.0), ..bare.clone() };
                ways.push(Way { policy: with_interval(&waiting, saving), saved_by, has_spares: false });
            }
        }
        // A job that ends before its first checkpoint is the same as without checkpoints.
        let saves = |policy: &Policy| policy.saving.is_none_or(|saving| saving.first_work() < policy.work);
        ways.retain(|way| saves(&way.policy));
        ways
    }

    /// The levels at which a job on this number of hosts can be saved, with the cost of each.
    fn levels(&self, degree: f64, hosts: u32) -> Vec<(Level, SaveCost)> {
        let Some(shared) = self.save else { return Vec::new() };
        let on_each = |processes: f64| self.image_bytes.map(|bytes| bytes * processes / f64::from(hosts.max(1)));
        // Of each rank one replica is saved, and those are spread over all hosts.
        let part = on_each(f64::from(self.ranks));
        let used = on_each(f64::from(self.ranks) * degree).unwrap_or(0.0);
        let cost = |level: Level| Some((level, level.cost(shared, part, used, &self.bounds)?));
        Level::all(hosts).filter_map(cost).collect()
    }

    /// Adds spares, enough that one is rarely missing.
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

    /// Figures of one configuration. `None` if it has neither a closed form nor a simulation of acceptable length.
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
        // If some runs do not end, the mean of the others says nothing about the job.
        let mean = |outcomes: &Outcomes| if outcomes.unfinished > 0.0 { f64::INFINITY } else { outcomes.time };
        let time_s = closed.or(outcomes.as_ref().map(mean))?;
        let saving = policy.saving;
        let exposed_s = saving.map_or(0.0, |saving| saving.interval + saving.stop + saving.background) + policy.restart;
        // Only a job that goes back needs its checkpoints.
        let returns = policy.interruption_rate() * time_s.min(policy.work * STRETCH_MAX);
        let checkpoints_lost = match saved_by {
            Some(SavedBy::Runtime(level)) => Some(level.times_lost(returns, exposed_s, policy.mttf)),
            _ => None,
        };
        // A job without its checkpoints begins anew, on average in its middle.
        let time_s = time_s * (1.0 + checkpoints_lost.unwrap_or(0.0) / 2.0);
        // The closed form yields only the mean; the probability of missing the deadline needs a simulation.
        let late = self.deadline_s.and_then(simulated).map(|outcomes| outcomes.unfinished);
        let spares = self.spares(way, time_s);
        let hosts = u32::try_from(policy.host_count()).unwrap_or(u32::MAX).saturating_add(spares);
        let host_hours = time_s * f64::from(hosts) / crate::HOUR_S;
        let processes = f64::from(self.ranks) * degree;
        let of_saved = match saved_by {
            Some(SavedBy::Runtime(level)) => f64::from(self.ranks) * 3.0 * level.copies(),
            _ => f64::from(self.ranks) * 2.0,
        };
        let is_in_memory = *saved_by == Some(SavedBy::Runtime(Level::Memory));
        let image_bytes = |processes: f64| self.image_bytes.map(|bytes| bytes * processes);
        let row = Row {
            degree,
            spares,
            hosts,
            saved_by: *saved_by,
            checkpoints_lost,
            checkpoint_interval_s: saving.map(|saving| saving.interval),
            first_checkpoint_s: saving.map(|saving| saving.first_work()),
            time_s,
            source: if closed.is_some() { Source::ClosedForm } else { Source::Simulation },
            host_hours,
            energy_kwh: self.watts.map(|watts| host_hours * watts / 1000.0),
            interrupted: outcomes.map_or_else(|| interrupted(policy, time_s), |outcomes| outcomes.interrupted),
            late,
            memory_bytes: image_bytes(processes + if is_in_memory { of_saved } else { 0.0 }),
            disk_bytes: image_bytes(of_saved).filter(|_| saving.is_some() && !is_in_memory),
            corruption: match degree {
                3.0.. => Corruption::Outvoted,
                2.0.. => Corruption::Detected,
                _ => Corruption::Unseen,
            },
            command: String::new(),
        };
        Some(row.with_command(self.ranks, self.per_host))
    }

    /// Number of spares, for the failures until a host is repaired, or until the job ends.
    fn spares(&self, Way { policy, saved_by, has_spares }: &Way, time_s: f64) -> u32 {
        let rate = match saved_by {
            _ if !has_spares => return 0,
            // A job that returns to a checkpoint needs a replacement for each lost host.
            Some(SavedBy::Runtime(_)) => policy.host_count() as f64 / policy.mttf,
            _ => policy.replacement_rate(),
        };
        let time = if time_s.is_finite() { time_s } else { policy.work };
        let away = self.repair_s.map_or(time, |repair| repair.min(time));
        spares_with_confidence(rate * away, SPARE_CONFIDENCE).max(1).try_into().unwrap_or(u32::MAX)
    }
}

struct Way {
    policy: Policy,
    saved_by: Option<SavedBy>,
    /// True if hosts are kept as spares.
    has_spares: bool,
}

/// Probability that the job is interrupted at least once, in the time that it takes without interruptions.
fn interrupted(policy: &Policy, time_s: f64) -> f64 {
    if policy.replacement.is_some() {
        let alone = policy.work * policy.replacement_stretch();
        return -(-policy.interruption_rate() * alone.min(time_s)).exp_m1();
    }
    let counts = policy.spheres.iter().map(|(degree, count)| (*degree, f64::from(*count))).collect();
    1.0 - Spheres { counts, mttf: policy.mttf }.survival(policy.work)
}

/// Chooses checkpoint interval and first checkpoint for the least expected time. Without a closed form, uses Daly's
/// interval for the mean time to the first loss of a sphere.
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
