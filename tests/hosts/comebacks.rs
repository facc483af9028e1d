//! Roots of jobs over several hosts that are killed, and come back.

use crate::{HOSTS, nothing_left};
use redrt_tests::lab::lab;
use redrt_tests::{Job, Lab, compile};
use std::time::Duration;

/// The processes of `redrun` that run a job, on all hosts.
fn roots(lab: &Lab) -> Vec<i32> {
    let is_root = |id: &i32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"--root")
    };
    HOSTS.split(',').flat_map(|host| lab.processes(host, "redrun")).filter(is_root).collect()
}

#[test]
fn a_root_that_is_killed_comes_back_and_no_host_is_lost() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    // Those below others in the tree are called too.
    let options = ["--detachable", "--fan-out", "2", "--transport", "tcp"];
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, HOSTS).options(&options).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let mut known = Vec::new();
    for _ in 0..3 {
        let is_another = |known: &[i32]| roots(&lab).into_iter().find(|root| !known.contains(root));
        job.wait_until("a root", |_| is_another(&known).is_some());
        let root = is_another(&known).expect("it was just there");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(root), nix::sys::signal::Signal::SIGKILL).expect("it runs");
        known.push(root);
        let count = known.len();
        job.wait_until("all hosts", |job| {
            let attached = job.audit().iter().filter(|record| record["event"] == "reattached").count();
            attached >= 4 * count
        });
    }
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_well();
    assert_eq!(ended.out.lines().filter(|line| line.ends_with(": right")).count(), 4, "{ended}");
    assert_eq!(ended.events("came-back").count(), 3, "{ended}");
    for event in ["replica-lost", "daemon-lost", "retired"] {
        assert_eq!(ended.events(event).count(), 0, "{event}\n{ended}");
    }
    nothing_left(&lab, &ended);
}
