//! Whole jobs of the real library, from seeds: `cargo test -p redrt-sim`.

use library_sim::{Kind, Mutation, Options, Summary, run};

/// Runs the seeds, which all must be right, and adds up their summaries.
fn right(options: &Options, seeds: std::ops::Range<u64>) -> Summary {
    let mut all = Summary::default();
    for seed in seeds {
        match run(seed, options) {
            Ok(summary) => {
                all.events += summary.events;
                all.losses += summary.losses;
                all.breaks += summary.breaks;
                all.parts += summary.parts;
                all.lines += summary.lines;
                all.returns += summary.returns;
                all.signals += summary.signals;
                all.left += summary.left;
                all.open += summary.open;
            }
            Err(failure) => panic!("redrt-sim --library {seed}: {failure}"),
        }
    }
    all
}

#[test]
fn jobs_with_losses_have_the_results_that_mpi_promises() {
    let all = right(&Options::default(), 0..1000);
    assert!(all.losses > 200 && all.breaks > 50 && all.parts > 40 && all.lines > 300 && all.returns > 180, "{all:?}");
    assert!(all.signals > 300, "{all:?}");
}

#[test]
fn jobs_that_lose_nothing_do_too() {
    for kind in Kind::ALL {
        right(&Options { kind: Some(kind), is_undisturbed: true, ..Options::default() }, 0..30);
    }
}

#[test]
fn replicas_of_programs_that_poll_do_not_stay_behind() {
    // A leader that waits for nobody keeps its followers behind for ever in one of 20 of these seeds.
    let options = Options { kind: Some(Kind::Updates), rank_count: Some(2), degree: Some(3), ..Options::default() };
    right(&options, 2000..2120);
}

#[test]
fn a_replica_that_parts_from_two_siblings_costs_only_itself() {
    let options = Options { leaves: true, degree: Some(3), ..Options::default() };
    let all = right(&options, 0..400);
    // In most runs a replica leaves the path of its siblings, and mostly the siblings that remain know who was right.
    assert!(all.left > 200 && all.open < all.left / 2, "{all:?}");
    // In the first, a leader is lost while its siblings are in dispute with it. In the second, a replica agrees with a
    // sibling that has said so. In the third, ranks poll for a fact that two processes on parted hosts do not tell each
    // other. In the fourth, the successor of a leader retracts a question of no call, and kept the sources that its
    // siblings had taken.
    for seed in [915, 1385, 2225, 807] {
        right(&options, seed..seed + 1);
    }
    // In the first, a ballot on a cancelled receive was counted for another receive. In the second, a replica waits for
    // a leader that does not ask `redrun` for a checkpoint.
    for seed in [19040, 31342] {
        right(&options, seed..seed + 1);
    }
    // A replica stands at its siblings' call after it has taken another path in a call about a checkpoint.
    right(&options, 50597..50598);
    let pairs = right(&Options { degree: Some(2), ..options }, 0..200);
    // A replica repeats a question whose answer a leader of its path has changed since, and that leader is lost.
    right(&Options { degree: Some(2), ..options }, 12627..12628);
    assert!(pairs.left > 100, "{pairs:?}");
}

#[test]
fn planted_bugs_are_found() {
    let is_found = |mutation: &Mutation| {
        (0..2000).any(|seed| run(seed, &Options { mutation: Some(*mutation), ..Options::default() }).is_err())
    };
    let missed: Vec<_> = Mutation::ALL.into_iter().filter(|mutation| !is_found(mutation)).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..40 {
        let twice = [0, 1].map(|_| run(seed, &Options::default()).expect("it is right"));
        assert_eq!(twice[0], twice[1], "seed {seed}");
    }
}
