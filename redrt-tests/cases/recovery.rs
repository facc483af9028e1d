//! Copies of living replicas replace lost ones, and the job's result stays the same.

use crate::{disturbed, while_computing};
use redrt_tests::{Job, Program, Random, Running, breadth, compile, compile_source};
use std::path::Path;
use std::time::Duration;

/// Kills the replica and waits until redundancy is back.
fn lose(job: &Running, replica: &str) {
    let before = job.count("recovered");
    job.kill_replica(replica);
    job.wait_for("recovered", before + 1);
}

#[test]
fn after_a_loss_and_a_recovery_the_other_replica_may_go() {
    for transport in ["shm", "tcp"] {
        let job = Job::new(3, &compile("until")).degree(2).transport(transport).options(&["--spares", "1"]);
        let ended = disturbed(job, |job| {
            for replica in ["1.0", "1.1", "1.0", "0.1", "0.0", "2.1", "2.0", "1.1"] {
                lose(job, replica);
            }
        });
        let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
        assert_eq!((lost, ended.number("recovered")), (8, 8), "{ended}");
    }
}

#[test]
fn replicas_of_several_ranks_are_cloned_at_once() {
    let job = Job::new(3, &compile("until")).degree(3).options(&["--spares", "3", "--max-clones", "3"]);
    let ended = disturbed(job, |job| {
        for _ in 0..3 {
            let before = job.count("recovered");
            ["0.0", "1.1", "2.2", "2.0"].into_iter().for_each(|replica| job.kill_replica(replica));
            job.wait_for("recovered", before + 4);
        }
    });
    assert_eq!(ended.number("recovered"), 12, "{ended}");
}

#[test]
fn without_spares_a_lost_replica_stays_lost() {
    let job = Job::new(3, &compile("until")).degree(2);
    let ended = disturbed(job, |job| {
        job.kill_replica("1.0");
        job.wait_for("replica-lost", 1);
    });
    assert_eq!((ended.number("recovered"), ended.events("clone").count()), (0, 0), "{ended}");
}

#[test]
fn programs_with_losses_and_recoveries_print_the_same() {
    let mut random = Random::from_environment();
    let (mut recovered, mut jobs) = (0, 0);
    let all = Program::LONG.into_iter().filter(|program| program.name != "hybrid").enumerate();
    // The gate takes every third, drawn from the seed.
    let first = random.from_one_to(3) as usize - 1;
    for (number, program) in all.skip(breadth(first, 0)).step_by(breadth(3, 1)) {
        let alone = Job::of(&program).run().ended_well();
        let worlds = [(2, "shm"), (3, "tcp")];
        // The gate takes one of the two, in turn.
        for (degree, transport) in breadth(worlds[number % 2..=number % 2].to_vec(), worlds.to_vec()) {
            jobs += 1;
            let rank = random.from_one_to(u64::from(program.rank_count)) - 1;
            let replica = random.from_one_to(u64::from(degree)) - 1;
            // A limited number of losses: on a busy machine they could come faster than copies are made.
            let mtbf = format!("random:mtbf=0.4s,count=10,seed={}", random.from_one_to(1 << 30));
            let ended = Job::of(&program)
                .degree(degree)
                .transport(transport)
                .options(&["--spares", "2"])
                .inject(&format!("kill:{rank}.{replica}@#{}", random.from_one_to(40)))
                .inject(&mtbf)
                .limit(Duration::from_secs(120))
                .run()
                .ended_well()
                .printed(&alone.out);
            recovered += ended.number("recovered");
        }
    }
    assert!(recovered * 8 >= jobs * 3, "only {recovered} recoveries in {jobs} jobs");
}

