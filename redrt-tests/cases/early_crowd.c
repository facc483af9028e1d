/* Many threads that are there before MPI_Init, and are on their way when it is called: some have been woken from a
 * barrier and have not run yet, some take a lock within another one, some wake others without a lock. After it they
 * take their turns. Usage: early_crowd COUNT. */
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT_MAX = 4000, ROUNDS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, posted = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t items;
static int has_begun, is_over;
static unsigned added, taken, letters, mixed;

/* Adds up, until the last round was begun, and waits. */
static void *work(void *argument)
{
    unsigned me = (unsigned)(size_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        pthread_mutex_lock(&lock);
        pthread_mutex_lock(&inner);
        added += me;
        pthread_mutex_unlock(&inner);
        letters++;
        pthread_mutex_unlock(&lock);
        pthread_cond_signal(&posted);
        sem_post(&items);
    }
    pthread_mutex_lock(&lock);
    while (!has_begun)
        pthread_cond_wait(&begun, &lock);
    mixed = mixed * 31 + me;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&inner);
    added = added * 33 + me;
    pthread_mutex_unlock(&inner);
    return NULL;
}

/* Takes what the others post by a semaphore. */
static void *take(void *unused)
{
    for (;;) {
        while (sem_wait(&items) != 0)
            ;
        pthread_mutex_lock(&inner);
        taken++;
        int ends = is_over;
        pthread_mutex_unlock(&inner);
        if (ends)
            return unused;
    }
}

/* Takes what they post by a condition variable. */
static void *open_letters(void *unused)
{
    pthread_mutex_lock(&lock);
    while (!has_begun || letters > 0) {
        if (letters == 0)
            pthread_cond_wait(&posted, &lock);
        else
            mixed += 7, letters--;
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Sleeps and counts all the time. */
static void *tick(void *ticks)
{
    for (int ends = 0; !ends;) {
        usleep(500);
        pthread_mutex_lock(&inner);
        ++*(unsigned *)ticks;
        ends = is_over;
        pthread_mutex_unlock(&inner);
    }
    return NULL;
}

static void start(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    if (pthread_create(thread, attributes, run, argument) != 0) {
        fprintf(stderr, "there is no further thread\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int count = atoi(argv[1]), rank, size;
    static pthread_t threads[COUNT_MAX], others[3];
    static unsigned ticks;
    unsigned sums[4], got[4];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
    sem_init(&items, 0, 0);
    start(&others[0], NULL, take, NULL);
    start(&others[1], NULL, open_letters, NULL);
    start(&others[2], NULL, tick, &ticks);
    for (int at = 0; at < count; at++)
        start(&threads[at], &small, work, (void *)(size_t)(at + 1));
    for (int round = 0; round < ROUNDS; round++)
        pthread_barrier_wait(&barrier);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    pthread_mutex_lock(&inner);
    sums[0] = added, sums[1] = taken, sums[2] = ticks;
    pthread_mutex_unlock(&inner);
    pthread_mutex_lock(&lock);
    sums[3] = letters;
    has_begun = 1;
    pthread_cond_broadcast(&begun);
    pthread_cond_broadcast(&posted);
    pthread_mutex_unlock(&lock);
    for (int at = 0; at < count; at++)
        pthread_join(threads[at], NULL);
    pthread_mutex_lock(&inner);
    is_over = 1;
    pthread_mutex_unlock(&inner);
    sem_post(&items);
    for (int at = 0; at < 3; at++)
        pthread_join(others[at], NULL);
    unsigned all = sums[0] + sums[1] * 3 + sums[2] * 5 + sums[3] * 7 + added * 11 + mixed * 13 + ticks * 17;
    MPI_Sendrecv(sums, 4, MPI_UNSIGNED, (rank + 1) % size, 1, got, 4, MPI_UNSIGNED, (rank + size - 1) % size, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv_replace(&all, 1, MPI_UNSIGNED, (rank + 1) % size, 2, (rank + size - 1) % size, 2, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    fprintf(stderr, "rank %d: sum %u of %u %u %u %u without misses\n", rank, all, sums[0], sums[1], sums[2], sums[3]);
    if (rank == 0)
        printf("threads agree\n");
    MPI_Finalize();
    return 0;
}
