/* Threads with a communicator each, all communicating at once (MPI_THREAD_MULTIPLE).
 *
 *   threads [THREADS [ROUNDS]] */
#include "check.h"
#include <pthread.h>

enum { THREADS_MAX = 16 };

static int rank, size, rounds;

struct part {
    int number;
    MPI_Comm comm;
    uint64_t hash;
};

static void *run(void *argument)
{
    struct part *part = argument;
    uint64_t state = (uint64_t)(part->number * 1000 + rank), hash = HASH_START;
    for (int round = 0; round < rounds; round++) {
        uint64_t out[64], in[64], sum[2], mine[2] = {next_random(&state) % 1000, (uint64_t)rank};
        for (int i = 0; i < 64; i++)
            out[i] = next_random(&state);
        int right = (rank + 1) % size, left = (rank + size - 1) % size;
        MPI_Request requests[2];
        MPI_Irecv(in, 64, MPI_UINT64_T, MPI_ANY_SOURCE, round, part->comm, &requests[0]);
        MPI_Isend(out, 64, MPI_UINT64_T, right, round, part->comm, &requests[1]);
        MPI_Status statuses[2];
        MPI_Waitall(2, requests, statuses);
        CHECK(statuses[0].MPI_SOURCE == left);
        hash = hash_bytes(hash, in, sizeof in);
        MPI_Allreduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, part->comm);
        CHECK(sum[1] == (uint64_t)size * (uint64_t)(size - 1) / 2);
        hash = hash_bytes(hash, sum, sizeof sum);
    }
    part->hash = hash;
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, count = argc > 1 ? atoi(argv[1]) : 3;
    rounds = argc > 2 ? atoi(argv[2]) : 30;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE && count <= THREADS_MAX);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct part parts[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    for (int i = 0; i < count; i++) {
        parts[i].number = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &parts[i].comm);
    }
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, run, &parts[i]) == 0);
    uint64_t hash = HASH_START;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        hash = hash_bytes(hash, &parts[i].hash, sizeof hash);
        MPI_Comm_free(&parts[i].comm);
    }
    for (int r = 0; r < size; r++) {
        uint64_t theirs = hash;
        MPI_Bcast(&theirs, 1, MPI_UINT64_T, r, MPI_COMM_WORLD);
        if (rank == 0)
            printf("rank %d threads %016llx\n", r, (unsigned long long)theirs);
    }
    MPI_Finalize();
    return 0;
}
