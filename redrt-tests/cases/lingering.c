/* Saves itself, and stays after MPI_Finalize with printed text that is not written yet: lingering DIRECTORY. Rank 0
   waits for the file go before MPI_Finalize, makes the file over after it, and waits for the file end. */
#include "redrt.h"
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *in_directory(const char *directory, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void wait_for(const char *directory, const char *name) {
    while (access(in_directory(directory, name), F_OK) != 0)
        usleep(2000);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 2 || redrt_checkpoint == NULL || redrt_checkpoint() != REDRT_CHECKPOINT_TAKEN)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 0)
        wait_for(argv[1], "go");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("what was computed\n");
    MPI_Finalize();
    if (rank == 0) {
        close(open(in_directory(argv[1], "over"), O_CREAT | O_WRONLY, 0600));
        wait_for(argv[1], "end");
    }
    return 0;
}
