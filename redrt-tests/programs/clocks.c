/* Messages made of clocks and random bytes, which differ between processes: replicas that read them for themselves
 * would be reported. Also: no clock goes back, in any replica. With `anew` processor time may: it begins anew in a
 * process that goes on from a checkpoint without replicas. Usage: clocks [ROUNDS [anew]] */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>

struct readings {
    int64_t wall, monotonic, of_day, seconds, used, ticks;
    double wtime;
    unsigned char random[24], device[24];
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void read_clocks_and_bytes(struct readings *it)
{
    struct timeval of_day;
    memset(it, 0, sizeof *it);
    it->wall = clock_ns(CLOCK_REALTIME);
    it->monotonic = clock_ns(CLOCK_MONOTONIC);
    gettimeofday(&of_day, NULL);
    it->of_day = of_day.tv_sec * 1000000ll + of_day.tv_usec;
    it->seconds = time(NULL);
    struct rusage usage;
    struct tms times_of;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    it->used = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000ll + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    it->ticks = times(&times_of);
    it->used += times_of.tms_utime + times_of.tms_stime + clock();
    CHECK(getrandom(it->random, sizeof it->random, 0) == sizeof it->random);
    int device = open("/dev/urandom", O_RDONLY);
    CHECK(read(device, it->device, sizeof it->device) == sizeof it->device);
    close(device);
}

static void read_all(struct readings *it)
{
    read_clocks_and_bytes(it);
    it->wtime = MPI_Wtime();
}

/* A thread that never calls MPI. */
static void *read_in_thread(void *into)
{
    read_clocks_and_bytes(into);
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    struct readings mine, theirs, before;
    memset(&before, 0, sizeof before);
    int64_t early = clock_ns(CLOCK_MONOTONIC);
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < rounds; round++) {
        read_all(&mine);
        CHECK(mine.monotonic >= early && mine.monotonic >= before.monotonic && mine.wtime >= before.wtime);
        CHECK((argc > 2 || mine.used >= before.used) && mine.ticks >= before.ticks);
        CHECK(mine.wall >= before.wall && mine.of_day >= before.of_day && mine.seconds >= before.seconds);
        CHECK(memcmp(mine.random, before.random, sizeof mine.random) != 0);
        before = mine;
        MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, (rank + 1) % size, 1, &theirs, sizeof theirs, MPI_BYTE,
                     (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* Waits for the next half millisecond without an MPI call: readings in a loop, as many as it takes. */
        if (round % 10 == 0) {
            int64_t end = clock_ns(CLOCK_MONOTONIC) + 500000, count = 0, sum = 0;
            while (clock_ns(CLOCK_MONOTONIC) < end)
                count++;
            MPI_Allreduce(&count, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            CHECK(sum >= count);
            pthread_t thread;
            pthread_create(&thread, NULL, read_in_thread, &mine);
            pthread_join(thread, NULL);
            MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, (rank + 1) % size, 2, &theirs, sizeof theirs, MPI_BYTE,
                         (rank + size - 1) % size, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    MPI_Finalize();
    CHECK(clock_ns(CLOCK_MONOTONIC) >= before.monotonic);
    if (rank == 0)
        puts("clocks and random bytes agree");
    return 0;
}
