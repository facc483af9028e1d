/* A thread of rank 1 takes a lock 3 or 27 times, by a clock that replicas do not agree on; the main thread takes it 20
   times meanwhile. */
#include <mpi.h>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int taken;

__attribute__((noinline)) static void take(void)
{
    pthread_mutex_lock(&lock);
    taken++;
    pthread_mutex_unlock(&lock);
    usleep(1000);
}

__attribute__((noinline)) static void *work(void *unused)
{
    int count = (__builtin_ia32_rdtsc() >> 4) % 2 ? 3 : 27;
    for (int i = 0; i < count; i++)
        take();
    return unused;
}

int main(int argc, char **argv)
{
    int provided, rank;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        pthread_create(&thread, NULL, work, NULL);
        for (int i = 0; i < 20; i++)
            take();
        pthread_join(thread, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
