/* One-sided communication against the results of a serial program: all kinds of windows, operations and epochs.
 *
 *   onesided [ROUNDS] */
#include "check.h"

enum { CELLS = 64, LARGE = 40000 };

static int rank, size, round_number;
static uint64_t hash = HASH_START;

static void mix(const void *bytes, size_t count)
{
    hash = hash_bytes(hash, bytes, count);
}

/* Element k that `from` writes to `to`. */
static int value(int from, int to, int k)
{
    return ((round_number * 31 + from) * 37 + to) * 1000 + k;
}

/* Every rank writes its own stretch of every window: in order, backwards through a vector, and by accumulates. */
static void fences(void)
{
    int *memory, from[4], got[8];
    MPI_Win win;
    MPI_Datatype spread;
    MPI_Win_allocate((MPI_Aint)(sizeof(int) * 8 * (size_t)size), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &win);
    for (int k = 0; k < 8 * size; k++)
        memory[k] = -1;
    MPI_Type_vector(4, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    for (int to = 0; to < size; to++) {
        for (int k = 0; k < 4; k++)
            from[k] = value(rank, to, k);
        MPI_Put(from, 4, MPI_INT, to, 8 * rank, 1, spread, win);
    }
    MPI_Win_fence(0, win);
    for (int by = 0; by < size; by++)
        for (int k = 0; k < 8; k++)
            CHECK(memory[8 * by + k] == (k % 2 ? -1 : value(by, rank, k / 2)));
    mix(memory, sizeof(int) * 8 * (size_t)size);
    MPI_Win_fence(0, win);
    int next = (rank + 1) % size;
    memset(got, 0, sizeof got);
    MPI_Get(got, 1, spread, next, 8 * rank, 4, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int k = 0; k < 4; k++)
        CHECK(got[2 * k] == (k % 2 ? -1 : value(rank, next, k / 2)) && got[2 * k + 1] == 0);
    int one = rank + 1, greatest = value(rank, 0, 0);
    for (int to = 0; to < size; to++) {
        MPI_Accumulate(&one, 1, MPI_INT, to, 1, 1, MPI_INT, MPI_SUM, win);
        MPI_Accumulate(&greatest, 1, MPI_INT, to, 3, 1, MPI_INT, MPI_MAX, win);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    CHECK(memory[1] == -1 + size * (size + 1) / 2);
    CHECK(memory[3] == value(size - 1, 0, 0));
    MPI_Type_free(&spread);
    MPI_Win_free(&win);
    CHECK(win == MPI_WIN_NULL);
}

/* A ring in which every rank is exposed to the one before and accesses the one after. */
static void posts(int test)
{
    double memory[CELLS], mine[CELLS];
    MPI_Win win;
    MPI_Group all, before, after;
    int previous = (rank + size - 1) % size, next = (rank + 1) % size, flag = 0;
    MPI_Win_create(memory, sizeof memory, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &previous, &before);
    MPI_Group_incl(all, 1, &next, &after);
    for (int turn = 0; turn < 3; turn++) {
        for (int k = 0; k < CELLS; k++) {
            memory[k] = 0.5;
            mine[k] = value(rank, next, k) + turn;
        }
        MPI_Win_post(before, 0, win);
        MPI_Win_start(after, 0, win);
        MPI_Put(mine, CELLS / 2, MPI_DOUBLE, next, 0, CELLS / 2, MPI_DOUBLE, win);
        MPI_Accumulate(mine + CELLS / 2, CELLS / 2, MPI_DOUBLE, next, CELLS / 2, CELLS / 2, MPI_DOUBLE, MPI_SUM, win);
        MPI_Win_complete(win);
        if (test)
            while (!flag)
                MPI_Win_test(win, &flag);
        else
            MPI_Win_wait(win);
        flag = 0;
        for (int k = 0; k < CELLS; k++)
            CHECK(memory[k] == value(previous, rank, k) + turn + (k < CELLS / 2 ? 0 : 0.5));
        mix(memory, sizeof memory);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&before);
    MPI_Group_free(&after);
    MPI_Win_free(&win);
}

/* A counter that all ranks read and write under an exclusive lock, tickets that are drawn, and a list of winners. */
static void locks(int turns)
{
    long memory[4] = {0, 0, -1, 0}, seen, ticket, one = 1, sum = 0, before, me = rank, nobody = -1;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int turn = 0; turn < turns; turn++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&seen, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        seen++;
        MPI_Put(&seen, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        MPI_Win_unlock(0, win);
    }
    MPI_Win_lock_all(0, win);
    for (int turn = 0; turn < turns; turn++) {
        MPI_Fetch_and_op(&one, &ticket, MPI_LONG, size - 1, 1, MPI_SUM, win);
        MPI_Win_flush_local(size - 1, win);
        CHECK(ticket >= 0 && ticket < (long)turns * size);
        sum += ticket;
    }
    /* One rank at a time takes the place and leaves it: a rank that finds it taken tries again. */
    do {
        MPI_Compare_and_swap(&me, &nobody, &before, MPI_LONG, 0, 2, win);
        MPI_Win_flush(0, win);
    } while (before != nobody);
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 3, MPI_SUM, win);
    MPI_Win_flush(0, win);
    CHECK(before >= 0 && before < size);
    MPI_Compare_and_swap(&nobody, &me, &before, MPI_LONG, 0, 2, win);
    MPI_Win_flush(0, win);
    CHECK(before == rank);
    MPI_Win_unlock_all(win);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    long all = (long)turns * size;
    CHECK(sum == all * (all - 1) / 2);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    CHECK(memory[0] == (rank == 0 ? all : 0) && memory[1] == (rank == size - 1 ? all : 0));
    CHECK(memory[2] == -1 && memory[3] == (rank == 0 ? size : 0));
    mix(memory, sizeof memory);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
}

/* The operations with requests, on windows that the targets do not touch meanwhile. */
static void requests(void)
{
    int memory[CELLS], mine[CELLS], got[CELLS], before[CELLS];
    MPI_Win win;
    MPI_Request request[2];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int k = 0; k < CELLS; k++) {
        memory[k] = 7;
        mine[k] = value(rank, next, k);
    }
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    MPI_Rput(mine, CELLS / 2, MPI_INT, next, 0, CELLS / 2, MPI_INT, win, &request[0]);
    MPI_Raccumulate(mine + CELLS / 2, CELLS / 2, MPI_INT, next, CELLS / 2, CELLS / 2, MPI_INT, MPI_SUM, win,
                    &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    MPI_Rget_accumulate(mine, CELLS, MPI_INT, before, CELLS, MPI_INT, next, 0, CELLS, MPI_INT, MPI_BXOR, win,
                        &request[0]);
    MPI_Rget(got, CELLS, MPI_INT, next, 0, CELLS, MPI_INT, win, &request[1]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    CHECK(request[0] == MPI_REQUEST_NULL && request[1] == MPI_REQUEST_NULL);
    for (int k = 0; k < CELLS; k++) {
        CHECK(before[k] == mine[k] + (k < CELLS / 2 ? 0 : 7));
        CHECK(got[k] == (before[k] ^ mine[k]));
    }
    /* This request is waited for only after the epoch. */
    MPI_Rget(got, CELLS, MPI_INT, next, 0, CELLS, MPI_INT, win, &request[0]);
    MPI_Win_unlock(next, win);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    MPI_Rput(mine, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &request[0]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    for (int k = 0; k < CELLS; k++) {
        int written = value(previous, rank, k);
        CHECK(memory[k] == ((written + (k < CELLS / 2 ? 0 : 7)) ^ written));
    }
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
}

/* Data longer than fits into a request, contiguous and not. */
static void large(void)
{
    int *memory = malloc(2 * LARGE * sizeof(int)), *mine = malloc(LARGE * sizeof(int)), next = (rank + 1) % size;
    int previous = (rank + size - 1) % size;
    MPI_Win win;
    MPI_Datatype spread;
    MPI_Type_vector(LARGE / 2, 1, 2, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    for (int k = 0; k < 2 * LARGE; k++)
        memory[k] = -3;
    for (int k = 0; k < LARGE; k++)
        mine[k] = value(rank, next, k);
    MPI_Win_create(memory, 2 * LARGE * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(mine, LARGE, MPI_INT, next, 0, LARGE, MPI_INT, win);
    MPI_Put(mine, LARGE / 2, MPI_INT, next, LARGE, 1, spread, win);
    MPI_Win_fence(0, win);
    for (int k = 0; k < LARGE; k++) {
        CHECK(memory[k] == value(previous, rank, k));
        CHECK(memory[LARGE + k] == (k % 2 ? -3 : value(previous, rank, k / 2)));
    }
    mix(memory, 2 * LARGE * sizeof(int));
    /* No rank may write there before all have read. */
    MPI_Win_fence(0, win);
    MPI_Get(mine, LARGE / 2, MPI_INT, next, LARGE, 1, spread, win);
    MPI_Accumulate(mine + LARGE / 2, LARGE / 2, MPI_INT, next, 0, LARGE / 2, MPI_INT, MPI_REPLACE, win);
    MPI_Win_fence(0, win);
    for (int k = 0; k < LARGE / 2; k++)
        CHECK(mine[k] == value(rank, next, k) && memory[k] == value(previous, rank, k + LARGE / 2));
    MPI_Win_free(&win);
    MPI_Type_free(&spread);
    free(memory);
    free(mine);
}

/* Memory that is attached, its address sent, accessed, and detached. */
static void dynamic(void)
{
    MPI_Win win;
    MPI_Aint mine, *all = malloc(sizeof(MPI_Aint) * (size_t)size);
    long *memory, got = 0;
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, class;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Alloc_mem(2 * sizeof(long), MPI_INFO_NULL, &memory);
    memory[0] = memory[1] = rank + 100;
    MPI_Win_attach(win, memory, 2 * sizeof(long));
    MPI_Get_address(memory, &mine);
    MPI_Allgather(&mine, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    long add = 1000 * (rank + 1);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    MPI_Accumulate(&add, 1, MPI_LONG, next, MPI_Aint_add(all[next], sizeof(long)), 1, MPI_LONG, MPI_SUM, win);
    MPI_Get(&got, 1, MPI_LONG, next, all[next], 1, MPI_LONG, win);
    MPI_Win_unlock(next, win);
    CHECK(got == next + 100);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    CHECK(memory[1] == rank + 100 + 1000 * (previous + 1));
    MPI_Win_detach(win, memory);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    MPI_Put(&add, 1, MPI_LONG, next, all[next], 1, MPI_LONG, win);
    int code = MPI_Win_unlock(next, win);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_RMA_RANGE && memory[0] == rank + 100);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    MPI_Free_mem(memory);
    free(all);
}

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

/* Loads and stores in memory of others. */
static void shared(void)
{
    MPI_Comm host;
    MPI_Win win;
    MPI_Aint bytes;
    int *mine, *first, unit, place, count;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &place);
    MPI_Comm_size(host, &count);
    /* A copy may have replaced a lost replica since then, and has no part in such memory. */
    MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
    int code = MPI_Win_allocate_shared(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, host, &mine, &win);
    if (code != MPI_SUCCESS) {
        CHECK(class_of(code) == MPI_ERR_RMA_SHARED);
        MPI_Comm_free(&host);
        return;
    }
    MPI_Win_shared_query(win, 0, &bytes, &unit, &first);
    CHECK(bytes == 4 * sizeof(int) && unit == sizeof(int) && mine == first + 4 * place);
    MPI_Win_fence(0, win);
    for (int k = 0; k < 4; k++)
        mine[k] = value(place, 0, k);
    MPI_Win_fence(0, win);
    for (int other = 0; other < count; other++)
        for (int k = 0; k < 4; k++)
            CHECK(first[4 * other + k] == value(other, 0, k));
    MPI_Win_fence(0, win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    first[0]++;
    MPI_Win_unlock(0, win);
    MPI_Barrier(host);
    CHECK(first[0] == value(0, 0, 0) + count);
    MPI_Win_free(&win);
    MPI_Comm_free(&host);
}

static int deleted;

static int on_delete(MPI_Win win, int keyval, void *attribute, void *state)
{
    (void)win, (void)keyval, (void)attribute;
    *(int *)state += 1;
    return MPI_SUCCESS;
}

/* Allowed queries of a window, and forbidden calls. */
static void queries_and_errors(void)
{
    int memory[4] = {0}, flag, keyval, length, number = 5, *found, next = (rank + 1) % size;
    MPI_Aint *bytes;
    void *base;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Win win;
    MPI_Errhandler handler;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_get_errhandler(win, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag);
    CHECK(flag && base == memory);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
    CHECK(flag && *bytes == sizeof memory);
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &found, &flag);
    CHECK(flag && *found == sizeof(int));
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &found, &flag);
    CHECK(flag && *found == MPI_WIN_FLAVOR_CREATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &found, &flag);
    CHECK(flag && (*found == MPI_WIN_UNIFIED || *found == MPI_WIN_SEPARATE));
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &keyval, &deleted);
    MPI_Win_set_attr(win, keyval, &number);
    MPI_Win_get_attr(win, keyval, &found, &flag);
    CHECK(flag && found == &number);
    MPI_Win_set_name(win, "board");
    MPI_Win_get_name(win, name, &length);
    CHECK(length == 5 && strcmp(name, "board") == 0);

    CHECK(class_of(MPI_Put(memory, 1, MPI_INT, next, 0, 1, MPI_INT, win)) == MPI_ERR_RMA_SYNC);
    CHECK(class_of(MPI_Win_unlock(next, win)) == MPI_ERR_RMA_SYNC);
    CHECK(class_of(MPI_Win_complete(win)) == MPI_ERR_RMA_SYNC);
    CHECK(class_of(MPI_Win_flush(next, win)) == MPI_ERR_RMA_SYNC);
    CHECK(class_of(MPI_Win_lock(12345, next, 0, win)) == MPI_ERR_LOCKTYPE);
    CHECK(class_of(MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Win_fence(1 << 20, win)) == MPI_ERR_ASSERT);
    CHECK(class_of(MPI_Win_attach(win, memory, 4)) == MPI_ERR_RMA_ATTACH);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    CHECK(class_of(MPI_Put(memory, 1, MPI_INT, next, 4, 1, MPI_INT, win)) == MPI_ERR_RMA_RANGE);
    CHECK(class_of(MPI_Put(memory, 1, MPI_INT, next, -1, 1, MPI_INT, win)) == MPI_ERR_DISP);
    CHECK(class_of(MPI_Put(memory, -1, MPI_INT, next, 0, 1, MPI_INT, win)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Put(memory, 2, MPI_INT, next, 0, 1, MPI_INT, win)) == MPI_ERR_TRUNCATE);
    CHECK(class_of(MPI_Put(memory, 1, MPI_INT, size, 0, 1, MPI_INT, win)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Accumulate(memory, 1, MPI_INT, next, 0, 1, MPI_INT, MPI_NO_OP, win)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Accumulate(memory, 1, MPI_FLOAT, next, 0, 1, MPI_FLOAT, MPI_BAND, win)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Compare_and_swap(memory, memory, memory, MPI_FLOAT, next, 0, win)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Win_fence(0, win)) == MPI_ERR_RMA_SYNC);
    CHECK(class_of(MPI_Win_free(&win)) == MPI_ERR_RMA_SYNC);
    CHECK(MPI_Put(memory, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win) == MPI_SUCCESS);
    MPI_Win_unlock(next, win);
    int expected = deleted + 1;
    MPI_Win_free(&win);
    CHECK(deleted == expected);
    MPI_Win_free_keyval(&keyval);
    CHECK(class_of(MPI_Win_create(memory, -1, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win)) == MPI_ERR_SIZE);
    CHECK(class_of(MPI_Win_create(memory, 4, 0, MPI_INFO_NULL, MPI_COMM_SELF, &win)) == MPI_ERR_DISP);
}

/* Rank 0 waits in a receive while the others access its memory; the last to come sends it a message. */
static void served_in_other_calls(void)
{
    int memory[2] = {0, 0}, one = 1, before;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (rank > 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, win);
        MPI_Win_unlock(0, win);
        if (before == size - 2)
            MPI_Send(&one, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    } else if (size > 1) {
        MPI_Recv(&before, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_sync(win);
        CHECK(memory[0] == size - 1);
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    for (round_number = 0; round_number < rounds; round_number++) {
        fences();
        posts(round_number % 2);
        locks(10);
        requests();
        large();
        dynamic();
        shared();
        queries_and_errors();
        served_in_other_calls();
    }
    uint64_t sum = 0;
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
