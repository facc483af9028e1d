/* Collectives in a row and apart, nonblocking and persistent ones, windows of messages, and threads. One line for each
 * figure: name, unit, value.
 *
 *   rows [SECONDS [PREFIX [THREADS]]]
 *
 * Built against any MPI; measures nothing of its own. A slice is half a millisecond or more of one operation after the
 * other, and takes as long as the rank that takes longest. Where every rank has a core, a figure is the best slice that
 * was found in SECONDS, else the mean. Collectives apart have a barrier between two of them. Where every rank has a
 * core the barrier is not counted, and a figure is the mean of the ranks, as in osu_bcast. Where ranks share cores it
 * is counted, since the scheduler chooses which of the two calls a rank waits in. Two ranks take all figures, four
 * ranks on fewer cores those of collectives that are waited for at once and of one-way windows. With PREFIX only
 * figures whose name begins with it are taken. With THREADS ranks 0 and 1 have that many threads in MPI at once, and
 * these figures alone are taken. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT 1
#else
#define HAS_PERSISTENT 0
#endif

enum { STREAM = 64, ROUNDS_MAX = 1 << 22, BYTES_MAX = 4 << 20, RANKS_MAX = 8, THREADS_MAX = 8 };

static const double SLICE_SECONDS = 0.0005;

static int rank, size, shares_cores;
static double seconds = 0.1;
static const char *wanted = "";
static char *mine, *theirs;

enum operation { BARRIER, BCAST, REDUCE, ALLREDUCE, SCATTER, GATHER, ALLGATHER, ALLTOALL, REDUCE_SCATTER, SCAN };

static void block(enum operation operation, int bytes)
{
    switch (operation) {
    case BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case BCAST:
        MPI_Bcast(mine, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
        break;
    case REDUCE:
        MPI_Reduce(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
    case ALLREDUCE:
        MPI_Allreduce(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case SCATTER:
        MPI_Scatter(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
        break;
    case GATHER:
        MPI_Gather(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
        break;
    case ALLGATHER:
        MPI_Allgather(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, MPI_COMM_WORLD);
        break;
    case ALLTOALL:
        MPI_Alltoall(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case SCAN:
        MPI_Scan(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void begin(enum operation operation, int bytes, MPI_Request *request)
{
    switch (operation) {
    case BARRIER:
        MPI_Ibarrier(MPI_COMM_WORLD, request);
        break;
    case BCAST:
        MPI_Ibcast(mine, bytes, MPI_CHAR, 0, MPI_COMM_WORLD, request);
        break;
    case REDUCE:
        MPI_Ireduce(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, request);
        break;
    case ALLREDUCE:
        MPI_Iallreduce(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
        break;
    case SCATTER:
        MPI_Iscatter(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, 0, MPI_COMM_WORLD, request);
        break;
    case GATHER:
        MPI_Igather(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, 0, MPI_COMM_WORLD, request);
        break;
    case ALLGATHER:
        MPI_Iallgather(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, MPI_COMM_WORLD, request);
        break;
    case ALLTOALL:
        MPI_Ialltoall(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, MPI_COMM_WORLD, request);
        break;
    case REDUCE_SCATTER:
        MPI_Ireduce_scatter_block(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
        break;
    case SCAN:
        MPI_Iscan(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
    }
}

#if HAS_PERSISTENT
static void keep(enum operation operation, int bytes, MPI_Request *request)
{
    switch (operation) {
    case BARRIER:
        MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, request);
        break;
    case BCAST:
        MPI_Bcast_init(mine, bytes, MPI_CHAR, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request);
        break;
    case ALLTOALL:
        MPI_Alltoall_init(mine, bytes, MPI_CHAR, theirs, bytes, MPI_CHAR, MPI_COMM_WORLD, MPI_INFO_NULL, request);
        break;
    default:
        MPI_Allreduce_init(mine, theirs, bytes / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request);
    }
}
#endif

static void in_a_row(enum operation operation, int bytes, long rounds)
{
    for (long i = 0; i < rounds; i++)
        block(operation, bytes);
}

/* Seconds that this rank was in the operations of a slice of `apart`. */
static double seconds_inside;

