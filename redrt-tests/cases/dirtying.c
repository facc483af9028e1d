/* Computes, and writes to its memory at a rate: dirtying STOP MIB MIB_A_SECOND FILE. Rank 0 waits for the file STOP,
   at which all ranks end. Each rank has MIB of memory and writes to that many pages of it. FILE.RANK has a line for
   each 50 ms: the time in seconds since 1970, units of work done so far, and pages written so far. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, UNIT_STEPS = 100000, UNITS_BETWEEN_LOOKS = 50, LINES_MAX = 1 << 20 };

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    int rank, stop = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    size_t pages = (size_t)atol(argv[2]) * 256, page = 0;
    double pages_a_second = atof(argv[3]) * 256;
    unsigned long state = 88172645463325252UL + (unsigned long)rank;
    unsigned long *memory = malloc(pages * PAGE_BYTES), (*lines)[3] = malloc(LINES_MAX * sizeof *lines);
    /* Numbers that cannot be compressed. */
    for (size_t i = 0; i < pages * PAGE_BYTES / sizeof *memory; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memory[i] = state;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("computing\n");
        fflush(stdout);
    }
    double written = 0, last = now(CLOCK_MONOTONIC), noted = 0;
    long units = 0, written_count = 0, line_count = 0;
    while (!stop) {
        for (int step = 0; step < UNIT_STEPS; step++)
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        units++;
        double this = now(CLOCK_MONOTONIC), passed = this - last;
        last = this;
        /* After a stop of the process the rate stays the same: missed writes are not made up
         * for. */
        for (written += (passed < 0.01 ? passed : 0.01) * pages_a_second; written >= 1; written -= 1, written_count++) {
            memory[page * (PAGE_BYTES / sizeof *memory)] = state + page;
            page = (page + 1) % pages;
        }
        if (this - noted >= 0.05 && line_count < LINES_MAX) {
            noted = this;
            lines[line_count][0] = (unsigned long)(1e6 * now(CLOCK_REALTIME));
            lines[line_count][1] = (unsigned long)units;
            lines[line_count++][2] = (unsigned long)written_count;
        }
        if (units % UNITS_BETWEEN_LOOKS == 0) {
            stop = rank == 0 && access(argv[1], F_OK) == 0;
            MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", argv[4], rank);
    FILE *file = fopen(name, "w");
    if (file == NULL)
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (long line = 0; line < line_count; line++)
        fprintf(file, "%.6f %lu %lu\n", 1e-6 * (double)lines[line][0], lines[line][1], lines[line][2]);
    fclose(file);
    printf("rank %d: %lu\n", rank, state != 0 ? 1UL : 0UL);
    MPI_Finalize();
    return 0;
}
