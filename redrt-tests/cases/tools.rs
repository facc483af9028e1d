//! Tools get events: each process learns what happens to the job, and to itself.

use redrt_tests::{Job, compile_case};
use std::fs;
use std::time::Duration;

const TELLERS: [&str; 4] = ["0.0", "0.1", "1.0", "1.1"];

/// True when all these replicas have printed that they were told of this event.
fn told_by(errors: &str, tellers: &[&str], what: &str) -> bool {
    tellers.iter().all(|replica| errors.lines().any(|line| line == format!("[{replica}] told {what}")))
}

#[test]
fn tools_are_told_of_losses_and_copies() {
    let program = compile_case("tools");
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let signal = directory.path().join("go on");
    let job = Job::new(2, &program).degree(2).options(&["--spares", "1"]).limit(Duration::from_secs(120));
    let running = job.arguments(&[&signal.display().to_string()]).start();
    running.wait_until("waiting", |running| running.output().contains("waiting"));
    running.kill_replica("1.1");
    running.wait_for("recovered", 1);
    // The copy is of 1.0, and has its registration.
    running.wait_until("told", |running| {
        let errors = running.errors();
        told_by(&errors, &TELLERS[..3], "redrt_replica_lost 1 1")
            && told_by(&errors, &TELLERS[..3], "redrt_replica_joined 1 1")
    });
    running.kill_replica("0.0");
    running.wait_until("told", |running| told_by(&running.errors(), &TELLERS[1..], "redrt_replica_lost 0 0"));
    running.wait_for("recovered", 2);
    fs::write(&signal, "").expect("the directory is there");
    let ended = running.wait().ended_well().printed("waiting\nover\n");
    assert_eq!(ended.number("divergences"), 0, "{ended}");
}

#[test]
fn tools_are_told_of_mismatches() {
    let program = compile_case("tools");
    let job = Job::new(2, &program).degree(3).options(&["--on-sdc", "correct"]).inject("flip:1.1@#7");
    let existing = program.display().to_string();
    let ended = job.arguments(&[&existing, "20"]).run().ended_with(0).printed("waiting\nover\n");
    let tellers = ["0.0", "0.1", "0.2"];
    assert!(tellers.iter().any(|teller| told_by(&ended.err, &[teller], "redrt_mismatch_found 1 1")), "{ended}");
    assert_eq!(ended.number("divergences"), 0, "{ended}");
}

#[test]
fn without_replicas_there_is_nothing_to_be_told_of() {
    let program = compile_case("tools");
    let existing = program.display().to_string();
    let ended = Job::new(2, &program).arguments(&[&existing, "20"]).run().ended_well().printed("waiting\nover\n");
    assert!(!ended.err.contains("told"), "{ended}");
}
