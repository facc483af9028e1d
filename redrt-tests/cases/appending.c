/* Writes a line a step to two files, one opened to append, and one from its begin: appending APPENDED WRITTEN STEPS.
   Each step is an allreduce and a pause of a millisecond. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE *appended = NULL, *written = NULL;
    if (rank == 0) {
        appended = fopen(argv[1], "a");
        written = fopen(argv[2], "w");
        if (!appended || !written)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    for (int step = 0; step < atoi(argv[3]); step++) {
        int sum = 0, own = step + rank;
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) {
            fprintf(appended, "step %d sum %d\n", step, sum);
            fflush(appended);
            fprintf(written, "step %d sum %d\n", step, sum);
            fflush(written);
            if (step == 10) {
                printf("computing\n");
                fflush(stdout);
            }
        }
        usleep(1000);
    }
    if (rank == 0 && (fclose(appended) || fclose(written)))
        MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Finalize();
    return 0;
}
