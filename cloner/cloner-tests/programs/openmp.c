// OpenMP: a stencil on four threads with a barrier in every step.
//
//   openmp STEPS
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 400 };
static double now[N][N], next[N][N];

int main(int count, char **arguments) {
    long steps = count > 1 ? atol(arguments[1]) : 100;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            now[i][j] = (i * 31 + j * 17) % 101;
        }
    }
    printf("running\n");
    fflush(stdout);
#pragma omp parallel num_threads(4)
    for (long step = 0; step < steps; step++) {
#pragma omp for schedule(static)
        for (int i = 1; i < N - 1; i++) {
            for (int j = 1; j < N - 1; j++) {
                next[i][j] = 0.2 * (now[i][j] + now[i - 1][j] + now[i + 1][j] + now[i][j - 1] + now[i][j + 1]);
            }
        }
#pragma omp for schedule(static)
        for (int i = 1; i < N - 1; i++) {
            for (int j = 1; j < N - 1; j++) {
                now[i][j] = next[i][j];
            }
        }
    }
    while (getchar() != EOF) {
    }
    double sum = 0;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            sum += now[i][j] * (i + 2 * j);
        }
    }
    printf("%.17g\ndone\n", sum);
    return 0;
}
