/* A replica that has received another number than its siblings takes another path: parting KIND FILE.
 *
 * Rank 1 sends a number to rank 0, again and again. When it is not the expected one, rank 0
 *
 *   poll   tests once more for an arrived message
 *   stat   asks for the state of a file once more
 *   clock  reads a clock once more
 *   less   leaves a line out of the file
 *   wrong  writes another line into the file
 *   other  asks for the state of the file instead of writing the line
 *   send   sends a message that is never received
 *   omit   does not send the answer that rank 1 waits for
 *
 * At the end rank 0 prints the number of rounds, and not the numbers: only its path is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { ROUNDS = 40 };

int main(int argc, char **argv)
{
    int rank, flag, number, answer = 0;
    struct stat status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *what = argv[1], *name = argv[2];
    FILE *file = rank == 0 ? fopen(name, "a") : NULL;
    for (int round = 0; round < ROUNDS; round++) {
        number = round;
        if (rank == 1) {
            MPI_Send(&number, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
            MPI_Recv(&answer, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&number, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            int is_wrong = number != round;
            if (is_wrong && strcmp(what, "poll") == 0)
                MPI_Iprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            if (is_wrong && strcmp(what, "stat") == 0)
                stat(name, &status);
            if (is_wrong && strcmp(what, "clock") == 0)
                MPI_Wtime();
            if (is_wrong && strcmp(what, "send") == 0)
                MPI_Send(&answer, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
            if (is_wrong && strcmp(what, "other") == 0)
                stat(name, &status);
            else if (!is_wrong || strcmp(what, "less") != 0) {
                fprintf(file, "%s %d\n", is_wrong && strcmp(what, "wrong") == 0 ? "wrong" : "line", round);
                fflush(file);
            }
            if (!is_wrong || strcmp(what, "omit") != 0)
                MPI_Send(&answer, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
        }
    }
    if (file) {
        fclose(file);
        printf("%d rounds\n", ROUNDS);
    }
    MPI_Finalize();
    return 0;
}
