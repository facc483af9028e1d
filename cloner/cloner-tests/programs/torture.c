// Threads that change memory by seeded rules, hold locks, use thread-local storage, vector registers, signals, timers,
// descriptors and the heap, and check themselves all the time. Each does a fixed amount of work, so that the digests at
// the end do not depend on timing: a copy that was taken at any moment must print the same as its source.
//
//   torture SEED STEPS [FILE]       does not end before FILE is gone
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/membarrier.h>
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
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "torture: line %d: %s does not hold, errno %d\n", __LINE__, #condition, errno);         \
            abort();                                                                                                \
        }                                                                                                           \
    } while (0)

static uint64_t seed;
static long steps;
// The file that is read on and on: one that is there in any case, or the fourth argument.
static const char *file_path = "/proc/self/exe";

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static void block_signals(void) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static __thread uint64_t local[64];

static void check_identity(void) {
    static __thread pid_t tid;
    if (tid == 0) {
        tid = (pid_t)syscall(SYS_gettid);
    }
    CHECK(tid == (pid_t)syscall(SYS_gettid));
    CHECK(tid == gettid());
    // The kernel keeps the processor's number in thread-local memory.
    CHECK(sched_getcpu() >= 0);
    // The process is registered for it.
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
}

// Cells that follow from their number of writes; all are checked now and then.
static uint64_t memory_thread(uint64_t me) {
    enum { CELLS = 1 << 16 };
    uint64_t *cells = mmap(NULL, CELLS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint32_t *writes = calloc(CELLS, sizeof *writes);
    uint64_t random = seed ^ me, sum = 0;
    for (long step = 0; step < steps * 200; step++) {
        for (int i = 0; i < 100; i++) {
            random = mix(random);
            uint64_t at = random % CELLS;
            cells[at] = mix(at * 1000003 + ++writes[at]);
        }
        local[step % 64] += random;
        if (step % 64 == 0) {
            check_identity();
            for (uint64_t at = 0; at < CELLS; at += 7) {
                CHECK(cells[at] == (writes[at] ? mix(at * 1000003 + writes[at]) : 0));
            }
        }
    }
    for (uint64_t at = 0; at < CELLS; at++) {
        sum = mix(sum ^ cells[at]);
    }
    for (int i = 0; i < 64; i++) {
        sum = mix(sum ^ local[i]);
    }
    free(writes);
    CHECK(munmap(cells, CELLS * 8) == 0);
    return sum;
}

// Blocks of the heap with a pattern each.
static uint64_t heap_thread(uint64_t me) {
    enum { BLOCKS = 512 };
    uint8_t *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    uint64_t random = seed ^ me, sum = 0;
    for (long step = 0; step < steps * 3000; step++) {
        random = mix(random);
        int at = random % BLOCKS;
        if (blocks[at]) {
            uint8_t expected = (uint8_t)(sizes[at] * 7 + at);
            CHECK(blocks[at][0] == expected && blocks[at][sizes[at] - 1] == expected);
            sum += expected;
            free(blocks[at]);
        }
        sizes[at] = 1 + mix(random) % ((random & 15) == 0 ? 300000 : 2000);
        blocks[at] = malloc(sizes[at]);
        memset(blocks[at], (uint8_t)(sizes[at] * 7 + at), sizes[at]);
    }
    for (int at = 0; at < BLOCKS; at++) {
        free(blocks[at]);
    }
    return sum;
}

// Mappings that appear, grow, move, change protection and vanish.
static uint64_t mapping_thread(uint64_t me) {
    uint64_t random = seed ^ me, sum = 0;
    for (long step = 0; step < steps * 60; step++) {
        random = mix(random);
        size_t pages = 1 + random % 40;
        uint8_t *at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        for (size_t page = 0; page < pages; page++) {
            memcpy(at + page * 4096, &random, 8);
            at[page * 4096 + 4095] = (uint8_t)page;
        }
        CHECK(mprotect(at, 4096, (random & 1) ? PROT_READ : PROT_NONE) == 0);
        uint8_t *begin = at;
        at = mremap(at + 4096 * (pages > 1), (pages - (pages > 1)) * 4096, (pages + 20) * 4096, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED);
        {
            CHECK(mprotect(at, (pages + 20) * 4096, PROT_READ | PROT_WRITE) == 0);
            for (size_t page = 0; page + (pages > 1) < pages; page++) {
                CHECK(memcmp(at + page * 4096, &random, 8) == 0);
                CHECK(at[page * 4096 + 4095] == (uint8_t)(page + (pages > 1)));
            }
            sum = mix(sum ^ at[4095] ^ random);
            CHECK(at[(pages + 10) * 4096] == 0);
            CHECK(madvise(at, 4096, MADV_DONTNEED) == 0 && at[0] == 0);
            munmap(at, (pages + 20) * 4096);
            if (pages > 1) {
                munmap(begin, 4096);
            }
        }
    }
    return sum;
}

// Locks of all kinds, held at any moment.
static pthread_mutex_t locks[4];
static uint64_t guarded[4];

static void make_locks(void) {
    for (int i = 0; i < 4; i++) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        if (i == 1) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
        if (i == 2) pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
        if (i == 3) pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        if (i == 3) pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
        CHECK(pthread_mutex_init(&locks[i], &kind) == 0);
    }
}

