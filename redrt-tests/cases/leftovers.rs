//! Nothing of a job is left, whichever of those that end it is killed or stopped.

use redrt_tests::{Job, Running, compile_source};

/// Processes whose children have children that left their group and session, and ignore what can be ignored.
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

/// Sends a signal to a process that may have ended, since one before it was killed.
fn send(id: i32, signal: i32) {
    // SAFETY: - a signal to another process touches no memory of this one.
    let _ = unsafe { libc::kill(id, signal) };
}

/// A job of these, with this process as the next parent of what it leaves: otherwise the kernel lets stopped process
/// groups that nobody is left for go on, and hides what is missed here.
fn parents(degree: u16, options: &[&str]) -> (tempfile::TempDir, Running) {
    // SAFETY: - sets a flag of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let (directory, program) = compile_source(PARENTS);
    let job = Job::new(2, &program).degree(degree).options(options).start();
    job.wait_until("output", |job| job.output().matches("waiting").count() == 2);
    (directory, job)
}

#[test]
fn nothing_is_left_when_two_of_redrun_guard_and_daemon_are_killed() {
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
fn nothing_is_left_of_a_job_with_spares_when_redrun_and_daemon_are_killed() {
    let (_directory, job) = parents(2, &["--spares", "1"]);
    let [redrun, _, daemon] = job.chain();
    send(redrun, libc::SIGKILL);
    send(daemon, libc::SIGKILL);
    let _ = job.wait().ended_with(128 + libc::SIGKILL);
}

/// What a daemon has in the directory of temporary files stays there when it is killed. The next one removes it.
#[test]
fn what_a_killed_daemon_has_left_is_removed_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().to_str().unwrap();
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        // The other one has a line for each job of the user.
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
    // One that runs has its own still.
    let _ = waiting("0").run().ended_well();
    assert_eq!(names(), held);
    others.signal(libc::SIGTERM);
    let _ = others.wait();
    assert_eq!(names(), Vec::<String>::new());
}

#[test]
fn nothing_is_left_when_redrun_is_killed_while_its_daemon_stands_still() {
    for stopped in [1, 2] {
        let (_directory, job) = parents(2, &[]);
        let chain = job.chain();
        send(chain[stopped], libc::SIGSTOP);
        send(chain[0], libc::SIGKILL);
        let _ = job.wait().ended_with(128 + libc::SIGKILL);
    }
}

#[test]
fn nothing_is_left_when_a_job_whose_daemon_stands_still_is_asked_to_end() {
    let (_directory, job) = parents(2, &[]);
    let [redrun, _, daemon] = job.chain();
    send(daemon, libc::SIGSTOP);
    send(redrun, libc::SIGTERM);
    let ended = job.wait();
    assert!(ended.left.is_empty() && !matches!(ended.code, None | Some(0)), "{ended}");
}

#[test]
fn nothing_is_left_when_redrun_is_killed_while_guard_and_daemon_stand_still() {
    for degree in [1, 2] {
        let (_directory, job) = parents(degree, &[]);
        let [redrun, guard, daemon] = job.chain();
        send(daemon, libc::SIGSTOP);
        send(guard, libc::SIGSTOP);
        send(redrun, libc::SIGKILL);
        let _ = job.wait().ended_with(128 + libc::SIGKILL);
    }
}

/// A service that a program has started for others, say. When the job fails it goes, too.
#[test]
fn what_is_in_a_session_of_its_own_goes_on_when_a_job_has_ended_well() {
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
