//! Ends of jobs: aborts, crashes, time limits, signals, and the loss of a whole rank.

use redrt_tests::{Ended, Job, Program, breadth, compile_source, prefix};
use std::process::Command;
use std::time::Duration;

/// Short for a person; with room for a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_millis(4500);

/// A program whose rank 1 does `what` after a barrier, while the others wait for a message from it.
fn rank_1_does(what: &str) -> String {
    format!(
        r#"
        #define _GNU_SOURCE
        #include <mpi.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main(int argc, char **argv) {{
            int rank, number = 0;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 1) {{
                {what};
            }} else {{
                MPI_Recv(&number, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }}
            MPI_Finalize();
            return 0;
        }}"#
    )
}

#[track_caller]
fn ends(degree: u16, what: &str, code: i32) -> Ended {
    let (_directory, program) = compile_source(&rank_1_does(what));
    Job::new(3, &program).degree(degree).run().ended_with(code).within(AT_ONCE)
}

#[test]
fn the_loss_of_a_whole_rank_ends_the_job() {
    for transport in ["shm", "tcp"] {
        let program = Program::named("heat").expect("a test program");
        let job = Job::of(&program).arguments(&[]).degree(2).transport(transport);
        let job = job.inject("kill:1.0@#5").inject("kill:1.1@#9").run();
        job.ended_with(128 + 9).said("rank 1 is lost").within(AT_ONCE);
    }
    ends(1, "raise(SIGKILL)", 128 + 9).said("rank 1");
    ends(2, "raise(SIGKILL)", 128 + 9).said("rank 1 is lost");
}

#[test]
fn abort_ends_the_job_with_its_code() {
    for degree in 1..=3 {
        ends(degree, "MPI_Abort(MPI_COMM_WORLD, 42)", 42).said("MPI_Abort");
    }
}

#[test]
fn a_segmentation_fault_in_all_replicas_ends_the_job() {
    for degree in 1..=3 {
        ends(degree, "raise(SIGSEGV)", 128 + 11).said("rank 1").said("SIGSEGV");
    }
}

#[test]
fn exit_before_finalize_ends_the_job() {
    for degree in 1..=3 {
        ends(degree, "exit(3)", 3).said("rank 1").said("MPI_Finalize");
        let _ = ends(degree, "exit(0)", 1).said("rank 1").said("MPI_Finalize");
    }
}

#[test]
fn an_error_under_errors_are_fatal_ends_the_job() {
    for degree in [1, 2] {
        let (_directory, program) =
            compile_source(&rank_1_does("MPI_Send(&number, 1, MPI_INT, 77, 0, MPI_COMM_WORLD)"));
        let ended = Job::new(2, &program).degree(degree).run().within(AT_ONCE).said("MPI_Send");
        if ended.code == Some(0) || ended.hung() {
            ended.fail("an invalid rank is not an error");
        }
    }
}

#[test]
fn one_replica_that_ends_early_is_lost_and_the_others_go_on() {
    // The replicas differ in that one of them makes the file first.
    let what = r#"
        const char *file = getenv("REDRT_TEST_FIRST");
        if (symlink("x", file) == 0)
            _exit(5);
        MPI_Send(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD)"#;
    let (directory, program) = compile_source(&rank_1_does(what));
    let first = directory.path().join("first").display().to_string();
    let job =
        Job::new(2, &program).degree(2).options(&["--files", "all"]).environment("REDRT_TEST_FIRST", &first).run();
    let _ = job.ended_with(0).said("lost replica 1.");
}

#[test]
fn a_time_limit_ends_a_job_that_hangs() {
    for degree in [1, 2] {
        let (_directory, program) = compile_source(&rank_1_does("pause()"));
        let job = Job::new(2, &program).degree(degree).options(&["--timeout", "0.5"]);
        let _ = job.run().ended_with(124).within(AT_ONCE);
    }
}

#[test]
fn a_deadlock_ends_the_job_and_says_who_waits_for_what() {
    // Rank 1 waits for the others in the barrier of MPI_Finalize; they wait for a message that it never sends.
    for transport in ["shm", "tcp"] {
        for degree in 1..=3 {
            let (_directory, program) = compile_source(&rank_1_does("number = 1"));
            let ended = Job::new(3, &program).degree(degree).transport(transport).run().ended_with(1);
            let _ = ended.said("deadlock").said("rank 0 waits for a message from rank 1, tag 0, MPI_COMM_WORLD");
        }
    }
}

