//! Whole jobs of real processes; see `redrt_tests`.

mod arbitration;
mod attribution;
mod bindings;
mod chains;
mod checkpoints;
mod clocks;
mod corrupt;
mod departures;
mod determinism;
mod disks;
mod dynamic;
mod endings;
mod evidence;
mod failovers;
mod faults;
mod files;
mod flat;
mod flood;
mod foreign;
mod fortran;
mod healing;
mod injection;
mod instructions;
mod interpreter;
mod laggards;
mod launcher;
mod leftovers;
mod lineages;
mod listings;
mod metrics;
mod midst;
mod mismatch;
mod moments;
mod moves;
mod names;
mod nested;
mod objects;
mod ordered;
mod output;
mod pages;
mod paths;
mod planes;
mod planning;
mod posix;
mod profile;
mod programs;
mod proofs;
mod recovery;
mod refused;
mod saving;
mod scrub;
mod sealed;
mod secret;
mod sends;
mod shared_files;
mod shortages;
mod signals;
mod single_copies;
mod terminals;
mod tools;
mod undo;
mod windows;

use redrt_tests::{Ended, Job, Running};
use std::time::Duration;

/// Runs `until` while `disturb` acts on the job, and then to its end.
pub fn disturbed(job: Job, disturb: impl FnOnce(&Running)) -> Ended {
    disturbed_for(Duration::from_secs(120), job, disturb)
}

/// The same with a limit on the time.
pub fn disturbed_for(limit: Duration, job: Job, disturb: impl FnOnce(&Running)) -> Ended {
    let ended = while_computing(limit, job, disturb).ended_well();
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["computing", "rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
    ended
}

/// The same without a check of the outcome.
pub fn while_computing(limit: Duration, job: Job, disturb: impl FnOnce(&Running)) -> Ended {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let stop = directory.path().join("stop");
    let job = job.arguments(&[&stop.display().to_string()]).limit(limit).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    disturb(&job);
    std::fs::write(&stop, "").expect("the directory is there");
    job.wait()
}

/// Retired replicas, each with the reason.
fn reasons(ended: &Ended) -> Vec<(&str, &str)> {
    let both = ended.events("retired").map(|record| (record["replica"].as_str(), record["reason"].as_str()));
    both.filter_map(|(replica, reason)| Some((replica?, reason?))).collect()
}
