//! Seeded Monte Carlo simulation of a [`Policy`]: each failure, clone, checkpoint and restart, in many runs.
//!
//! Failures may occur at any moment, also during checkpoints, clones and restarts. Spare hosts do not fail before they
//! are used. The same seed gives the same result.

use crate::policy::{Policy, Replacement};
use fastrand::Rng;
use serde::Serialize;
use std::collections::VecDeque;

/// Statistics of many runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcomes {
    /// Number of simulated runs.
    pub runs: u32,
    /// Fraction of runs that did not end within their time.
    pub unfinished: f64,
    /// Mean time of the runs that ended.
    pub time: f64,
    /// Standard error of `time`.
    pub time_error: f64,
    /// Times within which 50, 95 and 99 % of all runs ended; infinite if fewer did.
    pub quantiles: [f64; 3],
    /// Mean number of interruptions of a run.
    pub interruptions: f64,
    /// Fraction of runs with at least one interruption.
    pub interrupted: f64,
    /// Mean number of replaced replicas in a run.
    pub replacements: f64,
    /// Fraction of runs in which a loss found no spare.
    pub without_spare: f64,
}

/// Simulates `runs` runs of a policy, each limited to `time_max`.
///
/// # Panics
/// If there are no runs, or `time_max` is infinite: a job that never ends would then run for ever.
#[must_use]
pub fn simulate(policy: &Policy, seed: u64, runs: u32, time_max: f64) -> Outcomes {
    simulate_within(policy, seed, runs, time_max, u64::MAX).expect("it ends, for time is limited")
}

/// Like [`simulate`], limited to `steps_max` steps of constant cost. `None` if they do not suffice.
///
/// # Panics
/// As for [`simulate`].
#[must_use]
pub fn simulate_within(policy: &Policy, seed: u64, runs: u32, time_max: f64, steps_max: u64) -> Option<Outcomes> {
    assert!(runs > 0 && time_max.is_finite(), "{runs} runs of {time_max}");
    let mut rng = Rng::with_seed(seed);
    let mut steps_left = steps_max;
    let all: Option<Vec<_>> =
        (0..runs).map(|_| Run::new(policy, &mut rng).carry_out(time_max, &mut steps_left)).collect();
    Some(outcomes(&all?, runs))
}

/// Time of one run with given losses: time, and number of the sphere that loses a host. All spheres have the first
/// degree of the policy. `None` if the run does not end within `time_max`.
///
/// # Panics
/// If the times are not ascending, or `time_max` is infinite.
#[must_use]
pub fn replay(policy: &Policy, losses: &[(f64, u32)], time_max: f64) -> Option<f64> {
    assert!(losses.is_sorted_by(|(one, _), (other, _)| one <= other), "{losses:?}");
    assert!(time_max.is_finite(), "{time_max}");
    let mut rng = Rng::with_seed(0);
    let mut run = Run::new(policy, &mut rng);
    run.given = Some(losses.iter().copied().collect());
    let mut steps_left = u64::MAX;
    run.carry_out(time_max, &mut steps_left).and_then(|outcome| outcome.time)
}

fn outcomes(all: &[Outcome], runs: u32) -> Outcomes {
    let share = |count: usize| count as f64 / f64::from(runs);
    let mean = |value: &dyn Fn(&Outcome) -> f64| all.iter().map(value).sum::<f64>() / f64::from(runs);
    let mut times: Vec<_> = all.iter().filter_map(|outcome| outcome.time).collect();
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let time = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|one| (one - time).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let quantile = |part: f64| {
        let at = (part * f64::from(runs)).ceil() as usize;
        times.get(at.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    };
    Outcomes {
        runs,
        unfinished: 1.0 - share(times.len()),
        time,
        time_error: (variance / count).sqrt(),
        quantiles: [0.5, 0.95, 0.99].map(quantile),
        interruptions: mean(&|outcome| f64::from(outcome.interruptions)),
        interrupted: share(all.iter().filter(|outcome| outcome.interruptions > 0).count()),
        replacements: mean(&|outcome| f64::from(outcome.replacements)),
        without_spare: share(all.iter().filter(|outcome| outcome.lacked_spare).count()),
    }
}

#[derive(Default)]
struct Outcome {
    /// `None` if the time limit was reached.
    time: Option<f64>,
    interruptions: u32,
    replacements: u32,
    lacked_spare: bool,
}

struct Degraded {
    number: u64,
    /// Index of its degree in `Policy::spheres`.
    class: usize,
    live: u32,
}

struct Run<'a> {
    policy: &'a Policy,
    rng: &'a mut Rng,
    outcome: Outcome,
    now: f64,
    progress: f64,
    /// Progress to which an interruption returns the job.
    saved: f64,
    next_checkpoint: f64,
    /// End of the current standstill.
    standing_until: f64,
    /// Checkpoint being written: time at which it is complete, and its progress.
    saving: Option<(f64, f64)>,
    host_count: u64,
    /// Number of failed hosts that are not replaced.
    lost_hosts: u64,
    degraded: Vec<Degraded>,
    sphere_number: u64,
    /// Clones being made: completion time and sphere.
    clones: Vec<(f64, u64)>,
    /// Spheres whose loss found no spare.
    waiting: Vec<u64>,
    spares: u32,
    /// Times at which failed hosts are repaired.
    repairs: Vec<f64>,
    /// Given losses, as time and sphere; `None` if losses are random.
    given: Option<VecDeque<(f64, u32)>>,
}

