/* Conjugate gradient on the 1-D Poisson matrix with a shift: halo exchange, dot products by allreduce.
 *
 *   cg [UNKNOWNS [ITERATIONS]] */
#include "check.h"
#include <math.h>

static int rank, size;
static long first, count;

static void multiply(double *x, double *y)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    x[0] = x[count + 1] = 0;
    MPI_Sendrecv(&x[1], 1, MPI_DOUBLE, left, 1, &x[count + 1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&x[count], 1, MPI_DOUBLE, right, 2, &x[0], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (long i = 1; i <= count; i++)
        y[i] = 2.01 * x[i] - x[i - 1] - x[i + 1];
}

static double dot(const double *a, const double *b)
{
    double local = 0, sum = 0;
    for (long i = 1; i <= count; i++)
        local += a[i] * b[i];
    MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long unknowns = argc > 1 ? atol(argv[1]) : 4000;
    int iterations = argc > 2 ? atoi(argv[2]) : 120;
    first = unknowns * rank / size;
    count = unknowns * (rank + 1) / size - first;
    size_t bytes = (size_t)(count + 2) * sizeof(double);
    double *x = calloc(1, bytes), *r = calloc(1, bytes), *p = calloc(1, bytes), *q = calloc(1, bytes);
    for (long i = 1; i <= count; i++)
        r[i] = p[i] = sin(0.01 * (double)(first + i)) + 1;
    double rho = dot(r, r);
    for (int k = 0; k < iterations; k++) {
        multiply(p, q);
        double alpha = rho / dot(p, q);
        for (long i = 1; i <= count; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        double next = dot(r, r), beta = next / rho;
        rho = next;
        for (long i = 1; i <= count; i++)
            p[i] = r[i] + beta * p[i];
        if (rank == 0 && k % 20 == 19)
            printf("iteration %d residual %.17g\n", k + 1, sqrt(rho));
    }
    double norm = dot(x, x);
    if (rank == 0)
        printf("solution %.17g\n", sqrt(norm));
    free(x);
    free(r);
    free(p);
    free(q);
    MPI_Finalize();
    return 0;
}
