/* Collectives give the same sums, bit for bit, in messages and over boards (docs/performance/collectives.md),
 * blocking and nonblocking, while boards come and go: short and long operands in groups of all sizes, roots that run
 * ahead, buffers that change as soon as a call has returned, many operations under way at once and waited for in any
 * order, and more communicators and persistent operations than there are boards, at once and one after the other.
 *
 *   boards [ROUNDS [PARTS]]
 *
 * A round runs one of PARTS parts (1) of that, each round another one. */
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

/* The first operations of a communicator go in messages, and so do the first nonblocking ones. */
static void sums(MPI_Comm comm, int count, uint64_t seed)
{
    int in_place = seed % 2, members, here;
    MPI_Request request;
    MPI_Comm fresh;
    MPI_Comm_size(comm, &members);
    MPI_Comm_dup(comm, &fresh);
    fill(seed, count);
    MPI_Iallreduce(mine, apart, count, MPI_DOUBLE, MPI_SUM, fresh, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iallreduce(mine, whole, count, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    MPI_Comm_rank(comm, &here);
    memset(apart, 0, (size_t)count * sizeof *apart);
    memset(whole, 0, (size_t)count * sizeof *whole);
    MPI_Iexscan(mine, apart, count, MPI_DOUBLE, MPI_SUM, fresh, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (in_place && here > 0)
        memcpy(whole, mine, (size_t)count * sizeof *whole);
    MPI_Exscan(in_place && here > 0 ? MPI_IN_PLACE : mine, whole, count, MPI_DOUBLE, MPI_SUM, comm);
    CHECK(memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    MPI_Iscan(mine, apart, count, MPI_DOUBLE, MPI_SUM, fresh, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&fresh);
    MPI_Scan(mine, whole, count, MPI_DOUBLE, MPI_SUM, comm);
    CHECK(memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    memcpy(whole, mine, (size_t)count * sizeof *mine);
    MPI_Iscan(MPI_IN_PLACE, whole, count, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    MPI_Allreduce(mine, apart, count, MPI_DOUBLE, MPI_SUM, comm);
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
        CHECK(here != root || memcmp(whole, apart, (size_t)count * sizeof *whole) == 0);
    }
}

/* The members' stretches differ in length; the last one has the remainder. */
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

/* The root runs ahead as far as it can; its next step must not change bytes that it sent. */
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
    MPI_Request requests[2];
    MPI_Comm_rank(comm, &here);
    MPI_Comm_size(comm, &members);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < count * members; i++)
            mine[i] = here * 1e6 + round * 1e5 + i;
        if (round % 2) {
            MPI_Ialltoall(mine, count, MPI_DOUBLE, whole, count, MPI_DOUBLE, comm, &requests[0]);
            MPI_Iallgather(mine, count, MPI_DOUBLE, apart, count, MPI_DOUBLE, comm, &requests[1]);
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        } else {
            MPI_Alltoall(mine, count, MPI_DOUBLE, whole, count, MPI_DOUBLE, comm);
            MPI_Allgather(mine, count, MPI_DOUBLE, apart, count, MPI_DOUBLE, comm);
        }
        memset(mine, 0, (size_t)(count * members) * sizeof *mine);
        for (int i = 0; i < count * members; i++) {
            CHECK(whole[i] == i / count * 1e6 + round * 1e5 + here * count + i % count);
            CHECK(apart[i] == i / count * 1e6 + round * 1e5 + i % count);
        }
    }
}

/* From a root to all and back. Operations in a row have different bytes, and the sender runs ahead. */
static void rooted(MPI_Comm comm, int root, int count)
{
    int here, members;
    MPI_Comm_rank(comm, &here);
    MPI_Comm_size(comm, &members);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < count * members && here == root; i++)
            mine[i] = round * 1e5 + i;
        MPI_Scatter(mine, count, MPI_DOUBLE, here == root && round % 2 ? MPI_IN_PLACE : apart, count, MPI_DOUBLE, root,
                    comm);
        for (int i = 0; i < count && (here != root || round % 2 == 0); i++)
            CHECK(apart[i] == round * 1e5 + here * count + i);
        for (int i = 0; i < count; i++)
            mine[i] = here * 1e6 + round * 1e5 + i;
        MPI_Gather(mine, count, MPI_DOUBLE, whole, count, MPI_DOUBLE, root, comm);
        memset(mine, 0, (size_t)count * sizeof *mine);
        for (int i = 0; i < count * members && here == root; i++)
            CHECK(whole[i] == i / count * 1e6 + round * 1e5 + i % count);
    }
}

