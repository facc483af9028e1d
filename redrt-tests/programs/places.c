/* Buffers at impossible places: null, or MPI_IN_PLACE where that has no meaning. Every call with a buffer returns
 * MPI_ERR_BUFFER, and nothing has been sent. With no elements, or with addresses in the datatype, null is as good as
 * any other address.
 *
 *   places [ROUNDS [DIRECTORY]] */
#include "check.h"
#include "directory.h"
#include <unistd.h>

static int class_of(int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    return class;
}

static int refused_count;

#define REFUSED(call)                            \
    do {                                         \
        CHECK(class_of(call) == MPI_ERR_BUFFER); \
        refused_count++;                         \
    } while (0)

static int into[4], out[4] = {1, 2, 3, 4};
static int one[1] = {1}, zero[1];
static MPI_Datatype type[1];
static MPI_Request request;
static void *volatile null;

static void messages(MPI_Comm comm, int peer)
{
    void *const nowhere[] = {null, MPI_IN_PLACE};
    for (int i = 0; i < 2; i++) {
        void *buffer = nowhere[i];
        for (int derived = 0; derived < 2; derived++) {
            MPI_Datatype pair = derived ? type[0] : MPI_INT;
            REFUSED(MPI_Send(buffer, 1, pair, peer, 1, comm));
            REFUSED(MPI_Ssend(buffer, 1, pair, peer, 1, comm));
            REFUSED(MPI_Bsend(buffer, 1, pair, peer, 1, comm));
            REFUSED(MPI_Isend(buffer, 1, pair, peer, 1, comm, &request));
            REFUSED(MPI_Issend(buffer, 1, pair, peer, 1, comm, &request));
            REFUSED(MPI_Recv(buffer, 1, pair, peer, 1, comm, MPI_STATUS_IGNORE));
            REFUSED(MPI_Irecv(buffer, 1, pair, peer, 1, comm, &request));
            REFUSED(MPI_Send_init(buffer, 1, pair, peer, 1, comm, &request));
            REFUSED(MPI_Recv_init(buffer, 1, pair, peer, 1, comm, &request));
            REFUSED(MPI_Sendrecv(buffer, 1, pair, peer, 1, into, 1, pair, peer, 1, comm, MPI_STATUS_IGNORE));
            REFUSED(MPI_Sendrecv(out, 1, pair, peer, 1, buffer, 1, pair, peer, 1, comm, MPI_STATUS_IGNORE));
            REFUSED(MPI_Sendrecv_replace(buffer, 1, pair, peer, 1, peer, 1, comm, MPI_STATUS_IGNORE));
        }
    }
}

