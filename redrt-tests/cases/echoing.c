/* Rank 0 reads lines, and after each all ranks print some, in turn: echoing. Ends with code 7 after "end". */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 200 };

int main(int argc, char **argv)
{
    int rank, size;
    char line[256];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int number = 0;; number++) {
        if (rank == 0 && !fgets(line, sizeof line, stdin))
            strcpy(line, "end of input\n");
        MPI_Bcast(line, sizeof line, MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("got %s", line);
            for (int row = 0; row < ROWS; row++)
                printf("line %d, row %d\n", number, row);
            fflush(stdout);
        }
        if (strncmp(line, "end", 3) == 0)
            break;
    }
    MPI_Finalize();
    return rank == 0 ? 7 : 0;
}