enum Event {
    Failure,
    CloneDone(usize),
    Repaired(usize),
    Saved,
    GoOn,
    Checkpoint,
    End,
}

impl<'a> Run<'a> {
    fn new(policy: &'a Policy, rng: &'a mut Rng) -> Self {
        let mut run = Self {
            policy,
            rng,
            outcome: Outcome::default(),
            now: 0.0,
            progress: 0.0,
            saved: 0.0,
            next_checkpoint: 0.0,
            standing_until: 0.0,
            saving: None,
            host_count: policy.host_count(),
            lost_hosts: 0,
            degraded: Vec::new(),
            sphere_number: 0,
            clones: Vec::new(),
            waiting: Vec::new(),
            spares: 0,
            repairs: Vec::new(),
            given: None,
        };
        run.begin();
        run
    }

    /// Starts or restarts the job from the saved progress, with all hosts alive.
    fn begin(&mut self) {
        self.progress = self.saved;
        self.saving = None;
        self.lost_hosts = 0;
        self.degraded.clear();
        self.clones.clear();
        self.waiting.clear();
        self.repairs.clear();
        self.spares = self.policy.replacement.and_then(|replacement| replacement.spares).unwrap_or(u32::MAX);
        self.next_checkpoint = match &self.policy.saving {
            None => f64::INFINITY,
            Some(saving) => saving.first_work().max(self.saved + saving.interval),
        };
    }

    /// Simulates the run. `None` if the steps do not suffice.
    fn carry_out(mut self, time_max: f64, steps_left: &mut u64) -> Option<Outcome> {
        loop {
            let steps = 1 + self.clones.len() + self.repairs.len() + self.degraded.len();
            *steps_left = steps_left.checked_sub(steps as u64)?;
            let (at, event) = self.next();
            if at > time_max {
                return Some(self.outcome);
            }
            self.progress += (at - self.now) * self.speed();
            self.now = at;
            match event {
                Event::End => {
                    self.outcome.time = Some(self.now);
                    return Some(self.outcome);
                }
                Event::Failure => self.fail(),
                Event::CloneDone(place) => {
                    let (_, sphere) = self.clones.swap_remove(place);
                    self.restore(sphere);
                }
                Event::Repaired(place) => {
                    self.repairs.swap_remove(place);
                    self.spares = self.spares.saturating_add(1);
                    if let Some(sphere) = self.waiting.pop() {
                        self.replace(sphere);
                    }
                }
                Event::Saved => {
                    if let Some((_, progress)) = self.saving.take() {
                        self.saved = progress;
                    }
                }
                Event::GoOn => {}
                Event::Checkpoint => self.checkpoint(),
            }
        }
    }

    fn speed(&self) -> f64 {
        if self.now < self.standing_until {
            return 0.0;
        }
        let cloning = self.policy.replacement.filter(|_| !self.clones.is_empty()).map_or(0.0, |it| it.slowdown);
        let saving = self.policy.saving.filter(|_| self.saving.is_some()).map_or(0.0, |it| it.slowdown);
        (1.0 - cloning) * (1.0 - saving)
    }

