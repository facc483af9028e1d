/* Sends the messages that redrt-tests/cases/profile.rs expects: known FILE
 *
 * Rank i of n sends i + 1 messages of 100 + i longs to the next rank, and one of 100000 + i bytes to the rank after
 * that. Then rank 0 waits for FILE, if one is named, while all others wait in a receive; and all send the same once
 * more. */
#include "../programs/check.h"
#include <unistd.h>

#define LONG_BYTES 100000

static void exchange(int rank, int size)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int second = (rank + 2) % size, second_last = (rank + size - 2) % size;
    static long out[200], in[200];
    static char large[LONG_BYTES + 200], larger[LONG_BYTES + 200];
    MPI_Request requests[2];
    for (int i = 0; i <= rank; i++)
        MPI_Send(out, 100 + rank, MPI_LONG, next, 1, MPI_COMM_WORLD);
    for (int i = 0; i <= last; i++)
        MPI_Recv(in, 200, MPI_LONG, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Irecv(larger, LONG_BYTES + 200, MPI_BYTE, second_last, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(large, LONG_BYTES + rank, MPI_BYTE, second, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    int rank, size;
    char word = 7;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    exchange(rank, size);
    if (rank == 0) {
        printf("waiting\n");
        fflush(stdout);
        if (argc > 1)
            while (access(argv[1], F_OK) != 0)
                usleep(10000);
        else
            usleep(400000);
        for (int to = 1; to < size; to++)
            MPI_Send(&word, 1, MPI_CHAR, to, 3, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&word, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    exchange(rank, size);
    MPI_Finalize();
    return 0;
}
