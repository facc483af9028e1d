/* OpenMP within ranks, MPI between them: hybrid SIZE STEPS. Heat in a square that is cut into strips; three threads
   share a strip, and one of them makes the MPI calls. Prints a hash of all strips now and then. Sums are of whole
   numbers, so that the order of threads does not show. */
#include <mpi.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int width = argc > 2 ? atoi(argv[1]) : 0;
    long steps = argc > 2 ? atol(argv[2]) : 0;
    if (width < 4 || steps < 1 || provided < MPI_THREAD_FUNNELED) {
        fprintf(stderr, "usage: hybrid SIZE STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t bytes = (size_t)(width + 2) * (size_t)width * sizeof(double);
    double *now = malloc(bytes), *next = malloc(bytes);
    memset(now, 0, bytes);
    memset(next, 0, bytes);
    for (int i = 1; i <= width; i++)
        for (int j = 0; j < width; j++)
            now[i * width + j] = (rank * 131 + i * 31 + j * 17) % 101;
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    for (long step = 1; step <= steps; step++) {
        MPI_Sendrecv(now + width, width, MPI_DOUBLE, up, 1, now + (width + 1) * width, width, MPI_DOUBLE, down, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(now + width * width, width, MPI_DOUBLE, down, 2, now, width, MPI_DOUBLE, up, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        uint64_t hash = 0;
#pragma omp parallel num_threads(3)
        {
#pragma omp for schedule(static)
            for (int i = 1; i <= width; i++)
                for (int j = 1; j < width - 1; j++)
                    next[i * width + j] = 0.2 * (now[i * width + j] + now[(i - 1) * width + j] +
                                                 now[(i + 1) * width + j] + now[i * width + j - 1] +
                                                 now[i * width + j + 1]);
#pragma omp for schedule(static) reduction(+ : hash)
            for (int i = width; i < (width + 1) * width; i++) {
                uint64_t bits;
                now[i] = next[i];
                memcpy(&bits, &now[i], sizeof bits);
                hash += (bits ^ bits >> 29) * 0x9e3779b97f4a7c15u * (uint64_t)(i + rank);
            }
        }
        if (step % (steps / 8 + 1) == 0 || step == steps) {
            uint64_t all = 0;
            MPI_Reduce(&hash, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
            if (rank == 0)
                printf("step %ld: %016llx\n", step, (unsigned long long)all);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
