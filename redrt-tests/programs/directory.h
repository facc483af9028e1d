/* The directory in which a job's program makes files: that of its argument, or one of its own in TMPDIR. */
#ifndef DIRECTORY_H
#define DIRECTORY_H

#include "check.h"
#include <errno.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>

static int rank, size;
static char directory[PATH_MAX / 2];

/* A path in the directory; up to four of them can be in use. */
static inline const char *in(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return path;
}

/* A path in this rank's part of the directory. */
static inline const char *own(const char *name)
{
    char with_rank[PATH_MAX / 2];
    snprintf(with_rank, sizeof with_rank, "r%d%s%s", rank, *name ? "/" : "", name);
    return in(with_rank);
}

/* Called after MPI_Init: every process learns the directory. When `given` is null, `program` is part of its name. */
static void make_directory(const char *program, const char *given)
{
    uint64_t number;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        const char *folder = getenv("TMPDIR");
        CHECK(getrandom(&number, sizeof number, 0) == sizeof number);
        snprintf(directory, sizeof directory, "%s/redrt-%s-%016llx", folder ? folder : "/tmp", program,
                 (unsigned long long)number);
        if (given)
            snprintf(directory, sizeof directory, "%s", given);
        CHECK(mkdir(directory, 0777) == 0 || errno == EEXIST);
    }
    MPI_Bcast(directory, sizeof directory, MPI_CHAR, 0, MPI_COMM_WORLD);
}

/* All ranks send and receive, so that replicas can be killed here. */
static inline uint64_t exchange_hash(uint64_t hash)
{
    uint64_t from = 0;
    MPI_Sendrecv(&hash, 1, MPI_UINT64_T, (rank + 1) % size, 1, &from, 1, MPI_UINT64_T, (rank + size - 1) % size, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return from;
}

#endif