static uint64_t lock_thread(uint64_t me) {
    uint64_t random = seed ^ me;
    for (long step = 0; step < steps * 1000; step++) {
        random = mix(random);
        int which = random % 4;
        CHECK(pthread_mutex_lock(&locks[which]) == 0);
        if (which == 1) CHECK(pthread_mutex_lock(&locks[which]) == 0);
        if (which == 2) CHECK(pthread_mutex_lock(&locks[which]) == EDEADLK);
        uint64_t before = guarded[which];
        for (volatile int i = 0; i < 200; i++) {
        }
        guarded[which] = before + random;
        if (which == 1) CHECK(pthread_mutex_unlock(&locks[which]) == 0);
        CHECK(pthread_mutex_unlock(&locks[which]) == 0);
    }
    return random;
}

// Two threads that pass a number to and fro: condition variable, semaphore, pipe, event counter.
struct pair {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sem_t tokens;
    int turn, pipe[2], event;
    uint64_t value;
};

static void make_pair(struct pair *pair) {
    pthread_mutex_init(&pair->lock, NULL);
    pthread_cond_init(&pair->changed, NULL);
    CHECK(sem_init(&pair->tokens, 0, 0) == 0);
    CHECK(pipe2(pair->pipe, O_CLOEXEC) == 0);
    CHECK((pair->event = eventfd(0, EFD_SEMAPHORE)) >= 0);
    pair->turn = 0;
    pair->value = seed;
}

static uint64_t pair_thread(struct pair *pair, int side) {
    block_signals();
    for (long step = 0; step < steps * 40; step++) {
        pthread_mutex_lock(&pair->lock);
        while (pair->turn != side) {
            if (step % 2) {
                struct timespec limit;
                clock_gettime(CLOCK_REALTIME, &limit);
                limit.tv_sec += 100;
                CHECK(pthread_cond_timedwait(&pair->changed, &pair->lock, &limit) == 0);
            } else {
                CHECK(pthread_cond_wait(&pair->changed, &pair->lock) == 0);
            }
        }
        pair->value = mix(pair->value + side);
        pair->turn = 1 - side;
        pthread_cond_signal(&pair->changed);
        pthread_mutex_unlock(&pair->lock);
        uint64_t number = step, one = 1;
        if (side == 0) {
            CHECK(write(pair->pipe[1], &number, 8) == 8);
            CHECK(write(pair->event, &one, 8) == 8);
            CHECK(sem_post(&pair->tokens) == 0);
        } else {
            struct pollfd poll_for = {.fd = pair->pipe[0], .events = POLLIN};
            CHECK(poll(&poll_for, 1, -1) == 1);
            CHECK(read(pair->pipe[0], &number, 8) == 8 && number == (uint64_t)step);
            CHECK(read(pair->event, &one, 8) == 8 && one == 1);
            CHECK(sem_wait(&pair->tokens) == 0);
        }
    }
    return side;
}

