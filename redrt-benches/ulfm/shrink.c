/* Time in which Open MPI 5 with ULFM goes on after a death: of three ranks the last kills itself; the others wait in a
   reduction, get an error, revoke the communicator, shrink it and reduce again. Prints the milliseconds from the death
   to the end of that reduction. */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    int rank, one = 1, sum;
    double died = 0;
    MPI_Comm left;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 20; i++)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    /* All processes are on one machine and have one clock. */
    died = now_ms();
    MPI_Bcast(&died, 1, MPI_DOUBLE, 2, MPI_COMM_WORLD);
    if (rank == 2) {
        usleep(200000);
        FILE *file = fopen(argv[1], "w");
        fprintf(file, "%f\n", now_ms());
        fclose(file);
        raise(SIGKILL);
    }
    int error = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    double heard = now_ms();
    MPIX_Comm_revoke(MPI_COMM_WORLD);
    MPIX_Comm_shrink(MPI_COMM_WORLD, &left);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, left);
    double done = now_ms();
    if (rank == 0) {
        FILE *file = fopen(argv[1], "r");
        if (!file || fscanf(file, "%lf", &died) != 1 || error == MPI_SUCCESS)
            return 1;
        printf("%.2f %.2f\n", heard - died, done - died);
    }
    MPI_Finalize();
    return 0;
}
