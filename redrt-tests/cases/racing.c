/* A thread of rank 1 counts without a lock, and another one sends the counter meanwhile. Both have taken a lock before. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long counter;
static volatile int is_over;
static int begun;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void begin(void)
{
    pthread_mutex_lock(&lock);
    begun++;
    pthread_mutex_unlock(&lock);
}

static void *count(void *unused)
{
    begin();
    while (!is_over)
        counter++;
    return unused;
}

__attribute__((noinline)) static void send_counter(void)
{
    unsigned long seen = counter;
    MPI_Send(&seen, 1, MPI_UNSIGNED_LONG, 0, 7, MPI_COMM_WORLD);
    /* Not a tail call, which would leave no frame. */
    is_over = 1;
}

__attribute__((noinline)) static void *work(void *unused)
{
    usleep(20000);
    begin();
    send_counter();
    is_over = 1;
    return unused;
}

int main(int argc, char **argv)
{
    int provided, rank;
    unsigned long got;
    pthread_t threads[2];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        pthread_create(&threads[0], NULL, count, NULL);
        pthread_create(&threads[1], NULL, work, NULL);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
    } else if (rank == 0) {
        MPI_Recv(&got, 1, MPI_UNSIGNED_LONG, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
