/* Listings of directories against their expected names: opendir and readdir, scandir, glob, ftw, nftw, getdents64,
 * while files come and go. Every name goes into a sum, which is the same in all runs, and in order into a hash,
 * which is sent: replicas of a rank that are shown another order are found by that.
 *
 *   listings [ROUNDS [DIRECTORY [FILE]]]
 *
 * It leaves nothing in DIRECTORY, nor in one of its own. Before the last round it waits, in the midst of listings,
 * until there is FILE. */
#define _GNU_SOURCE
#include "directory.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <unistd.h>

/* With names of this length, more than is agreed on at once. */
enum { MANY = 300, FILLING = 240 };

static int reached;
static uint64_t sum, order = HASH_START;

static void note(const char *name)
{
    sum += hash_bytes(HASH_START, name, strlen(name));
    order = hash_bytes(order, name, strlen(name) + 1);
}

static void make(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
}

static void make_at(int directory_fd, const char *name)
{
    int fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
}

static int is_dot(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static void make_many(void)
{
    char name[FILLING + 16];
    CHECK(mkdir(own("many"), 0700) == 0);
    int fd = open(own("many"), O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
    for (int k = 0; k < MANY; k++) {
        snprintf(name, sizeof name, "%04d%0*d", (k * 7) % MANY, FILLING, 0);
        make_at(fd, name);
    }
    CHECK(close(fd) == 0);
}

/* Files are removed and made during the listing: all others are listed once. */
static void list_and_remove(DIR *listing, int done)
{
    char seen[MANY] = "";
    struct dirent *entry;
    while (errno = 0, (entry = readdir(listing))) {
        note(entry->d_name);
        if (is_dot(entry->d_name))
            continue;
        char digits[5] = "";
        memcpy(digits, entry->d_name, 4);
        int number = atoi(digits);
        CHECK(number >= 0 && number < MANY && !seen[number] && entry->d_type == DT_REG);
        seen[number] = 1;
        done++;
        if (number % 3 == 0)
            CHECK(unlinkat(dirfd(listing), entry->d_name, 0) == 0);
    }
    CHECK(errno == 0 && done == MANY && closedir(listing) == 0);
}

/* Lists the files that list_and_remove has left, in all ways. */
static void list_rest(void)
{
    const int rest = MANY - (MANY + 2) / 3;
    struct dirent **list, copy, *result;
    struct dirent64 *entry;
    char buffer[3000];
    glob_t found;
    ssize_t length;
    int count = scandir(own("many"), &list, NULL, alphasort), again = 0;
    CHECK(count == rest + 2 && strcmp(list[0]->d_name, ".") == 0);
    for (int k = 0; k < count; k++) {
        note(list[k]->d_name);
        free(list[k]);
    }
    free(list);

    snprintf(buffer, sizeof buffer, "%s/*1*", own("many"));
    CHECK(glob(buffer, GLOB_NOSORT | GLOB_MARK, NULL, &found) == 0 && found.gl_pathc > 50);
    for (size_t k = 0; k < found.gl_pathc; k++)
        note(strrchr(found.gl_pathv[k], '/'));
    globfree(&found);

    int fd = open(own("many"), O_RDONLY);
    CHECK(fd >= 0);
    while ((length = getdents64(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < length; at += entry->d_reclen, again++) {
            entry = (struct dirent64 *)(buffer + at);
            note(entry->d_name);
        }
    CHECK(length == 0 && again == count && getdents64(fd, buffer, 20) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && getdents64(fd, buffer, 20) == -1 && errno == EINVAL);

    DIR *listing = fdopendir(fd);
    CHECK(listing && dirfd(listing) == fd);
    for (again = 0; again < count / 2; again++)
        CHECK(readdir(listing));
    long place = telldir(listing);
    snprintf(buffer, sizeof buffer, "%s", readdir(listing)->d_name);
    CHECK(readdir(listing));
    seekdir(listing, place);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    CHECK(readdir_r(listing, &copy, &result) == 0 && result == &copy && strcmp(copy.d_name, buffer) == 0);
    make_at(fd, "!new");
    rewinddir(listing);
    for (again = 0; readdir_r(listing, &copy, &result) == 0 && result; again++)
        note(copy.d_name);
#pragma GCC diagnostic pop
    CHECK(again == count + 1 && closedir(listing) == 0);
}

static int visit(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    note(path + place->base);
    sum += (uint64_t)kind;
    reached++;
    if (kind == FTW_DP)
        CHECK(rmdir(path) == 0);
    else if (place->level > 0 && kind != FTW_D)
        CHECK(unlink(path) == 0);
    return kind == FTW_F && status->st_size != 0;
}

static int count_files(const char *path, const struct stat *status, int kind)
{
    (void)path;
    reached += kind == FTW_F && S_ISREG(status->st_mode);
    return strstr(path, "stop here") ? 7 : 0;
}

/* A tree that is removed while it is walked over, and an open file that is removed with its directory. */
static void test_trees(void)
{
    char text[8] = "";
    CHECK(mkdir(own("tree"), 0700) == 0 && mkdir(own("tree/a"), 0700) == 0 && mkdir(own("tree/a/b"), 0700) == 0);
    make(own("tree/one"));
    make(own("tree/a/two"));
    make(own("tree/a/b/three"));
    CHECK(symlink("nowhere", own("tree/link")) == 0);
    int fd = open(own("tree/a/b/three"), O_RDWR), directory_fd = open(own("tree/a"), O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && directory_fd >= 0);
    reached = 0;
    CHECK(ftw(own("tree"), count_files, 5) == 0 && reached == 3);
    make_at(directory_fd, "stop here");
    CHECK(ftw(own("tree"), count_files, 5) == 7);
    reached = 0;
    CHECK(nftw(own("tree"), visit, 5, FTW_DEPTH | FTW_PHYS) == 0 && reached == 8);
    CHECK(opendir(own("tree")) == NULL && errno == ENOENT && readdir(opendir(own(""))));
    CHECK(write(fd, "gone", 4) == 4 && pread(fd, text, 8, 0) == 4 && strcmp(text, "gone") == 0 && close(fd) == 0);
    CHECK(openat(directory_fd, "new", O_WRONLY | O_CREAT, 0600) == -1 && errno == ENOENT && close(directory_fd) == 0);
    CHECK(nftw(own("tree"), visit, 5, 0) == -1 && errno == ENOENT && reached == 8);
}

/* All ranks make and remove files in one directory: their order is chance, the listing is agreed on. */
static void test_common(void)
{
    char path[PATH_MAX];
    for (int k = 0; k < 40; k++) {
        snprintf(path, sizeof path, "%s/common/%d.%d", directory, k, rank);
        make(path);
        snprintf(path, sizeof path, "%s/common", directory);
        DIR *listing = opendir(path);
        uint64_t from = 0;
        struct dirent *entry;
        CHECK(listing);
        while ((entry = readdir(listing)))
            order = hash_bytes(order, entry->d_name, strlen(entry->d_name));
        CHECK(closedir(listing) == 0);
        MPI_Send(&order, 1, MPI_UINT64_T, (rank + 1) % size, 2, MPI_COMM_WORLD);
        snprintf(path, sizeof path, "%s/common/%d.%d", directory, k, rank);
        CHECK(unlink(path) == 0);
        MPI_Recv(&from, 1, MPI_UINT64_T, (rank + size - 1) % size, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Waits for a file in the midst of listings. */
static void wait_in_listings(const char *signal)
{
    struct dirent *entry = NULL;
    int go = 0, done = 0;
    make_many();
    DIR *listing = opendir(own("many")), *other = opendir(own("many"));
    CHECK(listing && other && readdir(other));
    while (done < 100 && (entry = readdir(listing))) {
        note(entry->d_name);
        done += !is_dot(entry->d_name);
    }
    CHECK(entry);
    if (rank == 0)
        puts("waiting");
    fflush(stdout);
    while (!go) {
        go = rank == 0 && access(signal, F_OK) == 0;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        usleep(2000);
    }
    list_and_remove(listing, done);
    CHECK(readdir(other) && closedir(other) == 0);
    /* The names that are left depend on the order of the listing. */
    uint64_t before = sum;
    CHECK(nftw(own("many"), visit, 5, FTW_DEPTH | FTW_PHYS) == 0);
    sum = before;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    make_directory("listings", argc > 2 ? argv[2] : NULL);
    if (rank == 0)
        CHECK(mkdir(in("common"), 0777) == 0);
    CHECK(mkdir(own(""), 0777) == 0);
    for (int round_number = 1; round_number <= rounds; round_number++) {
        if (argc > 3 && round_number == rounds)
            wait_in_listings(argv[3]);
        make_many();
        exchange_hash(order);
        DIR *listing = opendir(own("many"));
        CHECK(listing);
        list_and_remove(listing, 0);
        list_rest();
        CHECK(nftw(own("many"), visit, 5, FTW_DEPTH | FTW_PHYS) == 0);
        exchange_hash(order);
        test_trees();
        test_common();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(rmdir(own("")) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        CHECK(rmdir(in("common")) == 0 && (argc > 2 || rmdir(directory) == 0));
    uint64_t total = 0;
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("listings %016llx\n", (unsigned long long)total);
    MPI_Finalize();
    return 0;
}
