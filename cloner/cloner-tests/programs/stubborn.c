// Has something that cannot be carried to another host.
//
//   stubborn socket|unix|child|inotify|deleted|pipe|file|first|pty|device|fifo|io_uring|seccomp|sysv|timers|heavy
//            lease|signalling|sealed|segments|root|namespace|user|gone|queue
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <asm/ldt.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *rest(void *unused) {
    printf("running\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    printf("done\n");
    exit(0);
    return unused;
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    int ends[2];
    char path[] = "/tmp/stubborn-XXXXXX";
    pid_t child = 0;
    if (!strcmp(what, "socket")) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, 1)) return 1;
    } else if (!strcmp(what, "unix")) {
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) return 1;
    } else if (!strcmp(what, "child")) {
        char named;
        if (pipe(ends)) return 1;
        child = fork();
        if (child == 0) {
            prctl(PR_SET_NAME, "an apprentice");
            close(ends[0]);
            close(ends[1]);
            pause();
            _exit(0);
        }
        close(ends[1]);
        if (read(ends[0], &named, 1) != 0) return 1;
        close(ends[0]);
    } else if (!strcmp(what, "inotify")) {
        if (inotify_init1(0) < 0) return 1;
    } else if (!strcmp(what, "deleted")) {
        if (mkstemp(path) < 0 || unlink(path)) return 1;
    } else if (!strcmp(what, "pipe")) {
        // A process that is nobody's child any more has the other end, as long as there is this one.
        if (pipe(ends)) return 1;
        pid_t child = fork();
        if (child == 0) {
            if (fork() == 0) {
                struct pollfd end = {.fd = ends[1]};
                close(ends[0]);
                close(1);
                close(2);
                poll(&end, 1, -1);
            }
            _exit(0);
        }
        close(ends[1]);
        if (child < 0 || waitpid(child, NULL, 0) != child) return 1;
    } else if (!strcmp(what, "file")) {
        int fd = mkstemp(path);
        if (fd < 0 || ftruncate(fd, 4096) || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) return 1;
        close(fd);
    }
    else if (!strcmp(what, "heavy")) {
        // Nothing that could not be carried, but much: 64 MiB that cannot be compressed.
        unsigned long *words = malloc(64 << 20), x = 1;
        for (int i = 0; words && i < (64 << 20) / 8; i++) {
            words[i] = x = x * 6364136223846793005 + 1442695040888963407;
        }
        if (!words) return 1;
    } else if (!strcmp(what, "pty")) {
        if (posix_openpt(O_RDWR | O_NOCTTY) < 0) return 1;
    } else if (!strcmp(what, "device")) {
        if (open("/dev/kmsg", O_RDONLY) < 0) return 1;
    } else if (!strcmp(what, "fifo")) {
        if (!mktemp(path) || mkfifo(path, 0600) || open(path, O_RDWR) < 0 || unlink(path)) return 1;
    } else if (!strcmp(what, "io_uring")) {
        char parameters[120] = {0};
        // Where it is forbidden, another thing that no other host can have stands for it.
        if (syscall(425, 4, parameters) < 0 && syscall(SYS_pidfd_open, getpid(), 0) < 0) return 1;
    } else if (!strcmp(what, "seccomp")) {
        struct sock_filter all = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
        struct sock_fprog filter = {1, &all};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;
    } else if (!strcmp(what, "sysv")) {
        int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
        if (id < 0 || shmat(id, NULL, 0) == (void *)-1 || shmctl(id, IPC_RMID, NULL)) return 1;
    } else if (!strcmp(what, "lease")) {
        int fd = mkstemp(path);
        if (fd < 0 || close(fd) || fcntl(open(path, O_RDONLY), F_SETLEASE, F_RDLCK)) return 1;
    } else if (!strcmp(what, "signalling")) {
        if (pipe(ends) || fcntl(ends[0], F_SETFL, O_ASYNC)) return 1;
    } else if (!strcmp(what, "sealed")) {
        int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
        if (ftruncate(fd, 4096) || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)) return 1;
        // Only newer kernels map it shared.
        if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) {
            if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, open("/proc/self/fd/3", O_RDONLY), 0) == MAP_FAILED) return 1;
        }
    } else if (!strcmp(what, "segments")) {
        struct user_desc segment = {.entry_number = 0, .limit = 1, .seg_32bit = 1, .useable = 1};
        if (syscall(SYS_modify_ldt, 1, &segment, sizeof segment)) return 1;
    } else if (!strcmp(what, "root")) {
        if (chroot("/usr")) return 1;
    } else if (!strcmp(what, "namespace")) {
        if (unshare(CLONE_NEWUTS)) return 1;
    } else if (!strcmp(what, "user")) {
        if (setresuid(0, 1, 0) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)) return 1;
    } else if (!strcmp(what, "gone")) {
        // A process that nobody knows has what the epoll watches.
        int epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        if (pipe(ends) || epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event)) return 1;
        pid_t child = fork();
        if (child == 0) {
            if (fork() == 0) {
                close(0), close(1), close(2), close(epoll);
                for (;;) pause();
            }
            _exit(0);
        }
        close(ends[0]), close(ends[1]);
        if (child < 0 || waitpid(child, NULL, 0) != child) return 1;
    } else if (!strcmp(what, "queue")) {
        if (mq_open("/stubborn", O_CREAT | O_RDWR, 0600, NULL) < 0) return 1;
    } else if (!strcmp(what, "timers")) {
        struct sigevent notice = {.sigev_notify = SIGEV_NONE};
        timer_t timer;
        for (int i = 0; i < 33; i++) {
            if (timer_create(CLOCK_MONOTONIC, &notice, &timer)) return 1;
        }
    }
    if (!strcmp(what, "first")) {
        // The first thread ends, another one goes on.
        pthread_t thread;
        pthread_create(&thread, NULL, rest, NULL);
        pthread_exit(NULL);
    }
    printf("running\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    if (child > 0) {
        kill(child, 9);
        waitpid(child, NULL, 0);
    }
    if (!strcmp(what, "file") || !strcmp(what, "lease")) {
        unlink(path);
    }
    printf("done\n");
    return 0;
}
