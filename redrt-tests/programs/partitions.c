/* Partitioned communication, generalized requests, sessions and the tool interface's variables, against their
 * expected results. A session begins the library, and a session ends it.
 *
 *   partitions [ROUNDS] */
#include "check.h"

enum { PARTS = 6, EACH = 700, ALL = PARTS * EACH };

static int rank, size;
static uint64_t hash = HASH_START;

static int value(int from, int round, int k)
{
    return (from * 100 + round) * ALL + k;
}

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

/* Two operations to the next rank with the same tag match in the order in which they were made, not in that of their
 * starts. The receiver divides the buffer otherwise. */
static void partitions(MPI_Comm comm, int rounds)
{
    static int out[2][ALL], in[2][ALL];
    MPI_Request send[2], receive[2];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, flag;
    for (int k = 0; k < 2; k++) {
        MPI_Psend_init(out[k], PARTS, EACH, MPI_INT, next, 5, comm, MPI_INFO_NULL, &send[k]);
        MPI_Precv_init(in[k], 2 * PARTS, EACH / 2, MPI_INT, previous, 5, comm, MPI_INFO_NULL, &receive[k]);
    }
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < ALL; i++)
                out[k][i] = value(rank, 2 * round + k, i), in[k][i] = -1;
        MPI_Start(&receive[1]);
        MPI_Start(&send[0]);
        MPI_Start(&send[1]);
        MPI_Start(&receive[0]);
        CHECK(class_of(MPI_Pready(PARTS, send[0])) == MPI_ERR_ARG);
        CHECK(class_of(MPI_Pready(0, receive[0])) == MPI_ERR_REQUEST);
        int some[3] = {4, 0, 2};
        MPI_Pready_list(3, some, send[1]);
        CHECK(class_of(MPI_Pready(4, send[1])) == MPI_ERR_ARG);
        for (int part = PARTS - 1; part >= 0; part--)
            MPI_Pready(part, send[0]);
        MPI_Test(&send[1], &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
        MPI_Pready(1, send[1]);
        MPI_Pready_range(3, 3, send[1]);
        MPI_Pready(5, send[1]);
        for (flag = 0; !flag;)
            MPI_Parrived(receive[0], 2 * PARTS - 1, &flag);
        for (int i = 0; i < ALL; i++)
            CHECK(in[0][i] == value(previous, 2 * round, i));
        MPI_Waitall(2, send, MPI_STATUSES_IGNORE);
        MPI_Waitall(2, receive, MPI_STATUSES_IGNORE);
        for (int i = 0; i < ALL; i++)
            CHECK(in[1][i] == value(previous, 2 * round + 1, i));
        hash = hash_bytes(hash, in, sizeof in);
        MPI_Parrived(receive[0], 0, &flag);
        CHECK(flag);
    }
    CHECK(class_of(MPI_Pready(0, send[0])) == MPI_ERR_REQUEST);
    for (int k = 0; k < 2; k++) {
        MPI_Request_free(&send[k]);
        MPI_Request_free(&receive[k]);
    }
}

struct state {
    int queries, frees, cancels, was_complete;
};

static int on_query(void *state, MPI_Status *status)
{
    ((struct state *)state)->queries++;
    MPI_Status_set_elements(status, MPI_INT, 11);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 3;
    status->MPI_TAG = 17;
    return MPI_SUCCESS;
}

static int on_free(void *state)
{
    ((struct state *)state)->frees++;
    return MPI_SUCCESS;
}

static int on_cancel(void *state, int complete)
{
    ((struct state *)state)->cancels++;
    ((struct state *)state)->was_complete = complete;
    return MPI_SUCCESS;
}

static int on_query_fails(void *state, MPI_Status *status)
{
    (void)state, (void)status;
    return MPI_ERR_BUFFER;
}

