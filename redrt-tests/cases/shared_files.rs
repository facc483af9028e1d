//! Files that ranks share: locks, a database, pipes and files without a name, and the blame for a wrong write.

use crate::reasons;
use redrt_tests::{Job, Random, breadth, compile_case, compile_source, prefix, root};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
const KINDS: [&str; 4] = ["fcntl", "lockf", "flock", "ofd"];

/// The gate takes one kind, drawn from the seed.
fn kinds(random: &mut Random) -> &'static [&'static str] {
    let first = random.from_one_to(4) as usize - 1;
    breadth(&KINDS[first..=first], &KINDS[..])
}

/// Two ranks count to `count` each under a lock, in a job that `make` adds to; no count is lost.
fn counted_under_locks(count: u32, random: &mut Random, make: impl Fn(Job, &Path, &mut Random) -> Job) {
    let program = compile_case("locked");
    for kind in kinds(random) {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let file = directory.path().join("counter").display().to_string();
        let job = Job::new(2, &program).arguments(&[&file, kind, &count.to_string()]).limit(LIMIT);
        let ended = make(job, directory.path(), random).run().ended_well();
        assert_eq!(ended.out, format!("counting\n{}\n", 2 * count), "{kind}: {ended}");
    }
}

fn saved(job: Job, directory: &Path) -> Job {
    let store = directory.join("checkpoints").display().to_string();
    job.options(&["--checkpoint", "50ms", "--checkpoint-dir", &store])
}

#[test]
fn locks_are_kept_through_checkpoints() {
    let mut random = Random::from_environment();
    for degree in [1, 2] {
        counted_under_locks(400, &mut random, |job, directory, _| saved(job.degree(degree), directory));
    }
}

#[test]
fn locks_are_kept_when_the_job_goes_back() {
    let (program, mut random) = (compile_case("locked"), Random::from_environment());
    for degree in [1, 2] {
        for kind in kinds(&mut random) {
            let directory = tempfile::tempdir().expect("the temporary directory can be written");
            let [file, gate] = ["counter", "gate"].map(|name| directory.path().join(name).display().to_string());
            let job = Job::new(2, &program).degree(degree).arguments(&[&file, kind, "20", &gate]).limit(LIMIT);
            let store = directory.path().join("checkpoints").display().to_string();
            let job = job.options(&["--checkpoint", "asked", "--checkpoint-dir", &store]).start();
            job.wait_until("counting", |job| job.output().contains("counting"));
            // A job that has just begun does not take checkpoints yet.
            job.wait_until("a checkpoint", |job| job.redctl(&["checkpoint"]).is_ok());
            let pid = |rank: u32, replica: u16| {
                let name = format!("{rank}.{replica}");
                let started = job.audit().into_iter().rfind(|it| it["event"] == "started" && it["replica"] == *name);
                started.and_then(|it| it["pid"].as_i64()).expect("it was started") as i32
            };
            for pid in (0..degree).map(|replica| pid(1, replica)) {
                // SAFETY: - a signal to another process touches no memory of this one.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            job.wait_until("a return", |job| job.errors().contains("the job is back at"));
            fs::write(&gate, "").expect("it can be written");
            let ended = job.wait().ended_well();
            assert_eq!(ended.out, "counting\n40\n", "{kind}: {ended}");
        }
    }
}

/// A replica is copied while it has a lock, or waits for one.
#[test]
fn locks_are_kept_by_copies() {
    let mut random = Random::from_environment();
    for (degree, replica) in [(2, 0), (2, 1), (3, 0)] {
        counted_under_locks(60, &mut random, |job, _, random| {
            let job = job.degree(degree).options(&["--spares", "2"]);
            let [first, second] = [0, 0].map(|_| random.from_one_to(50));
            job.inject(&format!("kill:0.{replica}@file#{first}")).inject(&format!("kill:1.{replica}@#{second}"))
        });
    }
}

/// Three ranks count in one SQLite database in a job that `make` adds to, and no count is lost.
fn counted_in_a_database(count: u32, make: impl Fn(Job, &Path) -> Job) {
    let script = root().join("redrt-tests/cases/tables.py").display().to_string();
    let library = prefix().join("lib/libmpi_abi.so.1").display().to_string();
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let database = directory.path().join("database").display().to_string();
    let job = Job::new(3, "python3".as_ref()).arguments(&[&script, &library, &database, &count.to_string()]);
    let ended = make(job.limit(LIMIT), directory.path()).run().ended_well();
    assert_eq!(ended.out, format!("counting\n{0} {0} ok\n", 3 * count), "{ended}");
}

#[test]
fn a_database_loses_nothing() {
    let mut random = Random::from_environment();
    let count = breadth(6, 60);
    let mut moment = || random.from_one_to(u64::from(count));
    counted_in_a_database(20 * count, saved);
    let kill = format!("kill:0.0@file#{},kill:2.1@#{}", moment(), moment());
    counted_in_a_database(count, |job, _| job.degree(2).options(&["--spares", "2"]).inject(&kill));
    let kill = format!("kill:1.0@#{},kill:1.1@#{}", moment(), moment());
    counted_in_a_database(count, |job, directory| saved(job.degree(2), directory).inject(&kill));
    let kill = format!("kill:0.0@file#{}", moment());
    counted_in_a_database(count, |job, _| job.degree(3).inject(&kill));
}

/// Each replica would get a part of the bytes in the pipe.
#[test]
fn pipes_with_a_name_are_refused_in_one_line() {
    let source = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            MPI_Init(&argc, &argv);
            for (int flags = O_RDONLY; flags <= O_RDWR; flags++)
                if (open(argv[1], flags | O_NONBLOCK) >= 0 || errno != EOPNOTSUPP)
                    perror("it is opened");
            printf("refused\n");
            MPI_Finalize();
            return 0;
        }"#;
    let (directory, program) = compile_source(source);
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("it is new");
    for degree in [2, 3] {
        let job = Job::new(1, &program).degree(degree).arguments(&[&pipe.display().to_string()]);
        let ended = job.run().ended_well().printed("refused\n");
        let said = ended.err.lines().filter(|line| line.contains("is not opened: it is a pipe")).count();
        assert!(said >= 1 && !ended.err.contains("it is opened"), "{ended}");
    }
}

