//! Expected time of a job under a complete policy, as redrt carries it out. Lost replicas are replaced while the job
//! runs. Checkpoints have a short stop, and a slowdown in the background. The loss of a sphere returns the job to the
//! last checkpoint.
//!
//! The unit that fails is a host. A *sphere* is here a set of hosts with the same ranks: with r replicas, placed host
//! by host as `redrun` does, r hosts have the same ranks, and losing all r interrupts the job. With other placements
//! more combinations of hosts are fatal, and interruptions are more frequent than modelled.
//!
//! [`Policy::expected_time`] is the closed form where one exists; [`crate::simulation`] covers all policies.

use crate::exposure::sphere_loss_rate;
use crate::spheres::Spheres;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Replacement of lost replicas by clones on spare hosts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Replacement {
    /// Time from a failure until the sphere is complete again: detection and clone.
    pub window: f64,
    /// Time for which the job stops for one clone: short in redrt, the whole clone in the model of DINO.
    pub stop: f64,
    /// Fraction of its speed that the job loses while a clone is made.
    pub slowdown: f64,
    /// Number of spare hosts at the beginning; `None` for no limit.
    pub spares: Option<u32>,
    /// Time until a failed host is back as a spare; `None` for never.
    pub repair: Option<f64>,
}

/// Checkpoints of the whole job.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Saving {
    /// Work between two checkpoints.
    pub interval: f64,
    /// Least work before the first checkpoint, if more than the interval: the first protection point.
    pub first: f64,
    /// Downtime of the job.
    pub stop: f64,
    /// Time after the downtime until the checkpoint is complete.
    pub background: f64,
    /// Fraction of its speed that the job loses during that time.
    pub slowdown: f64,
}

/// Protection of one job. All times in one unit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// Time of the job at these degrees without failures and checkpoints.
    pub work: f64,
    /// Pairs of degree and number of spheres.
    pub spheres: Vec<(u32, u32)>,
    /// Mean time to failure of a host.
    pub mttf: f64,
    /// Time from the loss of a sphere until the job works again, from a checkpoint or from its beginning.
    pub restart: f64,
    /// Replacement of lost replicas; `None` if they stay lost until the job is restarted.
    pub replacement: Option<Replacement>,
    /// Checkpoints; `None` if the job starts over from its beginning.
    pub saving: Option<Saving>,
}

impl Policy {
    /// Number of hosts that run the job, without spares.
    #[must_use]
    pub fn host_count(&self) -> u64 {
        self.spheres.iter().map(|(degree, count)| u64::from(*degree) * u64::from(*count)).sum()
    }

    /// Rate at which spheres are lost although their replicas are replaced. For spheres of one replica it is the
    /// failure rate.
    #[must_use]
    pub fn interruption_rate(&self) -> f64 {
        let window = self.replacement.map_or(f64::INFINITY, |replacement| replacement.window);
        let rate = |(degree, count): &(u32, u32)| sphere_loss_rate(f64::from(*count), *degree, self.mttf, window);
        self.spheres.iter().filter(|(_, count)| *count > 0).map(rate).sum()
    }

    /// Rate of failures after which a replica is replaced.
    #[must_use]
    pub fn replacement_rate(&self) -> f64 {
        let replaced = self.spheres.iter().filter(|(degree, _)| *degree > 1 && self.replacement.is_some());
        replaced.map(|(degree, count)| f64::from(*degree) * f64::from(*count) / self.mttf).sum()
    }

    /// Factor by which replacements alone lengthen the job. Infinite if the job only stands still.
    #[must_use]
    pub fn replacement_stretch(&self) -> f64 {
        let Some(Replacement { window, stop, slowdown, .. }) = self.replacement else { return 1.0 };
        let rate = self.replacement_rate();
        let standing = rate * stop;
        if standing >= 1.0 {
            return f64::INFINITY;
        }
        let cloning = -(-rate * window).exp_m1();
        1.0 / ((1.0 - standing) * (1.0 - cloning * slowdown))
    }

    /// Expected time of the job. Infinite if it will not end. `None` if only a simulation can tell: with a limited
    /// number of spares, or with checkpoints and replicas that are not replaced.
    ///
    /// Exact for one replica of each rank, and for replicas without replacement and checkpoints. With replacement,
    /// correct to first order in window over MTTF.
    #[must_use]
    pub fn expected_time(&self) -> Option<f64> {
        let is_single = self.spheres.iter().all(|(degree, count)| *degree == 1 || *count == 0);
        let time = match (&self.replacement, &self.saving) {
            (None, None) => self.time_from_scratch(),
            (Some(Replacement { spares: Some(_), .. }), _) if !is_single => return None,
            (None, Some(_)) if !is_single => return None,
            _ => self.time_by_segments(),
        };
        // Zero times infinity: an attempt that practically never succeeds.
        Some(if time.is_nan() { f64::INFINITY } else { time })
    }

