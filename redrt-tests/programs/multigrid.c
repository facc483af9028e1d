/* Poisson's equation in a cube by V-cycles, as the MG benchmark of NAS does it: planes of points are divided among
 * the processes, and each one's outer planes are exchanged at every level, from large ones down to a few bytes.
 *
 *   multigrid [LEVELS [CYCLES]]      2^LEVELS - 1 points along each edge of the cube */
#include "check.h"
#include <math.h>

enum { LEVELS_MAX = 10 };

/* This process's planes of one level, with one before and one after. */
struct level {
    long points, first, planes;
    double *value, *source, *rest;
};

static struct level levels[LEVELS_MAX];
static int rank, size, left, right, level_count;

static size_t sheet(const struct level *level)
{
    return (size_t)(level->points + 2) * (size_t)(level->points + 2);
}

/* The point in a plane, a line and a column of this process, each counted from 1. */
static size_t at(const struct level *level, long plane, long line, long column)
{
    return (size_t)plane * sheet(level) + (size_t)line * (size_t)(level->points + 2) + (size_t)column;
}

#define EACH_POINT(level)                                                                          \
    for (long plane = 1; plane <= (level)->planes; plane++)                                        \
        for (long line = 1; line <= (level)->points; line++)                                       \
            for (long column = 1; column <= (level)->points; column++)

static void exchange(const struct level *level, double *field)
{
    int count = (int)sheet(level);
    MPI_Request requests[4];
    MPI_Irecv(field, count, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&field[at(level, level->planes + 1, 0, 0)], count, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&field[at(level, 1, 0, 0)], count, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&field[at(level, level->planes, 0, 0)], count, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static double around(const struct level *level, size_t here)
{
    const double *value = level->value;
    size_t line = (size_t)level->points + 2, plane = sheet(level);
    return value[here - 1] + value[here + 1] + value[here - line] + value[here + line] + value[here - plane] +
           value[here + plane];
}

/* The source minus the effect of the values. */
static void find_rest(struct level *level)
{
    exchange(level, level->value);
    EACH_POINT(level)
    {
        size_t here = at(level, plane, line, column);
        level->rest[here] = level->source[here] - (6 * level->value[here] - around(level, here));
    }
}

static void smooth(struct level *level, int times)
{
    for (int i = 0; i < times; i++) {
        find_rest(level);
        EACH_POINT(level)
        {
            size_t here = at(level, plane, line, column);
            level->value[here] += 0.8 / 6 * level->rest[here];
        }
    }
}

/* The source of the level below: each of its points is the mean of the 27 around it, near ones counting more. */
static void restrict_to(struct level *below, struct level *above)
{
    exchange(above, above->rest);
    memset(below->value, 0, at(below, below->planes + 2, 0, 0) * sizeof(double));
    EACH_POINT(below)
    {
        size_t there = at(above, 2 * (below->first + plane - 1) - above->first + 1, 2 * line, 2 * column);
        double sum = 0;
        for (long i = -1; i <= 1; i++)
            for (long j = -1; j <= 1; j++)
                for (long k = -1; k <= 1; k++)
                    sum += above->rest[there + (size_t)at(above, i + 1, j + 1, k + 1) - at(above, 1, 1, 1)] /
                           (double)(1 << (labs(i) + labs(j) + labs(k)));
        /* 1/8 for the mean, 4 for the length of the edge, squared. */
        below->source[at(below, plane, line, column)] = sum / 2;
    }
}

/* Adds the values of the level below, and between its points their means. */
static void add_from(struct level *above, struct level *below)
{
    exchange(below, below->value);
    EACH_POINT(above)
    {
        long global = above->first + plane - 1;
        double sum = 0;
        for (long i = global / 2; i <= (global + 1) / 2; i++)
            for (long j = line / 2; j <= (line + 1) / 2; j++)
                for (long k = column / 2; k <= (column + 1) / 2; k++)
                    sum += below->value[at(below, i - below->first + 1, j, k)];
        above->value[at(above, plane, line, column)] += sum / (double)(1 << (global % 2 + line % 2 + column % 2));
    }
}

static void cycle(int number)
{
    struct level *level = &levels[number];
    smooth(level, number + 1 == level_count ? 20 : 2);
    if (number + 1 == level_count)
        return;
    find_rest(level);
    restrict_to(&levels[number + 1], level);
    cycle(number + 1);
    add_from(level, &levels[number + 1]);
    smooth(level, 2);
}

/* Makes a level, unless one of the processes would have no part of it. */
static int begin(struct level *level, long points, long first, long last)
{
    int has_some = last >= first && points > 0, have_all;
    MPI_Allreduce(&has_some, &have_all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (!have_all)
        return 0;
    *level = (struct level){.points = points, .first = first, .planes = last - first + 1};
    size_t count = at(level, level->planes + 2, 0, 0);
    level->value = calloc(count, sizeof(double));
    level->source = calloc(count, sizeof(double));
    level->rest = calloc(count, sizeof(double));
    CHECK(level->value && level->source && level->rest);
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    int exponent = argc > 1 ? atoi(argv[1]) : 4, cycles = argc > 2 ? atoi(argv[2]) : 4;
    CHECK(exponent > 1 && exponent <= LEVELS_MAX && cycles > 0);
    long points = (1L << exponent) - 1, first = 1 + points * rank / size, last = points * (rank + 1) / size;
    while (level_count < exponent && begin(&levels[level_count], points, first, last)) {
        level_count++;
        points /= 2;
        first = (first + 1) / 2;
        last /= 2;
    }
    CHECK(level_count > 0);
    struct level *finest = &levels[0];
    uint64_t seed = (uint64_t)rank + 1;
    for (int i = 0; i < 20; i++) {
        long plane = 1 + (long)(next_random(&seed) % (uint64_t)finest->planes);
        long line = 1 + (long)(next_random(&seed) % (uint64_t)finest->points);
        long column = 1 + (long)(next_random(&seed) % (uint64_t)finest->points);
        finest->source[at(finest, plane, line, column)] = i % 2 ? 1 : -1;
    }
    double before = 0;
    for (int i = 0; i <= cycles; i++) {
        double local = 0, sum = 0;
        find_rest(finest);
        EACH_POINT(finest)
        {
            double rest = finest->rest[at(finest, plane, line, column)];
            local += rest * rest;
        }
        MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        CHECK(i == 0 || i > 12 || sum < before);
        before = sum;
        if (rank == 0)
            printf("cycle %d: %.15g\n", i, sqrt(sum));
        if (i < cycles)
            cycle(0);
    }
    for (int i = 0; i < level_count; i++) {
        free(levels[i].value);
        free(levels[i].source);
        free(levels[i].rest);
    }
    MPI_Finalize();
    return 0;
}
