/* A pool like that of a runtime, whose file name it has: a thread that looks for work spins first, and takes a mutex
   to wait only if no work has come meanwhile. A thread that
   nobody waits for is woken by a pipe. The numbers of times depend on time, and the results do not. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 2000 };

static pthread_mutex_t lock;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static atomic_int round_number, sleeping, done;
static atomic_long sum, waits;

static void await(int number) {
    for (int i = 0; i < 200; i++) {
        if (atomic_load(&round_number) >= number) return;
        sched_yield();
    }
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&sleeping, 1);
    while (atomic_load(&round_number) < number) {
        atomic_fetch_add(&waits, 1);
        pthread_cond_wait(&changed, &lock);
    }
    atomic_fetch_sub(&sleeping, 1);
    pthread_mutex_unlock(&lock);
}

static int notices[2];

static void notify(void) {
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (write(notices[1], "", 1) != 1) perror("write");
}

static void *listen_to_notices(void *unused) {
    char notice;
    while (read(notices[0], &notice, 1) == 1);
    return unused;
}

static void *work(void *unused) {
    for (int number = 1; number <= ROUNDS; number++) {
        await(number);
        atomic_fetch_add(&sum, number);
        atomic_fetch_add(&done, 1);
    }
    return unused;
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    pthread_mutex_init(&lock, NULL);
    pthread_t threads[THREADS], listener;
    if (pipe(notices) != 0) perror("pipe");
    pthread_create(&listener, NULL, listen_to_notices, NULL);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int number = 1; number <= ROUNDS; number++) {
        atomic_store(&round_number, number);
        if (atomic_load(&sleeping) || number % 100 == 0) notify();
        while (atomic_load(&done) < THREADS * number) {
            if (atomic_load(&sleeping)) notify();
            sched_yield();
        }
        if (number % 100 == 0) {
            long mine = atomic_load(&sum), all;
            MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        }
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    close(notices[1]);
    pthread_join(listener, NULL);
    if (rank == 0) printf("%ld\n", atomic_load(&sum));
    fprintf(stderr, "%ld waits\n", atomic_load(&waits));
    MPI_Finalize();
}
