//! Checkpoints, from the place in the store to a return: with stores that answer late or never, copies on partners,
//! losses and failovers between any two inputs. Planted mistakes show that each rule is looked at.

use super::*;
use crate::mutation::{self, Mutation};
use checkpoint_store::Level;
use world::{
    Crossing, Mistake, record_archive_returns, record_crossings, record_difference_returns, record_losses,
    record_returns,
};

/// Number of seeds: `REDRT_SEEDS` if it is set.
fn seed_count(usual: u64) -> u64 {
    std::env::var("REDRT_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// The kill comes between any two inputs.
#[test]
fn a_killed_coordinator_repeats_its_unanswered_orders() {
    let mut loss_count = 0;
    for seed in 0..seed_count(100) {
        let (losses, wrong) = record_losses(Scenario::of_seed(seed).losing_coordinators().answering(), seed as usize);
        loss_count += losses;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
    assert!(loss_count > 250, "{loss_count}");
    for (what, step_count) in [("StoreSilent", None), ("GoBack", Some(400)), ("Drop(", Some(400))] {
        let is_stuck = |seed: u64| {
            // A job that goes back often: a host that is lost meanwhile begins the return anew.
            let shape = if what == "GoBack" {
                Scenario::of_seed(seed).without_replicas().calm()
            } else {
                Scenario::of_seed(seed)
            };
            let scenario = shape.losing_coordinators().answering().mistaking(Mistake::OrdersForgotten);
            let (_, wrong) = record_losses(scenario, step_count.unwrap_or(seed as usize));
            wrong.iter().any(|wrong| wrong.contains(what))
        };
        assert!((0..1000).any(is_stuck), "a coordinator that forgets its orders is like one that does not: {what}");
    }
}

/// Once for its place, once to be kept. All between is decided on one side: by the coordinator.
#[test]
fn a_checkpoint_crosses_the_border_twice() {
    let mut kept_count = 0;
    for seed in 0..seed_count(100) {
        for scenario in [Scenario::of_seed(seed).calm(), Scenario::of_seed(seed).calm().copying()] {
            // A loss, or a return, gives orders of its own.
            let is_undisturbed = |crossings: &Vec<Crossing>| !crossings.contains(&Crossing::Other);
            for crossings in record_crossings(scenario).into_iter().filter(is_undisturbed) {
                let twice = [Crossing::Open, Crossing::Opened, Crossing::Commit, Crossing::Kept];
                assert_eq!(crossings, twice, "seed {seed}");
                kept_count += 1;
            }
        }
    }
    assert!(kept_count > 100, "{kept_count}");
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
    for seed in 0..seed_count(30) {
        for scenario in [Scenario::of_seed(seed).calm(), Scenario::of_seed(seed).without_replicas().calm()] {
            let (returns, wrong) = record_returns(scenario.losing_coordinators());
            return_count += returns;
            assert_eq!(wrong, None, "seed {seed}");
        }
    }
    assert!(return_count > 5, "{return_count}");
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

/// Hosts are lost with the only parts of a checkpoint, and the archive has one.
#[test]
fn jobs_go_back_to_the_archive() {
    let mut return_count = 0;
    for seed in 0..seed_count(60) {
        let scenario = Scenario::of_seed(seed).without_replicas().calm().archiving();
        for scenario in [scenario, Scenario::of_seed(seed).calm().archiving().losing_coordinators()] {
            let (returns, wrong) = record_archive_returns(scenario);
            return_count += returns;
            assert_eq!(wrong, None, "seed {seed}");
        }
    }
    assert!(return_count > 5, "{return_count}");
}

/// Bits flip in memory, replicas differ, and nobody knows which one is wrong.
#[test]
fn jobs_whose_replicas_differ_go_back_to_a_proven_checkpoint() {
    let mut return_count = 0;
    for seed in 0..seed_count(20) {
        let scenario = Scenario::of_seed(seed).calm().proving();
        for scenario in [scenario, Scenario::of_seed(seed).calm().proving().losing_coordinators()] {
            let (returns, wrong) = record_difference_returns(scenario);
            return_count += returns;
            assert_eq!(wrong, None, "seed {seed}");
        }
    }
    assert!(return_count > 3, "{return_count}");
}

/// The first seed that shows what is wrong, from `first` on: near a seed that was found before.
fn found(what: &str, first: u64, run: impl Fn(u64) -> Option<String>) -> u64 {
    let is_shown = |seed: &u64| run(*seed).is_some_and(|wrong| wrong.contains(what));
    (first..first + 2000).find(is_shown).unwrap_or_else(|| panic!("no seed shows the mistake: {what}"))
}

#[test]
fn mistakes_of_the_surroundings_are_found() {
    let mistakes = [
        (Mistake::DroppedAtOnce, "back to", 2),
        (Mistake::NewestAnswered, "have no place", 10),
        (Mistake::InputRepeated, "gets input twice", 0),
    ];
    for (mistake, what, first) in mistakes {
        let seed = found(what, first, |seed| {
            let all = [Scenario::of_seed(seed).without_replicas().calm(), Scenario::of_seed(seed).calm()];
            all.into_iter().find_map(|scenario| record_returns(scenario.losing_coordinators().mistaking(mistake)).1)
        });
        println!("{mistake:?}: seed {seed}");
    }
}

/// A planted bug, what shows it, and the first seed and the jobs in which it is looked for.
type Planted<'a> = (Mutation, &'a str, u64, &'a dyn Fn(u64) -> Scenario);

#[test]
fn mistakes_of_the_machine_are_found() {
    let calm = |seed| Scenario::of_seed(seed).calm();
    let copying = |seed| calm(seed).copying();
    let cutting = |seed| calm(seed).cutting();
    let returning = |seed| calm(seed).without_replicas();
    let failing_over = |seed| calm(seed).losing_coordinators();
    let losing_output = |seed| Scenario { loses_output: true, ..calm(seed) };
    let spawning = |seed| calm(seed).without_replicas().spawning();
    let local = |seed| Scenario { level: Level::Local, ..calm(seed).without_replicas() };
    let archiving = |seed| calm(seed).without_replicas().archiving();
    let proving = |seed| calm(seed).proving();
    let mutations: [Planted<'_>; 25] = [
        (Mutation::ProvenNotPinned, "lets it go", 0, &proving),
        (Mutation::NewestThoughDifferent, "and not to", 0, &proving),
        (Mutation::StopUnarchived, "which is not archived", 0, &archiving),
        (Mutation::ArchivedInPart, "lacks the part of host", 0, &archiving),
        (Mutation::ArchivedWithoutChain, "which it lacks", 0, &archiving),
        (Mutation::LostPartCommitted, "the part of host", 220, &copying),
        (Mutation::LostPartCommitted, "the part of host", 0, &cutting),
        (Mutation::PiecesTogether, "pieces [", 0, &cutting),
        (Mutation::PiecesUnawaited, "is to be committed before piece", 0, &cutting),
        (Mutation::LostSourceAsked, "is lost, and gets", 20, &copying),
        (Mutation::InputCountedLate, "bytes of input", 0, &calm),
        (Mutation::HoldOutlivesLife, "processes are held", 0, &returning),
        (Mutation::InputCountedTwice, "on their way to nobody", 0, &returning),
        (Mutation::InputNotHeld, "gets input twice", 20, &failing_over),
        (Mutation::NumbersIgnored, "have no place", 35, &calm),
        (Mutation::ReturnToLostHost, "which is lost", 0, &returning),
        (Mutation::MissingHostByNumber, "which is lost", 0, &returning),
        (Mutation::MissingHostForgotten, "which is lost", 0, &returning),
        (Mutation::InputBetweenForgotten, "gets input twice, or not all", 60, &local),
        (Mutation::LoadingNotRecorded, "processes were loaded in", 0, &returning),
        (Mutation::LostOutputForgotten, "output was lost", 0, &losing_output),
        (Mutation::SiblingsTogether, "are on one host", 0, &calm),
        (Mutation::QuestionsOutliveLife, "has not asked", 125, &spawning),
        (Mutation::NamePublishedTwice, "is told Done", 0, &spawning),
        (Mutation::FailureBeforeMetForgotten, "this one goes on", 0, &spawning),
    ];
    for (mutation, what, first, scenario) in mutations {
        let seed = mutation::with(mutation, || found(what, first, |seed| record_returns(scenario(seed)).1));
        println!("{mutation:?}: seed {seed}");
    }
}
