//! Inputs from outside of MPI: callbacks and Python agree on them, and a replica that parts from its siblings is
//! reported.

use redrt_tests::{Job, breadth, compile_case, compile_source, prefix, root};
use std::time::Duration;

#[test]
fn callbacks_read_the_clocks_of_the_leader() {
    let program = compile_case("callbacks");
    for transport in ["shm", "tcp"] {
        for degree in 1..=3 {
            let job = Job::new(3, &program).degree(degree).transport(transport).run();
            let _ = job.ended_well().printed("callbacks agree\n");
        }
    }
    // A new leader goes on with the clocks of the old one.
    for send in [3, 20, 41] {
        let job = Job::new(3, &program).degree(2).inject(&format!("kill:0.0@#{send}")).run();
        let _ = job.ended_well().printed("callbacks agree\n");
    }
}

#[test]
fn all_clocks_agree_while_a_thread_measures_processor_time() {
    let program = compile_case("allclocks");
    for degree in [1, 2, 3] {
        let _ = Job::new(2, &program).degree(degree).run().ended_well().printed("all clocks agree\n");
    }
}

/// Memory, faults, switches, load and processors, read by functions, by system call numbers and from files of `/proc`.
#[test]
fn what_the_system_counts_agrees() {
    let program = compile_case("counts");
    let agree = |ended: redrt_tests::Ended, degree: u16| {
        let ended = ended.ended_with(0);
        let told = ["divergences", "mismatches", "output_mismatches"].map(|what| ended.number(what));
        if degree > 1 && told != [0; 3] || !ended.out.contains("all counts agree\n") {
            ended.fail(&format!("{told:?} divergences and mismatches"));
        }
    };
    for degree in breadth(3..=3, 1..=3) {
        agree(Job::new(2, &program).degree(degree).run(), degree);
    }
    // After the loss of the leader a new one decides, and a copy joins.
    agree(Job::new(2, &program).degree(2).inject("kill:0.0@#7").run(), 2);
    let copied = Job::new(2, &program).arguments(&[breadth("150", "400")]).degree(2).options(&["--spares", "1"]);
    agree(copied.inject("kill:1.0@#20").run(), 2);
}

/// Guile's collector is one. The program's own readings in between agree, and no divergence is reported after any
/// death, change of leader or join.
#[test]
fn a_collector_that_reads_clocks_at_any_time_parts_nobody() {
    let program = compile_case("collecting");
    let quiet = |ended: redrt_tests::Ended| {
        let ended = ended.ended_with(0);
        let told = ["divergences", "mismatches", "output_mismatches"].map(|what| ended.number(what));
        if told != [0; 3] || ended.number("readings_alone") == 0 {
            ended.fail(&format!("{told:?} divergences and mismatches, or no reading alone"));
        }
    };
    for degree in [2, 3] {
        quiet(Job::new(2, &program).degree(degree).run());
    }
    quiet(Job::new(2, &program).degree(2).options(&["--spares", "1"]).inject("kill:1.0@#200").run());
    let checked = Job::new(2, &program).options(&["--check-determinism"]).run().ended_with(0);
    let alone = &checked.summary["determinism"]["readings_alone"];
    let names_stack = |one: &serde_json::Value| {
        let functions = one["stack"]["callers"].as_array().into_iter().flatten();
        let functions: Vec<_> = functions.filter_map(|caller| caller["function"].as_str()).collect();
        functions.starts_with(&["used", "collect", "allocate"]) && one["clock"] == 2 && one["thread"] == 0
    };
    if !alone.as_array().is_some_and(|alone| alone.iter().any(names_stack)) {
        checked.fail(&format!("no stack of a collection: {alone:#}"));
    }
}

/// The clock of agreed deadlines leaves out the time before `MPI_Init`, so deadlines are shifted by it. Where clocks
/// become real after `MPI_Init`, deadlines must not be shifted.
#[test]
fn waits_after_mpi_init_are_exact_where_clocks_are_real() {
    let source = r#"
        #define _GNU_SOURCE
        #include <mpi.h>
        #include <stdio.h>
        #include <sys/wait.h>
        #include <time.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            struct timespec now, deadline, third = {0, 300000000};
            clock_gettime(CLOCK_MONOTONIC, &now);
            pid_t child = fork();
            if (child == 0)
                nanosleep(&third, NULL), _exit(0);
            waitpid(child, NULL, 0);
            clock_gettime(CLOCK_MONOTONIC, &now);
            MPI_Init(&argc, &argv);
            double begin = MPI_Wtime();
            for (int i = 0; i < 20; i++) {
                clock_gettime(CLOCK_MONOTONIC, &deadline);
                deadline.tv_nsec += 1000000;
                deadline.tv_sec += deadline.tv_nsec / 1000000000;
                deadline.tv_nsec %= 1000000000;
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
            }
            if (MPI_Wtime() - begin < 20 * 0.3)
                printf("in time\n");
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    for (degree, options) in [(2, ["--determinism", "sends"]), (1, ["--spares", "1"])] {
        let _ = Job::new(1, &program).degree(degree).options(&options).run().ended_well().printed("in time\n");
    }
}

#[test]
fn python_that_loads_the_library_late_agrees() {
    let script = root().join("redrt-tests/cases/clocks.py").display().to_string();
    let library = prefix().join("lib/libmpi_abi.so.1").display().to_string();
    for degree in 1..=3 {
        let job = Job::new(3, "python3".as_ref()).arguments(&[&script, &library, "12"]).degree(degree).run();
        let _ = job.ended_well().printed("Python's clocks and random bytes agree\n");
    }
}

/// Runs `diverging`: one replica of each rank reads clocks that its siblings do not read.
fn diverging(rank_count: u32, degree: u16, arguments: &[&str]) -> redrt_tests::Ended {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let job = Job::new(rank_count, &compile_case("diverging"))
        .degree(degree)
        .options(&["--files", "all"])
        .limit(Duration::from_secs(120));
    let path = directory.path().display().to_string();
    job.arguments(&[&path]).arguments(arguments).run().ended_with(0).printed("done\n")
}

#[test]
fn a_replica_that_reads_clocks_of_its_own_parts_nobody() {
    for degree in [2, 3] {
        let _ = diverging(3, degree, &[]).ended_well();
    }
}

/// The leader's thread waits for a lock. The lock's holder waits for a message that depends on the follower, whose
/// thread reads a clock.
#[test]
fn a_reading_that_the_leader_makes_later_hangs_nobody() {
    let _ = diverging(2, 2, &["lock"]);
}

/// When the thread is the follower's, its leader waits for it.
#[test]
fn a_thread_that_leaves_a_loop_of_readings_first_hangs_nobody() {
    let _ = diverging(2, 2, &["loop"]);
}

/// Racing threads see at different readings that they should end.
#[test]
fn a_thread_that_reads_more_before_it_ends_is_no_divergence() {
    for degree in [2, 3] {
        let _ = diverging(2, degree, &["end"]).ended_well();
    }
}

#[test]
fn a_thread_that_only_one_replica_has_hangs_nobody() {
    // The extra reading may be the leader's, which reads in vain, or a follower's, which waits for a while.
    let _ = diverging(2, 2, &["thread"]);
}
