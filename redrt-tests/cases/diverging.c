/* One replica of each rank reads clocks that the others do not read, which no program may do: the job must neither
 * hang nor go on in silence. It is the replica that makes the file first (with --files=all).
 *
 *   diverging DIRECTORY [thread|lock|loop|end] */
#include "../programs/check.h"
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *read_clocks(void *unused)
{
    struct timespec now;
    (void)unused;
    for (int i = 0; i < 3; i++)
        clock_gettime(CLOCK_MONOTONIC, &now);
    return NULL;
}

/* A thread that reads clocks before it ends, more often in one replica: as if it noticed later that it should end. */
static void *read_until_the_end(void *is_first)
{
    read_clocks(NULL);
    return is_first ? read_clocks(NULL) : NULL;
}

static void end_later(void *is_first)
{
    pthread_t thread;
    pthread_create(&thread, NULL, read_until_the_end, is_first);
    pthread_join(thread, NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t locked, answered;

/* A thread that has called MPI. In one replica it reads a clock while it holds a lock that the main thread needs; in
 * the others it waits for an answer that depends on that replica's main thread. */
static void *read_locked(void *is_first)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (is_first) {
        pthread_mutex_lock(&mutex);
        sem_post(&locked);
        read_clocks(NULL);
        pthread_mutex_unlock(&mutex);
    } else {
        sem_post(&locked);
        sem_wait(&answered);
    }
    return NULL;
}

static void exchange_locked(int rank, void *is_first)
{
    int value = 1;
    if (rank == 0) {
        pthread_t thread;
        sem_init(&locked, 0, 0);
        sem_init(&answered, 0, 0);
        pthread_create(&thread, NULL, read_locked, is_first);
        sem_wait(&locked);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sem_post(&answered);
        pthread_join(thread, NULL);
    } else if (rank == 1) {
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
}

static sem_t left, ends;

/* A thread that reads a clock in a loop, and in one replica leaves the loop much earlier. Then it goes on to other
 * work, and waits for the main thread. */
static void *read_in_a_loop(void *is_first)
{
    int rank;
    for (int i = 0; i < (is_first ? 1 : 1000); i++)
        read_clocks(NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    sem_post(&left);
    sem_wait(&ends);
    return NULL;
}

static void leave_loop(void *is_first)
{
    pthread_t thread;
    sem_init(&left, 0, 0);
    sem_init(&ends, 0, 0);
    pthread_create(&thread, NULL, read_in_a_loop, is_first);
    sem_wait(&left);
    MPI_Barrier(MPI_COMM_WORLD);
    sem_post(&ends);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    int rank, size, flag, value = 7;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &flag);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[300];
    for (int round = 0; round < 4; round++) {
        snprintf(name, sizeof name, "%s/%d.%d", argv[1], rank, round);
        int is_first = open(name, O_CREAT | O_EXCL, 0600) >= 0;
        if (argc > 2 && strcmp(argv[2], "lock") == 0)
            exchange_locked(rank, is_first ? argv : NULL);
        else if (argc > 2 && strcmp(argv[2], "loop") == 0)
            leave_loop(is_first ? argv : NULL);
        else if (argc > 2 && strcmp(argv[2], "end") == 0)
            end_later(is_first ? argv : NULL);
        else if (is_first) {
            pthread_t thread;
            if (argc > 2) {
                pthread_create(&thread, NULL, read_clocks, NULL);
                pthread_join(thread, NULL);
            } else
                read_clocks(NULL);
        }
        MPI_Request request;
        MPI_Irecv(&value, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &request);
        MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
        do
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        while (!flag);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    if (rank == 0)
        puts("done");
    return 0;
}
