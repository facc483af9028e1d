/* Threads that are there before MPI_Init: a pool that has worked already, threads that wait for a semaphore and for a
 * pipe, and one that counts all the time. What they do after MPI_Init depends on the order of locks, and is sent. */
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, EARLY = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int left, finished, is_over, is_mixing, ticks, ticks_too;
static unsigned sum, mixed;
static sem_t wanted, served;
static int ends[2], answers[2];

static void *work(void *argument)
{
    unsigned me = (unsigned)(size_t)argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (left == 0 && !is_over)
            pthread_cond_wait(&given, &lock);
        if (left == 0)
            break;
        unsigned item = (unsigned)left--;
        /* Before MPI_Init the order may differ: items add up. */
        if (is_mixing)
            mixed = mixed * 31 + item * 7 + me;
        sum += item;
        pthread_mutex_unlock(&lock);
        for (volatile unsigned i = 0; i < 500 * me; i++)
            ;
        pthread_mutex_lock(&lock);
        finished++;
        pthread_cond_signal(&done);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *serve(void *argument)
{
    (void)argument;
    for (;;) {
        while (sem_wait(&wanted) != 0)
            ;
        pthread_mutex_lock(&lock);
        mixed = mixed * 33 + sum;
        int ends_now = is_over;
        pthread_mutex_unlock(&lock);
        sem_post(&served);
        if (ends_now)
            return NULL;
    }
}

static void *answer(void *argument)
{
    (void)argument;
    char byte;
    while (read(ends[0], &byte, 1) == 1) {
        pthread_mutex_lock(&lock);
        mixed = mixed * 35 + (unsigned)byte;
        pthread_mutex_unlock(&lock);
        if (write(answers[1], &byte, 1) != 1)
            abort();
    }
    return NULL;
}

static void *tick(void *argument)
{
    (void)argument;
    for (int ends_now = 0; !ends_now;) {
        struct timespec now;
        usleep(700);
        clock_gettime(CLOCK_MONOTONIC, &now);
        pthread_mutex_lock(&other);
        ticks++;
        pthread_mutex_unlock(&other);
        pthread_mutex_lock(&lock);
        ticks_too++;
        ends_now = is_over;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void give(int count)
{
    pthread_mutex_lock(&lock);
    left += count;
    finished -= count;
    pthread_cond_broadcast(&given);
    while (finished < 0)
        pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 40, rank, size;
    pthread_t threads[WORKERS + 3];
    sem_init(&wanted, 0, 0);
    sem_init(&served, 0, 0);
    if (pipe(ends) != 0 || pipe(answers) != 0)
        return 2;
    for (size_t me = 0; me < WORKERS; me++)
        pthread_create(&threads[me], NULL, work, (void *)(me + 1));
    pthread_create(&threads[WORKERS], NULL, serve, NULL);
    pthread_create(&threads[WORKERS + 1], NULL, answer, NULL);
    pthread_create(&threads[WORKERS + 2], NULL, tick, NULL);
    give(EARLY);
    usleep(3000);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unsigned total = 0, got;
    pthread_mutex_lock(&lock);
    is_mixing = 1;
    pthread_mutex_unlock(&lock);
    for (int round = 0; round < rounds; round++) {
        give(1 + round % 6);
        sem_post(&wanted);
        while (sem_wait(&served) != 0)
            ;
        char byte = (char)round;
        if (write(ends[1], &byte, 1) != 1 || read(answers[0], &byte, 1) != 1)
            return 2;
        pthread_mutex_lock(&other);
        unsigned value = (unsigned)ticks;
        pthread_mutex_unlock(&other);
        pthread_mutex_lock(&lock);
        value = value * 5 + mixed + (unsigned)ticks_too;
        pthread_mutex_unlock(&lock);
        MPI_Sendrecv(&value, 1, MPI_UNSIGNED, (rank + 1) % size, 1, &got, 1, MPI_UNSIGNED, (rank + size - 1) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        total = total * 33 + got;
    }
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
    sem_post(&wanted);
    close(ends[1]);
    for (int at = 0; at < WORKERS + 3; at++)
        pthread_join(threads[at], NULL);
    fprintf(stderr, "rank %d: sum %u without misses\n", rank, total);
    if (rank == 0)
        printf("threads agree\n");
    MPI_Finalize();
    return 0;
}
