/* Shared memory comes, is cut and goes while the job runs: sharing ROUNDS. Each rank prints a sum in the end. */
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

int main(int argc, char **argv)
{
    int rank, all = 0;
    long sum = 0;
    int rounds = argc > 1 ? atoi(argv[1]) : 0;
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
        usleep(3000);
        if (ftruncate(fd, KEPT_BYTES) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
        usleep(2000);
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
            usleep(2000);
    }
    printf("rank %d: %ld\n", rank, sum);
    MPI_Finalize();
    return 0;
}
