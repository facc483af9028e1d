/* Growth of costs. One line for each figure: name, value, unit.
 *
 *   growth begin                     starts, waits once for all, ends
 *   growth ranks SECONDS             memory of a process, latency between ranks 0 and 1 while others rest, a barrier
 *   growth unexpected DEPTH          DEPTH messages wait at rank 1 for receives that come late
 *   growth communicators COUNT       COUNT copies of MPI_COMM_WORLD
 *   growth retained DEPTH FILE       with two replicas: one of rank 1 begins to receive when its sibling has received
 *                                    DEPTH messages. FILE must not exist before
 *
 * Built against any MPI; measures nothing of its own. A latency is half a round trip of 8 bytes: the best of slices of
 * at most half a millisecond. Memory is the kernel's figure for a process with shared pages in equal parts (Pss). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLICES = 40, REVERSED_MAX = 200, COUNTED_MIN = 1000, PING = 1 << 20, PONG, LAST, ROUNDS_MAX = 512 };

static const double SLICE_SECONDS = 0.0005, SLICES_SECONDS_MAX = 1;

static int rank, size;

static void say(const char *name, double value, const char *unit)
{
    if (rank == 0)
        printf("%s %.4f %s\n", name, value, unit);
}

static long memory_kib(void)
{
    char line[256];
    long total = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "Pss:", 4))
            total = atol(line + 4);
    if (file)
        fclose(file);
    return total;
}

/* Memory of each object. With few objects, pages that they share with others would dominate. */
static void say_memory_of_each(double kib, int count)
{
    if (count >= COUNTED_MIN)
        say("memory", 1024 * kib / count, "B");
}

/* The mean over all processes. */
static void say_memory(const char *name)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double own = (double)memory_kib() / 1024, all = 0;
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    say(name, all / size, "MiB");
    MPI_Barrier(MPI_COMM_WORLD);
}

