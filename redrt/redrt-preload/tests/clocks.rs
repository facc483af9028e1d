//! Every function of the C library that shows a clock is replaced, or is listed here with a reason.

mod replica;

use replica::{compile, library, run_as_replica};
use std::collections::BTreeSet;
use std::process::Command;

const HEADERS: [&str; 6] = ["time.h", "sys/time.h", "sys/timex.h", "sys/times.h", "sys/timeb.h", "sys/resource.h"];

/// Functions of these headers that show a clock.
const AGREED: [&str; 16] = [
    "adjtimex",
    "clock",
    "clock_adjtime",
    "clock_getcpuclockid",
    "clock_gettime",
    "clock_nanosleep",
    "ftime",
    "getrusage",
    "gettimeofday",
    "nanosleep",
    "ntp_adjtime",
    "ntp_gettime",
    "ntp_gettimex",
    "time",
    "times",
    "timespec_get",
];

/// Functions of these headers that are left to the C library, with the reason.
const LEFT_ALONE: [(&str, &[&str]); 8] = [
    (
        "they convert times that they are given",
        &[
            "asctime",
            "asctime_r",
            "ctime",
            "ctime_r",
            "difftime",
            "dysize",
            "gmtime",
            "gmtime_r",
            "localtime",
            "localtime_r",
            "mktime",
            "strftime",
            "strftime_l",
            "strptime",
            "strptime_l",
            "timegm",
            "timelocal",
            "tzset",
        ],
    ),
    ("what the kernel can tell apart is the same on hosts with the same kernel", &["clock_getres", "timespec_getres"]),
    ("it reads the clock within the C library, for what its template leaves open of a date", &["getdate", "getdate_r"]),
    ("they change the clock of the host, in each replica", &["adjtime", "clock_settime", "settimeofday", "stime"]),
    (
        "a timer is the process's own: its signal comes when it comes, and so does what is left of it",
        &[
            "getitimer",
            "setitimer",
            "timer_create",
            "timer_delete",
            "timer_getoverrun",
            "timer_gettime",
            "timer_settime",
        ],
    ),
    ("they set the times of files, which agree by docs/files.md", &["futimes", "futimesat", "lutimes", "utimes"]),
    (
        "limits are the same where they are set",
        &["getrlimit", "getrlimit64", "prlimit", "prlimit64", "setrlimit", "setrlimit64"],
    ),
    ("priorities show no clock", &["getpriority", "setpriority"]),
];

/// Functions that the headers declare, by symbol.
fn declared() -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("headers.c");
    let includes = HEADERS.map(|header| format!("#include <{header}>\n")).concat();
    std::fs::write(&source, format!("#define _GNU_SOURCE 1\n{includes}")).unwrap();
    let output = Command::new("cc").arg("-E").arg(&source).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    // "# 42 "/usr/include/time.h" 3 4" names the file of the next lines. Parts of a header are in bits/.
    let mut is_wanted = false;
    let mut wanted = String::new();
    let bits = ["bits/time.h", "bits/timex.h", "bits/resource.h"];
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let file = rest.split('"').nth(1).unwrap_or_default();
            is_wanted = HEADERS.iter().chain(&bits).any(|header| file.ends_with(&format!("/{header}")));
        } else if is_wanted {
            wanted.push_str(line);
            wanted.push(' ');
        }
    }
    wanted.split(';').filter_map(name_of).collect()
}

fn name_of(declaration: &str) -> Option<String> {
    let declaration = declaration.trim().strip_prefix("extern ")?;
    let (before, after) = declaration.split_once('(')?;
    // The symbol is the declared name, unless it gets another: __asm__ ("" "name").
    let other = after.split_once("__asm__").map(|(_, name)| name.split('"').nth(3).unwrap_or_default());
    let own = before.trim_end().rsplit([' ', '*']).next()?;
    Some(other.unwrap_or(own).to_owned())
}

