//! Two processes under the preload library must see the same values, and uses of these values must still work.

mod replica;

use replica::{compile, library, run_as_replica};
use std::process::{Command, Stdio};
use std::time::Instant;

fn python(seed: &str, rank: &str, script: &str) -> String {
    run_as_replica(seed, rank, "python3", &["-c", script])
}

const SCRIPT: &str = "
import os, random, time, uuid, socket
print(os.urandom(40).hex(), random.random(), hash('text'), uuid.uuid4())
print(open('/dev/urandom', 'rb').read(16).hex(), set('abcdefgh'))
print(time.time(), time.monotonic(), time.process_time(), time.localtime())
print(os.getpid(), os.getppid(), os.getpgrp(), socket.gethostname(), os.uname().nodename)
";

#[test]
fn replicas_agree_and_ranks_differ() {
    let first = python("1f", "3", SCRIPT);
    assert_eq!(first, python("1f", "3", SCRIPT));
    assert!(first.contains("some-host some-host"), "{first}");
    let line = |text: &str| text.lines().next().unwrap().to_owned();
    assert_ne!(line(&first), line(&python("1f", "4", SCRIPT)));
    assert_ne!(line(&first), line(&python("20", "3", SCRIPT)));
}

#[test]
fn sleeps_and_timed_waits_last_as_long_as_they_seem() {
    let script = "
import time, queue, threading, select
time.sleep(0.05)
for _ in range(200000): time.monotonic()
begin = time.monotonic()
try: queue.Queue().get(timeout=0.3)
except queue.Empty: print('empty', round(time.monotonic() - begin, 2))
begin = time.time(); time.sleep(0.2); print('slept', round(time.time() - begin, 2))
begin = time.time(); select.select([], [], [], 0.1); print('selected', round(time.time() - begin, 2))
event = threading.Event(); print('event', event.wait(0.1))
";
    let begin = Instant::now();
    assert_eq!(python("1", "0", script), "empty 0.3\nslept 0.2\nselected 0.1\nevent False\n");
    let took = begin.elapsed().as_secs_f64();
    assert!((0.7..5.0).contains(&took), "{took} s");
}

#[test]
fn a_process_knows_itself_by_the_id_it_shows() {
    let script = "
import os, signal, subprocess, threading
os.kill(os.getpid(), 0)
caught = []
signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
os.kill(os.getpid(), signal.SIGUSR1)
print(len(caught), os.sched_getaffinity(os.getpid()) == os.sched_getaffinity(0), threading.get_native_id() == os.getpid())
mine = os.getpid()
child = os.fork()
if child == 0:
    os._exit(0 if os.getppid() == mine and os.getpid() != mine else 1)
print(os.waitpid(child, 0)[1])
subprocess.run(['kill', '-USR1', str(os.getpid())], check=True)
subprocess.run(['sh', '-c', f'kill -USR1 {os.getpid()}; true'], check=True)
print(len(caught))
";
    assert_eq!(python("1", "0", script), "1 True True\n0\n3\n");
}

/// `/proc/PID/…`, also with a shell's `$$` in its commands.
#[test]
fn a_process_finds_its_directory_in_proc_by_the_id_it_shows() {
    let script = r#"
import os, subprocess
mine = f'/proc/{os.getpid()}'
print(open(f'{mine}/comm').read().strip() == open('/proc/self/comm').read().strip(), os.path.exists(f'{mine}/status'))
print(os.readlink(f'{mine}/exe') == os.readlink('/proc/self/exe'), 'maps' in os.listdir(mine), os.path.isdir(mine))
print(os.path.exists('/proc/4194299/comm'), os.path.exists(f'{mine}9/comm'), os.path.exists('/proc/99999999999999999999'))
child = subprocess.run(['sh', '-c', f'read name <{mine}/comm && cat {mine}/comm'], stdout=subprocess.PIPE, check=True)
print(child.stdout.decode().strip() == open(f'{mine}/comm').read().strip())
"#;
    assert_eq!(python("1", "0", script), "True True\nTrue True True\nFalse False False\nTrue\n");
}

#[test]
fn forked_children_draw_other_bytes_in_the_same_way() {
    let script = "
import os
for _ in range(2):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, os.urandom(8).hex().encode())
        os._exit(0)
    os.wait()
    print(os.read(reader, 16).decode())
print(os.urandom(8).hex())
";
    let first = python("1", "0", script);
    assert_eq!(first, python("1", "0", script));
    let lines: std::collections::BTreeSet<_> = first.lines().collect();
    assert_eq!(lines.len(), 3, "{first}");
}

