//! Tests that go over seeds: all are right, or one of them shows a planted mistake.

use crate::trace::{self, Trace};
use crate::{Named, Setup, Simulator, Violation};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of seeds of a test: `REDRT_SEEDS` if it is set. `scripts/test.sh --all` tries four times as many as `usual`.
#[must_use]
pub fn seed_count(usual: u64) -> u64 {
    let wanted = std::env::var("REDRT_SEEDS").ok().and_then(|count| count.parse().ok());
    wanted.unwrap_or(if std::env::var_os("REDRT_ALL").is_some() { 4 * usual } else { usual })
}

/// Runs a seed. A panic is a failure like others.
///
/// # Errors
/// When the run is not right.
pub fn attempt<S: Simulator>(seed: u64, setup: &Setup<S>) -> Result<S::Summary, Violation> {
    catch_unwind(AssertUnwindSafe(|| S::run(seed, setup))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        Err(Violation::of(words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")))
    })
}

/// Runs seeds, all of which are right, and returns their summaries.
///
/// # Panics
/// At the first seed that is not: it runs once more, and its last lines and the command that replays it are shown.
pub fn right<S: Simulator>(seeds: Range<u64>, setup: &Setup<S>) -> Vec<S::Summary> {
    let run = |seed| attempt(seed, setup).unwrap_or_else(|why| panic!("{}", shown(seed, setup, &why)));
    seeds.map(run).collect()
}

/// The failure of a seed: the reason, the last lines of its run, and the command that replays it.
fn shown<S: Simulator>(seed: u64, setup: &Setup<S>, why: &Violation) -> String {
    drop(trace::take());
    let _ = attempt(seed, &Setup { trace: Trace::Recorded, ..*setup });
    let lines: String = trace::take().into_iter().map(|line| line + "\n").collect();
    format!("{} {seed}: {why}\n{lines}replay with: {}", S::NAME, setup.command(seed))
}

/// The seeds that show a planted mistake.
pub struct Found {
    /// The mistake.
    pub mistake: &'static str,
    /// Number of seeds that were tried.
    pub tried: u64,
    /// The seeds that show it.
    pub seeds: Vec<u64>,
    /// The first line of the first failure.
    pub why: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mistake, tried, seeds, why } = self;
        write!(f, "{mistake}: found by {} of {tried} seeds", seeds.len())?;
        seeds.first().map_or(Ok(()), |first| write!(f, ", the first is {first}: {why}"))
    }
}

/// Finds seeds that show the setup's mistake, until as many as `enough` are found.
pub fn find_seeds<S: Simulator>(seeds: Range<u64>, setup: &Setup<S>, enough: usize) -> Found {
    let mistake = setup.mistake.map_or("nothing", S::Mistake::name);
    let mut found = Found { mistake, tried: 0, seeds: Vec::new(), why: String::new() };
    for seed in seeds {
        found.tried += 1;
        let Err(why) = attempt(seed, setup) else { continue };
        if found.seeds.is_empty() {
            found.why = why.to_string().lines().next().unwrap_or_default().to_owned();
        }
        found.seeds.push(seed);
        if found.seeds.len() == enough {
            break;
        }
    }
    found
}

/// Plants each of the mistakes. One of the seeds must show it.
///
/// # Panics
/// When a mistake is missed, after all were planted.
pub fn finds<S: Simulator>(mistakes: &[S::Mistake], seeds: Range<u64>, setup: &Setup<S>) {
    let found = mistakes.iter().map(|mistake| find_seeds(seeds.clone(), &setup.planting(*mistake), 1));
    let missed = found.inspect(|found| println!("{found}")).filter(|found| found.seeds.is_empty());
    let missed: Vec<_> = missed.map(|found| found.mistake).collect();
    assert!(missed.is_empty(), "{} does not find {} in {} seeds", S::NAME, missed.join(", "), seeds.end - seeds.start);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Counter, Fault, Mistake};

    #[test]
    fn seeds_that_are_right_have_summaries() {
        assert_eq!(right::<Counter>(0..3, &Setup::default()), ["3 of 3", "4 of 4", "5 of 5"]);
    }

    #[test]
    #[should_panic(expected = "counter 4: 6 of 7\n1\n2\n3\n4\n5\n6\n7\nreplay with: redrt sim counter 4 --faults \
                               slow --plant one-too-few --from 2 --trace")]
    fn a_seed_that_fails_is_shown_with_its_lines_and_command() {
        right(2..9, &Setup::<Counter>::with(Fault::Slow).planting(Mistake::OneTooFew).shaped(Some(2)));
    }

    #[test]
    fn planted_mistakes_are_found_also_as_panics() {
        finds::<Counter>(&[Mistake::OneTooFew, Mistake::Panics], 0..9, &Setup::default());
    }

    #[test]
    #[should_panic(expected = "counter does not find OneTooFew, Panics in 2 seeds")]
    fn a_mistake_that_no_seed_shows_is_named() {
        finds::<Counter>(&[Mistake::OneTooFew, Mistake::Panics], 0..2, &Setup::default());
    }

    #[test]
    fn the_seeds_that_show_a_mistake_are_counted() {
        let found = find_seeds::<Counter>(0..12, &Setup::default().planting(Mistake::OneTooFew), usize::MAX);
        assert_eq!(found.to_string(), "OneTooFew: found by 3 of 12 seeds, the first is 2: 4 of 5");
    }
}
