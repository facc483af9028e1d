// Memory of a given size and 16 threads that write to it at a given rate, in steps of 10 ms. Prints how many steps were
// due and done.
//
//   ballast MEBIBYTES MEBIBYTES_PER_SECOND
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16 };
static uint8_t *memory;
static size_t bytes, step_pages;
static atomic_ulong done;

static void *work(void *argument) {
    size_t me = (size_t)argument, share = bytes / THREADS / 4096, page = 0;
    uint8_t *mine = memory + me * share * 4096;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (uint64_t step = 1;; step++) {
        for (size_t i = 0; i < step_pages; i++) {
            memset(mine + page * 4096, (int)step, 4096);
            page = (page + 1) % share;
        }
        // A share of a processor for each thread, so that a slowdown can be seen.
        double x = 1;
        for (int i = 0; i < 20000; i++) {
            x = x * 1.0000001 + 1e-9;
        }
        if (x < 0) return NULL;
        atomic_fetch_add(&done, 1);
        next.tv_nsec += 10000000;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        // Missed steps are not made up for.
        if (now.tv_sec > next.tv_sec || (now.tv_sec == next.tv_sec && now.tv_nsec > next.tv_nsec)) {
            next = now;
        } else {
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    bytes = strtoull(arguments[1], NULL, 10) << 20;
    step_pages = (strtoull(arguments[2], NULL, 10) << 20) / 4096 / 100 / THREADS;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    uint64_t x = 1;
    for (size_t i = 0; i < bytes / 8; i++) {
        x = x * 6364136223846793005 + 1442695040888963407;
        ((uint64_t *)memory)[i] = x;
    }
    pthread_t thread;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&thread, NULL, work, (void *)i);
    }
    printf("running\n");
    fflush(stdout);
    // One line for each line of input: steps done so far.
    while (getchar() != EOF) {
        printf("%lu\n", atomic_load(&done));
        fflush(stdout);
    }
    return 0;
}
