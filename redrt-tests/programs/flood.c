/* Very many short messages round a ring, with random lengths and contents, a window of them in flight, and a reduction
 * after each.
 *
 *   flood [ROUNDS] */
#include "check.h"

enum { WINDOW = 64, LONGEST = 96 };

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 100, right = (rank + 1) % size, left = (rank + size - 1) % size;
    static unsigned char out[WINDOW][LONGEST], in[WINDOW][LONGEST];
    uint64_t state = (uint64_t)rank, hash = HASH_START, sum = 0;
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[2 * WINDOW];
        MPI_Status statuses[2 * WINDOW];
        for (int k = 0; k < WINDOW; k++)
            MPI_Irecv(in[k], LONGEST, MPI_BYTE, left, k, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < WINDOW; k++) {
            uint64_t word = next_random(&state);
            for (int byte = 0; byte < 8; byte++)
                out[k][(word >> 32) % (LONGEST / 8) * 8 + (uint64_t)byte] = (unsigned char)(word >> 8 * byte);
            MPI_Isend(out[k], (int)(word % (LONGEST + 1)), MPI_BYTE, right, k, MPI_COMM_WORLD, &requests[WINDOW + k]);
        }
        MPI_Waitall(2 * WINDOW, requests, statuses);
        for (int k = 0; k < WINDOW; k++) {
            int length;
            MPI_Get_count(&statuses[k], MPI_BYTE, &length);
            hash = hash_bytes(hash, in[k], (size_t)length);
        }
        MPI_Allreduce(&hash, &sum, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
        state ^= sum;
    }
    if (rank == 0)
        printf("%016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
