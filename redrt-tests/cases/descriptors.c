// Threads that reach each other by pipes, pairs of sockets and events: how much a read finds, what is full, and which
// descriptors a wait finds ready go into messages. Usage: descriptors ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WRITERS = 3, BYTES = 6000 };
static int pipes[2], narrow[2], sockets[2], event, from_child[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t hash, misses;
static int rounds;

static void mix_into(uint64_t *sum, uint64_t value) { *sum = (*sum ^ value) * 0x9e3779b97f4a7c15u; *sum ^= *sum >> 29; }
static void mix(uint64_t value) { mix_into(&hash, value); }
static void mix_locked(uint64_t value) {
    pthread_mutex_lock(&lock);
    mix(value);
    pthread_mutex_unlock(&lock);
}

// Without waiting: a full pipe is counted.
static void *write_all(void *number) {
    intptr_t me = (intptr_t)number;
    uint64_t full = 0;
    for (int round = 0; round < rounds; round++) {
        char bytes[BYTES];
        memset(bytes, 'a' + (int)me, sizeof bytes);
        size_t length = 1 + (round * 977 + me * 131) % BYTES;
        for (size_t done = 0; done < length;) {
            ssize_t now = write(narrow[1], bytes + done, length - done);
            if (now > 0) done += now;
            else if (errno == EAGAIN) full++, sched_yield();
            else exit(3);
        }
        char letter = 'A' + me;
        if (write(pipes[1], &letter, 1) != 1 || send(sockets[1], &letter, 1, MSG_NOSIGNAL) != 1) exit(4);
        uint64_t one = me;
        if (round % 3 == 0 && eventfd_write(event, one)) exit(5);
    }
    mix_locked(full);
    pthread_mutex_lock(&lock);
    misses += full;
    pthread_mutex_unlock(&lock);
    return NULL;
}

// Waits by poll, select and epoll in turn.
static void *read_all(void *unused) {
    int set = epoll_create1(0);
    int fds[] = {narrow[0], sockets[0], event, pipes[0]};
    for (int i = 0; i < 4; i++) {
        struct epoll_event one = {.events = EPOLLIN, .data.ptr = &fds[i]};
        epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &one);
    }
    size_t left = 0, letters[2] = {0};
    uint64_t sum = 0, all = 0, read_sum = 0;
    for (int round = 0; round < rounds; round++)
        for (int me = 1; me <= WRITERS; me++) {
            left += 1 + (round * 977 + me * 131) % BYTES;
            if (round % 3 == 0) all += me;
        }
    for (int turn = 0; left || letters[0] < (size_t)WRITERS * rounds || letters[1] < (size_t)WRITERS * rounds || sum < all;
         turn++) {
        unsigned ready = 0;
        if (turn % 3 == 0) {
            struct pollfd wanted[4];
            for (int i = 0; i < 4; i++) wanted[i] = (struct pollfd){fds[i], POLLIN, 0};
            mix_into(&read_sum, poll(wanted, 4, turn % 2 ? 1 : -1));
            for (int i = 0; i < 4; i++) ready |= (wanted[i].revents & POLLIN ? 1u : 0) << i;
        } else if (turn % 3 == 1) {
            struct epoll_event events[4];
            int count = epoll_wait(set, events, 4, 1);
            for (int i = 0; i < count; i++) {
                mix_into(&read_sum, (int *)events[i].data.ptr - fds);
                ready |= 1u << ((int *)events[i].data.ptr - fds);
            }
        } else {
            fd_set wanted;
            FD_ZERO(&wanted);
            for (int i = 0; i < 4; i++) FD_SET(fds[i], &wanted);
            struct timeval time = {0, 500};
            mix_into(&read_sum, select(FD_SETSIZE, &wanted, NULL, NULL, &time));
            for (int i = 0; i < 4; i++) ready |= (FD_ISSET(fds[i], &wanted) ? 1u : 0) << i;
        }
        mix_into(&read_sum, ready);
        if (ready & 1) {
            char bytes[5000];
            ssize_t got = read(narrow[0], bytes, sizeof bytes);
            left -= got;
            for (ssize_t i = 0; i < got; i += 7) mix_into(&read_sum, bytes[i]);
            mix_into(&read_sum, got);
        }
        if (ready & 2) {
            char bytes[8];
            ssize_t got = recv(sockets[0], bytes, sizeof bytes, 0);
            letters[0] += got;
            for (ssize_t i = 0; i < got; i++) mix_into(&read_sum, bytes[i]);
        }
        if (ready & 4) {
            uint64_t got = 0;
            if (eventfd_read(event, &got)) exit(6);
            sum += got;
            mix_into(&read_sum, got);
        }
        if (ready & 8) {
            char bytes[8];
            ssize_t got = read(pipes[0], bytes, sizeof bytes);
            letters[1] += got;
            for (ssize_t i = 0; i < got; i++) mix_into(&read_sum, bytes[i]);
        }
    }
    close(set);
    mix_locked(read_sum);
    return unused;
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rounds = argc > 1 ? atoi(argv[1]) : 30;
    for (int part = 0; part < 4; part++) {
        if (pipe(pipes) || pipe2(narrow, O_NONBLOCK) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return 2;
        fcntl(narrow[1], F_SETPIPE_SZ, 4096);
        event = eventfd(0, 0);
        pthread_t threads[WRITERS + 1];
        pthread_create(&threads[0], NULL, read_all, NULL);
        for (intptr_t i = 1; i <= WRITERS; i++) pthread_create(&threads[i], NULL, write_all, (void *)i);
        // What a child says is read in pieces, while the threads run.
        if (pipe(from_child)) return 2;
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 20; i++) {
                dprintf(from_child[1], "line %d\n", i);
                usleep(100);
            }
            _exit(0);
        }
        close(from_child[1]);
        char text[16];
        ssize_t got;
        while ((got = read(from_child[0], text, sizeof text)) > 0) mix_locked(got * 256 + text[0]);
        close(from_child[0]);
        waitpid(child, NULL, 0);
        for (int i = 0; i <= WRITERS; i++) pthread_join(threads[i], NULL);
        int fds[] = {pipes[0], pipes[1], narrow[0], narrow[1], sockets[0], sockets[1], event};
        for (int i = 0; i < 7; i++) close(fds[i]);
        uint64_t said = hash, heard;
        MPI_Sendrecv(&said, 1, MPI_UINT64_T, (rank + 1) % size, 0, &heard, 1, MPI_UINT64_T, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mix(heard);
    }
    uint64_t all = 0;
    MPI_Allreduce(&hash, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("threads agree\n");
    fprintf(stderr, "rank %d: %llx, %llu misses\n", rank, (unsigned long long)all, (unsigned long long)misses);
    MPI_Finalize();
}
