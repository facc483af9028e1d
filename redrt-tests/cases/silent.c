/* Rank 0 waits for a message from rank 1 before any link is open: silent FILE
 *
 * Rank 1 sends it when FILE is there. */
#include "../programs/check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(argc == 2);
    if (rank == 1) {
        printf("computing\n");
        fflush(stdout);
        while (access(argv[1], F_OK) != 0)
            usleep(10000);
        word = 7;
        MPI_Send(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%d\n", word);
    }
    MPI_Finalize();
    return 0;
}
