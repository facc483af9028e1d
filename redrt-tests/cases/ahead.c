/* Rank 0 sends itself messages, COUNT times, and receives them from any source: ahead message COUNT; or reads a
   value from its own memory by one-sided operations: ahead window COUNT. The other ranks do nothing. Prints a sum,
   and on standard error the most memory that it had. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    long sum = 0, *memory;
    struct rusage usage;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    if (argc != 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    long count = atol(argv[2]);
    MPI_Win_allocate(sizeof *memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    *memory = 0;
    MPI_Win_lock_all(0, window);
    puts("computing");
    fflush(stdout);
    for (long i = 0; i < count; i++) {
        long got = -1;
        if (strcmp(argv[1], "message") == 0) {
            MPI_Request request;
            MPI_Isend(&i, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD, &request);
            MPI_Recv(&got, 1, MPI_LONG, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            long one = 1;
            MPI_Fetch_and_op(&one, &got, MPI_LONG, 0, 0, MPI_SUM, window);
            MPI_Win_flush(0, window);
        }
        sum += got;
    }
    printf("%ld\n", sum);
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "it had %ld MiB\n", usage.ru_maxrss >> 10);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
