/* Threads that take locks: the work of each depends on their order, and goes into messages. Takes rounds, threads,
   and the round at which the job is saved. Race-free: shared data is accessed with its mutex only. */
#include <errno.h>
#include <mpi.h>
#include "redrt.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PLACES = 64, PIECES = 50 };

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER, sum_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER, room = PTHREAD_COND_INITIALIZER;
static int queue[PLACES], first, count, is_over;
static uint64_t hash = 1469598103934665603u, misses;

static void mix(uint64_t value) { hash = (hash ^ value) * 1099511628211u; }

static void compute(int turns) {
    for (volatile int i = 0; i < turns; i++)
        ;
}

/* Takes pieces until there are no more, and gives up waiting now and then. */
static void *work(void *number) {
    uint64_t me = (uint64_t)(intptr_t)number, timeouts = 0;
    for (;;) {
        pthread_mutex_lock(&queue_lock);
        while (count == 0 && !is_over) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 200 * 1000;
            until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
            if (pthread_cond_timedwait(&there, &queue_lock, &until) == ETIMEDOUT) timeouts++;
        }
        if (count == 0) {
            pthread_mutex_unlock(&queue_lock);
            break;
        }
        int piece = queue[first];
        first = (first + 1) % PLACES, count--;
        pthread_cond_signal(&room);
        pthread_mutex_unlock(&queue_lock);
        compute(1000 * (piece % 7));
        while (pthread_mutex_trylock(&busy) == EBUSY) {
            pthread_mutex_lock(&sum_lock);
            misses++, mix(5);
            pthread_mutex_unlock(&sum_lock);
        }
        compute(500);
        pthread_mutex_unlock(&busy);
        pthread_mutex_lock(&sum_lock);
        mix((uint64_t)piece * 16 + me + (timeouts << 32));
        pthread_mutex_unlock(&sum_lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 20, threads = argc > 2 ? atoi(argv[2]) : 4;
    pthread_t workers[16];
    for (int i = 0; i < threads; i++) pthread_create(&workers[i], NULL, work, (void *)(intptr_t)(i + 1));
    for (int round = 0; round < rounds; round++) {
        for (int piece = 0; piece < PIECES; piece++) {
            pthread_mutex_lock(&queue_lock);
            while (count == PLACES) pthread_cond_wait(&room, &queue_lock);
            queue[(first + count++) % PLACES] = piece;
            pthread_cond_broadcast(&there);
            pthread_mutex_unlock(&queue_lock);
        }
        if (argc > 3 && round == atoi(argv[3])) redrt_checkpoint();
        uint64_t said, heard;
        pthread_mutex_lock(&sum_lock);
        said = hash;
        pthread_mutex_unlock(&sum_lock);
        MPI_Sendrecv(&said, 1, MPI_UINT64_T, (rank + 1) % size, 0, &heard, 1, MPI_UINT64_T, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        pthread_mutex_lock(&sum_lock);
        mix(heard);
        pthread_mutex_unlock(&sum_lock);
    }
    pthread_mutex_lock(&queue_lock);
    is_over = 1;
    pthread_cond_broadcast(&there);
    pthread_mutex_unlock(&queue_lock);
    for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
    uint64_t all = 0;
    MPI_Allreduce(&hash, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("threads agree\n");
    fprintf(stderr, "rank %d: %llx, %llu misses\n", rank, (unsigned long long)all, (unsigned long long)misses);
    MPI_Finalize();
}
