/* Readings of clocks and random bytes in callbacks go into messages: replicas that differ would be reported. */
#include "../programs/check.h"
#include <sys/random.h>
#include <time.h>

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void add_time(void *in, void *inout, int *count, MPI_Datatype *type)
{
    long long *left = in, *right = inout;
    unsigned short random;
    (void)type;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (int i = 0; i < *count; i++)
        right[i] += left[i] + now() + random;
}

/* In a nonblocking collective clocks are real: the callback reads one, and keeps the time out of
 * the result. */
static void add_looking(void *in, void *inout, int *count, MPI_Datatype *type)
{
    long long *left = in, *right = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        right[i] += left[i] + (now() == 1);
}

static long long seen;

static int copy(MPI_Comm comm, int key, void *state, void *value, void *copied, int *flag)
{
    (void)comm, (void)key, (void)state, (void)value;
    seen += now();
    *(void **)copied = NULL;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    seen += now();
    return MPI_SUCCESS;
}

static void handle(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    seen += now();
}

int main(int argc, char **argv)
{
    int rank, size, key;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op adding, looking;
    MPI_Op_create(add_time, 1, &adding);
    MPI_Op_create(add_looking, 1, &looking);
    MPI_Comm_create_keyval(copy, delete, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, NULL);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(handle, &handler);
    for (int round = 0; round < 20; round++) {
        long long mine[3] = { rank, round, 1 }, sum[3], side[3], told[4], heard[4];
        MPI_Request request;
        MPI_Iallreduce(mine, side, 3, MPI_LONG_LONG, looking, MPI_COMM_WORLD, &request);
        MPI_Allreduce(mine, sum, 3, MPI_LONG_LONG, adding, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Comm other;
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        MPI_Comm_set_errhandler(other, handler);
        MPI_Send(mine, 1, MPI_LONG_LONG, size + 7, 0, other);
        MPI_Comm_free(&other);
        told[0] = sum[0], told[1] = sum[2], told[2] = side[2], told[3] = seen;
        MPI_Sendrecv(told, 4, MPI_LONG_LONG, (rank + 1) % size, 1, heard, 4, MPI_LONG_LONG, (rank + size - 1) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (heard[2] != size || seen == 0)
            MPI_Abort(MPI_COMM_WORLD, 4);
    }
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    MPI_Finalize();
    if (rank == 0)
        puts("callbacks agree");
    return 0;
}
