// Everything of a process besides its memory: notes it, waits to be told to go on, and checks that it is still so.
//
//   belongings DIRECTORY
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static void nothing(int signal) { (void)signal; }

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    umask(0137);
    struct rlimit limit = {100, 200}, now;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(prctl(PR_SET_NAME, "belongings!") == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 3) == 0);

    int file = open("file", O_CREAT | O_RDWR | O_APPEND, 0644), twin = dup(file), high = fcntl(file, F_DUPFD, 90);
    CHECK(file >= 0 && twin >= 0 && high == 90 && write(file, "0123456789", 10) == 10 && lseek(file, 4, SEEK_SET) == 4);
    int again = open("file", O_RDONLY | O_CLOEXEC);
    CHECK(lseek(again, 7, SEEK_SET) == 7);
    int directory = open(".", O_RDONLY | O_DIRECTORY), null = open("/dev/null", O_RDWR);
    CHECK(directory >= 0 && null >= 0);

    int ends[2], empty[2];
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && pipe(empty) == 0 && write(ends[1], "in the pipe", 11) == 11);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 1 << 17) > 0);
    int last[2], unread[2];
    CHECK(pipe(last) == 0 && write(last[1], "last", 4) == 4 && close(last[1]) == 0);
    CHECK(pipe(unread) == 0 && write(unread[1], "unread", 6) == 6 && close(unread[0]) == 0);
    int pair[2], half[2], heard[2], twin_end;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0 && (twin_end = dup(pair[0])) > 0);
    CHECK(write(pair[1], "to ", 3) == 3 && write(pair[1], "one", 3) == 3 && write(pair[0], "back", 4) == 4);
    struct timeval patience = {5, 200000};
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0 && shutdown(half[0], SHUT_WR) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, heard) == 0 && write(heard[1], "last", 4) == 4 && close(heard[1]) == 0);
    int event = eventfd(42, EFD_NONBLOCK), semaphore = eventfd(3, EFD_SEMAPHORE);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), late = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec setting = {.it_value = {1000000, 5}, .it_interval = {7, 8}}, soon = {.it_value = {0, 1}};
    CHECK(timerfd_settime(timer, 0, &setting, NULL) == 0 && timerfd_settime(late, 0, &soon, NULL) == 0);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    int signals = signalfd(-1, &mask, SFD_NONBLOCK);
    union sigval value = {.sival_int = 1234};
    CHECK(signals >= 0 && sigqueue(getpid(), SIGUSR1, value) == 0);
    int queue = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event watch = {.events = EPOLLIN | EPOLLET, .data.u64 = 99}, seen[4];
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &watch) == 0);

    int object = memfd_create("belonging", 0);
    CHECK(ftruncate(object, 3 << 20) == 0 && pwrite(object, "far", 3, 2 << 20) == 3 && lseek(object, 11, SEEK_SET) == 11);
    char *mapped = mmap(NULL, 3 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, object, 0);
    CHECK(mapped != MAP_FAILED && !strcmp(mapped + (2 << 20), "far"));
    strcpy(mapped, "near");
    char *closed = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(closed != MAP_FAILED);
    strcpy(closed + 70000, "shared");
    char *hidden = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(hidden, "hidden");
    CHECK(mprotect(hidden, 8192, PROT_NONE) == 0);
    char *huge = mmap(NULL, 100UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(huge != MAP_FAILED);
    strcpy(huge + (50UL << 30), "sparse");

    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART | SA_NODEFER}, found;
    sigaddset(&action.sa_mask, SIGHUP);
    CHECK(sigaction(SIGTERM, &action, NULL) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    timer_t clock_timer[2];
    struct sigevent notice = {.sigev_notify = SIGEV_NONE};
    CHECK(timer_create(CLOCK_MONOTONIC, &notice, &clock_timer[0]) == 0);
    CHECK(timer_create(CLOCK_REALTIME, &notice, &clock_timer[1]) == 0 && timer_delete(clock_timer[0]) == 0);
    CHECK(timer_settime(clock_timer[1], 0, &setting, NULL) == 0);
    pid_t pid = getpid();
    cpu_set_t processors, processors_now;
    CHECK(sched_getaffinity(0, sizeof processors, &processors) == 0);

    printf("running\n");
    fflush(stdout);
    void *top = sbrk(0);
    char byte;
    while (read(0, &byte, 1) != 0) {
    }

    char text[64] = {0}, where[4096];
    CHECK(getcwd(where, sizeof where) && !strcmp(where, arguments[1]));
    CHECK(umask(0) == 0137);
    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 100 && now.rlim_max == 200);
    CHECK(prctl(PR_GET_NAME, text) == 0 && !strcmp(text, "belongings!"));
    CHECK(getpriority(PRIO_PROCESS, 0) == 3 && getpid() == pid);
    CHECK(lseek(high, 0, SEEK_CUR) == 4 && lseek(twin, 1, SEEK_CUR) == 5 && lseek(file, 0, SEEK_CUR) == 5);
    CHECK(lseek(again, 0, SEEK_CUR) == 7 && fcntl(again, F_GETFD) == FD_CLOEXEC && fcntl(file, F_GETFD) == 0);
    CHECK((fcntl(file, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_RDWR | O_APPEND) && fcntl(5000, F_GETFD) < 0);
    CHECK(faccessat(directory, "file", R_OK, 0) == 0 && write(null, "x", 1) == 1);
    uint64_t number;
    CHECK(epoll_wait(queue, seen, 4, 1000) == 1 && seen[0].data.u64 == 99);
    CHECK(read(ends[0], text, 64) == 11 && !memcmp(text, "in the pipe", 11) && read(ends[0], text, 1) < 0 && errno == EAGAIN);
    CHECK(read(last[0], text, 64) == 4 && !memcmp(text, "last", 4) && read(last[0], text, 1) == 0);
    CHECK(read(twin_end, text, 64) == 6 && !memcmp(text, "to one", 6) && read(pair[0], text, 1) < 0 && errno == EAGAIN);
    CHECK(read(pair[1], text, 64) == 4 && !memcmp(text, "back", 4) && write(twin_end, "z", 1) == 1 && read(pair[1], text, 9) == 1);
    struct timeval kept;
    socklen_t kept_size = sizeof kept;
    CHECK(getsockopt(twin_end, SOL_SOCKET, SO_RCVTIMEO, &kept, &kept_size) == 0 && kept.tv_sec == 5 && kept.tv_usec == 200000);
    CHECK(read(half[1], text, 1) == 0 && write(half[1], "w", 1) == 1 && read(half[0], text, 9) == 1);
    CHECK(send(half[0], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
    CHECK(read(heard[0], text, 64) == 4 && !memcmp(text, "last", 4) && read(heard[0], text, 1) == 0);
    struct pollfd nobody_reads = {.fd = unread[1], .events = POLLOUT};
    CHECK(poll(&nobody_reads, 1, 0) == 1 && nobody_reads.revents & POLLERR);
    CHECK(fcntl(ends[0], F_GETPIPE_SZ) == 1 << 17 && write(empty[1], "y", 1) == 1 && read(empty[0], text, 64) == 1);
    CHECK(read(event, &number, 8) == 8 && number == 42 && read(event, &number, 8) < 0);
    CHECK(read(semaphore, &number, 8) == 8 && number == 1);
    struct itimerspec left;
    CHECK(timerfd_gettime(timer, &left) == 0 && left.it_value.tv_sec > 900000 && left.it_interval.tv_nsec == 8);
    CHECK(read(late, &number, 8) == 8 && number == 1);
    struct signalfd_siginfo info;
    CHECK(read(signals, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1 && info.ssi_int == 1234);
    CHECK(lseek(object, 0, SEEK_CUR) == 11 && pread(object, text, 4, 0) == 4 && !memcmp(text, "near", 4));
    CHECK(pwrite(object, "else", 4, 0) == 4 && !memcmp(mapped, "else", 4) && !strcmp(mapped + (2 << 20), "far"));
    CHECK(!strcmp(closed + 70000, "shared") && closed[0] == 0);
    CHECK(mprotect(hidden, 8192, PROT_READ) == 0 && !strcmp(hidden, "hidden"));
    CHECK(!strcmp(huge + (50UL << 30), "sparse") && huge[12345] == 0);
    CHECK(sigaction(SIGTERM, NULL, &found) == 0 && found.sa_handler == nothing && sigismember(&found.sa_mask, SIGHUP));
    CHECK((found.sa_flags & (SA_RESTART | SA_NODEFER)) == (SA_RESTART | SA_NODEFER));
    CHECK(sigaction(SIGPIPE, NULL, &found) == 0 && found.sa_handler == SIG_IGN);
    CHECK(timer_gettime(clock_timer[1], &left) == 0 && left.it_value.tv_sec > 900000 && left.it_interval.tv_sec == 7);
    CHECK(sbrk(0) == top && sbrk(1 << 20) == top && malloc(1 << 20) != NULL);
    CHECK(sched_getaffinity(0, sizeof processors_now, &processors_now) == 0 && CPU_EQUAL(&processors, &processors_now));
    // What the kernel shows of it to others.
    FILE *command = fopen("/proc/self/cmdline", "r");
    CHECK(command && fread(where, 1, sizeof where, command) > 0 && strstr(where, "belongings"));
    CHECK(!strcmp(where, arguments[0]));
    ssize_t length = readlink("/proc/self/exe", where, sizeof where - 1);
    CHECK(length > 0 && (where[length] = 0, strstr(where, "belongings")));
    printf("done\n");
    return 0;
}
