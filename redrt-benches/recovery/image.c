/* Holds memory and exchanges messages until a file is there: image MIB FILE, with 3 ranks. Rank 1 has MIB mebibytes
   that are not zero, which it reads and, in a small part, writes; it exchanges a number with rank 0 after each pass
   over a mebibyte. Rank 2 waits for the file. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, stop = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        fprintf(stderr, "usage: image MIB FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 2) {
        /* Replicas see the file at different times, and only wait for it. */
        while (access(argv[2], F_OK) != 0)
            usleep(2000);
        MPI_Send(&stop, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        MPI_Finalize();
        return 0;
    }
    size_t mebibytes = rank == 1 ? strtoul(argv[1], NULL, 10) : 1, words = mebibytes << 17;
    unsigned long *memory = malloc(words * sizeof *memory), sum = 0, got = 0;
    for (size_t i = 0; i < words; i++)
        memory[i] = i * 2654435761u + 1;
    for (size_t step = 0; !stop; step++) {
        for (size_t i = 0; i < 1 << 17; i++)
            sum += memory[(step % mebibytes << 17) + i];
        memory[step % 64] += 1;
        MPI_Sendrecv(&sum, 1, MPI_UNSIGNED_LONG, 1 - rank, 0, &got, 1, MPI_UNSIGNED_LONG, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0 && step == 1) {
            printf("computing\n");
            fflush(stdout);
        }
        if (rank == 0) {
            MPI_Iprobe(2, 9, MPI_COMM_WORLD, &stop, MPI_STATUS_IGNORE);
            MPI_Send(&stop, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&stop, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    if (rank == 0)
        MPI_Recv(&stop, 1, MPI_INT, 2, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
