//! `--determinism=sends`: replicas agree only on outcomes that decide which messages are received.

use redrt_tests::{Job, Program, compile_source};
use std::time::Duration;

/// Rank 0 takes messages from all others in the order in which its probes find them, with each way of probing. A
/// running sum of the messages, weighed by their order, goes back to all of them.
const PROBING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #define ROUNDS 24
    static int wanted(int round) { return round % 3 == 0 ? MPI_ANY_TAG : round % 7; }
    int main(int argc, char **argv) {
        int rank, size, flag;
        long value, sum = 0;
        MPI_Status status;
        MPI_Message message;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        for (int round = 0; round < ROUNDS; round++) {
            if (rank != 0) {
                value = rank * 1000 + round;
                MPI_Send(&value, 1, MPI_LONG, 0, round % 7, MPI_COMM_WORLD);
                MPI_Recv(&value, 1, MPI_LONG, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                sum = sum * 3 + value;
                continue;
            }
            for (int count = 1; count < size; count++) {
                switch (round % 4) {
                case 0:
                    do
                        MPI_Iprobe(MPI_ANY_SOURCE, wanted(round), MPI_COMM_WORLD, &flag, &status);
                    while (!flag);
                    MPI_Recv(&value, 1, MPI_LONG, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
                    break;
                case 1:
                    do
                        MPI_Improbe(MPI_ANY_SOURCE, wanted(round), MPI_COMM_WORLD, &flag, &message, &status);
                    while (!flag);
                    MPI_Mrecv(&value, 1, MPI_LONG, &message, &status);
                    break;
                case 2:
                    do
                        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
                    while (!flag);
                    MPI_Mprobe(MPI_ANY_SOURCE, wanted(round), MPI_COMM_WORLD, &message, &status);
                    MPI_Mrecv(&value, 1, MPI_LONG, &message, &status);
                    break;
                default:
                    /* Two probes in turn, of which the first finds nothing. */
                    do {
                        MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, &status);
                        if (!flag)
                            MPI_Iprobe(MPI_ANY_SOURCE, wanted(round), MPI_COMM_WORLD, &flag, &status);
                    } while (!flag);
                    MPI_Recv(&value, 1, MPI_LONG, MPI_ANY_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
                }
                sum = sum * 3 + value;
            }
            for (int other = 1; other < size; other++)
                MPI_Send(&sum, 1, MPI_LONG, other, 99, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("probed\n");
        MPI_Finalize();
        return 0;
    }"#;

#[test]
fn what_probes_for_any_source_find_is_agreed() {
    let (_directory, program) = compile_source(PROBING);
    for determinism in ["sends", "full"] {
        for transport in ["shm", "tcp"] {
            for degree in 1..=3 {
                let job = Job::new(4, &program).degree(degree).options(&["--determinism", determinism]);
                let ended = job.transport(transport).limit(Duration::from_secs(60)).run();
                let _ = ended.ended_well().printed("probed\n");
            }
        }
    }
}

/// The next leader goes on from the findings of the last one.
#[test]
fn probes_outlive_their_leader() {
    let (_directory, program) = compile_source(PROBING);
    for send in [2, 7, 31, 90] {
        let job = Job::new(4, &program).degree(2).options(&["--determinism", "sends"]);
        let ended = job.inject(&format!("kill:0.0@#{send}")).limit(Duration::from_secs(60)).run();
        let _ = ended.ended_well().printed("probed\n");
    }
}

/// Programs that other tests run with everything agreed on. `polling` is left out: its path depends on polls that find
/// nothing.
#[test]
fn programs_that_look_at_no_clock_print_the_same() {
    for name in ["master_worker", "cancel", "ring", "heat"] {
        let program = Program::named(name).expect("a test program");
        let out = Job::of(&program).run().ended_well().out;
        for degree in [2, 3] {
            let job = Job::of(&program).degree(degree).options(&["--determinism", "sends"]);
            let _ = job.limit(Duration::from_secs(120)).run().ended_well().printed(&out);
        }
    }
}
