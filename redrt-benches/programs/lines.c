/* Rank 0 prints lines of 64 bytes between the steps of a program that does little else.
 *
 *   lines STEPS EVERY LINES
 *
 * A step is a reduction of 1,024 doubles over all ranks. After each EVERY of them, or never if that is 0, rank 0 prints
 * LINES lines and flushes them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1024 };

int main(int argc, char **argv)
{
    static double mine[COUNT], sums[COUNT];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    long steps = atol(argv[1]), every = atol(argv[2]), lines = atol(argv[3]);
    for (int i = 0; i < COUNT; i++)
        mine[i] = i + rank;
    for (long step = 1; step <= steps; step++) {
        MPI_Allreduce(mine, sums, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank != 0 || every == 0 || step % every != 0)
            continue;
        for (long line = 0; line < lines; line++)
            printf("%8ld %8ld %45.1f\n", step, line, sums[step % COUNT]);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
