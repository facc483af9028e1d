/* Rank 0 receives bytes and writes them to a file: written FILE WAY, where WAY is pwrite, append, stdio or MPI.
   Rank 1 reads the file and prints it. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 64 };

static int write_by(const char *way, const char *path, const char *bytes) {
    if (!strcmp(way, "MPI")) {
        MPI_File file;
        int code = MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
        code = code ? code : MPI_File_write_at(file, 0, bytes, COUNT, MPI_BYTE, MPI_STATUS_IGNORE);
        return code ? code : MPI_File_close(&file);
    }
    if (!strcmp(way, "stdio")) {
        FILE *file = fopen(path, "w");
        return !file || fwrite(bytes, 1, COUNT, file) != COUNT || fclose(file);
    }
    int file = open(path, O_CREAT | O_RDWR | (!strcmp(way, "append") ? O_APPEND : 0), 0644);
    int is_whole = !strcmp(way, "append") ? write(file, bytes, COUNT) == COUNT : pwrite(file, bytes, COUNT, 0) == COUNT;
    return !is_whole || close(file);
}

int main(int argc, char **argv) {
    char bytes[COUNT + 1] = "";
    int rank, code = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        memset(bytes, 'x', COUNT);
        MPI_Send(bytes, COUNT, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        MPI_Recv(&code, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        FILE *file = fopen(argv[1], "r");
        if (code || !file || fread(bytes, 1, COUNT + 1, file) != COUNT)
            printf("not written\n");
        printf("%s\n", bytes);
    } else {
        MPI_Recv(bytes, COUNT, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        code = write_by(argv[2], argv[1], bytes);
        MPI_Send(&code, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