/* Requests that this program completes, waited for in every way. */
static void general(void)
{
    struct state state = {0, 0, 0, -1};
    MPI_Request request, both[2];
    MPI_Status status, statuses[2];
    int flag, count, mine = rank, theirs;
    MPI_Grequest_start(on_query, on_free, on_cancel, &state, &request);
    MPI_Test(&request, &flag, &status);
    CHECK(!flag && state.queries == 0 && state.frees == 0);
    MPI_Cancel(&request);
    CHECK(state.cancels == 1 && state.was_complete == 0);
    MPI_Grequest_complete(request);
    CHECK(class_of(MPI_Grequest_complete(request)) == MPI_ERR_REQUEST);
    MPI_Cancel(&request);
    CHECK(state.cancels == 2 && state.was_complete != 0);
    MPI_Request_get_status(request, &flag, &status);
    CHECK(flag && state.queries == 1 && state.frees == 0 && status.MPI_TAG == 17);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(request == MPI_REQUEST_NULL && count == 11 && status.MPI_SOURCE == 3 && state.frees == 1);

    MPI_Grequest_start(on_query, on_free, on_cancel, &state, &both[0]);
    MPI_Irecv(&theirs, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &both[1]);
    MPI_Grequest_complete(both[0]);
    MPI_Send(&mine, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD);
    MPI_Waitall(2, both, statuses);
    CHECK(statuses[0].MPI_TAG == 17 && statuses[1].MPI_TAG == 1 && theirs == (rank + 1) % size && state.frees == 2);

    MPI_Grequest_start(on_query, on_free, on_cancel, &state, &request);
    MPI_Request copy = request;
    MPI_Request_free(&request);
    CHECK(state.frees == 2);
    MPI_Grequest_complete(copy);
    CHECK(state.frees == 3);

    MPI_Grequest_start(on_query_fails, on_free, on_cancel, &state, &request);
    MPI_Grequest_complete(request);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_BUFFER && state.frees == 4);
}

/* A session that asks for this thread level, or for none, gets the level `given`. */
static void has_level(const char *asked, const char *given)
{
    MPI_Session session;
    MPI_Info info = MPI_INFO_NULL, used;
    char level[40];
    int flag, length = sizeof level;
    if (asked) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "thread_level", asked);
    }
    MPI_Session_init(info, MPI_ERRORS_RETURN, &session);
    MPI_Session_get_info(session, &used);
    MPI_Info_get_string(used, "thread_level", &length, level, &flag);
    CHECK(flag && strcmp(level, given) == 0);
    MPI_Info_free(&used);
    if (asked)
        MPI_Info_free(&info);
    MPI_Session_finalize(&session);
    CHECK(session == MPI_SESSION_NULL);
}

static void sets(MPI_Session session)
{
    MPI_Group world, self;
    MPI_Comm comm;
    MPI_Info info;
    char name[MPI_MAX_PSET_NAME_LEN], text[16];
    int count, length = 0, flag, members, result, bytes, got = -1;
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count);
    CHECK(count == 2);
    MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, NULL);
    CHECK(length == (int)strlen("mpi://WORLD") + 1);
    MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, name);
    CHECK(strcmp(name, "mpi://WORLD") == 0);
    CHECK(class_of(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 2, &length, name)) == MPI_ERR_ARG);
    MPI_Session_get_pset_info(session, "mpi://world", &info);
    length = sizeof text;
    MPI_Info_get_string(info, "mpi_size", &length, text, &flag);
    CHECK(flag && atoi(text) == size);
    MPI_Info_free(&info);
    CHECK(class_of(MPI_Group_from_session_pset(session, "mpi://nobody", &world)) == MPI_ERR_ARG);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Group_from_session_pset(session, "mpi://SELF", &self);
    MPI_Group_size(self, &members);
    CHECK(members == 1);
    MPI_Comm_create_from_group(world, "partitions", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
    CHECK(result == MPI_CONGRUENT);
    CHECK(class_of(MPI_Bsend(&rank, 1, MPI_INT, rank, 0, comm)) == MPI_ERR_BUFFER);
    char *buffer = malloc(100 + MPI_BSEND_OVERHEAD), *back;
    MPI_Session_attach_buffer(session, buffer, 100 + MPI_BSEND_OVERHEAD);
    MPI_Bsend(&rank, 1, MPI_INT, (rank + 1) % size, 0, comm);
    MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 0, comm, MPI_STATUS_IGNORE);
    CHECK(got == (rank + size - 1) % size);
    MPI_Session_flush_buffer(session);
    MPI_Session_detach_buffer(session, &back, &bytes);
    CHECK(back == buffer && bytes == 100 + MPI_BSEND_OVERHEAD);
    free(buffer);
    MPI_Comm_disconnect(&comm);
    CHECK(comm == MPI_COMM_NULL);
    MPI_Group_free(&world);
    MPI_Group_free(&self);
    has_level("MPI_THREAD_FUNNELED", "MPI_THREAD_FUNNELED");
    has_level("MPI_THREAD_SINGLE", "MPI_THREAD_SINGLE");
    /* A level given to one session holds for all. */
    has_level(NULL, "MPI_THREAD_FUNNELED");
}

