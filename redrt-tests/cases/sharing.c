/* Shared memory comes, is cut and goes while the job runs: sharing ROUNDS [RESTLESS]. Each rank prints a sum at the
   end. In place of each pause it may make and remove shared memory and pipes RESTLESS times. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KEPT_BYTES = 32768, BYTES = 65536 };

static unsigned char *map(size_t bytes, int flags, int fd)
{
    void *there = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    if (there == MAP_FAILED) {
        perror("mmap");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return there;
}

/* Shared memory and pipes that one look at the process finds are gone a moment later. */
static long come_and_go(int times, int pause_us)
{
    long sum = 0;
    if (times == 0)
        usleep(pause_us);
    for (int time = 0; time < times; time++) {
        int ends[2], fd = memfd_create("passing", 0);
        if (fd < 0 || ftruncate(fd, KEPT_BYTES) != 0 || pipe(ends) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
        unsigned char *named = map(KEPT_BYTES, 0, fd), *nameless = map(KEPT_BYTES, MAP_ANONYMOUS, -1);
        close(fd);
        memset(named, time, KEPT_BYTES);
        memset(nameless, time + 1, KEPT_BYTES);
        sum += named[KEPT_BYTES - 1] + nameless[0];
        munmap(named, KEPT_BYTES);
        munmap(nameless, KEPT_BYTES);
        close(ends[0]);
        close(ends[1]);
    }
    return sum;
}

int main(int argc, char **argv)
{
    int rank, all = 0;
    long sum = 0;
    int rounds = argc > 1 ? atoi(argv[1]) : 0, restless = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = (1 + round % 7) * BYTES;
        int fd = memfd_create("shared", 0);
        if (fd < 0 || ftruncate(fd, bytes) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
        unsigned char *named = map(bytes, 0, fd), *nameless = map(bytes, MAP_ANONYMOUS, -1);
        memset(named, round + 1, bytes);
        memset(nameless, round + 2, bytes);
        int mine = rank + round;
        for (int time = 0; time < 20; time++)
            MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        sum += come_and_go(restless, 3000);
        if (ftruncate(fd, KEPT_BYTES) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
        sum += come_and_go(restless, 2000);
        MPI_Barrier(MPI_COMM_WORLD);
        for (size_t at = 0; at < KEPT_BYTES; at++)
            sum += named[at];
        for (size_t at = 0; at < bytes; at++)
            sum += nameless[at];
        sum += all;
        munmap(named, bytes);
        munmap(nameless, bytes);
        close(fd);
        if (round % 2)
            sum += come_and_go(restless, 2000);
    }
    printf("rank %d: %ld\n", rank, sum);
    MPI_Finalize();
    return 0;
}
