//! Moves of replicas, changes of degrees and new places while a job runs: its result stays the same.

use crate::{disturbed, while_computing};
use redrt_tests::{Job, Running, compile, compile_case};
use std::time::Duration;

fn job(degree: u16, options: &[&str]) -> Job {
    Job::new(3, &compile("until")).degree(degree).options(options)
}

/// Moves a replica and waits until it has left its place.
#[track_caller]
fn migrate(job: &Running, replica: &str) {
    job.redctl(&["migrate", replica, "--wait"]).unwrap_or_else(|why| panic!("{replica}: {why}"));
}

/// The replicas of a rank that run.
fn of_rank(job: &Running, rank: u32) -> Vec<String> {
    let names = job.replicas().into_iter().filter_map(|replica| Some(replica.split_once(" on ")?.0.to_owned()));
    names.filter(|name| name.starts_with(&format!("{rank}."))).collect()
}

#[test]
fn without_replicas_every_rank_can_be_moved_several_times() {
    for transport in ["shm", "tcp"] {
        let ended = disturbed(job(1, &["--spares", "1", "--transport", transport]), |job| {
            for _ in 0..3 {
                for rank in 0..3 {
                    let [replica] = &of_rank(job, rank)[..] else { panic!("{:?}", job.replicas()) };
                    migrate(job, replica);
                }
            }
        });
        assert_eq!((ended.number("joined"), ended.number("left")), (9, 9), "{ended}");
    }
}

#[test]
fn who_sleeps_and_was_never_spoken_to_is_moved_too() {
    for transport in ["shm", "tcp"] {
        let job = Job::new(2, &compile_case("silent")).options(&["--spares", "1", "--transport", transport]);
        // It must not take as long as the sleep of a process that nothing wakes.
        let ended = while_computing(Duration::from_secs(40), job, |job| {
            for _ in 0..3 {
                let [replica] = &of_rank(job, 0)[..] else { panic!("{:?}", job.replicas()) };
                migrate(job, replica);
            }
        });
        assert_eq!(ended.ended_well().out, "computing\n7\n");
    }
}

#[test]
fn replicas_are_moved_and_their_siblings_may_go_then() {
    let ended = disturbed(job(2, &["--spares", "1"]), |job| {
        migrate(job, "1.0");
        assert_eq!(of_rank(job, 1), ["1.1", "1.2"]);
        job.kill_replica("1.1");
        job.wait_for("recovered", 1);
        migrate(job, "1.2");
        migrate(job, "0.1");
        job.kill_replica("1.1");
        job.wait_for("recovered", 2);
    });
    assert_eq!((ended.number("joined"), ended.number("left"), ended.number("recovered")), (3, 3, 2), "{ended}");
}

#[test]
fn degrees_change_while_a_job_runs() {
    let ended = disturbed(job(1, &["--spares", "6", "--max-degree", "3"]), |job| {
        job.redctl(&["degree", "2"]).expect("there is room");
        job.wait_for("joined", 3);
        for rank in 0..3 {
            job.kill_replica(&format!("{rank}.0"));
        }
        job.wait_for("recovered", 3);
        job.redctl(&["degree", "3", "--ranks", "1-2"]).expect("there is room");
        job.wait_for("joined", 5);
        job.redctl(&["degree", "1"]).expect("less is always possible");
        job.wait_for("left", 5);
        assert_eq!(job.replicas().len(), 3, "{:?}", job.replicas());
        job.redctl(&["degree", "2", "--ranks", "0"]).expect("there is room");
        job.wait_for("joined", 6);
    });
    assert_eq!((ended.number("joined"), ended.number("left")), (6, 5), "{ended}");
}

#[test]
fn a_degraded_job_takes_the_place_that_appears() {
    let ended = disturbed(job(2, &["--spares", "0", "--host", "localhost:6"]), |job| {
        // The lost replica left a place free, and the degree must not use it.
        job.redctl(&["degree", "3", "--ranks", "1"]).expect_err("there is no room");
        job.redctl(&["spare", "add", "localhost:1"]).expect("it is this host");
        job.redctl(&["degree", "3", "--ranks", "1"]).expect("there is room now");
        job.wait_for("joined", 1);
    });
    assert_eq!(ended.number("joined"), 1, "{ended}");
}

#[test]
fn what_cannot_be_done_is_refused_in_one_line() {
    let _ = disturbed(job(2, &["--spares", "1"]), |job| {
        let here = nix_host_name();
        for (words, says) in [
            (&["migrate", "7.0"][..], "no live replica 7.0"),
            (&["migrate", "0.2"], "no live replica 0.2"),
            (&["migrate", "0.0", "--to", "nowhere"], "no host nowhere"),
            (&["migrate", "0.0", "--to", &here], "already"),
            (&["drain", "nowhere"], "no host nowhere"),
            (&["drain", &here], "places are needed"),
            (&["degree", "0"], "one replica at least"),
            (&["degree", "9"], "--max-degree"),
            (&["degree", "2", "--ranks", "0-9"], "ranks 0 to 2"),
            (&["spare", "add", "nowhere"], "one host only"),
        ] {
            let said = job.redctl(words).expect_err("it cannot be done");
            assert!(said.contains(says) && said.trim().lines().count() == 1, "{words:?}: {said}");
        }
    });
    let _ = disturbed(job(2, &[]), |job| {
        let said = job.redctl(&["migrate", "0.0"]).expect_err("nothing can be copied");
        assert!(said.contains("--spares"), "{said}");
    });
}

fn nix_host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it is there").trim().to_owned()
}
