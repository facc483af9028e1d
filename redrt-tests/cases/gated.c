/* Exchanges numbers in a ring, waits until a file is there, and goes on as before: gated FILE. Every tenth message
   is long. SIGUSR1 flips a bit of the numbers, SIGUSR2 one of the tag of later sends; after SIGALRM the process
   looks for the file once more than its siblings. At the end rank 0 prints a sum over all messages. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STEPS 40
#define SHORT 64
#define LONG 40000

static volatile long own[SHORT];
static volatile int tag = 1;
static volatile sig_atomic_t strays;
static long out[LONG], in[LONG];

static void flip(int signal) {
    (void)signal;
    own[3] ^= 1L << 7;
}

static void flip_tag(int signal) {
    (void)signal;
    tag ^= 2;
}

static void stray(int signal) {
    (void)signal;
    strays = 1;
}

static void exchange(int rank, int size, long from) {
    for (long step = from; step < from + STEPS; step++) {
        int count = step % 10 == 9 ? LONG : SHORT;
        for (int i = 0; i < count; i++)
            out[i] = own[i % SHORT] + i / SHORT;
        MPI_Sendrecv(out, count, MPI_LONG, (rank + 1) % size, tag, in, count, MPI_LONG, (rank + size - 1) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < SHORT; i++)
            own[i] = own[i] * 3 + in[i] % 1000003 + step;
    }
}

int main(int argc, char **argv) {
    int rank, size, go = 1;
    long sum = 0, total = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size < 2) {
        fprintf(stderr, "usage: gated FILE, with 2 ranks at least\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    signal(SIGUSR1, flip);
    signal(SIGUSR2, flip_tag);
    signal(SIGALRM, stray);
    for (int i = 0; i < SHORT; i++)
        own[i] = rank * 1000 + i;
    exchange(rank, size, 0);
    /* From here on the numbers are not sent before the file is there. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("computing\n");
        fflush(stdout);
        while (access(argv[1], F_OK) != 0)
            usleep(2000);
    }
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (strays && access(argv[1], F_OK) != 0)
        printf("it was there\n");
    exchange(rank, size, STEPS);
    for (int i = 0; i < SHORT; i++)
        sum += own[i] % 1000003;
    MPI_Reduce(&sum, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %ld\n", total);
    MPI_Finalize();
    return 0;
}
