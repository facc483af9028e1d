/* Counts signals: signalled COUNT. Ranks exchange short messages in a ring, in bursts that let a sender run ahead,
   until each has had COUNT signals. Prints for each signal the number of the next MPI call. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BURST 32
#define SIGNALS_MAX 64

static volatile sig_atomic_t count;
static volatile long call;
static volatile long came_at[SIGNALS_MAX];
static volatile int came[SIGNALS_MAX];

static void handle(int number) {
    if (count < SIGNALS_MAX) {
        came[count] = number;
        came_at[count] = call;
        count++;
    }
}

int main(int argc, char **argv) {
    int rank, size, least = 0, told = 0, number, flag;
    int wanted = argc == 2 ? atoi(argv[1]) : 1;
    if (wanted) {
        signal(SIGUSR1, handle);
        signal(SIGUSR2, handle);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("computing\n");
    fflush(stdout);
    for (long step = 0; least < wanted || !wanted; step++) {
        for (int i = 0; i < BURST; i++, call++)
            MPI_Send(&i, 1, MPI_INT, (rank + 1) % size, i, MPI_COMM_WORLD);
        for (int i = 0; i < BURST; i++, call++)
            MPI_Recv(&number, 1, MPI_INT, (rank + size - 1) % size, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        call++;
        MPI_Iprobe(MPI_ANY_SOURCE, BURST, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        for (; told < count; told++)
            printf("rank %d: signal %d before call %ld\n", rank, came[told], came_at[told]);
        fflush(stdout);
        if (step % 8 == 0) {
            int own = told;
            call++;
            MPI_Allreduce(&own, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
            usleep(500);
        }
    }
    MPI_Finalize();
    return 0;
}
