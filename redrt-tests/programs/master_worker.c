/* Rank 0 hands out tasks to the first that asks (MPI_ANY_SOURCE, MPI_ANY_TAG). Then it collects a second batch by
 * MPI_Waitany, in a communicator of its own, as workers begin it while others are still asked. The worker of each
 * task depends on timing; the table of results does not.
 *
 *   master_worker [TASKS] */
#include "check.h"

static MPI_Comm batch;

enum { WORK = 1, RESULT = 2, STOP = 3, READY = 4 };

struct result {
    uint64_t task, value;
};

static uint64_t compute(uint64_t task)
{
    uint64_t state = task * 977 + 5, value = 0;
    for (uint64_t i = 0; i < 200 + task % 300; i++)
        value ^= next_random(&state);
    return value;
}

static void work(int rank)
{
    struct result result = {0, 0};
    MPI_Status status;
    MPI_Send(&rank, 1, MPI_INT, 0, READY, MPI_COMM_WORLD);
    for (;;) {
        MPI_Recv(&result.task, 1, MPI_UINT64_T, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == STOP)
            break;
        result.value = compute(result.task);
        MPI_Send(&result, 2, MPI_UINT64_T, 0, RESULT, MPI_COMM_WORLD);
    }
    for (uint64_t k = 0; k < 8; k++) {
        uint64_t value = compute((uint64_t)rank * 1000 + k);
        MPI_Send(&value, 1, MPI_UINT64_T, 0, 100 + (int)k, batch);
    }
}

static void lead(int size, uint64_t tasks)
{
    uint64_t *table = calloc(tasks, sizeof *table), given = 0, stopped = 0;
    while (stopped < (uint64_t)size - 1) {
        struct result result;
        MPI_Status status;
        int count;
        MPI_Recv(&result, 2, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == RESULT) {
            MPI_Get_count(&status, MPI_UINT64_T, &count);
            CHECK(count == 2 && result.task < tasks && table[result.task] == 0);
            table[result.task] = result.value;
        }
        int tag = given < tasks ? WORK : STOP;
        MPI_Send(&given, 1, MPI_UINT64_T, status.MPI_SOURCE, tag, MPI_COMM_WORLD);
        if (tag == WORK)
            given++;
        else
            stopped++;
    }
    int workers = size - 1, left = workers * 8;
    MPI_Request *requests = malloc((size_t)left * sizeof *requests);
    uint64_t *values = malloc((size_t)left * sizeof *values), sum = 0;
    for (int i = 0; i < left; i++)
        MPI_Irecv(&values[i], 1, MPI_UINT64_T, 1 + i / 8, 100 + i % 8, batch, &requests[i]);
    for (int i = 0; i < left; i++) {
        int index;
        MPI_Waitany(left, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index != MPI_UNDEFINED);
        sum += values[index] * (uint64_t)(index + 1);
    }
    printf("tasks %016llx\n", (unsigned long long)hash_bytes(HASH_START, table, tasks * sizeof *table));
    printf("batch %016llx\n", (unsigned long long)sum);
    free(table);
    free(requests);
    free(values);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size >= 2);
    MPI_Comm_dup(MPI_COMM_WORLD, &batch);
    if (rank == 0)
        lead(size, argc > 1 ? (uint64_t)atol(argv[1]) : 200);
    else
        work(rank);
    MPI_Comm_free(&batch);
    MPI_Finalize();
    return 0;
}
