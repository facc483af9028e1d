/* Counts of the system go into messages: replicas that differ would be reported. Usage: counts [ROUNDS] */
#define _GNU_SOURCE
#include "../programs/check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <unistd.h>

struct counted {
    struct rusage own, thread, children, child, by_number;
    struct tms ticks;
    struct sysinfo host;
    double loads[3];
    unsigned processor, node, other_processor;
    long id;
    char text[9][300];
};

static char *memory;

/* Work that differs between replicas: touched pages, children, switches. */
static void use(int round)
{
    memory = realloc(memory, (round + 1) << 20);
    CHECK(memory != NULL);
    memset(memory, round, (getpagesize() * (round + 1)) << 3);
    sched_yield();
}

static void read_file(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t count = fread(text, 1, size - 1, file);
    CHECK(count > 0 || feof(file));
    fclose(file);
}

static void count(struct counted *it, int standing)
{
    char path[64];
    int status;
    memset(it, 0, sizeof *it);
    CHECK(getrusage(RUSAGE_SELF, &it->own) == 0 && it->own.ru_maxrss > 0);
    CHECK(getrusage(RUSAGE_THREAD, &it->thread) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    CHECK(wait4(child, &status, 0, &it->child) == child && WEXITSTATUS(status) == 3 && it->child.ru_maxrss > 0);
    CHECK(getrusage(RUSAGE_CHILDREN, &it->children) == 0);
    CHECK(syscall(SYS_getrusage, RUSAGE_SELF, &it->by_number) == 0);
    it->ticks.tms_utime = times(&it->ticks);
    CHECK(sysinfo(&it->host) == 0 && it->host.totalram > 0);
    CHECK(getloadavg(it->loads, 3) == 3);
    it->processor = sched_getcpu();
    CHECK(syscall(SYS_getcpu, &it->other_processor, &it->node, NULL) == 0);
    CHECK(it->processor < (unsigned)get_nprocs_conf() && it->other_processor < (unsigned)get_nprocs_conf());
    it->id = gethostid();
    read_file("/proc/self/status", it->text[0], sizeof it->text[0]);
    read_file("/proc/self/stat", it->text[1], sizeof it->text[1]);
    snprintf(path, sizeof path, "/proc/%d/statm", (int)getpid());
    read_file(path, it->text[2], sizeof it->text[2]);
    read_file("/proc/meminfo", it->text[3], sizeof it->text[3]);
    read_file("/proc/loadavg", it->text[4], sizeof it->text[4]);
    read_file("/proc/uptime", it->text[5], sizeof it->text[5]);
    read_file("/proc/stat", it->text[6], sizeof it->text[6]);
    /* A file that stays open is read again from its beginning. */
    CHECK(lseek(standing, 0, SEEK_SET) == 0 && read(standing, it->text[7], 299) > 0);
    CHECK(pread(standing, it->text[8], 299, 0) > 0);
}

static int is_less(const struct rusage *one, const struct rusage *other)
{
    return one->ru_maxrss < other->ru_maxrss || one->ru_minflt < other->ru_minflt || one->ru_nvcsw < other->ru_nvcsw;
}

int main(int argc, char **argv)
{
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 5;
    static struct counted mine, theirs;
    struct rusage before = {0}, after;
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int standing = open("/proc/self/statm", O_RDONLY);
    CHECK(standing >= 0);
    for (int round = 0; round < rounds; round++) {
        use(round);
        count(&mine, standing);
        CHECK(!is_less(&mine.own, &before));
        before = mine.own;
        MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, (rank + 1) % size, 1, &theirs, sizeof theirs, MPI_BYTE,
                     (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* The most memory so far, as a program might report it. */
        long most;
        MPI_Allreduce(&mine.own.ru_maxrss, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
        CHECK(most >= mine.own.ru_maxrss);
    }
    close(standing);
    MPI_Finalize();
    CHECK(getrusage(RUSAGE_SELF, &after) == 0 && !is_less(&after, &before));
    /* Replicas' outputs are compared. */
    printf("rank %d needed %ld kB, %ld faults\n", rank, after.ru_maxrss, after.ru_minflt);
    if (rank == 0)
        printf("all counts agree\n");
    return 0;
}
