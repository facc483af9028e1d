// What the kernel keeps for a process and its threads beside their memory: sets it, waits to be told to go on, and checks
// that it is still so. Settings that this kernel does not have are passed over, by name.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            printf("line %d: %s does not hold, errno %d\ndone\n", __LINE__, #condition, errno);                     \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103, PAGE = 4096, PAGES = 64, FIRST = 8, GUARDS = 5 };

// By prctl: what asks, what sets, and a value that is not the usual one.
struct setting {
    const char *name;
    int get, set, by_pointer;
    long value;
};
static const struct setting of_thread[] = {
    {"timer slack", PR_GET_TIMERSLACK, PR_SET_TIMERSLACK, 0, 123456},
    {"no_new_privs", PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS, 0, 1},
    {"keepcaps", PR_GET_KEEPCAPS, PR_SET_KEEPCAPS, 0, 1},
    {"death signal", PR_GET_PDEATHSIG, PR_SET_PDEATHSIG, 1, SIGUSR2},
};
static const struct setting of_process[] = {
    {"subreaper", PR_GET_CHILD_SUBREAPER, PR_SET_CHILD_SUBREAPER, 1, 1},
    {"huge pages", PR_GET_THP_DISABLE, PR_SET_THP_DISABLE, 0, 1},
};

static long get(const struct setting *one) {
    int value = 0;
    long result = prctl(one->get, one->by_pointer ? (unsigned long)&value : 0, 0, 0, 0);
    return result < 0 || !one->by_pointer ? result : value;
}

static long number_in(const char *path, int radix) {
    char text[64] = {0};
    int fd = open(path, O_RDONLY);
    long count = read(fd, text, sizeof text - 1);
    close(fd);
    return count > 0 ? strtol(text, NULL, radix) : -1;
}

static int write_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    long count = write(fd, text, strlen(text));
    close(fd);
    return count == (long)strlen(text) ? 0 : -1;
}

static long broken_memory(void) { return prctl(PR_MCE_KILL_GET, 0, 0, 0, 0); }
static long speculation(void) { return prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0); }
static long io_priority(void) { return syscall(SYS_ioprio_get, 1, 0); }

// What a thread has for itself, as numbers; the second half is the same again after the copy.
struct facts {
    long settings[4], broken_memory, speculation, io_priority, policy, batch, capabilities;
};

static struct facts look(void) {
    struct facts facts = {0};
    for (int i = 0; i < 4; i++) facts.settings[i] = get(&of_thread[i]);
    facts.broken_memory = broken_memory();
    facts.speculation = speculation();
    facts.io_priority = io_priority();
    uint64_t attributes[8] = {0};
    syscall(SYS_sched_getattr, 0, attributes, 56, 0);
    facts.policy = (long)(attributes[0] >> 32 << 32 | attributes[1]);
    facts.batch = (long)attributes[2];
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    syscall(SYS_capget, &header, data);
    facts.capabilities = data[0].effective ^ (long)data[0].inheritable << 32 ^ data[1].permitted;
    return facts;
}

static void choose(int by) {
    for (int i = 0; i < 4; i++) {
        if (prctl(of_thread[i].set, of_thread[i].value + (i == 0 ? by : 0), 0, 0, 0))
            fprintf(stderr, "passed over: %s\n", of_thread[i].name);
    }
    if (prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0)) fprintf(stderr, "passed over: broken memory\n");
    if (prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0))
        fprintf(stderr, "passed over: speculation\n");
    CHECK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | (3 + by)) == 0);
    uint64_t attributes[7] = {56 | (uint64_t)SCHED_BATCH << 32, SCHED_FLAG_RESET_ON_FORK, (uint64_t)(2 + by)};
    CHECK(syscall(SYS_sched_setattr, 0, attributes, 0) == 0);
    // A program that was privileged gives one of its capabilities up.
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].effective &= ~(1u << CAP_NET_RAW), data[0].permitted &= ~(1u << CAP_NET_RAW);
    CHECK(syscall(SYS_capset, &header, data) == 0);
}

static sem_t begun, go_on;
static struct facts of_other[2];
static timer_t orphan;

static void *other(void *unused) {
    choose(1);
    of_other[0] = look();
    sem_post(&begun);
    sem_wait(&go_on);
    of_other[1] = look();
    return unused;
}

static void *short_lived(void *unused) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = gettid();
    struct itimerspec setting = {.it_value = {100000, 0}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &orphan) == 0 && timer_settime(orphan, 0, &setting, NULL) == 0);
    return unused;
}

