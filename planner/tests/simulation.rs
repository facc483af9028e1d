//! The simulation agrees with the closed forms within one percent, where both apply, at fixed seeds.

use planner::Version::Corrected;
use planner::cloning::Cloning;
use planner::interval::Checkpoints;
use planner::policy::{Policy, Replacement, Saving};
use planner::simulation::{Outcomes, replay, simulate};
use planner::sphere::{duda, time_without_cloning};

const SEED: u64 = 20_260_101;

#[track_caller]
fn agree(name: &str, outcomes: &Outcomes, expected: f64) {
    assert_eq!(outcomes.unfinished, 0.0, "{name}");
    let error = outcomes.time / expected - 1.0;
    assert!(error.abs() < 0.01, "{name}: simulated {} ± {}, expected {expected}", outcomes.time, outcomes.time_error);
    // A larger error would make the comparison meaningless.
    assert!(outcomes.time_error / expected < 0.004, "{name}: ± {}", outcomes.time_error);
}

/// A thousand hosts with an MTTF of five years, and a job of a hundred hours.
fn single() -> Policy {
    Policy { work: 100.0, spheres: vec![(1, 1000)], mttf: 43_800.0, restart: 0.25, replacement: None, saving: None }
}

fn doubled(replacement: Replacement) -> Policy {
    Policy { spheres: vec![(2, 1000)], replacement: Some(replacement), ..single() }
}

const INSTANT: Replacement = Replacement { window: 0.05, stop: 0.0, slowdown: 0.0, spares: None, repair: None };

#[test]
fn starting_again_takes_the_time_that_duda_gives() {
    let policy = Policy { work: 40.0, restart: 1e-9, ..single() };
    let outcomes = simulate(&policy, SEED, 100_000, 1e6);
    agree("Duda", &outcomes, duda(40.0, 1000.0 / 43_800.0, 1e-9));
    agree("closed form", &outcomes, policy.expected_time().unwrap());
    let interrupted = 1.0 - (-40.0_f64 * 1000.0 / 43_800.0).exp();
    assert!((outcomes.interrupted / interrupted - 1.0).abs() < 0.01);
}

#[test]
fn checkpoints_take_the_time_that_daly_gives() {
    let saving = Saving { interval: 4.0, first: 0.0, stop: 0.25, background: 0.0, slowdown: 0.0 };
    let policy = Policy { work: 400.0, saving: Some(saving), ..single() };
    let outcomes = simulate(&policy, SEED, 4000, 1e6);
    let daly = Checkpoints { interval: 4.0, checkpoint: 0.25, restart: 0.25 };
    agree("Daly's complete model", &outcomes, daly.time_complete(400.0, 43.8));
    agree("without the last checkpoint", &outcomes, daly.time(400.0, 43.8));
    agree("closed form", &outcomes, policy.expected_time().unwrap());
}

#[test]
fn late_first_checkpoints_take_the_time_of_the_closed_form() {
    for first in [10.0, 30.0] {
        let saving = Saving { interval: 5.0, first, stop: 0.1, background: 0.0, slowdown: 0.0 };
        let policy = Policy { work: 60.0, saving: Some(saving), ..single() };
        let outcomes = simulate(&policy, SEED, 30_000, 1e6);
        agree("late first checkpoint", &outcomes, policy.expected_time().unwrap());
    }
}

#[test]
fn background_checkpoints_take_the_time_of_the_closed_form() {
    let saving = Saving { interval: 5.0, first: 0.0, stop: 0.01, background: 2.0, slowdown: 0.1 };
    let policy = Policy { work: 200.0, saving: Some(saving), ..single() };
    let outcomes = simulate(&policy, SEED, 10_000, 1e6);
    agree("background", &outcomes, policy.expected_time().unwrap());
    // Checkpoints that are due before the previous one is complete are taken when it is.
    let crowded = Policy { saving: Some(Saving { interval: 1.0, ..saving }), ..policy.clone() };
    agree("one after the other", &simulate(&crowded, SEED, 10_000, 1e6), crowded.expected_time().unwrap());
    // They cost less than if the job stopped for all of the time.
    let stopped = Saving { stop: 2.01, background: 0.0, slowdown: 0.0, ..saving };
    assert!(policy.expected_time() < Policy { saving: Some(stopped), ..policy.clone() }.expected_time());
}

