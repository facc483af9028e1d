/* Prints lines that depend on the clock, in step with the other ranks: ticking ROUNDS [FILE]. With FILE, the lines
   are also written to a file of that name and the rank's number. When standard input is a file, a number is read
   from it in each round. Each line has the same text at its end as at its begin, which shows a line joined from two. */
#include "../programs/check.h"
#include <sys/stat.h>
#include <time.h>

/* Output is flushed once in this number of rounds, which cuts it within lines. */
enum { ROUNDS_PER_FLUSH = 7 };

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 100;
    char path[4096];
    struct stat input;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FILE *file = NULL;
    if (argc > 2) {
        snprintf(path, sizeof path, "%s.%d", argv[2], rank);
        CHECK((file = fopen(path, "w")) != NULL);
    }
    int reads = fstat(0, &input) == 0 && S_ISREG(input.st_mode);
    for (int number = 0; number < rounds; number++) {
        long long at = now(), theirs;
        /* The width differs from time to time. */
        int width = (int)(at / 1000 % 40), read = number;
        printf("rank %d line %d at %lld %*s%lld %d\n", rank, number, at, width, "", at, number);
        if (file)
            fprintf(file, "rank %d line %d at %lld %*s%lld %d\n", rank, number, at, width, "", at, number);
        if (reads)
            CHECK(scanf("%d", &read) == 1);
        CHECK(read == number);
        if (number % ROUNDS_PER_FLUSH == 0)
            CHECK(fflush(stdout) == 0 && (!file || fflush(file) == 0));
        MPI_Sendrecv(&at, 1, MPI_LONG_LONG, (rank + 1) % size, number % 8, &theirs, 1, MPI_LONG_LONG,
                     (rank + size - 1) % size, number % 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(theirs > 0);
    }
    CHECK(!file || fclose(file) == 0);
    MPI_Finalize();
    return 0;
}
