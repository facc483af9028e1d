/* Shared by the test programs: a seeded generator, a running hash, and a failure that names rank and line. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the whole job when a condition does not hold. */
#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            int rank_ = -1;                                                                \
            MPI_Comm_rank(MPI_COMM_WORLD, &rank_);                                         \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, rank_, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 9);                                                  \
        }                                                                                  \
    } while (0)

/* splitmix64 */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* FNV-1a over bytes, continued from hash. */
static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

#define HASH_START 0xcbf29ce484222325u

#endif
