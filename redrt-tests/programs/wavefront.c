/* Gauss-Seidel over a cuboid, as the LU benchmark of NAS does it: planes of points are swept from one corner to the
 * opposite one and back. A process begins a plane when it has the edges of the processes before it, and passes its
 * own on: a pipeline of many short messages, in which no process can run ahead.
 *
 *   wavefront [POINTS [SWEEPS]] */
#include "check.h"
#include <math.h>

enum { DEPTH = 5 };

static int dims[2], north, south, west, east;
static long rows, columns, planes, first_row, first_column;
static double *value, *source, *edge;
static MPI_Comm grid;

/* The place of a point of this process; row 0 and column 0 are before the first. */
static size_t at(long plane, long row, long column)
{
    return ((size_t)plane * (size_t)(rows + 2) + (size_t)row) * (size_t)(columns + 2) + (size_t)column;
}

static void receive_edges(long plane, int from_row, int from_column, long row, long column)
{
    MPI_Recv(&value[at(plane, row, 1)], (int)columns, MPI_DOUBLE, from_row, 1, grid, MPI_STATUS_IGNORE);
    MPI_Recv(edge, (int)rows, MPI_DOUBLE, from_column, 2, grid, MPI_STATUS_IGNORE);
    for (long i = 0; from_column != MPI_PROC_NULL && i < rows; i++)
        value[at(plane, i + 1, column)] = edge[i];
}

static void send_edges(long plane, int to_row, int to_column, long row, long column)
{
    MPI_Send(&value[at(plane, row, 1)], (int)columns, MPI_DOUBLE, to_row, 1, grid);
    for (long i = 0; i < rows; i++)
        edge[i] = value[at(plane, i + 1, column)];
    MPI_Send(edge, (int)rows, MPI_DOUBLE, to_column, 2, grid);
}

static void relax(long plane, long row, long column)
{
    size_t here = at(plane, row, column), line = (size_t)columns + 2, sheet = line * ((size_t)rows + 2);
    double around = value[here - 1] + value[here + 1] + value[here - line] + value[here + line];
    around += (plane > 0 ? value[here - sheet] : 0) + (plane < planes - 1 ? value[here + sheet] : 0);
    value[here] = 0.2 * value[here] + 0.8 * (source[here] + around) / 6.05;
}

static void sweep(void)
{
    for (long plane = 0; plane < planes; plane++) {
        receive_edges(plane, north, west, 0, 0);
        for (long row = 1; row <= rows; row++)
            for (long column = 1; column <= columns; column++)
                relax(plane, row, column);
        send_edges(plane, south, east, rows, columns);
    }
    for (long plane = planes - 1; plane >= 0; plane--) {
        receive_edges(plane, south, east, rows + 1, columns + 1);
        for (long row = rows; row >= 1; row--)
            for (long column = columns; column >= 1; column--)
                relax(plane, row, column);
        send_edges(plane, north, west, 1, 1);
    }
}

static double norm(void)
{
    double local = 0, sum = 0;
    for (long plane = 0; plane < planes; plane++)
        for (long row = 1; row <= rows; row++)
            for (long column = 1; column <= columns; column++)
                local += value[at(plane, row, column)] * value[at(plane, row, column)];
    MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, grid);
    return sqrt(sum);
}

int main(int argc, char **argv)
{
    int rank, size, coordinates[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, (int[]){0, 0}, 0, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, coordinates);
    MPI_Cart_shift(grid, 0, 1, &north, &south);
    MPI_Cart_shift(grid, 1, 1, &west, &east);
    long points = argc > 1 ? atol(argv[1]) : 24;
    int sweeps = argc > 2 ? atoi(argv[2]) : 10;
    CHECK(points >= size && sweeps > 0);
    first_row = points * coordinates[0] / dims[0];
    rows = points * (coordinates[0] + 1) / dims[0] - first_row;
    first_column = points * coordinates[1] / dims[1];
    columns = points * (coordinates[1] + 1) / dims[1] - first_column;
    planes = points;
    size_t count = at(planes, 0, 0);
    value = calloc(count, sizeof *value);
    source = calloc(count, sizeof *source);
    edge = calloc((size_t)rows, sizeof *edge);
    CHECK(value && source && edge);
    for (long plane = 0; plane < planes; plane++)
        for (long row = 1; row <= rows; row++)
            for (long column = 1; column <= columns; column++)
                source[at(plane, row, column)] =
                    sin(0.1 * (double)(plane + 2 * (first_row + row) + DEPTH * (first_column + column)));
    double before = 0, change = 0;
    for (int i = 1; i <= sweeps; i++) {
        sweep();
        if (i % 5 && i != sweeps)
            continue;
        double now = norm();
        change = fabs(now - before);
        before = now;
        if (rank == 0)
            printf("sweep %d: %.17g\n", i, now);
    }
    CHECK(sweeps < 40 || change < 1e-3 * before);
    free(value);
    free(source);
    free(edge);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return 0;
}
