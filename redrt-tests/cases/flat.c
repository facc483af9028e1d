/* Makes, uses and frees objects again and again, and prints the number of bytes that each has left behind in this
 * process:
 *
 *   flat KIND COUNT */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long resident(void)
{
    long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &resident) != 2)
        abort();
    fclose(file);
    return resident * 4096;
}

/* Messages of both kinds, with the other process. */
static void used(MPI_Comm comm, int partner)
{
    int one = 1, sum;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Sendrecv(&one, 1, MPI_INT, partner, 0, &sum, 1, MPI_INT, partner, 0, comm, MPI_STATUS_IGNORE);
}

static void once(const char *what, int rank)
{
    static MPI_Comm between = MPI_COMM_NULL;
    int one = 1;
    MPI_Comm made;
    if (!strcmp(what, "communicator")) {
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
        used(made, 1 - rank);
        MPI_Comm_free(&made);
    } else if (!strcmp(what, "idup")) {
        MPI_Request request;
        MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        used(made, 1 - rank);
        MPI_Comm_free(&made);
    } else if (!strcmp(what, "idup in rows")) {
        enum { ROW = 100 };
        static MPI_Comm row[ROW];
        static MPI_Request requests[ROW];
        static int count;
        MPI_Comm_idup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &row[count], &requests[count]);
        if (++count == ROW) {
            MPI_Waitall(ROW, requests, MPI_STATUSES_IGNORE);
            while (count) {
                used(row[--count], 1 - rank);
                MPI_Comm_free(&row[count]);
            }
        }
    } else if (!strcmp(what, "group")) {
        MPI_Group all;
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Comm_create_group(MPI_COMM_WORLD, all, 1, &made);
        MPI_Group_free(&all);
        used(made, 1 - rank);
        MPI_Comm_free(&made);
    } else if (!strcmp(what, "intercommunicator")) {
        MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 1, &made);
        used(made, 0);
        MPI_Comm_free(&made);
    } else if (!strcmp(what, "merged")) {
        if (between == MPI_COMM_NULL)
            MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 1, &between);
        MPI_Intercomm_merge(between, rank, &made);
        used(made, 1 - rank);
        MPI_Comm_free(&made);
    } else if (!strcmp(what, "file")) {
        MPI_File file;
        MPI_File_open(MPI_COMM_WORLD, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        MPI_File_close(&file);
    } else {
        MPI_Win window;
        char *memory;
        MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1 - rank, 0, window);
        MPI_Put(&one, 1, MPI_INT, 1 - rank, 0, 1, MPI_INT, window);
        MPI_Win_unlock(1 - rank, window);
        MPI_Win_free(&window);
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long count = atol(argv[2]), first = 0;
    for (long i = 0; i < count; i++) {
        /* By then all memory that is allocated only once is there. */
        if (i == count / 4)
            first = resident();
        once(argv[1], rank);
    }
    fprintf(stderr, "left behind: %ld\n", (resident() - first) / (count - count / 4));
    MPI_Finalize();
    return 0;
}
