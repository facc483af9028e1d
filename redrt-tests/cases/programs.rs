//! The test programs without faults: the same output at every degree and over every transport, without a report.

use redrt_tests::{Job, Program, breadth};
use std::path::Path;

/// Degrees and transports.
const ALL: [(u16, &str); 6] = [(1, "shm"), (2, "shm"), (3, "shm"), (1, "tcp"), (2, "tcp"), (3, "tcp")];
/// The part of them that the gate tries.
const SOME: [(u16, &str); 3] = [(1, "tcp"), (2, "shm"), (3, "tcp")];

fn same_output_everywhere(name: &str) {
    let program = Program::named(name).expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    assert!(!alone.out.is_empty(), "{name} prints nothing");
    for (degree, transport) in breadth(&SOME[..], &ALL) {
        let job = Job::of(&program).degree(*degree).transport(transport).run().ended_well().printed(&alone.out);
        let compared = job.summary["statistics"]["messages_compared"].as_u64().unwrap_or_default();
        if (compared > 0) != (*degree > 1) {
            job.fail(&format!("{compared} messages compared at r = {degree}"));
        }
    }
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                same_output_everywhere(stringify!($name));
            }
        )*
    };
}

programs!(heat cg master_worker polling collectives boards threads ring alltoall clocks cancel neighbors onesided partitions addresses files datareps places wavefront transpose buckets multigrid);
programs!(fortran_heat fortran_f08 fortran_mpi fortran_mpif fortran_sections fortran_modern);

/// All replicas of a rank have the same values.
#[test]
fn other_launchers_variables_have_the_rank() {
    let words = "echo $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK/$MPI_LOCALNRANKS $PMI_RANK \
                 $MPI_LOCALRANKID/$OMPI_COMM_WORLD_LOCAL_SIZE";
    let ended = Job::new(3, Path::new("/bin/sh")).degree(2).arguments(&["-c", words]).run().ended_with(0);
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0/3 0/3 0 0/3", "1/3 1/3 1 1/3", "2/3 2/3 2 2/3"], "{ended}");
}

#[test]
fn all_programs_are_tested() {
    let sources = std::fs::read_dir(redrt_tests::root().join("redrt-tests/programs")).expect("the programs").flatten();
    let name = |file: String| file.rsplit_once('.').filter(|(_, kind)| *kind != "h").map(|(name, _)| name.to_owned());
    let names = sources.filter_map(|entry| name(entry.file_name().into_string().ok()?));
    // These have tests of their own: one ends when a file appears, one computes for as long as its argument says, one
    // sends for minutes, one needs a directory for its checkpoints, and replicas of one that share memory are lost
    // together.
    let names = names.filter(|name| !["until", "compute", "flood", "saving", "shares"].contains(&name.as_str()));
    let is_lasting = |name: &str| Program::LASTING.into_iter().any(|program| program.name == name);
    let missing: Vec<_> = names.filter(|name| Program::named(name).is_none() || !is_lasting(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A send that has returned does not use its buffer any more (MPI-5.0 §3.4), however much of the message still waits in
/// a link.
#[test]
fn a_buffer_is_free_when_its_send_has_returned() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        enum { BYTES = 3000017 };
        int main(int argc, char **argv) {
            int rank;
            char *bytes = malloc(BYTES);
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            for (int round = 1; round <= 30; round++) {
                if (rank == 0) {
                    memset(bytes, round, BYTES);
                    MPI_Send(bytes, BYTES, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
                    memset(bytes, 99, BYTES);
                } else {
                    MPI_Recv(bytes, BYTES, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    for (int i = 0; i < BYTES; i++)
                        if (bytes[i] != round)
                            MPI_Abort(MPI_COMM_WORLD, 5);
                }
            }
            if (rank == 0)
                puts("all as sent");
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = redrt_tests::compile_source(source);
    for transport in ["shm", "tcp"] {
        for degree in 1..=3 {
            let _ =
                Job::new(2, &program).degree(degree).transport(transport).run().ended_well().printed("all as sent\n");
        }
    }
}

/// MPICH and Open MPI both take MPI_CHAR for an integer in reductions, and so do programs.
#[test]
fn characters_are_reduced_as_integers_unless_pedantic() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            char mine[3] = {1, 2, -3}, sum[3], most;
            MPI_Win window;
            MPI_Init(&argc, &argv);
            int rank;
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Allreduce(mine, sum, 3, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD);
            MPI_Reduce(&mine[rank % 3], &most, 1, MPI_CHAR, MPI_MAX, 0, MPI_COMM_WORLD);
            MPI_Win_create(sum, 3, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
            MPI_Win_fence(0, window);
            MPI_Accumulate(mine, 3, MPI_CHAR, 0, 0, 3, MPI_CHAR, MPI_SUM, window);
            MPI_Win_fence(0, window);
            if (rank == 0)
                printf("%d %d %d, %d\n", sum[0], sum[1], sum[2], most);
            MPI_Win_free(&window);
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = redrt_tests::compile_source(source);
    for degree in 1..=3 {
        let _ = Job::new(2, &program).degree(degree).run().ended_well().printed("4 8 -12, 2\n");
        let ended = Job::new(2, &program).degree(degree).options(&["--pedantic"]).run();
        assert!(ended.code != Some(0) && ended.err.contains("Sum is not defined on MPI_CHAR (--pedantic)"), "{ended}");
    }
}

/// Like `MPI_CHAR` in reductions, for other calls that the standard does not define.
#[test]
fn calls_that_both_others_accept_work_unless_pedantic() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            char letter = 3, sum = 0, packed[8];
            int none, size = -1, number = 0x01020304;
            MPI_Aint position = 0;
            MPI_Datatype empty;
            MPI_Init(&argc, &argv);
            switch (atoi(argv[1])) {
            case 0:
                MPI_Allreduce(&letter, &sum, 1, MPI_CHARACTER, MPI_SUM, MPI_COMM_WORLD);
                if (sum != 6) puts("wrong sum");
                break;
            case 1:
                MPI_Type_create_subarray(0, &none, &none, &none, MPI_ORDER_C, MPI_INT, &empty);
                MPI_Type_commit(&empty);
                MPI_Type_size(empty, &size);
                if (size != 0) puts("wrong size");
                MPI_Type_free(&empty);
                break;
            case 2:
                MPI_Pack_external("any", &number, 1, MPI_INT, packed, sizeof packed, &position);
                if (position != 4 || packed[0] != 1) puts("wrong bytes");
                break;
            }
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = redrt_tests::compile_source(source);
    for (case, said) in [("0", "MPI_CHARACTER (--pedantic)"), ("1", "number of dimensions is 0"), ("2", "is 'any'")] {
        let _ = Job::new(2, &program).degree(2).arguments(&[case]).run().ended_well().printed("");
        let ended = Job::new(2, &program).arguments(&[case]).options(&["--pedantic"]).run();
        assert!(ended.code != Some(0) && ended.err.contains(said), "{ended}");
    }
}
