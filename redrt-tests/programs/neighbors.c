/* Neighbourhood collectives on grids, graphs and distributed graphs, and persistent collectives, against their
 * expected results. Values name their sender, its place for the receiver, and the round.
 *
 *   neighbors [ROUNDS] */
#include "check.h"

enum { COUNT = 3, PLACES_MAX = 16 };

static int round_number;
static uint64_t hash = HASH_START;

/* Element k that `rank` sends from its place. */
static int value(int rank, int place, int k)
{
    return ((round_number * 64 + rank) * PLACES_MAX + place) * COUNT + k;
}

/* The members that `rank` of a communicator sends to and receives from. The k-th edges between two members are one
 * edge. */
struct neighbors {
    int in, out, sources[PLACES_MAX], destinations[PLACES_MAX], from_place[PLACES_MAX];
};

static void check_all(MPI_Comm comm, const struct neighbors *n, int gather_place)
{
    int rank, out[PLACES_MAX * COUNT], in[PLACES_MAX * COUNT], counts[PLACES_MAX], displs[PLACES_MAX];
    MPI_Aint places[PLACES_MAX];
    MPI_Datatype types[PLACES_MAX];
    MPI_Comm_rank(comm, &rank);
    for (int place = 0; place < n->out; place++)
        for (int k = 0; k < COUNT; k++)
            out[place * COUNT + k] = value(rank, place, k);
    for (int place = 0; place < PLACES_MAX; place++) {
        counts[place] = COUNT;
        displs[place] = place * COUNT;
        places[place] = (MPI_Aint)(place * COUNT * sizeof(int));
        types[place] = MPI_INT;
    }
    for (int form = 0; form < 9; form++) {
        MPI_Request request = MPI_REQUEST_NULL;
        memset(in, 0x55, sizeof in);
        switch (form) {
        case 0: MPI_Neighbor_alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, comm); break;
        case 1: MPI_Neighbor_alltoallv(out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, comm); break;
        case 2: MPI_Neighbor_alltoallw(out, counts, places, types, in, counts, places, types, comm); break;
        case 3: MPI_Ineighbor_alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, comm, &request); break;
        case 4:
            MPI_Ineighbor_alltoallw(out, counts, places, types, in, counts, places, types, comm, &request);
            break;
        case 5:
            MPI_Neighbor_alltoallv_init(out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, comm,
                                        MPI_INFO_NULL, &request);
            MPI_Start(&request);
            break;
        case 6: MPI_Neighbor_allgather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, comm); break;
        case 7: MPI_Neighbor_allgatherv(out, COUNT, MPI_INT, in, counts, displs, MPI_INT, comm); break;
        case 8: MPI_Ineighbor_allgather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, comm, &request); break;
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (request != MPI_REQUEST_NULL)
            MPI_Request_free(&request);
        for (int place = 0; place < n->in; place++)
            for (int k = 0; k < COUNT; k++) {
                int got = in[place * COUNT + k], unset;
                memset(&unset, 0x55, sizeof unset);
                int from_place = form < 6 ? n->from_place[place] : gather_place;
                CHECK(got == (n->sources[place] == MPI_PROC_NULL ? unset : value(n->sources[place], from_place, k)));
            }
        hash = hash_bytes(hash, in, sizeof(int) * COUNT * (size_t)n->in);
    }
}

static void check_grids(int size)
{
    for (int periodic = 0; periodic < 2; periodic++) {
        int dims[2] = {0, 1}, periods[2] = {periodic, periodic}, rank;
        MPI_Comm grid;
        MPI_Dims_create(size, 2, dims);
        MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
        MPI_Comm_rank(grid, &rank);
        struct neighbors n = {.in = 4, .out = 4};
        for (int dimension = 0; dimension < 2; dimension++) {
            MPI_Cart_shift(grid, dimension, 1, &n.sources[2 * dimension], &n.sources[2 * dimension + 1]);
            /* The previous member sent it as a message to its next one. */
            n.from_place[2 * dimension] = 2 * dimension + 1;
            n.from_place[2 * dimension + 1] = 2 * dimension;
        }
        check_all(grid, &n, 0);
        MPI_Comm_free(&grid);
    }
}

