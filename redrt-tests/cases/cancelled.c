// Threads that are cancelled where they wait, one at a time: in a condition variable, a semaphore, and a read. The first
// kind gives its mutex back as it ends. Usage: cancelled ROUNDS
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int pipes[2], is_there;
static uint64_t ended;

static void give_back(void *unused) {
    (void)unused;
    ended++;
    pthread_mutex_unlock(&lock);
}

static void come(void) {
    pthread_mutex_lock(&lock);
    is_there = 1;
    pthread_mutex_unlock(&lock);
}

static void *wait_in(void *way) {
    char letter;
    switch ((intptr_t)way) {
    case 0:
        pthread_mutex_lock(&lock);
        is_there = 1;
        pthread_cleanup_push(give_back, NULL);
        for (;;) pthread_cond_wait(&condition, &lock);
        pthread_cleanup_pop(0);
        break;
    case 1:
        come();
        sem_wait(&semaphore);
        break;
    default:
        come();
        if (read(pipes[0], &letter, 1) < 0) perror("read");
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided, rank;
    uint64_t sum = 0, all;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (sem_init(&semaphore, 0, 0) || pipe(pipes)) return 2;
    for (int round = 0; round < atoi(argv[1]); round++) {
        pthread_t thread;
        void *result;
        is_there = 0;
        pthread_create(&thread, NULL, wait_in, (void *)(intptr_t)(round % 3));
        for (int there = 0; !there; sched_yield()) {
            pthread_mutex_lock(&lock);
            there = is_there;
            pthread_mutex_unlock(&lock);
        }
        pthread_cancel(thread);
        pthread_join(thread, &result);
        sum = sum * 7 + ended + (result == PTHREAD_CANCELED);
    }
    MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    if (rank == 0) printf(ended == (uint64_t)(atoi(argv[1]) + 2) / 3 ? "all were cancelled\n" : "WRONG\n");
    MPI_Finalize();
    return 0;
}
