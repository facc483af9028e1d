/* Prints lines that depend on the clock, or do not: clocked DIRECTORY clock|same. Each rank prints some, begins one, and
   waits for the file DIRECTORY/begin; prints the rest of that and more, and waits for DIRECTORY/end; prints some more.
   Standard error is given the same text. Each line says at its end what it says at its begin, so that one which is
   joined from two shows. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, is_clock;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return is_clock ? time.tv_sec * 1000000000LL + time.tv_nsec : 0;
}

static void line(FILE *to, int number) {
    long long at = now();
    /* The width differs from time to time. */
    int width = (int)(at / 1000 % 40);
    fprintf(to, "rank %d line %d at %lld %*s%lld %d\n", rank, number, at, width, "", at, number);
}

static void wait_for(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    fflush(stdout);
    while (access(path, F_OK) != 0)
        usleep(2000);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_clock = argc > 2 && strcmp(argv[2], "clock") == 0;
    for (int number = 0; number < 100; number++) {
        line(stdout, number);
        line(stderr, number);
    }
    printf("rank %d line 100 ", rank);
    fprintf(stderr, "rank %d line 100 ", rank);
    wait_for(argv[1], "begin");
    long long at = now();
    printf("at %lld %lld 100\n", at, at);
    fprintf(stderr, "at %lld %lld 100\n", at, at);
    for (int number = 101; number < 300; number++) {
        line(stdout, number);
        line(stderr, number);
    }
    wait_for(argv[1], "end");
    for (int number = 300; number < 400; number++) {
        line(stdout, number);
        line(stderr, number);
    }
    MPI_Finalize();
    return 0;
}
