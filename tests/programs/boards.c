/* Blocking collectives as the same sums, bit for bit, whether they go in messages or over boards (docs/performance.md),
 * and boards that come and go: short and long operands in groups of all sizes, roots that run ahead, buffers that
 * change as soon as a call has returned, and more communicators, at once and one after the other, than there are
 * boards.
 *
 *   boards [ROUNDS] */
#include "check.h"

enum { LONGEST = 40000, COMMUNICATORS = 40 };

static int rank, size;
static uint64_t hash = HASH_START;
static double mine[LONGEST], whole[LONGEST], apart[LONGEST];

static void fill(uint64_t seed, int count)
{
    uint64_t state = seed * 1000 + (uint64_t)rank;
    for (int i = 0; i < count; i++)
        mine[i] = (double)next_random(&state) / (double)(next_random(&state) % 1000 + 1);
}

/* The nonblocking form goes in messages. */
static void sums(MPI_Comm comm, int count, uint64_t seed)
{
    int in_place = seed % 2, members;
    MPI_Request request;
    MPI_Comm_size(comm, &members);
    fill(seed, count);
    MPI_Iallreduce(mine, apart, count, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    memcpy(whole, mine, (size_t)count * sizeof *mine);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : mine, whole, count, MPI_DOUBLE, MPI_SUM, comm);
    memset(mine, 0, (size_t)count * sizeof *mine);
    CHECK(memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    hash = hash_bytes(hash, whole, (size_t)count * sizeof *whole);
    for (int root = 0; root < members; root++) {
        fill(seed + (uint64_t)root, count);
        MPI_Ireduce(mine, apart, count, MPI_DOUBLE, MPI_SUM, root, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Reduce(mine, whole, count, MPI_DOUBLE, MPI_SUM, root, comm);
        memset(mine, 0, (size_t)count * sizeof *mine);
        int here;
        MPI_Comm_rank(comm, &here);
        CHECK(here != root || memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    }
}

/* Each member's stretch is of another length; the last has what is left. */
static void shares(MPI_Comm comm, int count, uint64_t seed)
{
    int here, members, counts[64], left = count;
    MPI_Request request;
    MPI_Comm_rank(comm, &here);
    MPI_Comm_size(comm, &members);
    for (int member = 0; member < members; member++) {
        counts[member] = member == members - 1 ? left : left * (member + 1) / (2 * members);
        left -= counts[member];
    }
    fill(seed, count);
    MPI_Ireduce_scatter(mine, apart, counts, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (seed % 2) {
        memcpy(whole, mine, (size_t)count * sizeof *mine);
        MPI_Reduce_scatter(MPI_IN_PLACE, whole, counts, MPI_DOUBLE, MPI_SUM, comm);
    } else {
        MPI_Reduce_scatter(mine, whole, counts, MPI_DOUBLE, MPI_SUM, comm);
    }
    CHECK(memcmp(whole, apart, (size_t)counts[here] * sizeof *whole) == 0);
    hash = hash_bytes(hash, whole, (size_t)counts[here] * sizeof *whole);
}

/* The root is as far ahead as it can be; what it sent must not change when it goes on. */
static void chain(MPI_Comm comm, int root, int count)
{
    for (int round = 0; round < 20; round++) {
        int here;
        MPI_Comm_rank(comm, &here);
        for (int i = 0; i < count; i++)
            mine[i] = here == root ? round * 1000 + i : -1;
        MPI_Bcast(mine, count, MPI_DOUBLE, root, comm);
        for (int i = 0; i < count; i++)
            CHECK(mine[i] == round * 1000 + i);
    }
}

static void pieces(MPI_Comm comm, int count)
{
    int here, members;
    MPI_Comm_rank(comm, &here);
    MPI_Comm_size(comm, &members);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count * members; i++)
            mine[i] = here * 1e6 + round * 1e5 + i;
        MPI_Alltoall(mine, count, MPI_DOUBLE, whole, count, MPI_DOUBLE, comm);
        MPI_Allgather(mine, count, MPI_DOUBLE, apart, count, MPI_DOUBLE, comm);
        memset(mine, 0, (size_t)(count * members) * sizeof *mine);
        for (int i = 0; i < count * members; i++) {
            CHECK(whole[i] == i / count * 1e6 + round * 1e5 + here * count + i % count);
            CHECK(apart[i] == i / count * 1e6 + round * 1e5 + i % count);
        }
    }
}

int main(int argc, char **argv)
{
    static const int counts[] = {0, 1, 2, 5, 120, 121, 1000, 3000, 8191, 8192, 8193, 20000, LONGEST};
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int members = 1; members <= size; members++) {
        MPI_Comm comm;
        /* In another order than in the world. */
        MPI_Comm_split(MPI_COMM_WORLD, rank < members ? 0 : MPI_UNDEFINED, (rank * 7) % size, &comm);
        for (int round = 0; comm != MPI_COMM_NULL && round < rounds; round++)
            for (int k = 0; k < (int)(sizeof counts / sizeof *counts); k++) {
                sums(comm, counts[k], (uint64_t)(round * 100 + k));
                shares(comm, counts[k], (uint64_t)(round * 100 + k));
                chain(comm, k % members, counts[k]);
                if (counts[k] * members <= LONGEST && counts[k] > 0)
                    pieces(comm, counts[k]);
            }
        if (comm != MPI_COMM_NULL)
            MPI_Comm_free(&comm);
    }
    /* All at once, and then each in the place of another. */
    for (int round = 0; round < rounds; round++) {
        MPI_Comm comms[COMMUNICATORS];
        for (int k = 0; k < COMMUNICATORS; k++)
            MPI_Comm_split(MPI_COMM_WORLD, (rank >> k % 3) % 2, rank, &comms[k]);
        for (int call = 0; call < 12; call++)
            for (int k = 0; k < COMMUNICATORS; k++) {
                double one = rank + k, sum;
                MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comms[k]);
                hash = hash_bytes(hash, &sum, sizeof sum);
            }
        for (int k = 0; k < COMMUNICATORS; k++)
            MPI_Comm_free(&comms[(k * 7 + round) % COMMUNICATORS]);
    }
    uint64_t *hashes = calloc((size_t)size, sizeof *hashes);
    MPI_Gather(&hash, 1, MPI_UINT64_T, hashes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int other = 0; rank == 0 && other < size; other++)
        printf("rank %d: %016llx\n", other, (unsigned long long)hashes[other]);
    free(hashes);
    MPI_Finalize();
    return 0;
}
