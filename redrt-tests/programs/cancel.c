/* Receives that are cancelled while their messages come: each is either cancelled in all replicas of a rank or
 * completed in all, and the message of a cancelled one goes to the next receive. Named sources and wildcards.
 *
 *   cancel [ROUNDS] */
#include "check.h"

/* Tags of rounds are less than these. */
enum { NEVER = 1000000, LATER = 2000000 };

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 60, cancelled_count = 0;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    uint64_t state = (uint64_t)rank + 1, hash = HASH_START;
    for (int round = 0; round < rounds; round++) {
        uint64_t out = next_random(&state), in = 0, other = 0;
        int cancelled, source = round % 3 ? from : MPI_ANY_SOURCE;
        MPI_Request receive, later, never, send;
        MPI_Status status;
        /* No rank sends this: the cancel succeeds. */
        MPI_Irecv(&other, 1, MPI_UINT64_T, from, NEVER, MPI_COMM_WORLD, &never);
        MPI_Irecv(&in, 1, MPI_UINT64_T, source, round, MPI_COMM_WORLD, &receive);
        MPI_Irecv(&other, 1, MPI_UINT64_T, from, LATER + round, MPI_COMM_WORLD, &later);
        MPI_Isend(&out, 1, MPI_UINT64_T, to, round, MPI_COMM_WORLD, &send);
        MPI_Send(&out, 1, MPI_UINT64_T, to, LATER + round, MPI_COMM_WORLD);
        /* Sometimes the message has arrived for certain, sometimes it is in flight. */
        if (round % 4 == 0)
            MPI_Wait(&later, MPI_STATUS_IGNORE);
        MPI_Cancel(&receive);
        MPI_Wait(&receive, &status);
        MPI_Test_cancelled(&status, &cancelled);
        cancelled_count += cancelled;
        if (cancelled)
            MPI_Recv(&in, 1, MPI_UINT64_T, source, round, MPI_COMM_WORLD, &status);
        CHECK(status.MPI_SOURCE == from && status.MPI_TAG == round);
        MPI_Cancel(&never);
        MPI_Wait(&never, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled);
        MPI_Wait(&later, MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        CHECK(in == other);
        hash = hash_bytes(hash, &in, sizeof in);
        /* Replicas with different outcomes are found by their messages. */
        MPI_Allreduce(MPI_IN_PLACE, &cancelled_count, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    uint64_t sum = 0;
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
