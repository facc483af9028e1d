/* Collectives that do not fit each other; the command line names one. Each member prints the class of its error.
 * Then a collective that fits shows that they can go on. */
#include "../programs/check.h"

static int rank, size, numbers[64], others[64];
static double reals[64];

static int is(const char *mistake, const char *name)
{
    return strcmp(mistake, name) == 0;
}

static int wait_for(MPI_Request *request)
{
    return MPI_Wait(request, MPI_STATUS_IGNORE);
}

static int rounds_of(MPI_Request *request)
{
    int error = MPI_Start(request);
    if (error == MPI_SUCCESS)
        error = MPI_Wait(request, MPI_STATUS_IGNORE);
    MPI_Request_free(request);
    return error;
}

static int neighbours(const char *mistake, MPI_Comm comm)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size, error;
    MPI_Comm ring;
    MPI_Request request;
    MPI_Dist_graph_create_adjacent(comm, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    int count = 2 + (rank == 1);
    if (is(mistake, "neighbor"))
        error = MPI_Neighbor_alltoall(numbers, count, MPI_INT, others, 2, MPI_INT, ring);
    else {
        MPI_Ineighbor_allgather(numbers, count, MPI_INT, others, 2, MPI_INT, ring, &request);
        error = wait_for(&request);
    }
    MPI_Comm_free(&ring);
    return error;
}

/* Groups of the even members and of the odd ones. */
static int two_groups(const char *mistake, MPI_Comm comm)
{
    MPI_Comm half, both;
    MPI_Comm_split(comm, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, comm, 1 - rank % 2, 0, &both);
    MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
    int error;
    if (is(mistake, "inter-root")) {
        /* Rank 0 of the even group is the root, but the odd group names rank 1. */
        int root = rank % 2 ? 1 : rank ? MPI_PROC_NULL : MPI_ROOT;
        error = MPI_Bcast(numbers, 1, MPI_INT, root, both);
    } else
        error = MPI_Allgather(numbers, 1 + (rank == 2), MPI_INT, others, 1, MPI_INT, both);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return error;
}

static int attempt(const char *mistake, MPI_Comm comm)
{
    int counts[16], places[16];
    MPI_Request request;
    for (int i = 0; i < size; i++)
        counts[i] = 1, places[i] = i;
    if (is(mistake, "function"))
        return rank == 1 ? MPI_Bcast(numbers, 1, MPI_INT, 0, comm) : MPI_Barrier(comm);
    if (is(mistake, "root"))
        return MPI_Bcast(numbers, 1, MPI_INT, rank == 2, comm);
    if (is(mistake, "count"))
        return MPI_Bcast(numbers, 1 + rank, MPI_INT, 0, comm);
    if (is(mistake, "type"))
        return MPI_Bcast(numbers, 2, rank ? MPI_INT : MPI_FLOAT, 0, comm);
    if (is(mistake, "op"))
        return MPI_Allreduce(numbers, others, 1, MPI_INT, rank ? MPI_SUM : MPI_MAX, comm);
    if (is(mistake, "gather"))
        return MPI_Gather(numbers, 1 + (rank == 2), MPI_INT, others, 1, MPI_INT, 0, comm);
    if (is(mistake, "scatterv")) {
        counts[2] = 3;
        return MPI_Scatterv(numbers, counts, places, MPI_INT, others, 1, MPI_INT, 0, comm);
    }
    if (is(mistake, "allgatherv")) {
        counts[1] += rank == 0;
        return MPI_Allgatherv(numbers, 1, MPI_INT, others, counts, places, MPI_INT, comm);
    }
    if (is(mistake, "alltoall"))
        return MPI_Alltoall(reals, 1, rank ? MPI_DOUBLE : MPI_INT64_T, others, 2, MPI_INT, comm);
    if (is(mistake, "shares")) {
        counts[rank ? 0 : 1] = 2;
        return MPI_Reduce_scatter(numbers, others, counts, MPI_INT, MPI_SUM, comm);
    }
    if (is(mistake, "nonblocking")) {
        rank == 1 ? MPI_Ibcast(numbers, 1, MPI_INT, 0, comm, &request) : MPI_Ibarrier(comm, &request);
        return wait_for(&request);
    }
    if (is(mistake, "kinds")) {
        if (rank == 1)
            return MPI_Barrier(comm);
        MPI_Ibarrier(comm, &request);
        return wait_for(&request);
    }
    if (is(mistake, "persistent")) {
        MPI_Bcast_init(numbers, 1 + (rank == 1), MPI_INT, 0, comm, MPI_INFO_NULL, &request);
        return rounds_of(&request);
    }
    if (is(mistake, "neighbor") || is(mistake, "ineighbor"))
        return neighbours(mistake, comm);
    if (is(mistake, "inter-root") || is(mistake, "inter-length"))
        return two_groups(mistake, comm);
    if (is(mistake, "split")) {
        MPI_Comm part;
        return rank == 1 ? MPI_Barrier(comm) : MPI_Comm_split(comm, 0, 0, &part);
    }
    if (is(mistake, "communicator")) {
        MPI_Comm other;
        MPI_Comm_dup(comm, &other);
        MPI_Comm_set_name(other, "the other one");
        return MPI_Barrier(rank ? comm : other);
    }
    if (is(mistake, "nobody")) {
        MPI_Comm other;
        MPI_Comm_dup(comm, &other);
        MPI_Comm_set_name(other, "the other one");
        return rank == 1 ? MPI_SUCCESS : MPI_Barrier(other);
    }
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "";
    int error, class, sum = 0;
    char name[MPI_MAX_ERROR_STRING];
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "mine");
    if (argc <= 2)
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    error = attempt(mistake, comm);
    MPI_Error_class(error, &class);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    for (int turn = 0; turn < size; turn++) {
        if (turn == rank) {
            int length;
            MPI_Error_string(class, name, &length);
            name[strcspn(name, ":")] = 0;
            printf("%d: %s, then %d\n", rank, name, sum);
            fflush(stdout);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