#[test]
fn c_programs_agree_and_number_their_threads_alike() {
    let (_directory, program) = compile(
        r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/random.h>
        #include <sys/syscall.h>
        #include <sys/time.h>
        #include <time.h>
        #include <unistd.h>
        static unsigned long (*thread_number)(void);
        static unsigned long seen[4];
        static void *note(void *place) {
            *(unsigned long *)place = thread_number();
            return 0;
        }
        static void *nest(void *place) {
            pthread_t inner;
            note(place);
            pthread_create(&inner, 0, note, (unsigned long *)place + 1);
            pthread_join(inner, 0);
            return 0;
        }
        int main(void) {
            thread_number = dlsym(RTLD_DEFAULT, "redrt_thread_number");
            unsigned long bytes[3];
            getrandom(&bytes[0], 8, 0);
            getentropy(&bytes[1], 8);
            syscall(SYS_getrandom, &bytes[2], 8, 0);
            FILE *device = fopen("/dev/urandom", "r");
            unsigned long from_device;
            if (fread(&from_device, 8, 1, device) != 1) return 2;
            printf("%lx %lx %lx %lx\n", bytes[0], bytes[1], bytes[2], from_device);
            struct timeval day;
            gettimeofday(&day, 0);
            printf("%ld %ld %ld\n", time(0), (long)day.tv_usec, (long)clock());
            printf("%d %d %d\n", getpid() == (int)syscall(SYS_getpid), getpid() == gettid(), getpid());
            pthread_t threads[2];
            for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, nest, &seen[2 * i]);
            for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
            printf("%lu %lx %lx %lx %lx\n", thread_number(), seen[0], seen[1], seen[2], seen[3]);
            pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
            pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
            struct timespec deadline;
            sleep(1);
            clock_gettime(CLOCK_REALTIME, &deadline);
            deadline.tv_nsec += 200000000;
            if (deadline.tv_nsec >= 1000000000) deadline.tv_nsec -= 1000000000, deadline.tv_sec++;
            pthread_mutex_lock(&mutex);
            printf("%d\n", pthread_cond_timedwait(&cond, &mutex, &deadline) == ETIMEDOUT);
            return 0;
        }
        "#,
    );
    let begin = Instant::now();
    let first = run_as_replica("77", "2", program.to_str().unwrap(), &[]);
    assert!(begin.elapsed().as_secs_f64() >= 1.2, "the timed wait ended early");
    assert_eq!(first, run_as_replica("77", "2", program.to_str().unwrap(), &[]));
    let lines: Vec<_> = first.lines().collect();
    assert!(lines[0].split(' ').collect::<std::collections::BTreeSet<_>>().len() == 4, "{first}");
    assert!(lines[2].starts_with("1 1 "), "{first}");
    let numbers: Vec<_> = lines[3].split(' ').collect();
    assert_eq!(numbers[0], "0");
    assert_eq!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "{first}");
}

#[test]
fn without_a_job_everything_is_real() {
    let output =
        Command::new("sh").args(["-c", "echo $$"]).env("LD_PRELOAD", library()).env_remove("REDRT_SEED").output();
    let shown: u32 = String::from_utf8(output.unwrap().stdout).unwrap().trim().parse().unwrap();
    assert!(shown <= 1 << 22);
}

/// The environment may have been changed. The meaning of the variables is then open, but programs must run.
#[test]
fn programs_run_whatever_the_variables_hold() {
    const VARIABLES: [&str; 5] =
        ["REDRT_SEED", "REDRT_RANK", "REDRT_START_NS", "REDRT_START_MONOTONIC_NS", "REDRT_HOST"];
    let script = "import os, time, socket; os.urandom(9); time.time(); time.monotonic(); time.localtime(); os.getpid()\n\
                  time.sleep(0.001); socket.gethostname(); os.uname(); print('alive')";
    let run = |value: &str, rubbish: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", script]).env("LD_PRELOAD", library()).stdin(Stdio::null());
        for variable in VARIABLES {
            command.env(variable, if rubbish.contains(&variable) { value } else { "7" });
        }
        let output = command.output().unwrap();
        let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.0 == "alive\n", "{rubbish:?}={value:?}: {} {said:?}", output.status);
    };
    for value in ["", "zz", "-1", "18446744073709551615", "99999999999999999999999", "é\u{1b}[", &"x".repeat(900)] {
        run(value, &VARIABLES);
    }
    for variable in VARIABLES {
        run("9223372036854775807", &[variable]);
    }
}
