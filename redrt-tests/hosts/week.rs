//! A week in a minute: hosts lose their power together at any moment, that of the coordinator among them, in a job with
//! pieces on hosts, an archive, a spare host and several coordinators. Nobody does anything.

use redrt_tests::changing::Undisturbed;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum};
use redrt_tests::{Random, breadth};
use std::time::Duration;

/// Stands for the disk of each host: the file system that it has in its memory.
const IN_MEMORY: &str = "/dev/shm/kept";
const HOSTS: &str = "h1,h2,h3,h4,h5,h6,h7";

/// Number of jobs: `REDRT_POWER_CUTS` if it is set.
fn job_count() -> u32 {
    let set = std::env::var("REDRT_POWER_CUTS").ok().and_then(|count| count.parse().ok());
    set.unwrap_or(breadth(1, 6))
}

/// The moments are drawn: in the launch, while images are written, encoded and sent, in a return. Every third job loses
/// a third host while it goes back, more than the pieces stand.
#[test]
fn hosts_that_lose_power_together_cost_no_answer() {
    let mut random = Random::from_environment();
    for number in 0..job_count() {
        let Some(lab) = lab(7) else { return };
        let undisturbed = Undisturbed::new(6);
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
        job.wait_for("checkpoint", 1);
        let later = Duration::from_millis(random.from_one_to(4000));
        std::thread::sleep(later);
        let coordinator = quorum.find_coordinator().unwrap_or_else(|| "h1".into());
        let other = format!("h{}", 3 + random.from_one_to(4));
        let what = format!("job {number}: {coordinator} and {other} after {later:?}");
        [&coordinator, &other].into_iter().for_each(|host| quorum.lose(host));
        if number % 3 == 2 && !job.has_ended() {
            let third = (4..=7).map(|host| format!("h{host}")).find(|host| *host != other).expect("others are left");
            std::thread::sleep(Duration::from_millis(random.from_one_to(3000)));
            quorum.lose(&third);
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
