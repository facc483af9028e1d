/* One-sided communication between two ranks. One line for each figure: name, unit, value.
 *
 *   windows [SECONDS [PREFIX]]
 *
 * Built against any MPI; measures nothing of its own. Rank 0 reaches the memory of rank 1, which is in a barrier
 * meanwhile, unless both take part (fence, posts), or each reaches that of the other (both ways). A figure is the best
 * slice, of half a millisecond or more, that was found in SECONDS; a slice is the time of one operation. With PREFIX
 * only figures whose name begins with it are taken. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM = 64, ROUNDS_MAX = 1 << 22, BYTES_MAX = 4 << 20 };

static const double SLICE_SECONDS = 0.0005;

static int rank, target;
static double seconds = 0.2;
static const char *wanted = "";
static char *mine, *fetched, *memory;
static MPI_Win win;
static MPI_Group other;

enum kind { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP };

static void operate(enum kind kind, int bytes, MPI_Aint at)
{
    long result[2];
    if (kind == PUT)
        MPI_Put(mine, bytes, MPI_CHAR, target, at, bytes, MPI_CHAR, win);
    else if (kind == GET)
        MPI_Get(mine, bytes, MPI_CHAR, target, at, bytes, MPI_CHAR, win);
    else if (kind == ACCUMULATE)
        MPI_Accumulate(mine, bytes / 8, MPI_LONG, target, at, bytes / 8, MPI_LONG, MPI_SUM, win);
    else if (kind == GET_ACCUMULATE)
        MPI_Get_accumulate(mine, bytes / 8, MPI_LONG, fetched, bytes / 8, MPI_LONG, target, at, bytes / 8, MPI_LONG,
                           MPI_SUM, win);
    else if (kind == FETCH)
        MPI_Fetch_and_op(mine, result, MPI_LONG, target, at, MPI_SUM, win);
    else
        MPI_Compare_and_swap(mine, mine + 8, result, MPI_LONG, target, at, win);
}

static void flushed(enum kind kind, int bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        operate(kind, bytes, 0);
        MPI_Win_flush(target, win);
    }
}

static void streamed(enum kind kind, int bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < STREAM; k++)
            operate(kind, bytes, 0);
        MPI_Win_flush(target, win);
    }
}

static void locked(enum kind kind, int bytes, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
        operate(kind, bytes, 0);
        MPI_Win_unlock(target, win);
    }
}

static void fenced(enum kind kind, int bytes, long rounds)
{
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    for (long i = 0; i < rounds; i++) {
        if (rank == 0)
            operate(kind, bytes, 0);
        MPI_Win_fence(i + 1 < rounds ? 0 : MPI_MODE_NOSUCCEED, win);
    }
}

static void posted(enum kind kind, int bytes, long rounds)
{
    for (long i = 0; i < rounds; i++)
        if (rank == 0) {
            MPI_Win_start(other, 0, win);
            operate(kind, bytes, 0);
            MPI_Win_complete(win);
        } else {
            MPI_Win_post(other, 0, win);
            MPI_Win_wait(win);
        }
}

struct figure {
    const char *name;
    void (*rounds)(enum kind, int, long);
    enum kind kind;
    int operations, both;
    int bytes[8];
};

static const struct figure FIGURES[] = {
    {"put", flushed, PUT, 1, 0, {1, 8, 1024, 8192, 65536, 1 << 20, 4 << 20}},
    {"get", flushed, GET, 1, 0, {1, 8, 1024, 8192, 65536, 1 << 20, 4 << 20}},
    {"put-of-64", streamed, PUT, STREAM, 0, {8, 1024, 8192, 65536}},
    {"get-of-64", streamed, GET, STREAM, 0, {8, 1024, 8192, 65536}},
    {"put-of-64-both-ways", streamed, PUT, STREAM, 1, {8, 512, 2048, 8192, 65536}},
    {"accumulate", flushed, ACCUMULATE, 1, 0, {8, 1024, 8192, 16384, 65536, 1 << 20}},
    {"get-accumulate", flushed, GET_ACCUMULATE, 1, 0, {8, 64, 1024, 8192, 65536}},
    {"fetch-and-op", flushed, FETCH, 1, 0, {8}},
    {"compare-and-swap", flushed, SWAP, 1, 0, {8}},
    {"lock-put-unlock", locked, PUT, 1, 0, {8, 65536}},
    {"put-fence", fenced, PUT, 1, 1, {8, 65536}},
    {"post-put-wait", posted, PUT, 1, 1, {8, 65536}},
};

static long agreed(long number)
{
    MPI_Bcast(&number, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return number;
}

/* Time of a slice. A rank without a part in it waits for the other. */
static double slice(const struct figure *figure, int bytes, long rounds)
{
    int is_passive = figure->rounds == flushed || figure->rounds == streamed;
    target = figure->both ? 1 - rank : 1;
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_passive && (rank == 0 || figure->both))
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
    double start = MPI_Wtime();
    if (rank == 0 || figure->both)
        figure->rounds(figure->kind, bytes, rounds);
    double elapsed = MPI_Wtime() - start;
    if (is_passive && (rank == 0 || figure->both))
        MPI_Win_unlock(target, win);
    MPI_Barrier(MPI_COMM_WORLD);
    return elapsed;
}

static void measure(const struct figure *figure, int bytes, const char *window)
{
    long rounds = 1;
    double best = 0, total = 0;
    while (agreed(best * (double)rounds < SLICE_SECONDS && rounds < ROUNDS_MAX)) {
        rounds = agreed(rounds * 2);
        best = slice(figure, bytes, rounds) / (double)rounds;
    }
    while (agreed(total < seconds)) {
        double elapsed = slice(figure, bytes, rounds);
        total += elapsed;
        if (elapsed / (double)rounds < best)
            best = elapsed / (double)rounds;
    }
    if (rank == 0)
        printf("%s%s-%d us %.4f\n", figure->name, window, bytes, best / figure->operations * 1e6);
}

static void measure_all(const char *window)
{
    for (size_t k = 0; k < sizeof FIGURES / sizeof *FIGURES; k++)
        for (const int *bytes = FIGURES[k].bytes; *bytes != 0; bytes++)
            if (strncmp(FIGURES[k].name, wanted, strlen(wanted)) == 0)
                measure(&FIGURES[k], *bytes, window);
}

int main(int argc, char **argv)
{
    MPI_Group world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1)
        seconds = atof(argv[1]);
    if (argc > 2)
        wanted = argv[2];
    mine = calloc(1, BYTES_MAX);
    fetched = calloc(1, BYTES_MAX);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &(int){1 - rank}, &other);
    MPI_Win_allocate(BYTES_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, BYTES_MAX);
    measure_all("");
    MPI_Win_free(&win);
    /* Memory that the program allocates. */
    memory = calloc(1, BYTES_MAX);
    MPI_Win_create(memory, BYTES_MAX, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    memset(memory, 0, BYTES_MAX);
    measure_all("-created");
    MPI_Win_free(&win);
    MPI_Group_free(&other);
    MPI_Group_free(&world);
    free(mine);
    free(fetched);
    free(memory);
    MPI_Finalize();
    return 0;
}
