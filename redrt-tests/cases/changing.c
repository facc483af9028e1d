/* Changes files in all ways, and reads back the changes: changing DIRECTORY STEPS. In each step each rank reads,
   changes and writes a file of its own and one of all ranks, cuts one, appends to one, replaces one by renaming,
   makes one that must not exist, makes and removes directories, stamps a symbolic link, makes a file through
   another, marks a file and a directory with attributes, and does the same through MPI. All bytes that it reads go
   into a number that it prints at the end: any lost or repeated change changes the number. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { CELLS = 3000 };

static int rank, size;
static const char *directory;
static uint64_t seen = 14695981039346656037u;

static void check(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, what, strerror(errno));
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void take(const void *bytes, size_t length) {
    for (size_t at = 0; at < length; at++)
        seen = (seen ^ ((const unsigned char *)bytes)[at]) * 1099511628211u;
}

static const char *path(const char *name, int number) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s.%d.%d", directory, name, rank, number);
    return path;
}

/* Reads a cell, and writes a value computed from it. */
static void change(int fd, long cell, int step) {
    uint64_t value = 0;
    check(pread(fd, &value, sizeof value, cell * 8) >= 0, "pread");
    take(&value, sizeof value);
    value = value * 6364136223846793005u + seen + (uint64_t)step;
    check(pwrite(fd, &value, sizeof value, cell * 8) == sizeof value, "pwrite");
}

static void cut(int fd, int step) {
    char text[64];
    struct stat status;
    check(fstat(fd, &status) == 0, "fstat");
    take(&status.st_size, sizeof status.st_size);
    check(ftruncate(fd, (step * 977) % 9000) == 0, "ftruncate");
    check(lseek(fd, 0, SEEK_END) >= 0, "lseek");
    int length = snprintf(text, sizeof text, "%d %016llx\n", step, (unsigned long long)seen);
    check(write(fd, text, length) == length, "write");
}

static void replace(int step) {
    char text[64] = "";
    const char *result = path("replaced", 0), *temporary = path("temporary", 0);
    FILE *file = fopen(result, "r");
    if (file) {
        check(fgets(text, sizeof text, file) != NULL, "fgets");
        take(text, strlen(text));
        fclose(file);
    }
    file = fopen(temporary, step % 3 ? "w" : "wx");
    check(file != NULL, "fopen of what was renamed");
    fprintf(file, "%d %016llx\n", step, (unsigned long long)seen);
    check(fclose(file) == 0, "fclose");
    check(rename(temporary, result) == 0, "rename");
}

static void make_and_remove(int step) {
    int fd = open(path("lock", step), O_CREAT | O_EXCL | O_WRONLY, 0600);
    check(fd >= 0, "open of what must not be there");
    check(write(fd, &seen, sizeof seen) == sizeof seen && close(fd) == 0, "write");
    if (step >= 3) {
        uint64_t was = 0;
        fd = open(path("lock", step - 3), O_RDONLY);
        check(fd >= 0 && read(fd, &was, sizeof was) == sizeof was && close(fd) == 0, "read");
        take(&was, sizeof was);
        check(unlink(path("lock", step - 3)) == 0, "unlink");
    }
    check(mkdir(path("directory", step), 0700) == 0, "mkdir");
    check(symlink("nowhere", path("link", step)) == 0, "symlink");
    check(chmod(path("directory", step), step % 2 ? 0755 : 0700) == 0, "chmod");
    if (step >= 3) {
        check(rename(path("directory", step - 3), path("renamed", step - 3)) == 0, "rename of a directory");
        check(unlink(path("link", step - 3)) == 0, "unlink of a link");
    }
    if (step >= 5)
        check(rmdir(path("renamed", step - 5)) == 0, "rmdir");
}

/* Sets the times of the link itself; its target does not exist. */
static void stamp(int step) {
    struct timeval times[2] = {{1000 + step, 0}, {2000 + step, 0}};
    struct stat status;
    check(lstat(path("stamp", 0), &status) == 0, "lstat");
    take(&status.st_mtim.tv_sec, sizeof status.st_mtim.tv_sec);
    check(lutimes(path("stamp", 0), times) == 0, "lutimes");
    check(lchown(path("stamp", 0), getuid(), getgid()) == 0, "lchown");
}