    fn next(&mut self) -> (f64, Event) {
        let failure_at = match &self.given {
            // A given loss during a standstill that is over takes effect as soon as possible.
            Some(given) => given.front().map_or(f64::INFINITY, |(at, _)| at.max(self.now)),
            None => self.now - (1.0 - self.rng.f64()).ln() * self.policy.mttf / self.live_hosts(),
        };
        let mut first = (failure_at, Event::Failure);
        let mut offer = |at: f64, event: Event| {
            if at < first.0 {
                first = (at, event);
            }
        };
        for (place, (done, _)) in self.clones.iter().enumerate() {
            offer(*done, Event::CloneDone(place));
        }
        for (place, at) in self.repairs.iter().enumerate() {
            offer(*at, Event::Repaired(place));
        }
        if let Some((at, _)) = self.saving {
            offer(at, Event::Saved);
        }
        let speed = self.speed();
        if self.now < self.standing_until {
            offer(self.standing_until, Event::GoOn);
        } else if speed > 0.0 {
            let after = |target: f64| self.now + (target - self.progress).max(0.0) / speed;
            // No checkpoint is due at the very end, and a checkpoint waits for the previous one to be complete.
            if self.saving.is_none() && self.next_checkpoint < self.policy.work * (1.0 - 1e-12) {
                offer(after(self.next_checkpoint), Event::Checkpoint);
            }
            offer(after(self.policy.work), Event::End);
        }
        first
    }

    fn checkpoint(&mut self) {
        let Some(saving) = self.policy.saving else { return };
        self.standing_until = self.now + saving.stop;
        // Removes rounding errors. A checkpoint that had to wait is at a later progress.
        self.progress = self.progress.max(self.next_checkpoint);
        self.saving = Some((self.standing_until + saving.background, self.progress));
        self.next_checkpoint = self.progress + saving.interval;
    }

    fn live_hosts(&self) -> f64 {
        (self.host_count - self.lost_hosts) as f64
    }

    /// Picks a live host that fails.
    fn fail(&mut self) {
        if let Some((_, sphere)) = self.given.as_mut().and_then(VecDeque::pop_front) {
            return self.fail_in(u64::from(sphere));
        }
        let mut pick = self.rng.f64() * self.live_hosts();
        for place in 0..self.degraded.len() {
            pick -= f64::from(self.degraded[place].live);
            if pick < 0.0 {
                self.degraded[place].live -= 1;
                let Degraded { number, live, .. } = self.degraded[place];
                return self.lost(number, live);
            }
        }
        let mut found = self.policy.spheres.len() - 1;
        for (class, (degree, count)) in self.policy.spheres.iter().enumerate() {
            let degraded = self.degraded.iter().filter(|one| one.class == class).count() as u64;
            pick -= f64::from(*degree) * (u64::from(*count) - degraded) as f64;
            if pick < 0.0 {
                found = class;
                break;
            }
        }
        let live = self.policy.spheres[found].0 - 1;
        self.sphere_number += 1;
        self.degraded.push(Degraded { number: self.sphere_number, class: found, live });
        self.lost(self.sphere_number, live);
    }

    /// Lets a host of this sphere fail.
    fn fail_in(&mut self, number: u64) {
        if let Some(place) = self.degraded.iter().position(|one| one.number == number) {
            self.degraded[place].live -= 1;
            return self.lost(number, self.degraded[place].live);
        }
        let live = self.policy.spheres[0].0 - 1;
        self.degraded.push(Degraded { number, class: 0, live });
        self.lost(number, live);
    }

    fn lost(&mut self, sphere: u64, live: u32) {
        self.lost_hosts += 1;
        if live == 0 {
            self.outcome.interruptions += 1;
            self.begin();
            self.standing_until = self.now + self.policy.restart;
            return;
        }
        if let Some(Replacement { repair, .. }) = self.policy.replacement {
            self.repairs.extend(repair.map(|time| self.now + time));
            self.replace(sphere);
        }
    }

    /// Begins a clone for this sphere, if there is a spare.
    fn replace(&mut self, sphere: u64) {
        let Some(Replacement { window, stop, spares, .. }) = self.policy.replacement else { return };
        if self.spares == 0 {
            self.outcome.lacked_spare = true;
            self.waiting.push(sphere);
            return;
        }
        if spares.is_some() {
            self.spares -= 1;
        }
        self.clones.push((self.now + window, sphere));
        self.standing_until = self.standing_until.max(self.now) + stop;
    }

    fn restore(&mut self, sphere: u64) {
        self.outcome.replacements += 1;
        let Some(place) = self.degraded.iter().position(|one| one.number == sphere) else { return };
        self.lost_hosts -= 1;
        let one = &mut self.degraded[place];
        one.live += 1;
        if one.live == self.policy.spheres[one.class].0 {
            self.degraded.swap_remove(place);
        }
    }
}
