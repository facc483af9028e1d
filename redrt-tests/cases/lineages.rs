//! A copy has the memory of its source: the two together are no majority.

use crate::while_computing;
use redrt_tests::{Ended, Job, Running, compile_case};
use std::time::Duration;

fn run(options: &[&str], disturb: impl FnOnce(&Running)) -> Ended {
    let job = Job::new(3, &compile_case("gated")).degree(3).options(&["--spares", "4"]).options(options);
    while_computing(Duration::from_secs(240), job, disturb)
}

/// Kills 1.1 and waits until a copy of 1.2 is in its place.
fn replace_with_copy_of_the_last(job: &Running) {
    job.kill_replica("1.1");
    job.wait_until("a copy of 1.2", |job| {
        let is_it = |record: &serde_json::Value| record["event"] == "recovered" && record["replica"] == "1.1";
        job.audit().iter().any(|record| is_it(record) && record["source"] == "1.2")
    });
}

/// A bit flips at rest in 1.2, which is copied then: two are against one, and the one is right.
#[test]
fn a_corrupt_source_and_its_copy_do_not_outvote_a_sound_one() {
    let corrupt = |job: &Running| {
        job.signal_replica("1.2", libc::SIGUSR1);
        replace_with_copy_of_the_last(job);
    };
    for transport in ["shm", "tcp"] {
        let ended = run(&["--transport", transport], corrupt).ended_with(0);
        let mismatches = ended.mismatches();
        let is_open = |finding: &str| finding == "undecidable";
        assert!(!mismatches.is_empty() && mismatches.iter().all(|one| is_open(&one.finding)), "{ended}");
        let named: Vec<_> = ended.events("mismatch").filter(|record| !record["culprit"].is_null()).collect();
        assert!(named.is_empty(), "{named:?}");
        assert_eq!((ended.events("retired").count(), ended.events("strike").count()), (0, 0), "{ended}");
    }
    let aborted = run(&["--on-sdc", "abort"], corrupt).ended_with(1);
    assert_eq!(aborted.events("strike").count(), 0, "{aborted}");
}

/// A flip after the cut is in one of the two alone.
#[test]
fn a_copy_and_a_sibling_of_another_lineage_outvote_its_source() {
    let out = run(&[], |_| {}).ended_well().out;
    let ended = run(&[], |job| {
        replace_with_copy_of_the_last(job);
        job.signal_replica("1.2", libc::SIGUSR1);
    });
    let ended = ended.ended_with(0).printed(&out);
    let retired: Vec<_> = ended.events("retired").map(|record| &record["replica"]).collect();
    assert_eq!(retired, ["1.2"], "{ended}");
    assert_eq!(ended.events("strike").count(), 1, "{ended}");
}

/// An envelope that has matched a receive cannot be taken back: it waits for the majority.
#[test]
fn corrupt_tags_are_outvoted_before_a_receive_is_matched() {
    let out = run(&[], |_| {}).ended_well().out;
    for (transport, culprit) in [("shm", "1.0"), ("tcp", "1.2")] {
        let corrupt = |job: &Running| job.signal_replica(culprit, libc::SIGUSR2);
        let ended = run(&["--transport", transport], corrupt).ended_with(0).printed(&out);
        let retired: Vec<_> = ended.events("retired").map(|record| &record["replica"]).collect();
        assert_eq!(retired, [culprit], "{ended}");
    }
}