#[test]
fn every_function_of_the_headers_of_time_agrees_or_has_a_reason() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let replaced: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let reasons: BTreeSet<&str> = LEFT_ALONE.iter().flat_map(|(_, names)| *names).copied().collect();
    let declared = declared();
    assert!(declared.len() > 40, "{declared:?}");
    for name in declared.iter().map(String::as_str) {
        assert_ne!(AGREED.contains(&name), reasons.contains(name), "{name} is neither agreed nor left alone, or both");
    }
    for name in AGREED {
        assert!(replaced.contains(name), "{name} is not replaced");
    }
}

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timeb.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
extern int __gettimeofday(struct timeval *, void *);
static sem_t begun, done;
static void *other(void *unused) { sem_post(&begun); sem_wait(&done); return unused; }
static void show(const char *name, long s, long fraction) { printf("%s %ld %ld\n", name, s, fraction); }
static void by_clock(const char *name, clockid_t clock) {
    struct timespec now = {0};
    int result = clock_gettime(clock, &now);
    show(name, result ? -1 : now.tv_sec, now.tv_nsec);
    result = syscall(SYS_clock_gettime, clock, &now);
    show(name, result ? -1 : now.tv_sec, now.tv_nsec);
}
int main(void) {
    struct timeval day; struct timezone zone; struct timeb old; struct timespec now; struct rusage used;
    struct tms ticks; struct ntptimeval ntp; struct sysinfo facts; struct timex state; clockid_t clock_id;
    volatile double work = 0;
    for (int i = 0; i < 100000; i++) work += i;
    for (clockid_t clock = 0; clock <= CLOCK_TAI; clock++) if (clock != 10) by_clock("clock", clock);
    gettimeofday(&day, &zone); show("gettimeofday", day.tv_sec, day.tv_usec);
    show("zone", zone.tz_minuteswest, zone.tz_dsttime);
    __gettimeofday(&day, 0); show("__gettimeofday", day.tv_sec, day.tv_usec);
    show("time", time(0), 0);
    ftime(&old); show("ftime", old.time, old.millitm);
    for (int base = 1; base < 5; base++) if (timespec_get(&now, base)) show("timespec_get", now.tv_sec, now.tv_nsec);
    show("clock", clock(), 0);
    getrusage(RUSAGE_SELF, &used); show("self", used.ru_utime.tv_sec + used.ru_stime.tv_sec, used.ru_utime.tv_usec);
    show("used", used.ru_maxrss + used.ru_minflt + used.ru_majflt, used.ru_nvcsw + used.ru_nivcsw);
    getrusage(RUSAGE_THREAD, &used); show("thread", used.ru_utime.tv_sec, used.ru_utime.tv_usec);
    show("used", used.ru_maxrss + used.ru_minflt, used.ru_nvcsw + used.ru_nivcsw);
    pid_t child = fork();
    if (child == 0) { for (int i = 0; i < 30000000; i++) work += i; _exit(0); }
    if (wait4(child, 0, 0, &used) != child) return 1;
    show("child", used.ru_maxrss + used.ru_minflt, used.ru_utime.tv_usec);
    getrusage(RUSAGE_CHILDREN, &used); show("children", used.ru_maxrss + used.ru_minflt, used.ru_utime.tv_usec);
    long since = times(&ticks); show("times", since, ticks.tms_utime + ticks.tms_stime);
    show("ticks of children", ticks.tms_cutime, ticks.tms_cstime);
    int result = ntp_gettime(&ntp); show("ntp_gettime", ntp.time.tv_sec, ntp.time.tv_usec);
    show("ntp", ntp.maxerror + ntp.esterror + ntp.tai, result);
    memset(&state, 0, sizeof state);
    result = adjtimex(&state); show("adjtimex", state.time.tv_sec, state.time.tv_usec);
    show("state", state.maxerror + state.esterror + state.tick + state.freq + state.status, result);
    result = clock_adjtime(CLOCK_REALTIME, &state); show("clock_adjtime", state.time.tv_sec, state.time.tv_usec);
    result = ntp_adjtime(&state); show("ntp_adjtime", state.time.tv_sec, state.time.tv_usec);
    sysinfo(&facts); show("sysinfo", facts.uptime, 0);
    result = clock_getcpuclockid(getpid(), &clock_id); show("getcpuclockid", result, clock_id);
    by_clock("of process", clock_id);
    pthread_getcpuclockid(pthread_self(), &clock_id); by_clock("of thread", clock_id);
    pthread_t thread;
    sem_init(&begun, 0, 0); sem_init(&done, 0, 0);
    pthread_create(&thread, 0, other, 0); sem_wait(&begun);
    pthread_getcpuclockid(thread, &clock_id); by_clock("of other thread", clock_id);
    sem_post(&done); pthread_join(thread, 0);
    syscall(SYS_gettimeofday, &day, 0); show("SYS_gettimeofday", day.tv_sec, day.tv_usec);
#ifdef SYS_time
    show("SYS_time", syscall(SYS_time, 0), 0);
#endif
    since = syscall(SYS_times, &ticks); show("SYS_times", since, ticks.tms_utime + ticks.tms_stime);
    syscall(SYS_getrusage, RUSAGE_SELF, &used); show("SYS_getrusage", used.ru_utime.tv_sec, used.ru_utime.tv_usec);
    syscall(SYS_sysinfo, &facts); show("SYS_sysinfo", facts.uptime, 0);
    memset(&state, 0, sizeof state);
    syscall(SYS_adjtimex, &state); show("SYS_adjtimex", state.time.tv_sec, state.time.tv_usec);
    syscall(SYS_clock_adjtime, CLOCK_REALTIME, &state); show("SYS_clock_adjtime", state.time.tv_sec, state.time.tv_usec);
    show("vdso", getauxval(AT_SYSINFO_EHDR) != 0, 0);
    return 0;
}
"#;

