/* Every collective against a serial oracle: lengths from 0 to beyond each change of algorithm, all roots, several types
 * and operations, MPI_IN_PLACE, the v and w forms, a user operation that does not commute, and the nonblocking forms.
 *
 *   collectives [LONGEST [ROUNDS]] */
#include "check.h"

static int rank, size, checks;
static MPI_Comm comm;

/* Element i of rank r in test t. */
static int64_t element(int r, int i, int t)
{
    uint64_t state = (uint64_t)r * 1000003u + (uint64_t)i * 31u + (uint64_t)t * 7919u;
    return (int64_t)(next_random(&state) % 2001) - 1000;
}

static void fill(int64_t *buffer, int r, int count, int t)
{
    for (int i = 0; i < count; i++)
        buffer[i] = element(r, i, t);
}

#define EXPECT(condition)  \
    do {                   \
        CHECK(condition);  \
        checks++;          \
    } while (0)

/* 2 x 2 matrices modulo a prime: associative, not commutative. */
static void matrix_product(void *left, void *right, int *count, MPI_Datatype *type)
{
    (void)type;
    int64_t *a = left, *b = right;
    for (int k = 0; k < *count; k++, a += 4, b += 4) {
        int64_t c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                        a[2] * b[1] + a[3] * b[3]};
        for (int i = 0; i < 4; i++)
            b[i] = ((c[i] % 1009) + 1009) % 1009;
    }
}

static int64_t reduce_oracle(int first, int last, int i, int t, MPI_Op op)
{
    int64_t value = element(first, i, t);
    for (int r = first + 1; r <= last; r++) {
        int64_t next = element(r, i, t);
        if (op == MPI_SUM)
            value += next;
        else if (op == MPI_MAX)
            value = next > value ? next : value;
        else if (op == MPI_MIN)
            value = next < value ? next : value;
        else
            value ^= next;
    }
    return value;
}

static void test_reductions(int count, int t)
{
    size_t n = (size_t)count * (size_t)size + 1;
    int64_t *out = malloc(n * 8), *in = malloc(n * 8);
    MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_BXOR};
    for (int k = 0; k < 4; k++) {
        MPI_Op op = ops[k];
        fill(out, rank, count, t);
        MPI_Allreduce(out, in, count, MPI_INT64_T, op, comm);
        for (int i = 0; i < count; i++)
            EXPECT(in[i] == reduce_oracle(0, size - 1, i, t, op));
        fill(in, rank, count, t);
        MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_INT64_T, op, comm);
        for (int i = 0; i < count; i++)
            EXPECT(in[i] == reduce_oracle(0, size - 1, i, t, op));
        int root = t % size;
        if (rank == root) {
            fill(in, rank, count, t);
            MPI_Reduce(MPI_IN_PLACE, in, count, MPI_INT64_T, op, root, comm);
            for (int i = 0; i < count; i++)
                EXPECT(in[i] == reduce_oracle(0, size - 1, i, t, op));
        } else {
            MPI_Reduce(out, NULL, count, MPI_INT64_T, op, root, comm);
        }
        fill(out, rank, count, t);
        MPI_Scan(out, in, count, MPI_INT64_T, op, comm);
        for (int i = 0; i < count; i++)
            EXPECT(in[i] == reduce_oracle(0, rank, i, t, op));
        fill(in, rank, count, t);
        MPI_Exscan(MPI_IN_PLACE, in, count, MPI_INT64_T, op, comm);
        for (int i = 0; i < count && rank > 0; i++)
            EXPECT(in[i] == reduce_oracle(0, rank - 1, i, t, op));
        fill(out, rank, count * size, t);
        MPI_Reduce_scatter_block(out, in, count, MPI_INT64_T, op, comm);
        for (int i = 0; i < count; i++)
            EXPECT(in[i] == reduce_oracle(0, size - 1, rank * count + i, t, op));
        int *counts = malloc((size_t)size * sizeof *counts), before = 0;
        for (int r = 0, sum = 0; r < size; r++) {
            counts[r] = (r * 3 + t) % (count + 1);
            if (r == rank)
                before = sum;
            sum += counts[r];
        }
        MPI_Reduce_scatter(out, in, counts, MPI_INT64_T, op, comm);
        for (int i = 0; i < counts[rank]; i++)
            EXPECT(in[i] == reduce_oracle(0, size - 1, before + i, t, op));
        free(counts);
        MPI_Request request;
        fill(out, rank, count, t);
        MPI_Iallreduce(out, in, count, MPI_INT64_T, op, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++)
            EXPECT(in[i] == reduce_oracle(0, size - 1, i, t, op));
    }
    free(out);
    free(in);
}

