// Goes on with names that are no text: of its directory, its file, the files that it has open and mapped, its threads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            printf("line %d: %s does not hold, errno %d\ndone\n", __LINE__, #condition, errno);                     \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

static const char cut[] = "fourteen-bytes\xc3";
static sem_t named, ends;

static void *sleeps(void *unused) {
    char now[16] = {0};
    prctl(PR_SET_NAME, cut);
    sem_post(&named);
    sem_wait(&ends);
    CHECK(prctl(PR_GET_NAME, now) == 0 && !strcmp(now, cut));
    return unused;
}

int main(int count, char **arguments) {
    char here[4096], text[16] = {0};
    pthread_t thread;
    CHECK(count == 1 && strrchr(arguments[0], '/'));
    *strrchr(arguments[0], '/') = 0;
    CHECK(chdir(arguments[0]) == 0 && getcwd(here, sizeof here));
    int file = open("gr\xfc\xdf" "e\n", O_CREAT | O_RDWR, 0644), memory = memfd_create("gr\xfc\xdf" "e", 0);
    CHECK(file >= 0 && write(file, "hello", 5) == 5 && memory >= 0 && write(memory, "there", 5) == 5);
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(mapped != MAP_FAILED);
    sem_init(&named, 0, 0), sem_init(&ends, 0, 0);
    CHECK(pthread_create(&thread, NULL, sleeps, NULL) == 0 && sem_wait(&named) == 0);
    printf("running\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) != 0) {
    }
    sem_post(&ends);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pread(file, text, 5, 0) == 5 && !strcmp(text, "hello") && !memcmp(mapped, "hello", 5));
    CHECK(pread(memory, text, 5, 0) == 5 && !strcmp(text, "there"));
    char now[4096];
    CHECK(getcwd(now, sizeof now) && !strcmp(here, now) && access(".", R_OK) == 0);
    printf("done\n");
    return 0;
}
