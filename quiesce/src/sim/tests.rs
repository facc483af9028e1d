use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn outcome(seed: u64, options: &Options) -> Result<Summary, String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed, options))) {
        Ok(result) => result.map_err(|failure| failure.to_string()),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned())),
    }
}

#[test]
fn every_seed_ends_right() {
    let count = std::env::var("REDRT_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3_000);
    let mut total = Summary::default();
    for seed in 0..count {
        match outcome(seed, &Options::default()) {
            Ok(summary) => {
                total.steps += summary.steps;
                total.messages += summary.messages;
                total.decisions += summary.decisions;
                total.deaths += summary.deaths;
                total.joins += summary.joins;
                total.resets += summary.resets;
                total.reports += summary.reports;
            }
            Err(reason) => panic!("seed {seed}: {reason}\nreplay: redrt-sim {seed} --trace"),
        }
    }
    println!("{count} seeds: {total:?}");
}

/// Seeds that have shown a bug once.
#[test]
fn found_seeds_end_right() {
    // A cancellation was agreed while a copy was made that matched the receive.
    for seed in [42_742] {
        if let Err(reason) = outcome(seed, &Options::default()) {
            panic!("seed {seed}: {reason}");
        }
    }
}

/// A bug that no seed shows would be a hole in the checkers or in what the simulator tries.
#[test]
fn every_planted_bug_is_found() {
    use crate::Mutation as Bug;
    for mutation in [
        Bug::AckLost,
        Bug::BookmarkLate,
        Bug::OutputCommitSkipped,
        Bug::ReleasedEarly,
        Bug::SupplierWrong,
        Bug::SyncSkipped,
        Bug::PinSkipped,
        Bug::BallotsIgnored,
        Bug::ResetIgnored,
        Bug::VerdictIgnored,
    ] {
        let options = Options { mutation: Some(mutation), ..Options::default() };
        let found = (0..3_000).find_map(|seed| Some((seed, outcome(seed, &options).err()?)));
        let (seed, reason) = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!("{mutation:?} is found by seed {seed}: {}", reason.lines().next().unwrap_or_default());
    }
}
