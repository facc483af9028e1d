/* One replica of each rank reads clocks that the others do not read, which no program may do: the job must neither
 * hang nor go on in silence. Which replica that is depends on who makes the file first (with --files=all).
 *
 *   diverging DIRECTORY [thread] */
#include "../programs/check.h"
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static void *read_clocks(void *unused)
{
    struct timespec now;
    (void)unused;
    for (int i = 0; i < 3; i++)
        clock_gettime(CLOCK_MONOTONIC, &now);
    return NULL;
}

int main(int argc, char **argv)
{
    int rank, size, flag, value = 7;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[300];
    for (int round = 0; round < 4; round++) {
        snprintf(name, sizeof name, "%s/%d.%d", argv[1], rank, round);
        int is_first = open(name, O_CREAT | O_EXCL, 0600) >= 0;
        if (is_first) {
            pthread_t thread;
            if (argc > 2) {
                pthread_create(&thread, NULL, read_clocks, NULL);
                pthread_join(thread, NULL);
            } else
                read_clocks(NULL);
        }
        MPI_Request request;
        MPI_Irecv(&value, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &request);
        MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
        do
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        while (!flag);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    if (rank == 0)
        puts("done");
    return 0;
}
