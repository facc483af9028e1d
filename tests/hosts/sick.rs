//! A host that corrupts a message now and then, for as long as anything runs there.

use crate::nothing_left;
use redrt_tests::lab::lab;
use redrt_tests::{Job, compile};
use std::time::Duration;

#[test]
fn a_host_that_corrupts_messages_is_named_and_drained_and_the_answer_is_right() {
    let Some(lab) = lab(5) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until"))
        .arguments(&[&stop.display().to_string()])
        .degree(3)
        .options(&["--spares", "2", "--inject", "sick:h2:1000"])
        .on_hosts(&lab, "h1:8,h2:8,h3:8,h4:8,h5:8")
        .limit(Duration::from_secs(240))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job.wait_for("host-bad", 1);
    job.wait_for("host-free", 1);
    job.wait_for("recovered", 3);
    let there: Vec<_> = job.replicas().into_iter().filter(|replica| replica.ends_with(" on h2")).collect();
    assert!(there.is_empty(), "{there:?}");
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_with(0).said("host h2 corrupts data: its replicas move away");
    let is_right = |line: &str| line == "computing" || line.ends_with(": right");
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    // All that was found was found against replicas on that host, and each strike was followed by a copy.
    let hosts: Vec<_> = ended.events("mismatch").map(|record| record["host"].as_str().unwrap_or_default()).collect();
    assert!(hosts.len() >= 3 && hosts.iter().all(|host| *host == "h2"), "{hosts:?}");
    assert_eq!((ended.events("strike").count(), ended.events("host-bad").count()), (3, 1), "{ended}");
    assert!(ended.number("recovered") >= 3, "{ended}");
    nothing_left(&lab, &ended);
}