#[test]
fn clones_that_stop_the_job_take_the_time_of_dinos_model() {
    // Figure 3.9 with half a million ranks, where recoveries add a twelfth.
    let (ranks, mttf, clone) = (500_000, 50.0 * 8760.0, 2.0 / 60.0);
    let replacement = Replacement { window: 1e-6, stop: clone, ..INSTANT };
    let policy = Policy {
        work: 256.0,
        spheres: vec![(2, ranks)],
        mttf,
        restart: clone,
        replacement: Some(replacement),
        saving: None,
    };
    let outcomes = simulate(&policy, SEED, 100, 1e6);
    let dino = Cloning { ranks: f64::from(ranks), degree: 2.0, mttf, clone };
    agree("eq. 3.7", &outcomes, dino.time(256.0));
    agree("closed form", &outcomes, policy.expected_time().unwrap());
    assert!((outcomes.replacements / dino.failures(256.0) - 1.0).abs() < 0.01);
}

#[test]
fn replicas_without_replacement_take_the_time_of_the_exact_form() {
    for (degree, count, mttf) in [(2, 20_000, 50_000.0), (3, 3000, 5000.0)] {
        let policy = Policy { work: 256.0, spheres: vec![(degree, count)], mttf, restart: 0.5, ..single() };
        let outcomes = simulate(&policy, SEED, 20_000, 1e6);
        agree("exact", &outcomes, policy.expected_time().unwrap());
    }
}

#[test]
fn only_the_corrected_published_form_is_near_the_simulation() {
    let (ranks, mttf, work) = (20_000, 50_000.0, 256.0);
    let policy = Policy { work, spheres: vec![(2, ranks)], mttf, restart: 0.5, ..single() };
    let outcomes = simulate(&policy, SEED, 4000, 1e6);
    let form = |version| time_without_cloning(work, mttf, f64::from(ranks), 2.0, 0.5, version);
    let error = |version| (form(version) / outcomes.time - 1.0).abs();
    // Duda's formula assumes Poisson failures, but without repair spheres are lost more and more often. So on average
    // they survive longer, and more is lost when they do not.
    assert!(error(Corrected) < 0.2, "{}", error(Corrected));
    assert!(error(planner::Version::AsPublished) > 2.0 * error(Corrected));
}

/// Lost replicas are not replaced.
#[test]
fn partial_replication_takes_the_time_of_the_exact_form() {
    let policy = Policy { work: 30.0, spheres: vec![(1, 500), (2, 500)], ..single() };
    let outcomes = simulate(&policy, SEED, 30_000, 1e6);
    agree("half of the ranks", &outcomes, policy.expected_time().unwrap());
}

#[test]
fn windows_lose_spheres_at_the_rate_of_the_closed_form() {
    // Hosts with a long replacement time, so that rare losses of spheres occur.
    let slow = Replacement { window: 20.0, ..INSTANT };
    let policy = Policy { work: 6000.0, spheres: vec![(2, 100)], mttf: 10_000.0, restart: 5.0, ..doubled(slow) };
    let expected = policy.expected_time().unwrap();
    let outcomes = simulate(&policy, SEED, 10_000, 1e9);
    assert!(outcomes.interrupted > 0.15, "{}", outcomes.interrupted);
    agree("r = 2", &outcomes, expected);
    let saving = Saving { interval: 1000.0, first: 0.0, stop: 0.5, background: 1.0, slowdown: 0.2 };
    let saved = Policy { saving: Some(saving), ..policy };
    let outcomes = simulate(&saved, SEED, 2500, 1e9);
    agree("r = 2 with checkpoints", &outcomes, saved.expected_time().unwrap());
    assert!(saved.expected_time().unwrap() < expected);
}

/// Replicas are replaced, and checkpoints taken.
#[test]
fn spheres_of_two_degrees_take_the_time_of_the_closed_form() {
    let slow = Replacement { window: 2.0, stop: 0.05, slowdown: 0.1, ..INSTANT };
    let saving = Saving { interval: 8.0, first: 20.0, stop: 0.05, background: 1.0, slowdown: 0.1 };
    let spheres = vec![(1, 500), (2, 500)];
    let policy = Policy { work: 100.0, spheres, saving: Some(saving), ..doubled(slow) };
    let outcomes = simulate(&policy, SEED, 20_000, 1e6);
    assert!(outcomes.interruptions > 1.0 && outcomes.replacements > 1.0, "{outcomes:?}");
    agree("half of the ranks doubled", &outcomes, policy.expected_time().unwrap());
}

#[test]
fn three_replicas_lose_spheres_at_the_rate_of_the_closed_form() {
    let slow = Replacement { window: 120.0, ..INSTANT };
    let policy = Policy { work: 10_000.0, spheres: vec![(3, 400)], mttf: 10_000.0, ..doubled(slow) };
    let outcomes = simulate(&policy, SEED, 4000, 1e9);
    agree("r = 3", &outcomes, policy.expected_time().unwrap());
    let expected = policy.interruption_rate() * outcomes.time;
    assert!((outcomes.interruptions / expected - 1.0).abs() < 0.1, "{} {expected}", outcomes.interruptions);
}

