/* Heat in a square plate: a 2-D grid of ranks, each with a block of cells, halos exchanged every step.
 *
 *   heat [CELLS [STEPS [IMAGE.ppm]]]
 *
 * Rows of the halo are contiguous, columns a vector type. Rank 0 prints the total heat now and then, gathers the plate
 * at the end and prints its hash; with a third argument it also writes the picture. */
#include "check.h"
#include <math.h>

static int rank, size, cells, steps, width, height, left, top;
static double *now, *next;

#define AT(field, row, column) (field)[(size_t)(row) * (width + 2) + (column)]

static void colour(double heat, unsigned char *rgb)
{
    double t = heat < 0 ? 0 : heat > 1 ? 1 : heat;
    rgb[0] = (unsigned char)(255 * fmin(1, 2.2 * t));
    rgb[1] = (unsigned char)(255 * fmax(0, fmin(1, 2.2 * t - 0.8)));
    rgb[2] = (unsigned char)(255 * fmax(0.25 * (1 - t), 4 * (t - 0.75)));
}

static void write_picture(const char *path, const double *plate)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    fprintf(file, "P6\n%d %d\n255\n", cells, cells);
    for (size_t i = 0; i < (size_t)cells * cells; i++) {
        unsigned char rgb[3];
        colour(plate[i], rgb);
        fwrite(rgb, 1, 3, file);
    }
    CHECK(fclose(file) == 0);
}

/* Hot spots that move with the position alone: the same in every replica. */
static double source(int row, int column)
{
    double x = (column + 0.5) / cells, y = (row + 0.5) / cells;
    double a = hypot(x - 0.3, y - 0.35), b = hypot(x - 0.7, y - 0.6);
    return a < 0.12 || (b > 0.1 && b < 0.16) ? 1 : 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    cells = argc > 1 ? atoi(argv[1]) : 96;
    steps = argc > 2 ? atoi(argv[2]) : 200;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int dims[2] = {0, 0}, periods[2] = {0, 0}, place[2], north, south, west, east;
    MPI_Comm grid;
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, place);
    MPI_Cart_shift(grid, 0, 1, &north, &south);
    MPI_Cart_shift(grid, 1, 1, &west, &east);
    top = cells * place[0] / dims[0];
    height = cells * (place[0] + 1) / dims[0] - top;
    left = cells * place[1] / dims[1];
    width = cells * (place[1] + 1) / dims[1] - left;

    now = calloc((size_t)(width + 2) * (height + 2), sizeof *now);
    next = calloc((size_t)(width + 2) * (height + 2), sizeof *next);
    for (int row = 0; row < height; row++)
        for (int column = 0; column < width; column++)
            AT(now, row + 1, column + 1) = source(top + row, left + column);

    MPI_Datatype side;
    MPI_Type_vector(height, 1, width + 2, MPI_DOUBLE, &side);
    MPI_Type_commit(&side);
    for (int step = 0; step < steps; step++) {
        MPI_Request requests[8];
        MPI_Irecv(&AT(now, 0, 1), width, MPI_DOUBLE, north, 1, grid, &requests[0]);
        MPI_Irecv(&AT(now, height + 1, 1), width, MPI_DOUBLE, south, 2, grid, &requests[1]);
        MPI_Irecv(&AT(now, 1, 0), 1, side, west, 3, grid, &requests[2]);
        MPI_Irecv(&AT(now, 1, width + 1), 1, side, east, 4, grid, &requests[3]);
        MPI_Isend(&AT(now, height, 1), width, MPI_DOUBLE, south, 1, grid, &requests[4]);
        MPI_Isend(&AT(now, 1, 1), width, MPI_DOUBLE, north, 2, grid, &requests[5]);
        MPI_Isend(&AT(now, 1, width), 1, side, east, 3, grid, &requests[6]);
        MPI_Isend(&AT(now, 1, 1), 1, side, west, 4, grid, &requests[7]);
        MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
        double total = 0, sum = 0;
        for (int row = 1; row <= height; row++)
            for (int column = 1; column <= width; column++) {
                double around = AT(now, row - 1, column) + AT(now, row + 1, column) + AT(now, row, column - 1) +
                                AT(now, row, column + 1);
                AT(next, row, column) = AT(now, row, column) + 0.2 * (around - 4 * AT(now, row, column));
                total += AT(next, row, column);
            }
        double *swap = now;
        now = next;
        next = swap;
        if (step % 50 == 49) {
            MPI_Reduce(&total, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, grid);
            if (rank == 0)
                printf("step %d heat %.17g\n", step + 1, sum);
        }
    }

    double *plate = rank == 0 ? malloc((size_t)cells * cells * sizeof *plate) : NULL;
    int whole[2] = {height + 2, width + 2}, part[2] = {height, width}, start[2] = {1, 1};
    MPI_Datatype inner;
    MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &inner);
    MPI_Type_commit(&inner);
    MPI_Request request;
    MPI_Isend(now, 1, inner, 0, 9, grid, &request);
    for (int from = 0; rank == 0 && from < size; from++) {
        int at[2];
        MPI_Cart_coords(grid, from, 2, at);
        int y = cells * at[0] / dims[0], h = cells * (at[0] + 1) / dims[0] - y;
        int x = cells * at[1] / dims[1], w = cells * (at[1] + 1) / dims[1] - x;
        MPI_Datatype block;
        MPI_Type_vector(h, w, cells, MPI_DOUBLE, &block);
        MPI_Type_commit(&block);
        MPI_Recv(plate + (size_t)y * cells + x, 1, block, from, 9, grid, MPI_STATUS_IGNORE);
        MPI_Type_free(&block);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 0) {
        printf("plate %016llx\n",
               (unsigned long long)hash_bytes(HASH_START, plate, (size_t)cells * cells * sizeof *plate));
        if (argc > 3)
            write_picture(argv[3], plate);
    }
    MPI_Type_free(&side);
    MPI_Type_free(&inner);
    MPI_Comm_free(&grid);
    free(now);
    free(next);
    free(plate);
    MPI_Finalize();
    return 0;
}
