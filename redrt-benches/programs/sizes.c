/* Time of messages of each length when two ranks send each other a window of them: one line for each length,
 * bytes and microseconds a message.
 *
 *   sizes [SECONDS]
 *
 * Each length is measured for about SECONDS in slices of some milliseconds; the median slice counts. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, SLICES_MAX = 4096 };

static const double SLICE_SECONDS = 0.004;
static const int LENGTHS[] = {8, 256, 4096, 32768, 262144, 1 << 20, 4 << 20};

static int rank;
static char *out, *in;

static double slice(int bytes, long rounds)
{
    MPI_Request requests[2 * WINDOW];
    double start = MPI_Wtime();
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < WINDOW; k++)
            MPI_Irecv(in, bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < WINDOW; k++)
            MPI_Isend(out, bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, &requests[WINDOW + k]);
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    }
    return MPI_Wtime() - start;
}

/* Broadcasts rank 0's number of rounds. */
static long agreed(long rounds)
{
    MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return rounds;
}

static int by_value(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void measure(int bytes, double seconds)
{
    static double slices[SLICES_MAX];
    long rounds = 1;
    double elapsed = slice(bytes, rounds), total = 0;
    while (agreed(elapsed < SLICE_SECONDS)) {
        rounds = agreed(rounds * 2);
        elapsed = slice(bytes, rounds);
    }
    int count = 0;
    while (agreed(count < SLICES_MAX && total < seconds)) {
        elapsed = slice(bytes, rounds);
        slices[count++] = elapsed / (double)rounds / WINDOW;
        total += elapsed;
    }
    qsort(slices, (size_t)count, sizeof *slices, by_value);
    if (rank == 0)
        printf("%d %.4f\n", bytes, 1e6 * slices[count / 2]);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    out = calloc(4 << 20, 1);
    in = malloc(4 << 20);
    memset(in, 0, 4 << 20);
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
        measure(LENGTHS[i], seconds);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