static int can_be_read(const char *page, const int *ends) {
    char byte;
    if (write(ends[1], page, 1) != 1) return 0;
    CHECK(read(ends[0], &byte, 1) == 1);
    return 1;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    // Timers that have ticked and were not read: one that goes on, one that does not, one that a new time cancels.
    int ticking = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), once = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int cancelled = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    struct itimerspec each = {.it_value = {0, 1}, .it_interval = {0, 20000000}}, soon = {.it_value = {0, 1}};
    struct itimerspec later = {.it_value = {time(NULL) + 100000, 0}}, left;
    CHECK(timerfd_settime(ticking, 0, &each, NULL) == 0 && timerfd_settime(once, 0, &soon, NULL) == 0);
    CHECK(timerfd_settime(cancelled, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &later, NULL) == 0);
    struct pollfd tick = {.fd = ticking, .events = POLLIN};
    CHECK(poll(&tick, 1, -1) == 1);

    // Pages that must not be touched, in memory of all kinds.
    int ends[2], memory = memfd_create("guarded", MFD_ALLOW_SEALING), has_guards = 1;
    CHECK(pipe(ends) == 0 && ftruncate(memory, PAGES * PAGE) == 0);
    char *guarded[2] = {
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0),
    };
    for (int kind = 0; kind < 2; kind++) {
        for (int page = 0; page < PAGES; page++) memset(guarded[kind] + page * PAGE, 'a' + page % 26, PAGE);
        has_guards &= madvise(guarded[kind] + FIRST * PAGE, GUARDS * PAGE, GUARD_INSTALL) == 0;
    }
    if (!has_guards) fprintf(stderr, "passed over: guard pages\n");

    // Seals and modes of memory that has a name.
    int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK(ftruncate(sealed, 10000) == 0 && fchmod(sealed, 0640) == 0);
    CHECK(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE) == 0 && fcntl(memory, F_ADD_SEALS, F_SEAL_GROW) == 0);

    // Locks.
    int whole = open("whole", O_CREAT | O_RDWR, 0644), ranges = open("ranges", O_CREAT | O_RDWR, 0644);
    struct flock range = {.l_type = F_WRLCK, .l_start = 10, .l_len = 10}, shared = {.l_type = F_RDLCK, .l_start = 40};
    CHECK(flock(whole, LOCK_SH) == 0 && fcntl(ranges, F_SETLK, &range) == 0 && fcntl(ranges, F_OFD_SETLK, &shared) == 0);

    // An epoll watches what has other numbers by now: a duplicate is left, or another file has the number.
    int queue = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK), busy = eventfd(1, EFD_NONBLOCK);
    struct epoll_event watch = {.events = EPOLLIN, .data.u64 = 1}, seen[4];
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, event, &watch) == 0);
    int moved = dup(event), number = event;
    close(event);
    watch.data.u64 = 2;
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, busy, &watch) == 0);
    int kept = fcntl(busy, F_DUPFD, 200), pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0 && dup2(pipe_ends[0], busy) == busy && pipe_ends[0] == number);

    for (int i = 0; i < 2; i++) {
        if (prctl(of_process[i].set, of_process[i].value, 0, 0, 0))
            fprintf(stderr, "passed over: %s\n", of_process[i].name);
    }
    CHECK(write_to("/proc/self/coredump_filter", "0x1f") == 0 && write_to("/proc/self/oom_score_adj", "321") == 0);
    sem_init(&begun, 0, 0), sem_init(&go_on, 0, 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, short_lived, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0 && sem_wait(&begun) == 0);
    choose(0);
    struct facts before = look(), after;
    CHECK(before.settings[0] == 123456 && of_other[0].settings[0] == 123457);
    long processes[2] = {get(&of_process[0]), get(&of_process[1])};

    printf("running\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) != 0) {
    }

    after = look();
    CHECK(!memcmp(&before, &after, sizeof before));
    sem_post(&go_on);
    CHECK(pthread_join(thread, NULL) == 0 && !memcmp(&of_other[0], &of_other[1], sizeof of_other[0]));
    CHECK(get(&of_process[0]) == processes[0] && get(&of_process[1]) == processes[1]);
    CHECK(number_in("/proc/self/coredump_filter", 16) == 0x1f && number_in("/proc/self/oom_score_adj", 10) == 321);
    uint64_t ticks;
    CHECK(read(ticking, &ticks, 8) == 8 && ticks >= 1 && timerfd_gettime(ticking, &left) == 0);
    CHECK(left.it_value.tv_nsec > 0 && left.it_interval.tv_nsec == 20000000 && poll(&tick, 1, -1) == 1);
    CHECK(read(once, &ticks, 8) == 8 && ticks == 1 && timerfd_gettime(once, &left) == 0 && left.it_value.tv_nsec == 0);
    CHECK(timerfd_gettime(cancelled, &left) == 0 && left.it_value.tv_sec > 90000);
    for (int kind = 0; has_guards && kind < 2; kind++) {
        for (int page = 0; page < PAGES; page++) {
            int inside = page >= FIRST && page < FIRST + GUARDS;
            CHECK(can_be_read(guarded[kind] + page * PAGE, ends) == !inside);
            CHECK(inside || guarded[kind][page * PAGE + 17] == 'a' + page % 26);
        }
        CHECK(madvise(guarded[kind] + FIRST * PAGE, GUARDS * PAGE, GUARD_REMOVE) == 0);
        guarded[kind][FIRST * PAGE] = 1;
    }
    struct stat facts;
    CHECK(fcntl(sealed, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_WRITE) && fcntl(memory, F_GET_SEALS) == F_SEAL_GROW);
    CHECK(fstat(sealed, &facts) == 0 && (facts.st_mode & 0777) == 0640 && ftruncate(sealed, 20000) == 0);
    // Shared ones; the exclusive one is the source's as long as that runs.
    struct flock asked = {.l_type = F_WRLCK, .l_start = 50, .l_len = 1};
    int again = open("ranges", O_RDWR);
    CHECK(fcntl(again, F_OFD_GETLK, &asked) == 0 && asked.l_type == F_RDLCK);
    CHECK(flock(open("whole", O_RDWR), LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
    CHECK(epoll_wait(queue, seen, 4, 0) == 1 && seen[0].data.u64 == 2 && read(kept, &ticks, 8) == 8 && ticks == 1);
    CHECK(epoll_wait(queue, seen, 4, 0) == 0 && write(pipe_ends[1], "x", 1) == 1 && epoll_wait(queue, seen, 4, 0) == 0);
    ticks = 7;
    CHECK(write(moved, &ticks, 8) == 8 && epoll_wait(queue, seen, 4, 0) == 1 && seen[0].data.u64 == 1);
    CHECK(timer_gettime(orphan, &left) == 0 && left.it_value.tv_sec > 90000 && timer_delete(orphan) == 0);
    printf("done\n");
    return 0;
}
