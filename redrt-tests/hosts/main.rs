//! Jobs over several hosts of a lab; see `redrt-tests/lab/README.md`. Skipped with a reason where there can be no lab.

mod archives;
mod attacks;
mod checkpoints;
mod connections;
mod dynamic;
mod elsewhere;
mod failovers;
mod faults;
mod journals;
mod launch;
mod levels;
mod moves;
mod objects;
mod pool;
mod programs;
mod quorum;
mod recovery;
mod sick;
mod single;
mod slurm;
mod week;
mod whereabouts;

use redrt_tests::{Ended, Job, Lab, Program};
use std::time::Duration;

/// Four hosts: three replicas can be on different hosts, and one host is left.
const HOSTS: &str = "h1,h2,h3,h4";

/// Fails unless every host is empty a moment after the job.
#[track_caller]
fn nothing_left(lab: &Lab, ended: &Ended) {
    let left = lab.left_behind(Duration::from_secs(3));
    if !left.is_empty() {
        ended.fail(&format!("left behind: {}", left.join(", ")));
    }
}

fn program(name: &str) -> Program {
    Program::named(name).expect("a test program")
}

/// Output of an undisturbed run.
fn undisturbed(program: &Program) -> String {
    Job::of(program).run().ended_well().out
}