#[test]
fn a_deadlock_in_a_collective_says_who_has_not_come() {
    // After this many collectives a communicator of one host has a board.
    let source = r#"
        #include <mpi.h>
        int main(int argc, char **argv) {
            int rank, number = 0;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            for (int i = 0; i < 20; i++)
                MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 1)
                MPI_Recv(&number, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    let ended = Job::new(3, &program).degree(1).run().ended_with(1).said("deadlock");
    let _ = ended
        .said("rank 0 waits for rank 1 to come to a collective of MPI_COMM_WORLD")
        .said("rank 1 waits for a message from rank 0, tag 5, MPI_COMM_WORLD");
}

#[test]
fn a_process_that_computes_or_a_second_thread_is_no_deadlock() {
    // Longer than two rounds of questions take.
    let slow = "sleep(5); MPI_Send(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD); MPI_Send(&number, 1, MPI_INT, 2, 0, MPI_COMM_WORLD)";
    for degree in [1, 2] {
        let (_directory, program) = compile_source(&rank_1_does(slow));
        let _ = Job::new(3, &program).degree(degree).run().ended_well();
    }
    let source = r#"
        #include <mpi.h>
        #include <pthread.h>
        #include <unistd.h>
        #include <stdint.h>
        static void *late(void *unused) {
            int number = 3;
            sleep(5);
            for (int tag = 0; tag < 3; tag++)
                MPI_Send(&number, 1, MPI_INT, 0, tag, MPI_COMM_SELF);
            return unused;
        }
        static void *probe(void *tag) {
            MPI_Probe(0, (int)(intptr_t)tag, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            return tag;
        }
        int main(int argc, char **argv) {
            int provided, number;
            pthread_t threads[3];
            MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
            pthread_create(&threads[0], 0, late, 0);
            pthread_create(&threads[1], 0, probe, (void *)1);
            pthread_create(&threads[2], 0, probe, (void *)2);
            MPI_Recv(&number, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            for (int thread = 0; thread < 3; thread++)
                pthread_join(threads[thread], 0);
            MPI_Recv(&number, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            MPI_Recv(&number, 1, MPI_INT, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            MPI_Finalize();
            return number != 3;
        }"#;
    let (_directory, program) = compile_source(source);
    for transport in ["shm", "tcp"] {
        let _ = Job::new(2, &program).transport(transport).run().ended_well();
    }
}

#[test]
fn a_replica_that_strays_from_two_siblings_is_retired() {
    // The first replica of rank 1 to make a link waits for a message that is never sent.
    let what = r#"
        const char *file = getenv("REDRT_TEST_FIRST");
        if (symlink("x", file) == 0)
            MPI_Recv(&number, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int to = 0; to < 3; to += 2)
            MPI_Send(&number, 1, MPI_INT, to, 0, MPI_COMM_WORLD)"#;
    let (directory, program) = compile_source(&rank_1_does(what));
    let first = directory.path().join("first").display().to_string();
    let job =
        Job::new(3, &program).degree(3).options(&["--files", "all"]).environment("REDRT_TEST_FIRST", &first).run();
    let _ = job.ended_with(0).said("retiring replica 1.").said("took different paths: ");
}

#[test]
fn ctrl_c_ends_the_job() {
    for degree in [1, 2] {
        let (_directory, program) = compile_source(&rank_1_does("puts(\"waiting\"); fflush(stdout); pause()"));
        let job = Job::new(2, &program).degree(degree).start();
        job.wait_until("output", |job| job.output().contains("waiting"));
        job.signal(libc::SIGINT);
        let _ = job.wait().ended_with(130).within(AT_ONCE);
    }
}

#[test]
fn two_ctrl_c_end_a_job_that_does_not_want_to() {
    let stubborn = "signal(SIGTERM, SIG_IGN); puts(\"waiting\"); fflush(stdout); for (;;) pause()";
    let (_directory, program) = compile_source(&rank_1_does(stubborn));
    let job = Job::new(2, &program).degree(2).start();
    job.wait_until("output", |job| job.output().contains("waiting"));
    job.signal(libc::SIGINT);
    std::thread::sleep(Duration::from_millis(100));
    job.signal(libc::SIGINT);
    let _ = job.wait().ended_with(130).within(AT_ONCE);
}

#[test]
fn nothing_is_left_when_redrun_is_killed() {
    let (_directory, program) = compile_source(&rank_1_does("puts(\"waiting\"); fflush(stdout); pause()"));
    let job = Job::new(2, &program).degree(2).start();
    job.wait_until("output", |job| job.output().contains("waiting"));
    job.signal(libc::SIGKILL);
    let _ = job.wait().ended_with(128 + 9);
}

#[test]
fn the_audit_log_of_a_killed_redrun_lacks_its_end() {
    let (_directory, program) = compile_source(&rank_1_does("puts(\"waiting\"); fflush(stdout); pause()"));
    let job = Job::new(2, &program).degree(2).start();
    job.wait_until("output", |job| job.output().contains("waiting"));
    assert!(job.verify_audit().1.contains("a job writes to it"), "{:?}", job.verify_audit());
    job.signal(libc::SIGKILL);
    let ended = job.wait();
    let (code, said) = &ended.verified;
    let is_cut = *code == Some(3) && said.contains("INCOMPLETE") && said.contains("the last job has no end");
    assert!(is_cut && ended.events("started").count() == 4, "{said}\n{ended}");
}

#[test]
fn a_process_started_from_outside_redrun_is_a_job_of_one() {
    let program = redrt_tests::compile("collectives");
    let output = Command::new(program).output().expect("the program can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.is_empty());
}

#[test]
fn mpiexec_and_mpirun_are_redrun() {
    let program = redrt_tests::compile("cg");
    for name in ["mpiexec", "mpirun"] {
        let mut command = Command::new(prefix().join("bin").join(name));
        let output = command.args(["-n", "2"]).arg(&program).arg("64").output().expect("it can be run");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn forty_ranks_meet() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            int rank, size, sum = 0;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            for (int i = 0; i < 20; i++)
                MPI_Barrier(MPI_COMM_WORLD);
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0)
                printf("%d ranks, sum %d\n", size, sum);
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    for (transport, degree) in breadth(&[("shm", 2), ("tcp", 1)][..], &[("shm", 1), ("shm", 2), ("tcp", 1), ("tcp", 2)])
    {
        let job = Job::new(40, &program).degree(*degree).transport(transport).run();
        let _ = job.ended_well().printed("40 ranks, sum 780\n");
    }
}

#[test]
fn partial_degrees_work() {
    let program = Program::named("heat").expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    for options in [["-r", "1.5"], ["--replicate", "0-1:3,2-3:1"], ["--replicate", "1:2"]] {
        let job = Job::of(&program).options(&options).run();
        let _ = job.ended_well().printed(&alone.out);
    }
}

#[test]
fn a_program_that_closes_all_descriptors_is_told_so() {
    let closes = "for (int fd = 3; fd < 1024; fd++) close(fd)";
    let program = |before: &str, after: &str| {
        compile_source(&format!(
            r#"
            #include <mpi.h>
            #include <unistd.h>
            int main(int argc, char **argv) {{
                {before};
                MPI_Init(&argc, &argv);
                {after};
                for (int i = 0; i < 1000; i++)
                    MPI_Barrier(MPI_COMM_WORLD);
                MPI_Finalize();
                return 0;
            }}"#
        ))
    };
    // With replicas the preloaded library ignores processes that are not the program's.
    for transport in ["shm", "tcp"] {
        let run = |program: &std::path::Path| Job::new(2, program).transport(transport).run();
        let (_directory, before) = program(closes, "");
        let _ = run(&before)
            .ended_with(1)
            .said("the program, or what has started it, has closed descriptors that it did not open");
        let (_directory, after) = program("", closes);
        let ended = run(&after).said("the program has closed all descriptors after MPI_Init");
        assert!(!matches!(ended.code, None | Some(0)) && ended.left.is_empty(), "{ended}");
    }
}

/// Exit code and errors of a job of two ranks whose redrun has no standard output.
fn without_output(print: &str, options: &[&str]) -> (Option<i32>, String) {
    let source = format!(
        r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {{
            MPI_Init(&argc, &argv);
            {print};
            MPI_Finalize();
            return 0;
        }}"#
    );
    let (_directory, program) = compile_source(&source);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(prefix().join("bin/redrun"));
    let output = command.args(["-n", "2"]).args(options).arg(program).output().expect("a shell can be run");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn output_lost_to_a_closed_standard_output_is_no_success() {
    for options in [&["-r", "1"][..], &["-r", "2"], &["-r", "2", "--on-output-error", "wait"]] {
        // A closed pipe, as of a reader that has ended.
        let (code, said) = without_output("puts(\"lost\")", options);
        assert_eq!(code, Some(128 + libc::SIGPIPE), "{said}");
        let (code, said) = without_output("", options);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// A job reports how many messages it compared, or why it cannot; only one without messages reports none.
#[test]
fn what_was_compared_is_told_of_jobs_of_all_kinds() {
    let source = r#"
        #include <mpi.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int rank, in = 1, out = 0;
            MPI_Win window;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            switch (atoi(argv[1])) {
            case 0:
                MPI_Sendrecv(&in, 1, MPI_INT, rank, 1, &out, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                break;
            case 1:
                MPI_Barrier(MPI_COMM_WORLD);
                break;
            case 2:
                MPI_Win_create(&in, 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
                MPI_Win_lock(MPI_LOCK_SHARED, 1 - rank, 0, window);
                MPI_Get(&out, 1, MPI_INT, 1 - rank, 0, 1, MPI_INT, window);
                MPI_Win_unlock(1 - rank, window);
                MPI_Win_free(&window);
                break;
            case 3:
                MPI_Barrier(MPI_COMM_WORLD);
                MPI_Abort(MPI_COMM_WORLD, 3);
                break;
            }
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    for (case, code, said) in [
        ("0", 0, "no message was sent from rank to rank, so none was compared"),
        ("1", 0, "messages compared"),
        ("2", 0, "messages compared"),
        ("3", 3, "no process lived to tell how many messages it had compared"),
    ] {
        let _ = Job::new(2, &program).degree(2).arguments(&[case]).run().ended_with(code).said(said);
    }
}
