/* POSIX files against their expected content: streams, descriptors, appending, locks by O_EXCL, checkpoints that are
 * renamed into place, files removed while they are open, directories and links, times and attributes. Every result
 * and every byte that is read goes into a hash.
 *
 *   posix [ROUNDS [DIRECTORY [FILE]]]
 *
 * It leaves the same files in DIRECTORY in each run, and without one leaves nothing. Before the last round it waits,
 * with files open, until there is FILE. */
#define _GNU_SOURCE
#include "directory.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static int round_number;
static uint64_t hash = HASH_START;

static void note(const void *bytes, size_t count) { hash = hash_bytes(hash, bytes, count); }

/* A result, and its error if it is one. */
static long noted(long result)
{
    long both[2] = {result < 0 ? -1 : 0, result < 0 ? errno : 0};
    note(both, sizeof both);
    return result;
}

/* The hash also gets the neighbour's work so far. */
static void exchange(void)
{
    uint64_t from = exchange_hash(hash);
    note(&from, sizeof from);
}

static void note_file(const char *path)
{
    char buffer[3000];
    ssize_t count;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    while ((count = read(fd, buffer, sizeof buffer)) > 0)
        note(buffer, (size_t)count);
    CHECK(count == 0 && close(fd) == 0);
}

static void test_streams(void)
{
    char line[200], name[32];
    FILE *file = fopen(own("table.txt"), "w");
    CHECK(file);
    for (int k = 0; k < 300; k++)
        fprintf(file, "%6d %12.6f\n", k, k / (1.0 + round_number + rank));
    CHECK(ftell(file) == 300 * 20);
    exchange();
    CHECK(fseek(file, 20 * 17, SEEK_SET) == 0);
    fprintf(file, "%6s %12s\n", "here", "overwritten");
    fflush(file);
    CHECK(fseek(file, 0, SEEK_END) == 0 && ftell(file) == 300 * 20);
    putc('x', file);
    CHECK(fclose(file) == 0);
    file = fopen(own("table.txt"), "r+");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        note(line, strlen(line));
    CHECK(fseek(file, 4, SEEK_SET) == 0 && fwrite("++", 1, 2, file) == 2 && fread(line, 1, 10, file) <= 10);
    CHECK(fclose(file) == 0);
    snprintf(name, sizeof name, "log.txt");
    file = fopen(own(name), "a");
    CHECK(file);
    fprintf(file, "round %d begins\n", round_number);
    fflush(file);
    exchange();
    fprintf(file, "round %d ends\n", round_number);
    CHECK(fclose(file) == 0);
    note_file(own(name));
    CHECK(noted(fopen(own("missing/file"), "w") ? 0 : -1) < 0);
    /* A stream that is redirected, and back: a log of the program's own. */
    file = fopen(own("first.txt"), "w");
    CHECK(file && fprintf(file, "one\n") == 4);
    CHECK(freopen(own("second.txt"), "a+", file) == file);
    fprintf(file, "two %d\n", round_number);
    rewind(file);
    while (fgets(line, sizeof line, file))
        note(line, strlen(line));
    CHECK(fclose(file) == 0);
}

