//! Signals that the user sends to `redrun`: the program gets them, all replicas of a rank at the same call; Ctrl-Z
//! stops the whole job.

use crate::{reasons, while_computing};
use redrt_tests::{Ended, Job, Running, compile, compile_case};
use std::path::Path;
use std::time::Duration;

const RANKS: u32 = 3;
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the program that counts this many signals while `disturb` sends them. Replicas' outputs are compared, so a
/// signal at different calls would be a mismatch.
fn counting(count: usize, degree: u16, options: &[&str], disturb: impl FnOnce(&Running)) -> Ended {
    let job = Job::new(RANKS, &compile_case("signalled")).arguments(&[&count.to_string()]);
    let job = job.degree(degree).options(options).limit(LIMIT).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    disturb(&job);
    let ended = job.wait().ended_with(0);
    assert_eq!(ended.mismatches(), [], "{ended}");
    assert_eq!(ended.events("divergence").count(), 0, "{ended}");
    for rank in 0..RANKS {
        let of_rank = ended.out.lines().filter(|line| line.starts_with(&format!("rank {rank}: signal "))).count();
        assert_eq!(of_rank, count, "{ended}");
    }
    ended
}

/// Sends a signal and waits until all ranks have printed its arrival as that of the `number`th signal.
fn send(job: &Running, number: usize, signal: i32) {
    job.signal(signal);
    let seen = |job: &Running| job.output().matches(": signal ").count();
    job.wait_until("signal", |job| seen(job) == number * RANKS as usize);
}

#[test]
fn programs_start_with_no_signal_ignored_or_blocked() {
    for (degree, rank_count) in [(1, 2), (2, 1)] {
        let masks = ["-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status"];
        let ended = Job::new(rank_count, "sh".as_ref()).arguments(&masks).degree(degree).run().ended_with(0);
        let zeros = |line: &str| line.split_whitespace().nth(1).is_some_and(|mask| mask.trim_matches('0').is_empty());
        assert!(ended.out.lines().count() == 2 * rank_count as usize && ended.out.lines().all(zeros), "{ended}");
    }
}

#[test]
fn all_ranks_get_what_redrun_gets() {
    for (degree, transport) in [(1, "shm"), (2, "shm"), (2, "tcp"), (3, "shm"), (3, "tcp")] {
        let ended = counting(6, degree, &["--transport", transport], |job| {
            for (number, signal) in (1..=6).zip([libc::SIGUSR1, libc::SIGUSR2].into_iter().cycle()) {
                send(job, number, signal);
            }
        });
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            assert_eq!(ended.out.matches(&format!(": signal {signal} ")).count(), 9, "{ended}");
        }
    }
}

#[test]
fn replicas_that_are_behind_get_it_at_the_same_call() {
    for behind in ["1.0", "1.1", "0.2"] {
        counting(1, 3, &["--stall-timeout", "60"], |job| {
            job.signal_replica(behind, libc::SIGSTOP);
            // Siblings of a stopped replica come as far as they can without it.
            std::thread::sleep(Duration::from_millis(50));
            job.signal(libc::SIGUSR1);
            job.signal_replica(behind, libc::SIGCONT);
        });
    }
}

#[test]
fn copies_get_what_their_siblings_get() {
    for transport in ["shm", "tcp"] {
        let options = ["--transport", transport, "--spares", "2"];
        counting(9, 2, &options, |job| {
            for (round, lost) in ["1.0", "1.1", "0.0"].into_iter().enumerate() {
                send(job, 3 * round + 1, libc::SIGUSR1);
                job.kill_replica(lost);
                send(job, 3 * round + 2, libc::SIGUSR2);
                job.wait_for("recovered", round + 1);
                send(job, 3 * round + 3, libc::SIGUSR1);
            }
        });
    }
}

#[test]
fn a_signal_comes_while_a_copy_is_made() {
    let ended = counting(5, 2, &["--spares", "1"], |job| {
        job.kill_replica("1.0");
        for number in 1..=4 {
            send(job, number, libc::SIGUSR1);
        }
        job.wait_for("recovered", 1);
        send(job, 5, libc::SIGUSR1);
    });
    assert_eq!(ended.number("recovered"), 1, "{ended}");
}

#[test]
fn one_that_the_program_does_not_handle_ends_the_job() {
    for degree in [1, 2] {
        let job = Job::new(RANKS, &compile_case("signalled")).arguments(&["0"]).degree(degree).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        job.signal(libc::SIGUSR2);
        let ended = job.wait().ended_with(128 + libc::SIGUSR2);
        assert!(ended.err.contains("SIGUSR2"), "{ended}");
    }
}

#[test]
fn what_nobody_handles_by_default_is_no_end() {
    let ended = counting(1, 2, &[], |job| {
        job.signal(libc::SIGWINCH);
        send(job, 1, libc::SIGUSR1);
    });
    assert_eq!(reasons(&ended), [], "{ended}");
}

/// A job with checkpoints runs single processes with a helper each.
#[test]
fn processes_that_can_be_saved_get_it_too() {
    let store = tempfile::tempdir().expect("the temporary directory can be written");
    let directory = store.path().display().to_string();
    counting(2, 1, &["--checkpoint", "asked", "--checkpoint-dir", &directory], |job| {
        send(job, 1, libc::SIGUSR1);
        send(job, 2, libc::SIGUSR2);
    });
}

#[test]
fn a_console_passes_them_on() {
    counting(2, 2, &["--detachable"], |job| {
        send(job, 1, libc::SIGUSR1);
        send(job, 2, libc::SIGUSR2);
    });
}

fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[test]
fn ctrl_z_stops_the_processes_and_they_go_on() {
    for degree in [1, 2] {
        let options = ["--stall-timeout", "1", "--look-interval", "0.1"];
        let job = Job::new(RANKS, &compile("until")).degree(degree).options(&options);
        let ended = while_computing(LIMIT, job, |job| {
            let processes = job.processes("until");
            assert_eq!(processes.len(), (RANKS * u32::from(degree)) as usize);
            for _ in 0..3 {
                job.signal(libc::SIGTSTP);
                job.wait_until("stop", |_| processes.iter().all(|process| is_stopped(*process)));
                // Longer than a replica may stand still.
                std::thread::sleep(Duration::from_secs(2));
                job.resume();
                job.wait_until("their going on", |_| !processes.iter().any(|process| is_stopped(*process)));
            }
        });
        let ended = ended.ended_with(0);
        assert_eq!(reasons(&ended), [], "{ended}");
        assert_eq!(ended.events("laggard").count() + ended.events("replica-lost").count(), 0, "{ended}");
    }
}
