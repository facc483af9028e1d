// Changes files by children, while there is the file "run" in the directory: by the shell, by a forked process, and by
// another program. Ends when each rank has made so many steps.
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void run(const char *command) {
    if (system(command) != 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, goes = 0, steps = atoi(argv[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char path[4096], command[9000];
    if (rank == 0) {
        printf("computing\n");
        fflush(stdout);
    }
    for (int step = 0; step < steps;) {
        snprintf(path, sizeof path, "%s/run", argv[1]);
        goes = rank == 0 && access(path, F_OK) == 0;
        MPI_Bcast(&goes, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!goes) {
            usleep(1000);
            continue;
        }
        // A shell appends, and so do the programs that it starts: by calls of their own, and by a stream.
        snprintf(command, sizeof command, "echo %d >> %s/shell.%d", step, argv[1], rank);
        run(command);
        snprintf(command, sizeof command, "echo %d | sed p >> %s/filter.%d", step, argv[1], rank);
        run(command);
        // It makes files, removes and renames them.
        snprintf(command, sizeof command,
                 "cd %s && echo %d > new.%d && mv new.%d moved.%d && rm -f made.%d.%d && mkdir made.%d.%d",
                 argv[1], step, rank, rank, rank, rank, step - 1, rank, step);
        if (step > 0) {
            char before[9000];
            snprintf(before, sizeof before, "rmdir %s/made.%d.%d", argv[1], rank, step - 1);
            run(before);
        }
        run(command);
        // A forked process writes in the midst of a file.
        pid_t child = fork();
        if (child == 0) {
            snprintf(path, sizeof path, "%s/forked.%d", argv[1], rank);
            FILE *file = fopen(path, step == 0 ? "w+" : "r+");
            int last = -1;
            while (fscanf(file, "%d", &last) == 1) {}
            fseek(file, 0, SEEK_END);
            fprintf(file, "%d\n", last + 1);
            fclose(file);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        step++;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
}