/* Each of many operations under way has its own bytes, in whatever order they are waited for. */
static void at_once(MPI_Comm comm, int count, uint64_t seed)
{
    enum { MANY = 24 };
    MPI_Request requests[MANY];
    int here, members, room = LONGEST / MANY, flag;
    MPI_Comm_rank(comm, &here);
    MPI_Comm_size(comm, &members);
    count = count < room ? count : room;
    for (int k = 0; k < MANY; k++) {
        double *out = mine + k * room, *in = apart + k * room;
        for (int i = 0; i < count; i++)
            out[i] = k % 3 == 1 && here != k % members ? -1 : k * 1000 + i;
        if (k % 3 == 0)
            MPI_Iallreduce(out, in, count, MPI_DOUBLE, MPI_SUM, comm, &requests[k]);
        else if (k % 3 == 1)
            MPI_Ibcast(out, count, MPI_DOUBLE, k % members, comm, &requests[k]);
        else
            MPI_Ibarrier(comm, &requests[k]);
    }
    /* A blocking operation between them. */
    MPI_Barrier(comm);
    MPI_Test(&requests[seed % MANY], &flag, MPI_STATUS_IGNORE);
    for (int k = 0; k < MANY; k++)
        MPI_Wait(&requests[(k * 7 + (int)seed) % MANY], MPI_STATUS_IGNORE);
    for (int k = 0; k < MANY; k++)
        for (int i = 0; i < count && k % 3 != 2; i++)
            CHECK(k % 3 == 0 ? apart[k * room + i] == members * (k * 1000.0 + i) : mine[k * room + i] == k * 1000 + i);
}

/* More persistent operations than there are boards; each member starts them in another order. */
static void persistent(MPI_Comm comm, int rounds)
{
    enum { MANY = 20 };
    MPI_Request requests[MANY];
    int here, members;
    MPI_Comm_rank(comm, &here);
    MPI_Comm_size(comm, &members);
    for (int k = 0; k < MANY; k++)
        if (k % 2)
            MPI_Bcast_init(&mine[k], 1, MPI_DOUBLE, k % members, comm, MPI_INFO_NULL, &requests[k]);
        else
            MPI_Allreduce_init(&mine[k], &whole[k], 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &requests[k]);
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < MANY; k++)
            mine[k] = k % 2 && here != k % members ? -1 : round * 100 + k;
        for (int k = 0; k < MANY; k++)
            MPI_Start(&requests[(k + here * 3 + round) % MANY]);
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < MANY; k++)
            CHECK(k % 2 ? mine[k] == round * 100 + k : whole[k] == members * (round * 100.0 + k));
    }
    for (int k = 0; k < MANY; k++)
        MPI_Request_free(&requests[k]);
}

int main(int argc, char **argv)
{
    static const int counts[] = {0, 1, 2, 5, 120, 121, 1000, 3000, 8191, 8192, 8193, 20000, LONGEST};
    int rounds = argc > 1 ? atoi(argv[1]) : 3, parts = argc > 2 ? atoi(argv[2]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int members = 1; members <= size; members++) {
        MPI_Comm comm;
        /* Ranks in another order than in the world. */
        MPI_Comm_split(MPI_COMM_WORLD, rank < members ? 0 : MPI_UNDEFINED, (rank * 7) % size, &comm);
        for (int round = 0; comm != MPI_COMM_NULL && round < rounds; round++)
            for (int k = round % parts; k < (int)(sizeof counts / sizeof *counts); k += parts) {
                sums(comm, counts[k], (uint64_t)(round * 100 + k));
                shares(comm, counts[k], (uint64_t)(round * 100 + k));
                chain(comm, k % members, counts[k]);
                at_once(comm, counts[k], (uint64_t)(round + k));
                if (counts[k] * members <= LONGEST && counts[k] > 0) {
                    pieces(comm, counts[k]);
                    rooted(comm, k % members, counts[k]);
                }
            }
        if (comm != MPI_COMM_NULL)
            persistent(comm, (8 * rounds + parts - 1) / parts);
        if (comm != MPI_COMM_NULL)
            MPI_Comm_free(&comm);
    }
    /* All at once, and then each in the place of another. */
    for (int round = 0; round < rounds; round++) {
        MPI_Comm comms[COMMUNICATORS];
        for (int k = 0; k < COMMUNICATORS; k++)
            MPI_Comm_split(MPI_COMM_WORLD, (rank >> k % 3) % 2, rank, &comms[k]);
        for (int call = round % parts; call < 12; call += parts)
            for (int k = 0; k < COMMUNICATORS; k++) {
                double one = rank + k, sum, again;
                MPI_Request request;
                MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comms[k]);
                hash = hash_bytes(hash, &sum, sizeof sum);
                MPI_Iallreduce(&one, &again, 1, MPI_DOUBLE, MPI_SUM, comms[k], &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                CHECK(again == sum);
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
