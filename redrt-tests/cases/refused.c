/* Calls every function that replicas are refused and prints the error class of each; the list is that of the table
 * of the standard (redrt/mpi-table/src/coverage.rs). */
#include "check.h"
#include <sys/socket.h>

static int rank;

/* Rank 0 prints, once for all its replicas. */
static void tell(const char *function, int code)
{
    int class = MPI_SUCCESS;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_class(code, &class);
    MPI_Error_string(class, text, &length);
    if (rank == 0)
        printf("%s %s\n", function, class == MPI_ERR_UNSUPPORTED_OPERATION ? "MPI_ERR_UNSUPPORTED_OPERATION"
                                    : class == MPI_ERR_RMA_SHARED         ? "MPI_ERR_RMA_SHARED"
                                                                          : text);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);

    char port[MPI_MAX_PORT_NAME] = "none";
    MPI_Comm comm;
    char *command = argv[0];
    int count = 1, sockets[2];
    MPI_Info info = MPI_INFO_NULL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    tell("MPI_Close_port", MPI_Close_port(port));
    tell("MPI_Comm_accept", MPI_Comm_accept(port, info, 0, MPI_COMM_WORLD, &comm));
    tell("MPI_Comm_connect", MPI_Comm_connect(port, info, 0, MPI_COMM_WORLD, &comm));
    tell("MPI_Comm_join", MPI_Comm_join(sockets[0], &comm));
    tell("MPI_Comm_spawn", MPI_Comm_spawn(command, MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &comm, MPI_ERRCODES_IGNORE));
    tell("MPI_Comm_spawn_multiple", MPI_Comm_spawn_multiple(1, &command, MPI_ARGVS_NULL, &count, &info, 0, MPI_COMM_WORLD,
                                                            &comm, MPI_ERRCODES_IGNORE));
    tell("MPI_Lookup_name", MPI_Lookup_name("name", info, port));
    tell("MPI_Open_port", MPI_Open_port(info, port));
    tell("MPI_Publish_name", MPI_Publish_name("name", info, port));
    tell("MPI_Unpublish_name", MPI_Unpublish_name("name", info, port));

    /* Other calls still work. */
    int sum = 0, one = 1, size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size);
    MPI_Finalize();
    return 0;
}