#[test]
fn a_file_without_a_name_gets_one_once() {
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            char name[400], own[40], text[20] = "";
            int rank;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            int file = open(argv[1], O_TMPFILE | O_RDWR, 0644);
            if (file < 0 || write(file, "whole\n", 6) != 6)
                perror("O_TMPFILE");
            snprintf(own, sizeof own, "/proc/self/fd/%d", file);
            snprintf(name, sizeof name, "%s/named-%d", argv[1], rank);
            if (linkat(AT_FDCWD, own, AT_FDCWD, name, AT_SYMLINK_FOLLOW) != 0)
                perror("linkat");
            MPI_Barrier(MPI_COMM_WORLD);
            snprintf(name, sizeof name, "%s/named-%d", argv[1], 1 - rank);
            FILE *other = fopen(name, "r");
            if (!other || !fgets(text, sizeof text, other))
                perror(name);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0)
                printf("%s", text);
            MPI_Finalize();
            return 0;
        }"#;
    let (directory, program) = compile_source(source);
    for degree in 1..=3 {
        let files = directory.path().join(degree.to_string());
        fs::create_dir(&files).expect("it is new");
        let job = Job::new(2, &program).degree(degree).arguments(&[&files.display().to_string()]);
        let ended = job.run().ended_well().printed("whole\n");
        let mut names: Vec<_> =
            fs::read_dir(&files).expect("it is there").map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["named-0", "named-1"], "{ended}");
    }
}

/// A bit flips in the bytes that one replica of three is about to write. That replica is blamed, as leader or follower,
/// and the file is right.
#[test]
fn who_would_write_something_else_is_outvoted() {
    let program = compile_case("written");
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let right = format!("{}\n", "x".repeat(64));
    for way in ["pwrite", "append", "stdio", "MPI"] {
        for (replica, on_sdc) in [(0, "heal"), (0, "abort"), (1, "heal")] {
            let file = directory.path().join(format!("{way}-{replica}-{on_sdc}")).display().to_string();
            let job = Job::new(2, &program).degree(3).arguments(&[&file, way]).options(&["--on-sdc", on_sdc]);
            let ended = job.inject(&format!("recv:0.{replica}@#1")).run().ended_with(0).printed(&right);
            let wrong = format!("0.{replica}");
            assert_eq!(reasons(&ended), [(wrong.as_str(), "outvoted")], "{way}: {ended}");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), right.trim_end(), "{way}: {ended}");
        }
    }
}
