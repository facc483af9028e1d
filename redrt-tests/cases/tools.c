/* A tool that prints its events on standard error, while the program sends until there is a file.
 *
 *   tools FILE [MESSAGES] */
#include "../programs/check.h"
#include <unistd.h>

enum { TYPES_MAX = 16 };

static char names[TYPES_MAX][64];

static void tell(MPI_T_event_instance event, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *name)
{
    int64_t elements[8] = {0};
    MPI_Count at = 0, now = 0;
    int source = -1;
    CHECK(safety == MPI_T_CB_REQUIRE_NONE && registration);
    CHECK(MPI_T_event_copy(event, elements) == MPI_SUCCESS && MPI_T_event_get_source(event, &source) == MPI_SUCCESS);
    CHECK(MPI_T_event_get_timestamp(event, &at) == MPI_SUCCESS);
    CHECK(MPI_T_source_get_timestamp(source, &now) == MPI_SUCCESS && at > 0 && at <= now);
    fprintf(stderr, "told %s %lld %lld\n", (const char *)name, (long long)elements[0], (long long)elements[1]);
}

static void register_all(MPI_T_event_registration *registrations, int count)
{
    CHECK(count <= TYPES_MAX);
    for (int k = 0; k < count; k++) {
        int length = sizeof names[k];
        CHECK(MPI_T_event_get_info(k, names[k], &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
              MPI_SUCCESS);
        CHECK(MPI_T_event_handle_alloc(k, NULL, MPI_INFO_NULL, &registrations[k]) == MPI_SUCCESS);
        CHECK(MPI_T_event_register_callback(registrations[k], MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, names[k], tell) ==
              MPI_SUCCESS);
    }
}

int main(int argc, char **argv)
{
    int rank, size, provided, count, go = 0, messages = argc > 2 ? atoi(argv[2]) : 0;
    MPI_T_event_registration registrations[TYPES_MAX];
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS);
    CHECK(MPI_T_event_get_num(&count) == MPI_SUCCESS && count > 0);
    register_all(registrations, count);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        puts("waiting");
    fflush(stdout);
    for (int sent = 0; !go || sent < messages; sent++) {
        double mine[4] = {rank, sent, 1, 2}, got[4];
        MPI_Sendrecv(mine, 4, MPI_DOUBLE, (rank + 1) % size, 1, got, 4, MPI_DOUBLE, (rank + size - 1) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        go = rank == 0 && (argc < 2 || access(argv[1], F_OK) == 0);
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        usleep(1000);
    }
    for (int k = 0; k < count; k++)
        CHECK(MPI_T_event_handle_free(registrations[k], NULL, NULL) == MPI_SUCCESS);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    if (rank == 0)
        puts("over");
    MPI_Finalize();
    return 0;
}
