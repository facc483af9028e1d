/* Counts in a file under a lock: locked FILE WHICH COUNT [GATE]. Each rank reads a number, adds one and writes it
   back, COUNT times, and then until there is a file GATE, under fcntl, lockf, flock, or a lock of the open file
   (ofd). Before each time it is in an allreduce. The last line is the file's number, without the counts after COUNT. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void check(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void lock(const char *which, int file, int takes) {
    struct flock range = {.l_type = takes ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET, .l_len = 16};
    if (!strcmp(which, "fcntl"))
        check(fcntl(file, F_SETLKW, &range) == 0, which);
    else if (!strcmp(which, "ofd"))
        check(fcntl(file, F_OFD_SETLKW, &range) == 0, which);
    else if (!strcmp(which, "flock"))
        check(flock(file, takes ? LOCK_EX : LOCK_UN) == 0, which);
    else
        check(lseek(file, 0, SEEK_SET) == 0 && lockf(file, takes ? F_LOCK : F_ULOCK, 0) == 0, which);
}

int main(int argc, char **argv) {
    int rank, count = atoi(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int file = open(argv[1], O_RDWR | O_CREAT, 0644);
    check(file >= 0, argv[1]);
    int step = 0;
    for (int goes_on = 1;; step++) {
        char text[16] = "0";
        int waits = rank == 0 && argc > 4 && access(argv[4], F_OK) != 0;
        MPI_Allreduce(&waits, &goes_on, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (step >= count && !goes_on)
            break;
        if (step == 10 && rank == 0) {
            printf("counting\n");
            fflush(stdout);
        }
        lock(argv[2], file, 1);
        check(pread(file, text, sizeof text, 0) >= 0, "pread");
        snprintf(text, sizeof text, "%d", atoi(text) + 1);
        check(pwrite(file, text, sizeof text, 0) == sizeof text, "pwrite");
        lock(argv[2], file, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        char text[16] = "";
        check(pread(file, text, sizeof text, 0) > 0, "pread");
        printf("%d\n", atoi(text) - 2 * (step - count));
    }
    MPI_Finalize();
    return 0;
}
