//! MPI programs that a rank starts: another `redrun`, and programs that call `MPI_Init`.

use redrt_tests::{Job, compile_source, prefix};
use std::path::PathBuf;
use tempfile::TempDir;

/// Rank 0 runs a command with the shell after `MPI_Init`.
fn outer() -> (TempDir, PathBuf) {
    compile_source(
        r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            int rank, one = 1, sum;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            if (rank == 0) {
                int status = system(argv[1]);
                printf("ended with %d\n", status);
            }
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0)
                printf("outer %d\n", sum);
            MPI_Finalize();
            return 0;
        }"#,
    )
}

fn inner() -> (TempDir, PathBuf) {
    compile_source(
        r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            int rank, one = 1, sum;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0)
                printf("inner %d\n", sum);
            MPI_Finalize();
            return 0;
        }"#,
    )
}

#[test]
fn redrun_in_a_rank_runs_a_job_of_its_own() {
    let ((_outer, outer), (_inner, inner)) = (outer(), inner());
    let redrun = prefix().join("bin/redrun").display().to_string();
    // At r = 2 each replica starts a job of its own, in which nothing is agreed on.
    for (degree, inner_degree) in [(1, 2), (2, 1)] {
        let command = format!("{redrun} -r {inner_degree} -n 2 {}", inner.display());
        let ended = Job::new(2, &outer).degree(degree).arguments(&[&command]).run().ended_well();
        let _ = ended.printed("inner 2\nended with 0\nouter 2\n");
    }
}

#[test]
fn a_program_that_a_rank_has_started_is_no_rank_and_is_told_so() {
    let ((_outer, outer), (_inner, inner)) = (outer(), inner());
    let inner = inner.display().to_string();
    for degree in [1, 2] {
        let job = || Job::new(2, &outer).degree(degree).arguments(&[&inner]);
        let ended =
            job().run().ended_well().said("rank 0 of a job has started this process: it is no rank of that job");
        let _ = ended.printed("inner 1\nended with 0\nouter 2\n");
        let ended = job().environment("REDRT_SINGLETON", "1").run().ended_well();
        assert!(!ended.err.contains("no rank of that job"), "{ended}");
    }
}

#[test]
fn what_a_rank_starts_has_no_descriptor_of_the_library() {
    let (_outer, outer) = outer();
    let command = "ls /proc/self/fd | grep -c '^20[0-9]$'";
    for options in [&[][..], &["--spares", "1"]] {
        let ended = Job::new(1, &outer).options(options).arguments(&[command]).run().ended_well();
        // `grep` ends with this code when it finds nothing.
        let _ = ended.printed("0\nended with 256\nouter 1\n");
    }
}