/* A ring in which every member has one edge to the next and two to the one after that. */
static void check_graphs(int rank, int size)
{
    int index[64], edges[64 * 3];
    for (int node = 0; node < size; node++) {
        index[node] = 3 * (node + 1);
        edges[3 * node] = (node + 1) % size;
        edges[3 * node + 1] = (node + size - 1) % size;
        edges[3 * node + 2] = node;
    }
    MPI_Comm graph;
    int status, nodes, count, found[3], all_index[64], all_edges[64 * 3];
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph);
    MPI_Topo_test(graph, &status);
    MPI_Graphdims_get(graph, &nodes, &count);
    CHECK(status == MPI_GRAPH && nodes == size && count == 3 * size);
    MPI_Graph_get(graph, 64, 64 * 3, all_index, all_edges);
    CHECK(memcmp(index, all_index, sizeof(int) * (size_t)size) == 0);
    CHECK(memcmp(edges, all_edges, sizeof(int) * 3 * (size_t)size) == 0);
    MPI_Graph_neighbors_count(graph, rank, &count);
    MPI_Graph_neighbors(graph, rank, 3, found);
    CHECK(count == 3 && memcmp(found, edges + 3 * rank, sizeof found) == 0);
    struct neighbors n = {.in = 3, .out = 3};
    memcpy(n.sources, found, sizeof found);
    if (size > 2) {
        /* The next member has this one as its previous one. */
        n.from_place[0] = 1;
        n.from_place[1] = 0;
    } else if (size == 2) {
        n.from_place[0] = 0;
        n.from_place[1] = 1;
    } else {
        n.from_place[0] = 0;
        n.from_place[1] = 1;
    }
    n.from_place[2] = 2;
    check_all(graph, &n, 0);
    MPI_Comm_free(&graph);

    int degree = 3, destinations[3] = {(rank + 1) % size, (rank + 2) % size, (rank + 2) % size}, weights[3] = {5, 6, 7};
    int in, out, weighted, sources[3], in_weights[3], out_weights[3];
    MPI_Comm distributed, adjacent;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, destinations, weights, MPI_INFO_NULL, 0, &distributed);
    MPI_Dist_graph_neighbors_count(distributed, &in, &out, &weighted);
    CHECK(in == 3 && out == 3 && weighted);
    MPI_Dist_graph_neighbors(distributed, 3, sources, in_weights, 3, destinations, out_weights);
    struct neighbors d = {.in = 3, .out = 3};
    for (int place = 0; place < 3; place++) {
        d.sources[place] = sources[place];
        /* Weights name the edges, which may be listed in any order. */
        int sent_from = -1;
        int theirs[3] = {(sources[place] + 1) % size, (sources[place] + 2) % size, (sources[place] + 2) % size};
        for (int at = 0; at < 3; at++)
            if (theirs[at] == rank && in_weights[place] == 5 + at)
                sent_from = at;
        CHECK(sent_from >= 0);
        d.from_place[place] = sent_from;
    }
    int same_order = memcmp(out_weights, weights, sizeof weights) == 0;
    if (same_order)
        check_all(distributed, &d, 0);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, sources, MPI_UNWEIGHTED, out, destinations, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &adjacent);
    MPI_Dist_graph_neighbors_count(adjacent, &in, &out, &weighted);
    CHECK(in == 3 && out == 3 && !weighted);
    MPI_Topo_test(adjacent, &status);
    CHECK(status == MPI_DIST_GRAPH);
    if (same_order)
        check_all(adjacent, &d, 0);
    MPI_Comm_free(&distributed);
    MPI_Comm_free(&adjacent);
}

/* Two persistent collectives, started in an order that differs between ranks, with types and operations freed. */
static void check_persistent(int rank, int size, int rounds)
{
    int sum = 0, one, all[64], pair[2];
    MPI_Request requests[3];
    MPI_Datatype vector;
    MPI_Type_contiguous(2, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    MPI_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Allgather_init(&one, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Bcast_init(pair, 1, vector, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
    MPI_Type_free(&vector);
    for (int round = 0; round < rounds; round++) {
        one = rank + round;
        pair[0] = pair[1] = rank == size - 1 ? round : -1;
        for (int k = 0; k < 3; k++)
            MPI_Start(&requests[(k + rank) % 3]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        CHECK(sum == size * (size - 1) / 2 + size * round && pair[0] == round && pair[1] == round);
        for (int from = 0; from < size; from++)
            CHECK(all[from] == from + round);
        hash = hash_bytes(hash, all, sizeof(int) * (size_t)size);
    }
    for (int k = 0; k < 3; k++)
        MPI_Request_free(&requests[k]);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    for (round_number = 0; round_number < rounds; round_number++) {
        check_grids(size);
        check_graphs(rank, size);
        check_persistent(rank, size, 3);
    }
    uint64_t sum = 0;
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
