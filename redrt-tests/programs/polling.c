/* Every rank sends to every other while it polls with Iprobe, Improbe, Test, Testsome and Testany; its next step
 * depends on the outcome of each poll. The sums do not.
 *
 *   polling [ROUNDS] */
#include "check.h"

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint64_t sum = 0, polls = 0, state = (uint64_t)rank + 1;
    for (int round = 0; round < rounds; round++) {
        MPI_Request *sends = malloc((size_t)size * sizeof *sends);
        uint64_t *out = malloc((size_t)size * sizeof *out);
        for (int to = 0; to < size; to++) {
            out[to] = next_random(&state) % 1000003;
            MPI_Isend(&out[to], 1, MPI_UINT64_T, to, round, MPI_COMM_WORLD, &sends[to]);
        }
        int left = size, flag = 0, found[4];
        while (left > 0) {
            MPI_Status status;
            MPI_Message message;
            uint64_t value = 0;
            int how = (int)(polls++ % 3);
            if (how == 0) {
                MPI_Iprobe(MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &flag, &status);
                if (flag)
                    MPI_Recv(&value, 1, MPI_UINT64_T, status.MPI_SOURCE, round, MPI_COMM_WORLD, &status);
            } else if (how == 1) {
                MPI_Improbe(MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &flag, &message, &status);
                if (flag)
                    MPI_Mrecv(&value, 1, MPI_UINT64_T, &message, &status);
            } else {
                MPI_Request one;
                int index;
                MPI_Irecv(&value, 1, MPI_UINT64_T, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &one);
                do
                    MPI_Testany(1, &one, &index, &flag, &status);
                while (!flag);
            }
            if (flag) {
                sum += value * (uint64_t)(status.MPI_SOURCE + 1);
                left--;
            }
        }
        for (left = size; left > 0;) {
            MPI_Testsome(size < 4 ? size : 4, sends, &flag, found, MPI_STATUSES_IGNORE);
            if (flag == MPI_UNDEFINED)
                break;
            left -= flag;
        }
        do
            MPI_Testall(size, sends, &flag, MPI_STATUSES_IGNORE);
        while (!flag);
        free(sends);
        free(out);
    }
    uint64_t total = 0;
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %016llx\n", (unsigned long long)total);
    MPI_Finalize();
    return 0;
}