    /// The job starts over until an attempt succeeds. All hosts are alive at each start, and can fail from then on.
    fn time_from_scratch(&self) -> f64 {
        let counts = self.spheres.iter().map(|(degree, count)| (*degree, f64::from(*count))).collect();
        let spheres = Spheres { counts, mttf: self.mttf };
        let again = self.restart + self.work;
        let lost = 1.0 - spheres.survival(self.work);
        if lost == 0.0 {
            return self.work;
        }
        spheres.mean_time_within(self.work) + lost * spheres.mean_time_within(again) / spheres.survival(again)
    }

    /// Interruptions are Poisson, and repeat everything since the last complete checkpoint.
    fn time_by_segments(&self) -> f64 {
        let stretch = self.replacement_stretch();
        let rate = self.interruption_rate();
        let mtti = if rate > 0.0 { 1.0 / rate } else { f64::INFINITY };
        // Time to get from one complete checkpoint to the next. The first attempt is shorter, because part of its work
        // was done during the previous checkpoint.
        let segment = |first_attempt: f64, again: f64| {
            if mtti.is_infinite() {
                return first_attempt;
            }
            -mtti * (-first_attempt / mtti).exp_m1() * ((self.restart + again) / mtti).exp()
        };
        let Some(saving) = self.saving else { return segment(self.work * stretch, self.work * stretch) };
        // Work done while a checkpoint is written is covered only by the next one, which waits for it.
        let ahead = saving.background * (1.0 - saving.slowdown) / stretch;
        let saving = Saving { interval: saving.interval.max(ahead), ..saving };
        let cost = saving.stop + saving.background;
        let first = saving.first_work();
        if first >= self.work {
            return segment(self.work * stretch, self.work * stretch);
        }
        let more = ((self.work - first) / saving.interval).ceil() - 1.0;
        let last = self.work - first - more * saving.interval;
        let begin = first * stretch + cost;
        let again = saving.interval * stretch + cost;
        let mut time = segment(begin, begin);
        time += more * segment(again - ahead * stretch, again);
        // A job that ends before its last checkpoint is complete saves the time of waiting for it.
        let ahead = ahead.min(last);
        time += segment((last - ahead) * stretch, last * stretch);
        time
    }

    /// The policy with the interval of least expected time. `None` without checkpoints, or without a closed form.
    #[must_use]
    pub fn with_best_interval(&self) -> Option<Self> {
        let saving = self.saving?;
        let with = |interval: f64| Self { saving: Some(Saving { interval, ..saving }), ..self.clone() };
        // A checkpoint that is incomplete when the next one begins is useless.
        let least = (saving.stop + saving.background).max(self.work * 1e-4);
        let rough = least_at(least, self.work.max(least), |interval| with(interval).expected_time())?;
        // Intervals that divide the work evenly beat those around them.
        let even = |work: f64| (1..=EVEN_COUNT).map(move |count| work / f64::from(count));
        let even = even(self.work).chain(even(self.work - saving.first)).filter(|interval| *interval >= least);
        let timed = even.chain([rough]).map(|interval| (with(interval).expected_time(), interval));
        let best = timed.min_by(|one, other| one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal))?.1;
        Some(with(best))
    }

    /// The policy with the first checkpoint at the point of least expected time. [`crate::first_point`] is its
    /// counterpart for the case that a failure occurs.
    #[must_use]
    pub fn with_best_first(&self) -> Option<Self> {
        let saving = self.saving?;
        let with = |first: f64| Self { saving: Some(Saving { first, ..saving }), ..self.clone() };
        let best = least_at(saving.interval, self.work.max(saving.interval), |first| with(first).expected_time())?;
        Some(with(best))
    }
}

impl Saving {
    /// Work before the first checkpoint.
    #[must_use]
    pub fn first_work(&self) -> f64 {
        self.first.max(self.interval)
    }
}

/// Most equal parts of the work that are tried.
const EVEN_COUNT: u32 = 1000;
/// Number of points in the search for a minimum, on a logarithmic scale. The neighbourhood of the best is searched
/// again with as many.
const POINT_COUNT: u32 = 256;

fn least_at(low: f64, high: f64, value: impl Fn(f64) -> Option<f64>) -> Option<f64> {
    let search = |low: f64, high: f64| {
        let at = |number: u32| low * (high / low).powf(f64::from(number) / f64::from(POINT_COUNT));
        let values = (0..=POINT_COUNT).map(|number| Some((value(at(number))?, at(number))));
        let values: Option<Vec<_>> = values.collect();
        values?.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, at)| at)
    };
    let step = (high / low).powf(1.0 / f64::from(POINT_COUNT));
    let rough = search(low, high)?;
    search((rough / step).max(low), (rough * step).min(high))
}