static void test_order(int t)
{
    MPI_Op op;
    MPI_Datatype matrix;
    MPI_Op_create(matrix_product, 0, &op);
    MPI_Type_contiguous(4, MPI_INT64_T, &matrix);
    MPI_Type_commit(&matrix);
    enum { COUNT = 5 };
    int64_t mine[4 * COUNT], result[4 * COUNT], expected[4 * COUNT], next[4 * COUNT];
    int one = COUNT;
    fill(mine, rank, 4 * COUNT, t);
    for (int upto = 0; upto < 2; upto++) {
        int last = upto ? rank : size - 1;
        fill(expected, last, 4 * COUNT, t);
        for (int r = last - 1; r >= 0; r--) {
            fill(next, r, 4 * COUNT, t);
            matrix_product(next, expected, &one, NULL);
        }
        for (int form = 0; form < (upto ? 1 : 2); form++) {
            if (upto)
                MPI_Scan(mine, result, COUNT, matrix, op, comm);
            else if (form)
                MPI_Allreduce(mine, result, COUNT, matrix, op, comm);
            else
                MPI_Reduce(mine, result, COUNT, matrix, op, t % size, comm);
            if (upto || form || rank == t % size)
                for (int i = 0; i < 4 * COUNT; i++)
                    EXPECT(last == 0 || (result[i] - expected[i]) % 1009 == 0);
        }
    }
    MPI_Op_free(&op);
    MPI_Type_free(&matrix);
}

static void test_moves(int count, int t)
{
    size_t n = (size_t)(count + 3) * (size_t)size + 1;
    int64_t *out = malloc(n * 8), *in = malloc(n * 8);
    int *counts = malloc(2 * (size_t)size * sizeof *counts), *places = counts + size;
    for (int r = 0, at = 1; r < size; r++) {
        counts[r] = (count + r) % (count + 3);
        places[r] = at;
        at += counts[r];
    }
    MPI_Request request;
    for (int root = 0; root < size; root++) {
        fill(out, root, count, t);
        if (rank != root)
            memset(out, 0, (size_t)count * 8);
        if (t % 2) {
            MPI_Bcast(out, count, MPI_INT64_T, root, comm);
        } else {
            MPI_Ibcast(out, count, MPI_INT64_T, root, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < count; i++)
            EXPECT(out[i] == element(root, i, t));
        fill(out, rank, count + 3, t);
        MPI_Gather(out, count, MPI_INT64_T, in, count, MPI_INT64_T, root, comm);
        for (int i = 0; rank == root && i < count * size; i++)
            EXPECT(in[i] == element(i / count, i % count, t));
        MPI_Gatherv(out, counts[rank], MPI_INT64_T, in, counts, places, MPI_INT64_T, root, comm);
        for (int r = 0; rank == root && r < size; r++)
            for (int i = 0; i < counts[r]; i++)
                EXPECT(in[places[r] + i] == element(r, i, t));
        fill(out, root, (count + 3) * size, t);
        MPI_Scatter(out, count, MPI_INT64_T, in, count, MPI_INT64_T, root, comm);
        for (int i = 0; i < count; i++)
            EXPECT(in[i] == element(root, rank * count + i, t));
        MPI_Scatterv(out, counts, places, MPI_INT64_T, in, counts[rank], MPI_INT64_T, root, comm);
        for (int i = 0; i < counts[rank]; i++)
            EXPECT(in[i] == element(root, places[rank] + i, t));
    }
    fill(out, rank, count + 3, t);
    MPI_Allgather(out, count, MPI_INT64_T, in, count, MPI_INT64_T, comm);
    for (int i = 0; i < count * size; i++)
        EXPECT(in[i] == element(i / count, i % count, t));
    MPI_Allgatherv(out, counts[rank], MPI_INT64_T, in, counts, places, MPI_INT64_T, comm);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++)
            EXPECT(in[places[r] + i] == element(r, i, t));
    fill(out, rank, count * size, t);
    MPI_Alltoall(out, count, MPI_INT64_T, in, count, MPI_INT64_T, comm);
    for (int i = 0; i < count * size; i++)
        EXPECT(in[i] == element(i / count, rank * count + i % count, t));
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, MPI_INT64_T, comm);
    for (int i = 0; i < count * size; i++)
        EXPECT(out[i] == element(i / count, rank * count + i % count, t));
    MPI_Datatype *types = malloc((size_t)size * sizeof *types);
    int *bytes = malloc(2 * (size_t)size * sizeof *bytes), *same = bytes + size;
    for (int r = 0; r < size; r++) {
        types[r] = MPI_INT64_T;
        bytes[r] = r * count * 8;
        same[r] = count;
    }
    fill(out, rank, count * size, t);
    MPI_Alltoallw(out, same, bytes, types, in, same, bytes, types, comm);
    for (int i = 0; i < count * size; i++)
        EXPECT(in[i] == element(i / count, rank * count + i % count, t));
    free(types);
    free(bytes);
    MPI_Ibarrier(comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
    free(out);
    free(in);
    free(counts);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int longest = argc > 1 ? atoi(argv[1]) : 12000, rounds = argc > 2 ? atoi(argv[2]) : 1, t = 1;
    for (int round = 0; round < rounds; round++) {
        for (int count = 0; count <= longest; count = count * 5 + 1, t++) {
            if (count > 0)
                test_moves(count, t);
            test_reductions(count, t);
            test_order(t);
        }
    }
    int64_t mine = checks, all = 0;
    MPI_Reduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, 0, comm);
    if (rank == 0)
        printf("checks %lld\n", (long long)all);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