static void apart(enum operation operation, int bytes, long rounds)
{
    seconds_inside = 0;
    for (long i = 0; i < rounds; i++) {
        double start = MPI_Wtime();
        block(operation, bytes);
        seconds_inside += MPI_Wtime() - start;
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void post_and_wait(enum operation operation, int bytes, long rounds)
{
    MPI_Request request;
    for (long i = 0; i < rounds; i++) {
        begin(operation, bytes, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Seconds of computation between two calls: about as long as the operation. */
static double computation;

static void compute(void)
{
    double end = MPI_Wtime() + computation;
    while (MPI_Wtime() < end)
        ;
}

static void post_compute_wait(enum operation operation, int bytes, long rounds)
{
    MPI_Request request;
    for (long i = 0; i < rounds; i++) {
        begin(operation, bytes, &request);
        compute();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void start_and_wait(enum operation operation, int bytes, long rounds)
{
#if HAS_PERSISTENT
    MPI_Request request;
    keep(operation, bytes, &request);
    for (long i = 0; i < rounds; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
#else
    (void)operation, (void)bytes, (void)rounds;
#endif
}

/* The first half of the ranks sends to the other half, like osu_bw and osu_mbw_mr. */
static void one_way(enum operation operation, int bytes, long rounds)
{
    MPI_Request requests[STREAM];
    int is_sender = rank < size / 2, peer = is_sender ? rank + size / 2 : rank - size / 2;
    char answer = 0;
    (void)operation;
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < STREAM; k++)
            if (is_sender)
                MPI_Isend(mine, bytes, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(theirs, bytes, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests[k]);
        MPI_Waitall(STREAM, requests, MPI_STATUSES_IGNORE);
        if (is_sender)
            MPI_Recv(&answer, 1, MPI_CHAR, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 1, MPI_CHAR, peer, 2, MPI_COMM_WORLD);
    }
}

/* The same with persistent requests, like osu_bw_persistent. */
static void persistent_one_way(enum operation operation, int bytes, long rounds)
{
    MPI_Request requests[STREAM];
    int is_sender = rank < size / 2, peer = is_sender ? rank + size / 2 : rank - size / 2;
    char answer = 0;
    (void)operation;
    for (int k = 0; k < STREAM; k++)
        if (is_sender)
            MPI_Send_init(mine, bytes, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests[k]);
        else
            MPI_Recv_init(theirs, bytes, MPI_CHAR, peer, 1, MPI_COMM_WORLD, &requests[k]);
    for (long i = 0; i < rounds; i++) {
        MPI_Startall(STREAM, requests);
        MPI_Waitall(STREAM, requests, MPI_STATUSES_IGNORE);
        if (is_sender)
            MPI_Recv(&answer, 1, MPI_CHAR, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 1, MPI_CHAR, peer, 2, MPI_COMM_WORLD);
    }
    for (int k = 0; k < STREAM; k++)
        MPI_Request_free(&requests[k]);
}

static void both_ways(enum operation operation, int bytes, long rounds)
{
    MPI_Request requests[2 * STREAM];
    (void)operation;
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < STREAM; k++)
            MPI_Irecv(theirs, bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, &requests[k]);
        for (int k = 0; k < STREAM; k++)
            MPI_Isend(mine, bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, &requests[STREAM + k]);
        MPI_Waitall(2 * STREAM, requests, MPI_STATUSES_IGNORE);
    }
}

static int thread_count;

struct thread {
    int number, bytes;
    long rounds;
};

static void *play(void *argument)
{
    const struct thread *thread = argument;
    char *buffer = mine + (size_t)thread->number * (BYTES_MAX / THREADS_MAX);
    for (long i = 0; i < thread->rounds; i++)
        for (int half = 0; half < 2; half++)
            if (half == rank)
                MPI_Send(buffer, thread->bytes, MPI_CHAR, 1 - rank, thread->number, MPI_COMM_WORLD);
            else
                MPI_Recv(buffer, thread->bytes, MPI_CHAR, 1 - rank, thread->number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

/* A ping-pong between threads of the same number. */
static void threads(enum operation operation, int bytes, long rounds)
{
    pthread_t ids[THREADS_MAX];
    struct thread threads[THREADS_MAX];
    (void)operation;
    for (int k = 0; k < thread_count; k++) {
        threads[k] = (struct thread){k, bytes, rounds};
        pthread_create(&ids[k], NULL, play, &threads[k]);
    }
    for (int k = 0; k < thread_count; k++)
        pthread_join(ids[k], NULL);
}

struct figure {
    const char *name;
    void (*rounds)(enum operation, int, long);
    enum operation operation;
    int operations;
    int bytes[8];
};

static const struct figure FIGURES[] = {
    {"bcast", in_a_row, BCAST, 1, {4, 64, 1024, 16384, 65536, 1 << 20}},
    {"reduce", in_a_row, REDUCE, 1, {4, 64, 1024, 16384, 65536, 1 << 20}},
    {"allreduce", in_a_row, ALLREDUCE, 1, {4, 64, 1024, 16384, 65536, 1 << 20}},
    {"scatter", in_a_row, SCATTER, 1, {4, 64, 1024, 16384, 65536, 1 << 20}},
    {"gather", in_a_row, GATHER, 1, {4, 64, 1024, 16384, 65536, 1 << 20}},
    {"allgather", in_a_row, ALLGATHER, 1, {4, 64, 1024, 16384, 65536}},
    {"alltoall", in_a_row, ALLTOALL, 1, {4, 64, 1024, 16384, 65536}},
    {"reduce-scatter", in_a_row, REDUCE_SCATTER, 1, {4, 64, 1024, 16384, 65536}},
    {"scan", in_a_row, SCAN, 1, {4, 1024, 65536}},
    {"apart-bcast", apart, BCAST, 1, {4, 64, 1024, 4096, 8192, 16384, 65536}},
    {"apart-reduce", apart, REDUCE, 1, {4, 64, 1024, 4096, 8192, 65536}},
    {"apart-allreduce", apart, ALLREDUCE, 1, {4, 64, 1024, 4096, 8192, 65536}},
    {"apart-scatter", apart, SCATTER, 1, {4, 64, 1024, 4096, 8192, 65536}},
    {"apart-gather", apart, GATHER, 1, {4, 64, 1024, 4096, 8192, 65536}},
    {"apart-allgather", apart, ALLGATHER, 1, {4, 64, 1024, 4096, 8192, 65536}},
    {"apart-alltoall", apart, ALLTOALL, 1, {4, 64, 1024, 4096, 8192, 65536}},
    {"ibarrier", post_and_wait, BARRIER, 1, {1}},
    {"ibcast", post_and_wait, BCAST, 1, {4, 1024, 65536, 1 << 20}},
    {"iallreduce", post_and_wait, ALLREDUCE, 1, {4, 1024, 65536, 1 << 20}},
    {"iscatter", post_and_wait, SCATTER, 1, {4, 1024, 65536}},
    {"igather", post_and_wait, GATHER, 1, {4, 1024, 65536}},
    {"iallgather", post_and_wait, ALLGATHER, 1, {4, 1024, 65536}},
    {"ialltoall", post_and_wait, ALLTOALL, 1, {4, 1024, 65536}},
    {"ireduce-scatter", post_and_wait, REDUCE_SCATTER, 1, {4, 1024, 65536}},
    {"overlap-iallreduce", post_compute_wait, ALLREDUCE, 1, {4, 1024, 65536, 1 << 20}},
    {"overlap-ibcast", post_compute_wait, BCAST, 1, {4, 1024, 65536, 1 << 20}},
    {"overlap-ialltoall", post_compute_wait, ALLTOALL, 1, {4, 1024, 65536}},
    {"persistent-barrier", start_and_wait, BARRIER, 1, {1}},
    {"persistent-bcast", start_and_wait, BCAST, 1, {4, 1024, 65536}},
    {"persistent-allreduce", start_and_wait, ALLREDUCE, 1, {4, 1024, 65536}},
    {"persistent-alltoall", start_and_wait, ALLTOALL, 1, {4, 1024, 65536}},
    {"one-way-of-64", one_way, BARRIER, STREAM, {8, 1024, 8192, 65536, 1 << 18}},
    {"persistent-one-way-of-64", persistent_one_way, BARRIER, STREAM, {8, 64, 512, 2048, 8192, 65536}},
    {"both-ways-of-64", both_ways, BARRIER, STREAM, {1, 8, 64, 1024, 4096, 8192, 65536}},
    {"threads", threads, BARRIER, 2, {8, 1024, 65536}},
};

static int is_wanted(const struct figure *figure)
{
    if (strncmp(figure->name, wanted, strlen(wanted)) != 0 || (figure->rounds == threads) != (thread_count > 0))
        return 0;
    if (figure->rounds == start_and_wait && !HAS_PERSISTENT)
        return 0;
    return size == 2 || figure->rounds == in_a_row || figure->rounds == apart || figure->rounds == post_and_wait
        || figure->rounds == one_way || figure->rounds == persistent_one_way;
}

/* Time of a slice at the rank that takes longest; of operations apart on cores of their own, the mean of the ranks. */
static double slice(const struct figure *figure, int bytes, long rounds)
{
    double elapsed, longest, sum;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    figure->rounds(figure->operation, bytes, rounds);
    elapsed = MPI_Wtime() - start;
    if (figure->rounds == apart && !shares_cores) {
        MPI_Allreduce(&seconds_inside, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return sum / size;
    }
    MPI_Allreduce(&elapsed, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

/* Seconds for a round. */
static double measure(const struct figure *figure, int bytes, double for_seconds)
{
    long rounds = 1, count = 0;
    double best = 0, total = 0, elapsed;
    do {
        rounds *= 2;
        elapsed = slice(figure, bytes, rounds);
    } while (elapsed < SLICE_SECONDS && rounds < ROUNDS_MAX);
    best = elapsed / (double)rounds;
    while (total < for_seconds) {
        elapsed = slice(figure, bytes, rounds);
        total += elapsed;
        count += rounds;
        if (elapsed / (double)rounds < best)
            best = elapsed / (double)rounds;
    }
    return shares_cores ? total / (double)count : best;
}

static void report(const struct figure *figure, int bytes)
{
    if (figure->rounds != post_compute_wait) {
        double found = measure(figure, bytes, seconds);
        if (rank == 0)
            printf("%s-%d us %.4f\n", figure->name, bytes, found / figure->operations * 1e6);
        return;
    }
    struct figure alone = *figure;
    alone.rounds = post_and_wait;
    computation = measure(&alone, bytes, seconds / 2);
    double found = measure(figure, bytes, seconds);
    if (rank == 0)
        printf("%s-%d x %.4f\n", figure->name, bytes, found / computation);
}

int main(int argc, char **argv)
{
    int provided;
    thread_count = argc > 3 ? atoi(argv[3]) : 0;
    MPI_Init_thread(&argc, &argv, thread_count > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        seconds = atof(argv[1]);
    if (argc > 2)
        wanted = argv[2];
    if (size % 2 != 0 || size > RANKS_MAX || thread_count > THREADS_MAX || (thread_count > 0 && size != 2)) {
        fprintf(stderr, "rows: an even number of ranks up to %d, with threads 2 of them and up to %d threads\n", RANKS_MAX,
                THREADS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    shares_cores = size * (thread_count > 0 ? thread_count : 1) > sysconf(_SC_NPROCESSORS_ONLN);
    mine = calloc(RANKS_MAX, BYTES_MAX);
    theirs = malloc((size_t)RANKS_MAX * BYTES_MAX);
    memset(theirs, 0, (size_t)RANKS_MAX * BYTES_MAX);
    for (size_t k = 0; k < sizeof FIGURES / sizeof *FIGURES; k++)
        for (const int *bytes = FIGURES[k].bytes; *bytes != 0 && is_wanted(&FIGURES[k]); bytes++)
            report(&FIGURES[k], *bytes);
    free(mine);
    free(theirs);
    MPI_Finalize();
    return 0;
}