static void test_descriptors(void)
{
    char out[5000], back[5000];
    struct stat status;
    for (size_t k = 0; k < sizeof out; k++)
        out[k] = (char)(k * 7 + (size_t)rank + (size_t)round_number);
    int fd = open(own("data"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, out, sizeof out) == sizeof out);
    exchange();
    struct iovec parts[3] = {{out, 10}, {out + 20, 0}, {out + 100, 400}};
    CHECK(writev(fd, parts, 3) == 410);
    CHECK(lseek(fd, 0, SEEK_CUR) == 5410 && fstat(fd, &status) == 0 && status.st_size == 5410);
    CHECK(pwrite(fd, "hello", 5, 2000) == 5 && lseek(fd, 1990, SEEK_SET) == 1990);
    int twin = dup(fd);
    CHECK(twin >= 0 && read(twin, back, 30) == 30 && lseek(fd, 0, SEEK_CUR) == 2020);
    note(back, 30);
    CHECK(pread(fd, back, sizeof back, 3000) == 2410);
    note(back, 2410);
    CHECK(ftruncate(fd, 4321) == 0 && fsync(fd) == 0 && close(fd) == 0);
    CHECK(lseek(twin, -21, SEEK_END) == 4300 && read(twin, back, 100) == 21 && read(twin, back, 100) == 0);
    exchange();
    CHECK(write(twin, "end", 3) == 3 && close(twin) == 0);
    CHECK(noted(write(twin, "end", 3)) < 0);
    CHECK(stat(own("data"), &status) == 0 && status.st_size == 4324 && (status.st_mode & 0777) == 0600);
    fd = open(own("data"), O_RDONLY);
    CHECK(noted(write(fd, "no", 2)) < 0 && close(fd) == 0);
    note_file(own("data"));
}

/* All ranks append to one file. */
static void test_appending(void)
{
    char line[100];
    int fd = open(in("all.log"), O_WRONLY | O_CREAT | O_APPEND, 0666);
    CHECK(fd >= 0);
    for (int k = 0; k < 5; k++) {
        int length = snprintf(line, sizeof line, "rank %d round %d line %d%.*s\n", rank, round_number, k, k * 9,
                              "........................................");
        CHECK(write(fd, line, (size_t)length) == length);
        if (k == 2)
            exchange();
    }
    CHECK(close(fd) == 0);
}

/* A counter behind a lock that only one rank can make. */
static void test_lock(void)
{
    char text[32] = "";
    int lock, fd;
    for (int k = 0; k < 2; k++) {
        while ((lock = open(in("lock"), O_WRONLY | O_CREAT | O_EXCL, 0600)) < 0) {
            CHECK(errno == EEXIST);
            sched_yield();
        }
        CHECK(write(lock, "mine", 4) == 4 && close(lock) == 0);
        fd = open(in("counter"), O_RDWR | O_CREAT, 0666);
        CHECK(fd >= 0);
        ssize_t count = pread(fd, text, sizeof text - 1, 0);
        CHECK(count >= 0);
        text[count] = 0;
        int length = snprintf(text, sizeof text, "%d\n", atoi(text) + 1);
        CHECK(pwrite(fd, text, (size_t)length, 0) == length && close(fd) == 0);
        CHECK(unlink(in("lock")) == 0);
    }
    exchange();
}

static void test_checkpoint(void)
{
    double state[600];
    FILE *file;
    for (int step = 0; step < 3; step++) {
        for (int k = 0; k < 600; k++)
            state[k] = step + k * 0.5 + rank;
        CHECK((file = fopen(own("checkpoint.tmp"), "wb")));
        CHECK(fwrite(state, sizeof state[0], 600, file) == 600);
        CHECK(fflush(file) == 0 && fsync(fileno(file)) == 0);
        if (step == 1)
            exchange();
        CHECK(fclose(file) == 0 && rename(own("checkpoint.tmp"), own("checkpoint")) == 0);
        note_file(own("checkpoint"));
    }
    CHECK(noted(rename(own("checkpoint.tmp"), own("checkpoint"))) < 0);
    exchange();
}

