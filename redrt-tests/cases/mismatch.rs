//! `--check-collectives`: members whose calls do not fit each other get an error; all other calls are left alone.

use redrt_tests::{Ended, Job, Program, breadth, compile_case, root};
use std::path::Path;
use std::process::Command;

const RANKS: u32 = 4;

fn checked(program: &Path, degree: u16, arguments: &[&str]) -> Ended {
    Job::new(RANKS, program).degree(degree).options(&["--check-collectives"]).arguments(arguments).run()
}

/// Every member gets an error of this class, and they can go on.
#[track_caller]
fn told(program: &Path, degree: u16, mistake: &str, class: &str) {
    let ended = checked(program, degree, &[mistake]).ended_well();
    let expected: String = (0..RANKS).map(|rank| format!("{rank}: {class}, then 6\n")).collect();
    ended.printed(&expected);
}

#[test]
fn each_mistake_has_its_error_class() {
    let program = compile_case("mismatch");
    let mistakes = [
        ("function", "MPI_ERR_OTHER"),
        ("root", "MPI_ERR_ROOT"),
        ("count", "MPI_ERR_TRUNCATE"),
        ("type", "MPI_ERR_TYPE"),
        ("op", "MPI_ERR_OP"),
        ("gather", "MPI_ERR_TRUNCATE"),
        ("scatterv", "MPI_ERR_TRUNCATE"),
        ("allgatherv", "MPI_ERR_TRUNCATE"),
        ("alltoall", "MPI_ERR_TYPE"),
        ("shares", "MPI_ERR_COUNT"),
        ("nonblocking", "MPI_ERR_OTHER"),
        ("kinds", "MPI_ERR_OTHER"),
        ("persistent", "MPI_ERR_TRUNCATE"),
        ("neighbor", "MPI_ERR_TRUNCATE"),
        ("ineighbor", "MPI_ERR_TRUNCATE"),
        ("inter-root", "MPI_ERR_ROOT"),
        ("inter-length", "MPI_ERR_TRUNCATE"),
        ("split", "MPI_ERR_OTHER"),
        ("none", "MPI_SUCCESS"),
    ];
    for (mistake, class) in mistakes {
        for degree in [1, 2] {
            told(&program, degree, mistake, class);
        }
    }
}

#[test]
fn a_mistake_is_told_with_both_calls_and_where_they_are() {
    let program = compile_case("mismatch");
    let says = |mistake: &str, what: &[&str]| {
        for degree in [1, 2] {
            let ended = checked(&program, degree, &[mistake, "fatal"]);
            if ended.code == Some(0) || ended.hung() {
                ended.fail("the job is to end with an error");
            }
            let mut ended = ended;
            for part in what {
                ended = ended.said(part);
            }
        }
    };
    says(
        "root",
        &[
            "MPI_ERR_ROOT",
            "the calls of the members of mine do not fit each other at collective number 1: rank 0 on ",
            " calls MPI_Bcast(count 1, datatype MPI_INT, root 0), rank 2 on ",
            " calls MPI_Bcast(count 1, datatype MPI_INT, root 1): different roots",
        ],
    );
    says(
        "nonblocking",
        &["MPI_Wait", " calls MPI_Ibarrier(), rank 1 on ", " calls MPI_Ibcast(count 1, datatype MPI_INT, root 0): "],
    );
    says(
        "gather",
        &[
            "rank 2 on ",
            " calls MPI_Gather(sendcount 2, sendtype MPI_INT",
            "the first sends 8 bytes, of which the second expects 4",
        ],
    );
}

/// In advance no one can know that a member will never call it. When all members wait it is certain, and the call of
/// each is known.
#[test]
fn a_collective_that_not_all_call_is_a_deadlock_that_names_it() {
    let program = compile_case("mismatch");
    for mistake in ["communicator", "nobody"] {
        for degree in [1, 2] {
            let ended = checked(&program, degree, &[mistake]).ended_with(1).said("deadlock");
            ended.said("rank 0 waits for rank 1 to come to collective number 1 of the other one, here MPI_Barrier()");
        }
    }
}

#[test]
fn programs_without_mistakes_are_left_alone() {
    let all =
        ["collectives", "onesided", "neighbors", "files", "threads", "alltoall", "fortran_f08", "fortran_sections"];
    for name in breadth(&all[..2], &all[..]) {
        let program = Program::named(name).expect("a test program");
        let alone = Job::of(&program).run().ended_well();
        for degree in [1, 2] {
            let _ = Job::of(&program)
                .degree(degree)
                .options(&["--check-collectives"])
                .run()
                .ended_well()
                .printed(&alone.out);
        }
        let job = Job::of(&program).degree(2).options(&["--check-collectives"]);
        let _ = job.inject("kill:1.0@#40").run().ended_well().printed(&alone.out);
    }
}

#[test]
fn fortran_is_told_too() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let program = directory.path().join("program");
    let compiled = Command::new(redrt_tests::prefix().join("bin/mpifort"))
        .arg(root().join("redrt-tests/cases/fortran/mismatch.f90"))
        .arg("-o")
        .arg(&program)
        .current_dir(directory.path())
        .output()
        .expect("mpifort can be run");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    for degree in [1, 2] {
        let ended = checked(&program, degree, &[]).ended_well();
        ended.printed("T T\n");
    }
}
