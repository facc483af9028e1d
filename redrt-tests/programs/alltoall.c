/* A storm of alltoallv with seeded random lengths, over the world and over halves of it, blocking and not.
 *
 *   alltoall [ROUNDS [LONGEST]] */
#include "check.h"

static uint64_t hash = HASH_START;

static void storm(MPI_Comm comm, int rounds, int longest, uint64_t seed)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *lengths = malloc((size_t)size * (size_t)size * sizeof *lengths), *out = malloc(4 * (size_t)size * sizeof *out);
    int *in = out + size, *out_at = in + size, *in_at = out_at + size;
    char *sent = malloc((size_t)size * (size_t)longest), *got = malloc((size_t)size * (size_t)longest);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < size * size; i++)
            lengths[i] = (int)(next_random(&seed) % (uint64_t)longest);
        int sending = 0, receiving = 0;
        for (int k = 0; k < size; k++) {
            out[k] = lengths[rank * size + k];
            in[k] = lengths[k * size + rank];
            out_at[k] = sending;
            in_at[k] = receiving;
            sending += out[k];
            receiving += in[k];
        }
        uint64_t fill = seed ^ (uint64_t)rank;
        for (int i = 0; i < sending; i++)
            sent[i] = (char)next_random(&fill);
        if (round % 3 == 0) {
            MPI_Alltoallv(sent, out, out_at, MPI_CHAR, got, in, in_at, MPI_CHAR, comm);
        } else {
            MPI_Request requests[3];
            double value = rank + 0.1 * round, sum;
            MPI_Ibarrier(comm, &requests[0]);
            MPI_Iallreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, comm, &requests[1]);
            MPI_Ialltoallv(sent, out, out_at, MPI_CHAR, got, in, in_at, MPI_CHAR, comm, &requests[2]);
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
            hash = hash_bytes(hash, &sum, sizeof sum);
        }
        hash = hash_bytes(hash, got, (size_t)receiving);
    }
    free(lengths);
    free(out);
    free(sent);
    free(got);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 24, longest = argc > 2 ? atoi(argv[2]) : 20000;
    storm(MPI_COMM_WORLD, rounds, longest, 1);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    storm(half, rounds, longest, (uint64_t)(rank % 2) + 2);
    MPI_Comm_free(&half);
    uint64_t total = 0;
    MPI_Reduce(&hash, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("storm %016llx\n", (unsigned long long)total);
    MPI_Finalize();
    return 0;
}
