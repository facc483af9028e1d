/* Linked into another program, prints on standard error the seconds that rank 0 spent between MPI_Init and
 * MPI_Finalize, where all ranks begin and end together. It uses the standard's profiling interface, so it works with
 * any MPI. */
#include <mpi.h>
#include <stdio.h>

static double begin;

int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    PMPI_Barrier(MPI_COMM_WORLD);
    begin = PMPI_Wtime();
    return code;
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Barrier(MPI_COMM_WORLD);
    double elapsed = PMPI_Wtime() - begin;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "inside %.6f\n", elapsed);
    return PMPI_Finalize();
}
