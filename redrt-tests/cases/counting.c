/* Rank 0 reads standard input to its end. It prints the number of bytes after each line "mark", and with a sum at
 * the end. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, marks = 0, is_over = 0;
    unsigned long bytes = 0, sum = 0;
    char line[256];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    while (!is_over) {
        if (rank == 0) {
            while (!(is_over = !fgets(line, sizeof line, stdin))) {
                bytes += strlen(line);
                for (char *byte = line; *byte; byte++)
                    sum = sum * 31 + (unsigned char)*byte;
                if (strcmp(line, "mark\n") == 0)
                    break;
            }
            if (!is_over) {
                printf("mark %d after %lu bytes\n", ++marks, bytes);
                fflush(stdout);
            }
        }
        MPI_Bcast(&is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%lu bytes, %lx\n", bytes, sum);
    MPI_Finalize();
    return 0;
}
