/* Allocated memory has the same addresses in all replicas, so addresses may be sent.
 *
 *   addresses [ROUNDS] */
#include "check.h"

enum { KEPT = 16, KINDS = 5 };

/* One block of each kind: from MPI and from the C library, small, of a page or so, and so large that it gets a
   mapping of its own. */
static void allocate(void *blocks[KINDS], int round)
{
    MPI_Alloc_mem(100 + round % 50, MPI_INFO_NULL, &blocks[0]);
    MPI_Alloc_mem(1 << 20, MPI_INFO_NULL, &blocks[1]);
    blocks[2] = malloc(40 + (size_t)(round % 7));
    blocks[3] = malloc(5000);
    /* More than the C library ever takes from its heap. */
    blocks[4] = malloc((size_t)33 << 20);
}

static void release(void *blocks[KINDS])
{
    MPI_Free_mem(blocks[0]);
    MPI_Free_mem(blocks[1]);
    for (int kind = 2; kind < KINDS; kind++)
        free(blocks[kind]);
}

int main(int argc, char **argv)
{
    static void *blocks[KEPT][KINDS];
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 40;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Aint mine[KINDS], *all = malloc(sizeof mine * (size_t)size);
    for (int round = 0; round < rounds; round++) {
        void **place = blocks[round % KEPT];
        if (round >= KEPT)
            release(place);
        allocate(place, round);
        for (int kind = 0; kind < KINDS; kind++)
            MPI_Get_address(place[kind], &mine[kind]);
        MPI_Allgather(mine, KINDS, MPI_AINT, all, KINDS, MPI_AINT, MPI_COMM_WORLD);
        for (int kind = 0; kind < KINDS; kind++)
            CHECK(all[rank * KINDS + kind] == mine[kind]);
    }
    if (rank == 0)
        printf("%d rounds\n", rounds);
    MPI_Finalize();
    return 0;
}
