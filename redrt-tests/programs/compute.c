/* Computes without MPI until a file is there: compute FILE. Rank 0 fills memory with numbers and checks them, again
   and again, and the others wait for it in MPI. At the end each prints whether all numbers were right. Replicas run
   different numbers of rounds, which makes no difference: each round has the same result. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT (1 << 20)

static uint64_t next(uint64_t x) {
    x ^= x << 13;
    x ^= x >> 7;
    return x ^ x << 17;
}

/* One round: a sum that depends on all memory. */
static uint64_t fill(uint64_t *numbers) {
    uint64_t x = 88172645463325252u, sum = 0;
    for (int i = 0; i < COUNT; i++)
        numbers[i] = x = next(x);
    for (int i = 0; i < COUNT; i++)
        sum = sum * 31 + numbers[i];
    return sum;
}

int main(int argc, char **argv) {
    int rank, size, wrong = 0;
    uint64_t result = 0, *numbers = malloc(COUNT * sizeof *numbers);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || numbers == NULL) {
        fprintf(stderr, "usage: compute FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0) {
        result = fill(numbers);
        printf("computing\n");
        fflush(stdout);
        while (access(argv[1], F_OK) != 0)
            wrong |= fill(numbers) != result;
    }
    MPI_Bcast(&result, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    wrong |= result != fill(numbers);
    printf("rank %d: %s\n", rank, wrong ? "wrong" : "right");
    MPI_Finalize();
    return 0;
}
