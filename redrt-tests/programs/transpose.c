/* Fourier transforms of a square whose rows are divided among the processes, as the FT benchmark of NAS does it in
 * three dimensions: rows are transformed where they are, and an alltoall of blocks turns them into columns. The way
 * forth and back must restore the square.
 *
 *   transpose [SIDE [ROUNDS]]      SIDE: a power of two
 *
 * The largest power of two of the processes takes part. */
#include "check.h"
#include <complex.h>
#include <math.h>

static int rank, size;
static long side, share;
static double complex *roots, *blocks;
static MPI_Comm comm;

/* In place, of one row; sign 1 is the way back. */
static void transform(double complex *row, int sign)
{
    for (long i = 1, j = 0; i < side; i++) {
        long bit = side >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double complex kept = row[i];
            row[i] = row[j];
            row[j] = kept;
        }
    }
    for (long length = 2; length <= side; length *= 2)
        for (long begin = 0; begin < side; begin += length)
            for (long k = 0; k < length / 2; k++) {
                double complex root = roots[k * (side / length)];
                double complex *low = &row[begin + k], *high = low + length / 2;
                double complex product = (sign > 0 ? conj(root) : root) * *high;
                *high = *low - product;
                *low += product;
            }
}

/* Rows become columns. `other` is memory of the same size. */
static void transpose(double complex *rows, double complex *other)
{
    for (int to = 0; to < size; to++)
        for (long i = 0; i < share; i++)
            for (long j = 0; j < share; j++)
                blocks[(to * share + j) * share + i] = rows[i * side + to * share + j];
    int count = (int)(share * share);
    MPI_Alltoall(blocks, count, MPI_C_DOUBLE_COMPLEX, other, count, MPI_C_DOUBLE_COMPLEX, comm);
    for (int from = 0; from < size; from++)
        for (long j = 0; j < share; j++)
            memcpy(&rows[j * side + from * share], &other[(from * share + j) * share], (size_t)share * sizeof *rows);
}

static void transform_all(double complex *rows, double complex *other, int sign)
{
    for (int direction = 0; direction < 2; direction++) {
        for (long i = 0; i < share; i++)
            transform(&rows[i * side], sign);
        transpose(rows, other);
    }
}

static void run(int rounds)
{
    size_t count = (size_t)(share * side);
    double complex *rows = malloc(count * sizeof *rows), *other = malloc(count * sizeof *other);
    double complex *first = malloc(count * sizeof *first);
    blocks = malloc(count * sizeof *blocks);
    roots = malloc((size_t)side * sizeof *roots);
    CHECK(rows && other && first && blocks && roots);
    for (long k = 0; k < side; k++)
        roots[k] = cexp(-2 * acos(-1) * I * (double)k / (double)side);
    uint64_t seed = (uint64_t)rank + 1;
    for (size_t i = 0; i < count; i++) {
        double real = (double)(next_random(&seed) >> 11) * 0x1p-53;
        rows[i] = first[i] = real + I * ((double)(next_random(&seed) >> 11) * 0x1p-53);
    }
    for (int round = 1; round <= rounds; round++) {
        double complex local = 0, sum = 0;
        transform_all(rows, other, -1);
        for (size_t i = 0; i < count; i++)
            local += rows[i] / (double)(1 + i % 7);
        MPI_Reduce(&local, &sum, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, 0, comm);
        if (rank == 0)
            printf("round %d: %.12g %.12g\n", round, creal(sum), cimag(sum));
        transform_all(rows, other, 1);
        for (size_t i = 0; i < count; i++) {
            rows[i] /= (double)(side * side);
            CHECK(cabs(rows[i] - first[i]) < 1e-9);
            /* The next round begins with other values. */
            rows[i] = first[i] *= 0.6 + 0.8 * I;
        }
    }
    free(rows);
    free(other);
    free(first);
    free(blocks);
    free(roots);
}

int main(int argc, char **argv)
{
    int all, taking_part = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    side = argc > 1 ? atol(argv[1]) : 64;
    int rounds = argc > 2 ? atoi(argv[2]) : 4;
    while (2 * taking_part <= all)
        taking_part *= 2;
    CHECK(side >= taking_part && (side & (side - 1)) == 0 && rounds > 0);
    MPI_Comm_split(MPI_COMM_WORLD, rank < taking_part ? 0 : MPI_UNDEFINED, rank, &comm);
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_size(comm, &size);
        share = side / size;
        run(rounds);
        MPI_Comm_free(&comm);
    }
    MPI_Finalize();
    return 0;
}
