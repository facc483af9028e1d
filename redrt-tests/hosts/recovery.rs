//! Replicas of lost hosts are cloned to a spare host.

use crate::nothing_left;
use redrt_tests::lab::lab;
use redrt_tests::{Job, Running, compile};
use std::time::Duration;

fn count(job: &Running, event: &str) -> usize {
    job.audit().iter().filter(|record| record["event"] == event).count()
}

#[test]
fn after_clones_to_a_spare_the_next_host_may_be_lost() {
    let Some(lab) = lab(5) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until"))
        .arguments(&[&stop.display().to_string()])
        .degree(2)
        .options(&["--spares", "1"])
        .on_hosts(&lab, "h1,h2,h3,h4,h5")
        .limit(Duration::from_secs(120))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    lab.cut_power("h2");
    job.wait_until("recovery", |job| count(job, "recovered") == 2);
    // Each rank has two replicas again, on two hosts: another host may go.
    lab.cut_power("h3");
    job.wait_until("loss", |job| count(job, "replica-lost") == 4);
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_well().said("lost host h2").said("lost host h3");
    let is_right = |line: &str| line == "computing" || line.ends_with(": right");
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn who_ends_a_job_for_the_loss_of_a_host_is_told() {
    let Some(lab) = lab(3) else { return };
    let job = Job::new(3, &compile("until"))
        .arguments(&[&lab.path("stop").display().to_string()])
        .degree(2)
        .environment("SLURM_JOB_ID", "7")
        .on_hosts(&lab, "h1,h2,h3")
        .limit(Duration::from_secs(60))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    lab.cut_power("h3");
    job.wait_until("loss", |job| job.errors().contains("lost host h3"));
    job.signal(libc::SIGTERM);
    let ended =
        job.wait().ended_with(143).said("SIGTERM came after host h3 was lost: without --no-kill Slurm ends a job");
    nothing_left(&lab, &ended);
}
