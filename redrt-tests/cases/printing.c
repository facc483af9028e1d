/* Rank 1 prints lines, a few or very many. The first of its replicas to get there waits for the file DIRECTORY/go
 * before it begins. It exchanges no messages meanwhile, so its siblings need not wait for it.
 *
 * With --files=all, so that each replica finds out itself if it is the first.
 *
 *   printing DIRECTORY LINES */
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank;
    char name[300];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 1) {
        snprintf(name, sizeof name, "%s/first", argv[1]);
        int is_first = open(name, O_CREAT | O_EXCL, 0600) >= 0;
        snprintf(name, sizeof name, "%s/go", argv[1]);
        while (is_first && access(name, F_OK) != 0)
            usleep(2000);
        for (long line = 0; line < atol(argv[2]); line++)
            printf("this is line %ld of what rank %d has to say\n", line, rank);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
