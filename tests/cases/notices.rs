//! What `--on-event` runs, and what files say in place of the command line.

use redrt_tests::{Job, compile};
use std::path::Path;

#[test]
fn a_command_is_run_for_what_an_administrator_wants_to_hear_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events");
    let command = format!("printf '%s: %s\\n' \"$REDRT_EVENT\" \"$REDRT_MESSAGE\" >> {}", path.display());
    let job = Job::new(2, &compile("ring")).degree(2).inject("kill:1.0@#3").options(&["--on-event", &command]);
    let ended = job.run().ended_with(0);
    let events = std::fs::read_to_string(&path).unwrap();
    let mut events = events.lines();
    assert_eq!(events.next(), Some("job-start: "), "{ended}");
    let lost = events.next().unwrap_or_default();
    assert!(lost.starts_with("replica-lost: lost replica 1.0 on ") && lost.contains("killed by signal 9"), "{ended}");
    assert_eq!(events.next_back().map(|line| line.starts_with("job-end: ")), Some(true), "{ended}");
}

/// It is told, and costs the job nothing else.
#[test]
fn a_command_that_fails_does_not_fail_the_job() {
    let job = Job::new(1, Path::new("/bin/true")).options(&["--on-event", "echo no mail >&2; exit 7"]);
    let ended = job.run().ended_with(0);
    ended.said("--on-event, for job-start: the command ended with exit code 7: no mail");
}

#[test]
fn what_a_file_says_is_in_force_unless_the_command_line_says_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("redrt.toml");
    std::fs::write(&path, "[redrun]\nlabel = true\ndegree = 2\n").unwrap();
    let job = |options: &[&str]| {
        let job = Job::new(1, Path::new("/bin/sh")).environment("REDRT_CONFIG", path.to_str().unwrap());
        job.arguments(&["-c", "echo here"]).options(options).run()
    };
    let ended = job(&[]).ended_with(0);
    assert!(ended.out.ends_with("here\n") && ended.out.len() > "here\n".len(), "{ended}");
    let _ = ended.said("1 rank x 2 replicas");
    let ended = job(&["-r", "1"]).ended_with(0);
    assert!(!ended.err.contains("replicas"), "{ended}");
    std::fs::write(&path, "[redrun]\ncolour = 'red'\n").unwrap();
    job(&[]).ended_with(2).said("redrt.toml: colour: redrun has no such option");
    std::fs::write(&path, "[redrun]\ndegree = 0\n").unwrap();
    job(&[]).ended_with(2).said("REDRT_CONFIG= leaves them out");
}
