//! A few whole jobs. Thousands of jobs, and planted bugs, are run where the library is built with optimizations
//! (`tools/redrt-sim`).

use super::{Kind, Options, run};

#[test]
fn jobs_with_and_without_losses_have_the_promised_results() {
    for kind in Kind::ALL {
        for (seed, is_undisturbed) in [(1, true), (2, false), (3, false), (4, false)] {
            let options = Options { kind: Some(kind), is_undisturbed, ..Options::default() };
            if let Err(failure) = run(seed, &options) {
                panic!("seed {seed} of {kind:?}: {failure}");
            }
        }
    }
}

#[test]
fn a_process_that_waits_for_its_last_fragment_goes_to_sleep() {
    let options = Options { kind: Some(Kind::Messages), is_undisturbed: true, ..Options::default() };
    // Synchronous sends of several fragments, at r = 1, over links with little room.
    for seed in 0..30 {
        if let Err(failure) = run(seed, &Options { degree: Some(1), ..options }) {
            panic!("seed {seed}: {failure}");
        }
    }
}
