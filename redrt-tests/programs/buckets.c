/* Sorts whole numbers, as the IS benchmark of NAS does it: all processes count the numbers in each bucket, give each
 * process a row of buckets with about as many numbers, and send them there with an alltoallv.
 *
 *   buckets [NUMBERS [ROUNDS]]      NUMBERS: of each process */
#include "check.h"

enum { BITS = 20, BUCKETS = 1024, SHIFT = BITS - 10 };

static int rank, size;

/* The owner of each bucket, so that no process has many more numbers than the others. */
static void divide(const long *sizes, long total, int *owner)
{
    long before = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        owner[bucket] = (int)(before * size / total);
        before += sizes[bucket];
    }
}

static void sort(uint32_t *numbers, long count)
{
    static long places[(1 << BITS) + 1];
    memset(places, 0, sizeof places);
    for (long i = 0; i < count; i++)
        places[numbers[i] + 1]++;
    long at = 0;
    for (uint32_t number = 0; number < 1 << BITS; number++)
        for (long i = places[number + 1]; i > 0; i--)
            numbers[at++] = number;
    CHECK(at == count);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long count = argc > 1 ? atol(argv[1]) : 20000;
    int rounds = argc > 2 ? atoi(argv[2]) : 4;
    CHECK(count > 0 && rounds > 0);
    uint32_t *own = malloc((size_t)count * sizeof *own), *out = malloc((size_t)count * sizeof *out);
    int *sent = malloc((size_t)size * 4 * sizeof *sent);
    int *sent_at = sent + size, *got = sent_at + size, *got_at = got + size;
    static long local[BUCKETS], sizes[BUCKETS], next[BUCKETS];
    static int owner[BUCKETS];
    CHECK(own && out && sent);
    uint64_t seed = (uint64_t)rank + 1;
    for (int round = 1; round <= rounds; round++) {
        memset(local, 0, sizeof local);
        for (long i = 0; i < count; i++) {
            /* The mean of four: most are in the middle. */
            uint64_t bits = next_random(&seed), mask = (1 << 16) - 1;
            own[i] = (uint32_t)(((bits & mask) + (bits >> 16 & mask) + (bits >> 32 & mask) + (bits >> 48)) << 2);
            local[own[i] >> SHIFT]++;
        }
        MPI_Allreduce(local, sizes, BUCKETS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        divide(sizes, count * size, owner);
        memset(sent, 0, (size_t)size * sizeof *sent);
        long at = 0;
        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            next[bucket] = at;
            at += local[bucket];
            sent[owner[bucket]] += (int)local[bucket];
        }
        for (long i = 0; i < count; i++)
            out[next[own[i] >> SHIFT]++] = own[i];
        MPI_Alltoall(sent, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD);
        sent_at[0] = got_at[0] = 0;
        for (int i = 1; i < size; i++) {
            sent_at[i] = sent_at[i - 1] + sent[i - 1];
            got_at[i] = got_at[i - 1] + got[i - 1];
        }
        long mine = got_at[size - 1] + got[size - 1];
        uint32_t *numbers = malloc((size_t)(mine + 1) * sizeof *numbers);
        CHECK(numbers);
        MPI_Alltoallv(out, sent, sent_at, MPI_UINT32_T, numbers, got, got_at, MPI_UINT32_T, MPI_COMM_WORLD);
        sort(numbers, mine);
        /* The greatest number of the process before is no greater than the least of this one. */
        uint32_t greatest = mine > 0 ? numbers[mine - 1] : 0, before = 0;
        int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
        MPI_Sendrecv(&greatest, 1, MPI_UINT32_T, right, 1, &before, 1, MPI_UINT32_T, left, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        CHECK(mine == 0 || before <= numbers[0]);
        uint64_t hash = hash_bytes(HASH_START, numbers, (size_t)mine * sizeof *numbers), all = 0;
        MPI_Reduce(&hash, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
        long total = 0;
        MPI_Reduce(&mine, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            CHECK(total == count * size);
            printf("round %d: %016llx\n", round, (unsigned long long)all);
        }
        free(numbers);
    }
    free(own);
    free(out);
    free(sent);
    MPI_Finalize();
    return 0;
}
