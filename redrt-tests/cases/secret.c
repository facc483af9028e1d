/* Collectives of buffers that no other process can read, as memory of a driver may be: secret.x RANKS
 *
 * The lowest RANKS ranks have all buffers in secret memory (memfd_secret), the others in ordinary memory. Prints
 * "right" when all bytes have come, or "no secret memory" where the kernel has none. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANKS_MAX = 8, PIECE_MAX = 200000, BYTES = RANKS_MAX * PIECE_MAX, ROUNDS = 6 };

static int rank, size, wrong;

static unsigned char *make(int is_secret)
{
    int fd = is_secret ? (int)syscall(SYS_memfd_secret, 0) : -1;
    int kind = is_secret ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    if (is_secret && (fd < 0 || ftruncate(fd, BYTES) != 0))
        return NULL;
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, kind, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static unsigned char value(int from, int to, int round, int at)
{
    return (unsigned char)(31 * from + 7 * to + 3 * round + at % 251);
}

static void fill(unsigned char *piece, int bytes, int from, int to, int round)
{
    for (int at = 0; at < bytes; at++)
        piece[at] = value(from, to, round, at);
}

static void check(const unsigned char *piece, int bytes, int from, int to, int round)
{
    for (int at = 0; at < bytes && !wrong; at++)
        if (piece[at] != value(from, to, round, at)) {
            fprintf(stderr, "rank %d: byte %d of %d from rank %d in round %d\n", rank, at, bytes, from, round);
            wrong = 1;
        }
}

static void operands(int32_t *operand, int count, int round)
{
    for (int at = 0; at < count; at++)
        operand[at] = rank + at % 1000 + round;
}

/* Checks sums over `terms` operands, from ranks whose numbers add up to `ranks`, from element `first` on. */
static void check_sums(const int32_t *sums, int count, int terms, int ranks, int first, int round)
{
    for (int at = 0; at < count && !wrong; at++)
        if (sums[at] != ranks + terms * ((first + at) % 1000 + round)) {
            fprintf(stderr, "rank %d: sum %d of %d in round %d is %d\n", rank, at, count, round, sums[at]);
            wrong = 1;
        }
}

static void play(unsigned char *out, unsigned char *in, int bytes, int round)
{
    int root = round % size;
    if (rank == root)
        fill(out, bytes, root, 0, round);
    MPI_Bcast(out, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    check(out, bytes, root, 0, round);

    fill(out, bytes, rank, 0, round);
    MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        check(in + (size_t)from * bytes, bytes, from, 0, round);

    for (int to = 0; to < size; to++)
        fill(out + (size_t)to * bytes, bytes, rank, to, round);
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        check(in + (size_t)from * bytes, bytes, from, rank, round);

    int count = bytes / (int)sizeof(int32_t), all = size * (size - 1) / 2, before = rank * (rank - 1) / 2;
    int32_t *operand = (int32_t *)out, *result = (int32_t *)in;
    for (int in_place = 0; in_place < 2; in_place++) {
        void *from = in_place ? MPI_IN_PLACE : (void *)operand, *from_root = rank == root ? from : operand;
        int32_t *sums = in_place ? operand : result;
        operands(operand, count, round);
        MPI_Allreduce(from, sums, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        check_sums(sums, count, size, all, 0, round);
        operands(operand, count, round);
        MPI_Reduce(from_root, rank == root ? sums : NULL, count, MPI_INT32_T, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root)
            check_sums(sums, count, size, all, 0, round);
        operands(operand, count, round);
        MPI_Scan(from, sums, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        check_sums(sums, count, rank + 1, before + rank, 0, round);
        operands(operand, count, round);
        MPI_Exscan(from, sums, count, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        if (rank > 0)
            check_sums(sums, count, rank, before, 0, round);
        operands(operand, count / size * size, round);
        MPI_Reduce_scatter_block(from, sums, count / size, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        check_sums(sums, count / size, size, all, count / size * rank, round);
    }

    MPI_Request request;
    if (rank == root)
        fill(out, bytes, root, 1, round);
    MPI_Ibcast(out, bytes, MPI_BYTE, root, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(out, bytes, root, 1, round);
}

int main(int argc, char **argv)
{
    static const int pieces[] = {100, 9000, 20000, 70000, PIECE_MAX};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int is_secret = argc > 1 && rank < atoi(argv[1]);
    unsigned char *out = make(is_secret), *in = make(is_secret);
    int has_none = out == NULL || in == NULL, have_none;
    MPI_Allreduce(&has_none, &have_none, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!have_none)
        for (int round = 0; round < ROUNDS; round++)
            for (size_t piece = 0; piece < sizeof pieces / sizeof *pieces; piece++)
                play(out, in, pieces[piece], round);
    int any_wrong;
    MPI_Reduce(&wrong, &any_wrong, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        puts(have_none ? "no secret memory" : any_wrong ? "wrong" : "right");
    MPI_Finalize();
    return 0;
}