#[test]
fn what_shows_a_clock_shows_the_same_in_all_replicas() {
    let (_directory, program) = compile(PROGRAM);
    let run = || run_as_replica("1", "0", program.to_str().unwrap(), &[]);
    let (first, second) = (run(), run());
    for (first, second) in first.lines().zip(second.lines()) {
        assert_eq!(first, second);
        assert!(!first.contains(" -1 "), "no such clock: {first}");
    }
    assert_eq!(first, second);
    // The start in seconds is that of the sequence; the host's clock would differ.
    let of = |name: &str| first.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert!(of("gettimeofday ").starts_with("1700000000 "), "{first}");
    assert!(of("sysinfo ").starts_with("5 ") && of("vdso ") == "0 0" && of("zone ") == "0 0", "{first}");
    // Uses by the process and its children are shown as 0.
    assert!(["used", "child", "children", "ticks of children"].iter().all(|name| of(&format!("{name} ")) == "0 0"));
    // Processor time begins at 0.
    assert!(of("of process ").starts_with("0 ") && of("of other thread ").starts_with("0 "), "{first}");
}

#[test]
fn waits_by_numbers_of_system_calls_last_as_long_as_they_say() {
    let (_directory, program) = compile(
        r#"
        #define _GNU_SOURCE
        #include <stdio.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        int main(void) {
            struct timespec begin, end, pause = {0, 20000000};
            sleep(1);
            clock_gettime(CLOCK_MONOTONIC, &begin);
            end = begin;
            end.tv_nsec += 50000000;
            if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
            syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0);
            syscall(SYS_nanosleep, &pause, 0);
            clock_gettime(CLOCK_MONOTONIC, &end);
            printf("%ld\n", (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
            return 0;
        }
        "#,
    );
    assert_eq!(run_as_replica("1", "0", program.to_str().unwrap(), &[]), "70\n");
}
