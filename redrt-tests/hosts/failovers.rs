//! Coordinators of jobs over several hosts that are killed, and come back.

use crate::{HOSTS, nothing_left};
use redrt_tests::lab::lab;
use redrt_tests::quorum::coordinators_on;
use redrt_tests::{Job, Lab, Random, Running, compile};
use std::time::Duration;

/// Coordinators on all hosts.
fn coordinators(lab: &Lab) -> Vec<i32> {
    HOSTS.split(',').flat_map(|host| coordinators_on(lab, host)).collect()
}

/// Kills a coordinator that was not killed before.
fn kill_another(lab: &Lab, job: &Running, killed: &mut Vec<i32>) {
    let is_another = |killed: &[i32]| coordinators(lab).into_iter().find(|coordinator| !killed.contains(coordinator));
    job.wait_until("a coordinator", |_| is_another(killed).is_some());
    let coordinator = is_another(killed).expect("it was just there");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(coordinator), nix::sys::signal::Signal::SIGKILL)
        .expect("it runs");
    killed.push(coordinator);
}

/// Kills a coordinator and waits until the next one has all hosts.
pub fn kill_coordinator(lab: &Lab, job: &Running, killed: &mut Vec<i32>, host_count: usize) {
    let attached = |job: &Running| job.count("reattached");
    let before = attached(job);
    kill_another(lab, job, killed);
    job.wait_until("all hosts", |job| attached(job) >= before + host_count);
}

#[test]
fn a_coordinator_that_is_killed_comes_back_and_no_host_is_lost() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    // With this fan-out some daemons are below others in the tree; the next coordinator must reach these too.
    let options = ["--detachable", "--coordinators", "1", "--fan-out", "2", "--transport", "tcp"];
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, HOSTS).options(&options).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let mut killed = Vec::new();
    for _ in 0..3 {
        kill_coordinator(&lab, &job, &mut killed, 4);
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

#[test]
fn a_coordinator_that_comes_back_has_the_hosts_that_were_added() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let options = ["--detachable", "--coordinators", "1", "--spares", "0", "--transport", "tcp"];
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, "h1,h2,h3").options(&options).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let mut killed = Vec::new();
    job.redctl(&["spare", "add", "h4:8"]).expect("it can be had");
    kill_coordinator(&lab, &job, &mut killed, 4);
    let lost = job.replicas().iter().filter(|replica| replica.ends_with(" on h2")).count();
    lab.cut_power("h2");
    job.wait_for("recovered", lost);
    kill_coordinator(&lab, &job, &mut killed, 3);
    job.redctl(&["drain", "h4", "--wait"]).expect_err("nothing else has room for what is there");
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_well();
    assert_eq!(ended.out.lines().filter(|line| line.ends_with(": right")).count(), 4, "{ended}");
    assert_eq!((ended.events("came-back").count(), ended.events("recovered").count()), (2, lost), "{ended}");
    nothing_left(&lab, &ended);
}

/// The coordinator is killed during copies of a checkpoint to partners, or to an object store, and during a return
/// after the loss of a host.
#[test]
fn coordinators_are_killed_while_checkpoints_are_copied() {
    let of_partners =
        |lab: &Lab| ["--checkpoint-level".into(), "partner".into(), "--checkpoint-dir".into(), of(lab, "store")];
    let of_store = |lab: &Lab| {
        let url = format!("file://{}", of(lab, "store"));
        ["--checkpoint-dir".into(), url, "--checkpoint-scratch".into(), of(lab, "scratch")]
    };
    killed_while_it_keeps(&of_partners, "checkpoint-copied");
    killed_while_it_keeps(&of_store, "checkpoint-stored");
}

fn of(lab: &Lab, name: &str) -> String {
    lab.path(name).display().to_string()
}

/// `event`: the record when all copies of a checkpoint are elsewhere.
fn killed_while_it_keeps(place: &dyn Fn(&Lab) -> [String; 4], event: &str) {
    let Some(lab) = lab(4) else { return };
    let mut random = Random::from_environment();
    let (stop, place) = (lab.path("stop"), place(&lab));
    let saved = [&["--checkpoint", "0.3s"], &place.each_ref().map(String::as_str)[..]].concat();
    let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]).environment("UNTIL_MIB", "16");
    let options = ["--detachable", "--coordinators", "1", "--coordinator-journal", "8KiB"];
    let job = job.on_hosts(&lab, "h1,h2,h3").options(&options).options(&saved);
    let job = job.limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let mut killed = Vec::new();
    let mut kill_soon = |job: &Running, time_max_ms: u64| {
        std::thread::sleep(Duration::from_millis(random.from_one_to(time_max_ms)));
        kill_another(&lab, job, &mut killed);
    };
    for _ in 0..6 {
        kill_soon(&job, 500);
    }
    // Unfinished work of killed coordinators must not hold up the next checkpoint.
    job.wait_for(event, job.count(event) + 1);
    lab.cut_power("h2");
    for _ in 0..3 {
        kill_soon(&job, 1500);
    }
    job.wait_for("checkpoint", job.count("checkpoint") + 1);
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_well();
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["computing", "rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
    nothing_left(&lab, &ended);
}