/// The copy of a script's program has no script. Lines that only its siblings' scripts print are no mismatch, and the
/// exit code is that of the scripts.
#[test]
fn a_script_sets_the_exit_code_though_its_program_was_copied() {
    let words = format!("echo begins; {} \"$0\"; echo \"was $?\"; exit 7", compile("until").display());
    for (degree, lost) in [(2_u16, &["1.0"][..]), (3, &["1.0", "0.2"]), (2, &["1.0", "0.1", "1.0"])] {
        let job =
            Job::new(3, Path::new("/bin/sh")).degree(degree).options(&["--spares", "1"]).arguments(&["-c", &words]);
        let ended = while_computing(Duration::from_secs(120), job, |job| {
            // The log is written by a thread of its own.
            job.wait_for("started", 3 * usize::from(degree));
            lost.iter().for_each(|replica| lose(job, replica));
        });
        let mut lines: Vec<_> = ended.out.lines().collect();
        lines.sort_unstable();
        let count = |line: &str| lines.iter().filter(|other| **other == line).count();
        assert_eq!((count("begins"), count("was 0"), count("computing"), lines.len()), (3, 3, 1, 10), "{ended}");
        let ended = ended.ended_with(7);
        assert_eq!(ended.number("recovered"), lost.len() as u64, "{ended}");
        assert_eq!((ended.number("output_mismatches"), ended.number("mismatches")), (0, 0), "{ended}");
    }
}

/// Threads of OpenMP spin and sleep outside of the library.
#[test]
fn a_program_with_openmp_prints_the_same() {
    let mut random = Random::from_environment();
    let job = || Job::new(3, &compile("hybrid")).arguments(&["96", "6000"]).environment("OMP_WAIT_POLICY", "passive");
    let alone = job().run().ended_well();
    let all = [(1, "shm"), (2, "tcp"), (2, "shm"), (3, "shm")];
    for (degree, transport) in all.into_iter().take(breadth(2, 4)) {
        let seed = random.from_one_to(1 << 30);
        let mut disturbed = job().degree(degree).transport(transport).options(&["--spares", "2"]);
        if degree > 1 {
            let replica = random.from_one_to(u64::from(degree)) - 1;
            disturbed = disturbed
                .inject(&format!("kill:1.{replica}@#{}", random.from_one_to(40)))
                .inject(&format!("random:mtbf=0.3s,count=10,seed={seed}"));
        }
        let running = disturbed.limit(Duration::from_secs(120)).start();
        running.wait_until("start", |job| !job.output().is_empty());
        let moved = running.replicas().first().and_then(|one| Some(one.split(' ').next()?.to_owned()));
        // The replica may have been lost meanwhile, or be about to be.
        let is_moved = moved.is_some_and(|replica| running.redctl(&["migrate", &replica]).is_ok());
        let ended = running.wait().ended_well().printed(&alone.out);
        if degree == 1 {
            assert!(is_moved && ended.number("joined") == 1, "{ended}");
        } else {
            assert!(ended.number("recovered") > 0, "{ended}");
        }
    }
}

/// Rank 1 is traced by a process outside of the job.
const TRACED: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <sys/ptrace.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int rank, stop = 0, all = 0;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 1) {
            pid_t child = fork();
            if (child == 0) {
                if (fork() == 0) {
                    // The program is the second process of its namespace.
                    ptrace(PTRACE_SEIZE, 2, 0, 0);
                    for (;;) {
                        int status;
                        if (waitpid(-1, &status, __WALL) < 0)
                            _exit(0);
                        ptrace(PTRACE_CONT, 2, 0, 0);
                    }
                }
                _exit(0);
            }
            waitpid(child, 0, 0);
        }
        puts("computing");
        fflush(stdout);
        while (!all) {
            if (rank == 0)
                stop = access(argv[1], F_OK) == 0;
            MPI_Allreduce(&stop, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
            usleep(1000);
        }
        MPI_Finalize();
        return 0;
    }"#;

#[test]
fn a_refused_clone_is_reported_once_with_its_reason() {
    let (directory, program) = compile_source(TRACED);
    let stop = directory.path().join("stop");
    let job = Job::new(2, &program).degree(2).options(&["--spares", "1"]);
    let job = job.arguments(&[&stop.display().to_string()]).start();
    job.wait_until("computing", |job| job.output().matches("computing").count() == 2);
    job.kill_replica("1.1");
    job.wait_for("clone-failed", 4);
    std::fs::write(&stop, "").expect("the directory is there");
    let ended = job.wait().ended_with(0);
    for failure in ended.events("clone-failed") {
        assert!(failure["what"].as_str().is_some_and(|what| what.contains("traces it")), "{failure}\n{ended}");
    }
}
