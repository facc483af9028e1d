/* Threads whose paths depend on their order at locks of all kinds but plain mutexes. Takes rounds, and the sum of
   the parts to run. Results of each thread go into messages. Race-free: shared data is accessed with its lock only. */
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

enum { THREADS = 3 };

static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_mutex_t robust, inherited;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t tokens;
static mtx_t plain;
static cnd_t changed;
static once_flag flag = ONCE_FLAG_INIT;
static uint64_t value = 1, counted = 1, held = 1, kept = 1, turn;
static _Thread_local uint64_t me;
static uint64_t first, also_first;
static int rounds, parts;

static uint64_t mix(uint64_t hash, uint64_t with) { return (hash ^ with) * 1099511628211u; }
static void is_first(void) { first = me; }
static void is_also_first(void) { also_first = me; }

static struct timespec soon(void) {
    struct timespec until;
    timespec_get(&until, TIME_UTC);
    until.tv_nsec += 100 * 1000;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    return until;
}

static uint64_t read_and_write(uint64_t hash, int round) {
    struct timespec until = soon();
    if ((round + me) % 3) {
        int error = round % 2 ? pthread_rwlock_rdlock(&shared) : pthread_rwlock_timedrdlock(&shared, &until);
        if (error) return mix(hash, 7);
        hash = mix(hash, value);
    } else {
        while (pthread_rwlock_trywrlock(&shared)) hash = mix(hash, 11);
        value = mix(value, me);
    }
    pthread_rwlock_unlock(&shared);
    return hash;
}

static uint64_t take_tokens(uint64_t hash, int round) {
    struct timespec until = soon();
    if (round % 2) {
        if (sem_trywait(&tokens)) return mix(hash, 13);
    } else if (sem_timedwait(&tokens, &until))
        return mix(hash, errno);
    pthread_spin_lock(&spin);
    counted = mix(counted, me), hash = mix(hash, counted);
    pthread_spin_unlock(&spin);
    sem_post(&tokens);
    return hash;
}

static uint64_t hold_others(uint64_t hash) {
    pthread_mutex_lock(&robust);
    held = mix(held, me);
    pthread_mutex_lock(&inherited);
    hash = mix(hash, held);
    pthread_mutex_unlock(&inherited);
    pthread_mutex_unlock(&robust);
    return hash;
}

/* Waits until another thread has been here, or gives up. */
static uint64_t take_turns(uint64_t hash) {
    struct timespec until = soon();
    mtx_lock(&plain);
    uint64_t seen = turn;
    kept = mix(kept, me);
    while (turn == seen)
        if (cnd_timedwait(&changed, &plain, &until) == thrd_timedout) {
            hash = mix(hash, 17), turn++;
            break;
        }
    turn++;
    cnd_signal(&changed);
    hash = mix(hash, kept);
    mtx_unlock(&plain);
    return hash;
}

static int run(void *argument) {
    uint64_t *result = argument, hash = me = (uint64_t)(*result);
    pthread_once(&once, is_first);
    call_once(&flag, is_also_first);
    hash = mix(mix(hash, first), also_first);
    for (int round = 0; round < rounds; round++) {
        if (parts & 1) hash = read_and_write(hash, round);
        if (parts & 2) hash = take_tokens(hash, round);
        if (parts & 4) hash = hold_others(hash);
        if (parts & 8) hash = take_turns(hash);
        if ((parts & 16) && pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) hash = mix(hash, 19);
    }
    *result = hash;
    return 3;
}

static void *run_posix(void *argument) {
    run(argument);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, rank, size, left;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rounds = argc > 1 ? atoi(argv[1]) : 20;
    parts = argc > 2 ? atoi(argv[2]) : 31;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_STALLED);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherited, &attributes);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    pthread_barrier_init(&barrier, NULL, THREADS);
    sem_init(&tokens, 0, 1);
    mtx_init(&plain, mtx_timed);
    cnd_init(&changed);
    uint64_t results[THREADS] = {1, 2, 3}, hash = 1, all = 0;
    thrd_t c11;
    pthread_t posix[THREADS - 1];
    if (thrd_create(&c11, run, &results[0]) != thrd_success) return 2;
    for (int i = 1; i < THREADS; i++) pthread_create(&posix[i - 1], NULL, run_posix, &results[i]);
    thrd_join(c11, &left);
    for (int i = 1; i < THREADS; i++) pthread_join(posix[i - 1], NULL);
    for (int i = 0; i < THREADS; i++) hash = mix(hash, results[i]);
    MPI_Sendrecv_replace(&hash, 1, MPI_UINT64_T, (rank + 1) % size, 0, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    MPI_Allreduce(&hash, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && left == 3) printf("threads agree\n");
    fprintf(stderr, "rank %d: %llx, no misses\n", rank, (unsigned long long)all);
    MPI_Finalize();
}
