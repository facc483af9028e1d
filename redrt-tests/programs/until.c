/* Computes until a file is there: until FILE. Rank 0 waits for the file; the others exchange numbers in a ring until
   it tells the first of them. At the end each prints whether all its messages were right. Replicas see the file at
   different times, which makes no difference to their path: they only wait for it. UNTIL_MIB in the environment is
   the size of the processes, and each step writes to some of that memory. UNTIL_PAUSE is the time of each step
   outside MPI in microseconds, 500 by default: tests wait for half a minute beside such a job, and others run then. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 512

int main(int argc, char **argv) {
    int rank, size, stop = 0, wrong = 0;
    long out[COUNT], in[COUNT];
    MPI_Comm workers;
    const char *mebibytes = getenv("UNTIL_MIB");
    const char *pause = getenv("UNTIL_PAUSE");
    size_t ballast_size = mebibytes ? (size_t)atol(mebibytes) << 20 : 0;
    unsigned char *ballast = malloc(ballast_size + 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size < 3) {
        fprintf(stderr, "usage: until FILE, with 3 ranks at least\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (size_t i = 0; i < ballast_size; i++)
        ballast[i] = (unsigned char)(i >> 12 ^ i);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &workers);
    if (rank == 0) {
        while (access(argv[1], F_OK) != 0)
            usleep(2000);
        MPI_Send(&stop, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
    }
    for (long step = 0; rank != 0 && !stop; step++) {
        usleep((useconds_t)(pause ? atol(pause) : 500));
        int right = rank % (size - 1) + 1, left = (rank + size - 3) % (size - 1) + 1;
        for (int i = 0; i < COUNT; i++)
            out[i] = step * 1000 + rank * 7 + i;
        MPI_Sendrecv(out, COUNT, MPI_LONG, right, 1, in, COUNT, MPI_LONG, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (ballast_size)
            ballast[(size_t)step * 4096 % ballast_size] += 1;
        for (int i = 0; i < COUNT; i++)
            wrong |= in[i] != step * 1000 + left * 7 + i;
        if (rank == 1 && step == 10) {
            printf("computing\n");
            fflush(stdout);
        }
        if (rank == 1)
            MPI_Iprobe(0, 9, MPI_COMM_WORLD, &stop, MPI_STATUS_IGNORE);
        MPI_Bcast(&stop, 1, MPI_INT, 0, workers);
    }
    if (rank == 1)
        MPI_Recv(&stop, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("rank %d: %s\n", rank, wrong ? "wrong" : "right");
    MPI_Finalize();
    return 0;
}
