//! The test programs on four hosts without faults: the output is the same as on one.

use crate::{HOSTS, nothing_left, program, undisturbed};
use redrt_tests::lab::lab;
use redrt_tests::{Job, Program, breadth};

#[test]
fn all_programs_print_the_same_on_four_hosts() {
    let Some(lab) = lab(4) else { return };
    let of_gate = ["heat", "collectives", "onesided", "files"].map(program);
    for program in breadth(of_gate.to_vec(), Program::ALL.to_vec()) {
        let out = undisturbed(&program);
        for degree in breadth(2..=2, 1..=3) {
            let job = Job::of(&program).degree(degree).on_hosts(&lab, HOSTS).run().ended_well().printed(&out);
            nothing_left(&lab, &job);
        }
    }
}
