/* All ranks but the first leave at once, and wait in MPI_Finalize until the first has seen a file: leaving FILE. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    if (argc != 2) {
        fprintf(stderr, "usage: leaving FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        printf("computing\n");
        fflush(stdout);
        while (access(argv[1], F_OK) != 0)
            usleep(2000);
    }
    MPI_Finalize();
    printf("rank %d has left\n", rank);
    return 0;
}
