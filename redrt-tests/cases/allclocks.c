/* Readings of all clocks go into messages: replicas that differ would be reported. Meanwhile a thread that makes no
 * MPI call measures its processor time, in each replica a different number of times. */
#define _GNU_SOURCE
#include "../programs/check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timeb.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static atomic_int ends;

static void *measure(void *unused)
{
    struct rusage used;
    struct timespec now;
    while (!ends) {
        clock();
        getrusage(RUSAGE_THREAD, &used);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        /* There may be fewer processors than processes. */
        usleep(100);
    }
    return unused;
}

/* A reading by `way`; each way takes another clock or call. -1 after the last way. */
static long long shown(int way, pthread_t other)
{
    struct timeval day;
    struct timezone zone;
    struct timeb old;
    struct timespec now = {0, 0};
    struct rusage used;
    struct tms ticks;
    struct ntptimeval ntp;
    struct sysinfo facts;
    struct timex state;
    clockid_t id;
    memset(&state, 0, sizeof state);
    switch (way) {
    case 0: gettimeofday(&day, NULL); return day.tv_usec;
    case 1: gettimeofday(&day, &zone); return day.tv_usec + zone.tz_minuteswest;
    case 2: return time(NULL);
    case 3: return clock();
    case 4: return times(&ticks) + ticks.tms_utime + ticks.tms_stime;
    case 5: ftime(&old); return old.time * 1000 + old.millitm;
    case 6: timespec_get(&now, TIME_UTC); return now.tv_nsec;
    case 7: getrusage(RUSAGE_SELF, &used); return used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    case 8: getrusage(RUSAGE_THREAD, &used); return used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    case 9: way = ntp_gettime(&ntp); return ntp.time.tv_usec + ntp.maxerror + ntp.esterror + ntp.tai + way;
    case 10: way = adjtimex(&state); return state.time.tv_usec + state.maxerror + state.status + state.freq + way;
    case 11: way = ntp_adjtime(&state); return state.time.tv_usec + way;
    case 12: way = clock_adjtime(CLOCK_REALTIME, &state); return state.time.tv_usec + way;
    case 13: sysinfo(&facts); return facts.uptime;
    case 14: clock_getcpuclockid(0, &id), clock_gettime(id, &now); return now.tv_nsec + id;
    case 15: clock_getcpuclockid(getpid(), &id), clock_gettime(id, &now); return now.tv_nsec + id;
    case 16: pthread_getcpuclockid(pthread_self(), &id), clock_gettime(id, &now); return now.tv_nsec;
    case 17: pthread_getcpuclockid(other, &id), clock_gettime(id, &now); return now.tv_nsec;
    case 18: syscall(SYS_gettimeofday, &day, &zone); return day.tv_usec;
    case 19: syscall(SYS_clock_gettime, CLOCK_REALTIME, &now); return now.tv_nsec;
    case 20: syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now); return now.tv_nsec;
    case 21: return syscall(SYS_times, &ticks) + ticks.tms_utime;
    case 22: syscall(SYS_getrusage, RUSAGE_SELF, &used); return used.ru_utime.tv_usec;
    case 23: syscall(SYS_sysinfo, &facts); return facts.uptime;
    case 24: syscall(SYS_adjtimex, &state); return state.time.tv_usec;
#ifdef SYS_time
    case 25: return syscall(SYS_time, NULL);
#endif
    }
    id = way - 30;
    if (id >= 0 && id <= CLOCK_TAI && clock_gettime(id, &now) == 0)
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    return -1;
}

int main(int argc, char **argv)
{
    int rank, size;
    pthread_t other;
    clock_t before = clock();
    MPI_Init(&argc, &argv);
    CHECK(clock() >= before);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(pthread_create(&other, NULL, measure, NULL) == 0);
    for (int round = 0; round < 3; round++)
        for (int way = 0; way < 45; way++) {
            long long mine = shown(way, other), theirs;
            MPI_Sendrecv(&mine, 1, MPI_LONG_LONG, (rank + 1) % size, way, &theirs, 1, MPI_LONG_LONG,
                         (rank + size - 1) % size, way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    ends = 1;
    pthread_join(other, NULL);
    MPI_Finalize();
    CHECK(clock() >= before);
    if (rank == 0)
        printf("all clocks agree\n");
    return 0;
}