// Values that live in vector registers across the loop.
__attribute__((target("avx2,fma"))) static double wide(double start, long rounds) {
    __m256d a = _mm256_set_pd(start, start + 1, start + 2, start + 3), b = _mm256_set1_pd(1.0000001);
    for (long i = 0; i < rounds; i++) {
        a = _mm256_fmadd_pd(a, b, _mm256_set1_pd(1e-9));
    }
    double out[4];
    _mm256_storeu_pd(out, a);
    return out[0] + out[1] + out[2] + out[3];
}

__attribute__((target("avx512f"))) static double wider(double start, long rounds) {
    __m512d a = _mm512_set1_pd(start), b = _mm512_set1_pd(1.0000001);
    __mmask8 mask = 0x5a;
    for (long i = 0; i < rounds; i++) {
        a = _mm512_mask_fmadd_pd(a, mask, b, a);
    }
    return _mm512_reduce_add_pd(a);
}

static uint64_t vector_thread(uint64_t me) {
    double sum = 0;
    for (long step = 0; step < steps; step++) {
        double once = wide(me, 100000);
        CHECK(once == wide(me, 100000));
        sum += once;
        if (__builtin_cpu_supports("avx512f")) {
            double twice = wider(1 + me, 1000);
            CHECK(twice == wider(1 + me, 1000));
        }
        long double slow = 1;
        for (int i = 1; i < 1000; i++) {
            slow = slow * 1.0000001L + i;
        }
        sum += (double)slow;
    }
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    return bits;
}

// Sleeps that must not be cut short, with no handler that could be the reason.
static uint64_t sleep_thread(uint64_t me) {
    block_signals();
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), queue = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    CHECK(timer >= 0 && queue >= 0 && epoll_ctl(queue, EPOLL_CTL_ADD, timer, &event) == 0);
    for (long step = 0; step < steps; step++) {
        struct timespec short_time = {0, 3000000}, left = {0, 0};
        CHECK(nanosleep(&short_time, &left) == 0);
        CHECK(usleep(2000) == 0);
        CHECK(poll(NULL, 0, 3) == 0);
        struct itimerspec once = {.it_value = {0, 2000000}};
        CHECK(timerfd_settime(timer, 0, &once, NULL) == 0);
        CHECK(epoll_wait(queue, &event, 1, 100000) == 1 && event.data.u64 == 77);
        uint64_t ticks;
        CHECK(read(timer, &ticks, 8) == 8 && ticks == 1);
    }
    close(queue);
    close(timer);
    return me;
}

// Threads that come and go.
static void *brief(void *argument) {
    local[0] = (uint64_t)argument;
    check_identity();
    return (void *)mix(local[0]);
}

static uint64_t spawning_thread(uint64_t me) {
    uint64_t sum = me;
    for (long step = 0; step < steps * 12; step++) {
        pthread_t threads[3];
        for (uint64_t i = 0; i < 3; i++) {
            CHECK(pthread_create(&threads[i], NULL, brief, (void *)(sum + i)) == 0);
        }
        for (uint64_t i = 0; i < 3; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0 && (uint64_t)result == mix(sum + i));
        }
        sum = mix(sum);
    }
    return sum;
}

// A file that is read on and on, from where it was.
static uint64_t file_thread(uint64_t me) {
    FILE *file = fopen(file_path, "r");
    int position = open(file_path, O_RDONLY | O_CLOEXEC), twin = dup(position);
    CHECK(file && position > 0 && twin > 0);
    uint64_t sum = me;
    for (long step = 0; step < steps * 500; step++) {
        uint8_t bytes[64];
        off_t at = lseek(twin, 0, SEEK_CUR);
        CHECK(read(position, bytes, 10) >= 0);
        off_t now = lseek(twin, 0, SEEK_CUR);
        if (now - at < 10) {
            CHECK(lseek(position, 0, SEEK_SET) == 0);
        }
        size_t count = fread(bytes, 1, sizeof bytes, file);
        for (size_t i = 0; i < count; i++) {
            sum = mix(sum ^ bytes[i]);
        }
        if (count < sizeof bytes) {
            rewind(file);
        }
    }
    fclose(file);
    close(position);
    close(twin);
    return sum;
}

