// Has something that cannot be carried to another host.
//
//   stubborn socket|unix|child|inotify|deleted|pipe|file|first
#include <fcntl.h>
#include <signal.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
    } else if (!strcmp(what, "child")) {
        child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
    } else if (!strcmp(what, "inotify")) {
        if (inotify_init1(0) < 0) return 1;
    } else if (!strcmp(what, "deleted")) {
        if (mkstemp(path) < 0 || unlink(path)) return 1;
    } else if (!strcmp(what, "pipe")) {
        if (pipe(ends)) return 1;
        close(ends[1]);
    } else if (!strcmp(what, "file")) {
        int fd = mkstemp(path);
        if (fd < 0 || ftruncate(fd, 4096) || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) return 1;
        close(fd);
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
    if (!strcmp(what, "file")) {
        unlink(path);
    }
    printf("done\n");
    return 0;
}