#[test]
fn clones_beside_the_job_slow_it_as_the_closed_form_says() {
    let slow = Replacement { window: 5.0, stop: 0.02, slowdown: 0.2, ..INSTANT };
    let policy = Policy { mttf: 1e6, ..doubled(slow) };
    let outcomes = simulate(&policy, SEED, 4000, 1e6);
    agree("slow-down", &outcomes, policy.expected_time().unwrap());
    let often = Policy { mttf: 43_800.0, work: 20.0, ..policy };
    agree("clones that overlap", &simulate(&often, SEED, 4000, 1e6), often.expected_time().unwrap());
}

#[test]
fn spares_that_run_out_leave_the_job_with_what_is_left() {
    let with = |spares, repair| doubled(Replacement { spares, repair, ..INSTANT });
    let run = |policy: &Policy| simulate(&Policy { work: 1000.0, ..policy.clone() }, SEED, 400, 1e6);
    let (few, enough, repaired) =
        (run(&with(Some(5), None)), run(&with(Some(100), None)), run(&with(Some(5), Some(10.0))));
    // On average 46 hosts fail in this time.
    assert!((enough.replacements - 45.7).abs() < 1.5, "{}", enough.replacements);
    assert_eq!((few.without_spare, enough.without_spare), (1.0, 0.0));
    assert!(few.interruptions > 10.0 * enough.interruptions.max(0.01));
    assert!(repaired.interruptions < few.interruptions / 5.0 && repaired.without_spare < 0.2, "{repaired:?}");
    assert!(with(Some(5), None).expected_time().is_none());
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_another() {
    let policy = Policy { work: 40.0, ..single() };
    assert_eq!(simulate(&policy, 1, 50, 1e5), simulate(&policy, 1, 50, 1e5));
    assert_ne!(simulate(&policy, 1, 50, 1e5), simulate(&policy, 2, 50, 1e5));
}

#[test]
fn jobs_that_cannot_end_are_said_not_to() {
    let hopeless = Policy { work: 10_000.0, ..single() };
    let outcomes = simulate(&hopeless, SEED, 20, 20_000.0);
    assert_eq!((outcomes.unfinished, outcomes.quantiles[0]), (1.0, f64::INFINITY));
    assert!(hopeless.expected_time().unwrap() > 1e50);
    let drowned = doubled(Replacement { stop: 30.0, ..INSTANT });
    assert_eq!(drowned.expected_time(), Some(f64::INFINITY));
    assert_eq!(simulate(&drowned, SEED, 5, 500.0).unfinished, 1.0);
}

#[test]
fn losses_at_given_times_cost_what_can_be_counted_by_hand() {
    let saving = Saving { interval: 10.0, first: 0.0, stop: 1.0, background: 0.0, slowdown: 0.0 };
    let single = Policy { work: 35.0, spheres: vec![(1, 2)], restart: 3.0, saving: Some(saving), ..single() };
    // Three checkpoints add three units.
    assert_eq!(replay(&single, &[], 1e3), Some(38.0));
    // At 16, five units since the checkpoint are repeated after a restart of 3.
    assert_eq!(replay(&single, &[(16.0, 1)], 1e3), Some(38.0 + 5.0 + 3.0));
    // Before the first checkpoint everything is repeated; a loss during the restart begins it anew.
    assert_eq!(replay(&single, &[(4.0, 0)], 1e3), Some(38.0 + 4.0 + 3.0));
    assert_eq!(replay(&single, &[(4.0, 0), (6.0, 1)], 1e3), Some(38.0 + 4.0 + 2.0 + 3.0));
    assert_eq!(replay(&single, &[(16.0, 1)], 20.0), None);
    // Checkpoints that take longer than the interval follow each other directly: at 10, 22 and 34.
    let slow = Saving { interval: 10.0, stop: 0.0, background: 12.0, ..saving };
    let slow = Policy { saving: Some(slow), ..single.clone() };
    assert_eq!(replay(&slow, &[(33.0, 0)], 1e3), Some(33.0 + 3.0 + 25.0));
    assert_eq!(replay(&slow, &[(34.5, 0)], 1e3), Some(34.5 + 3.0 + 13.0));
    // The loss of one of two hosts costs the stop for the clone; the loss of both, a return.
    let replacement = Replacement { window: 2.0, stop: 0.5, slowdown: 0.0, spares: None, repair: None };
    let double = Policy { spheres: vec![(2, 2)], replacement: Some(replacement), ..single };
    assert_eq!(replay(&double, &[(16.0, 0)], 1e3), Some(38.5));
    assert_eq!(replay(&double, &[(16.0, 0), (17.0, 1)], 1e3), Some(39.0));
    assert_eq!(replay(&double, &[(16.0, 0), (17.0, 0)], 1e3), Some(38.0 + 0.5 + 5.5 + 3.0));
}
