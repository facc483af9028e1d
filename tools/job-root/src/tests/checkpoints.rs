//! Checkpoints, from the place in the store to a return: with stores that answer late or never, copies on partners,
//! losses and failovers between any two inputs. Planted mistakes show that each rule is looked at.

use super::*;
use crate::mutation::{self, Mutation};
use line_store::Level;
use world::{Mistake, record_losses, record_returns};

/// Number of seeds: `REDRT_SEEDS` if it is set.
fn seed_count(usual: u64) -> u64 {
    std::env::var("REDRT_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// The kill comes between any two inputs.
#[test]
fn a_killed_root_repeats_its_unanswered_orders() {
    let mut loss_count = 0;
    for seed in 0..seed_count(200) {
        let (losses, wrong) = record_losses(Scenario::of_seed(seed).losing_roots().answering(), seed as usize);
        loss_count += losses;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
    assert!(loss_count > 1000, "{loss_count}");
    for (what, step_count) in [("StoreSilent", None), ("GoBack", Some(400)), ("Drop(", Some(400))] {
        let is_stuck = |seed: u64| {
            // A job that goes back often: a host that is lost meanwhile begins the return anew.
            let shape = if what == "GoBack" {
                Scenario::of_seed(seed).without_replicas().calm()
            } else {
                Scenario::of_seed(seed)
            };
            let scenario = shape.losing_roots().answering().mistaking(Mistake::OrdersForgotten);
            let (_, wrong) = record_losses(scenario, step_count.unwrap_or(seed as usize));
            wrong.iter().any(|wrong| wrong.contains(what))
        };
        assert!((0..1000).any(is_stuck), "a root that forgets its orders is like one that does not: {what}");
    }
}

/// When a job is lost, the store may or may not keep the checkpoint it works on. The job chooses its start only when
/// that is known. Otherwise it would be loaded from one checkpoint, and its output cut at another.
#[test]
fn a_return_waits_for_the_store_and_takes_the_newest() {
    let mut return_count = 0;
    for seed in 0..seed_count(100) {
        let (returns, wrong) = record_returns(Scenario::of_seed(seed).without_replicas().calm());
        return_count += returns;
        assert_eq!(wrong, None, "seed {seed}");
    }
    assert!(return_count > 20, "{return_count}");
}

#[test]
fn losses_and_failovers_leave_parts_input_and_returns_right() {
    let mut return_count = 0;
    for seed in 0..seed_count(100) {
        for scenario in [Scenario::of_seed(seed).calm(), Scenario::of_seed(seed).without_replicas().calm()] {
            let (returns, wrong) = record_returns(scenario.losing_roots());
            return_count += returns;
            assert_eq!(wrong, None, "seed {seed}");
        }
    }
    assert!(return_count > 20, "{return_count}");
}

#[test]
fn spawned_jobs_and_names_are_answered_once_and_right() {
    let mut return_count = 0;
    for seed in 0..seed_count(150) {
        for scenario in [Scenario::of_seed(seed).calm(), Scenario::of_seed(seed).without_replicas().calm()] {
            let (returns, wrong) = record_returns(scenario.spawning());
            return_count += returns;
            assert_eq!(wrong, None, "seed {seed}");
        }
    }
    assert!(return_count > 10, "{return_count}");
}

/// The first seed that shows what is wrong.
fn found(what: &str, run: impl Fn(u64) -> Option<String>) -> u64 {
    let is_shown = |seed: &u64| run(*seed).is_some_and(|wrong| wrong.contains(what));
    (0..2000).find(is_shown).unwrap_or_else(|| panic!("no seed shows the mistake: {what}"))
}

#[test]
fn mistakes_of_the_surroundings_are_found() {
    let mistakes = [
        (Mistake::DroppedAtOnce, "back to"),
        (Mistake::NewestAnswered, "have no place"),
        (Mistake::InputRepeated, "gets input twice"),
    ];
    for (mistake, what) in mistakes {
        let seed = found(what, |seed| {
            let all = [Scenario::of_seed(seed).without_replicas().calm(), Scenario::of_seed(seed).calm()];
            all.into_iter().find_map(|scenario| record_returns(scenario.losing_roots().mistaking(mistake)).1)
        });
        println!("{mistake:?}: seed {seed}");
    }
}

/// A planted bug, what shows it, and the jobs in which it is looked for.
type Planted<'a> = (Mutation, &'a str, &'a dyn Fn(u64) -> Scenario);

#[test]
fn mistakes_of_the_machine_are_found() {
    let calm = |seed| Scenario::of_seed(seed).calm();
    let copying = |seed| calm(seed).copying();
    let returning = |seed| calm(seed).without_replicas();
    let failing_over = |seed| calm(seed).losing_roots();
    let losing_output = |seed| Scenario { loses_output: true, ..calm(seed) };
    let spawning = |seed| calm(seed).without_replicas().spawning();
    let local = |seed| Scenario { level: Level::Local, ..calm(seed).without_replicas() };
    let mutations: [Planted<'_>; 16] = [
        (Mutation::LostPartCommitted, "the part of host", &copying),
        (Mutation::LostSourceAsked, "is lost, and gets", &copying),
        (Mutation::InputCountedLate, "bytes of input", &calm),
        (Mutation::HoldOutlivesLife, "processes are held", &returning),
        (Mutation::InputCountedTwice, "on their way to nobody", &returning),
        (Mutation::InputNotHeld, "gets input twice", &failing_over),
        (Mutation::NumbersIgnored, "have no place", &calm),
        (Mutation::ReturnToLostHost, "which is lost", &returning),
        (Mutation::MissingHostForgotten, "which is lost", &returning),
        (Mutation::InputBetweenForgotten, "gets input twice, or not all", &local),
        (Mutation::LoadingNotNoted, "processes were loaded in", &returning),
        (Mutation::LostOutputForgotten, "output was lost", &losing_output),
        (Mutation::SiblingsTogether, "are on one host", &calm),
        (Mutation::QuestionsOutliveLife, "has not asked", &spawning),
        (Mutation::NamePublishedTwice, "is told Done", &spawning),
        (Mutation::FailureBeforeMetForgotten, "this one goes on", &spawning),
    ];
    for (mutation, what, scenario) in mutations {
        let seed = mutation::with(mutation, || found(what, |seed| record_returns(scenario(seed)).1));
        println!("{mutation:?}: seed {seed}");
    }
}
