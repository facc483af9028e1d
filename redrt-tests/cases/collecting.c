/* A program with a runtime that collects garbage at moments of its own in each replica, and measures the time for
 * that, as Guile does. The program reads processor time too, through the same function, and sends and prints a
 * result computed from it. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <time.h>
#include <x86intrin.h>

static double collected;

/* Reading of processor time, for both the runtime and the program. */
__attribute__((noinline)) static double used(void)
{
    clockid_t clock;
    struct timespec time;
    clock_getcpuclockid(0, &clock);
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void collect(void)
{
    struct rusage usage;
    double begin = used();
    getrusage(RUSAGE_THREAD, &usage);
    collected += used() - begin;
}

/* The processor's own counter, which is not agreed on, decides whether memory has run short. */
__attribute__((noinline)) static void allocate(void)
{
    if ((__rdtsc() >> 5) % 3 == 0)
        collect();
}

/* The program's own readings of several clocks. */
__attribute__((noinline)) static double measure(void)
{
    struct tms of;
    struct rusage usage;
    times(&of);
    getrusage(RUSAGE_SELF, &usage);
    allocate();
    return used() + clock() + of.tms_utime + usage.ru_utime.tv_usec;
}

int main(int argc, char **argv)
{
    int rank, size, flag;
    double sum = 0, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 400; round++) {
        allocate();
        sum += measure();
        allocate();
        MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        allocate();
        sum += measure() + MPI_Wtime();
        MPI_Sendrecv(&sum, 1, MPI_DOUBLE, (rank + 1) % size, 1, &all, 1, MPI_DOUBLE, (rank + size - 1) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += all;
        if (round % 100 == 0)
            printf("%d %.17g\n", rank, sum);
    }
    if (collected < 0)
        printf("a collection took less than no time\n");
    MPI_Finalize();
    return 0;
}
