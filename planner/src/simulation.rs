//! A seeded Monte-Carlo simulation of a [`Policy`]: every failure, clone, checkpoint and restart of a run, many runs.
//!
//! Failures may hit at any moment, also checkpoints, clones and restarts. Spare hosts do not fail before they are used.
//! The same seed gives the same result.

use crate::policy::{Policy, Replacement};
use fastrand::Rng;
use serde::Serialize;
use std::collections::VecDeque;

/// What became of many runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcomes {
    /// Runs there were.
    pub runs: u32,
    /// Those that did not end within the time they had, as a share.
    pub unfinished: f64,
    /// Mean time of those that did.
    pub time: f64,
    /// Standard error of it.
    pub time_error: f64,
    /// Times that 50, 95 and 99 % of all runs ended within; infinite where they did not.
    pub quantiles: [f64; 3],
    /// Interruptions of a run, in the mean.
    pub interruptions: f64,
    /// Share of runs that were interrupted at all.
    pub interrupted: f64,
    /// Replicas replaced in a run, in the mean.
    pub replacements: f64,
    /// Share of runs in which a loss found no spare.
    pub without_spare: f64,
}

/// Simulates `runs` of a policy, each for `time_max` at most.
///
/// # Panics
/// If there are no runs, or `time_max` is not finite: a job that never ends would never be done.
#[must_use]
pub fn simulate(policy: &Policy, seed: u64, runs: u32, time_max: f64) -> Outcomes {
    simulate_within(policy, seed, runs, time_max, u64::MAX).expect("it ends, for time is limited")
}

/// The same if no more than `steps_max` steps are needed, each of which takes a constant time: `None` otherwise.
///
/// # Panics
/// As [`simulate`].
#[must_use]
pub fn simulate_within(policy: &Policy, seed: u64, runs: u32, time_max: f64, steps_max: u64) -> Option<Outcomes> {
    assert!(runs > 0 && time_max.is_finite(), "{runs} runs of {time_max}");
    let mut rng = Rng::with_seed(seed);
    let mut steps_left = steps_max;
    let all: Option<Vec<_>> =
        (0..runs).map(|_| Run::new(policy, &mut rng).carry_out(time_max, &mut steps_left)).collect();
    Some(outcomes(&all?, runs))
}

/// Time of one run of a policy in which hosts are lost at given times, each of the sphere with this number, all of
/// which have the first degree. `None` if it does not end within `time_max`.
///
/// # Panics
/// If the times do not rise, or `time_max` is not finite.
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
    /// Absent if the time was up.
    time: Option<f64>,
    interruptions: u32,
    replacements: u32,
    lacked_spare: bool,
}

/// A sphere that lacks replicas.
struct Degraded {
    number: u64,
    /// Of `Policy::spheres`.
    class: usize,
    live: u32,
}

struct Run<'a> {
    policy: &'a Policy,
    rng: &'a mut Rng,
    outcome: Outcome,
    now: f64,
    progress: f64,
    /// Progress to which an interruption returns.
    saved: f64,
    next_checkpoint: f64,
    /// The job stands still until then.
    standing_until: f64,
    /// A checkpoint counts from then on, and has this progress.
    saving: Option<(f64, f64)>,
    host_count: u64,
    /// Of them, those that have failed and are not replaced.
    lost_hosts: u64,
    degraded: Vec<Degraded>,
    sphere_number: u64,
    /// When a clone is complete, and of which sphere.
    clones: Vec<(f64, u64)>,
    /// Spheres whose loss found no spare.
    waiting: Vec<u64>,
    spares: u32,
    /// When hosts are back.
    repairs: Vec<f64>,
    /// When hosts are lost and of which sphere, where that is not drawn.
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

    /// All hosts are there, and the job is where it was saved.
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

    /// `None` if there are not enough steps left.
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
            // What falls into a standstill that is over strikes as soon as it can.
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
            // At the end there is nothing left to save; and while one is written, the next has to wait.
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
        // As it was meant to be, where only rounding is between; one that had to wait comes later.
        self.progress = self.progress.max(self.next_checkpoint);
        self.saving = Some((self.standing_until + saving.background, self.progress));
        self.next_checkpoint = self.progress + saving.interval;
    }

    fn live_hosts(&self) -> f64 {
        (self.host_count - self.lost_hosts) as f64
    }

    /// One of the living hosts dies.
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

    /// A host of this sphere dies.
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

    /// A clone is begun, if there is a spare.
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
