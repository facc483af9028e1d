//! A replica that stands still holds up its job neither for ever nor in silence.

use crate::{reasons, while_computing};
use redrt_tests::{Ended, Job, Running, compile_case, compile_source};
use std::time::Duration;

fn run(degree: u16, options: &[&str], disturb: impl FnOnce(&Running)) -> Ended {
    let job = Job::new(3, &compile_case("gated")).degree(degree).options(&["--stall-timeout", "6"]).options(options);
    while_computing(Duration::from_secs(240), job, disturb)
}

#[test]
fn a_stopped_replica_of_three_is_ended() {
    let out = run(3, &[], |_| {}).ended_well().out;
    for (transport, stopped) in [("shm", "1.2"), ("tcp", "0.0"), ("shm", "2.0")] {
        let ended = run(3, &["--transport", transport], |job| job.signal_replica(stopped, libc::SIGSTOP));
        let ended = ended.ended_with(0).printed(&out).said(stopped);
        assert_eq!(reasons(&ended), [(stopped, "lagging")], "{ended}");
    }
}

#[test]
fn of_two_a_stopped_replica_is_reported_and_can_go_on() {
    let out = run(2, &[], |_| {}).ended_well().out;
    let ended = run(2, &[], |job| {
        job.signal_replica("1.1", libc::SIGSTOP);
        job.wait_until("word of who stands still", |job| {
            job.audit().iter().any(|record| record["event"] == "laggard" && record["replica"] == "1.1")
        });
        job.signal_replica("1.1", libc::SIGCONT);
    });
    let ended = ended.ended_with(0).printed(&out).said("has not answered for");
    assert_eq!(reasons(&ended), [], "{ended}");
}

#[test]
fn of_two_who_is_stopped_is_ended_with_on_stall_retire() {
    let out = run(2, &[], |_| {}).ended_well().out;
    let ended = run(2, &["--on-stall", "retire"], |job| job.signal_replica("1.1", libc::SIGSTOP));
    let ended = ended.ended_with(0).printed(&out);
    assert_eq!(reasons(&ended), [("1.1", "lagging")], "{ended}");
}

/// A flip in the bound of a loop: the process lives and answers, and never comes to its next call.
const LOOPING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int rank, sum = 0;
        char path[4096];
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int round = 0; round < 200; round++) {
            volatile long bound = 100;
            snprintf(path, sizeof path, "%s/first", getenv("REDRT_TEST_DIRECTORY"));
            if (rank == 1 && round == 100 && symlink("x", path) == 0)
                bound = 1L << 62;
            for (volatile long i = 0; i < bound; i++)
                ;
            MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        }
        if (rank == 0)
            printf("sum %d\n", sum);
        MPI_Finalize();
        return 0;
    }"#;

#[test]
fn a_replica_that_computes_for_ever_is_outrun_by_two_siblings() {
    let (directory, program) = compile_source(LOOPING);
    let job = Job::new(2, &program).degree(3).options(&["--stall-timeout", "6", "--files", "all", "--spares", "1"]);
    let job = job.environment("REDRT_TEST_DIRECTORY", &directory.path().display().to_string());
    let ended = job.limit(Duration::from_secs(120)).run().ended_with(0).printed("sum 398\n");
    let retired = reasons(&ended);
    assert!(retired.len() == 1 && retired[0].0.starts_with("1.") && retired[0].1 == "lagging", "{ended}");
}

/// On a single host only the questions to processes show that the daemon stands still.
#[test]
fn a_stopped_daemon_of_the_only_host_is_told_of() {
    let out = run(2, &[], |_| {}).ended_well().out;
    let ended = run(2, &[], |job| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", job.pid_of("0.0"))).expect("it lives");
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("proc(5)");
        let daemon: i32 = parent.trim().parse().expect("a process id");
        let send = |signal| {
            // SAFETY: - a signal to another process touches no memory of this one.
            unsafe { libc::kill(daemon, signal) };
        };
        send(libc::SIGSTOP);
        job.wait_for("quiet", 1);
        send(libc::SIGCONT);
    });
    let ended = ended.ended_with(0).printed(&out).said("no process has answered for");
    assert_eq!(reasons(&ended), [], "{ended}");
}