static double round_trips(MPI_Comm comm, long rounds)
{
    char bytes[8] = {0};
    double start = MPI_Wtime();
    for (long i = 0; i < rounds; i++)
        if (rank == 0) {
            MPI_Send(bytes, 8, MPI_CHAR, 1, PING, comm);
            MPI_Recv(bytes, 8, MPI_CHAR, 1, PONG, comm, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(bytes, 8, MPI_CHAR, 0, PING, comm, MPI_STATUS_IGNORE);
            MPI_Send(bytes, 8, MPI_CHAR, 0, PONG, comm);
        }
    return MPI_Wtime() - start;
}

/* Broadcasts rank 0's number between ranks 0 and 1. */
static long agreed(MPI_Comm comm, long number)
{
    if (rank == 0)
        MPI_Send(&number, 1, MPI_LONG, 1, PING, comm);
    else
        MPI_Recv(&number, 1, MPI_LONG, 0, PING, comm, MPI_STATUS_IGNORE);
    return number;
}

/* Latency in microseconds, between ranks 0 and 1 only. */
static double latency(MPI_Comm comm)
{
    long rounds = 1;
    double elapsed = round_trips(comm, rounds), best = 1e9;
    while (agreed(comm, elapsed < SLICE_SECONDS && rounds < ROUNDS_MAX)) {
        rounds *= 2;
        elapsed = round_trips(comm, rounds);
    }
    /* On a busy machine a round trip may take milliseconds. */
    double total = 0;
    for (int i = 0; agreed(comm, i < SLICES && total < SLICES_SECONDS_MAX); i++) {
        elapsed = round_trips(comm, rounds);
        total += elapsed;
        best = elapsed / (double)rounds < best ? elapsed / (double)rounds : best;
    }
    return 0.5e6 * best;
}

static void among_ranks(double seconds)
{
    char out = 0, in;
    say_memory("memory-begin");
    /* Every rank exchanges a message with every other. */
    for (int i = 1; i < size; i++)
        MPI_Sendrecv(&out, 1, MPI_CHAR, (rank + i) % size, LAST, &in, 1, MPI_CHAR, (rank + size - i) % size, LAST,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say_memory("memory-connected");
    if (rank < 2) {
        say("latency", latency(MPI_COMM_WORLD), "us");
    } else {
        /* The ranks rest outside of MPI: in it, some libraries would take the processor from ranks 0 and 1. */
        struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        nanosleep(&rest, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    long rounds = 1;
    double elapsed = 0;
    for (int more = 1; more; rounds *= 2) {
        double start = MPI_Wtime();
        for (long i = 0; i < rounds; i++)
            MPI_Barrier(MPI_COMM_WORLD);
        elapsed = (MPI_Wtime() - start) / (double)rounds;
        more = elapsed * (double)rounds < seconds;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    say("barrier", 1e6 * elapsed, "us");
}

static void unexpected(int depth)
{
    double number = 0, start;
    int last_first = depth < REVERSED_MAX ? depth : REVERSED_MAX;
    /* Costs of the first use are not part of the figure. */
    latency(MPI_COMM_WORLD);
    long before = memory_kib();
    if (rank == 0) {
        for (int i = 0; i < depth; i++)
            MPI_Send(&number, 1, MPI_DOUBLE, 1, i, MPI_COMM_WORLD);
        MPI_Send(&number, 1, MPI_DOUBLE, 1, LAST, MPI_COMM_WORLD);
        say("latency", latency(MPI_COMM_WORLD), "us");
        MPI_Recv(&number, 1, MPI_DOUBLE, 1, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        say("receive", number, "us");
        MPI_Recv(&number, 1, MPI_DOUBLE, 1, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        say_memory_of_each(number, depth);
        return;
    }
    /* All messages before it have arrived, and none was received. */
    MPI_Recv(&number, 1, MPI_DOUBLE, 0, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double memory = (double)(memory_kib() - before);
    latency(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int i = 1; i <= last_first; i++)
        MPI_Recv(&number, 1, MPI_DOUBLE, 0, depth - i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double each = 1e6 * (MPI_Wtime() - start) / last_first;
    for (int i = 0; i < depth - last_first; i++)
        MPI_Recv(&number, 1, MPI_DOUBLE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&each, 1, MPI_DOUBLE, 0, LAST, MPI_COMM_WORLD);
    MPI_Send(&memory, 1, MPI_DOUBLE, 0, LAST, MPI_COMM_WORLD);
}

static void communicators(int count)
{
    enum { TIMED_MAX = 10 };
    MPI_Comm *comms = malloc((size_t)count * sizeof *comms);
    int timed = count < TIMED_MAX ? count : TIMED_MAX;
    double best = 1e9;
    /* Costs of the first use are not part of the figure. */
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_free(&comms[0]);
    long before = memory_kib();
    for (int i = 0; i < count; i++) {
        double start = MPI_Wtime();
        if (MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 1);
        double elapsed = MPI_Wtime() - start;
        if (i >= count - timed)
            best = elapsed < best ? elapsed : best;
    }
    say("duplicate", 1e6 * best, "us");
    say_memory_of_each((double)(memory_kib() - before), count);
    say("latency", latency(comms[count - 1]), "us");
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++)
        MPI_Comm_free(&comms[i]);
    say("free", 1e6 * (MPI_Wtime() - start) / count, "us");
    free(comms);
}

/* True in the first replica of a rank. By the C library's calls, the replicas would agree on the
 * outcome. */
static int is_first(const char *path)
{
    long file = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file >= 0)
        syscall(SYS_close, file);
    return file >= 0;
}

static void retained(int depth, const char *path)
{
    enum { TIMED_MAX = 1000 };
    static char go[4096];
    double number = 0, start = 0;
    int timed = depth < TIMED_MAX ? depth : TIMED_MAX, is_fast;
    snprintf(go, sizeof go, "%s.go", path);
    MPI_Barrier(MPI_COMM_WORLD);
    long before = memory_kib();
    if (rank == 0) {
        for (int i = 0; i < depth; i++) {
            if (i == depth - timed)
                start = MPI_Wtime();
            MPI_Send(&number, 1, MPI_DOUBLE, 1, i, MPI_COMM_WORLD);
        }
        say("send", 1e6 * (MPI_Wtime() - start) / timed, "us");
        double kept = (double)(memory_kib() - before);
        MPI_Send(&number, 1, MPI_DOUBLE, 1, LAST, MPI_COMM_WORLD);
        MPI_Recv(&number, 1, MPI_DOUBLE, 1, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        say_memory_of_each(kept, depth);
        say("latency", latency(MPI_COMM_WORLD), "us");
        return;
    }
    is_fast = is_first(path);
    struct timespec moment = {0, 1000000};
    while (!is_fast && syscall(SYS_faccessat, AT_FDCWD, go, F_OK))
        syscall(SYS_nanosleep, &moment, NULL);
    for (int i = 0; i < depth; i++)
        MPI_Recv(&number, 1, MPI_DOUBLE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(&number, 1, MPI_DOUBLE, 0, LAST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (is_fast)
        is_first(go);
    MPI_Send(&number, 1, MPI_DOUBLE, 0, LAST, MPI_COMM_WORLD);
    latency(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "begin"))
        MPI_Barrier(MPI_COMM_WORLD);
    else if (argc == 4 && !strcmp(what, "retained") && size == 2)
        retained(atoi(argv[2]), argv[3]);
    else if (argc != 3)
        what = "";
    else if (!strcmp(what, "ranks") && size >= 2)
        among_ranks(atof(argv[2]));
    else if (!strcmp(what, "unexpected") && size == 2)
        unexpected(atoi(argv[2]));
    else if (!strcmp(what, "communicators") && size == 2)
        communicators(atoi(argv[2]));
    else
        what = "";
    if (!*what && rank == 0)
        fprintf(stderr, "usage: growth begin | ranks SECONDS | unexpected DEPTH | communicators COUNT | retained DEPTH FILE; "
                        "the last three with 2 ranks\n");
    MPI_Finalize();
    return *what ? 0 : 2;
}