static void test_names(void)
{
    char text[64] = "", path[PATH_MAX];
    struct stat status;
    ssize_t length;
    CHECK(mkdir(own("sub"), 0755) == 0 && noted(mkdir(own("sub"), 0755)) < 0);
    CHECK(symlink("../checkpoint", own("sub/link")) == 0 && noted(symlink("x", own("sub/link"))) < 0);
    CHECK(link(own("checkpoint"), own("sub/hard")) == 0 && noted(link(own("checkpoint"), own("sub/hard"))) < 0);
    exchange();
    CHECK((length = readlink(own("sub/link"), text, sizeof text)) == 13);
    note(text, (size_t)length);
    /* Three names while a kept checkpoint holds the file. */
    CHECK(stat(own("sub/link"), &status) == 0 && status.st_size == 4800);
    CHECK(status.st_nlink == 2 || status.st_nlink == 3);
    CHECK(lstat(own("sub/link"), &status) == 0 && S_ISLNK(status.st_mode));
    CHECK(noted(rmdir(own("sub"))) < 0 && access(own("sub/hard"), R_OK) == 0);
    CHECK(rename(own("sub"), own("renamed")) == 0 && noted(access(own("sub/hard"), R_OK)) < 0);
    CHECK(unlink(own("renamed/link")) == 0 && unlink(own("renamed/hard")) == 0 && noted(unlink(own("renamed/hard"))) < 0);
    CHECK(rmdir(own("renamed")) == 0 && noted(rmdir(own("renamed"))) < 0);
    exchange();
    /* A file that has no name any more, and one that is replaced while it is open. */
    snprintf(path, sizeof path, "%s", own("scratch.XXXXXX"));
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0 && write(fd, "still here", 10) == 10);
    exchange();
    CHECK(pread(fd, text, sizeof text, 0) == 10 && memcmp(text, "still here", 10) == 0);
    CHECK(close(fd) == 0);
    CHECK((fd = open(own("data"), O_RDWR)) >= 0 && rename(own("first.txt"), own("data")) == 0);
    CHECK(pwrite(fd, "lost", 4, 0) == 4);
    exchange();
    CHECK(pread(fd, text, 8, 0) == 8 && memcmp(text, "lost", 4) == 0 && close(fd) == 0);
    note(text, 8);
    note_file(own("data"));
    CHECK(truncate(own("data"), 2) == 0 && chmod(own("data"), 0600) == 0);
    note_file(own("data"));
    CHECK(truncate(own("data"), 4) == 0);
}

/* Owners, times and extended attributes of a file that does not exist yet; it does once its leader has come further. */
static void test_attributes(void)
{
    const struct timespec early[2] = {{1000, 0}, {2000, 500}};
    const struct timeval later[2] = {{3000, 0}, {4000, 7}};
    const struct utimbuf whole = {5000, 6000};
    struct stat status;
    char value[16] = "", names[256];
    CHECK(noted(utimensat(AT_FDCWD, own("touched"), NULL, 0)) < 0 && noted(chown(own("touched"), getuid(), getgid())) < 0);
    CHECK(noted(getxattr(own("touched"), "user.redrt", value, sizeof value)) < 0);
    exchange();
    int fd = open(own("touched"), O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && utimensat(AT_FDCWD, own("touched"), early, 0) == 0);
    CHECK(stat(own("touched"), &status) == 0 && status.st_mtim.tv_sec == 2000 && status.st_mtim.tv_nsec == 500);
    CHECK(futimens(fd, early) == 0 && utimes(own("touched"), later) == 0);
    CHECK(fstat(fd, &status) == 0 && status.st_mtim.tv_sec == 4000 && status.st_mtim.tv_nsec == 7000);
    CHECK(symlink("touched", own("pointer")) == 0 && lutimes(own("pointer"), later) == 0 && utime(own("pointer"), &whole) == 0);
    CHECK(lstat(own("pointer"), &status) == 0 && status.st_mtim.tv_sec == 4000);
    CHECK(stat(own("touched"), &status) == 0 && status.st_mtim.tv_sec == 6000);
    CHECK(chown(own("touched"), getuid(), getgid()) == 0 && fchown(fd, getuid(), getgid()) == 0 && fchmod(fd, 0640) == 0);
    CHECK(fchownat(AT_FDCWD, own("pointer"), getuid(), getgid(), AT_SYMLINK_NOFOLLOW) == 0);
    exchange();
    /* Some file systems lack these. */
    if (noted(setxattr(own("touched"), "user.redrt", "one", 3, XATTR_CREATE)) == 0) {
        CHECK(noted(setxattr(own("touched"), "user.redrt", "two", 3, XATTR_CREATE)) < 0 && errno == EEXIST);
        CHECK(getxattr(own("pointer"), "user.redrt", value, sizeof value) == 3 && memcmp(value, "one", 3) == 0);
        CHECK(fsetxattr(fd, "user.redrt", "three", 5, XATTR_REPLACE) == 0 && fgetxattr(fd, "user.redrt", NULL, 0) == 5);
        CHECK(noted(fgetxattr(fd, "user.redrt", value, 2)) < 0 && errno == ERANGE);
        CHECK(noted(listxattr(own("touched"), names, sizeof names)) >= 11 && noted(llistxattr(own("pointer"), names, 0)) >= 0);
        CHECK(removexattr(own("touched"), "user.redrt") == 0 && noted(fremovexattr(fd, "user.redrt")) < 0 && errno == ENODATA);
    }
    exchange();
    CHECK(close(fd) == 0 && unlink(own("pointer")) == 0 && unlink(own("touched")) == 0);
}

