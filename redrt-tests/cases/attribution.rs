//! Software or hardware: redrun's conclusion while all replicas share one host. `redrt-tests/hosts/sick.rs` has the
//! tests with several hosts.

use redrt_tests::{Ended, Job, compile_case};
use serde_json::Value;

fn nondeterministic(mode: &str, degree: u16) -> Ended {
    Job::new(2, &compile_case("nondeterministic")).arguments(&[mode]).degree(degree).run().ended_with(0)
}

/// The reason and the ranks of each conclusion.
fn concluded(ended: &Ended) -> Vec<(&str, &Value)> {
    let records = ended.events("attribution");
    records.map(|record| (record["cause"].as_str().unwrap_or_default(), &record["ranks"])).collect()
}

#[test]
fn what_no_two_of_three_replicas_agree_on_is_the_programs() {
    let ended = nondeterministic("clock", 3)
        .said("software: messages in MPI_COMM_WORLD with tag 8: no two replicas of rank 1 agreed on it");
    assert_eq!(concluded(&ended), [("software", &Value::from([1]))], "{ended}");
}

#[test]
fn of_two_that_differ_the_reason_stays_open() {
    let ended = nondeterministic("clock", 2).said("open: rank 1 differed once");
    assert_eq!(concluded(&ended), [("open", &Value::from([1]))], "{ended}");
}

#[test]
fn nothing_is_said_where_nothing_differs() {
    assert_eq!(concluded(&nondeterministic("none", 3)), []);
}
