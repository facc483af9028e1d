/* A program whose replicas differ in round 3 of rank 1, for `redrun --check-determinism`:
 *
 *   nondeterministic MODE
 *
 * uninitialized: half of an array that it sends to rank 0 was never written, and holds the former content of that
 * memory; clock: it sends the processor's own counter, which is not agreed on; collective: the same in a reduction;
 * output: it prints the counter; none: nothing differs after all. */
#include "../programs/check.h"
#include <sys/auxv.h>
#include <x86intrin.h>

enum { COUNT = 64, ROUNDS = 6 };

/* Leaves 16 random bytes from the kernel in free memory: no two processes have the same. */
static void use_and_free(void)
{
    char *memory = malloc(COUNT * sizeof(double));
    CHECK(memory);
    for (int i = 0; i < COUNT / 2; i++)
        memcpy(memory + i * 16, (const void *)getauxval(AT_RANDOM), 16);
    hash_bytes(HASH_START, memory, COUNT * sizeof(double));
    free(memory);
}

__attribute__((noinline)) static void send_sums(const double *sums)
{
    MPI_Send(sums, COUNT, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
}

static void work(int round, int is_wrong)
{
    if (is_wrong)
        use_and_free();
    double *sums = malloc(COUNT * sizeof(double));
    CHECK(sums);
    for (int i = 0; i < (is_wrong ? COUNT / 2 : COUNT); i++)
        sums[i] = round + i;
    send_sums(sums);
    free(sums);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *mode = argc > 1 ? argv[1] : "none";
    for (int round = 0; round < ROUNDS; round++) {
        int is_wrong = rank == 1 && round == 3 && strcmp(mode, "none") != 0;
        int is_uninitialized = strcmp(mode, "uninitialized") == 0;
        unsigned long long ticks = is_wrong ? __rdtsc() : 1, sum;
        if (strcmp(mode, "collective") == 0)
            MPI_Reduce(&ticks, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_BOR, 0, MPI_COMM_WORLD);
        if (strcmp(mode, "clock") == 0 && rank == 1)
            MPI_Send(&ticks, 1, MPI_UNSIGNED_LONG_LONG, 0, 8, MPI_COMM_WORLD);
        if (strcmp(mode, "clock") == 0 && rank == 0)
            MPI_Recv(&ticks, 1, MPI_UNSIGNED_LONG_LONG, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (strcmp(mode, "output") == 0)
            printf("rank %d round %d: %llu\n", rank, round, ticks);
        double sums[COUNT];
        if (rank != 0)
            work(round, is_wrong && is_uninitialized);
        for (int other = 1; rank == 0 && other < size; other++)
            MPI_Recv(sums, COUNT, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
