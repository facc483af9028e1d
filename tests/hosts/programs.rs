//! The test programs over four hosts without faults: the same output as on one.

use crate::{HOSTS, nothing_left, undisturbed};
use redrt_tests::lab::lab;
use redrt_tests::{Job, Program};

#[test]
fn all_programs_print_the_same_on_four_hosts() {
    let Some(lab) = lab(4) else { return };
    for program in Program::ALL {
        let out = undisturbed(&program);
        for degree in 1..=3 {
            let job = Job::of(&program).degree(degree).on_hosts(&lab, HOSTS).run().ended_well().printed(&out);
            nothing_left(&lab, &job);
        }
    }
}