/* With a communicator of one rank, as others would wait for a rank that has returned. */
static void collectives(MPI_Comm comm)
{
    void *const nowhere[] = {null, MPI_IN_PLACE};
    for (int i = 0; i < 2; i++) {
        void *buffer = nowhere[i];
        REFUSED(MPI_Bcast(buffer, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Ibcast(buffer, 1, type[0], 0, comm, &request));
        REFUSED(MPI_Gather(out, 1, MPI_INT, buffer, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Gatherv(out, 1, MPI_INT, buffer, one, zero, MPI_INT, 0, comm));
        REFUSED(MPI_Scatter(buffer, 1, MPI_INT, into, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Scatterv(buffer, one, zero, MPI_INT, into, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Allgather(out, 1, MPI_INT, buffer, 1, MPI_INT, comm));
        REFUSED(MPI_Allgatherv(out, 1, MPI_INT, buffer, one, zero, MPI_INT, comm));
        REFUSED(MPI_Alltoall(out, 1, MPI_INT, buffer, 1, MPI_INT, comm));
        REFUSED(MPI_Alltoallv(out, one, zero, MPI_INT, buffer, one, zero, MPI_INT, comm));
        REFUSED(MPI_Alltoallw(out, one, zero, type, buffer, one, zero, type, comm));
        REFUSED(MPI_Reduce(out, buffer, 1, MPI_INT, MPI_SUM, 0, comm));
        REFUSED(MPI_Allreduce(out, buffer, 1, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_Iallreduce(out, buffer, 1, MPI_INT, MPI_SUM, comm, &request));
        REFUSED(MPI_Scan(out, buffer, 1, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_Exscan(out, buffer, 1, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_Reduce_scatter(out, buffer, one, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_Reduce_scatter_block(out, buffer, 1, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_Reduce_local(buffer, into, 1, MPI_INT, MPI_SUM));
        REFUSED(MPI_Reduce_local(out, buffer, 1, MPI_INT, MPI_SUM));
    }
    REFUSED(MPI_Gather(null, 1, MPI_INT, into, 1, MPI_INT, 0, comm));
    REFUSED(MPI_Alltoall(null, 1, MPI_INT, into, 1, MPI_INT, comm));
    REFUSED(MPI_Allreduce(null, into, 1, MPI_INT, MPI_SUM, comm));
}

static void packing(MPI_Comm comm)
{
    void *const nowhere[] = {null, MPI_IN_PLACE};
    for (int i = 0; i < 2; i++) {
        int position = 0;
        MPI_Aint external = 0;
        REFUSED(MPI_Pack(nowhere[i], 1, MPI_INT, into, sizeof into, &position, comm));
        REFUSED(MPI_Pack(out, 1, MPI_INT, nowhere[i], sizeof into, &position, comm));
        REFUSED(MPI_Unpack(nowhere[i], sizeof out, &position, into, 1, MPI_INT, comm));
        REFUSED(MPI_Unpack(out, sizeof out, &position, nowhere[i], 1, MPI_INT, comm));
        REFUSED(MPI_Pack_external("external32", nowhere[i], 1, MPI_INT, into, sizeof into, &external));
        REFUSED(MPI_Unpack_external("external32", out, sizeof out, &external, nowhere[i], 1, MPI_INT));
        CHECK(position == 0 && external == 0);
    }
}

static void windows(MPI_Comm comm, int peer)
{
    int *memory;
    MPI_Win window;
    void *const nowhere[] = {null, MPI_IN_PLACE};
    MPI_Win_allocate(sizeof into, sizeof(int), MPI_INFO_NULL, comm, &memory, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 2; i++) {
        void *buffer = nowhere[i];
        REFUSED(MPI_Put(buffer, 1, MPI_INT, peer, 0, 1, MPI_INT, window));
        REFUSED(MPI_Get(buffer, 1, MPI_INT, peer, 0, 1, MPI_INT, window));
        REFUSED(MPI_Accumulate(buffer, 1, MPI_INT, peer, 0, 1, MPI_INT, MPI_SUM, window));
        REFUSED(MPI_Get_accumulate(out, 1, MPI_INT, buffer, 1, MPI_INT, peer, 0, 1, MPI_INT, MPI_SUM, window));
        REFUSED(MPI_Fetch_and_op(buffer, into, MPI_INT, peer, 0, MPI_SUM, window));
        REFUSED(MPI_Compare_and_swap(out, buffer, into, MPI_INT, peer, 0, window));
    }
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

static void files(MPI_Comm comm)
{
    MPI_File file;
    MPI_Status status;
    void *const nowhere[] = {null, MPI_IN_PLACE};
    const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    CHECK(MPI_File_open(comm, in("file"), mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    for (int i = 0; i < 2; i++) {
        REFUSED(MPI_File_write_at(file, 0, nowhere[i], 1, MPI_INT, &status));
        REFUSED(MPI_File_read_at(file, 0, nowhere[i], 1, MPI_INT, &status));
        REFUSED(MPI_File_write(file, nowhere[i], 1, type[0], &status));
        REFUSED(MPI_File_iwrite(file, nowhere[i], 1, MPI_INT, &request));
    }
    MPI_File_close(&file);
}

/* Null is MPI_BOTTOM, and is accepted where no address is needed. */
static void accepted(MPI_Comm comm, int to, int from)
{
    MPI_Aint address;
    MPI_Datatype absolute, received;
    int length = 2, value[2] = {rank, 7}, got[2] = {-1, -1};
    MPI_Get_address(value, &address);
    MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Get_address(got, &address);
    MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &received);
    MPI_Type_commit(&received);
    CHECK(MPI_Sendrecv(MPI_BOTTOM, 1, absolute, to, 2, MPI_BOTTOM, 1, received, from, 2, comm, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    CHECK(got[0] == from && got[1] == 7);
    CHECK(MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_SELF) == MPI_SUCCESS);
    CHECK(MPI_Sendrecv(null, 0, MPI_INT, to, 3, null, 0, MPI_INT, from, 3, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_Allreduce(null, null, 0, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(MPI_Alltoall(null, 0, MPI_INT, null, 0, MPI_INT, comm) == MPI_SUCCESS);
    MPI_Type_free(&absolute);
    MPI_Type_free(&received);
}

int main(int argc, char **argv)
{
    null = NULL;
    MPI_Init(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    make_directory("places", argc > 2 ? argv[2] : NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    /* With a hole, so that it is packed. */
    MPI_Type_vector(2, 1, 2, MPI_INT, &type[0]);
    MPI_Type_commit(&type[0]);
    const int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < rounds; round++) {
        messages(MPI_COMM_WORLD, to);
        collectives(MPI_COMM_SELF);
        packing(MPI_COMM_WORLD);
        windows(MPI_COMM_WORLD, to);
        files(MPI_COMM_WORLD);
        for (int time = 0; time < 10; time++)
            accepted(MPI_COMM_WORLD, to, from);
    }
    int total = 0;
    CHECK(MPI_Reduce(&refused_count, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    MPI_Type_free(&type[0]);
    if (rank == 0) {
        printf("%d calls refused in each of %d ranks\n", total / size, size);
        rmdir(directory);
    }
    MPI_Finalize();
    return 0;
}
