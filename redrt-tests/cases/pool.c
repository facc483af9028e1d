// A pool of child processes, as Python's multiprocessing makes it: children take numbers from one pipe in turns, by a
// semaphore without a name, and answer over another one. One thread gives the numbers, another one adds the answers up.
// Answers have different lengths, and children work for different times. Usage: pool ROUNDS [thread]
// With `thread` there is an ordered thread before the children.
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3 };
static int tasks[2], answers[2], rounds;
static sem_t *turn, *may_answer;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_done = PTHREAD_COND_INITIALIZER;
static uint64_t sum;
static int left;

static sem_t *semaphore(const char *kind) {
    char name[64];
    snprintf(name, sizeof name, "/redrt-pool-%s-%d", kind, getppid() ^ (int)(uintptr_t)&name >> 4);
    for (int attempt = 0;; attempt++) {
        sem_t *made = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
        if (made != SEM_FAILED) return sem_unlink(name), made;
        // A replica on the same host has the name.
        if (attempt == 1000) perror("sem_open"), exit(3);
        usleep(1000);
    }
}

static void all(ssize_t (*move)(int, void *, size_t), int fd, void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t now = move(fd, (char *)bytes + done, length - done);
        if (now <= 0) _exit(4);
        done += now;
    }
}
static ssize_t put(int fd, void *bytes, size_t length) { return write(fd, bytes, length); }

static void work(int me) {
    close(tasks[1]), close(answers[0]);
    for (unsigned taken = getpid();; taken = taken * 1103515245 + 12345) {
        int32_t task;
        sem_wait(turn);
        int is_over = read(tasks[0], &task, sizeof task) != sizeof task;
        sem_post(turn);
        if (is_over) return;
        usleep(taken % 700 * (me + 1));
        char answer[512];
        int32_t length = sizeof task + task % 60 * 8;
        memset(answer, 0, sizeof answer), memcpy(answer, &task, sizeof task);
        sem_wait(may_answer);
        all(put, answers[1], &length, sizeof length), all(put, answers[1], answer, length);
        sem_post(may_answer);
    }
}

static void *give(void *unused) {
    for (int32_t task = 0; task < rounds; task++) all(put, tasks[1], &task, sizeof task);
    return unused;
}

static void *take(void *unused) {
    for (int count = 0; count < rounds; count++) {
        int32_t length, task;
        char answer[512];
        all(read, answers[0], &length, sizeof length), all(read, answers[0], answer, length);
        memcpy(&task, answer, sizeof task);
        pthread_mutex_lock(&lock);
        sum += (uint64_t)task * task;
        left--;
        pthread_cond_signal(&is_done);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void *nothing(void *unused) {
    pthread_mutex_lock(&lock), pthread_mutex_unlock(&lock);
    return unused;
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    rounds = left = atoi(argv[1]);
    pthread_t early, giver, taker;
    if (argc > 2) pthread_create(&early, NULL, nothing, NULL), pthread_join(early, NULL);
    turn = semaphore("turn"), may_answer = semaphore("answer");
    if (pipe(tasks) || pipe(answers)) return 5;
    for (int child = 0; child < CHILDREN; child++)
        if (fork() == 0) work(child), _exit(0);
    pthread_create(&giver, NULL, give, NULL), pthread_create(&taker, NULL, take, NULL);
    pthread_mutex_lock(&lock);
    while (left > 0) pthread_cond_wait(&is_done, &lock);
    pthread_mutex_unlock(&lock);
    pthread_join(giver, NULL), pthread_join(taker, NULL);
    close(tasks[1]), close(tasks[0]), close(answers[0]);
    while (wait(NULL) > 0) {}
    uint64_t total;
    MPI_Allreduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    uint64_t expected = 0;
    for (uint64_t task = 0; task < (uint64_t)rounds; task++) expected += task * task * size;
    if (rank == 0) printf(total == expected ? "the pool adds up\n" : "WRONG\n");
    MPI_Finalize();
    return 0;
}