/* Values of the tool interface are the same in all replicas: they are sent. */
static void variables(void)
{
    int provided, count, length, class, verbosity, bind, readonly, continuous, atomic, elements, found = 0;
    MPI_Datatype type;
    MPI_T_enum enumtype;
    MPI_T_pvar_session session;
    char name[64];
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_get_num(&count);
    MPI_T_pvar_session_create(&session);
    for (int k = 0; k < count; k++) {
        MPI_T_pvar_handle handle;
        unsigned long long value = ~0ull, theirs = 0;
        length = sizeof name;
        CHECK(MPI_T_pvar_get_info(k, name, &length, &verbosity, &class, &type, &enumtype, NULL, NULL, &bind, &readonly,
                                  &continuous, &atomic) == MPI_SUCCESS);
        CHECK(length == (int)strlen(name) + 1 && type == MPI_UNSIGNED_LONG_LONG && readonly);
        MPI_T_pvar_handle_alloc(session, k, NULL, &handle, &elements);
        CHECK(MPI_T_pvar_start(session, handle) == MPI_T_ERR_PVAR_NO_STARTSTOP);
        CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS && elements == 1 && value != ~0ull);
        MPI_Sendrecv(&value, 1, type, (rank + 1) % size, 2, &theirs, 1, type, (rank + size - 1) % size, 2,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        found |= strcmp(name, "redrt_link_bytes_sent") == 0 && (size == 1 || value > 0);
        MPI_T_pvar_handle_free(session, &handle);
    }
    CHECK(found && MPI_T_pvar_get_info(count, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                       NULL) == MPI_T_ERR_INVALID_INDEX);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}

int main(int argc, char **argv)
{
    MPI_Session session;
    MPI_Comm early;
    MPI_Group world;
    int flag;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Initialized(&flag);
    if (flag)
        return 3;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Comm_create_from_group(world, "early", MPI_INFO_NULL, MPI_ERRORS_RETURN, &early);
    MPI_Group_free(&world);
    MPI_Comm_rank(early, &rank);
    MPI_Comm_size(early, &size);
    MPI_Init(&argc, &argv);
    MPI_Initialized(&flag);
    CHECK(flag);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    has_level(NULL, "MPI_THREAD_SINGLE");
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    for (int round = 0; round < rounds; round++) {
        partitions(early, 2);
        general();
        sets(session);
        variables();
    }
    uint64_t sum = 0;
    MPI_Finalize();
    MPI_Finalized(&flag);
    if (!flag)
        return 4;
    /* The session goes on. */
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, early);
    if (rank == 0)
        printf("%016llx\n", (unsigned long long)sum);
    MPI_Comm_free(&early);
    MPI_Session_finalize(&session);
    return 0;
}
