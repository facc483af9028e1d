/* Computes and saves itself: saving STEPS [FILE]. In each step ranks add up numbers, and ask for a checkpoint. Rank
   0 prints the outcome, and the sum so far. Before the last step it waits for FILE, if one is named. */
#include "redrt.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 3;
    long sum = 0, all = 0;
    int early = redrt_checkpoint ? redrt_checkpoint() : REDRT_CHECKPOINT_NONE;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (early != REDRT_CHECKPOINT_NONE)
        printf("rank %d: before MPI_Init it was %d\n", rank, early);
    for (int step = 0; step < steps; step++) {
        int told = redrt_checkpoint ? redrt_checkpoint() : REDRT_CHECKPOINT_NONE;
        int least, most;
        MPI_Allreduce(&told, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Allreduce(&told, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        sum += (long)(step + 1) * (rank + 1);
        MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) {
            if (least == most)
                printf("step %d: %d, sum %ld\n", step, told, all);
            else
                printf("step %d: ranks were told %d to %d\n", step, least, most);
            fflush(stdout);
            while (step == steps - 2 && argc > 2 && access(argv[2], F_OK) != 0)
                usleep(2000);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    int late = redrt_checkpoint ? redrt_checkpoint() : REDRT_CHECKPOINT_NONE;
    if (late != REDRT_CHECKPOINT_NONE)
        printf("rank %d: after MPI_Finalize it was %d\n", rank, late);
    return 0;
}