/* A file is made through a link whose target does not exist yet, and is removed by its own name. */
static void through_a_link(int step) {
    const char *door = path("door", 0), *behind = path("behind", 0);
    if (step % 2) {
        check(unlink(behind) == 0, "unlink of what was made through a link");
        return;
    }
    check(access(behind, F_OK) != 0 && errno == ENOENT, "what is not there");
    int fd = open(door, O_CREAT | O_WRONLY, 0600);
    check(fd >= 0 && write(fd, &seen, sizeof seen) == sizeof seen && close(fd) == 0, "open through a link");
}

/* Changes and removes attributes of a file and of a directory, where the file system has attributes. */
static void mark(int fd, int step) {
    uint64_t was[2] = {0, 0};
    const char *marked = path("marked", 0);
    if (fgetxattr(fd, "user.seen", &was[0], sizeof was[0]) < 0 && errno != ENODATA)
        return;
    check(getxattr(marked, "user.seen", &was[1], sizeof was[1]) >= 0 || errno == ENODATA, "getxattr");
    take(was, sizeof was);
    if (step % 5 == 4) {
        check(fremovexattr(fd, "user.seen") == 0 && removexattr(marked, "user.seen") == 0, "removexattr");
        return;
    }
    const int how = step % 5 == 0 ? XATTR_CREATE : XATTR_REPLACE;
    check(fsetxattr(fd, "user.seen", &seen, sizeof seen, how) == 0, "fsetxattr");
    check(setxattr(marked, "user.seen", &seen, sizeof seen, how) == 0, "setxattr");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    directory = argv[1];
    char name[512];
    snprintf(name, sizeof name, "%s/shared", directory);
    int shared = open(name, O_RDWR | O_CREAT, 0644), own = open(path("own", 0), O_RDWR | O_CREAT, 0644);
    int cuts = open(path("cut", 0), O_RDWR | O_CREAT, 0644);
    FILE *appended = fopen(path("appended", 0), "a");
    check(shared >= 0 && own >= 0 && cuts >= 0 && appended, "open");
    snprintf(name, sizeof name, "behind.%d.0", rank);
    check(symlink("nowhere", path("stamp", 0)) == 0 && symlink(name, path("door", 0)) == 0, "symlink");
    check(mkdir(path("marked", 0), 0755) == 0, "mkdir");
    struct timeval first[2] = {{1, 0}, {2, 0}};
    check(lutimes(path("stamp", 0), first) == 0, "lutimes");
    snprintf(name, sizeof name, "%s/mpi", directory);
    MPI_File file;
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    for (int step = 0; step < atoi(argv[2]); step++) {
        /* In each step each cell of the shared file belongs to another rank. */
        for (int count = 0; count < 5; count++) {
            long cell = (step * 131 + count * 397) % CELLS / size * size + (rank + step) % size;
            change(shared, cell, step);
            change(own, cell, step);
        }
        cut(cuts, step);
        fprintf(appended, "%d %016llx\n", step, (unsigned long long)seen);
        check(fflush(appended) == 0, "fflush");
        replace(step);
        make_and_remove(step);
        stamp(step);
        through_a_link(step);
        mark(own, step);
        uint64_t value = 0;
        MPI_Offset at = ((step * 61) % CELLS * size + (rank + step) % size) * 8;
        MPI_File_read_at(file, at, &value, 8, MPI_BYTE, MPI_STATUS_IGNORE);
        take(&value, sizeof value);
        value = value * 3 + seen;
        MPI_File_write_at(file, at, &value, 8, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, &seen, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
        seen += rank;
        if (step == 10 && rank == 0) {
            printf("computing\n");
            fflush(stdout);
        }
        usleep(1000);
    }
    MPI_File_close(&file);
    check(fclose(appended) == 0 && close(shared) == 0 && close(own) == 0 && close(cuts) == 0, "close");
    printf("rank %d has seen %016llx\n", rank, (unsigned long long)seen);
    MPI_Finalize();
    return 0;
}