/* Waits for a file while others are open: accesses begun before go on after. */
static void wait_with_open_files(const char *signal)
{
    char text[8] = "";
    int go = 0, fd = open(own("held"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    FILE *log = fopen(own("waiting.txt"), "a");
    CHECK(log && fprintf(log, "begun, ") > 0);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3 && unlink(own("held")) == 0);
    if (rank == 0)
        puts("waiting");
    fflush(stdout);
    while (!go) {
        go = rank == 0 && access(signal, F_OK) == 0;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        usleep(2000);
    }
    CHECK(fprintf(log, "ended\n") > 0 && fclose(log) == 0);
    CHECK(write(fd, "def", 3) == 3 && pread(fd, text, 8, 0) == 6 && strcmp(text, "abcdef") == 0 && close(fd) == 0);
}

/* The order of lines appended by several ranks differs from run to run. */
static void test_shared_log(void)
{
    char line[200];
    uint64_t sum = 0;
    long count = 0;
    FILE *file = fopen(in("all.log"), "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        sum += hash_bytes(HASH_START, line, strlen(line));
        count++;
    }
    CHECK(fclose(file) == 0 && count == 5L * size * round_number);
    note(&sum, sizeof sum);
}

/* Removes files by name: the directory can be removed only if the program's files were all there was. */
static void clean_up(void)
{
    const char *const own_names[] = {"table.txt", "log.txt", "first.txt", "second.txt", "data", "checkpoint", "held", "waiting.txt"};
    const char *const names[] = {"all.log", "counter", "lock"};
    for (size_t k = 0; k < sizeof own_names / sizeof *own_names; k++)
        CHECK(remove(own(own_names[k])) == 0 || errno == ENOENT);
    CHECK(rmdir(own("")) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0)
        return;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        CHECK(remove(in(names[k])) == 0 || errno == ENOENT);
    CHECK(rmdir(directory) == 0);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    char text[32] = "";
    MPI_Init(&argc, &argv);
    make_directory("posix", argc > 2 ? argv[2] : NULL);
    CHECK(mkdir(own(""), 0777) == 0);
    for (round_number = 1; round_number <= rounds; round_number++) {
        if (argc > 3 && round_number == rounds)
            wait_with_open_files(argv[3]);
        test_streams();
        test_descriptors();
        test_appending();
        test_lock();
        test_checkpoint();
        test_names();
        test_attributes();
        MPI_Barrier(MPI_COMM_WORLD);
        test_shared_log();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int fd = open(in("counter"), O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    CHECK(atoi(text) == 2 * size * rounds);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc <= 2)
        clean_up();
    uint64_t sum = 0;
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("posix %016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