// Signals: an interval timer and a POSIX timer, handled on an alternate stack.
static volatile sig_atomic_t alarms, ticks;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    if (signal == SIGALRM) {
        alarms++;
    } else if (info->si_value.sival_int == 4711) {
        ticks++;
    }
    errno = saved;
}

struct work {
    pthread_t thread;
    int kind;
    uint64_t me, result;
    struct pair *pair;
};

static void *work(void *argument) {
    struct work *work = argument;
    uint64_t (*const kinds[])(uint64_t) = {memory_thread,  heap_thread,  mapping_thread,  lock_thread, vector_thread,
                                           sleep_thread,   spawning_thread, file_thread};
    char name[16];
    snprintf(name, sizeof name, "torture-%d", work->kind);
    CHECK(pthread_setname_np(pthread_self(), name) == 0);
    work->result = work->pair ? pair_thread(work->pair, work->me & 1) : kinds[work->kind](work->me);
    char now[16];
    CHECK(pthread_getname_np(pthread_self(), now, sizeof now) == 0 && strcmp(name, now) == 0);
    return work;
}

int main(int count, char **arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: torture SEED STEPS [FILE]\n");
        return 2;
    }
    seed = strtoull(arguments[1], NULL, 10);
    steps = atol(arguments[2]);
    if (count > 4) file_path = arguments[4];
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
    make_locks();
    static struct pair pair;
    make_pair(&pair);
    uint64_t *shared = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *reserved = mmap(NULL, 1UL << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int object = memfd_create("torture", MFD_CLOEXEC);
    CHECK(shared != MAP_FAILED && reserved != MAP_FAILED && object >= 0 && ftruncate(object, 1 << 16) == 0);
    uint64_t *first = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, object, 0);
    uint64_t *second = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, object, 0);
    CHECK(first != MAP_FAILED && second != MAP_FAILED && first != second);

    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    struct itimerval often = {{0, 5000}, {0, 5000}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 4711};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec setting = {{0, 7000000}, {0, 7000000}};
    CHECK(timer_settime(timer, 0, &setting, NULL) == 0);
    // A signal that waits all the time, blocked.
    sigset_t waiting, now;
    sigemptyset(&waiting);
    sigaddset(&waiting, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &waiting, NULL) == 0 && raise(SIGUSR2) == 0);

    enum { THREADS = 12 };
    struct work works[THREADS];
    for (int i = 0; i < THREADS; i++) {
        works[i] = (struct work){.kind = i < 8 ? i : i == 8 ? 0 : 3, .me = i, .pair = i >= 10 ? &pair : NULL};
        CHECK(pthread_create(&works[i].thread, NULL, work, &works[i]) == 0);
    }
    printf("running\n");
    fflush(stdout);
    uint64_t random = seed;
    for (long step = 0; step < steps * 10; step++) {
        random = mix(random);
        shared[random % (1 << 17)] = random;
        CHECK(shared[random % (1 << 17)] == random);
        first[random % (1 << 13)] = random;
        CHECK(second[random % (1 << 13)] == random);
        CHECK(sigpending(&now) == 0 && sigismember(&now, SIGUSR2));
        struct timespec moment = {0, 200000};
        nanosleep(&moment, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(works[i].thread, &result) == 0 && result == &works[i]);
        printf("%d %016lx\n", i, (unsigned long)works[i].result);
    }
    while (count > 3 && access(arguments[3], F_OK) == 0) {
        usleep(1000);
    }
    // The source ends when it is told to, so that a clone never comes too late. A copy is told at once.
    char byte;
    while (read(0, &byte, 1) != 0) {
    }
    uint64_t sum = 0;
    for (int i = 0; i < 1 << 17; i++) {
        sum = mix(sum ^ shared[i]);
    }
    CHECK(alarms > 0 && ticks > 0);
    int before_alarms = alarms, before_ticks = ticks;
    for (int i = 0; i < 1000 && (alarms == before_alarms || ticks == before_ticks); i++) {
        usleep(10000);
    }
    CHECK(alarms > before_alarms && ticks > before_ticks);
    printf("locks %016lx shared %016lx pair %016lx\n", (unsigned long)(guarded[0] + guarded[1] + guarded[2] + guarded[3]),
           (unsigned long)sum, (unsigned long)pair.value);
    printf("done\n");
    return 0;
}
