//! A week in a minute: hosts lose their power together at any moment, that of the coordinator among them, in a job with
//! pieces on hosts, an archive, a spare host and several coordinators. Nobody does anything.

use redrt_tests::changing::Undisturbed;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum, peers_on};
use redrt_tests::{Lab, Random, Running, breadth};
use std::time::Duration;

/// Stands for the disk of each host: the file system that it has in its memory.
const IN_MEMORY: &str = "/dev/shm/kept";
const HOSTS: &str = "h1,h2,h3,h4,h5,h6,h7";

/// Number of jobs: `REDRT_POWER_CUTS` if it is set.
fn job_count() -> u32 {
    let set = std::env::var("REDRT_POWER_CUTS").ok().and_then(|count| count.parse().ok());
    set.unwrap_or(breadth(1, 6))
}

/// The first console ends with its host.
fn has_ended(job: &Running) -> bool {
    job.count("job-end") > 0
}

/// When the coordinator has come back on another host, and has taken more checkpoints, two hosts without its records
/// are lost: the five that are left have pieces for the loss of one.
fn lose_two_more(lab: &Lab, job: &Running, quorum: &Quorum<'_>) {
    let is_over = || has_ended(job);
    job.wait_until("a return", |job| job.count("went-back") > 0 || is_over());
    let before = job.count("checkpoint-archived");
    job.wait_until("a checkpoint in the archive", |job| job.count("checkpoint-archived") > before || is_over());
    let taken = job.count("checkpoint");
    job.wait_until("more checkpoints", |job| job.count("checkpoint") > taken + 2 || is_over());
    job.wait_until("three coordinators", |_| quorum.is_complete() || is_over());
    let is_free = |host: &String| peers_on(lab, host).is_empty() && quorum.find_coordinator().as_ref() != Some(host);
    let free: Vec<_> = quorum.alive().into_iter().filter(is_free).take(2).collect();
    if !is_over() {
        free.iter().for_each(|host| quorum.lose(host));
    }
}

/// The moments are drawn: in the launch, while images are written, encoded and sent, in a return. Of three jobs one
/// loses a third host while it goes back, more than the pieces stand, and one loses two more later.
#[test]
fn hosts_that_lose_power_together_cost_no_answer() {
    let mut random = Random::from_environment();
    for number in 0..job_count() {
        let Some(lab) = lab(7) else { return };
        let undisturbed = Undisturbed::lasting(6, if number % 3 == 1 { 2500 } else { 600 });
        let files = lab.path("files");
        std::fs::create_dir(&files).expect("it can be made");
        let archive = format!("3s,{}", lab.path("archive").display());
        let job = undisturbed
            .job(&files)
            .options(&["--detachable", "--coordinators", "3", "--spares", "1", "--transport", "tcp"])
            .options(&["--checkpoint", "1s", "--checkpoint-level", "erasure:4+2", "--checkpoint-dir", IN_MEMORY])
            .options(&["--checkpoint-archive", &archive])
            .on_hosts(&lab, HOSTS)
            .environment(OWN.0, OWN.1)
            .limit(Duration::from_secs(300))
            .start();
        let quorum = Quorum::of(&lab, &job, 7);
        quorum.wait_until_complete();
        let begun = if number % 3 == 2 { "checkpoint-archived" } else { "checkpoint" };
        job.wait_until("a checkpoint", |job| job.count(begun) > 0 || has_ended(job));
        let later = Duration::from_millis(random.from_one_to(4000));
        std::thread::sleep(later);
        let coordinator = quorum.find_coordinator().unwrap_or_else(|| "h1".into());
        let other = format!("h{}", 3 + random.from_one_to(4));
        let what = format!("job {number}: {coordinator} and {other} after {later:?}");
        [&coordinator, &other].into_iter().for_each(|host| quorum.lose(host));
        if number % 3 == 2 && !has_ended(&job) {
            let third = (4..=7).map(|host| format!("h{host}")).find(|host| *host != other).expect("others are left");
            std::thread::sleep(Duration::from_millis(random.from_one_to(3000)));
            quorum.lose(&third);
        }
        if number % 3 == 1 {
            lose_two_more(&lab, &job, &quorum);
        }
        assert_eq!(quorum.wait_for_good_end(), Ok(true), "{what}: {}", job.errors());
        let ended = job.wait();
        undisturbed.check(&ended, &files, &what);
        // Checkpoints stay where they are on disks.
        let left: Vec<_> = lab.left_behind(Duration::from_secs(3));
        let left: Vec<_> = left.iter().filter(|left| !left.ends_with(IN_MEMORY)).collect();
        assert!(left.is_empty(), "{what}: left behind: {left:?}");
        let counts = ["went-back", "checkpoint-archived"].map(|event| ended.events(event).count());
        println!("{what}: {} returns, {} archived", counts[0], counts[1]);
    }
}
