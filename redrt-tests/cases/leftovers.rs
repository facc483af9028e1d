//! Nothing of a job is left when any of its redrun, guard and daemon are killed or stopped.

use redrt_tests::{Job, Running, compile_source};

/// Processes whose children have children in other groups and sessions that ignore all signals that can be ignored.
const PARENTS: &str = r#"
    #include <mpi.h>
    #include <signal.h>
    #include <stdio.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        MPI_Init(&argc, &argv);
        if (fork() == 0) {
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            if (fork() == 0)
                setsid();
            for (;;)
                pause();
        }
        MPI_Barrier(MPI_COMM_WORLD);
        puts("waiting");
        fflush(stdout);
        for (;;)
            pause();
    }"#;

/// Sends a signal to a process that may have ended because another was killed.
fn send(id: i32, signal: i32) {
    // SAFETY: - a signal to another process touches no memory of this one.
    let _ = unsafe { libc::kill(id, signal) };
}

/// A job of such processes, whose orphans become children of this process: the kernel continues a stopped process group
/// without a parent, which would hide a missed process.
fn parents(degree: u16, options: &[&str]) -> (tempfile::TempDir, Running) {
    // SAFETY: - the call takes numbers and sets a flag of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let (directory, program) = compile_source(PARENTS);
    let job = Job::new(2, &program).degree(degree).options(options).start();
    job.wait_until("output", |job| job.output().matches("waiting").count() == 2);
    (directory, job)
}

#[test]
fn two_of_redrun_guard_and_daemon_killed_leave_nothing() {
    for degree in [1, 2] {
        for pair in [[0, 2], [2, 0], [0, 1], [1, 0], [1, 2], [2, 1]] {
            let (_directory, job) = parents(degree, &[]);
            let chain = job.chain();
            pair.iter().for_each(|at| send(chain[*at], libc::SIGKILL));
            let ended = job.wait();
            assert!(ended.left.is_empty() && !matches!(ended.code, None | Some(0)), "{pair:?}\n{ended}");
        }
    }
}

#[test]
fn nothing_is_left_of_a_job_with_spares_whose_daemon_is_killed() {
    let (_directory, job) = parents(2, &["--spares", "1"]);
    let [redrun, _, daemon] = job.chain();
    send(redrun, libc::SIGKILL);
    send(daemon, libc::SIGKILL);
    let _ = job.wait().ended_with(128 + libc::SIGKILL);
}

/// A killed daemon leaves its entry in the directory of temporary files to the next daemon.
#[test]
fn what_a_killed_daemon_has_left_is_removed_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().to_str().unwrap();
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        // The other entry has a line for each job of the user.
        names.retain(|name| name.starts_with("redrt-") && !name.ends_with(&format!("-{}", nix::unistd::geteuid())));
        names.sort();
        names
    };
    let waiting = |seconds: &str| {
        let job = Job::new(1, std::path::Path::new("/bin/sh")).arguments(&["-c", "echo waiting; sleep $0", seconds]);
        job.degree(2).environment("TMPDIR", temporary).options(&["--spares", "1"])
    };
    let job = waiting("600").start();
    job.wait_until("output", |job| job.output().contains("waiting"));
    send(job.chain()[2], libc::SIGKILL);
    let _ = job.wait();
    let left = names();
    assert_eq!(left.len(), 1, "{left:?}");
    let others = waiting("600").start();
    others.wait_until("output", |job| job.output().contains("waiting"));
    let held = names();
    assert!(held.len() == 1 && held != left, "{held:?} after {left:?}");
    // A running daemon still has its own entry.
    let _ = waiting("0").run().ended_well();
    assert_eq!(names(), held);
    others.signal(libc::SIGTERM);
    let _ = others.wait();
    assert_eq!(names(), Vec::<String>::new());
}

#[test]
fn a_killed_redrun_and_a_stopped_daemon_leave_nothing() {
    for stopped in [1, 2] {
        let (_directory, job) = parents(2, &[]);
        let chain = job.chain();
        send(chain[stopped], libc::SIGSTOP);
        send(chain[0], libc::SIGKILL);
        let _ = job.wait().ended_with(128 + libc::SIGKILL);
    }
}

#[test]
fn a_job_with_a_stopped_daemon_leaves_nothing_when_it_ends() {
    let (_directory, job) = parents(2, &[]);
    let [redrun, _, daemon] = job.chain();
    send(daemon, libc::SIGSTOP);
    send(redrun, libc::SIGTERM);
    let ended = job.wait();
    assert!(ended.left.is_empty() && !matches!(ended.code, None | Some(0)), "{ended}");
}

#[test]
fn a_killed_redrun_and_stopped_guard_and_daemon_leave_nothing() {
    for degree in [1, 2] {
        let (_directory, job) = parents(degree, &[]);
        let [redrun, guard, daemon] = job.chain();
        send(daemon, libc::SIGSTOP);
        send(guard, libc::SIGSTOP);
        send(redrun, libc::SIGKILL);
        let _ = job.wait().ended_with(128 + libc::SIGKILL);
    }
}

/// A service that a program has started for other users, say. A failed job takes it along.
#[test]
fn a_session_of_its_own_outlives_a_job_that_ended_well() {
    let source = r#"
        #include <mpi.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int begun[2];
            char byte = 0;
            MPI_Init(&argc, &argv);
            if (pipe(begun) == 0 && fork() == 0) {
                char *const words[] = {"sleep", "1000", NULL};
                int null = open("/dev/null", O_RDWR);
                setsid();
                for (int fd = 0; fd < 3; fd++)
                    dup2(null, fd);
                byte = write(begun[1], &byte, 1) == 1;
                fcntl(begun[1], F_SETFD, FD_CLOEXEC);
                execv("/bin/sleep", words);
                _exit(1);
            }
            if (read(begun[0], &byte, 1) != 1)
                printf("it has not begun\n");
            MPI_Finalize();
            return atoi(argv[1]);
        }"#;
    let (_directory, program) = compile_source(source);
    for (degree, code) in [(1, 0), (2, 0), (1, 3)] {
        let job = Job::new(1, &program).degree(degree).options(&["--files", "all"]).arguments(&[&code.to_string()]);
        let ended = job.run();
        let going_on = ended.left.iter().filter(|left| left.contains("sleep")).count();
        assert_eq!(ended.code, Some(code), "{ended}");
        assert_eq!(going_on, if code == 0 { usize::from(degree) } else { 0 }, "{ended}");
        assert_eq!((ended.left.len(), ended.out.as_str()), (going_on, ""), "{ended}");
    }
}
