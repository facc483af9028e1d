/* Large messages round a ring, in every send mode, contiguous and strided, several in flight.
 *
 *   ring [MEBIBYTES [LAPS]] */
#include "check.h"

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t words = (size_t)(argc > 1 ? atof(argv[1]) * 131072 : 131072);
    int laps = argc > 2 ? atoi(argv[2]) : 3, right = (rank + 1) % size, left = (rank + size - 1) % size;
    uint64_t *out = malloc(2 * words * sizeof *out), *in = malloc(2 * words * sizeof *in), state = (uint64_t)rank;
    uint64_t hash = HASH_START;
    MPI_Datatype strided;
    MPI_Type_vector((int)words, 1, 2, MPI_UINT64_T, &strided);
    MPI_Type_commit(&strided);
    for (size_t i = 0; i < 2 * words; i++)
        out[i] = next_random(&state);
    for (int lap = 0; lap < laps; lap++) {
        MPI_Request requests[4];
        memset(in, 0, 2 * words * sizeof *in);
        MPI_Irecv(in, (int)words / 2, MPI_UINT64_T, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(in + words, (int)words / 2, MPI_UINT64_T, left, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(out + words, (int)words / 2, MPI_UINT64_T, right, 2, MPI_COMM_WORLD, &requests[2]);
        if (lap % 2)
            MPI_Issend(out, (int)words / 2, MPI_UINT64_T, right, 1, MPI_COMM_WORLD, &requests[3]);
        else
            MPI_Isend(out, (int)words / 2, MPI_UINT64_T, right, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        hash = hash_bytes(hash, in, 2 * words * sizeof *in);
        MPI_Status status;
        MPI_Sendrecv(out, 1, strided, right, 3, in, (int)words, MPI_UINT64_T, left, 3, MPI_COMM_WORLD, &status);
        int count;
        MPI_Get_count(&status, MPI_UINT64_T, &count);
        CHECK(count == (int)words);
        hash = hash_bytes(hash, in, words * sizeof *in);
        MPI_Sendrecv_replace(out, 1, strided, right, 4, left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Request persistent[2];
        MPI_Send_init(out, (int)words, MPI_UINT64_T, right, 5, MPI_COMM_WORLD, &persistent[0]);
        MPI_Recv_init(in, (int)words, MPI_UINT64_T, left, 5, MPI_COMM_WORLD, &persistent[1]);
        for (int again = 0; again < 2; again++) {
            MPI_Startall(2, persistent);
            MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE);
        }
        MPI_Request_free(&persistent[0]);
        MPI_Request_free(&persistent[1]);
        hash = hash_bytes(hash, in, words * sizeof *in);
    }
    uint64_t *all = malloc((size_t)size * sizeof *all);
    MPI_Gather(&hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < size; r++)
        printf("rank %d ring %016llx\n", r, (unsigned long long)all[r]);
    MPI_Type_free(&strided);
    free(out);
    free(in);
    free(all);
    MPI_Finalize();
    return 0;
}
