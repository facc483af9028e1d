/* The ways that every short message takes, each in a function of its own, so that callgrind can count the
 * instructions in it and no others:
 *
 *   instructions DIRECTORY PROCESSES
 *
 * Rank 0 accesses the memory of a window of its own, and sends; rank 1 receives. Neither waits in MPI for the other:
 * each of the PROCESSES of a rank makes a file in DIRECTORY when it has posted, or sent, everything. So all messages
 * are there when they are asked for, and the counts are the same each time. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MESSAGES = 32, ROUNDS = 8 };

static int processes;
static const char *directory;
static long in[MESSAGES], out[MESSAGES];
static MPI_Request requests[MESSAGES];
static MPI_Win window;

static void name(char *path, size_t size, const char *what, int round, int number)
{
    snprintf(path, size, "%s/%s.%d.%d", directory, what, round, number);
}

/* Makes the next file of this rank that does not exist: replicas know nothing else in which they differ. */
static void tell(const char *what, int round)
{
    char path[256];
    for (int number = 0; number < processes; number++) {
        name(path, sizeof path, what, round, number);
        int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (file >= 0) {
            close(file);
            return;
        }
    }
    abort();
}

/* Waits until all processes of the other rank have made theirs. */
static void await(const char *what, int round)
{
    char path[256];
    for (int number = 0; number < processes; number++) {
        name(path, sizeof path, what, round, number);
        while (access(path, F_OK) != 0) {
            usleep(1000);
        }
    }
}

static inline void isend(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Isend(&out[i], 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
    }
}

static inline void irecv(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Irecv(&in[i], 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
    }
}

/* The receives are posted before their messages arrive. */
static inline void waitall(void)
{
    MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
}

static inline void send(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Send(&out[i], 8, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    }
}

/* The messages arrive before their receives. */
static inline void recv(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Recv(&in[i], 8, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static inline void fence(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Win_fence(0, window);
    }
}

static inline void put(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Put(&out[i], 8, MPI_BYTE, 0, 8 * i, 8, MPI_BYTE, window);
        MPI_Win_flush(0, window);
    }
}

static inline void accumulate(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Accumulate(&out[i], 1, MPI_LONG, 0, 8 * i, 1, MPI_LONG, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
}

static inline void lock(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Win_unlock(0, window);
    }
}

/* The first round includes much work that happens only once. */
#define MEASURED(what)                                                                                              \
    __attribute__((noinline)) void first_##what(void) { what(); }                                                   \
    __attribute__((noinline)) void measured_##what(void) { what(); }                                                \
    static void (*const what##_of[2])(void) = {first_##what, measured_##what};

MEASURED(isend)
MEASURED(irecv)
MEASURED(waitall)
MEASURED(send)
MEASURED(recv)
MEASURED(fence)
MEASURED(put)
MEASURED(accumulate)
MEASURED(lock)

static void reach_own(int measured)
{
    MPI_Win_fence(0, window);
    fence_of[measured]();
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    put_of[measured]();
    accumulate_of[measured]();
    MPI_Win_unlock(0, window);
    lock_of[measured]();
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    if (count != 3) {
        return 2;
    }
    directory = arguments[1];
    processes = atoi(arguments[2]);
    int rank;
    long *memory;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* With replicas, other threads serve a window, now and then while messages are counted. */
    const int has_window = processes == 1 && rank == 0;
    if (has_window) {
        MPI_Win_allocate(sizeof out, 1, MPI_INFO_NULL, MPI_COMM_SELF, &memory, &window);
    }
    for (int round = 0; round <= ROUNDS; round++) {
        const int measured = round > 0;
        for (int i = 0; i < MESSAGES; i++) {
            out[i] = round * MESSAGES + i;
        }
        if (rank == 0) {
            if (has_window) {
                reach_own(measured);
            }
            await("posted", round);
            isend_of[measured]();
            MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
            send_of[measured]();
            tell("sent", round);
        } else {
            irecv_of[measured]();
            tell("posted", round);
            await("sent", round);
            waitall_of[measured]();
            recv_of[measured]();
            for (int i = 0; i < MESSAGES; i++) {
                if (in[i] != round * MESSAGES + i) {
                    printf("round %d, message %d: %ld\n", round, i, in[i]);
                    abort();
                }
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (has_window) {
        MPI_Win_free(&window);
    }
    MPI_Finalize();
    return 0;
}
