/* Ranks of a host that share memory: each writes its part, and reads its neighbours' parts when all have written.
 * The sums are the same however the job runs.
 *
 *   shares [STEPS [FILE]]    halfway it runs steps that do not count until there is FILE */
#include "check.h"
#include <unistd.h>

enum { STEPS = 200 };

/* Parts begin at odd places, within pages; one part is empty. */
static int cells_of(int rank) {
    return rank % 4 == 2 ? 0 : 700 + 131 * rank;
}

static unsigned long mixed(unsigned long value) {
    value ^= value >> 29;
    return value * 0x9e3779b97f4a7c15ul + 1;
}

/* A window, with begin and length of each member's part. */
struct shared {
    MPI_Win win;
    unsigned long *parts[64];
    int counts[64];
    int rank, size;
};

static void make(struct shared *shared, MPI_Comm node, const char *apart) {
    MPI_Info info;
    unsigned long *own;
    MPI_Comm_rank(node, &shared->rank);
    MPI_Comm_size(node, &shared->size);
    CHECK(shared->size <= 64);
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", apart);
    int count = cells_of(shared->rank);
    MPI_Win_allocate_shared(count * (MPI_Aint)sizeof *own, sizeof *own, info, node, &own, &shared->win);
    MPI_Info_free(&info);
    for (int member = 0; member < shared->size; member++) {
        MPI_Aint bytes;
        int unit;
        MPI_Win_shared_query(shared->win, member, &bytes, &unit, &shared->parts[member]);
        shared->counts[member] = (int)(bytes / unit);
        CHECK(shared->counts[member] == cells_of(member) && unit == sizeof *own);
    }
    CHECK(count == 0 || own == shared->parts[shared->rank]);
    for (int cell = 0; cell < count; cell++)
        CHECK(own[cell] == 0);
}

static void meet(struct shared *shared, MPI_Comm node, int way) {
    if (way == 0) {
        MPI_Win_fence(0, shared->win);
    } else {
        MPI_Win_sync(shared->win);
        MPI_Barrier(node);
        MPI_Win_sync(shared->win);
    }
}

/* Writes the own part from the neighbours' values of the last step, and adds up their new values. */
static unsigned long step(struct shared *shared, MPI_Comm node, int number) {
    int next = (shared->rank + 1) % shared->size, last = (shared->rank + shared->size - 1) % shared->size;
    int way = number / 50 % 2;
    unsigned long seen = number, sum = 0;
    for (int cell = 0; cell < shared->counts[next]; cell++)
        seen = mixed(seen ^ shared->parts[next][cell]);
    meet(shared, node, way);
    for (int cell = 0; cell < shared->counts[shared->rank]; cell++)
        shared->parts[shared->rank][cell] = mixed(seen + cell);
    meet(shared, node, way);
    for (int cell = 0; cell < shared->counts[last]; cell++)
        sum = mixed(sum ^ shared->parts[last][cell]);
    meet(shared, node, way);
    return sum;
}

/* Each member adds to a cell of another's part in its turn at the lock. */
static void take_turns(struct shared *shared, MPI_Comm node) {
    unsigned long before = shared->parts[0][0];
    MPI_Barrier(node);
    for (int turn = 0; turn < 10; turn++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared->win);
        shared->parts[0][0] += 1 + shared->rank;
        MPI_Win_unlock(0, shared->win);
    }
    MPI_Barrier(node);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, shared->win);
    CHECK(shared->parts[0][0] == before + 10ul * shared->size * (shared->size + 1) / 2);
    MPI_Win_unlock(0, shared->win);
    MPI_Barrier(node);
}

/* Steps with a check of their own, until there is the file. */
static void pass_time(const char *path, MPI_Comm node) {
    struct shared other;
    int rank, ends = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    make(&other, node, "false");
    int last = (other.rank + other.size - 1) % other.size;
    if (rank == 0) {
        puts("computing");
        fflush(stdout);
    }
    for (unsigned long turn = 0; !ends; turn++) {
        for (int cell = 0; cell < other.counts[other.rank]; cell++)
            other.parts[other.rank][cell] = mixed(turn + 1000 * other.rank + cell);
        meet(&other, node, turn % 2);
        for (int cell = 0; cell < other.counts[last]; cell++)
            CHECK(other.parts[last][cell] == mixed(turn + 1000 * last + cell));
        meet(&other, node, turn % 2);
        ends = rank == 0 && access(path, F_OK) == 0;
        MPI_Bcast(&ends, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Win_free(&other.win);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : STEPS, rank, size;
    MPI_Comm node;
    struct shared beside, apart;
    unsigned long sum = 0, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    make(&beside, node, "false");
    make(&apart, node, "true");
    for (int number = 0; number < steps; number++) {
        unsigned long now = step(&beside, node, number) ^ step(&apart, node, number);
        MPI_Allreduce(&now, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
        sum = mixed(sum ^ all);
        if (number % 40 == 20) {
            /* Another window, for a while, where the last one was. */
            struct shared other;
            make(&other, node, number % 80 == 20 ? "true" : "false");
            sum = mixed(sum ^ step(&other, node, number));
            take_turns(&other, node);
            MPI_Win_free(&other.win);
            MPI_Allreduce(&sum, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
            sum = all;
        }
        if (number == steps / 2 && argc > 2)
            pass_time(argv[2], node);
    }
    if (rank == 0)
        printf("%d of %d share memory: %016lx\n", beside.size, size, sum);
    MPI_Win_free(&beside.win);
    MPI_Win_free(&apart.win);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
