/* Latency, bandwidth and collectives between the ranks of MPI_COMM_WORLD. One line for each figure: name, mean, best,
 * unit.
 *
 *   pairs [SECONDS [PREFIX]]
 *
 * Built against any MPI; measures nothing of its own. Latency is half a round trip. Bandwidth keeps 32 messages in
 * flight. Collectives give the time of a call. Each figure is taken over about SECONDS in slices of about half a
 * millisecond: "mean" is over all slices, "best" is the best slice, which a busy machine disturbs least.
 * Shorter trials before find the length of a slice and warm up. With PREFIX only figures whose name begins with it are
 * taken. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32, SLICES = 8, ROUNDS_MAX = 1 << 24 };

static const double SLICE_SECONDS = 0.0005;

static int rank, size;
static double seconds = 0.2;
static const char *wanted = "";

struct figure {
    const char *name, *unit;
    size_t bytes;
    void (*rounds)(const struct figure *, long);
    /* Factor from seconds for each round to the unit, or, where `per_second`, from rounds for each second. */
    double scale;
    int per_second;
};

static char *out, *in;

static void latency(const struct figure *figure, long rounds)
{
    int bytes = (int)figure->bytes;
    for (long i = 0; i < rounds && rank < 2; i++) {
        if (rank == 0) {
            MPI_Send(out, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
    }
}

static void windows(const struct figure *figure, long rounds)
{
    int bytes = (int)figure->bytes;
    char answer = 0;
    MPI_Request requests[WINDOW];
    for (long i = 0; i < rounds && rank < 2; i++) {
        for (int k = 0; k < WINDOW; k++)
            if (rank == 0)
                MPI_Isend(out, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(in, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(&answer, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    }
}

static void collective(const struct figure *figure, long rounds)
{
    int bytes = (int)figure->bytes;
    for (long i = 0; i < rounds; i++)
        switch (figure->name[0] == 'a' ? figure->name[3] : figure->name[1]) {
        case 'a':
            MPI_Barrier(MPI_COMM_WORLD);
            break;
        case 'c':
            MPI_Bcast(out, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
            break;
        case 'r':
            MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            break;
        default:
            MPI_Alltoall(out, bytes / size, MPI_CHAR, in, bytes / size, MPI_CHAR, MPI_COMM_WORLD);
        }
}

static const struct figure FIGURES[] = {
    {"latency-8B", "us", 8, latency, 0.5e6, 0},
    {"latency-1MiB", "us", 1 << 20, latency, 0.5e6, 0},
    {"rate-8B", "M/s", 8, windows, WINDOW * 1e-6, 1},
    {"bandwidth-1MiB", "MB/s", 1 << 20, windows, WINDOW * 1048576e-6, 1},
    {"bandwidth-4MiB", "MB/s", 4 << 20, windows, WINDOW * 4194304e-6, 1},
    {"barrier", "us", 0, collective, 1e6, 0},
    {"allreduce-8B", "us", 8, collective, 1e6, 0},
    {"bcast-1MiB", "us", 1 << 20, collective, 1e6, 0},
    {"allreduce-1MiB", "us", 1 << 20, collective, 1e6, 0},
    {"alltoall-1MiB", "us", 1 << 20, collective, 1e6, 0},
};

static double slice(const struct figure *figure, long rounds)
{
    double start = MPI_Wtime();
    figure->rounds(figure, rounds);
    /* No rank is ahead when the clock stops. */
    if (figure->rounds == collective && figure->bytes > 8)
        MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

/* Broadcasts rank 0's number of rounds. */
static long agreed(long rounds)
{
    MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return rounds;
}

static void measure(const struct figure *figure)
{
    long rounds = 2, count = 0;
    double elapsed, total = 0, best = 0;
    while (agreed(best * (double)rounds < SLICE_SECONDS && rounds < ROUNDS_MAX)) {
        rounds = agreed(rounds * 2);
        best = 1e9;
        for (int i = 0; i < SLICES; i++) {
            elapsed = slice(figure, rounds);
            best = elapsed / (double)rounds < best ? elapsed / (double)rounds : best;
        }
    }
    /* While slices are disturbed more are taken, until undisturbed ones suffice for the time, or the total is far
     * too long. */
    while (agreed(best * (double)count < seconds && total < 4 * seconds))
        for (int i = 0; i < SLICES; i++) {
            elapsed = slice(figure, rounds);
            total += elapsed;
            count += rounds;
            best = elapsed / (double)rounds < best ? elapsed / (double)rounds : best;
        }
    if (rank == 0) {
        double mean = total / (double)count;
        printf("%s %.4f %.4f %s\n", figure->name, figure->scale * (figure->per_second ? 1 / mean : mean),
               figure->scale * (figure->per_second ? 1 / best : best), figure->unit);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        seconds = atof(argv[1]);
    if (argc > 2)
        wanted = argv[2];
    /* Every figure uses both from the front; pages are touched, values are numbers. */
    out = calloc(4 << 20, 1);
    in = malloc(4 << 20);
    memset(in, 0, 4 << 20);
    for (size_t i = 0; i < sizeof FIGURES / sizeof *FIGURES; i++)
        if (!strncmp(FIGURES[i].name, wanted, strlen(wanted)) && (size >= 2 || FIGURES[i].rounds == collective))
            measure(&FIGURES[i]);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
