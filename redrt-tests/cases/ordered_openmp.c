/* Threads of OpenMP whose pieces of work, critical sections and locks depend on their order. Their results go into
   messages. */
#include <mpi.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t mix(uint64_t hash, uint64_t with) { return (hash ^ with) * 1099511628211u; }

static void compute(int turns) {
    for (volatile int i = 0; i < turns; i++)
        ;
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint64_t hash = 1, locked = 1, named = 1, misses = 0;
    double sum = 0;
    omp_lock_t lock, tried;
    omp_init_lock(&lock), omp_init_lock(&tried);
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel num_threads(3)
        {
            uint64_t me = omp_get_thread_num(), own = me;
            double part = 0;
#pragma omp for schedule(dynamic, 2) nowait
            for (int i = 0; i < 60; i++) {
                compute(100 * (i % 7));
                own = mix(own, i), part += 1.0 / (i + 1 + rank);
            }
#pragma omp critical
            hash = mix(hash, own), sum += part;
#pragma omp for schedule(guided) nowait
            for (long long i = 0; i < 30; i++) own = mix(own, i);
#pragma omp single nowait
            own = mix(own, 77);
#pragma omp sections nowait
            {
#pragma omp section
                own = mix(own, 5);
#pragma omp section
                own = mix(own, 6);
            }
            omp_set_lock(&lock);
            locked = mix(locked, own);
            omp_unset_lock(&lock);
            if (omp_test_lock(&tried)) {
                compute(300);
                omp_unset_lock(&tried);
            } else {
#pragma omp critical(named)
                named = mix(named, me), misses++;
            }
        }
        uint64_t heard;
        hash = mix(mix(mix(hash, (uint64_t)(sum * 1e15)), locked), named);
        MPI_Sendrecv(&hash, 1, MPI_UINT64_T, (rank + 1) % size, 0, &heard, 1, MPI_UINT64_T, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        hash = mix(hash, heard);
    }
    uint64_t all = 0;
    MPI_Allreduce(&hash, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("threads agree\n");
    fprintf(stderr, "rank %d: %llx, %llu misses\n", rank, (unsigned long long)all, (unsigned long long)misses);
    MPI_Finalize();
}
