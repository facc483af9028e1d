/* Threads that send and receive on one communicator without a lock: the receiver of each message depends on their
   order. Takes rounds and threads. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rounds = 100, threads = 3, rank;
static uint64_t hashes[16];

static void mix(uint64_t *hash, uint64_t value) { *hash = (*hash ^ value) * 1099511628211u; }

static void *talk(void *number) {
    uint64_t me = (uint64_t)(intptr_t)number, *hash = &hashes[me];
    for (int round = 0; round < rounds; round++) {
        uint64_t said = (uint64_t)rank << 48 | me << 40 | (uint64_t)round, heard = 0;
        MPI_Request request;
        MPI_Status status;
        MPI_Message message;
        int is_there = 0;
        MPI_Isend(&said, 1, MPI_UINT64_T, 1 - rank, 0, MPI_COMM_WORLD, &request);
        switch ((round + (int)me) % 5) {
        case 0: MPI_Recv(&heard, 1, MPI_UINT64_T, 1 - rank, 0, MPI_COMM_WORLD, &status); break;
        case 1: MPI_Recv(&heard, 1, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status); break;
        case 2:
            MPI_Mprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &message, &status);
            MPI_Mrecv(&heard, 1, MPI_UINT64_T, &message, &status);
            break;
        case 3:
            while (!is_there) MPI_Improbe(1 - rank, 0, MPI_COMM_WORLD, &is_there, &message, &status);
            MPI_Mrecv(&heard, 1, MPI_UINT64_T, &message, &status);
            break;
        default:
            MPI_Probe(1 - rank, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Recv(&heard, 1, MPI_UINT64_T, 1 - rank, 0, MPI_COMM_WORLD, &status);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        mix(hash, heard);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1) rounds = atoi(argv[1]);
    if (argc > 2) threads = atoi(argv[2]);
    pthread_t workers[16];
    for (int i = 1; i < threads; i++) pthread_create(&workers[i], NULL, talk, (void *)(intptr_t)i);
    talk(NULL);
    for (int i = 1; i < threads; i++) pthread_join(workers[i], NULL);
    uint64_t hash = 0;
    for (int i = 0; i < threads; i++) mix(&hash, hashes[i]);
    fprintf(stderr, "rank %d: %016llx, no misses\n", rank, (unsigned long long)hash);
    MPI_Sendrecv_replace(&hash, 1, MPI_UINT64_T, 1 - rank, 1, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("threads agree\n");
    MPI_Finalize();
    return 0;
}
