//! Shortages of one process, or of its host: descriptors, memory, room for temporary files.

use redrt_tests::{Disk, Job, MemoryGroup, Running, compile, compile_source};
use std::process::Command;
use std::time::Duration;

/// Ranks print a line, wait for a file, and then exchange their first message.
const MEETING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int rank, sum = 0;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        puts("there");
        fflush(stdout);
        while (access(argv[1], F_OK) != 0)
            usleep(2000);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        printf("rank %d: %d\n", rank, sum);
        MPI_Finalize();
        return 0;
    }"#;

/// Leaves a process the descriptors that it has, and no further ones.
fn take_descriptors(id: i32) {
    let is_used = |number: &u64| std::fs::symlink_metadata(format!("/proc/{id}/fd/{number}")).is_ok();
    let first_free = (0..).find(|number| !is_used(number)).expect("one is free");
    let limit = libc::rlimit { rlim_cur: first_free, rlim_max: first_free };
    // SAFETY: - `limit` is valid for the read of one limit; no old limit is written, and the process's memory is not
    //           touched.
    let failed = unsafe { libc::prlimit(id, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

fn meeting(degree: u16) -> (tempfile::TempDir, Running) {
    let (directory, program) = compile_source(MEETING);
    let go = directory.path().join("go");
    let job = Job::new(3, &program).degree(degree).transport("tcp").arguments(&[&go.display().to_string()]).start();
    job.wait_until("output", |job| job.output().matches("there").count() == 3);
    (directory, job)
}

#[test]
fn a_replica_without_descriptors_ends_alone() {
    let (directory, job) = meeting(2);
    take_descriptors(job.pid_of("1.1"));
    std::fs::write(directory.path().join("go"), "").expect("the directory is there");
    let ended = job.wait().ended_with(0).said("Too many open files");
    assert_eq!(ended.summary["lost"], serde_json::json!(["1.1"]), "{ended}");
    for rank in 0..3 {
        assert!(ended.out.contains(&format!("rank {rank}: 3\n")), "{ended}");
    }
}

#[test]
fn a_rank_without_descriptors_ends_the_job_and_says_why() {
    let (directory, job) = meeting(1);
    take_descriptors(job.pid_of("1.0"));
    std::fs::write(directory.path().join("go"), "").expect("the directory is there");
    let _ = job.wait().ended_with(1).said("Too many open files").said("replica 1.0");
}

#[test]
fn a_replica_without_descriptors_at_its_start_ends_alone() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    // The first replica that comes here has no descriptors.
    let script = "mkdir $0.lock 2>/dev/null && ulimit -n 5; exec $0";
    let program = compile("collectives");
    let copy = directory.path().join("program");
    std::fs::copy(&program, &copy).expect("it can be copied");
    let copy = copy.display().to_string();
    let ended = Job::new(2, "/bin/sh".as_ref()).arguments(&["-c", script, &copy]).degree(2).transport("tcp").run();
    let ended = ended.ended_with(0);
    assert_eq!(ended.summary["lost"].as_array().map(Vec::len), Some(1), "{ended}");
}

/// Both replicas of a rank grow until the kernel ends one. The other one needs more than half of the memory, so there
/// is never room for a copy of it.
#[test]
fn a_replica_lost_to_a_full_memory_is_not_copied_there() {
    const GROUP_BYTES: usize = 200 << 20;
    let Some(memory) = MemoryGroup::limited(GROUP_BYTES) else { return };
    let (directory, program) = compile_source(
        r#"
        #include <fcntl.h>
        #include <mpi.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/file.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        /* Calls past the runtime, for which both replicas are one process. */
        static long call(long number, long a, long b, long c) {
            long result;
            __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
            return result;
        }
        /* The kernel is to end the process that grows, whose memory is free before the lock is. */
        static void be_victim(const char *score) {
            int fd = call(SYS_open, (long)"/proc/self/oom_score_adj", O_WRONLY, 0);
            call(SYS_write, fd, (long)score, strlen(score));
            call(SYS_close, fd, 0, 0);
        }
        int main(int argc, char **argv) {
            MPI_Init(&argc, &argv);
            int turn = call(SYS_open, (long)argv[0], O_RDONLY, 0);
            for (int piece = 0; piece < 130; piece++) {
                call(SYS_flock, turn, LOCK_EX, 0);
                be_victim("500");
                memset(malloc(1 << 20), 1, 1 << 20);
                be_victim("0");
                call(SYS_flock, turn, LOCK_UN, 0);
                MPI_Barrier(MPI_COMM_WORLD);
            }
            while (access(argv[1], F_OK) != 0)
                usleep(2000);
            puts("done");
            MPI_Finalize();
            return 0;
        }"#,
    );
    let go = directory.path().join("go");
    let job = Job::new(1, &program).degree(2).options(&["--spares", "1"]).arguments(&[&go.display().to_string()]);
    let job = job.limited_to(&memory).start();
    let waits = "when there is memory for it: it needs about";
    job.wait_until("a copy that waits", |job| job.errors().contains(waits));
    std::fs::write(&go, "").expect("the directory is there");
    let ended = job.wait().ended_with(0).printed("done\n");
    assert_eq!(
        ended.err.matches("killed by signal 9 (SIGKILL) of the kernel, which had no memory left").count(),
        1,
        "{ended}"
    );
    // The kernel may have ended a copy, begun before its source had grown, and not the source.
    assert_eq!((ended.err.matches(waits).count(), ended.err.contains("is back")), (1, false), "{ended}");
    assert_eq!(ended.summary["lost"].as_array().map(Vec::len), Some(1), "{ended}");
}

#[test]
fn a_full_temporary_directory_hinders_no_redctl_and_no_start() {
    let Some(disk) = Disk::small(1 << 20) else { return };
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let stop = directory.path().join("stop");
    disk.fill();
    let full = disk.path("").display().to_string();
    let job = Job::new(3, &compile("until")).degree(2).options(&["--spares", "1"]).environment("TMPDIR", &full);
    let job = job.arguments(&[&stop.display().to_string()]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let redctl = redrt_tests::prefix().join("bin/redctl");
    let listed = || {
        let output = Command::new(&redctl).arg("list").env("TMPDIR", &full).env_remove("XDG_RUNTIME_DIR").output();
        String::from_utf8_lossy(&output.expect("redctl can be run").stdout).into_owned()
    };
    let record = job.audit().into_iter().find(|record| record["event"] == "job-start").expect("it has begun");
    let identity = record["job"].as_str().expect("it has one").to_owned();
    let list = listed();
    assert!(list.contains(&identity), "{identity} is not in {list}");
    // The job's record is in shared memory, where no other job has left anything.
    let _ = Job::new(2, &compile("collectives")).run().ended_with(0);
    std::fs::write(&stop, "").expect("the directory is there");
    let _ = job.wait().ended_with(0);
}

#[test]
fn a_redrun_without_descriptors_does_not_spin() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let stop = directory.path().join("stop");
    let job = Job::new(3, &compile("until")).degree(2).options(&["--metrics", "127.0.0.1:0"]);
    let job = job.arguments(&[&stop.display().to_string()]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let said = job.errors();
    let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("it says where");
    take_descriptors(job.redrun());
    let _waiting = std::net::TcpStream::connect(address).expect("the kernel accepts it");
    let before = job.processor_time();
    std::thread::sleep(Duration::from_secs(2));
    let took = job.processor_time() - before;
    assert!(took < Duration::from_millis(500), "{took:?} of 2 s");
    std::fs::write(&stop, "").expect("the directory is there");
    let _ = job.wait().ended_with(0);
}

/// A program that closes every descriptor it does not know, as daemons do at their start. It prints which of its own
/// are still open, and which of the library's it could have closed.
fn closing(how: &str, before: bool) -> String {
    let (before, after) = if before { (how, "") } else { ("", how) };
    format!(
        r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {{
            int rank, one = 1, all, sum = 0;
            int own[] = {{150, 202, 300}};
            for (int i = 0; i < 3; i++)
                dup2(0, own[i]);
            {before}
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            for (int i = 0; i < 20; i++) {{
                MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
                sum += all;
                if (i == 5) {{
                    {after}
                }}
            }}
            for (int i = 0; i < 3; i++)
                if (fcntl(own[i], F_GETFD) != -1)
                    printf("%d is still open\n", own[i]);
            if (close(200) != -1 || errno != EBADF)
                printf("200 could be closed\n");
            printf("rank %d: %d\n", rank, sum);
            MPI_Finalize();
            return 0;
        }}"#
    )
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_the_librarys() {
    for how in ["for (int fd = 3; fd < 1024; fd++) close(fd);", "close_range(3, ~0U, 0);", "closefrom(3);"] {
        for before in [true, false] {
            let (_directory, program) = compile_source(&closing(how, before));
            for transport in ["shm", "tcp"] {
                let job = Job::new(3, &program).degree(2).transport(transport).options(&["--spares", "1"]);
                let ended = job.run().ended_well();
                assert_eq!(ended.summary["lost"], serde_json::json!([]), "{how} {before}\n{ended}");
                let mut lines: Vec<_> = ended.out.lines().collect();
                lines.sort_unstable();
                assert_eq!(lines, ["rank 0: 60", "rank 1: 60", "rank 2: 60"], "{how} {before}\n{ended}");
            }
        }
    }
}
