/* Rank 0 sends short messages faster than rank 1 receives them, which makes no MPI call for a while: flood COUNT
   BYTES. Each prints the sum of its messages, and on standard error the most memory that it had. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank;
    long sum = 0;
    struct rusage usage;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long count = argc == 3 ? atol(argv[1]) : 0, bytes = argc == 3 ? atol(argv[2]) : 0;
    if (bytes < (long)sizeof(long))
        MPI_Abort(MPI_COMM_WORLD, 2);
    char *message = calloc(1, (size_t)bytes);
    if (rank == 1)
        sleep(2);
    for (long i = 0; rank < 2 && i < count; i++) {
        if (rank == 0) {
            memcpy(message, &i, sizeof i);
            MPI_Send(message, (int)bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
        } else {
            MPI_Recv(message, (int)bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        long number;
        memcpy(&number, message, sizeof number);
        sum += number;
    }
    printf("%ld\n", sum);
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "rank %d had %ld MiB\n", rank, usage.ru_maxrss >> 10);
    free(message);
    MPI_Finalize();
    return 0;
}
