/* Latency, bandwidth and collectives between the ranks of MPI_COMM_WORLD. One line for each figure: name, value, unit.
 * Built against any MPI; measures nothing of its own. Latency is half a round trip. Bandwidth keeps 32 messages in
 * flight. Collectives give the mean time of a call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void say(const char *name, double value, const char *unit)
{
    if (rank == 0) {
        printf("%s %.4f %s\n", name, value, unit);
        fflush(stdout);
    }
}

static void latency(size_t bytes, int rounds, const char *name)
{
    char *buffer = malloc(bytes + 1);
    memset(buffer, rank, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = 0;
    if (rank < 2)
        for (int i = -rounds / 10; i < rounds; i++) {
            if (i == 0)
                start = MPI_Wtime();
            if (rank == 0) {
                MPI_Send(buffer, (int)bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
                MPI_Recv(buffer, (int)bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(buffer, (int)bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(buffer, (int)bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
            }
        }
    say(name, (MPI_Wtime() - start) / rounds / 2 * 1e6, "us");
    free(buffer);
}

enum { WINDOW = 32 };

static void bandwidth(size_t bytes, int rounds, const char *name)
{
    char *buffer = malloc(bytes), answer = 0;
    MPI_Request requests[WINDOW];
    memset(buffer, rank, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = 0;
    if (rank < 2)
        for (int i = -2; i < rounds; i++) {
            if (i == 0)
                start = MPI_Wtime();
            for (int k = 0; k < WINDOW; k++)
                if (rank == 0)
                    MPI_Isend(buffer, (int)bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[k]);
                else
                    MPI_Irecv(buffer, (int)bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[k]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            if (rank == 0)
                MPI_Recv(&answer, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Send(&answer, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
        }
    double seconds = MPI_Wtime() - start;
    if (bytes >= 1024)
        say(name, (double)bytes * WINDOW * rounds / seconds / 1e6, "MB/s");
    else
        say(name, (double)WINDOW * rounds / seconds / 1e6, "M/s");
    free(buffer);
}

static void collective(const char *name, int rounds, size_t bytes)
{
    char *out = calloc(bytes + 8, (size_t)size), *in = calloc(bytes + 8, (size_t)size);
    double start = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = -rounds / 10 - 1; i < rounds; i++) {
        if (i == 0)
            start = MPI_Wtime();
        if (!strncmp(name, "barrier", 7))
            MPI_Barrier(MPI_COMM_WORLD);
        else if (!strncmp(name, "bcast", 5))
            MPI_Bcast(out, (int)bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
        else if (!strncmp(name, "allreduce", 9))
            MPI_Allreduce(out, in, (int)(bytes / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else
            MPI_Alltoall(out, (int)bytes / size, MPI_CHAR, in, (int)bytes / size, MPI_CHAR, MPI_COMM_WORLD);
    }
    say(name, (MPI_Wtime() - start) / rounds * 1e6, "us");
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    double scale = argc > 1 ? atof(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size >= 2) {
        latency(8, (int)(100000 * scale), "latency-8B");
        latency(1 << 20, (int)(1000 * scale), "latency-1MiB");
        bandwidth(8, (int)(5000 * scale), "rate-8B");
        bandwidth(1 << 20, (int)(100 * scale), "bandwidth-1MiB");
        bandwidth(4 << 20, (int)(25 * scale), "bandwidth-4MiB");
    }
    collective("barrier", (int)(50000 * scale), 0);
    collective("allreduce-8B", (int)(50000 * scale), 8);
    collective("bcast-1MiB", (int)(1000 * scale), 1 << 20);
    collective("allreduce-1MiB", (int)(500 * scale), 1 << 20);
    collective("alltoall-1MiB", (int)(500 * scale), 1 << 20);
    MPI_Finalize();
    return 0;
}
