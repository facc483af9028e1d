//! All replicas of a rank run a threaded program of an interpreter alike.

use redrt_tests::{Job, breadth, prefix, root};
use std::process::Command;
use std::time::Duration;

/// True when threads of this machine's Python are ordered; otherwise prints the reason.
fn is_ordered() -> bool {
    let version = Command::new("python3").args(["-c", "import sys; print(sys.version_info.minor)"]).output();
    let version = version.expect("python3 is there").stdout;
    let minor: u32 = String::from_utf8_lossy(&version).trim().parse().expect("Python says its version");
    if minor >= 13 {
        println!("skipped: the threads of CPython 3.{minor} are not ordered (docs/determinism.md)");
    }
    minor < 13
}

fn job(degree: u16, arguments: &[&str]) -> Job {
    job_of("interpreter.py", degree, arguments)
}

fn job_of(script: &str, degree: u16, arguments: &[&str]) -> Job {
    let script = root().join("redrt-tests/cases").join(script).display().to_string();
    let library = prefix().join("lib/libmpi_abi.so.1").display().to_string();
    let job = Job::new(2, "python3".as_ref()).arguments(&[&script, &library]).arguments(arguments).degree(degree);
    job.limit(Duration::from_secs(120))
}

#[test]
fn threads_of_python_that_race_do_the_same_in_all_replicas() {
    if !is_ordered() {
        return;
    }
    for degree in breadth(3..=3, 1..=3) {
        let ended = job(degree, &["30"]).run().ended_well().printed("Python's threads agree\n");
        assert_eq!(ended.number("divergences"), 0, "{ended}");
    }
}

/// One thread computes so long that it has to give way in between, at another point in each replica. An unguarded flag
/// may then differ between replicas, which is reported; the job goes on.
#[test]
#[ignore = "a replica whose threads part waits for 10 s before it says so; with --all"]
fn a_thread_of_python_that_computes_gives_way_in_all_replicas() {
    if !is_ordered() {
        return;
    }
    let _ = job(2, &["5", "compute"]).run().ended_with(0).printed("Python's threads agree\n");
}

#[test]
fn threads_of_python_go_on_alike_after_their_leader_is_lost() {
    if !is_ordered() {
        return;
    }
    let options = ["--inject", "kill:1.0@0.4s", "--spares", "1"];
    let ended = job(2, &["60"]).options(&options).run().ended_with(0).printed("Python's threads agree\n");
    assert_eq!(ended.number("divergences"), 0, "{ended}");
}

/// A pool that has shared its work in different ways, and threads that wait, count, compute or have ended.
#[test]
fn threads_of_python_older_than_mpi_init_behave_alike() {
    if !is_ordered() {
        return;
    }
    let killed = ["--inject", "kill:1.0@#20", "--spares", "1"];
    let worlds = [(1, &[][..]), (2, &[]), (3, &[]), (2, &killed)];
    let all: Vec<_> = worlds.into_iter().flat_map(|world| [(world, &[][..]), (world, &["held"])]).collect();
    // The gate has three replicas with the lock held, and two with a kill without it.
    for ((degree, options), how) in breadth(all[5..7].to_vec(), all.clone()) {
        let job = job_of("early_interpreter.py", degree, &[breadth("12", "25")]).arguments(how).options(options);
        let ended = job.run().ended_with(0).printed("Python's older threads agree\n");
        assert_eq!((ended.number("mismatches"), ended.number("divergences")), (0, 0), "{ended}");
    }
}

/// Tasks, timers, executors and a child. The loop is woken by a pair of sockets, with the interpreter's lock released.
#[test]
fn event_loops_of_python_do_the_same_in_all_replicas() {
    if !is_ordered() {
        return;
    }
    let killed = ["--inject", "kill:1.0@0.5s", "--spares", "1"];
    let all = [(1, "8", &[][..]), (2, "8", &[]), (3, "8", &[]), (2, "24", &killed)];
    for (degree, rounds, options) in breadth(&all[2..], &all[..]).iter().copied() {
        let job = job_of("asynchronous.py", degree, &[rounds]).options(options);
        let ended = job.run().ended_with(0).printed("the loops agree\n");
        assert_eq!((ended.number("mismatches"), ended.number("divergences")), (0, 0), "{ended}");
    }
}
