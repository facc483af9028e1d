/* Threads of rank 0 wait in probes for messages that come one at a time, often twice in a row for the same thread: a
   thread does not go on at the arrival of another's message. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 3, ROUNDS = 60, LARGE = 64 << 10, ENDS = 1 };

static void *answer(void *number) {
    int me = (int)(intptr_t)number, count = 0;
    char *buffer = malloc(LARGE);
    for (int round = 0; count != ENDS; round++) {
        MPI_Status status;
        MPI_Message message;
        if (round % 2 == 0) {
            MPI_Probe(1, me, MPI_COMM_WORLD, &status);
            MPI_Recv(buffer, LARGE, MPI_BYTE, 1, me, MPI_COMM_WORLD, &status);
        } else {
            MPI_Mprobe(1, me, MPI_COMM_WORLD, &message, &status);
            MPI_Mrecv(buffer, LARGE, MPI_BYTE, &message, &status);
        }
        MPI_Get_count(&status, MPI_BYTE, &count);
        MPI_Send(&count, 1, MPI_INT, 1, me, MPI_COMM_WORLD);
    }
    free(buffer);
    return NULL;
}

static void ask(int thread, const char *buffer, int count) {
    int answered;
    MPI_Send(buffer, count, MPI_BYTE, 0, thread, MPI_COMM_WORLD);
    MPI_Recv(&answered, 1, MPI_INT, 0, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (answered != count) MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    int provided, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, answer, (void *)(intptr_t)i);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        puts("all probes found their messages");
    } else {
        char *buffer = calloc(1, LARGE);
        uint32_t chance = 1;
        for (int round = 0; round < ROUNDS; round++) {
            chance = chance * 1664525u + 1013904223u;
            ask((int)(chance >> 16) % THREADS, buffer, round % 3 == 0 ? LARGE : 8);
        }
        for (int i = 0; i < THREADS; i++) ask(i, buffer, ENDS);
        free(buffer);
    }
    MPI_Finalize();
    return 0;
}
